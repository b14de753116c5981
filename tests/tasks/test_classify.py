import json

import numpy as np
import pytest
from absl import flags

from keras_bert.finetuning.fine_tuner import fine_tune
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.task import TaskData
from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings
from keras_bert.models.classifier import BertClassifier
from tasks import classify
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.toys import toy_classifier, toy_reviews

TEXTS, NAMES = toy_reviews(200)
COLUMNS = {"text_column": "review", "label_column": "mood"}


def write_csv(file, rows, columns=("review", "mood")):
    lines = [",".join(columns), *(",".join(f'"{value}"' for value in row) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def run(mode, run_dir, checkpoint=None, **options):
    if "train" in mode:
        options = {**({} if "text_columns" in options else COLUMNS), "label_column": "mood", "epochs": 5, **options}
    return programs.run(classify, mode, run_dir, checkpoint, **options)


def task(modes, **settings):
    return TextClassification.from_settings(TextClassificationSettings(**COLUMNS, **settings), modes)


@pytest.mark.slow
def test_single_labels_from_csv(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS[:160], NAMES[:160], strict=True))
    dev = write_csv(tmp_path / "dev.csv", zip(TEXTS[160:], NAMES[160:], strict=True))
    options = {"train_file": train, "dev_file": dev, "predict_file": dev}
    results = run("train,eval,predict,export", tmp_path / "run", toy_checkpoint, **options)
    assert results["evaluation"]["dev/accuracy"] > 0.75
    report = read_json(tmp_path / "run" / "evaluation.json")["dev"]
    assert report["label_names"] == ["negative", "positive"]
    assert set(report["per_class"]) == {"negative", "positive"}
    predictions = (tmp_path / "run" / "predictions" / "dev.csv.tsv").read_text().splitlines()
    model = BertClassifier.from_checkpoint(tmp_path / "run" / "model", sequence_length=16)
    assert [row.split("\t")[1] for row in predictions[1:]] == model.predict_labels(TEXTS[160:])
    assert predictions[0] == "line\tlabel\tprobability of negative\tprobability of positive"
    assert (tmp_path / "run" / "saved_model" / "1" / "saved_model.pb").is_file()

    # The library trains what the program does.
    settings = TextClassificationSettings(**COLUMNS, train_file=(train,), dev_file=(dev,))
    own_task = TextClassification.from_settings(settings, ("train",))
    training = {**programs.TRAINING, "epochs": 5, "init_checkpoint": toy_checkpoint}
    del training["checkpoint_every"]
    runtime = FineTuningRuntime(eval_batch_size=8, progress=False)
    again = fine_tune(own_task, FineTuningRecipe(**training), tmp_path / "own", runtime=runtime, modes=("train",))
    assert again["best"]["metrics"] == results["best"]["metrics"]
    own_model = BertClassifier.from_checkpoint(tmp_path / "own" / "model", sequence_length=16)
    np.testing.assert_array_equal(own_model.encoder.weights[0], model.encoder.weights[0])


@pytest.mark.slow
def test_adapters_are_saved_apart_and_merged_into_the_model(toy_checkpoint, tmp_path):
    train = write_csv(tmp_path / "train.csv", zip(TEXTS, NAMES, strict=True))
    options = {"train_file": train, "validation_split": 0.2, "lora_rank": 2, "lora_alpha": 4, "learning_rate": 2e-2}
    results = run("train,eval", tmp_path / "run", toy_checkpoint, lora_targets="query,value", **options)
    assert results["best"]["trainable_parameters"] == (16 * 4 + 2 * 32) + (16 * 2 + 2)
    assert results["evaluation"]["dev/accuracy"] > 0.6
    merged = BertClassifier.from_checkpoint(tmp_path / "run" / "model", sequence_length=16)
    base = BertClassifier.from_checkpoint(toy_checkpoint, labels=merged.labels, sequence_length=16)
    base.load_adapter(tmp_path / "run" / "adapter")
    assert base.lora_targets == ("query", "value")
    np.testing.assert_allclose(base.predict(TEXTS, verbose=0), merged.predict(TEXTS, verbose=0), atol=1e-5)
    run("eval", tmp_path / "run", train_file=train)  # without the flags of LoRA


@pytest.mark.slow
def test_multiple_labels_from_json_lines_keep_held_out_rows(toy_checkpoint, tmp_path):
    train = tmp_path / "train.jsonl"
    moods = [[name, "film"] if "film" in text else [name] for text, name in zip(TEXTS, NAMES, strict=True)]
    rows = [{"review": text, "mood": mood} for text, mood in zip(TEXTS, moods, strict=True)]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"train_file": train, "problem_type": "multi_label_classification", "predict_file": train, "seed": 7}
    results = run("train,eval,predict", tmp_path / "run", toy_checkpoint, validation_split=0.2, **options)
    assert results["score"] == "dev/micro_f1"
    report = read_json(tmp_path / "run" / "evaluation.json")["dev"]
    assert list(report["per_label"]) == ["film", "negative", "positive"]
    assert 20 < report["examples"] < 60
    assert not (tmp_path / "run" / "predictions" / "train.jsonl.jsonl").exists()  # TSV, if no label has a comma or tab
    predictions = (tmp_path / "run" / "predictions" / "train.jsonl.tsv").read_text().splitlines()
    assert {row.split("\t")[1] for row in predictions[1:]} > {"negative", "positive"}

    (tmp_path / "run" / "evaluation.json").unlink()
    run("eval", tmp_path / "run", train_file=train)
    assert read_json(tmp_path / "run" / "evaluation.json")["dev"] == report
    with pytest.raises(SystemExit, match=r"^tasks.classify: "):
        run("eval", tmp_path / "new", train_file=tmp_path / "missing.jsonl")


