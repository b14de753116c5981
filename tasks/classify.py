"""Fine-tunes BERT on a user's own files, evaluates it, writes predictions, and exports a SavedModel.

    python -m tasks.classify --train_file=train.csv --dev_file=dev.csv --text_column=message --label_column=category \\
        --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/messages

Files are TSV, CSV or JSON Lines with named columns. Labels are taken from the training file, or given. --mode says what
to do, in any combination: train, eval, predict, export. What comes of it lies in --run_dir: results.json,
evaluation.json, confusion_matrix_dev.png, log.jsonl, training_curve.png, predictions/, saved_model/1/. A run that was
interrupted goes on where it stopped when the same command is given again.
"""

import functools
from pathlib import Path

from absl import app, flags, logging

import tasks.flags

PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
# What a run's configuration says of its task's form.
OF_THE_TASK = (
    "text_columns",
    "label_column",
    "labels",
    "problem_type",
    "label_separator",
    "file_format",
    "validation_split",
    "hold_out_seed",
)


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_fine_tuning_flags()
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_multi_string("train_file", [], "File to train on, or a pattern; repeat it for several.")
    flags.DEFINE_multi_string("dev_file", [], "File to evaluate on and to choose the best model by.")
    flags.DEFINE_float("validation_split", 0.1, "Without --dev_file: the share of the training rows that is held out.")
    flags.DEFINE_multi_string("predict_file", [], "File to predict; each gets a file in predictions/.")
    flags.DEFINE_string("text_column", "text", "Column of the texts.")
    flags.DEFINE_list("text_columns", None, "For pairs: the columns of both texts, comma-separated.")
    flags.DEFINE_string("label_column", "label", "Column of the labels.")
    flags.DEFINE_list("labels", None, "The labels in order, comma-separated; default: those in the training file.")
    flags.DEFINE_enum("problem_type", PROBLEM_TYPES[0], PROBLEM_TYPES, "One label, several at once, or a number.")
    flags.DEFINE_string("label_separator", ",", "What parts several labels in a column.")
    flags.DEFINE_enum("file_format", None, ["tsv", "csv", "jsonl"], "Default: by the files' names.")
    flags.register_validator(
        "text_columns", lambda columns: columns is None or len(columns) == 2, "must name two columns, comma-separated"
    )
    flags.register_validator("validation_split", lambda share: 0 < share < 1, "must lie between 0 and 1")


def single_label_metrics(labels, predictions, num_labels):
    """Accuracy, macro F1 over all classes, and Matthews correlation."""
    from keras_bert.metrics.classification import accuracy, macro_f1, matthews_correlation

    return {
        "accuracy": accuracy(labels, predictions),
        "macro_f1": macro_f1(labels, predictions, num_labels),
        "matthews_correlation": matthews_correlation(labels, predictions),
    }


def multi_label_metrics(labels, predictions, num_labels):
    """Micro and macro F1, and the share of examples with all labels right."""
    from keras_bert.metrics.classification import multi_label_report

    report = multi_label_report(labels, predictions, [str(number) for number in range(num_labels)])
    return {
        "micro_f1": report["micro"]["f1"],
        "macro_f1": report["macro"]["f1"],
        "subset_accuracy": report["subset_accuracy"],
    }


def regression_metrics(labels, predictions, _):
    """Both correlations, and the mean squared error."""
    from keras_bert.metrics.correlation import pearson_correlation, spearman_correlation

    return {
        "pearson_correlation": pearson_correlation(labels, predictions),
        "spearman_correlation": spearman_correlation(labels, predictions),
        "mean_squared_error": float(((labels - predictions) ** 2).mean()),
    }


# By problem type: the metrics, and the one of them that says which model is best.
METRICS = {
    "single_label_classification": (single_label_metrics, "accuracy"),
    "multi_label_classification": (multi_label_metrics, "micro_f1"),
    "regression": (regression_metrics, "pearson_correlation"),
}


