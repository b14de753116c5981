import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.formats.glue_files import GLUE_TASKS
from keras_bert.finetuning.classification_task import Classification
from keras_bert.finetuning.fine_tuner import fine_tune
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from tasks import glue
from tests.toys import toy_reviews

ARGUMENTS = {
    "learning_rates": [5e-3],
    "seeds": [1],
    "max_seq_length": 16,
    "freeze": "none",
    "dropout": 0.1,
    "precision": "float32",
    "eval_batch_size": 8,
    "export_dtype": None,
    "epochs": 2,
    "batch_size": 8,
    "token_budget": None,
    "bucket_step": 8,
    "static_shapes": False,
    "schedule": "bert",
    "warmup_proportion": 0.1,
    "weight_decay": 0.01,
    "clip_norm": 1.0,
    "bias_correction": None,
    "layer_decay": 1.0,
    "patience": None,
    "jit_compile": False,
    "evaluate_every": None,
    "gradient_accumulation_steps": 1,
    "checkpoint_every": 1000,
    "log_every": 20,
    "steps_per_execution": 20,
    "progress": False,
}


def run(task, modes, data_dir, run_dir, init_checkpoint=None, **arguments):
    classification = glue.glue_classification(task, modes, data_dir, "files", skip_bad_rows=False)
    return fine_tune(classification, modes, run_dir, init_checkpoint=init_checkpoint, **{**ARGUMENTS, **arguments})


def test_the_tasks_of_the_flag_are_those_of_the_library():
    assert list(glue.TASKS) == list(GLUE_TASKS)


@pytest.mark.slow
def test_from_files_to_submission_and_saved_model(toy_glue, toy_checkpoint, tmp_path):
    modes = ("train", "eval", "predict", "export")
    results = run("sst2", modes, toy_glue, tmp_path / "run", toy_checkpoint, epochs=4)
    assert results == {
        **json.loads((tmp_path / "run" / "results.json").read_text()),
        "evaluation": results["evaluation"],
    }
    assert results["best"]["steps"] == 80
    assert results["evaluation"]["dev/accuracy"] == results["best"]["score"] > 0.75
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())["dev"]
    assert report["accuracy"] == results["best"]["score"]
    assert np.sum(report["confusion_matrix"]) == 40
    for picture in ("training_curve.png", "confusion_matrix_dev.png"):
        assert (tmp_path / "run" / picture).read_bytes().startswith(b"\x89PNG")

    texts, _ = toy_reviews(200)
    served = tf.saved_model.load(tmp_path / "run" / "saved_model" / "1").signatures["serving_default"]
    labels = [label.decode() for label in served(text=tf.constant(texts[:7]))["label"].numpy()]
    submission = (tmp_path / "run" / "predictions" / "SST-2.tsv").read_text().splitlines()
    assert submission == ["index\tprediction", *(f"{i}\t{label}" for i, label in enumerate(labels))]

    model = BertClassifier.from_checkpoint(tmp_path / "run" / "model", sequence_length=16)
    assert model.predict_labels(texts[:7]) == labels
    # Later, with nothing but the folder of the run:
    again = run("sst2", ("eval",), toy_glue, tmp_path / "run")
    assert again["evaluation"] == results["evaluation"]


@pytest.mark.slow
def test_a_grid_with_restarts_takes_the_best_on_dev(toy_glue, toy_checkpoint, tmp_path):
    arguments = {"learning_rates": [5e-3, 1e-6], "seeds": [1, 2], "epochs": 4}
    results = run("sst2", ("train", "eval"), toy_glue, tmp_path / "run", toy_checkpoint, **arguments)
    scores = {(trial["learning_rate"], trial["seed"]): trial["score"] for trial in results["trials"]}
    assert len(scores) == 4
    assert results["best"]["score"] == max(scores.values()) == results["evaluation"]["dev/accuracy"]
    by_rate = {summary["learning_rate"]: summary for summary in results["by_learning_rate"]}
    assert by_rate[5e-3]["mean"] == pytest.approx((scores[5e-3, 1] + scores[5e-3, 2]) / 2)
    assert by_rate[5e-3]["maximum"] > by_rate[1e-6]["maximum"]
    assert not list((tmp_path / "run").glob("trials/*/checkpoints"))


