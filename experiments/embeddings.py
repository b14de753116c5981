"""Embeddings before and after training, on similarity, reranking and retrieval.

    python -m experiments.embeddings --data_dir=data --run_dir=runs/embeddings

Trains --init_checkpoint on each task with --num_seeds seeds, evaluates it on the test split before the training and
after its last step, and prints the table, which is also written to table.md and table.json in --run_dir: before, BM25
where texts are ranked, and the median and range of the seeds. Re-run the same command to resume an interrupted
experiment. The folder of data has `sts/sick/{train,test}.tsv` (relatedness of sentences),
`retrieval/trecqa/{train,test}.csv` (the sentences of a question that answer it), and `squad/v1.1/{train,eval}.json`,
from which questions and their paragraphs are taken. BM25 needs `pip install bm25s`.
"""

import csv
import statistics
from pathlib import Path

import numpy as np
from absl import app, flags

TASKS = ("SICK", "TREC QA", "SQuAD")
# The training of each task; the metrics in the table are those of its evaluation.
RECIPES = {
    "SICK": {"epochs": 4.0, "learning_rate": 5e-5},
    "TREC QA": {"epochs": 4.0, "learning_rate": 2e-5, "bucket_step": 0},
    "SQuAD": {"epochs": 1.0, "learning_rate": 5e-5, "bucket_step": 0, "max_seq_length": 256, "batch_size": 64},
}


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("data_dir", None, "The folder of the data.", required=True, flag_values=values)
    flags.DEFINE_string("run_dir", None, "Folder for all outputs.", required=True, flag_values=values)
    flags.DEFINE_string("init_checkpoint", "all_minilm_l6_v2", "The encoder to start from.", flag_values=values)
    flags.DEFINE_string("precision", "float32", "Dtype policy of the training.", flag_values=values)
    flags.DEFINE_integer("num_seeds", 3, "Number of trainings per task.", lower_bound=1, flag_values=values)
    flags.DEFINE_multi_enum("task", list(TASKS), TASKS, "Tasks; repeat the flag for several.", flag_values=values)


def make_settings(name, data, folder):
    """Returns the settings of a task on the files of `data`; SQuAD's pairs are written to `folder`."""
    from keras_bert.finetuning.embedding_task import EmbeddingTaskSettings

    if name == "SICK":
        files = [data / "sts" / "sick" / f"{split}.tsv" for split in ("train", "test")]
        settings = {"text_columns": ("sentence_A", "sentence_B"), "score_column": "relatedness_score"}
        settings |= {"score_range": (1, 5), "objective": "cosent", "evaluation": "similarity"}
    elif name == "TREC QA":
        files = [data / "retrieval" / "trecqa" / f"{split}.csv" for split in ("train", "test")]
        settings = {"text_columns": ("qtext", "atext"), "score_column": "label", "min_score": 1.0}
        settings |= {"evaluation": "reranking"}
    else:
        files = [folder / f"{split}.csv" for split in ("train", "eval")]
        for file in files:
            write_squad_pairs(data / "squad" / "v1.1" / f"{file.stem}.json", file)
        settings = {"text_columns": ("question", "paragraph"), "evaluation": "retrieval"}
    train, test = ((str(file),) for file in files)
    return EmbeddingTaskSettings(train_file=train, dev_file=test, **settings)


def write_squad_pairs(source, path):
    """Writes the questions of a SQuAD file and their paragraphs as CSV."""
    from keras_bert.data.formats.squad_files import read_squad

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "paragraph"])
        writer.writerows([question.question, question.context] for question in read_squad(source))


def rank_with_bm25(task):
    """Returns the metrics of BM25 on a task's test split; none if scores are compared or bm25s is not installed."""
    from keras_bert.finetuning.embedding_task import RETRIEVAL, SIMILARITY, reranking_metrics, retrieval_metrics
    from keras_bert.models.embedding_objectives import number_texts

    try:
        import bm25s
    except ImportError:
        return {}
    if task.settings.evaluation == SIMILARITY:
        return {}
    rows = list(task.data.evaluation["dev"])
    questions, texts = ([row[name] for row in rows] for name in ("text_a", "text_b"))
    first = number_texts(questions, texts)[:, 0]
    corpus = list(dict.fromkeys(texts))
    index = bm25s.BM25()
    index.index(bm25s.tokenize(corpus, show_progress=False), show_progress=False)
    queries = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    scores = np.stack(
        [index.get_scores(tokens) for tokens in bm25s.tokenize(list(queries), return_ids=False, show_progress=False)]
    )
    documents = {text: number for number, text in enumerate(corpus)}
    if task.settings.evaluation == RETRIEVAL:
        ranked = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        relevance = [{} for _ in queries]
        for question, text in zip(questions, texts, strict=True):
            relevance[queries[question]][documents[text]] = 1.0
        return retrieval_metrics(ranked, relevance)
    own = np.array([scores[queries[a], documents[b]] for a, b in zip(questions, texts, strict=True)])
    return reranking_metrics(own, first, np.array([row["label"] > 0 for row in rows]))


def run(values):
    """Trains and evaluates on all tasks; returns the records of the table."""
    import keras_bert
    from experiments.tables import format_table, write_table
    from keras_bert.finetuning.embedding_task import EmbeddingTask
    from keras_bert.finetuning.run_models import resolve_checkpoints

    run_dir, rows, records = Path(values.run_dir), [], {}
    for name in values.task:
        folder = run_dir / name.lower().replace(" ", "_")
        task = EmbeddingTask.from_settings(make_settings(name, Path(values.data_dir), folder), ("train", "eval"))
        recipe = keras_bert.FineTuningRecipe(
            init_checkpoint=values.init_checkpoint,
            precision=values.precision,
            num_seeds=values.num_seeds,
            evaluate_every=1_000_000,  # only after the last step
            **RECIPES[name],
        )
        untrained = task.new_model(resolve_checkpoints(recipe.trials()[0]), keras_bert.FineTuningRuntime())
        before = task.evaluate(untrained, None)
        trials = keras_bert.fine_tune(task, recipe, folder / "run", modes=("train",))["trials"]
        bm25 = rank_with_bm25(task)
        records[name] = {"before": before, "bm25": bm25, "trials": trials}
        for metric, value in before.items():
            after = [100 * trial["metrics"][metric] for trial in trials]
            found = bm25.get(metric.partition("/")[2])
            rows.append(
                {
                    "task": name,
                    "metric": metric.partition("/")[2],
                    "BM25": "-" if found is None else f"{100 * found:.2f}",
                    "before": f"{100 * value:.2f}",
                    "after": f"{statistics.median(after):.2f} ({min(after):.2f} to {max(after):.2f})",
                }
            )
        write_table(run_dir, rows, records)
    print(format_table(rows), end="")
    return records


def main(argv):
    """Runs the experiment."""
    from experiments.programs import run_experiment

    run_experiment("experiments.embeddings", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
