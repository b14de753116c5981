"""The paper's other encoders are fine-tuned by the same programs: one flag each, for every task."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf

import tasks.flags
from keras_bert.models.classifier import BertClassifier
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import ENCODERS
from keras_bert.weights.encoder_kinds import features_name
from tests.forked import run as run_forked
from tests.tasks import test_glue, test_squad, test_swag
from tests.tasks.test_glue import program, run
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

EPOCHS = 10
FEATURES = features_name("weighted_sum_all")
TRIED = (*tasks.flags.ENCODERS, FEATURES)
SERVED = ("two_directions", FEATURES)  # the others are parts of these
TEXTS, _ = toy_reviews(20, seed=5)


@pytest.fixture(scope="module")
def directions(tmp_path_factory):
    """A checkpoint of each direction, as pre-training leaves them: without poolers."""
    folder = tmp_path_factory.mktemp("directions")
    return [
        toy_encoder(attention_direction=direction, num_hidden_layers=1, with_pooler=False, seed=seed).save_checkpoint(
            folder / direction, toy_preprocessor().tokenizer
        )
        for seed, direction in enumerate(("left_to_right", "right_to_left"))
    ]


def test_the_encoders_of_the_flag_are_those_of_the_library():
    assert (*tasks.flags.ENCODERS, *map(features_name, tasks.flags.LAYER_POOLINGS)) == ENCODERS


@pytest.mark.slow
@pytest.mark.parametrize("encoder", TRIED)
def test_a_bidirectional_checkpoint(toy_glue, toy_checkpoint, tmp_path, encoder):
    folder = tmp_path / "run"
    epochs = 2 if encoder == FEATURES else EPOCHS
    results = run("sst2", ("train", "eval"), toy_glue, folder, toy_checkpoint, epochs=epochs, encoder=encoder)
    if encoder == FEATURES:
        before, after = (read_checkpoint(path).arrays for path in (toy_checkpoint, folder / "model"))
        for path in before.keys() & after.keys():
            np.testing.assert_array_equal(after[path], before[path], err_msg=path)
        assert "encoder/layer_pooling/scale" in after and after["encoder/layer_pooling/scale"] != 1.0
    else:
        assert results["evaluation"]["dev/accuracy"] > 0.75
    assert json.loads((folder / "run.json").read_text())["encoder"] == encoder

    # Later, with nothing but the folder.
    assert run("sst2", ("eval",), toy_glue, folder)["evaluation"] == results["evaluation"]
    if encoder not in SERVED:
        return
    run("sst2", ("predict", "export"), toy_glue, folder)
    classifier = BertClassifier.from_checkpoint(folder / "model", sequence_length=16)
    served = tf.saved_model.load(folder / "saved_model" / "1").signatures["serving_default"]
    expected = classifier.predict_probabilities(TEXTS)
    np.testing.assert_allclose(served(text=tf.constant(TEXTS))["probabilities"], expected, atol=1e-5)


@pytest.mark.slow
def test_a_run_is_of_one_encoder(toy_glue, toy_checkpoint, tmp_path):
    folder, encoder, other = tmp_path / "run", "two_directions", "left_to_right"
    results = run("sst2", ("train", "eval"), toy_glue, folder, toy_checkpoint, encoder=encoder)
    # With the flag once more; and the finished training is not made again.
    assert run("sst2", ("eval",), toy_glue, folder, encoder=encoder)["evaluation"] == results["evaluation"]
    again = run("sst2", ("train",), toy_glue, folder, toy_checkpoint, encoder=encoder)
    assert again["best"] == results["best"]
    # Never as another one.
    with pytest.raises(ValueError, match=f"has the encoder '{encoder}', and '{other}' is another"):
        run("sst2", ("eval",), toy_glue, folder, encoder=other)
    with pytest.raises(FileExistsError, match=f"encoder is '{other}', there it was '{encoder}'"):
        run("sst2", ("train",), toy_glue, folder, toy_checkpoint, encoder=other)
    with pytest.raises(FileExistsError, match=f"encoder is None, there it was '{encoder}'"):
        run("sst2", ("train",), toy_glue, folder, toy_checkpoint)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights(toy_glue, toy_checkpoint, tmp_path, monkeypatch):
    settings = {"epochs": 2, "encoder": "left_to_right_bilstm", "checkpoint_every": 4}
    run("sst2", ("train",), toy_glue, tmp_path / "whole", toy_checkpoint, **settings)
    with monkeypatch.context() as patch:
        patch.setattr("keras_bert.finetuning.classification_task.Classification.split_metrics", stop)
        with pytest.raises(KeyboardInterrupt):
            run("sst2", ("train",), toy_glue, tmp_path / "parts", toy_checkpoint, **settings)
    assert list((tmp_path / "parts").glob("checkpoints/step_*"))
    run("sst2", ("train",), toy_glue, tmp_path / "parts", toy_checkpoint, **settings)
    whole, parts = (read_checkpoint(tmp_path / name / "model").arrays for name in ("whole", "parts"))
    for path, array in whole.items():
        np.testing.assert_allclose(parts[path], array, atol=1e-6, err_msg=path)


def stop(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_two_checkpoints_of_one_direction_each(toy_glue, directions, tmp_path):
    left, right = directions
    arguments = {"encoder": "two_directions", "init_checkpoint_right_to_left": right}
    results = run("sst2", ("train", "eval"), toy_glue, tmp_path / "run", left, epochs=EPOCHS, **arguments)
    assert results["evaluation"]["dev/accuracy"] > 0.75
    configuration = json.loads((tmp_path / "run" / "run.json").read_text())
    assert configuration["init_checkpoint"] == str(left)
    assert configuration["init_checkpoint_right_to_left"] == str(right)
    assert run("sst2", ("eval",), toy_glue, tmp_path / "run")["evaluation"] == results["evaluation"]
    # Of one direction without a flag: a model from left to right is fine-tuned as what it is.
    one = run("sst2", ("train", "eval"), toy_glue, tmp_path / "one", left, epochs=EPOCHS)
    assert one["evaluation"]["dev/accuracy"] > 0.75
    classifier = BertClassifier.from_checkpoint(tmp_path / "one" / "model", sequence_length=16)
    assert classifier.encoder.attention_direction == "left_to_right"


def test_what_does_not_go_together_is_said_before_anything_is_written(toy_glue, directions, toy_checkpoint, tmp_path):
    left, right = directions
    for start, arguments, error, message in (
        (left, {"encoder": "two_directions"}, ValueError, "need a second checkpoint, from right to left"),
        (right, {"encoder": "left_to_right_bilstm"}, ValueError, "has the encoder 'right_to_left'"),
        (left, {"init_checkpoint_right_to_left": right}, ValueError, 'second checkpoint for encoder="two_directions"'),
        (
            left,
            {"encoder": "two_directions", "init_checkpoint_right_to_left": tmp_path / "absent"},
            FileNotFoundError,
            "--init_checkpoint_right_to_left: there is no",
        ),
        (toy_checkpoint, {"encoder": "right_to_left"}, ValueError, "encoder must be one of"),
    ):
        with pytest.raises(error, match=message):
            run("sst2", ("train",), toy_glue, tmp_path / "run", start, **arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_questions_are_answered(toy_checkpoint, tmp_path):
    files = {
        name: test_squad.make_file(tmp_path / f"{name}.json", number, "1.1", seed)
        for seed, (name, number) in enumerate({"train": 200, "eval": 40}.items())
    }
    modes = ["train", "eval", "export"]
    found = test_squad.run("1.1", modes, files, tmp_path / "run", toy_checkpoint, encoder="left_to_right")["evaluation"]
    assert found["eval/f1"] > 0.8
    assert test_squad.run("1.1", ["eval"], files, tmp_path / "run")["evaluation"] == found


@pytest.mark.slow
def test_continuations_are_chosen(toy_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(test_swag, "ARGUMENTS", {**test_glue.ARGUMENTS, "encoder": "two_directions"})
    files = {
        "train_file": test_swag.make_swag(tmp_path / "train.csv", 150, 0),
        "eval_file": test_swag.make_swag(tmp_path / "val.csv", 30, 1),
    }
    found = test_swag.run(["train", "eval", "export"], tmp_path / "run", toy_checkpoint, **files)["evaluation"]
    assert found["eval/accuracy"] > 0.8
    assert test_swag.run(["eval"], tmp_path / "run", eval_file=files["eval_file"])["evaluation"] == found


def test_the_second_checkpoint_needs_two_directions():
    answer = program("--task=sst2", "--run_dir=run", "--init_checkpoint_right_to_left=x", "--encoder=left_to_right")
    assert answer.returncode == 1
    assert "--init_checkpoint_right_to_left is for --encoder=two_directions" in answer.stderr


def test_an_encoder_or_features():
    answer = program("--task=sst2", "--run_dir=run", "--features=last", "--encoder=left_to_right")
    assert answer.returncode == 1
    assert "give --encoder or --features, not both" in answer.stderr


def test_features_that_the_checkpoint_is_too_small_for(toy_glue, toy_checkpoint, tmp_path):
    arguments = {"data_dir": toy_glue, "run_dir": tmp_path / "run", "init_checkpoint": toy_checkpoint}
    flags = [
        f"--{name}={value}" for name, value in {"task": "sst2", "features": "concat_last_four", **arguments}.items()
    ]
    answer = run_forked([sys.executable, "-m", "tasks.glue", *flags])
    assert answer.returncode == 1
    assert "the layer pooling 'concat_last_four' needs an encoder of at least 4 blocks" in answer.stderr
    assert not (tmp_path / "run").exists()