@pytest.mark.slow
def test_mnli_then_rte_and_ax(toy_glue, toy_checkpoint, tmp_path):
    results = run("mnli", ("train", "eval", "predict"), toy_glue, tmp_path / "mnli", toy_checkpoint)
    assert set(results["evaluation"]) == {"dev_matched/accuracy", "dev_mismatched/accuracy"}
    assert results["score"] == "dev_matched/accuracy"
    assert {file.name for file in (tmp_path / "mnli" / "predictions").iterdir()} == {"MNLI-m.tsv", "MNLI-mm.tsv"}

    run("ax", ("predict",), toy_glue, tmp_path / "ax", tmp_path / "mnli")
    ax = (tmp_path / "ax" / "predictions" / "AX.tsv").read_text()
    assert ax == (tmp_path / "mnli" / "predictions" / "MNLI-m.tsv").read_text()  # the toy files are the same

    run("rte", ("train",), toy_glue, tmp_path / "rte", tmp_path / "mnli", epochs=0.1, learning_rates=[1e-12])
    encoders = [BertEncoder.from_checkpoint(tmp_path / task / "model").weights[0].numpy() for task in ("mnli", "rte")]
    np.testing.assert_allclose(*encoders, atol=1e-9)


@pytest.mark.slow
def test_regression(toy_glue, toy_checkpoint, tmp_path):
    results = run("stsb", ("train", "eval", "predict"), toy_glue, tmp_path / "run", toy_checkpoint, epochs=4)
    assert set(results["evaluation"]) == {"dev/pearson_correlation", "dev/spearman_correlation"}
    rows = (tmp_path / "run" / "predictions" / "STS-B.tsv").read_text().splitlines()[1:]
    assert all(0 <= float(row.split("\t")[1]) <= 5 for row in rows)


@pytest.mark.slow
def test_static_shapes_hold_the_same_examples(toy_glue, toy_checkpoint, tmp_path):
    # With a rate of next to nothing the losses are those of the same weights; only dropout draws others.
    arguments = {"epochs": 1, "log_every": 1, "learning_rates": [1e-12], "dropout": 0.0}
    losses = []
    for static_shapes in (False, True):
        folder = tmp_path / f"static_{static_shapes}"
        run("sst2", ("train",), toy_glue, folder, toy_checkpoint, static_shapes=static_shapes, **arguments)
        log = [json.loads(line) for file in folder.rglob("log.jsonl") for line in file.read_text().splitlines()]
        losses.append([record["loss"] for record in log if record["event"] == "train"])
    assert len(losses[0]) == 20
    np.testing.assert_allclose(*losses, atol=0.2)
    assert np.corrcoef(*losses)[0, 1] > 0.5


