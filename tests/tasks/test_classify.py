import json
import sys

import numpy as np
import pytest

from keras_bert.finetuning.fine_tuner import fine_tune
from keras_bert.models.classifier import BertClassifier
from tasks import classify
from tests.forked import run as run_forked
from tests.tasks.test_glue import ARGUMENTS
from tests.toys import toy_classifier, toy_reviews

TEXTS, NAMES = toy_reviews(200)
FILES = {
    "train_file": [],
    "dev_file": [],
    "validation_split": 0.2,
    "predict_file": [],
    "text_columns": ["review"],
    "label_column": "mood",
    "labels": None,
    "problem_type": "single_label_classification",
    "label_separator": ",",
    "file_format": None,
    "hold_out_seed": 1,
    "skip_bad_rows": False,
}


def write_csv(file, rows, columns=("review", "mood")):
    lines = [",".join(columns), *(",".join(f'"{value}"' for value in row) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def run(modes, run_dir, checkpoint, files, **arguments):
    task = classify.own_classification(modes, **{**FILES, **files})
    return fine_tune(task, modes, run_dir, checkpoint, **{**ARGUMENTS, "epochs": 5, **arguments})


@pytest.mark.slow
def test_single_labels_from_csv(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS[:160], NAMES[:160], strict=True))
    dev = write_csv(tmp_path / "dev.csv", zip(TEXTS[160:], NAMES[160:], strict=True))
    modes = ("train", "eval", "predict", "export")
    files = {"train_file": [train], "dev_file": [dev], "predict_file": [dev]}
    results = run(modes, tmp_path / "run", toy_checkpoint, files)
    assert results["evaluation"]["dev/accuracy"] > 0.75
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())["dev"]
    assert report["label_names"] == ["negative", "positive"]
    assert set(report["per_class"]) == {"negative", "positive"}
    for picture in ("training_curve.png", "confusion_matrix_dev.png"):
        assert (tmp_path / "run" / picture).read_bytes().startswith(b"\x89PNG")
    predictions = (tmp_path / "run" / "predictions" / "dev.csv.tsv").read_text().splitlines()
    model = BertClassifier.from_checkpoint(tmp_path / "run" / "model", sequence_length=16)
    assert [row.split("\t")[1] for row in predictions[1:]] == model.predict_labels(TEXTS[160:])
    assert predictions[0] == "line\tlabel\tprobability of negative\tprobability of positive"
    assert (tmp_path / "run" / "saved_model" / "1" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_several_labels_from_json_lines_with_a_hold_out(toy_checkpoint, tmp_path):
    train = tmp_path / "train.jsonl"
    rows = [
        {"review": text, "mood": [name] + (["film"] if "film" in text else [])}
        for text, name in zip(TEXTS, NAMES, strict=True)
    ]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train_file": [str(train)], "problem_type": "multi_label_classification", "predict_file": [str(train)]}
    results = run(("train", "eval", "predict"), tmp_path / "run", toy_checkpoint, files)
    assert results["score"] == "dev/micro_f1"
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())["dev"]
    assert list(report["per_label"]) == ["film", "negative", "positive"]
    assert 20 < report["examples"] < 60
    written = (tmp_path / "run" / "predictions" / "train.jsonl.jsonl").exists()
    assert not written  # no label holds a comma or a tab, so it is TSV
    predictions = (tmp_path / "run" / "predictions" / "train.jsonl.tsv").read_text().splitlines()
    assert {row.split("\t")[1] for row in predictions[1:]} > {"negative", "positive"}


@pytest.mark.slow
def test_regression_on_pairs_and_later_use(toy_checkpoint, tmp_path):
    columns = ("first", "second", "mood")
    rows = [(a, b, 5.0 * (name == "positive")) for a, b, name in zip(TEXTS, reversed(TEXTS), NAMES, strict=True)]
    train = write_csv(tmp_path / "train.csv", rows, columns)
    form = {"text_columns": ["first", "second"], "problem_type": "regression"}
    results = run(("train", "eval"), tmp_path / "run", toy_checkpoint, {"train_file": [train], **form})
    assert {"dev/pearson_correlation", "dev/spearman_correlation", "dev/mean_squared_error"} == set(
        results["evaluation"]
    )
    run(("predict",), tmp_path / "run", None, {"predict_file": [train], **form})
    values = [
        float(row.split("\t")[1]) for row in (tmp_path / "run/predictions/train.csv.tsv").read_text().splitlines()[1:]
    ]
    assert np.corrcoef(values, [row[2] for row in rows])[0, 1] > 0.3


