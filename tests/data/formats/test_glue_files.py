import collections

import numpy as np
import pytest

from keras_bert.data.formats.glue_files import GLUE_TASKS, glue_file, glue_task, read_glue, write_submission
from keras_bert.io.row_errors import BadRowError, BadRows

MNLI_PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
MNLI_COLUMNS = ["index", "promptID", "pairID", "genre", *MNLI_PARSES, "sentence1", "sentence2"]
STSB_COLUMNS = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2"]
MRPC_COLUMNS = ["#1 ID", "#2 ID", "#1 String", "#2 String"]
# Quotes, line ends and white space that mean nothing in these files.
TEXTS = ['He said "no', '"', "two  spaces ", "\u2028", "", "naïve\u0085", "a, b; c"]


def write(path, columns, rows, line_end="\n", mark=""):
    path.parent.mkdir(exist_ok=True)
    lines = ["\t".join(row) for row in ([columns, *rows] if columns else rows)]
    path.write_bytes((mark + line_end.join([*lines, ""])).encode())
    return path


def pairs():
    return list(zip(TEXTS, reversed(TEXTS), strict=True))


def check_pairs(examples, labels=None):
    expected = [{"text_a": a, "text_b": b} for a, b in pairs()]
    for number, example in enumerate(expected):
        example.update({"index": number} if labels is None else {"label": labels[number]})
    assert list(examples) == list(examples) == expected


def filler(columns, number):
    return [f"{column} of row {number}" for column in columns]


@pytest.mark.parametrize(
    "name, counts",
    [
        ("sst2", {"train": 67349, "dev": 872}),
        ("cola", {"train": 8551, "dev": 1043, "test": 1063}),
        ("rte", {"train": 2490, "dev": 277, "test": 3000}),
        ("wnli", {"train": 635, "dev": 71, "test": 146}),
    ],
)
def test_real_files(shared, name, counts):
    task = GLUE_TASKS[name]
    text_keys = ["text_a", "text_b"] if task.is_pair else ["text"]
    for split, count in counts.items():
        # Reference: the whole file, split at line feeds and tabs.
        path = shared / "data" / "glue" / task.folders[0] / f"{split}.tsv"
        table = [line.split("\t") for line in path.read_bytes().decode().split("\n")[:-1]]
        header = ["source", "label", "mark", "sentence"] if (name, split == "test") == ("cola", False) else table.pop(0)
        rows = [dict(zip(header, row, strict=True)) for row in table]
        expected = []
        for row in rows:
            texts = {key: row[column] for key, column in zip(text_keys, task.text_columns, strict=True)}
            rest = {"index": int(row["index"])} if split == "test" else {"label": row["label"]}
            expected.append({**texts, **rest})
        examples = read_glue(name, shared / "data" / "glue", split)
        assert list(examples) == expected
        assert len(expected) == count
        assert sum(1 for _ in examples) == count
        if split == "test":
            assert [example["index"] for example in examples] == list(range(count))
        else:
            assert set(collections.Counter(example["label"] for example in examples)) == set(task.labels)


def test_finds_files_in_the_task_folder_itself(shared):
    folder = shared / "data" / "glue"
    assert glue_file("rte", folder, "dev") == glue_file("rte", folder / "RTE", "dev") == folder / "RTE" / "dev.tsv"


