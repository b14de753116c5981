import os

import pytest
import tensorflow as tf

from keras_bert.export.saved_model import check_export_path, write_saved_model

NUMBERS = {"x": tf.TensorSpec([None], tf.float32)}


def written(path, function=None, **arguments):
    """Writes a SavedModel with one variable, 1.0 to 1000.0, and a signature that adds its sum."""
    weight = tf.Variable(tf.range(1.0, 1001.0), name="weight")
    function = function or (lambda inputs: {"y": inputs["x"] + tf.reduce_sum(weight)})
    return write_saved_model(path, {"serving_default": (function, NUMBERS)}, [weight], **arguments)


def calls_python(inputs):
    return {"y": tf.py_function(lambda x: x, [inputs["x"]], tf.float32)}


def is_interrupted(inputs):
    raise KeyboardInterrupt


def test_signature_has_the_given_names(tmp_path):
    path = written(str(tmp_path / "1"))
    assert path == tmp_path / "1"
    signature = tf.saved_model.load(path).signatures["serving_default"]
    assert signature.structured_input_signature[1] == {"x": tf.TensorSpec([None], tf.float32, name="x")}
    assert signature(x=tf.constant([0.5]))["y"].numpy().tolist() == [500500.5]


def test_stores_assets_byte_for_byte(tmp_path):
    text = "a\r\n\u2028b\u0085\x0bc\n\x00中\n"
    path = written(tmp_path / "1", assets={"words.txt": text, "empty.txt": ""})
    assert (path / "assets" / "words.txt").read_bytes() == text.encode()
    assert (path / "assets" / "empty.txt").read_bytes() == b""


def test_unfinished_export_has_a_hidden_name(tmp_path):
    seen = []

    def looks_around(inputs):
        seen.extend(os.listdir(tmp_path))
        return {"y": inputs["x"]}

    written(tmp_path / "1", looks_around)
    assert len(seen) == 1
    assert seen[0].startswith(".1.unfinished-")  # no number, so TensorFlow Serving takes it for no version
    assert os.listdir(tmp_path) == ["1"]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [(calls_python, ValueError, r"does not have: \['EagerPyFunc'\]"), (is_interrupted, KeyboardInterrupt, None)],
)
def test_failed_export_leaves_nothing_behind(tmp_path, function, error, message):
    with pytest.raises(error, match=message):
        written(tmp_path / "1", function)
    assert os.listdir(tmp_path) == []
    written(tmp_path / "1")  # a second attempt succeeds


def test_does_not_overwrite(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").write_text("mine")
    (tmp_path / "2").write_text("also mine")
    for name in ("1", "2"):
        with pytest.raises(FileExistsError, match=f"{name} exists and is not overwritten; export to another version"):
            written(tmp_path / name)
    assert (tmp_path / "1" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "2").read_text() == "also mine"


def test_warns_if_the_name_is_not_a_version(tmp_path, caplog):
    check_export_path(tmp_path / "1")
    assert caplog.text == ""
    check_export_path(tmp_path / "intents")
    assert "named by a version number, such as" in caplog.text
