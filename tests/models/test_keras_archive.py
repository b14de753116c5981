import json
import time
import zipfile

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.models.keras_archive import load_model
from tests.models.composed import FEATURES, make_encoder
from tests.toys import toy_classifier


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "classifier.keras"
    toy_classifier().save(path)
    return path


def changed(archive, folder, change=None, members=None):
    """A copy of an archive with another configuration, or with other members."""
    path = folder / "changed.keras"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        contents = {name: old.read(name) for name in old.namelist()}
        if change is not None:
            config = json.loads(contents["config.json"])
            change(config["config"])
            contents["config.json"] = json.dumps(config).encode()
        for name, content in {**contents, **(members or {})}.items():
            new.writestr(name, content)
    return path


def set_in(*names, value):
    """Returns a function that sets a value within a configuration."""

    def change(config):
        for name in names[:-1]:
            config = config[name]
        config[names[-1]] = value

    return change


def test_loads_what_keras_loads(archive, tmp_path):
    texts = ["a good film", "dull"]
    expected = keras.saving.load_model(archive).predict(texts, verbose=0)
    np.testing.assert_array_equal(load_model(archive).predict(texts, verbose=0), expected)
    make_encoder(FEATURES).save(tmp_path / "composed.keras")
    assert isinstance(load_model(tmp_path / "composed.keras"), keras_bert.BiLstmEncoder)
    half = keras_bert.BertEncoder(19, 16, 1, 2, dtype="bfloat16")
    half.save(tmp_path / "half.keras")
    assert load_model(tmp_path / "half.keras").dtype_policy.name == "bfloat16"


TOKENIZER = ("preprocessor", "tokenizer")
ENCODER = ("encoder", "config")


@pytest.mark.parametrize("load", [load_model, keras.saving.load_model])
@pytest.mark.parametrize(
    ("names", "value", "message"),
    [
        ((*TOKENIZER, "vocabulary"), "/etc/passwd", r"must hold its vocabulary as a list. Received: '/etc/passwd'"),
        (("labels",), 2_000_000_000, "labels in a saved model are a list of names; found 2000000000"),
        ((*ENCODER, "hidden_size"), 1 << 40, "an encoder with [0-9]+ parameters, and there can be [0-9]+ at most"),
        ((*ENCODER, "num_hidden_layers"), 100_000_000, "100000000 layers, and there can be 1000 at most"),
        ((*ENCODER, "vocab_size"), "many", "vocab_size must be a positive integer, got 'many'"),
        ((*ENCODER, "hidden_dropout_prob"), {"a": []}, "configuration of a BertEncoder cannot be used"),
        (
            ("encoder", "registered_name"),
            "Dense",
            r"the part 'Dense', and this part must be one of \['BertEncoder'",
        ),
        (("encoder",), 5, "has the part None"),
        (("preprocessor", "sequence_length"), "16", "sequence_length must be an int"),
        (("preprocessor", "sequence_length"), 1 << 60, "beyond the encoder's 32 positions"),
        (("preprocessor",), [], "configuration of a BertClassifier cannot be used"),
        ((*TOKENIZER, "lower_case"), "yes", "lower_case must be True or False"),
        (("dropout",), "x", "configuration of a BertClassifier cannot be used"),
        (("surprise",), 1, "surprise"),
    ],
)
def test_refuses_configurations_that_no_model_wrote(archive, tmp_path, load, names, value, message):
    path = changed(archive, tmp_path, set_in(*names, value=value))
    started = time.monotonic()
    with pytest.raises(ValueError, match=message) as error:
        load(path)
    assert time.monotonic() - started < 5
    if load is load_model:
        assert str(error.value).startswith(f"{path} cannot be loaded (")


def test_compares_the_sizes_with_the_weights(archive, tmp_path):
    path = changed(archive, tmp_path, set_in("encoder", "config", "intermediate_size", value=1 << 16))
    with pytest.raises(ValueError, match=r"an encoder with 2[0-9]{6} parameters, and there can be [0-9]{4,5} at most"):
        load_model(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"assets/vocab.txt": b""}, "must hold"),
        ({"../outside": b""}, "must hold"),
        ({"config.json": b"[" * 10_000}, "nested more than 100 deep"),
        ({"config.json": b"[]"}, "config.json must hold a JSON object"),
        ({"config.json": b'{"a": ' + b"9" * 400 + b"}"}, "more than 64 bits"),
        ({"model.weights.h5": b"not HDF5"}, "cannot be loaded"),
    ],
)
def test_refuses_other_members(archive, tmp_path, members, message):
    path = changed(archive, tmp_path, members=members)
    with pytest.raises(ValueError, match=message):
        load_model(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["changed.keras"]


def test_refuses_an_archive_that_expands(archive, tmp_path):
    path = tmp_path / "bomb.keras"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b" " * 50_000_000 if name == "config.json" else b""))
    with pytest.raises(ValueError, match=r"its [0-9]+ bytes claim to hold [0-9]{8} bytes"):
        load_model(path)


def test_refuses_what_is_not_an_archive(tmp_path):
    (tmp_path / "a.keras").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"a.keras cannot be loaded"):
        load_model(tmp_path / "a.keras")
    for path in (tmp_path, tmp_path / "none.keras"):
        with pytest.raises(FileNotFoundError, match=r"is a folder|does not exist"):
            load_model(path)


def test_refuses_weights_that_are_not_finite(tmp_path):
    classifier = toy_classifier()
    classifier.logits.bias.assign([np.nan, 0.0])
    classifier.save(tmp_path / "a.keras")
    with pytest.raises(ValueError, match=r"logits/bias' is NaN or infinite.*allow_nonfinite=True"):
        load_model(tmp_path / "a.keras")
    assert np.isnan(load_model(tmp_path / "a.keras", allow_nonfinite=True).logits.bias.numpy()[0])
