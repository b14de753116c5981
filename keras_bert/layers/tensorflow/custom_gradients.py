"""Tools for handwritten gradients, which use private names of TensorFlow.

- `gradient_registry._registry`: `tf.custom_gradient` registers each gradient for the life of the process, and the
  gradient refers to its graph. No public function removes an entry.
- The attribute `_gradient_op_type` of an operation, the name of its entry.
- `stop_recording`: suspends all gradient tapes, including those outside the function; `tf.GradientTape.stop_recording`
  suspends only one. `tf.recompute_grad` is built on it.

The library's other private names of TensorFlow have no public equivalent either:

- `context()._initialized`, `configure_coordination_service` and `report_error_to_cluster` of the eager context, and
  `get_registered_kernels_for_op`: for workers and TPUs, in `keras_bert/training`.
- `GraphOrParentsInXlaContext`, in `keras_bert/metrics/keras_metrics.py`.

tests/layers/tensorflow/test_custom_gradients.py fails if TensorFlow changes one of them, or if another module imports
private names.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.record import stop_recording
from tensorflow.python.framework.ops import gradient_registry

__all__ = ["custom_gradient", "first_order_only", "stop_recording", "sum_over_rows"]


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient` that does not keep the graphs in which the function is traced alive.

    With TensorFlow's own, the graph of every model that was ever trained would stay in memory, with all variables and
    optimizer slots. Here the graph itself owns the gradient, and the registry's entry is removed with it.

    >>> square = custom_gradient(lambda x: (x * x, lambda upstream: 2.0 * x * upstream))
    >>> float(square(tf.constant(3.0)))
    9.0
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        outputs = decorated(*arguments)
        if not tf.executing_eagerly():
            _tie_gradient_to_graph(tf.nest.flatten(outputs)[0])
        return outputs

    return call


def _tie_gradient_to_graph(output: tf.Tensor) -> None:
    name = output.op.get_attr("_gradient_op_type").decode()
    entry = gradient_registry._registry[name]
    gradient = entry["type"]
    output.graph.keras_bert_gradients = [*getattr(output.graph, "keras_bert_gradients", ()), gradient]
    entry["type"] = functools.partial(_call_if_alive, weakref.ref(gradient))
    weakref.finalize(gradient, gradient_registry._registry.pop, name, None)


def _call_if_alive(reference: weakref.ref[Callable[..., Any]], operation: tf.Operation, *upstream: tf.Tensor) -> Any:
    gradient = reference()
    if gradient is None:
        raise RuntimeError("the graph of this gradient was deleted; differentiate it while the graph is in use")
    return gradient(operation, *upstream)


def first_order_only(*gradients: tf.Tensor) -> Any:
    """Returns the gradients (one tensor for one, else a tuple), marked so that differentiating them raises.

    Inside `tf.custom_gradient`, an outer tape does not see everything that a gradient depends on: a second derivative
    would be silently wrong.
    """
    message = "keras_bert's layers provide only first derivatives; a second one was requested"
    marked = tuple(tf.raw_ops.PreventGradient(input=gradient, message=message) for gradient in gradients)
    return marked if len(marked) > 1 else marked[0]


def sum_over_rows(matrix: tf.Tensor) -> tf.Tensor:
    """Returns the sum of each column of [rows, columns], as a product with ones.

    TensorFlow's own gradient of `tf.nn.bias_add` accumulates in bfloat16 on CPUs, where 2,048 ones sum to 256. A matrix
    product accumulates in float32, and is not slower.
    """
    ones = tf.ones([1, tf.shape(matrix)[0]], matrix.dtype)
    return tf.reshape(tf.matmul(ones, matrix), [-1])
