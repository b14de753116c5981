"""Scores of models exported to other runtimes, in float32 and int8, on five tasks.

    python -m experiments.quantization --data_dir=data --run_dir=runs/quantization

Fine-tunes --init_checkpoint once per task, exports it in every format by every method, evaluates the written files on
dev, and prints the table, which is also written to table.md and table.json in --run_dir. Re-run the same command to
resume an interrupted experiment. The folder of data has `glue/SST-2`, `glue/RTE`, `ner/wnut17/{train,dev}.conll`,
`squad/v1.1/{train,eval}.json`, and `sts/sick/{train,test}.tsv` (SICK, whose sentences are embedded without training).
"""

import csv
import functools
import itertools
import json
from pathlib import Path

import numpy as np
from absl import app, flags, logging

from keras_bert.export.export_options import INT8, INT8_DYNAMIC, RUNTIME_FORMATS

# Settings of the fine-tuning by task, whose names are the columns of the table.
RECIPES = {
    "SST-2, accuracy": {"epochs": 3.0, "learning_rate": 5e-5},
    "RTE, accuracy": {"epochs": 3.0, "learning_rate": 2e-4},
    "WNUT-17, F1": {"epochs": 3.0, "learning_rate": 2e-4, "bucket_step": 0},
    "SQuAD 1.1, F1": {"epochs": 2.0, "learning_rate": 2e-4, "batch_size": 16, "max_seq_length": 256},
}
SIMILARITY = "SICK, Spearman"
METHODS = (*itertools.product(RUNTIME_FORMATS, (None, INT8_DYNAMIC)), ("openvino", INT8))
_BATCH_SIZE = 64


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("data_dir", None, "The folder of the data.", required=True, flag_values=values)
    flags.DEFINE_string("run_dir", None, "Folder for all outputs.", required=True, flag_values=values)
    flags.DEFINE_string("init_checkpoint", "all_minilm_l6_v2", "The pre-trained BERT.", flag_values=values)
    flags.DEFINE_string("precision", "float32", "Dtype policy of the training.", flag_values=values)
    names = (("sst2_rows", 4000, "training rows of SST-2"), ("train_questions", 3000, "training questions of SQuAD"))
    for name, default, what in (*names, ("eval_questions", 600, "questions of SQuAD to evaluate on")):
        flags.DEFINE_integer(name, default, f"Number of {what}.", lower_bound=1, flag_values=values)


def make_tasks(values):
    """Returns the fine-tuning task of each name in `RECIPES`."""
    from keras_bert.finetuning.glue import GlueClassification, GlueSettings
    from keras_bert.finetuning.question_answering_task import QuestionAnsweringSettings, QuestionAnsweringTask
    from keras_bert.finetuning.token_classification_task import TokenClassificationSettings, TokenClassificationTask

    data, modes = Path(values.data_dir), ("train", "eval")
    sst2, rte = (
        GlueClassification.from_settings(GlueSettings(task=name, data_dir=str(data / "glue")), modes)
        for name in ("sst2", "rte")
    )
    sst2.data = _first(sst2.data, train=values.sst2_rows)
    folder = data / "ner" / "wnut17"
    files = {f"{split}_file": (str(folder / f"{split}.conll"),) for split in ("train", "dev")}
    tagging = TokenClassificationTask.from_settings(TokenClassificationSettings(**files), modes)
    files = {f"{split}_file": str(data / "squad" / "v1.1" / f"{split}.json") for split in ("train", "eval")}
    squad = QuestionAnsweringTask.from_settings(
        QuestionAnsweringSettings(version="1.1", skip_bad_rows=True, **files), modes
    )
    squad.data = _first(squad.data, train=values.train_questions, evaluation=values.eval_questions)
    return dict(zip(RECIPES, (sst2, rte, tagging, squad), strict=True))


def _first(data, train, evaluation=None):
    """Returns the data of a task with only the first examples."""
    from keras_bert.finetuning.task import TaskData

    splits = {name: list(itertools.islice(examples, evaluation)) for name, examples in data.evaluation.items()}
    return TaskData(list(itertools.islice(data.train, train)), splits, bad_rows=data.bad_rows)


