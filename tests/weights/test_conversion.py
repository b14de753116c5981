import json

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import ENCODERS, convert_encoder, encoder_name
from tests.models.composed import make_encoder
from tests.toys import VOCABULARY, toy_classifier, toy_encoder


@pytest.fixture
def read(tmp_path):
    """Saves a model and reads its checkpoint."""

    def read(model):
        return read_checkpoint(model.save_checkpoint(tmp_path / f"{len(list(tmp_path.iterdir()))}"))

    return read


@pytest.mark.parametrize("encoder", ENCODERS)
def test_bidirectional_checkpoint_converts_to_every_encoder(read, encoder, caplog):
    checkpoint = read(toy_classifier())
    converted = convert_encoder(checkpoint, encoder)
    assert encoder_name(checkpoint) == "bidirectional" and encoder_name(converted) == encoder
    assert ("was trained bidirectionally" in caplog.text) == (not encoder.startswith("features_"))
    assert converted.tensor_names.keys() >= converted.arrays.keys()
    is_one = encoder == "left_to_right"
    assert ("logits/kernel" in converted.arrays) == is_one
    assert (set(converted.unused) == set()) == is_one
    assert is_one or {"classifier.weight", "classifier.bias"} <= set(converted.unused)
    assert convert_encoder(converted, encoder) is converted


def test_joins_checkpoints_of_two_directions(read, caplog):
    left, right = (
        read(toy_encoder(attention_direction=name, seed=seed))
        for seed, name in enumerate(("left_to_right", "right_to_left"))
    )
    joined = convert_encoder(left, "two_directions", right)
    assert not caplog.text
    for direction, part in (("left_to_right", left), ("right_to_left", right)):
        for path, array in part.arrays.items():
            moved = path.replace("encoder/", f"encoder/{direction}/")
            np.testing.assert_array_equal(joined.arrays[moved], array)
            assert joined.tensor_names[moved] == tuple(f"{direction}: {name}" for name in part.tensor_names[path])
    assert len(joined.arrays) == 2 * len(left.arrays)
    assert "attention_direction" not in joined.encoder_arguments
    with pytest.raises(ValueError, match="two directions need a second checkpoint"):
        convert_encoder(left, "two_directions")
    with pytest.raises(ValueError, match=r"the encoder 'left_to_right', whose weights do not fit a right_to_left"):
        convert_encoder(left, "two_directions", left)
    with pytest.raises(ValueError, match=r"the encoder 'right_to_left', whose weights do not fit a left_to_right"):
        convert_encoder(right, "left_to_right")


def test_rejects_directions_that_differ(read, tmp_path):
    left = read(toy_encoder())
    for arguments in ({"num_hidden_layers": 1}, {"hidden_dropout_prob": 0.3}):
        with pytest.raises(ValueError, match=f"differ in ..{next(iter(arguments))}"):
            convert_encoder(left, "two_directions", read(toy_encoder(**arguments)))
    folders = [
        toy_encoder().save_checkpoint(tmp_path / f"words_{number}", BertTokenizer(words, lower_case=True))
        for number, words in enumerate((VOCABULARY, [*VOCABULARY[:-1], "##other"]))
    ]
    for differing in (r"\['vocabulary'\]", r"\['lower_case', 'vocabulary'\]"):
        left, right = map(read_checkpoint, folders)
        with pytest.raises(ValueError, match=f"differ in {differing}"):
            convert_encoder(left, "two_directions", right)
        (folders[0] / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
        (folders[0] / "tokenizer.json").unlink(missing_ok=True)


def test_rejects_impossible_conversions(read):
    checkpoint = read(toy_encoder())
    with pytest.raises(ValueError, match=r"encoder must be one of .* got 'right_to_left'"):
        convert_encoder(checkpoint, "right_to_left")
    with pytest.raises(ValueError, match="a second checkpoint, from right to left, is for"):
        convert_encoder(checkpoint, "left_to_right", checkpoint)
    two = convert_encoder(checkpoint, "two_directions")
    with pytest.raises(ValueError, match="has both directions already"):
        convert_encoder(two, "two_directions", checkpoint)
    with pytest.raises(ValueError, match="has the encoder 'two_directions'"):
        convert_encoder(two, "left_to_right_bilstm")
    with pytest.raises(ValueError, match="has the encoder 'left_to_right_bilstm'"):
        convert_encoder(convert_encoder(checkpoint, "left_to_right_bilstm"), "left_to_right")


def test_keeps_bilstm_weights(read):
    checkpoint = read(BertClassifier(make_encoder("left_to_right_bilstm"), 2))
    assert convert_encoder(checkpoint, "left_to_right_bilstm") is checkpoint
