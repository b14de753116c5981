"""Official scores, and the accuracy of tokens, as Keras metrics of models that output logits.

All of them are exact over all batches since the last reset, whatever the batch sizes: none is a mean over batches.
Counts and sums are kept in float64 (on JAX subject to its `jax_enable_x64`). Under a distribution strategy the logs
after an epoch and the results of `evaluate` cover all replicas; the progress bar shows a mean over replicas.
"""

from typing import Any

import keras
from keras import ops

from keras_bert.typing import Tensor

_ACCUMULATOR = "float64"
_F1_AVERAGES = ("binary", "macro", "micro", "weighted")


@keras.saving.register_keras_serializable(package="keras_bert")
class MatthewsCorrelation(keras.metrics.Metric):
    """Matthews' correlation coefficient of classes: the score of CoLA (GLUE, arXiv 1804.07461, table 1).

    The result is 0 if it is undefined, because all labels or all predictions have the same class, and NaN after a label
    outside the classes.

    Args:
        num_classes: number of logits, at least 2.
        name: name in logs.
        dtype: has no effect; counts are float64.

    Call arguments:
        y_true: int labels `[batch]` or `[batch, 1]`.
        y_pred: logits or probabilities `[batch, classes]`.
        sample_weight: weights `[batch]`, or None.

    Raises:
        ValueError: `num_classes` is below 2, or the shape of an input does not match.

    Example:

    >>> metric = MatthewsCorrelation(num_classes=2)
    >>> metric.update_state([0, 1], [[2.0, 1.0], [0.5, 0.7]])
    >>> metric.update_state([1, 0], [[0.3, 0.1], [0.9, 0.8]])
    >>> round(float(metric.result()), 6)
    0.57735
    """

    def __init__(self, num_classes: int, name: str = "matthews_correlation", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.num_classes = _check_num_classes(num_classes, minimum=2)
        self.confusion = self.add_variable([num_classes, num_classes], "zeros", _ACCUMULATOR, name="confusion")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch; see the class."""
        true, predicted = _one_hot_classes(y_true, y_pred, self.num_classes)
        weights = _weight_column(sample_weight, true)
        self.confusion.assign(self.confusion + ops.matmul(ops.transpose(true * weights), predicted))

    def result(self) -> Tensor:
        """Returns the score of all batches since the last reset, a float64 scalar."""
        confusion = ops.convert_to_tensor(self.confusion)
        true, predicted = ops.sum(confusion, axis=1), ops.sum(confusion, axis=0)
        # Each minus its own total, so that the difference is exactly 0 if all are of one class.
        spread_true = ops.square(ops.sum(true)) - ops.sum(ops.square(true))
        spread_predicted = ops.square(ops.sum(predicted)) - ops.sum(ops.square(predicted))
        covariance = ops.sum(ops.diagonal(confusion)) * ops.sum(true) - ops.sum(true * predicted)
        return ops.divide_no_nan(covariance, ops.sqrt(spread_true) * ops.sqrt(spread_predicted))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"num_classes": self.num_classes, **super().get_config()}


@keras.saving.register_keras_serializable(package="keras_bert")
class F1Score(keras.metrics.Metric):
    """F1 of classes: the score of MRPC and QQP (GLUE, arXiv 1804.07461, table 1), and its averages.

    Unlike `keras.metrics.F1Score` it takes class indices, not one-hot labels, and logits. A class that no example has
    or is predicted to have has an F1 of 0. The result is NaN after a label outside the classes.

    Args:
        num_classes: number of logits.
        average: "binary" is the F1 of class 1 of two; "macro" the mean over classes; "micro" the F1 of all decisions
            together; "weighted" the mean over classes, weighted by their number of examples.
        multi_label: whether an example can have any number of labels; a label is predicted if its logit is at least 0,
            a probability of one half.
        name: name in logs. Defaults to None: "f1" for "binary", else "macro_f1" and so on.
        dtype: has no effect; counts are float64.

    Call arguments:
        y_true: int labels `[batch]` or `[batch, 1]`, or with `multi_label` zeros and ones `[batch, classes]`.
        y_pred: logits `[batch, classes]`.
        sample_weight: weights `[batch]`, or None.

    Raises:
        ValueError: an argument is invalid, "binary" is used without two classes, or the shape of an input does not
            match.

    Example:

    >>> metric = F1Score(num_classes=2)
    >>> metric.update_state([0, 1, 1, 0], [[2.0, 1.0], [0.5, 0.7], [0.3, 0.1], [0.9, 0.8]])
    >>> round(float(metric.result()), 6)
    0.666667
    """

    def __init__(
        self,
        num_classes: int = 2,
        average: str = "binary",
        multi_label: bool = False,
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        if average not in _F1_AVERAGES:
            raise ValueError(f"unknown average {average!r}; allowed are {_F1_AVERAGES}")
        if average == "binary" and (num_classes != 2 or multi_label):
            raise ValueError(
                f'average="binary" is the F1 of class 1 of two, but got num_classes={num_classes} and '
                f'multi_label={multi_label}; use "macro", "micro" or "weighted"'
            )
        super().__init__(name=name or ("f1" if average == "binary" else f"{average}_f1"), dtype=dtype)
        self.num_classes = _check_num_classes(num_classes, minimum=1 if multi_label else 2)
        self.average = average
        self.multi_label = multi_label
        self.true = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="true")
        self.predicted = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="predicted")
        self.both = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="both")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch; see the class."""
        convert = _as_indicators if self.multi_label else _one_hot_classes
        true, predicted = convert(y_true, y_pred, self.num_classes)
        weights = _weight_column(sample_weight, true)
        self.true.assign(self.true + ops.sum(weights * true, axis=0))
        self.predicted.assign(self.predicted + ops.sum(weights * predicted, axis=0))
        self.both.assign(self.both + ops.sum(weights * true * predicted, axis=0))

    def result(self) -> Tensor:
        """Returns the score of all batches since the last reset, a float64 scalar."""
        true, predicted, both = (ops.convert_to_tensor(count) for count in (self.true, self.predicted, self.both))
        if self.average == "micro":
            return ops.divide_no_nan(2 * ops.sum(both), ops.sum(true) + ops.sum(predicted))
        class_scores = ops.divide_no_nan(2 * both, true + predicted)
        if self.average == "binary":
            return class_scores[1]
        if self.average == "macro":
            return ops.mean(class_scores)
        return ops.divide_no_nan(ops.sum(class_scores * true), ops.sum(true))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {"num_classes": self.num_classes, "average": self.average, "multi_label": self.multi_label}
        return {**config, **super().get_config()}


@keras.saving.register_keras_serializable(package="keras_bert")
class PearsonCorrelation(keras.metrics.Metric):
    """Pearson's correlation of values: one of the two scores of STS-B (GLUE, arXiv 1804.07461, table 1).

    Unlike `keras.metrics.PearsonCorrelation`, which averages correlations inside rows, it is the correlation over all
    examples. Means and products of deviations are merged batch by batch, so that large values with a small spread lose
    no digits. The result is NaN if it is undefined: all labels or all predictions are equal, or a value is NaN.

    Args:
        name: name in logs.
        dtype: has no effect; sums are float64.

    Call arguments:
        y_true: values `[batch]` or `[batch, 1]`.
        y_pred: values `[batch]` or `[batch, 1]`.
        sample_weight: weights `[batch]`, or None.

    Raises:
        ValueError: the shape of an input does not match.

    Example:

    >>> metric = PearsonCorrelation()
    >>> metric.update_state([1.0, 2.0], [[20.0], [40.0]])
    >>> metric.update_state([3.0], [[60.0]])
    >>> round(float(metric.result()), 6)
    1.0
    """

    def __init__(self, name: str = "pearson_correlation", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        # Every replica computes the same numbers from the whole batch, so that they must not be summed.
        self.weight = self._add("weight", [], "zeros")
        self.means = self._add("means", [2], "zeros")
        self.products = self._add("products", [2, 2], "zeros")
        self.minimum = self._add("minimum", [2], keras.initializers.Constant(float("inf")))
        self.maximum = self._add("maximum", [2], keras.initializers.Constant(float("-inf")))

    def _add(self, name: str, shape: list[int], initializer: Any) -> Any:
        return self.add_variable(shape, initializer, _ACCUMULATOR, aggregation="only_first_replica", name=name)

    def reset_state(self) -> None:
        """Clears the state."""
        for variable in (self.weight, self.means, self.products):
            variable.assign(ops.zeros(variable.shape, variable.dtype))
        self.minimum.assign(ops.full([2], float("inf"), _ACCUMULATOR))
        self.maximum.assign(ops.full([2], float("-inf"), _ACCUMULATOR))

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch; see the class."""
        pairs = _value_pairs(y_true, y_pred)
        weights = ops.reshape(_weight_column(sample_weight, pairs), (-1, 1))
        rows = _gather_rows(ops.concatenate([pairs, weights], axis=1))  # [batch, 3]
        pairs, weights = rows[:, :2], rows[:, 2:]
        # Sums of squares of both parts, each about its own mean, plus a term for the distance of the means: Chan, Golub
        # and LeVeque (1983), "Algorithms for computing the sample variance".
        weight = ops.sum(weights)
        means = ops.divide_no_nan(ops.sum(weights * pairs, axis=0), weight)
        deviations = pairs - means
        products = ops.matmul(ops.transpose(weights * deviations), deviations)
        total, distance = self.weight + weight, ops.reshape(means - self.means, (2, 1))
        fraction = ops.divide_no_nan(weight, total)
        self.products.assign(self.products + products + distance * ops.transpose(distance) * self.weight * fraction)
        self.means.assign(self.means + distance[:, 0] * fraction)
        self.weight.assign(total)
        infinity = ops.full_like(pairs, float("inf"))
        has_weight = ops.not_equal(weights, 0)
        self.minimum.assign(
            ops.minimum(self.minimum, ops.min(ops.where(has_weight, pairs, infinity), 0, initial=float("inf")))
        )
        self.maximum.assign(
            ops.maximum(self.maximum, ops.max(ops.where(has_weight, pairs, -infinity), 0, initial=float("-inf")))
        )

    def result(self) -> Tensor:
        """Returns the score of all batches since the last reset, a float64 scalar."""
        products = ops.convert_to_tensor(self.products)
        spread = ops.sqrt(products[0, 0]) * ops.sqrt(products[1, 1])
        # Deviations of equal values are not exactly 0 because sums are rounded; the minimum and maximum are exact.
        undefined = ops.any(ops.convert_to_tensor(self.minimum) >= ops.convert_to_tensor(self.maximum))
        correlation = ops.clip(products[0, 1] / spread, -1.0, 1.0)
        return ops.where(undefined, ops.full_like(spread, float("nan")), correlation)


@keras.saving.register_keras_serializable(package="keras_bert")
class SpearmanCorrelation(keras.metrics.Metric):
    """Spearman's rank correlation of values: the other score of STS-B (GLUE, arXiv 1804.07461, table 1).

    Ranks need all values: they are kept, 16 bytes per example, and ranked again at every step. On two CPU cores a step
    takes 2 ms more after 1,500 examples, 6 ms after 10,000 and 100 ms after 100,000; for larger data score the output
    of `predict`. Equal values have the mean of their ranks. The result is NaN if it is undefined: all labels or all
    predictions are equal, or a value is NaN.

    Needs Keras on TensorFlow. The number of values grows, which XLA cannot compile: on a GPU, where Keras uses XLA by
    default, pass jit_compile=False to `compile`.

    Args:
        name: name in logs.
        dtype: has no effect; values are kept in float64.

    Call arguments:
        y_true: values `[batch]` or `[batch, 1]`.
        y_pred: values `[batch]` or `[batch, 1]`.

    Raises:
        ValueError: Keras runs on another backend, a `sample_weight` is passed, XLA compiles the metric, or the shape of
            an input does not match.

    Example:

    >>> metric = SpearmanCorrelation()
    >>> metric.update_state([1.0, 2.0], [[1.0], [8.0]])
    >>> metric.update_state([3.0, 4.0], [[27.0], [26.0]])
    >>> round(float(metric.result()), 6)
    0.8
    """

    def __init__(self, name: str = "spearman_correlation", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                "SpearmanCorrelation keeps a growing list of values, which needs the TensorFlow backend; got "
                f"{keras.backend.backend()!r}. Score the output of `predict` with "
                "keras_bert.metrics.correlation.spearman_correlation"
            )
        import tensorflow as tf

        # Not a Keras variable, whose shape is fixed. Every replica holds the values of all replicas.
        self._pairs = tf.Variable(
            tf.zeros([0, 2], tf.float64),
            trainable=False,
            shape=[None, 2],
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def reset_state(self) -> None:
        """Clears the state."""
        self._pairs.assign(ops.zeros([0, 2], _ACCUMULATOR))

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch; see the class."""
        if sample_weight is not None:
            raise ValueError(
                "SpearmanCorrelation does not support sample_weight, because ranks have no weights. Pass it to "
                "`compile` in metrics=, not in weighted_metrics="
            )
        _check_not_xla(self)
        rows = _gather_rows(_value_pairs(y_true, y_pred))
        self._pairs.assign(ops.concatenate([self._pairs, rows], axis=0))

    def result(self) -> Tensor:
        """Returns the score of all batches since the last reset, a float64 scalar."""
        _check_not_xla(self)
        pairs = ops.convert_to_tensor(self._pairs)
        ranks = ops.stack([_rank(pairs[:, 0]), _rank(pairs[:, 1])])
        deviations = ranks - ops.mean(ranks, axis=1, keepdims=True)
        products = ops.matmul(deviations, ops.transpose(deviations))
        # The ranks of equal values are multiples of one half: deviations and spread are exactly 0, the result is NaN.
        return ops.clip(products[0, 1] / (ops.sqrt(products[0, 0]) * ops.sqrt(products[1, 1])), -1.0, 1.0)


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenAccuracy(keras.metrics.Metric):
    """Accuracy of the tokens that have a label, 0 if none has one.

    `y_true` are int labels `[batch, length]`, -1 for tokens without a label; `y_pred` are logits `[batch, length,
    labels]`; `sample_weight` are weights `[batch]`, or None.
    """

    def __init__(self, name: str = "token_accuracy", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.right = self.add_variable([], "zeros", _ACCUMULATOR, name="right")
        self.weight = self.add_variable([], "zeros", _ACCUMULATOR, name="weight")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch; see the class."""
        y_true, y_pred = _tensors(y_true, y_pred)
        if len(y_true.shape) != 2 or len(y_pred.shape) != 3:
            raise ValueError(
                "labels must be tag indices [batch, length] and outputs logits [batch, length, labels]; got the "
                f"shapes {tuple(y_true.shape)} and {tuple(y_pred.shape)}"
            )
        has_label = ops.cast(y_true >= 0, _ACCUMULATOR)
        weights = has_label * _weight_column(sample_weight, has_label)
        is_right = ops.equal(ops.argmax(y_pred, axis=-1), ops.cast(y_true, "int32"))
        self.right.assign(self.right + ops.sum(weights * ops.cast(is_right, _ACCUMULATOR)))
        self.weight.assign(self.weight + ops.sum(weights))

    def result(self) -> Tensor:
        """Returns the accuracy of all batches since the last reset, a float64 scalar."""
        return ops.divide_no_nan(ops.convert_to_tensor(self.right), ops.convert_to_tensor(self.weight))


def _rank(values: Tensor) -> Tensor:
    """Ranks values from 1, equal values by their mean rank; all are NaN if one value is NaN."""
    import tensorflow as tf

    ordered = tf.sort(values)
    below = tf.searchsorted(ordered, values, side="left")
    up_to = tf.searchsorted(ordered, values, side="right")
    ranks = tf.cast(below + up_to + 1, tf.float64) / 2
    return tf.where(tf.reduce_any(tf.math.is_nan(values)), tf.constant(float("nan"), tf.float64), ranks)


def _one_hot_classes(y_true: Tensor, y_pred: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Converts labels and logits to one-hot classes, float64 [batch, classes] each."""
    y_true, y_pred = _tensors(y_true, y_pred)
    if len(y_true.shape) == 2 and y_true.shape[1] == 1:
        y_true = y_true[:, 0]
    if len(y_true.shape) != 1 or len(y_pred.shape) != 2 or y_pred.shape[1] != num_classes:
        raise ValueError(
            f"labels must be class indices [batch] and outputs logits [batch, {num_classes}]; got the shapes "
            f"{tuple(y_true.shape)} and {tuple(y_pred.shape)}. num_classes must be the model's number of labels; for "
            "multi-label targets use F1Score(..., multi_label=True)."
        )
    labels = ops.cast(y_true, "int32")
    true = ops.one_hot(labels, num_classes, dtype=_ACCUMULATOR)
    # One-hot encoding turns a label outside the classes into zeros, which would go unnoticed.
    is_known = ops.logical_and(labels >= 0, labels < num_classes)[:, None]
    true = ops.where(is_known, true, ops.full_like(true, float("nan")))
    return true, ops.one_hot(ops.argmax(y_pred, axis=-1), num_classes, dtype=_ACCUMULATOR)


def _as_indicators(y_true: Tensor, y_pred: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Converts multi-label targets and logits to indicators, float64 [batch, classes] each."""
    y_true, y_pred = _tensors(y_true, y_pred)
    for what, values in (("labels must be zeros and ones", y_true), ("outputs must be logits", y_pred)):
        if len(values.shape) != 2 or values.shape[1] != num_classes:
            raise ValueError(f"{what} [batch, {num_classes}]; got the shape {tuple(values.shape)}")
    return ops.cast(y_true, _ACCUMULATOR), ops.cast(y_pred >= 0, _ACCUMULATOR)


def _value_pairs(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Stacks true and predicted values, float64 [batch, 2]."""
    columns = []
    for what, values in zip(("labels", "outputs"), _tensors(y_true, y_pred), strict=True):
        if len(values.shape) not in (1, 2) or (len(values.shape) == 2 and values.shape[1] != 1):
            raise ValueError(
                f"{what} must be values [batch] or [batch, 1]; got the shape {tuple(values.shape)}. A correlation "
                "needs a regression with one output."
            )
        columns.append(ops.reshape(ops.cast(values, _ACCUMULATOR), (-1, 1)))
    return ops.concatenate(columns, axis=1)


def _weight_column(sample_weight: Tensor | None, rows: Tensor) -> Tensor:
    """Converts weights to float64 [batch, 1]; None to ones."""
    ones = ops.ones_like(rows[:, :1])
    if sample_weight is None:
        return ones
    weights = ops.cast(ops.convert_to_tensor(sample_weight), _ACCUMULATOR)
    if len(weights.shape) > 2 or (len(weights.shape) == 2 and weights.shape[1] != 1):
        raise ValueError(f"sample_weight must have the shape [batch]; got {tuple(weights.shape)}")
    return ops.reshape(weights, (-1, 1)) * ones


def _tensors(*values: Tensor) -> list[Tensor]:
    return [ops.convert_to_tensor(value) for value in values]


def _check_num_classes(num_classes: int, minimum: int) -> int:
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < minimum:
        raise ValueError(f"num_classes must be an int of at least {minimum}; got {num_classes!r}")
    return num_classes


def _gather_rows(rows: Tensor) -> Tensor:
    """Concatenates the rows [batch, columns] of all replicas."""
    if keras.backend.backend() != "tensorflow":
        return rows
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return rows
    return context.all_gather(rows, axis=0)


def _check_not_xla(metric: keras.metrics.Metric) -> None:
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # no public equivalent

    if not tf.executing_eagerly() and GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise ValueError(
            f"{metric.name}: XLA, which Keras uses by default on GPUs, cannot compile a growing list of values; "
            "pass jit_compile=False to `compile`"
        )
