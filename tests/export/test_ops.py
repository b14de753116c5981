import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.python.framework import op_def_registry

from keras_bert.export.ops import SERVED_TEXT_OPS, find_unserved_operations, list_operations

STRINGS = tf.TensorSpec([None], tf.string)


def saved(tmp_path, function):
    """Saves a function as the only signature of a SavedModel."""
    module = tf.Module()
    module.function = tf.function(lambda x: {"y": function(x)}, input_signature=[STRINGS])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.function)
    return tmp_path / "1"


def test_lists_operations_inside_functions(tmp_path):
    folder = saved(tmp_path, lambda x: tf.map_fn(lambda row: tf.strings.upper(row), x))
    operations = list_operations(folder)
    assert "StringUpper" in operations
    assert not [name for name in operations if name.startswith("__inference")]
    assert find_unserved_operations(folder) == []


def test_every_allowed_operation_is_one_of_tensorflow_text():
    assert {name for name in SERVED_TEXT_OPS if op_def_registry.get(name) is None} == set()
    assert {name for name in SERVED_TEXT_OPS if hasattr(tf.raw_ops, name)} == set()


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (lambda x: tf.py_function(lambda texts: texts, [x], tf.string), "EagerPyFunc"),
        (lambda x: tf.numpy_function(np.char.upper, [x], tf.string), "PyFunc"),
        (lambda x: tf.numpy_function(np.char.upper, [x], tf.string, stateful=False), "PyFuncStateless"),
        # Of TensorFlow 2.21, but not of the newest server.
        (
            lambda x: tf.map_fn(lambda row: tf.raw_ops.DecodeJxl(contents=row), x, fn_output_signature=tf.uint8),
            "DecodeJxl",
        ),
        # Of a loaded library, but not on the list.
        (lambda x: tensorflow_text.metrics.rouge_l(tf.strings.split(x), tf.strings.split(x)).f_measure, "RougeL"),
    ],
)
def test_python_and_other_custom_operations_are_not_served(tmp_path, function, operation):
    assert find_unserved_operations(saved(tmp_path, function)) == [operation]