def test_given_labels_have_to_be_those_of_the_file(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS, NAMES, strict=True))
    with pytest.raises(ValueError, match="positive"):
        run(("train",), tmp_path / "run", toy_checkpoint, {"train_file": [train], "labels": ["negative", "neutral"]})


def test_a_bad_row_stops_or_is_counted(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", [*zip(TEXTS, NAMES, strict=True), ("no label", "")])
    with pytest.raises(ValueError, match=r"train.csv.*202"):
        classify.own_classification(("train",), **{**FILES, "train_file": [train]})
    task = classify.own_classification(("train",), **{**FILES, "train_file": [train], "skip_bad_rows": True})
    assert task.labels == ["negative", "positive"]


def test_a_missing_column_is_named_with_those_that_there_are(tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS, NAMES, strict=True))
    with pytest.raises(ValueError, match=r"text.*review"):
        classify.own_classification(("train",), **{**FILES, "train_file": [train], "text_columns": ["text"]})


def test_files_to_predict_that_would_overwrite_each_other(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / "in.csv", zip(TEXTS, NAMES, strict=True))
    files = {"predict_file": [str(tmp_path / "*" / "in.csv")]}
    with pytest.raises(ValueError, match="have the same name"):
        classify.own_classification(("predict",), **{**FILES, **files})


def test_macro_f1_counts_every_class():
    truth = np.array([1, 1, 2])
    assert classify.single_label_metrics(truth, truth, 3)["macro_f1"] == pytest.approx(2 / 3)
    assert classify.single_label_metrics(truth - 1, truth - 1, 3)["macro_f1"] == pytest.approx(2 / 3)


def test_predictions_say_the_line_also_after_a_skipped_row(tmp_path):
    write_csv(tmp_path / "in.csv", [("good", "x"), ("bad", "")])
    (tmp_path / "in.csv").write_text("review,mood\ngood,x\nbroken\nfine,y\n")
    files = {"predict_file": [str(tmp_path / "in.csv")], "labels": ["a", "b"], "skip_bad_rows": True}
    task = classify.own_classification(("predict",), **{**FILES, **files})
    classifier = toy_classifier(labels=("a", "b"))
    (file,) = task.write_predictions(classifier, tmp_path / "predictions", 8)
    assert [line.split("\t")[0] for line in file.read_text().splitlines()] == ["line", "2", "4"]


@pytest.mark.slow
def test_rows_held_out_stay_held_out(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS, NAMES, strict=True))
    run(("train", "eval"), tmp_path / "run", toy_checkpoint, {"train_file": [train], "hold_out_seed": 7})
    first = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    (tmp_path / "run" / "evaluation.json").unlink()
    command = ["tasks.classify", "--mode=eval", f"--run_dir={tmp_path / 'run'}", f"--train_file={train}", "--seed=1"]
    answer = run_forked([sys.executable, "-m", *command])
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text()) == first
    command[1:] = ["--mode=eval", f"--run_dir={tmp_path / 'new'}", f"--train_file={train}x"]
    answer = run_forked([sys.executable, "-m", *command])
    assert answer.stderr.splitlines()[-1].startswith("tasks.classify: ")
    assert "Traceback" not in answer.stderr


def test_a_label_that_only_dev_has_is_named_with_its_line(tmp_path):
    train = write_csv(tmp_path / "train.csv", [("good", "a"), ("bad", "b")])
    dev = write_csv(tmp_path / "dev.csv", [("good", "a"), ("dull", "c")])
    files = {"train_file": [train], "dev_file": [dev]}
    task = classify.own_classification(("train",), **{**FILES, **files})
    with pytest.raises(ValueError, match=r"dev.csv, line 3: the label 'c' is unknown; known are \['a', 'b'\]"):
        list(task._evaluation["dev"])