@pytest.mark.parametrize(
    "mark, line_end, train, test",
    [
        ("", "\n", "train.tsv", "test.tsv"),
        ("\ufeff", "\r\n", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"),
    ],
)
def test_mrpc(tmp_path, mark, line_end, train, test):
    labels = ["0", "1", "1", "0", "1", "0", "0"]
    rows = [[label, "1089874", "10898 5", *pair] for label, pair in zip(labels, pairs(), strict=True)]
    write(tmp_path / "MRPC" / train, ["Quality", *MRPC_COLUMNS], rows, line_end, mark)
    check_pairs(read_glue("mrpc", tmp_path, "train"), labels)
    if test == "test.tsv":
        rows = [[str(i), *row[1:]] for i, row in enumerate(rows)]
    first = "index" if test == "test.tsv" else "Quality"
    write(tmp_path / "MRPC" / test, [first, *MRPC_COLUMNS], rows, line_end, mark)
    check_pairs(read_glue("mrpc", tmp_path, "test"))


def test_stsb(tmp_path):
    scores = ["0.000", "5", "2.345", "4.75", "3", "1.0", "0.2"]
    rows = [[*filler(STSB_COLUMNS[:7], i), *pair, scores[i]] for i, pair in enumerate(pairs())]
    write(tmp_path / "STS-B" / "dev.tsv", [*STSB_COLUMNS, "score"], rows)
    check_pairs(read_glue("stsb", tmp_path, "dev"), [float(score) for score in scores])
    rows = [[str(i), *row[1:-1]] for i, row in enumerate(rows)]
    write(tmp_path / "STS-B" / "test.tsv", STSB_COLUMNS, rows)
    check_pairs(read_glue("stsb", tmp_path, "test"))


@pytest.mark.parametrize("score", ["5.01", "-0.1", "five"])
def test_stsb_scores_out_of_range_are_invalid(tmp_path, score):
    rows = [[*filler(STSB_COLUMNS, 0), "1.0"], [*filler(STSB_COLUMNS, 1), score]]
    write(tmp_path / "STS-B" / "train.tsv", [*STSB_COLUMNS, "score"], rows)
    bad_rows = BadRows(skip=True)
    assert [example["label"] for example in read_glue("stsb", tmp_path, "train", bad_rows)] == [1.0]
    assert bad_rows.count == 1
    with pytest.raises(BadRowError, match=r"train.tsv, line 3: (a score must be from 0 to 5|the label must be)"):
        list(read_glue("stsb", tmp_path, "train"))


def test_qqp_with_broken_rows(tmp_path):
    labels = ["0", "1", "1", "0", "1", "0", "0"]
    rows = [["1", "2", "3", *pair, label] for label, pair in zip(labels, pairs(), strict=True)]
    broken = [["133273", "213221", "213222"], ["1", "2", "3", "Why?", "What?", "a question"], ["5", "1\t2\t3\t4\t5\t6"]]
    columns = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    path = write(tmp_path / "QQP" / "train.tsv", columns, [rows[0], broken[0], *rows[1:3], *broken[1:], *rows[3:]])
    with pytest.raises(BadRowError, match=r"train.tsv, line 3: has 3 columns instead of 6 \(id, qid1, qid2, question1"):
        list(read_glue("qqp", tmp_path, "train"))
    bad_rows = BadRows(skip=True)
    check_pairs(read_glue("qqp", tmp_path, "train", bad_rows), labels)
    assert bad_rows.count_by_file == {str(path): 3}
    write(
        tmp_path / "QQP" / "test.tsv", ["id", "question1", "question2"], [[str(i), *p] for i, p in enumerate(pairs())]
    )
    check_pairs(read_glue("qqp", tmp_path, "test"))


@pytest.mark.parametrize("split", ["train", "dev_matched", "dev_mismatched"])
def test_mnli(tmp_path, split):
    task = GLUE_TASKS["mnli"]
    label_columns = [f"label{i}" for i in range(1, 2 if split == "train" else 6)]
    labels = [task.labels[i % 3] for i in range(len(TEXTS))]
    rows = [
        [*filler(MNLI_COLUMNS[:8], i), *pair, *["neutral"] * len(label_columns), labels[i]]
        for i, pair in enumerate(pairs())
    ]
    path = write(tmp_path / "MNLI" / f"{split}.tsv", [*MNLI_COLUMNS, *label_columns, "gold_label"], rows)
    check_pairs(read_glue("mnli", tmp_path, split), labels)
    with open(path, "a") as file:
        file.write("\t".join([*rows[0][:-1], "-"]) + "\n")
    with pytest.raises(BadRowError, match=r"line 9: gold_label must be one of \['contradiction', .*\], got '-'"):
        list(read_glue("mnli", tmp_path, split))
    check_pairs(read_glue("mnli", tmp_path, split, BadRows(skip=True)), labels)


def test_qnli(tmp_path):
    labels = [GLUE_TASKS["qnli"].labels[i % 2] for i in range(len(TEXTS))]
    columns = ["index", "question", "sentence", "label"]
    rows = [[str(i), *pair, labels[i]] for i, pair in enumerate(pairs())]
    write(tmp_path / "QNLI" / "dev.tsv", columns, rows)
    check_pairs(read_glue("qnli", tmp_path, "dev"), labels)
    write(tmp_path / "QNLI" / "test.tsv", columns[:-1], [row[:-1] for row in rows])
    check_pairs(read_glue("qnli", tmp_path, "test"))


@pytest.mark.parametrize("file", ["AX/AX.tsv", "AX/test.tsv", "diagnostic/diagnostic.tsv"])
def test_ax(tmp_path, file):
    write(tmp_path / file, ["index", "sentence1", "sentence2"], [[str(i), *pair] for i, pair in enumerate(pairs())])
    check_pairs(read_glue("ax", tmp_path, "test"))
    assert GLUE_TASKS["ax"].labels == GLUE_TASKS["mnli"].labels


def test_single_texts(tmp_path):
    write(tmp_path / "SST-2" / "dev.tsv", ["sentence", "label"], [[text, "1"] for text in TEXTS])
    assert list(read_glue("sst2", tmp_path, "dev")) == [{"text": text, "label": "1"} for text in TEXTS]
    write(tmp_path / "CoLA" / "dev.tsv", None, [["gj04", "0", "*", text] for text in TEXTS])
    assert list(read_glue("cola", tmp_path, "dev")) == [{"text": text, "label": "0"} for text in TEXTS]


@pytest.mark.parametrize(
    "rows, message",
    [
        ([["0", "a", "b"], ["1", "a"]], r"test.tsv, line 3: has 2 columns instead of 3"),
        ([["0", "a", "b"], ["x", "a", "b"]], r"test.tsv, line 3: index must be a row number, got 'x'"),
        ([["0", "a", "b"], ["-1", "a", "b"]], r"test.tsv, line 3: index must be a row number"),
    ],
)
def test_rows_of_a_test_split_are_never_skipped(tmp_path, rows, message):
    write(tmp_path / "RTE" / "test.tsv", ["index", "sentence1", "sentence2"], rows)
    with pytest.raises(BadRowError, match=message):
        list(read_glue("rte", tmp_path, "test", BadRows(skip=True)))


def test_names_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for train.tsv in .*; neither folder exists"):
        read_glue("rte", tmp_path / "nowhere", "train")
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv.part").touch()
    with pytest.raises(
        FileNotFoundError,
        match=r"no file of the train split of rte: looked for train.tsv in .* and in its folder RTE; .*RTE "
        r"contains \['train.tsv.part'\]; .* contains \['RTE'\]",
    ):
        read_glue("rte", tmp_path, "train")
    with pytest.raises(FileNotFoundError, match=r"looked for diagnostic.tsv or AX.tsv or test.tsv in"):
        read_glue("ax", tmp_path, "test")


def test_refuses_the_folder_of_another_task(tmp_path):
    write(tmp_path / "RTE" / "test.tsv", ["index", "sentence1", "sentence2"], [["0", "a", "b"]])
    for task in ("wnli", "ax", "cola"):
        with pytest.raises(ValueError, match=f"RTE is the folder of rte; give that of {task}, or the one above it"):
            read_glue(task, tmp_path / "RTE", "test")


@pytest.mark.parametrize(
    "task, split, message",
    [
        ("sst-2", "train", r"GLUE has no task 'sst-2'; its tasks are \['cola', 'sst2', 'mrpc'"),
        ("mnli", "dev", r"mnli has no split 'dev'; its splits are \['train', 'dev_matched', 'dev_mismatched'"),
        ("ax", "train", r"ax has no split 'train'; its splits are \['test'\]"),
    ],
)
def test_refuses_unknown_tasks_and_splits(tmp_path, task, split, message):
    with pytest.raises(ValueError, match=message):
        read_glue(task, tmp_path, split)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "has no header"),
        ("sentence\tlabel\n", "has no rows"),
        ("text\tlabel\na\t1\n", r"has no column 'sentence'; its columns are \['text', 'label'\]"),
    ],
)
def test_refuses_unusable_files_before_the_first_row(tmp_path, content, message):
    (tmp_path / "train.tsv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_glue("sst2", tmp_path, "train")


def test_refuses_an_empty_file_without_a_header(tmp_path):
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
    lines = path.read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert lines[1:] == [f"{i}\t{label}" for i, label in enumerate(task.labels)]


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
