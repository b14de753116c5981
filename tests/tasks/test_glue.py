import errno
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from tasks import glue
from tests.export.test_runtime_folder import skip_without
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.tolerances import assert_close
from tests.toys import toy_reviews


def run(task, mode, data_dir, run_dir, init_checkpoint=None, **options):
    return programs.run(glue, mode, run_dir, init_checkpoint, task=task, data_dir=data_dir, **options)


@pytest.mark.slow
def test_trains_evaluates_predicts_and_exports(toy_glue, toy_checkpoint, tmp_path, capsys, caplog, monkeypatch):
    folder = tmp_path / "run"
    caplog.set_level("INFO", logger="absl")
    results = run("sst2", "train,eval,predict,export", toy_glue, folder, toy_checkpoint, epochs=4)
    saved = read_json(folder / "results.json")
    assert {name: results[name] for name in saved} == saved
    assert results["best"]["steps"] == 80
    assert results["evaluation"]["dev/accuracy"] == results["best"]["score"] > 0.75
    report = read_json(folder / "evaluation.json")["dev"]
    assert report["accuracy"] == results["best"]["score"]
    assert np.sum(report["confusion_matrix"]) == 40
    for picture in ("training_curve.png", "confusion_matrix_dev.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    # Results are printed once on stdout, and the weights that were read once in the log.
    printed = capsys.readouterr().out
    assert printed.count(f"{results['best']['score']:.4f}") == 2  # on dev while training, and in the end
    for path in ("model", "predictions/SST-2.tsv", "saved_model/1"):
        assert str(folder / path) in printed
    assert sum("variables read" in record.getMessage() for record in caplog.records) == 1

    texts, _ = toy_reviews(200)
    served = tf.saved_model.load(folder / "saved_model" / "1").signatures["serving_default"]
    labels = [label.decode() for label in served(text=tf.constant(texts[:7]))["label"].numpy()]
    submission = (folder / "predictions" / "SST-2.tsv").read_text().splitlines()
    assert submission == ["index\tprediction", *(f"{i}\t{label}" for i, label in enumerate(labels))]
    model = BertClassifier.from_checkpoint(folder / "model", sequence_length=16)
    assert model.predict_labels(texts[:7]) == labels

    # Later, the folder of the run, which may be read-only, is enough.
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("keras_bert.finetuning.classification_task.draw_confusion_matrix", refuse)
    monkeypatch.setattr("keras_bert.finetuning.fine_tuner.write_json", refuse)
    assert run("sst2", "eval", toy_glue, folder)["evaluation"] == results["evaluation"]
    assert f"{results['best']['score']:.4f}" in capsys.readouterr().out


@pytest.mark.slow
def test_grid_keeps_the_best_learning_rate_on_dev(toy_glue, toy_checkpoint, tmp_path):
    options = {"learning_rate": "1e-6,5e-3", "epochs": 4}
    results = run("sst2", "train,eval", toy_glue, tmp_path / "run", toy_checkpoint, **options)
    worse, better = results["trials"]
    assert better["score"] > worse["score"]
    assert results["best"] == better
    assert results["evaluation"]["dev/accuracy"] == better["score"]
    assert [summary["learning_rate"] for summary in results["by_learning_rate"]] == [1e-6, 5e-3]


@pytest.mark.slow
def test_model_of_mnli_starts_rte_and_predicts_ax(toy_glue, toy_checkpoint, tmp_path):
    results = run("mnli", "train,eval,predict", toy_glue, tmp_path / "mnli", toy_checkpoint)
    assert set(results["evaluation"]) == {"dev_matched/accuracy", "dev_mismatched/accuracy"}
    assert results["score"] == "dev_matched/accuracy"
    assert {file.name for file in (tmp_path / "mnli" / "predictions").iterdir()} == {"MNLI-m.tsv", "MNLI-mm.tsv"}

    run("ax", "predict", toy_glue, tmp_path / "ax", tmp_path / "mnli")
    ax = (tmp_path / "ax" / "predictions" / "AX.tsv").read_text()
    assert ax == (tmp_path / "mnli" / "predictions" / "MNLI-m.tsv").read_text()  # the toy files are the same

    run("rte", "train", toy_glue, tmp_path / "rte", tmp_path / "mnli", epochs=0.1, learning_rate=1e-12)
    encoders = [BertEncoder.from_checkpoint(tmp_path / task / "model").weights[0].numpy() for task in ("mnli", "rte")]
    assert_close(*encoders)


@pytest.mark.slow
def test_regression_predicts_scores_in_range_with_static_shapes(toy_glue, toy_checkpoint, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    results = run("stsb", "train,eval,predict", toy_glue, tmp_path / "run", toy_checkpoint, static_shapes=True)
    assert "one for all batches" in caplog.text
    assert set(results["evaluation"]) == {"dev/pearson_correlation", "dev/spearman_correlation"}
    rows = (tmp_path / "run" / "predictions" / "STS-B.tsv").read_text().splitlines()[1:]
    assert all(0 <= float(row.split("\t")[1]) <= 5 for row in rows)


SHAPES = "makes batches of different shapes"


@pytest.mark.parametrize(
    ("task", "mode", "checkpoint", "options", "message"),
    [
        ("wnli", "train", "toy", {}, "tasks.glue: .*no file of the train"),
        ("ax", "train", "toy", {}, "tasks.glue: .*ax has no examples to train on"),
        ("sst2", "train", "bert_huge", {}, "tasks.glue: .*there is no bert_huge; give"),
        ("sst2", "train", None, {}, "tasks.glue: .*give init_checkpoint"),
        ("sst2", "eval", None, {}, "tasks.glue: .*no trained model in"),
        ("sst2", "eval", "toy", {}, "tasks.glue: .*no trained classification layer"),
        ("sst2", "train", "toy", {"freeze": 7}, "freeze must be"),
        ("sst2", "train", "toy", {"max_seq_length": 64}, "positions"),
        ("sst2", "train", "toy", {"token_budget": 64, "static_shapes": True}, f"token_budget {SHAPES}"),
        ("sst2", "train", "toy", {"data_service": "grpc://a:1", "static_shapes": True}, f"data_service {SHAPES}"),
    ],
)
def test_rejects_data_models_and_settings_before_writing(
    toy_glue, toy_checkpoint, tmp_path, task, mode, checkpoint, options, message
):
    with pytest.raises(SystemExit, match=message):
        start = toy_checkpoint if checkpoint == "toy" else checkpoint
        run(task, mode, toy_glue, tmp_path / "run", start, **{"max_seq_length": 16, **options})
    assert not (tmp_path / "run").exists()


def test_tpu_needs_static_shapes(toy_glue, toy_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bert.finetuning.training_input.needs_static_shapes", lambda strategy: True)
    with pytest.raises(SystemExit, match="on a TPU all batches must have one shape"):
        run("sst2", "train", toy_glue, tmp_path / "run", toy_checkpoint)


@pytest.mark.parametrize(("split", "row"), [("dev", "a fine film\t2\n"), ("test", "7\n")])
def test_finds_bad_rows_of_any_split_before_training(toy_glue, toy_checkpoint, tmp_path, split, row):
    shutil.copytree(toy_glue / "SST-2", tmp_path / "SST-2")
    with open(tmp_path / "SST-2" / f"{split}.tsv", "a") as file:
        file.write(row)
    with pytest.raises(SystemExit, match=rf"{split}\.tsv, line"):
        run("sst2", "train,predict", tmp_path, tmp_path / "run", toy_checkpoint)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_model_is_used_for_its_own_task_and_data_only(toy_glue, toy_checkpoint, tmp_path):
    run("sst2", "train,export", toy_glue, tmp_path / "one", toy_checkpoint, epochs=0.1)
    run("sst2", "train", toy_glue, tmp_path / "two", toy_checkpoint, epochs=0.1, seed=2)
    with pytest.raises(SystemExit, match="has a model of its own"):
        run("sst2", "eval", toy_glue, tmp_path / "one", tmp_path / "two")
    with pytest.raises(SystemExit, match="is of a run for the task 'sst2', and this is 'rte'"):
        run("rte", "eval", toy_glue, tmp_path / "one")
    # The same export again is not repeated; another dtype or length is another version.
    run("sst2", "export", None, tmp_path / "one")
    assert [path.name for path in (tmp_path / "one" / "saved_model").iterdir()] == ["1"]
    run("sst2", "export", None, tmp_path / "one", export_dtype="bfloat16")
    run("sst2", "export", None, tmp_path / "one", max_seq_length=8)
    assert sorted(path.name for path in (tmp_path / "one" / "saved_model").iterdir()) == ["1", "2", "3"]
    # Other data under the same name are another run.
    shutil.copytree(toy_glue / "SST-2", tmp_path / "data" / "SST-2")
    with open(tmp_path / "data" / "SST-2" / "train.tsv", "a") as file:
        file.write("a fine film\t1\n")
    with pytest.raises(SystemExit, match=r"data\.train is .161 examples, .*, but .160 examples, "):
        run("sst2", "train", tmp_path / "data", tmp_path / "two", toy_checkpoint, epochs=0.1, seed=2)


@pytest.mark.slow
def test_exports_int8_calibrated_on_training_examples(toy_glue, toy_checkpoint, tmp_path):
    skip_without("openvino", quantize="int8")
    quantized = {"export_format": "openvino", "export_quantize": "int8"}
    results = run("sst2", "train,export", toy_glue, tmp_path / "run", toy_checkpoint, epochs=0.1, **quantized)
    folder = tmp_path / "run" / "openvino" / "1"
    assert results["openvino"] == [str(folder)]
    assert "int8" in (folder / "README.md").read_text()
    with pytest.raises(SystemExit, match="is calibrated on training examples, and the modes are export"):
        run("sst2", "export", None, tmp_path / "run", **quantized)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sst3"}, "cola|sst2|mrpc"),
        ({"mode": "train,test"}, "--mode must be one of train, eval, predict, export; got 'test'"),
        ({"freeze": "half"}, "must be none, embeddings, encoder, or a positive number"),
        ({"learning_rate": "5e-5,x"}, "--learning_rate must be numbers, comma-separated"),
        ({"learning_rate": "5e-5,5e-5"}, "--learning_rate must be one or several different numbers"),
        ({"learning_rate": "nan"}, "must be a finite number, got nan"),
        ({"batch_size": 0}, "--batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "must be a positive number"),
        ({"token_budget": 64, "bucket_step": 0}, "--token_budget needs length buckets"),
        ({"init_checkpoint_right_to_left": "x"}, "is for encoder=two_directions"),
        ({"data_service": "localhost:5050"}, "grpc://host:port"),
        ({"mode": "eval", "epochs": 2}, "--epochs has no effect with --mode=eval; it is used by train"),
        ({"export_dtype": "bfloat16", "mode": "train"}, "--export_dtype has no effect with --mode=train"),
        ({"export_format": "onnx", "mode": "train"}, "--export_format has no effect with --mode=train"),
        ({"export_quantize": "int8", "mode": "train,export"}, "a SavedModel cannot be quantized"),
        ({"export_dtype": "bfloat16", "export_format": "onnx", "mode": "export"}, "is written in float32"),
    ],
)
def test_rejects_flags_that_are_wrong_or_have_no_effect(options, message):
    with pytest.raises(flags.Error) as error:
        programs.parse(glue, **{"task": "sst2", "run_dir": "run", **options})
    assert message in str(error.value)
