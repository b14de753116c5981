"""The tasks of GLUE (https://openreview.net/pdf?id=rJ4km2R5t7), their files, and the files its server scores."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from absl import logging

from keras_bert.data.example_files import text_dict
from keras_bert.data.example_stream import Example, ExampleStream
from keras_bert.data.formats.delimited import check_columns, read_columns, read_header
from keras_bert.data.label_values import label_number
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import BadRowError, BadRows, quotation
from keras_bert.typing import PathLike

# The annotators of STS-B gave integer scores from 0 to 5; GLUE has their means.
MIN_SCORE, MAX_SCORE = 0.0, 5.0

_COMMON_FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its files, columns, labels and metrics."""

    name: str
    folders: tuple[str, ...]  # common names of the task's folder
    submission_files: Mapping[str, str]  # file name that the GLUE server expects, by test split
    # By split, file names of which the first that exists is read.
    files: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=lambda: _COMMON_FILES)
    text_columns: tuple[str, ...] = ("sentence1", "sentence2")
    label_column: str = "label"  # in the splits that have labels
    labels: tuple[str, ...] | None = _BINARY  # in the order of google-research/bert; None for scores from 0 to 5
    metrics: tuple[str, ...] = ("accuracy",)  # main metric first
    index_column: str = "index"  # column of row numbers in the test splits
    # By split, the columns of files without a header.
    headerless: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits."""
        return tuple(self.files)

    @property
    def train_split(self) -> str | None:
        """The split to train on; None for a task without training data."""
        return "train" if "train" in self.files else None

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """The splits that models are compared on."""
        return tuple(split for split in self.files if split.startswith("dev"))

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The splits without labels."""
        return tuple(split for split in self.files if split.startswith("test"))

    @property
    def is_pair(self) -> bool:
        """Whether an example has two texts."""
        return len(self.text_columns) == 2

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number."""
        return self.labels is None


_TASKS = (
    GlueTask(
        name="cola",
        folders=("CoLA",),
        submission_files={"test": "CoLA.tsv"},
        text_columns=("sentence",),
        metrics=("matthews_correlation",),
        headerless={"train": _COLA_COLUMNS, "dev": _COLA_COLUMNS},
    ),
    GlueTask(name="sst2", folders=("SST-2",), submission_files={"test": "SST-2.tsv"}, text_columns=("sentence",)),
    GlueTask(
        name="mrpc",
        folders=("MRPC",),
        submission_files={"test": "MRPC.tsv"},
        # The raw release has no dev split: GLUE took it from the training file.
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv",),
            "test": ("test.tsv", "msr_paraphrase_test.txt"),
        },
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        metrics=("f1", "accuracy"),
    ),
    GlueTask(
        name="stsb",
        folders=("STS-B",),
        submission_files={"test": "STS-B.tsv"},
        label_column="score",
        labels=None,
        metrics=("pearson_correlation", "spearman_correlation"),
    ),
    GlueTask(
        name="qqp",
        folders=("QQP",),
        submission_files={"test": "QQP.tsv"},
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        metrics=("f1", "accuracy"),
        index_column="id",
    ),
    GlueTask(
        name="mnli",
        folders=("MNLI",),
        submission_files={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
        files={
            split: (f"{split}.tsv",)
            for split in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
        },
        label_column="gold_label",
        labels=_INFERENCE,
    ),
    GlueTask(
        name="qnli",
        folders=("QNLI",),
        submission_files={"test": "QNLI.tsv"},
        text_columns=("question", "sentence"),
        labels=_ENTAILMENT,
    ),
    GlueTask(name="rte", folders=("RTE",), submission_files={"test": "RTE.tsv"}, labels=_ENTAILMENT),
    GlueTask(name="wnli", folders=("WNLI",), submission_files={"test": "WNLI.tsv"}),
    GlueTask(
        name="ax",
        folders=("AX", "diagnostic"),
        submission_files={"test": "AX.tsv"},
        files={"test": ("diagnostic.tsv", "AX.tsv", "test.tsv")},
        labels=_INFERENCE,
        metrics=("matthews_correlation",),
    ),
)
GLUE_TASKS = {task.name: task for task in _TASKS}


def glue_task(name: str | GlueTask) -> GlueTask:
    """Returns the task of the given name; raises ValueError if GLUE has no such task."""
    if isinstance(name, GlueTask):
        return name
    if name not in GLUE_TASKS:
        raise ValueError(f"GLUE has no task {name!r}; its tasks are {list(GLUE_TASKS)}")
    return GLUE_TASKS[name]


def glue_file(task: str | GlueTask, data_dir: PathLike, split: str) -> Path:
    """Finds the file of a split in the task's own folder, or in the folder that contains it.

    Raises FileNotFoundError if it does not exist, and ValueError if the task has no such split, or the folder belongs
    to another task.
    """
    task = glue_task(task)
    check_split(task, split)
    data_dir = Path(data_dir)
    # The test files of RTE, WNLI and AX have the same columns: only the folder tells them apart.
    for other in GLUE_TASKS.values():
        if data_dir.name in other.folders and data_dir.name not in task.folders:
            raise ValueError(f"{data_dir} is the folder of {other.name}; give that of {task.name}, or the one above it")
    folders = [folder for folder in (*(data_dir / name for name in task.folders), data_dir) if folder.is_dir()]
    for folder in folders:
        for name in task.files[split]:
            if (folder / name).is_file():
                return folder / name
    names = " or ".join(task.files[split])
    found = "; ".join(f"{folder} contains {sorted(path.name for path in folder.iterdir())}" for folder in folders)
    raise FileNotFoundError(
        f"no file of the {split} split of {task.name}: looked for {names} in {data_dir} and in its folder "
        f"{' or '.join(task.folders)}; {found or 'neither folder exists'}"
    )


def check_split(task: GlueTask, split: str) -> None:
    """Raises ValueError if a task has no such split."""
    if split not in task.files:
        raise ValueError(f"{task.name} has no split {split!r}; its splits are {list(task.splits)}")


def read_glue(
    task: str | GlueTask, data_dir: PathLike, split: str, bad_rows: BadRows | None = None
) -> ExampleStream[Example]:
    """Reads the examples of a split from GLUE's files, in the task's folder or the one that contains it.

    Examples of a test split have the row number as `index` (int) and no label; others have a `label`, one of the task's
    labels, or a float from 0 to 5 for STS-B. The texts are `text`, or `text_a` and `text_b`. Rows are invalid if they
    lack columns or have an unknown label (as some in QQP do). Rows of a test split are never skipped, because a
    submission needs every row.
    """
    task = glue_task(task)
    path = glue_file(task, data_dir, split)
    header = task.headerless.get(split)
    columns = list(task.text_columns)
    is_test = split in task.test_splits
    has_index = is_test and not path.name.startswith("msr_paraphrase")
    if not is_test:
        columns.append(task.label_column)
    elif has_index:
        columns.append(task.index_column)
    check_columns(path, header or read_header(path), columns)
    if path.name == "msr_paraphrase_train.txt":
        logging.warning("%s contains GLUE's dev split of MRPC as well as its train split", path)
    if is_test:
        rows = partial(read_columns, path, columns, "tsv", BadRows(), header)
        return ExampleStream(partial(_read_unlabeled, task, path, rows, has_index), str(path))
    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = partial(read_columns, path, columns, "tsv", bad_rows, header)
    return ExampleStream(partial(_read_labeled, task, path, rows, bad_rows), str(path))


def _read_labeled(
    task: GlueTask, path: Path, rows: partial[Iterator[tuple[int, list[str]]]], bad_rows: BadRows
) -> Iterator[Example]:
    for line, (*texts, label) in rows():
        try:
            checked = _parse_label(task, label)
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield {**text_dict(texts), "label": checked}


def _read_unlabeled(
    task: GlueTask, path: Path, rows: partial[Iterator[tuple[int, list[str]]]], has_index: bool
) -> Iterator[Example]:
    for number, (line, values) in enumerate(rows()):
        if not has_index:
            yield {**text_dict(values), "index": number}
            continue
        *texts, index = values
        if not (index.isascii() and index.isdigit()):
            raise BadRowError(path, line, f"{task.index_column} must be a row number, got {quotation(index)}")
        yield {**text_dict(texts), "index": int(index)}


def _parse_label(task: GlueTask, label: str) -> str | float:
    if task.labels is None:
        score = label_number(label)
        check_score(score)
        return score
    if label not in task.labels:
        raise ValueError(f"{task.label_column} must be one of {list(task.labels)}, got {quotation(label)}")
    return label


def check_score(score: float) -> None:
    """Raises ValueError unless a number is a score of STS-B, from 0 to 5."""
    if not MIN_SCORE <= score <= MAX_SCORE:
        raise ValueError(f"a score must be from {MIN_SCORE:g} to {MAX_SCORE:g}, got {score:g}")


def write_submission(
    path: PathLike,
    task: str | GlueTask,
    indices: Iterable[int],
    predictions: Iterable[str | float],
    overwrite: bool = False,
) -> Path:
    """Writes the predictions for a test split as the GLUE server expects them: all rows, in the order of the file.

    Labels are written as in the task's files: words for MNLI, AX, QNLI and RTE, 0 and 1 for the others. The scores of
    STS-B are clipped to 0 to 5 and written with three decimals. `indices` are the row numbers of the examples, in any
    order. Raises ValueError if rows are missing or repeated, or a prediction is not one of the task's labels.
    """
    task = glue_task(task)
    indices, predictions = [int(index) for index in indices], list(predictions)
    if len(indices) != len(predictions):
        raise ValueError(f"there are {len(predictions)} predictions for {len(indices)} rows")
    texts = [_format_prediction(task, *row) for row in zip(indices, predictions, strict=True)]
    _check_indices(indices)
    with atomic_text_file(path, overwrite) as file:
        file.write("index\tprediction\n")
        file.writelines(f"{index}\t{text}\n" for index, text in sorted(zip(indices, texts, strict=True)))
    return Path(path)


def _check_indices(indices: Sequence[int]) -> None:
    if not indices:
        raise ValueError("there are no predictions")
    for expected, index in enumerate(sorted(indices)):
        if index != expected:
            problem = "is given twice" if index == expected - 1 else f"is given, but {expected} is not"
            raise ValueError(f"a submission needs each row of the test file once; row {index} {problem}")


def _format_prediction(task: GlueTask, index: int, prediction: str | float) -> str:
    if task.labels is not None:
        if prediction not in task.labels:
            raise ValueError(
                f"the prediction for row {index} is {quotation(prediction)}; the labels of {task.name} are "
                f"{list(task.labels)}"
            )
        return str(prediction)
    score = float(prediction)
    if not math.isfinite(score):
        raise ValueError(f"the prediction for row {index} is not a finite number: {score}")
    return f"{min(max(score, MIN_SCORE), MAX_SCORE):.3f}"