def test_what_is_missing_is_said_before_anything_is_written(toy_glue, toy_checkpoint, tmp_path):
    for arguments, error, message in (
        (("wnli", ("train",), toy_glue, tmp_path / "run", toy_checkpoint), FileNotFoundError, "no file of the train"),
        (("ax", ("train",), toy_glue, tmp_path / "run", toy_checkpoint), ValueError, "ax has no examples to train on"),
        (
            ("sst2", ("train",), toy_glue, tmp_path / "run", "bert_huge"),
            FileNotFoundError,
            "there is no bert_huge; give",
        ),
        (("sst2", ("train",), toy_glue, tmp_path / "run"), ValueError, "give --init_checkpoint"),
        (("sst2", ("eval",), toy_glue, tmp_path / "run"), FileNotFoundError, "no trained model in"),
        (
            ("sst2", ("eval",), toy_glue, tmp_path / "run", toy_checkpoint),
            ValueError,
            "no trained classification layer",
        ),
    ):
        with pytest.raises(error, match=message):
            run(*arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"freeze": 7}, "freeze must be"),
        ({"max_seq_length": 64}, "positions"),
        ({"learning_rates": [float("nan")]}, "peak_learning_rate"),
        ({"dropout": 2.0}, "dropout rate"),
        ({"token_budget": 64, "static_shapes": True}, "--token_budget makes batches of different shapes"),
        ({"data_service": "grpc://a:1", "static_shapes": True}, "--data_service makes batches of different shapes"),
    ],
)
def test_a_refused_run_leaves_its_folder_to_the_next(toy_glue, toy_checkpoint, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        run("sst2", ("train",), toy_glue, tmp_path / "run", toy_checkpoint, **arguments)
    assert not (tmp_path / "run").exists()


def test_on_a_tpu_shapes_have_to_be_static(toy_glue, toy_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_bert.finetuning.training_input.needs_static_shapes", lambda strategy: True)
    with pytest.raises(ValueError, match="on a TPU all batches must have one shape"):
        run("sst2", ("train",), toy_glue, tmp_path / "run", toy_checkpoint)


def test_bad_rows_of_any_split_are_found_before_training(toy_glue, toy_checkpoint, tmp_path):
    for split, row in (("dev", "a fine film\t2\n"), ("test", "7\n")):
        data = tmp_path / split / "SST-2"
        shutil.copytree(toy_glue / "SST-2", data)
        with open(data / f"{split}.tsv", "a") as file:
            file.write(row)
        with pytest.raises(ValueError, match=rf"{split}\.tsv, line"):
            run("sst2", ("train", "predict"), data.parent, tmp_path / "run", toy_checkpoint)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_model_is_used_for_its_own_task_and_never_silently_for_another(toy_glue, toy_checkpoint, tmp_path):
    run("sst2", ("train", "export"), toy_glue, tmp_path / "one", toy_checkpoint, epochs=0.1)
    run("sst2", ("train",), toy_glue, tmp_path / "two", toy_checkpoint, epochs=0.1, seeds=[2])
    with pytest.raises(ValueError, match="has a model of its own"):
        run("sst2", ("eval",), toy_glue, tmp_path / "one", tmp_path / "two")
    with pytest.raises(ValueError, match="is of a run for the task 'sst2', and this is 'rte'"):
        run("rte", ("eval",), toy_glue, tmp_path / "one")
    # The same export again is the same; another dtype or length is another version.
    run("sst2", ("export",), toy_glue, tmp_path / "one")
    assert [path.name for path in (tmp_path / "one" / "saved_model").iterdir()] == ["1"]
    run("sst2", ("export",), toy_glue, tmp_path / "one", export_dtype="bfloat16")
    run("sst2", ("export",), toy_glue, tmp_path / "one", max_seq_length=8, given={"max_seq_length"})
    assert sorted(path.name for path in (tmp_path / "one" / "saved_model").iterdir()) == ["1", "2", "3"]
    # Other data under the same name are another run.
    data = tmp_path / "data" / "SST-2"
    shutil.copytree(toy_glue / "SST-2", data)
    with open(data / "train.tsv", "a") as file:
        file.write("a fine film\t1\n")
    with pytest.raises(FileExistsError, match=r"data\.train is .161 examples, .*, there it was .160 examples, "):
        run("sst2", ("train",), data.parent, tmp_path / "two", toy_checkpoint, epochs=0.1, seeds=[2])


def test_a_mode_without_data():
    task = Classification("toy", ["a", "b"], "single_label_classification", False, None, "accuracy")
    with pytest.raises(ValueError, match="--mode has 'predict', but toy has no examples to predict"):
        task.check(("predict",))


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "tasks.glue", *arguments], capture_output=True, text=True, timeout=60)


def test_help_answers_at_once_and_names_every_flag():
    started = time.perf_counter()
    answer = program("--help")
    assert time.perf_counter() - started < 5  # a tenth of a second on a quiet machine; importing TensorFlow takes more
    for flag in ("--task", "--init_checkpoint", "--learning_rates", "--freeze", "--max_seq_length"):
        assert flag in answer.stdout


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--task=sst3", "cola|sst2|mrpc"),
        ("--mode=train,test", "allowed are train,eval,predict,export"),
        ("--freeze=half", "allowed are none, embeddings, encoder, or a positive number"),
        ("--learning_rates=5e-5,x", "must be positive numbers"),
        ("--batch_size=0", "0 is not a positive integer"),
        ("--epochs=0", "must be more than 0"),
        ("--learning_rate=nan", "must be a positive number"),
    ],
)
def test_a_refused_flag_says_what_is_allowed(flag, said):
    answer = program("--task=sst2", "--run_dir=run", flag)
    assert answer.returncode == 1
    assert said in answer.stderr
