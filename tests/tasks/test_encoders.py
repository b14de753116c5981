"""The paper's other encoders in the training programs; see also test_swag.py."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.classifier import BertClassifier
from keras_bert.weights.checkpoint_reader import read_checkpoint
from tests.tasks.programs import read_json
from tests.tasks.test_glue import run
from tests.tolerances import assert_close
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

EPOCHS = 10
FEATURES = "features_weighted_sum_all"
TEXTS, _ = toy_reviews(20, seed=5)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directions(tmp_path_factory):
    """A checkpoint of each direction, without a pooler, as pre-training writes them."""
    folder, paths = tmp_path_factory.mktemp("directions"), []
    for seed, direction in enumerate(("left_to_right", "right_to_left")):
        encoder = toy_encoder(attention_direction=direction, num_hidden_layers=1, with_pooler=False, seed=seed)
        paths.append(encoder.save_checkpoint(folder / direction, toy_preprocessor().tokenizer))
    return paths


@pytest.mark.parametrize("encoder", ["left_to_right_bilstm", FEATURES])
def test_other_encoders_start_from_a_bidirectional_checkpoint(toy_glue, toy_checkpoint, tmp_path, encoder):
    folder = tmp_path / "run"
    epochs = 2 if encoder == FEATURES else EPOCHS
    results = run("sst2", "train,eval", toy_glue, folder, toy_checkpoint, epochs=epochs, encoder=encoder)
    if encoder == FEATURES:
        before, after = (read_checkpoint(path).arrays for path in (toy_checkpoint, folder / "model"))
        for path in before.keys() & after.keys():
            np.testing.assert_array_equal(after[path], before[path], err_msg=path)
        (scale,) = (array for path, array in after.items() if path.endswith("/scale"))
        assert scale != 1.0
    else:
        assert results["evaluation"]["dev/accuracy"] > 0.75
    assert read_json(folder / "configuration.json")["encoder"] == encoder

    # Later, with nothing but the folder.
    assert run("sst2", "eval,export", toy_glue, folder)["evaluation"] == results["evaluation"]
    classifier = BertClassifier.from_checkpoint(folder / "model", sequence_length=16)
    served = tf.saved_model.load(folder / "saved_model" / "1").signatures["serving_default"]
    expected = classifier.predict_probabilities(TEXTS)
    assert_close(served(text=tf.constant(TEXTS))["probabilities"], expected, num_terms=64)


def test_run_keeps_its_encoder(toy_glue, toy_checkpoint, tmp_path):
    folder, encoder, other = tmp_path / "run", "two_directions", "left_to_right"
    results = run("sst2", "train,eval", toy_glue, folder, toy_checkpoint, encoder=encoder)
    # The flag may be repeated, and a finished training is not repeated.
    assert run("sst2", "eval", toy_glue, folder, encoder=encoder)["evaluation"] == results["evaluation"]
    again = run("sst2", "train", toy_glue, folder, toy_checkpoint, encoder=encoder)
    assert again["best"] == results["best"]
    with pytest.raises(SystemExit, match=f"has the encoder '{encoder}', and encoder='{other}' is another"):
        run("sst2", "eval", toy_glue, folder, encoder=other)
    with pytest.raises(SystemExit, match=f"encoder is '{other}', but '{encoder}' in that run"):
        run("sst2", "train", toy_glue, folder, toy_checkpoint, encoder=other)


def test_two_directions_start_from_two_checkpoints(toy_glue, directions, tmp_path):
    left, right = directions
    options = {"encoder": "two_directions", "init_checkpoint_right_to_left": right}
    results = run("sst2", "train,eval", toy_glue, tmp_path / "run", left, epochs=EPOCHS, **options)
    assert results["evaluation"]["dev/accuracy"] > 0.75
    configuration = read_json(tmp_path / "run" / "configuration.json")
    assert configuration["init_checkpoint"] == str(left)
    assert configuration["init_checkpoint_right_to_left"] == str(right)
    assert run("sst2", "eval", toy_glue, tmp_path / "run")["evaluation"] == results["evaluation"]
    # Without the flag a left-to-right model stays one.
    run("sst2", "train", toy_glue, tmp_path / "one", left, epochs=0.1)
    classifier = BertClassifier.from_checkpoint(tmp_path / "one" / "model", sequence_length=16)
    assert classifier.encoder.attention_direction == "left_to_right"


def test_rejects_checkpoints_that_do_not_fit_the_encoder(toy_glue, directions, toy_checkpoint, tmp_path):
    left, right = directions
    both = "two_directions"
    for start, options, message in (
        (left, {"encoder": both}, "need a second checkpoint, from right to left"),
        (right, {"encoder": "left_to_right_bilstm"}, "has the encoder 'right_to_left'"),
        (left, {"encoder": both, "init_checkpoint_right_to_left": "x"}, "init_checkpoint_right_to_left: there is no x"),
        (toy_checkpoint, {"encoder": "features_concat_last_four"}, "'concat_last_four' needs an encoder of at least 4"),
    ):
        with pytest.raises(SystemExit, match=message):
            run("sst2", "train", toy_glue, tmp_path / "run", start, **options)
    assert not (tmp_path / "run").exists()
