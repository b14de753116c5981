"""The tasks of GLUE (https://openreview.net/pdf?id=rJ4km2R5t7), and their files."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from absl import logging

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.delimited import check_columns, read_columns, read_header
from keras_bert.data.label_values import label_number
from keras_bert.io.row_errors import BadRowError, BadRows, quotation

# STS-B's annotators gave whole scores from 0 to 5, and GLUE has their means.
LEAST_SCORE, GREATEST_SCORE = 0.0, 5.0


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its files, columns, labels and metrics.

    Args:
        name: str, as in `GLUE_TASKS`.
        folders: tuple of str. The names that the task's folder has in the wild.
        files: dict of split to tuple of file names, of which the first that is there is read.
        text_columns: tuple of one or two str. The columns of the texts.
        label_column: str. The column of the labels, in the splits that have them.
        labels: tuple of str, in the order of google-research/bert; None for a number within 0 to 5.
        metrics: tuple of str, the main one first.
        submission_files: dict of test split to the file name that the GLUE server wants.
        index_column: str. The column of the row numbers, in the test splits.
        headerless: dict of split to the columns of a file without a header.

    Example:

    >>> task = GLUE_TASKS["mnli"]
    >>> task.labels, task.dev_splits, task.is_pair
    (('contradiction', 'entailment', 'neutral'), ('dev_matched', 'dev_mismatched'), True)
    """

    name: str
    folders: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    text_columns: tuple[str, ...]
    label_column: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    submission_files: Mapping[str, str]
    index_column: str = "index"
    headerless: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def splits(self):
        """tuple of str. All splits of the task."""
        return tuple(self.files)

    @property
    def train_split(self):
        """str, or None for a task without training data."""
        return "train" if "train" in self.files else None

    @property
    def dev_splits(self):
        """tuple of str. The splits that models are compared on."""
        return tuple(split for split in self.files if split.startswith("dev"))

    @property
    def test_splits(self):
        """tuple of str. The splits without labels."""
        return tuple(split for split in self.files if split.startswith("test"))

    @property
    def is_pair(self):
        """bool. Whether an example has two texts."""
        return len(self.text_columns) == 2

    @property
    def is_regression(self):
        """bool. Whether the label is a number."""
        return self.labels is None


_COMMON_FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")