def run_in_runtime(model, compute):
    """Makes a model predict with an exported file: `compute` maps ids to the outputs."""
    from keras_bert.models.inference import Predictor

    class RuntimePredictor(Predictor):
        def outputs_by_batch(self, model, batches, verbose=0):
            return [
                _as_the_model(compute({name: batch[name] for name in ("token_ids", "segment_ids", "padding_mask")}))
                for batch in batches.as_numpy_iterator()
            ]

    model._predictor = RuntimePredictor()


def _as_the_model(outputs):
    """Returns the outputs of a file in the form of the model's: logits, embeddings, or the logits of spans."""
    if "probabilities" in outputs:
        return np.log(np.maximum(outputs["probabilities"], np.finfo("float32").tiny))
    return outputs.get("embedding", outputs)


def read_pairs(path):
    """Returns two lists of sentences and their relatedness from a file of SICK."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    first, second = ([row[f"sentence_{name}"] for row in rows] for name in "AB")
    return first, second, [float(row["relatedness_score"]) for row in rows]


def models(values):
    """Yields the name, the model, a function that exports it, texts to calibrate on, and a function that scores it."""
    import keras_bert
    from keras_bert.finetuning.run_models import best_model
    from keras_bert.metrics.correlation import spearman_correlation

    for name, task in make_tasks(values).items():
        recipe = keras_bert.FineTuningRecipe(
            init_checkpoint=values.init_checkpoint,
            precision=values.precision,
            bias_correction=True,
            schedule="linear",
            evaluate_every=1_000_000,  # only at the end
            **RECIPES[name],
        )
        folder = Path(values.run_dir) / task.name
        keras_bert.fine_tune(task, recipe, folder, modes=("train",))
        model = task.trained_model(best_model(folder), recipe)
        yield name, model, task.export, task.training_examples(model), functools.partial(_score, task, model)
    embedder = keras_bert.BertTextEmbedder.from_preset(values.init_checkpoint)
    folder = Path(values.data_dir) / "sts" / "sick"
    *sentences, relatedness = read_pairs(folder / "test.tsv")

    def score():
        first, second = (embedder.encode(side, _BATCH_SIZE) for side in sentences)  # of length 1
        return spearman_correlation(relatedness, np.sum(first * second, axis=1))

    yield SIMILARITY, embedder, type(embedder).export, read_pairs(folder / "train.tsv")[0], score


def _score(task, model):
    return task.evaluate(model, _BATCH_SIZE)[task.score]


def make_rows(records):
    """Returns the rows of the table: by format and method, the score on each task in points, and its change."""
    float_scores = {(row["task"], row["format"]): row["score"] for row in records if row["quantize"] is None}
    rows = {}
    for record in records:
        format, quantize = record["format"], record["quantize"]
        first_columns = {"format": format, "quantize": quantize, "MB": f"{record['bytes'] / 1e6:.1f}"}
        row = rows.setdefault((format, quantize), first_columns)
        change = record["score"] - float_scores[record["task"], format]
        row[record["task"]] = f"{100 * record['score']:.2f}" + (f" ({100 * change:+.2f})" if quantize else "")
    return list(rows.values())


def run(values):
    """Fine-tunes, exports and evaluates, and writes the table."""
    from experiments.tables import format_table, write_table
    from keras_bert.export.runtime_folder import load_model

    folder = Path(values.run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "table.json"
    records = json.loads(file.read_text()) if file.exists() else []
    done = {(record["task"], record["format"], record["quantize"]) for record in records}
    for task, model, export, texts, score in models(values):
        for format, quantize in METHODS:
            if (task, format, quantize) in done:
                continue
            path = folder / "exported" / f"{task.split(',')[0]}_{format}_{quantize}".replace(" ", "_")
            if not path.exists():
                calibration_texts = texts if quantize == INT8 else None
                export(model, path, format=format, quantize=quantize, calibration_texts=calibration_texts)
            run_in_runtime(model, load_model(path, format))
            size = sum(part.stat().st_size for part in path.glob("model.*"))
            record = {"task": task, "format": format, "quantize": quantize, "score": float(score()), "bytes": size}
            records.append(record)
            logging.info("%s", record)
            write_table(folder, make_rows(records), records)
    print(format_table(make_rows(records)), end="")


def main(argv):
    """Runs the experiment."""
    from experiments.programs import run_experiment

    run_experiment("experiments.quantization", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
