import numpy as np
import pytest

from keras_bert.data.formats.glue_files import GLUE_TASKS
from keras_bert.data.formats.glue_submission import write_submission


@pytest.mark.parametrize("task", [task for task in GLUE_TASKS.values() if not task.is_regression], ids=lambda t: t.name)
def test_labels_are_written_as_the_server_wants_them(tmp_path, task):
    (name, *_) = task.submission_files.values()
    path = write_submission(tmp_path / name, task.name, range(len(task.labels)), task.labels)
    lines = path.read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert lines[1:] == [f"{i}\t{label}" for i, label in enumerate(task.labels)]
    words = {"mnli", "ax", "qnli", "rte"}
    assert (set(task.labels) == {"0", "1"}) == (task.name not in words)


def test_rows_are_written_in_the_order_of_the_file(tmp_path):
    path = write_submission(tmp_path / "x.tsv", "wnli", np.array([2, 0, 11, 1, *range(3, 11)]), ["1"] + ["0"] * 11)
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    assert rows == [[str(i), "1" if i == 2 else "0"] for i in range(12)]


def test_scores_are_clipped(tmp_path):
    scores = np.array([-0.2, 0.0, 2.34567, 5.0, 5.3], "float32")
    path = write_submission(tmp_path / "STS-B.tsv", "stsb", range(5), scores)
    assert path.read_text().split()[2:] == ["0", "0.000", "1", "0.000", "2", "2.346", "3", "5.000", "4", "5.000"]


@pytest.mark.parametrize(
    "task, indices, predictions, message",
    [
        ("rte", [0, 1], ["entailment"], "there are 1 predictions for 2 rows"),
        ("rte", [0], ["entailment"] * 2, "there are 2 predictions for 1 rows"),
        ("rte", [], [], "there are no predictions"),
        ("rte", [0], ["1"], r"for row 0 is '1'; the labels of rte are \['entailment', 'not_entailment'\]"),
        ("sst2", [0], [1], r"for row 0 is 1; the labels of sst2 are \['0', '1'\]"),
        ("rte", [0, 2], ["entailment"] * 2, "needs every row of the test file once; row 2 is given, but 1 is not"),
        ("rte", [1, 2], ["entailment"] * 2, "row 1 is given, but 0 is not"),
        ("rte", [0, 1, 1], ["entailment"] * 3, "row 1 is given twice"),
        ("stsb", [0], [float("nan")], "row 0 is not a finite number: nan"),
        ("stsb", [0], [float("inf")], "row 0 is not a finite number: inf"),
        ("sst3", [0], ["0"], "GLUE has no task 'sst3'; its tasks are"),
    ],
)
def test_what_the_server_would_refuse_is_not_written(tmp_path, task, indices, predictions, message):
    with pytest.raises(ValueError, match=message):
        write_submission(tmp_path / "x.tsv", task, indices, predictions)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_unless_told_to(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_submission(path, "sst2", [0], ["1"])
    assert path.read_text() == "mine"
    write_submission(path, "sst2", [0], ["1"], overwrite=True)
    assert path.read_text() == "index\tprediction\n0\t1\n"
