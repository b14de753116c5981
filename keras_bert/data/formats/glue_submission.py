"""Predictions in the form that the GLUE server scores."""

import math
from pathlib import Path

from keras_bert.data.formats.glue_files import GREATEST_SCORE, LEAST_SCORE, glue_task
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import quotation


def write_submission(path, task, indices, predictions, overwrite=False):
    """Writes the predictions for a test split: all rows, in the order of the file.

    Labels are written as the task's files have them: words for MNLI, AX, QNLI and RTE, 0 and 1 elsewhere. The scores of
    STS-B are clipped to 0 to 5 and written with three decimals.

    Args:
        path: str or Path. The file to write; `GlueTask.submission_files` has the name that the server wants.
        task: str, or a `GlueTask`.
        indices: iterable of int. The row numbers of the examples, in any order.
        predictions: iterable of the predicted labels (str), or scores (float) for STS-B, in the same order.
        overwrite: bool. Whether a file of that name may be replaced.

    Returns:
        Path of the file.

    Raises:
        FileExistsError: if there is a file and it may not be replaced.
        ValueError: if there are not as many predictions as indices, rows are missing or given twice, or a prediction
            is none of the task's labels.

    Example:

    >>> path = write_submission(Path(tempfile.mkdtemp()) / "RTE.tsv", "rte", [0, 1], ["not_entailment", "entailment"])
    >>> path.read_text()
    'index\\tprediction\\n0\\tnot_entailment\\n1\\tentailment\\n'
    """
    task = glue_task(task)
    indices, predictions = [int(index) for index in indices], list(predictions)
    if len(indices) != len(predictions):
        raise ValueError(f"there are {len(predictions)} predictions for {len(indices)} rows")
    written = [_written(task, index, prediction) for index, prediction in zip(indices, predictions, strict=True)]
    _check_indices(indices)
    with atomic_text_file(path, overwrite) as file:
        file.write("index\tprediction\n")
        file.writelines(f"{index}\t{prediction}\n" for index, prediction in sorted(zip(indices, written, strict=True)))
    return Path(path)


def _check_indices(indices):
    if not indices:
        raise ValueError("there are no predictions")
    for expected, index in enumerate(sorted(indices)):
        if index != expected:
            what = "is given twice" if index == expected - 1 else f"is given, but {expected} is not"
            raise ValueError(f"a submission needs every row of the test file once; row {index} {what}")


def _written(task, index, prediction):
    if not task.is_regression:
        if prediction not in task.labels:
            raise ValueError(
                f"the prediction for row {index} is {quotation(prediction)}; the labels of {task.name} are "
                f"{list(task.labels)}"
            )
        return str(prediction)
    score = float(prediction)
    if not math.isfinite(score):
        raise ValueError(f"the prediction for row {index} is not a finite number: {score}")
    return f"{min(max(score, LEAST_SCORE), GREATEST_SCORE):.3f}"