def own_classification(
    modes,
    train_file,
    dev_file,
    validation_split,
    predict_file,
    text_columns,
    label_column,
    labels,
    problem_type,
    label_separator,
    file_format,
    hold_out_seed,
    skip_bad_rows,
):
    """The task that the user's files describe.

    Args:
        modes: collection of str.
        train_file, dev_file, predict_file: lists of str, paths or patterns.
        validation_split: float. The share of training rows that is held out where there is no `dev_file`.
        text_columns: list of one or two str.
        label_column: str.
        labels: list of str, or None for those of the training file (without one: those of the model).
        problem_type: str.
        label_separator, file_format: as for `read_examples`.
        hold_out_seed: int.
        skip_bad_rows: bool.

    Returns:
        `keras_bert.finetuning.classification_task.Classification`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if files, columns or labels do not fit.
    """
    from keras_bert.data.example_files import find_files, read_examples
    from keras_bert.data.example_stream import hold_out
    from keras_bert.data.label_values import discover_labels
    from keras_bert.finetuning.classification_task import Classification
    from keras_bert.io.row_errors import BadRows

    bad_rows = BadRows(skip=skip_bad_rows)

    def read(paths, label_column=label_column):
        known = None if problem_type == "regression" else labels
        return read_examples(
            paths, text_columns, label_column, problem_type, label_separator, file_format, bad_rows, known
        )

    train = read(train_file) if train_file else None
    if labels is None and train is not None and problem_type != "regression":
        labels = discover_labels(train)
        logging.info("%d labels: %s", len(labels), ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else ""))
    evaluation = {"dev": read(dev_file)} if dev_file else {}  # now that the labels are known
    if train is not None and not evaluation:
        train, evaluation["dev"] = hold_out(train, validation_split, hold_out_seed)
    files = distinct_names(Path(file) for pattern in predict_file for file in find_files(pattern))
    metrics, score = METRICS[problem_type]
    return Classification(
        name="classify",
        labels=labels,
        problem_type=problem_type,
        is_pair=len(text_columns) == 2,
        metrics=metrics,
        score=score,
        train=train if "train" in modes else None,
        evaluation=evaluation,
        prediction={file.name: read([file], label_column=None) for file in files} if "predict" in modes else {},
        write=functools.partial(write_own_predictions, label_separator),
        bad_rows=bad_rows,
        form={
            "text_columns": list(text_columns),
            "label_column": label_column,
            "label_separator": label_separator,
            "file_format": file_format,
            "validation_split": validation_split,
            "hold_out_seed": hold_out_seed,
        },
    )


def distinct_names(files):
    """Paths as a list, after checking that none has the name of another: predictions/ has a file for each name."""
    files = list(files)
    if len({file.name for file in files}) < len(files):
        raise ValueError(f"two of the files to predict have the same name: {sorted(map(str, files))}; rename one")
    return files


def write_own_predictions(label_separator, folder, name, lines, predictions, probabilities, labels):
    """Writes the predictions for a file: TSV, or JSON Lines if a label could not be written in TSV; gives the Path."""
    from keras_bert.data.formats.prediction_files import write_predictions

    is_plain = not any(character in label for label in labels for character in ("\t", "\n", "\r", label_separator))
    file = folder / f"{name}.{'tsv' if is_plain else 'jsonl'}"
    rows = ({"line": line, "label": label} for line, label in zip(lines, predictions, strict=True))
    if probabilities is not None:
        rows = (
            {**row, "probabilities": dict(zip(labels, of_row, strict=True))}
            for row, of_row in zip(rows, probabilities.tolist(), strict=True)
        )
    write_predictions(file, rows, label_separator=label_separator, overwrite=True)
    return file


def task_arguments():
    """The flags' values as the keyword arguments of `own_classification`."""
    values = flags.FLAGS
    arguments = {
        "modes": tuple(values.mode),
        "train_file": values.train_file,
        "dev_file": values.dev_file,
        "validation_split": values.validation_split,
        "predict_file": values.predict_file,
        "text_columns": values.text_columns or [values.text_column],
        "label_column": values.label_column,
        "labels": values.labels,
        "problem_type": values.problem_type,
        "label_separator": values.label_separator,
        "file_format": values.file_format,
        "hold_out_seed": values.seed,
        "skip_bad_rows": values.skip_bad_rows,
    }
    if "train" not in values.mode:
        from keras_bert.finetuning.run_models import saved_configuration

        # What a trained model is used on has the form that it was trained on, unless the user says otherwise. Rows that
        # were held out stay those, or the model would be judged by rows that it was trained on.
        saved = saved_configuration(values.run_dir, values.init_checkpoint)
        given = {name for name in values if values[name].present} - {"validation_split"}
        given |= {"text_columns"} & {name + "s" for name in given}
        arguments |= {name: saved[name] for name in OF_THE_TASK if name in saved and name not in given}
    return arguments


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning("tasks.classify", lambda values: own_classification(**task_arguments()), argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