GLUE_TASKS = {
    task.name: task
    for task in (
        GlueTask(
            name="cola",
            folders=("CoLA",),
            files=_COMMON_FILES,
            text_columns=("sentence",),
            label_column="label",
            labels=_BINARY,
            metrics=("matthews_correlation",),
            submission_files={"test": "CoLA.tsv"},
            headerless={"train": _COLA_COLUMNS, "dev": _COLA_COLUMNS},
        ),
        GlueTask(
            name="sst2",
            folders=("SST-2",),
            files=_COMMON_FILES,
            text_columns=("sentence",),
            label_column="label",
            labels=_BINARY,
            metrics=("accuracy",),
            submission_files={"test": "SST-2.tsv"},
        ),
        GlueTask(
            name="mrpc",
            folders=("MRPC",),
            # The raw release has no dev split: GLUE's is a part of its training file.
            files={
                "train": ("train.tsv", "msr_paraphrase_train.txt"),
                "dev": ("dev.tsv",),
                "test": ("test.tsv", "msr_paraphrase_test.txt"),
            },
            text_columns=("#1 String", "#2 String"),
            label_column="Quality",
            labels=_BINARY,
            metrics=("f1", "accuracy"),
            submission_files={"test": "MRPC.tsv"},
        ),
        GlueTask(
            name="stsb",
            folders=("STS-B",),
            files=_COMMON_FILES,
            text_columns=("sentence1", "sentence2"),
            label_column="score",
            labels=None,
            metrics=("pearson_correlation", "spearman_correlation"),
            submission_files={"test": "STS-B.tsv"},
        ),
        GlueTask(
            name="qqp",
            folders=("QQP",),
            files=_COMMON_FILES,
            text_columns=("question1", "question2"),
            label_column="is_duplicate",
            labels=_BINARY,
            metrics=("f1", "accuracy"),
            submission_files={"test": "QQP.tsv"},
            index_column="id",
        ),
        GlueTask(
            name="mnli",
            folders=("MNLI",),
            files={
                "train": ("train.tsv",),
                "dev_matched": ("dev_matched.tsv",),
                "dev_mismatched": ("dev_mismatched.tsv",),
                "test_matched": ("test_matched.tsv",),
                "test_mismatched": ("test_mismatched.tsv",),
            },
            text_columns=("sentence1", "sentence2"),
            label_column="gold_label",
            labels=_INFERENCE,
            metrics=("accuracy",),
            submission_files={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
        ),
        GlueTask(
            name="qnli",
            folders=("QNLI",),
            files=_COMMON_FILES,
            text_columns=("question", "sentence"),
            label_column="label",
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            submission_files={"test": "QNLI.tsv"},
        ),
        GlueTask(
            name="rte",
            folders=("RTE",),
            files=_COMMON_FILES,
            text_columns=("sentence1", "sentence2"),
            label_column="label",
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            submission_files={"test": "RTE.tsv"},
        ),
        GlueTask(
            name="wnli",
            folders=("WNLI",),
            files=_COMMON_FILES,
            text_columns=("sentence1", "sentence2"),
            label_column="label",
            labels=_BINARY,
            metrics=("accuracy",),
            submission_files={"test": "WNLI.tsv"},
        ),
        GlueTask(
            name="ax",
            folders=("AX", "diagnostic"),
            files={"test": ("diagnostic.tsv", "AX.tsv", "test.tsv")},
            text_columns=("sentence1", "sentence2"),
            label_column="label",
            labels=_INFERENCE,
            metrics=("matthews_correlation",),
            submission_files={"test": "AX.tsv"},
        ),
    )
}


def glue_task(name):
    """A task of GLUE by its name.

    Args:
        name: str, or a `GlueTask`, which is returned.

    Returns:
        `GlueTask`.

    Raises:
        ValueError: if GLUE has no such task.

    Example:

    >>> glue_task("rte").labels
    ('entailment', 'not_entailment')
    """
    if isinstance(name, GlueTask):
        return name
    if name not in GLUE_TASKS:
        raise ValueError(f"GLUE has no task {name!r}; its tasks are {list(GLUE_TASKS)}")
    return GLUE_TASKS[name]


def glue_file(task, data_dir, split):
    """The file of a split.

    Args:
        task: str, or a `GlueTask`.
        data_dir: str or Path. The folder that holds the tasks' folders, or the task's own folder.
        split: str. One of the task's splits.

    Returns:
        Path.

    Raises:
        FileNotFoundError: if it is not there; the message says what was looked for, and what there is.
        ValueError: if the task has no such split, or the folder is that of another task.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "RTE").mkdir()
    >>> _ = (folder / "RTE" / "dev.tsv").write_text("index\\tsentence1\\tsentence2\\tlabel\\n")
    >>> glue_file("rte", folder, "dev").relative_to(folder).as_posix()
    'RTE/dev.tsv'
    """
    task = glue_task(task)
    check_split(task, split)
    data_dir = Path(data_dir)
    _check_folder(task, data_dir)
    folders = [folder for folder in (*(data_dir / name for name in task.folders), data_dir) if folder.is_dir()]
    for folder in folders:
        for name in task.files[split]:
            if (folder / name).is_file():
                return folder / name
    names = " or ".join(task.files[split])
    there = "; ".join(f"in {folder} there are {sorted(path.name for path in folder.iterdir())}" for folder in folders)
    raise FileNotFoundError(
        f"no file of the {split} split of {task.name}: looked for {names} in {data_dir} and in its folder "
        f"{' or '.join(task.folders)}; {there or 'neither is there'}"
    )


def check_split(task, split):
    """Raises if a task has no such split.

    Args:
        task: `GlueTask`.
        split: str.

    Raises:
        ValueError: the message says which splits there are.

    Example:

    >>> check_split(GLUE_TASKS["ax"], "train")
    Traceback (most recent call last):
    ValueError: ax has no split 'train'; its splits are ['test']
    """
    if split not in task.files:
        raise ValueError(f"{task.name} has no split {split!r}; its splits are {list(task.splits)}")


def _check_folder(task, data_dir):
    # The test files of RTE, WNLI and AX have the same columns: only the folder tells them apart.
    for other in GLUE_TASKS.values():
        if data_dir.name in other.folders and data_dir.name not in task.folders:
            raise ValueError(f"{data_dir} is the folder of {other.name}; give that of {task.name}, or the one above it")


def read_glue(task, data_dir, split, bad_rows=None):
    """The examples of a split of a task, as GLUE's files hold them.

    An example of a test split has its row number as `index` (int) and no label; one of another split has its `label`,
    one of the task's labels, or a float within 0 to 5 for STS-B. Text columns are `text`, or `text_a` and `text_b`.

    Bad rows of a test split are never skipped, since a submission needs every row.

    Args:
        task: str, or a `GlueTask`.
        data_dir: str or Path. The folder that holds the tasks' folders, or the task's own folder.
        split: str. One of the task's splits.
        bad_rows: a `BadRows`, told of rows that lack columns or have another label (which occur in QQP, for example).
            None takes the first one for an error.

    Returns:
        `ExampleStream`.

    Raises:
        FileNotFoundError: if the file is not there.
        ValueError: if the task has no such split, or the file lacks a column or has no rows.
        BadRowError: when a bad row is read, unless `bad_rows` skips it.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "dev.tsv").write_text("sentence\\tlabel\\na fine film \\t1\\n")
    >>> list(read_glue("sst2", folder, "dev"))
    [{'text': 'a fine film ', 'label': '1'}]
    """
    task = glue_task(task)
    path = glue_file(task, data_dir, split)
    header = task.headerless.get(split)
    names = header or read_header(path)
    columns = list(task.text_columns)
    if split not in task.test_splits:
        columns.append(task.label_column)
        read = _read_labelled
    elif path.name.startswith("msr_paraphrase"):
        read = _read_unnumbered
    else:
        columns.append(task.index_column)
        read = _read_numbered
    check_columns(path, names, columns)
    if path.name == "msr_paraphrase_train.txt":
        logging.warning("%s holds GLUE's dev split of MRPC as well as its train split", path)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    return ExampleStream(functools.partial(read, task, path, columns, bad_rows, header), str(path))


def _read_labelled(task, path, columns, bad_rows, header):
    for line, (*texts, label) in read_columns(path, columns, "tsv", bad_rows, header):
        try:
            label = _checked_label(task, label)
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield {**_texts(task, texts), "label": label}


def _read_numbered(task, path, columns, _, header):
    for line, (*texts, index) in read_columns(path, columns, "tsv", BadRows(), header):
        if not (index.isascii() and index.isdigit()):
            raise BadRowError(path, line, f"{task.index_column} must be a row number, got {quotation(index)}")
        yield {**_texts(task, texts), "index": int(index)}


def _read_unnumbered(task, path, columns, _, header):
    for index, (_, texts) in enumerate(read_columns(path, columns, "tsv", BadRows(), header)):
        yield {**_texts(task, texts), "index": index}


def _texts(task, texts):
    return dict(zip(PAIR_COLUMNS if task.is_pair else TEXT_COLUMNS, texts, strict=True))


def _checked_label(task, label):
    if not task.is_regression:
        if label not in task.labels:
            raise ValueError(f"{task.label_column} must be one of {list(task.labels)}, got {quotation(label)}")
        return label
    score = label_number(label)
    check_score(score)
    return score


def check_score(score):
    """Raises if a number cannot be a score of STS-B.

    Args:
        score: float.

    Raises:
        ValueError: if it is not within 0 to 5.

    Example:

    >>> check_score(5.2)
    Traceback (most recent call last):
    ValueError: a score must be within 0 to 5, got 5.2
    """
    if not LEAST_SCORE <= score <= GREATEST_SCORE:
        raise ValueError(f"a score must be within {LEAST_SCORE:g} to {GREATEST_SCORE:g}, got {score:g}")
