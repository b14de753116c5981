import numpy as np
import pytest

from keras_bert.data.formats.glue_files import GLUE_TASKS, glue_file, glue_task, read_glue, write_submission
from keras_bert.io.row_errors import BadRowError, BadRows
from tests.data.conftest import assert_bad_row

MRPC = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
STSB = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2"]
MNLI = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"]
MNLI += ["sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1"]
MNLI_DEV = [*MNLI, "label2", "label3", "label4", "label5", "gold_label"]
QQP = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
# Quotes, line ends and white space that mean nothing in these files.
TEXTS = ['He said "no', '"', "two  spaces ", "\u2028", "", "naïve\u0085", "a, b; c"]


def write(path, columns, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("".join("\t".join(row) + "\n" for row in [columns, *rows]).encode())


def make_rows(task, split, columns):
    """Makes a row for each pair of `TEXTS`, and the examples that should be read from the rows."""
    rows, examples = [], []
    for number, pair in enumerate(zip(TEXTS, reversed(TEXTS), strict=True)):
        label = task.labels[number % len(task.labels)] if task.labels else number / 2
        cells = dict(zip(task.text_columns, pair, strict=True))
        cells |= {task.label_column: str(label), task.index_column: str(number)}
        rows.append([cells.get(column, f"{column} of row {number}") for column in columns])
        target = {"index": number} if split in task.test_splits else {"label": label}
        examples.append({"text_a": pair[0], "text_b": pair[1], **target})
    return rows, examples


@pytest.mark.parametrize(
    "name, counts",
    [
        ("sst2", {"train": 67349, "dev": 872}),
        ("cola", {"train": 8551, "dev": 1043, "test": 1063}),
        ("rte", {"train": 2490, "dev": 277, "test": 3000}),
        ("wnli", {"train": 635, "dev": 71, "test": 146}),
    ],
)
def test_reads_real_files(shared, name, counts):
    task = GLUE_TASKS[name]
    text_keys = ["text_a", "text_b"] if task.is_pair else ["text"]
    for split, count in counts.items():
        # Reference: the whole file, split at line feeds and tabs.
        path = shared / "data" / "glue" / task.folders[0] / f"{split}.tsv"
        table = [line.split("\t") for line in path.read_bytes().decode().split("\n")[:-1]]
        is_headerless = name == "cola" and split != "test"
        header = ["source", "label", "mark", "sentence"] if is_headerless else table.pop(0)
        expected = []
        for number, cells in enumerate(table):
            row = dict(zip(header, cells, strict=True))
            texts = {key: row[column] for key, column in zip(text_keys, task.text_columns, strict=True)}
            expected.append({**texts, **({"index": number} if split == "test" else {"label": row["label"]})})
        assert list(read_glue(name, shared / "data" / "glue", split)) == expected
        assert len(expected) == count
        assert split == "test" or {example["label"] for example in expected} == set(task.labels)


def test_finds_files_in_the_task_folder_itself(shared):
    folder = shared / "data" / "glue"
    assert glue_file("rte", folder, "dev") == glue_file("rte", folder / "RTE", "dev") == folder / "RTE" / "dev.tsv"


FILES = [
    ("mrpc", "train", "MRPC/train.tsv", MRPC),
    ("mrpc", "train", "MRPC/msr_paraphrase_train.txt", MRPC),
    ("mrpc", "test", "MRPC/test.tsv", ["index", *MRPC[1:]]),
    ("mrpc", "test", "MRPC/msr_paraphrase_test.txt", MRPC),
    ("stsb", "dev", "STS-B/dev.tsv", [*STSB, "score"]),
    ("stsb", "test", "STS-B/test.tsv", STSB),
    ("qqp", "train", "QQP/train.tsv", QQP),
    ("qqp", "test", "QQP/test.tsv", ["id", "question1", "question2"]),
    ("mnli", "train", "MNLI/train.tsv", [*MNLI, "gold_label"]),
    ("mnli", "dev_matched", "MNLI/dev_matched.tsv", MNLI_DEV),
    ("mnli", "dev_mismatched", "MNLI/dev_mismatched.tsv", MNLI_DEV),
    ("qnli", "dev", "QNLI/dev.tsv", ["index", "question", "sentence", "label"]),
    ("qnli", "test", "QNLI/test.tsv", ["index", "question", "sentence"]),
    *(("ax", "test", f"{file}.tsv", ["index", *STSB[-2:]]) for file in ("AX/AX", "AX/test", "diagnostic/diagnostic")),
]


@pytest.mark.parametrize("task, split, file, columns", FILES)
def test_reads_pairs(tmp_path, task, split, file, columns):
    rows, expected = make_rows(GLUE_TASKS[task], split, columns)
    write(tmp_path / file, columns, rows)
    examples = read_glue(task, tmp_path, split)
    assert list(examples) == list(examples) == expected


@pytest.mark.parametrize(
    "task, columns, label, message",
    [
        ("stsb", [*STSB, "score"], "5.01", "a score must be from 0 to 5"),
        ("stsb", [*STSB, "score"], "-0.1", "a score must be from 0 to 5"),
        ("stsb", [*STSB, "score"], "five", "the label must be"),
        ("mnli", [*MNLI, "gold_label"], "-", r"gold_label must be one of \['contradiction', .*\], got '-'"),
        ("qqp", QQP, "0\textra", r"has 7 columns instead of 6 \(id, qid1, qid2, question1"),
    ],
)
def test_reports_an_invalid_row(tmp_path, task, columns, label, message):
    rows, kept = make_rows(GLUE_TASKS[task], "train", columns)
    rows.insert(1, [*rows[0][:-1], label])
    write(tmp_path / GLUE_TASKS[task].folders[0] / "train.tsv", columns, rows)
    message = f"train.tsv, line 3: {message}"
    assert_bad_row(lambda bad_rows: read_glue(task, tmp_path, "train", bad_rows), message, 3, kept)


@pytest.mark.parametrize(
    "row, message",
    [
        (["1", "a"], r"has 2 columns instead of 3"),
        (["x", "a", "b"], r"index must be a row number, got 'x'"),
        (["-1", "a", "b"], r"index must be a row number"),
    ],
)
def test_rows_of_a_test_split_are_never_skipped(tmp_path, row, message):
    write(tmp_path / "RTE" / "test.tsv", ["index", "sentence1", "sentence2"], [["0", "a", "b"], row])
    with pytest.raises(BadRowError, match=f"test.tsv, line 3: {message}"):
        list(read_glue("rte", tmp_path, "test", BadRows(skip=True)))


def test_names_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for train.tsv in .*; neither folder exists"):
        read_glue("rte", tmp_path / "nowhere", "train")
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv.part").touch()
    message = r"no file of the train split of rte: looked for train.tsv in .* and in its folder RTE; .*RTE "
    with pytest.raises(FileNotFoundError, match=message + r"contains \['train.tsv.part'\]; .* contains \['RTE'\]"):
        read_glue("rte", tmp_path, "train")
    with pytest.raises(FileNotFoundError, match=r"looked for diagnostic.tsv or AX.tsv or test.tsv in"):
        read_glue("ax", tmp_path, "test")


def test_refuses_the_folder_of_another_task(tmp_path):
    write(tmp_path / "RTE" / "test.tsv", ["index", "sentence1", "sentence2"], [["0", "a", "b"]])
    for task in ("wnli", "ax", "cola"):
        with pytest.raises(ValueError, match=f"RTE is the folder of rte; give that of {task}, or the one above it"):
            read_glue(task, tmp_path / "RTE", "test")


def test_refuses_unknown_tasks_and_splits(tmp_path):
    with pytest.raises(ValueError, match=r"GLUE has no task 'sst-2'; its tasks are \['cola', 'sst2', 'mrpc'"):
        read_glue("sst-2", tmp_path, "train")
    with pytest.raises(ValueError, match=r"mnli has no split 'dev'; its splits are \['train', 'dev_matched', 'dev_mis"):
        read_glue("mnli", tmp_path, "dev")


def test_checks_the_header_before_the_first_row(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\n")
    with pytest.raises(ValueError, match=r"has no column 'sentence'; its columns are \['text', 'label'\]"):
        read_glue("sst2", tmp_path, "train")
    (tmp_path / "train.tsv").write_text("")
    with pytest.raises(ValueError, match=r"train.tsv has no rows"):
        list(read_glue("cola", tmp_path, "train"))


@pytest.mark.parametrize(
    "name, labels, metrics",
    [
        ("cola", ("0", "1"), ("matthews_correlation",)),
        ("sst2", ("0", "1"), ("accuracy",)),
        ("mrpc", ("0", "1"), ("f1", "accuracy")),
        ("stsb", None, ("pearson_correlation", "spearman_correlation")),
        ("qqp", ("0", "1"), ("f1", "accuracy")),
        ("mnli", ("contradiction", "entailment", "neutral"), ("accuracy",)),
        ("qnli", ("entailment", "not_entailment"), ("accuracy",)),
        ("rte", ("entailment", "not_entailment"), ("accuracy",)),
        ("wnli", ("0", "1"), ("accuracy",)),
        ("ax", ("contradiction", "entailment", "neutral"), ("matthews_correlation",)),
    ],
)
def test_tasks_are_those_of_glue(name, labels, metrics):
    task = GLUE_TASKS[name]
    assert task is glue_task(name) is glue_task(task)
    assert (task.name, task.labels, task.metrics) == (name, labels, metrics)
    assert task.is_regression == (name == "stsb")
    assert task.is_pair == (name not in ("cola", "sst2"))
    assert set(task.submission_files) == set(task.test_splits)
    assert {*task.dev_splits, *task.test_splits} | ({task.train_split} - {None}) == set(task.splits)
    files = ["MNLI-m.tsv", "MNLI-mm.tsv"] if name == "mnli" else [f"{task.folders[0]}.tsv"]
    assert list(task.submission_files.values()) == files


@pytest.mark.parametrize("task", [task for task in GLUE_TASKS.values() if not task.is_regression], ids=lambda t: t.name)
def test_writes_labels_as_the_server_expects_them(tmp_path, task):
    path = write_submission(tmp_path / "x.tsv", task.name, range(len(task.labels)), task.labels)
    rows = [f"{i}\t{label}" for i, label in enumerate(task.labels)]
    assert path.read_text().splitlines() == ["index\tprediction", *rows]


def test_writes_rows_in_the_order_of_the_file_once(tmp_path):
    path = tmp_path / "x.tsv"
    write_submission(path, "wnli", np.array([2, 0, 11, 1, *range(3, 11)]), ["1"] + ["0"] * 11)
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    assert rows == [[str(i), "1" if i == 2 else "0"] for i in range(12)]
    with pytest.raises(FileExistsError):
        write_submission(path, "sst2", [0], ["1"])
    write_submission(path, "sst2", [0], ["1"], overwrite=True)
    assert path.read_text() == "index\tprediction\n0\t1\n"


def test_clips_scores(tmp_path):
    scores = np.array([-0.2, 0.0, 2.34567, 5.0, 5.3], "float32")
    path = write_submission(tmp_path / "STS-B.tsv", "stsb", range(5), scores)
    assert path.read_text().split()[2:] == ["0", "0.000", "1", "0.000", "2", "2.346", "3", "5.000", "4", "5.000"]


@pytest.mark.parametrize(
    "task, indices, predictions, message",
    [
        ("rte", [0, 1], ["entailment"], "there are 1 predictions for 2 rows"),
        ("rte", [], [], "there are no predictions"),
        ("rte", [0], ["1"], r"for row 0 is '1'; the labels of rte are \['entailment', 'not_entailment'\]"),
        ("sst2", [0], [1], r"for row 0 is 1; the labels of sst2 are \['0', '1'\]"),
        ("rte", [0, 2], ["entailment"] * 2, "needs each row of the test file once; row 2 is given, but 1 is not"),
        ("rte", [0, 1, 1], ["entailment"] * 3, "row 1 is given twice"),
        ("stsb", [0], [float("nan")], "row 0 is not a finite number: nan"),
        ("sst3", [0], ["0"], "GLUE has no task 'sst3'; its tasks are"),
    ],
)
def test_refuses_what_the_server_would_refuse(tmp_path, task, indices, predictions, message):
    with pytest.raises(ValueError, match=message):
        write_submission(tmp_path / "x.tsv", task, indices, predictions)
    assert not list(tmp_path.iterdir())
