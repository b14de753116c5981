import csv
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.finetuning.fine_tuner import fine_tune
from tasks.swag import multiple_choice
from tests.models.test_multiple_choice import telling_questions
from tests.tasks.given_flags import GivenFlags
from tests.tasks.test_glue import ARGUMENTS

FLAGS = {
    "train_file": None,
    "eval_file": None,
    "predict_file": None,
    "file_format": None,
    "fold": None,
    "folds": 5,
    "fold_seed": 1,
    "skip_bad_rows": False,
    "init_checkpoint": None,
}


def make_swag(path, number, seed):
    questions, labels = telling_questions(number, seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "sent1", "sent2", "ending0", "ending1", "ending2", "label"])
        for row, (prompt, choices, label) in enumerate(zip(*questions.values(), labels, strict=True)):
            writer.writerow([row, prompt, "the film", *choices, label])
    return str(path)


def make_codah(path, number, seed):
    questions, labels = telling_questions(number, seed)
    with open(path, "w") as file:
        for row, (prompt, choices, label) in enumerate(zip(*questions.values(), labels, strict=True)):
            file.write("\t".join(["no"[row % 2], prompt, *choices, "a dull film", str(label)]) + "\n")
    return str(path)


def run(modes, run_dir, checkpoint=None, **flags):
    values = GivenFlags(FLAGS, mode=modes, run_dir=str(run_dir), **flags)
    return fine_tune(multiple_choice(values), modes, run_dir, init_checkpoint=checkpoint, **{**ARGUMENTS, "epochs": 6})


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_checkpoint):
    """A run that did everything: its files and folder."""
    folder = tmp_path_factory.mktemp("swag")
    files = {"train_file": make_swag(folder / "train.csv", 150, 0), "eval_file": make_swag(folder / "val.csv", 30, 1)}
    files["predict_file"] = files["eval_file"]
    run(["train", "eval", "predict", "export"], folder / "run", toy_checkpoint, **files)
    return files, folder / "run"


@pytest.mark.slow
def test_it_learns_to_choose(finished):
    _, folder = finished
    report = json.loads((folder / "evaluation.json").read_text())["eval"]
    assert report["accuracy"] > 0.8
    assert report["questions"] == 30
    results = json.loads((folder / "results.json").read_text())
    assert results["score"] == "eval/accuracy"
    assert results["best"]["metrics"]["eval/accuracy"] == pytest.approx(report["accuracy"])


@pytest.mark.slow
def test_predictions_are_what_is_served(finished):
    files, folder = finished
    with open(folder / "predictions" / "predict.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with open(files["eval_file"]) as file:
        questions = list(csv.DictReader(file))
    assert [int(row["line"]) for row in rows] == list(range(2, 32))
    right = np.mean([row["label"] == question["label"] for row, question in zip(rows, questions, strict=True)])
    assert right == pytest.approx(json.loads((folder / "evaluation.json").read_text())["eval"]["accuracy"])
    signature = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["serving_default"]
    choices = [[f"the film {question[f'ending{number}']}" for number in range(3)] for question in questions]
    served = signature(prompt=tf.constant([row["sent1"] for row in questions]), choices=tf.constant(choices))
    for number in range(3):
        written = [float(row[f"probability of {number}"]) for row in rows]
        np.testing.assert_allclose(served["probabilities"][:, number], written, atol=1e-4)


@pytest.mark.slow
def test_a_fold_of_codah(tmp_path, toy_checkpoint):
    file = make_codah(tmp_path / "codah.tsv", 100, 2)
    run(["train", "eval"], tmp_path / "run", toy_checkpoint, train_file=file, fold=1)
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert [report[split]["questions"] for split in ("dev", "test")] == [20, 20]
    assert sum(category["questions"] for category in report["test"]["by_category"].values()) == 20
    assert json.loads((tmp_path / "run" / "results.json").read_text())["configuration"]["fold"] == 1
    # The run knows its fold, and is not judged by what it was trained on.
    again = run(["eval"], tmp_path / "run", train_file=file)["evaluation"]
    assert again["test/accuracy"] == report["test"]["accuracy"]
    for flags in ({"fold": 0}, {"fold_seed": 2}):
        with pytest.raises(ValueError, match="the model was trained with fold"):
            run(["eval"], tmp_path / "run", train_file=file, **flags)


def test_what_cannot_be_is_refused(tmp_path, toy_checkpoint):
    file = make_codah(tmp_path / "codah.tsv", 20, 2)
    with pytest.raises(ValueError, match="leave out --eval_file"):
        run(["train"], tmp_path / "run", toy_checkpoint, train_file=file, eval_file=file, fold=1)
    with pytest.raises(ValueError, match="--fold_seed is of a cross-validation: give --fold, or leave it out"):
        run(["train"], tmp_path / "run", toy_checkpoint, train_file=file, eval_file=file, fold_seed=2)
    with pytest.raises(ValueError, match=r"give --file_format"):
        run(["train"], tmp_path / "run", toy_checkpoint, train_file=str(tmp_path / "codah.txt"), fold=1)
    with pytest.raises(ValueError, match="has no labelled examples to choose the best model by; give --eval_file"):
        run(["train"], tmp_path / "run", toy_checkpoint, train_file=file)
    with pytest.raises(ValueError, match="no trained layer for choices"):
        run(["eval"], tmp_path / "run", toy_checkpoint, eval_file=file)
    unlabelled = tmp_path / "test.csv"
    unlabelled.write_text("sent1,sent2,ending0,ending1\na,b,c,d\n")
    with pytest.raises(ValueError, match="the question of line 2 has no label"):
        run(["train"], tmp_path / "run", toy_checkpoint, train_file=file, eval_file=str(unlabelled))