@pytest.mark.slow
def test_regression_on_pairs_predicts_later(toy_checkpoint, tmp_path):
    columns = ("first", "second", "mood")
    rows = [(a, b, 5.0 * (name == "positive")) for a, b, name in zip(TEXTS, reversed(TEXTS), NAMES, strict=True)]
    train = write_csv(tmp_path / "train.csv", rows, columns)
    options = {"text_columns": "first,second", "problem_type": "regression", "validation_split": 0.2}
    results = run("train,eval", tmp_path / "run", toy_checkpoint, train_file=train, **options)
    names = {"pearson_correlation", "spearman_correlation", "mean_squared_error"}
    assert set(results["evaluation"]) == {f"dev/{name}" for name in names}
    run("predict", tmp_path / "run", predict_file=train)
    lines = (tmp_path / "run/predictions/train.csv.tsv").read_text().splitlines()[1:]
    values = [float(line.split("\t")[1]) for line in lines]
    assert np.corrcoef(values, [row[2] for row in rows])[0, 1] > 0.3


def test_rejects_unknown_labels_with_their_line(tmp_path):
    train = write_csv(tmp_path / "train.csv", [("good", "a"), ("bad", "b")])
    dev = write_csv(tmp_path / "dev.csv", [("good", "a"), ("dull", "c")])
    message = r"dev.csv, line 3: the label 'c' is unknown; known are \['a', 'b'\]"
    with pytest.raises(ValueError, match=message):
        list(task(("train",), train_file=(train,), dev_file=(dev,)).data.evaluation["dev"])
    with pytest.raises(ValueError, match=r"train.csv, line 3: the label 'b' is unknown"):
        list(task(("train",), train_file=(train,), dev_file=(dev,), labels=("a", "c")).data.train)


def test_files_to_predict_need_different_names(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / "in.csv", zip(TEXTS, NAMES, strict=True))
    with pytest.raises(ValueError, match="have the same name"):
        task(("predict",), predict_file=(str(tmp_path / "*" / "in.csv"),))


def test_macro_f1_counts_every_class():
    own_task = TextClassification(TextClassificationSettings(labels=("a", "b", "c")), TaskData())
    for labels in (np.array([1, 1, 2]), np.array([0, 0, 1])):
        assert own_task.metrics(labels, labels, 3)["macro_f1"] == pytest.approx(2 / 3)


def test_predictions_have_the_line_also_after_a_skipped_row(tmp_path):
    (tmp_path / "in.csv").write_text("review,mood\ngood,x\nbroken\nfine,y\n")
    own_task = task(("predict",), predict_file=(str(tmp_path / "in.csv"),), labels=("a", "b"), skip_bad_rows=True)
    (file,) = own_task.write_predictions(toy_classifier(labels=("a", "b")), tmp_path / "predictions", 8)
    assert [line.split("\t")[0] for line in file.read_text().splitlines()] == ["line", "2", "4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predict_file": "x"}, "--predict_file has no effect with --mode=train,eval,export; it is used by predict"),
        ({"dev_file": "x", "validation_split": 0.2}, "--validation_split has no effect with dev_file"),
        ({"label_separator": ";"}, "no effect with problem_type=single_label_classification"),
        ({"text_columns": "a,b,c"}, "--text_columns must name two columns"),
        ({"validation_split": 1.5}, "must be between 0 and 1"),
    ],
)
def test_rejects_flags_that_are_wrong_or_have_no_effect(options, message):
    with pytest.raises(flags.Error) as error:
        programs.parse(classify, run_dir="run", **options)
    assert message in str(error.value)
