"""Few-shot classification: SetFit's two steps and plain fine-tuning on the same examples.

    python -m experiments.few_shot --data_dir=glue --run_dir=runs/few_shot

Draws examples of each label from the support messages in `tools/support_messages/` and from SST-2, once for each of
--num_seeds seeds, trains --init_checkpoint on them in both ways, and prints the table, which is also written to
table.md and table.json in --run_dir: the median and range of the accuracy on dev after the last training step, and the
median of the seconds for training and evaluation. `train.tsv` in the folder of a seed has its examples. Re-run the same
command to resume an interrupted experiment.
"""

import statistics
from collections import Counter
from pathlib import Path

from absl import app, flags

DATASETS = ("support messages", "SST-2")
SETFIT, FINE_TUNING = "SetFit", "fine-tuning"
_MIN_STEPS = 100  # of fine-tuning, whose epochs have few steps


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("data_dir", None, "GLUE's folder.", required=True, flag_values=values)
    flags.DEFINE_string("run_dir", None, "Folder for all outputs.", required=True, flag_values=values)
    flags.DEFINE_string("init_checkpoint", "all_minilm_l6_v2", "The encoder to start from.", flag_values=values)
    flags.DEFINE_integer("num_seeds", 3, "Number of draws of examples.", lower_bound=1, flag_values=values)
    flags.DEFINE_list("examples_per_class", ["8", "64"], "Numbers of examples, or all if fewer.", flag_values=values)
    flags.DEFINE_integer("max_pairs", 2000, "Maximum number of pairs of SetFit.", lower_bound=2, flag_values=values)


def find_files(dataset, data_dir):
    """Returns the files of a data set, to train and to evaluate on, and their column of texts."""
    from tools import support_messages

    is_glue = dataset == "SST-2"
    folder = Path(data_dir) / "SST-2" if is_glue else Path(support_messages.__file__).parent
    return folder / "train.tsv", folder / "dev.tsv", "sentence" if is_glue else "text"


def write_examples(source, text_column, number, seed, target):
    """Writes `number` examples of each label as TSV, or as many as the rarest label has; returns both numbers."""
    from keras_bert.data.example_files import read_examples
    from keras_bert.finetuning.few_shot_task import draw_examples
    from keras_bert.io.atomic_write import atomic_text_file

    rows = list(read_examples(source, text_columns=text_column, label_column="label"))
    counts = Counter(row["label"] for row in rows)
    number = min(number, *counts.values())
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_text_file(target, overwrite=True) as file:
        file.write(f"{text_column}\tlabel\n")
        file.writelines(f"{row['text']}\t{row['label']}\n" for row in draw_examples(rows, number, seed))
    return number, number * len(counts)


def make_task(method, train, dev, text_column, max_pairs, seed):
    """Returns the task of a method; the seed draws SetFit's pairs."""
    from keras_bert.finetuning.few_shot_task import FewShotClassification, FewShotSettings
    from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings

    files = {"train_file": (str(train),), "dev_file": (str(dev),), "text_column": text_column}
    if method == FINE_TUNING:
        return TextClassification.from_settings(TextClassificationSettings(**files), ("train",))
    return FewShotClassification.from_settings(FewShotSettings(max_pairs=max_pairs, **files), ("train",), seed)


def make_recipe(method, num_examples, **settings):
    """Returns the recipe of a method: the setfit library's defaults, or that of `tools.quickstart`."""
    import keras_bert

    if method == SETFIT:
        settings |= {"epochs": 1, "learning_rate": 2e-5, "bucket_step": 0}
    else:
        settings |= {"epochs": max(6, _MIN_STEPS * 16 // num_examples), "learning_rate": 2e-4, "schedule": "linear"}
    return keras_bert.FineTuningRecipe(
        batch_size=16, bias_correction=True, max_seq_length=64, evaluate_every=1_000_000, **settings
    )


def run(values):
    """Trains and evaluates in both ways; returns the records of the table."""
    import keras_bert
    from experiments.tables import format_table, write_table

    run_dir, rows, records = Path(values.run_dir), [], {}
    run_dir.mkdir(parents=True, exist_ok=True)
    for dataset in DATASETS:
        source, dev, text_column = find_files(dataset, values.data_dir)
        for wanted in map(int, values.examples_per_class):
            trials = {SETFIT: [], FINE_TUNING: []}
            for seed in range(1, values.num_seeds + 1):
                folder = run_dir / f"{dataset.lower().replace(' ', '_')}_{wanted}" / f"seed_{seed}"
                train = folder / "train.tsv"
                number, num_examples = write_examples(source, text_column, wanted, seed, train)
                for method, found in trials.items():
                    task = make_task(method, train, dev, text_column, values.max_pairs, seed)
                    recipe = make_recipe(method, num_examples, init_checkpoint=values.init_checkpoint, seed=seed)
                    results = keras_bert.fine_tune(task, recipe, folder / method.lower(), modes=("train",))
                    found.append(results["trials"][0])
            for method, found in trials.items():
                scores = [100 * trial["score"] for trial in found]
                rows.append(
                    {
                        "data": dataset,
                        "examples per class": number,
                        "method": method,
                        "accuracy": f"{statistics.median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})",
                        "seconds": f"{statistics.median(trial['seconds'] for trial in found):.0f}",
                    }
                )
                records[f"{dataset}, {number}, {method}"] = found
            write_table(run_dir, rows, records)
    print(format_table(rows), end="")
    return records


def main(argv):
    """Runs the experiment."""
    from experiments.programs import run_experiment

    run_experiment("experiments.few_shot", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
