import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

import keras_bert
from keras_bert.layers.tensorflow.custom_gradients import (
    custom_gradient,
    first_order_only,
    stop_recording,
    sum_over_rows,
)


@custom_gradient
def square(x):
    """Has three times its real gradient, to be recognized."""
    return x * x, lambda upstream: 6.0 * x * upstream


def test_tensorflow_has_the_private_names():
    with tf.Graph().as_default():
        output = tf.custom_gradient(lambda x: (x * x, lambda upstream: upstream))(tf.constant(1.0))
        name = output.op.get_attr("_gradient_op_type").decode()
    registry = getattr(gradient_registry, "_registry", None)
    assert isinstance(registry, dict) and callable(registry.get(name, {}).get("type")), (
        "TensorFlow changed its registry of gradients: adapt keras_bert/layers/tensorflow/custom_gradients.py"
    )
    with tf.GradientTape() as tape, stop_recording():
        x = tf.Variable(1.0)
        y = 2.0 * x
    assert tape.gradient(y, x) is None, "TensorFlow's stop_recording records: see custom_gradients.py"


def test_tensorflow_has_the_private_names_that_workers_use():
    tf.constant(0)
    changed = "TensorFlow changed its eager context: adapt keras_bert/training/strategy.py and lost_workers.py"
    started = [getattr(each, "_initialized", None) for each in (context.context(), context.Context())]
    assert started == [True, False], changed
    for name in ("configure_coordination_service", "report_error_to_cluster"):
        assert callable(getattr(context.context(), name, None)), changed
    assert kernels.get_registered_kernels_for_op("AddV2").kernel
    assert GraphOrParentsInXlaContext(tf.Graph()) is False


def test_no_other_module_uses_private_names_of_tensorflow():
    library = Path(keras_bert.__file__).parent
    users = {path.name for path in library.rglob("*.py") if "from tensorflow.python" in path.read_text("utf-8")}
    assert users == {"custom_gradients.py", "keras_metrics.py", "lost_workers.py", "strategy.py"}


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_do_not_outlive_their_functions(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = square(x)
        return tape.gradient(y, x)

    known = set(gradient_registry.list())
    assert float(gradient(tf.constant(3.0))) == 18.0
    graph = weakref.ref(gradient.get_concrete_function(tf.constant(3.0)).graph)
    own = set(gradient_registry.list()) - known
    assert graph() is not None and own
    del gradient
    gc.collect()
    assert graph() is None
    assert not own & set(gradient_registry.list())


def test_gradients_are_built_at_once_or_on_demand():
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = square(x)
    assert float(tape.gradient(y, x)) == 18.0
    # A function that was traced without a tape builds its gradient later.
    function = tf.function(lambda x: square(x) + 1.0)
    assert float(function(tf.constant(2.0))) == 5.0
    gc.collect()
    with tf.GradientTape() as tape:
        y = function(x) + function(tf.constant(2.0))
    assert float(tape.gradient(y, x)) == 18.0


@pytest.mark.parametrize("wrap", [lambda function: function, tf.function])
def test_first_order_gradients_are_unchanged_and_not_differentiable(wrap):
    one, two = first_order_only(tf.constant([1.0, 2.0]), tf.constant(3.0))
    np.testing.assert_array_equal(one, [1.0, 2.0])
    assert float(two) == 3.0
    assert float(first_order_only(tf.constant(4.0))) == 4.0

    @wrap
    def derivative(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = first_order_only(x * x)
        return tape.gradient(y, x)

    with pytest.raises(Exception, match="only first derivatives"):
        derivative(tf.constant(3.0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_sum_over_rows_accumulates_in_float32(dtype):
    # Added one by one in bfloat16 the second column would stay at 256.
    matrix = tf.cast(np.stack([np.arange(2048) % 2, np.ones(2048)], axis=1), dtype)
    np.testing.assert_array_equal(tf.cast(sum_over_rows(matrix), tf.float32), [1024.0, 2048.0])
    np.testing.assert_array_equal(sum_over_rows(tf.ones([0, 3])), [0.0, 0.0, 0.0])
