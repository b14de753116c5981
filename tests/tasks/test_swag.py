import csv

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from tasks import swag
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.tolerances import assert_close
from tests.toys import toy_questions


def toy_rows(number, seed):
    questions, labels = toy_questions(number, seed)
    return enumerate(zip(*questions.values(), labels, strict=True))


def make_swag(path, number, seed):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "sent1", "sent2", "ending0", "ending1", "ending2", "label"])
        for row, (prompt, choices, label) in toy_rows(number, seed):
            writer.writerow([row, prompt, "the film", *choices, label])
    return str(path)


def make_codah(path, number, seed):
    with open(path, "w") as file:
        for row, (prompt, choices, label) in toy_rows(number, seed):
            file.write("\t".join(["no"[row % 2], prompt, *choices, "a dull film", str(label)]) + "\n")
    return str(path)


def run(mode, run_dir, checkpoint=None, **options):
    return programs.run(swag, mode, run_dir, checkpoint, **({"epochs": 6} if "train" in mode else {}), **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_checkpoint):
    """The files and folder of a run with all modes."""
    folder = tmp_path_factory.mktemp("swag")
    files = {"train_file": make_swag(folder / "train.csv", 150, 0), "eval_file": make_swag(folder / "val.csv", 30, 1)}
    files["predict_file"] = files["eval_file"]
    run("train,eval,predict,export", folder / "run", toy_checkpoint, encoder="two_directions", **files)
    return files, folder / "run"


@pytest.mark.slow
def test_learns_to_choose(finished):
    files, folder = finished
    report = read_json(folder / "evaluation.json")["eval"]
    assert report["accuracy"] > 0.8
    assert report["questions"] == 30
    results = read_json(folder / "results.json")
    assert results["score"] == "eval/accuracy"
    assert results["best"]["metrics"]["eval/accuracy"] == pytest.approx(report["accuracy"])
    assert run("eval", folder, eval_file=files["eval_file"])["evaluation"]["eval/accuracy"] == report["accuracy"]


@pytest.mark.slow
def test_exported_model_predicts_as_in_the_files(finished):
    files, folder = finished
    with open(folder / "predictions" / "predict.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with open(files["eval_file"]) as file:
        questions = list(csv.DictReader(file))
    assert [int(row["line"]) for row in rows] == list(range(2, 32))
    right = np.mean([row["label"] == question["label"] for row, question in zip(rows, questions, strict=True)])
    assert right == pytest.approx(read_json(folder / "evaluation.json")["eval"]["accuracy"])
    signature = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["serving_default"]
    choices = [[f"the film {question[f'ending{number}']}" for number in range(3)] for question in questions]
    served = signature(prompt=tf.constant([row["sent1"] for row in questions]), choices=tf.constant(choices))
    written = [[float(row[f"probability of {number}"]) for number in range(3)] for row in rows]
    assert_close(served["probabilities"], written, num_terms=64)


@pytest.mark.slow
def test_run_keeps_its_fold_of_codah(tmp_path, toy_checkpoint):
    file = make_codah(tmp_path / "codah.tsv", 100, 2)
    run("train,eval", tmp_path / "run", toy_checkpoint, train_file=file, fold=1)
    report = read_json(tmp_path / "run" / "evaluation.json")
    assert [report[split]["questions"] for split in ("dev", "test")] == [20, 20]
    assert sum(category["questions"] for category in report["test"]["by_category"].values()) == 20
    assert read_json(tmp_path / "run" / "results.json")["configuration"]["fold"] == 1
    # The run keeps its fold, and is not evaluated on examples that it was trained on.
    again = run("eval", tmp_path / "run", train_file=file)["evaluation"]
    assert again["test/accuracy"] == report["test"]["accuracy"]
    for options in ({"fold": 0}, {"fold": 1, "fold_seed": 2}):
        with pytest.raises(SystemExit, match="the model was trained with fold"):
            run("eval", tmp_path / "run", train_file=file, **options)


def test_rejects_data_that_cannot_be_used(tmp_path, toy_checkpoint):
    file = make_codah(tmp_path / "codah.tsv", 20, 2)
    (tmp_path / "test.csv").write_text("sent1,sent2,ending0,ending1\na,b,c,d\n")
    for mode, options, message in (
        ("train", {"train_file": str(tmp_path / "codah.txt"), "fold": 1}, "give file_format"),
        ("train", {"train_file": file}, "has no labelled examples to choose the best model by; give --eval_file"),
        ("eval", {"eval_file": file, "max_seq_length": 16}, "no trained layer for choices"),
        ("train", {"train_file": file, "eval_file": tmp_path / "test.csv"}, "the question of line 2 has no label"),
    ):
        with pytest.raises(SystemExit, match=message):
            run(mode, tmp_path / "run", toy_checkpoint, **options)
    for options, message in (
        ({"eval_file": file, "fold": 1}, "--fold has no effect with eval_file"),
        ({"fold_seed": 2}, "--fold_seed has no effect without fold"),
    ):
        with pytest.raises(flags.Error, match=message):
            programs.parse(swag, run_dir="run", train_file=file, **options)
