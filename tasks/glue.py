"""Fine-tunes BERT on a task of GLUE, evaluates it, writes the submission files, and exports a SavedModel.

    python -m tasks.glue --task=sst2 --data_dir=glue --init_checkpoint=uncased_L-12_H-768_A-12 --run_dir=runs/sst2

--mode says what to do, in any combination: train, eval, predict, export. What comes of it lies in --run_dir:
results.json, evaluation.json, log.jsonl, training_curve.png, predictions/, saved_model/1/. A run that was interrupted
goes on where it stopped when the same command is given again.
"""

from absl import app, flags

import tasks.flags

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_fine_tuning_flags()
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_enum("task", None, TASKS, "The task.", required=True)
    flags.DEFINE_string(
        "data_dir", None, "GLUE's folder or the task's; for tfds, where the data sets lie (default: its own place)."
    )
    flags.DEFINE_enum("data_source", "files", ["files", "tfds"], "GLUE's TSV files, or tensorflow_datasets.")


def glue_classification(task, modes, data_dir, data_source, skip_bad_rows):
    """The task with the data that the modes need.

    Args:
        task: str, one of `TASKS`.
        modes: collection of str.
        data_dir: str or None.
        data_source: "files" or "tfds".
        skip_bad_rows: bool.

    Returns:
        `keras_bert.finetuning.classification_task.Classification`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the task has no data for a mode.
    """
    from keras_bert.data.formats.glue_files import glue_task, read_glue
    from keras_bert.data.formats.glue_submission import write_submission
    from keras_bert.data.formats.tfds import read_glue_tfds
    from keras_bert.finetuning.classification_task import Classification
    from keras_bert.io.row_errors import BadRows
    from keras_bert.metrics.glue_scores import glue_metrics
    from keras_bert.models.labels import REGRESSION, SINGLE_LABEL

    glue = glue_task(task)
    bad_rows = BadRows(skip=skip_bad_rows)

    def read(splits):
        if data_source == "tfds":
            return {split: read_glue_tfds(task, split, data_dir) for split in splits}
        if data_dir is None:
            raise ValueError("--data_dir is needed: GLUE's folder, or the task's")
        return {split: read_glue(task, data_dir, split, bad_rows) for split in splits}

    def write(folder, split, indices, predictions, *_):
        file = folder / glue.submission_files[split]
        write_submission(file, task, indices, predictions, overwrite=True)
        return file

    labelled = {"train", "eval"} & set(modes)
    return Classification(
        name=task,
        labels=None if glue.is_regression else list(glue.labels),
        problem_type=REGRESSION if glue.is_regression else SINGLE_LABEL,
        is_pair=glue.is_pair,
        metrics=lambda labels, predictions, _: glue_metrics(glue.metrics, labels, predictions),
        score=glue.metrics[0],
        train=read(["train"])["train"] if "train" in modes and glue.train_split else None,
        evaluation=read(glue.dev_splits) if labelled else {},
        prediction=read(glue.test_splits) if "predict" in modes else {},
        write=write,
        bad_rows=bad_rows,
        models_of=("mnli",) if task == "ax" else (),
    )


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning(
        "tasks.glue",
        lambda values: glue_classification(
            values.task, values.mode, values.data_dir, values.data_source, values.skip_bad_rows
        ),
        argv,
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
