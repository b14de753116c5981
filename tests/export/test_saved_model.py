import os

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.export.saved_model import check_export_path, write_saved_model

NUMBERS = {"x": tf.TensorSpec([None], tf.float32)}


def written(path, function=None, **arguments):
    """A SavedModel with the variables 1.0, ..., 1000.0 and a signature that adds their sum."""
    weight = tf.Variable(tf.range(1.0, 1001.0), name="weight")
    function = function or (lambda inputs: {"y": inputs["x"] + tf.reduce_sum(weight)})
    return write_saved_model(path, {"serving_default": (function, NUMBERS)}, [weight], **arguments)


def fails(inputs):
    raise RuntimeError("this function cannot be traced")


def calls_python(inputs):
    return {"y": tf.py_function(lambda x: x, [inputs["x"]], tf.float32)}


def is_interrupted(inputs):
    raise KeyboardInterrupt


def test_the_folder_is_returned_and_the_signature_has_the_given_names(tmp_path):
    path = written(str(tmp_path / "1"))
    assert path == tmp_path / "1"
    signature = tf.saved_model.load(path).signatures["serving_default"]
    assert signature.structured_input_signature[1] == {"x": tf.TensorSpec([None], tf.float32, name="x")}
    assert signature(x=tf.constant([0.5]))["y"].numpy().tolist() == [500500.5]


def test_every_variable_is_stored_once(tmp_path):
    variables = written(tmp_path / "1") / "variables"
    tensors = [shape for name, shape in tf.train.list_variables(str(variables / "variables")) if "OBJECT" not in name]
    assert tensors == [[1000]]
    assert 4000 <= (variables / "variables.data-00000-of-00001").stat().st_size < 5000


def test_assets_are_stored_byte_by_byte(tmp_path):
    text = "a\r\n\u2028b\u0085\x0bc\n\x00中\n"
    path = written(tmp_path / "1", assets={"words.txt": text, "empty.txt": ""})
    assert (path / "assets" / "words.txt").read_bytes() == text.encode()
    assert (path / "assets" / "empty.txt").read_bytes() == b""


def test_missing_parents_are_made(tmp_path):
    written(tmp_path / "models" / "intents" / "1")
    assert sorted(os.listdir(tmp_path / "models" / "intents")) == ["1"]


def test_nothing_but_a_hidden_name_is_seen_until_the_model_is_complete(tmp_path):
    seen = []

    def looks_around(inputs):
        seen.extend(os.listdir(tmp_path))
        return {"y": inputs["x"]}

    written(tmp_path / "1", looks_around)
    assert len(seen) == 1
    assert seen[0].startswith(".1.unfinished-")  # no number, so TensorFlow Serving takes it for no version
    assert os.listdir(tmp_path) == ["1"]


def test_another_user_can_read_the_folder_if_he_can_read_other_new_folders(tmp_path):
    (tmp_path / "plain").mkdir()
    assert written(tmp_path / "1").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (fails, RuntimeError, "cannot be traced"),
        (calls_python, ValueError, r"does not have: \['EagerPyFunc'\]"),
        (is_interrupted, KeyboardInterrupt, None),
    ],
)
def test_a_failed_export_leaves_nothing_behind(tmp_path, function, error, message):
    with pytest.raises(error, match=message):
        written(tmp_path / "1", function)
    assert os.listdir(tmp_path) == []
    written(tmp_path / "1")  # and does not stand in the way of the next


def test_an_export_that_fails_at_its_last_file_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="warm-up requests"):
        written(tmp_path / "1", warmup_requests=[("serving_default", {"x": [1.0]})] * 1001)
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").write_text("mine")
    (tmp_path / "2").write_text("also mine")
    (tmp_path / "3").mkdir()
    for name in ("1", "2", "3"):
        with pytest.raises(FileExistsError, match=f"{name} exists and is not overwritten; export to another version"):
            written(tmp_path / name)
    assert (tmp_path / "1" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "2").read_text() == "also mine"
    assert sorted(os.listdir(tmp_path)) == ["1", "2", "3"]


def test_a_version_that_appears_meanwhile_is_not_overwritten(tmp_path):
    def is_overtaken(inputs):
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "saved_model.pb").write_text("theirs")
        return {"y": inputs["x"]}

    with pytest.raises(FileExistsError, match="is not overwritten"):
        written(tmp_path / "1", is_overtaken)
    assert os.listdir(tmp_path) == ["1"]
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "theirs"


def test_a_parent_that_is_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(FileExistsError, match="models"):
        written(tmp_path / "models" / "1")
    with pytest.raises(NotADirectoryError, match="models"):
        written(tmp_path / "models" / "intents" / "1")
    assert (tmp_path / "models").read_text() == "a file"


def test_a_name_that_is_no_version_gives_a_warning(tmp_path, caplog):
    check_export_path(tmp_path / "1")
    assert caplog.text == ""
    check_export_path(tmp_path / "intents")
    assert "named by a version number, such as" in caplog.text


def test_the_reloaded_model_can_be_saved_again(tmp_path):
    model = tf.saved_model.load(written(tmp_path / "1", assets={"words.txt": "a\n"}))
    tf.saved_model.save(model, str(tmp_path / "2"), signatures=model.signatures)
    again = tf.saved_model.load(str(tmp_path / "2"))
    np.testing.assert_array_equal(again.signatures["serving_default"](x=tf.constant([1.0]))["y"], [500501.0])
    assert (tmp_path / "2" / "assets" / "words.txt").read_text() == "a\n"
