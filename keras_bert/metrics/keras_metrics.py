"""The official scores, and the accuracy of tokens, as Keras metrics: for `compile(metrics=[...])` of a model that gives
logits.

All of them are exact over all batches since the last reset, whatever the batch sizes: none is a mean over batches.
Counts and sums are kept in float64 (on JAX in what its own settings make of that). Under a distribution strategy the
logs after an epoch, and what `evaluate` returns, are of all replicas together; the progress bar in between shows a mean
over replicas.
"""

import keras
from keras import ops

_ACCUMULATOR = "float64"
_F1_AVERAGES = ("binary", "macro", "micro", "weighted")


@keras.saving.register_keras_serializable(package="keras_bert")
class MatthewsCorrelation(keras.metrics.Metric):
    """Matthews' correlation of true classes and logits: CoLA's score (GLUE, arXiv 1804.07461, table 1).

    Args:
        num_classes: int. Number of logits, at least 2.
        name: str. The name in logs.
        dtype: ignored but for `get_config`: counts are float64.

    `update_state` takes `y_true`, ints [batch] or [batch, 1]; `y_pred`, logits or probabilities [batch, classes]; and
    `sample_weight`, numbers [batch] or None. The result is 0 where it is undefined, because all labels or all
    predictions are of one class, and NaN after a label outside of the classes.

    Raises:
        ValueError: if there are fewer than two classes, or a shape does not fit.

    Example:

    >>> metric = MatthewsCorrelation(num_classes=2)
    >>> metric.update_state([0, 1], [[2.0, 1.0], [0.5, 0.7]])
    >>> metric.update_state([1, 0], [[0.3, 0.1], [0.9, 0.8]])
    >>> round(float(metric.result()), 6)
    0.57735
    """

    def __init__(self, num_classes, name="matthews_correlation", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.num_classes = _number_of_classes(num_classes, fewest=2)
        self.confusion = self.add_variable([num_classes, num_classes], "zeros", _ACCUMULATOR, name="confusion")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Counts a batch; see the class."""
        true, predicted = _one_hot_classes(y_true, y_pred, self.num_classes)
        weights = _weight_column(sample_weight, true)
        self.confusion.assign(self.confusion + ops.matmul(ops.transpose(true * weights), predicted))

    def result(self):
        """The score of all batches since the last reset, a float64 scalar."""
        confusion = ops.convert_to_tensor(self.confusion)
        true, predicted = ops.sum(confusion, axis=1), ops.sum(confusion, axis=0)
        # Each from its own total: where all are of one class, the difference below is then exactly 0.
        spread_true = ops.square(ops.sum(true)) - ops.sum(ops.square(true))
        spread_predicted = ops.square(ops.sum(predicted)) - ops.sum(ops.square(predicted))
        covariance = ops.sum(ops.diagonal(confusion)) * ops.sum(true) - ops.sum(true * predicted)
        return ops.divide_no_nan(covariance, ops.sqrt(spread_true) * ops.sqrt(spread_predicted))

    def get_config(self):
        """The constructor's arguments."""
        return {"num_classes": self.num_classes, **super().get_config()}


@keras.saving.register_keras_serializable(package="keras_bert")
class F1Score(keras.metrics.Metric):
    """F1 of true classes and logits: MRPC's and QQP's score (GLUE, arXiv 1804.07461, table 1) and its averages.

    Unlike `keras.metrics.F1Score` it takes class numbers, not one-hot rows, and logits as they are.

    Args:
        num_classes: int. Number of logits.
        average: str. "binary" is the F1 of class 1 of two; "macro" the mean over classes; "micro" that of all decisions
            counted together; "weighted" the mean over classes, each as often as it is true.
        multi_label: bool. Whether any number of labels may hold at once; a label is predicted where its logit is at
            least 0, a probability of one half.
        name: str. The name in logs; None is "f1" for "binary", else "macro_f1" and so on.
        dtype: ignored but for `get_config`: counts are float64.

    `update_state` takes `y_true`, ints [batch] or [batch, 1], or with `multi_label` zeros and ones [batch, classes];
    `y_pred`, logits [batch, classes]; and `sample_weight`, numbers [batch] or None. A class that is neither true nor
    predicted has an F1 of 0. The result is NaN after a label outside of the classes.

    Raises:
        ValueError: on an unknown average, "binary" where there are not two classes, or a shape that does not fit.

    Example:

    >>> metric = F1Score(num_classes=2)
    >>> metric.update_state([0, 1, 1, 0], [[2.0, 1.0], [0.5, 0.7], [0.3, 0.1], [0.9, 0.8]])
    >>> round(float(metric.result()), 6)
    0.666667
    """

    def __init__(self, num_classes=2, average="binary", multi_label=False, name=None, dtype=None):
        if average not in _F1_AVERAGES:
            raise ValueError(f"unknown average {average!r}; allowed are {_F1_AVERAGES}")
        if average == "binary" and (num_classes != 2 or multi_label):
            raise ValueError(
                f'average="binary" is the F1 of class 1 of two, but got num_classes={num_classes} and '
                f'multi_label={multi_label}; use "macro", "micro" or "weighted"'
            )
        super().__init__(name=name or ("f1" if average == "binary" else f"{average}_f1"), dtype=dtype)
        self.num_classes = _number_of_classes(num_classes, fewest=1 if multi_label else 2)
        self.average = average
        self.multi_label = multi_label
        self.true = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="true")
        self.predicted = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="predicted")
        self.both = self.add_variable([num_classes], "zeros", _ACCUMULATOR, name="both")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Counts a batch; see the class."""
        split = _many_labels if self.multi_label else _one_hot_classes
        true, predicted = split(y_true, y_pred, self.num_classes)
        weights = _weight_column(sample_weight, true)
        self.true.assign(self.true + ops.sum(weights * true, axis=0))
        self.predicted.assign(self.predicted + ops.sum(weights * predicted, axis=0))
        self.both.assign(self.both + ops.sum(weights * true * predicted, axis=0))

    def result(self):
        """The score of all batches since the last reset, a float64 scalar."""
        true, predicted, both = (ops.convert_to_tensor(count) for count in (self.true, self.predicted, self.both))
        if self.average == "micro":
            return ops.divide_no_nan(2 * ops.sum(both), ops.sum(true) + ops.sum(predicted))
        of_class = ops.divide_no_nan(2 * both, true + predicted)
        if self.average == "binary":
            return of_class[1]
        if self.average == "macro":
            return ops.mean(of_class)
        return ops.divide_no_nan(ops.sum(of_class * true), ops.sum(true))

    def get_config(self):
        """The constructor's arguments."""
        own = {"num_classes": self.num_classes, "average": self.average, "multi_label": self.multi_label}
        return {**own, **super().get_config()}


@keras.saving.register_keras_serializable(package="keras_bert")
class PearsonCorrelation(keras.metrics.Metric):
    """Pearson's correlation of true and predicted values: one of STS-B's scores (GLUE, arXiv 1804.07461, table 1).

    Unlike `keras.metrics.PearsonCorrelation`, which is a mean of correlations within rows, it is the correlation over
    all examples. Means and products of deviations are merged batch by batch, so that large values with a small spread
    lose no digits.

    Args:
        name: str. The name in logs.
        dtype: ignored but for `get_config`: sums are float64.

    `update_state` takes `y_true` and `y_pred`, numbers [batch] or [batch, 1], and `sample_weight`, numbers [batch] or
    None. The result is NaN where it is undefined: there are no two different labels or no two different predictions, or
    one is NaN.

    Raises:
        ValueError: if a shape does not fit.

    Example:

    >>> metric = PearsonCorrelation()
    >>> metric.update_state([1.0, 2.0], [[20.0], [40.0]])
    >>> metric.update_state([3.0], [[60.0]])
    >>> round(float(metric.result()), 6)
    1.0
    """

    def __init__(self, name="pearson_correlation", dtype=None):
        super().__init__(name=name, dtype=dtype)
        # Every replica sees the whole batch and comes to the same numbers: there is nothing to add up.
        self.weight = self._add("weight", [], "zeros")
        self.means = self._add("means", [2], "zeros")
        self.products = self._add("products", [2, 2], "zeros")
        self.least = self._add("least", [2], keras.initializers.Constant(float("inf")))
        self.greatest = self._add("greatest", [2], keras.initializers.Constant(float("-inf")))

    def _add(self, name, shape, initializer):
        return self.add_variable(shape, initializer, _ACCUMULATOR, aggregation="only_first_replica", name=name)

    def reset_state(self):
        """Forgets all batches."""
        for variable in (self.weight, self.means, self.products):
            variable.assign(ops.zeros(variable.shape, variable.dtype))
        self.least.assign(ops.full([2], float("inf"), _ACCUMULATOR))
        self.greatest.assign(ops.full([2], float("-inf"), _ACCUMULATOR))

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch; see the class."""
        pairs = _value_pairs(y_true, y_pred)
        weights = ops.reshape(_weight_column(sample_weight, pairs), (-1, 1))
        rows = _rows_of_all_replicas(ops.concatenate([pairs, weights], axis=1))  # [batch, 3]
        pairs, weights = rows[:, :2], rows[:, 2:]
        # Two sets' sums of squares, each about its own mean, and the term that their distance adds: Chan, Golub and
        # LeVeque (1983), "Algorithms for computing the sample variance".
        weight = ops.sum(weights)
        means = ops.divide_no_nan(ops.sum(weights * pairs, axis=0), weight)
        deviations = pairs - means
        products = ops.matmul(ops.transpose(weights * deviations), deviations)
        total, distance = self.weight + weight, ops.reshape(means - self.means, (2, 1))
        share = ops.divide_no_nan(weight, total)
        self.products.assign(self.products + products + distance * ops.transpose(distance) * self.weight * share)
        self.means.assign(self.means + distance[:, 0] * share)
        self.weight.assign(total)
        infinity = ops.full_like(pairs, float("inf"))
        counted = ops.not_equal(weights, 0)
        self.least.assign(
            ops.minimum(self.least, ops.min(ops.where(counted, pairs, infinity), 0, initial=float("inf")))
        )
        self.greatest.assign(
            ops.maximum(self.greatest, ops.max(ops.where(counted, pairs, -infinity), 0, initial=float("-inf")))
        )

    def result(self):
        """The score of all batches since the last reset, a float64 scalar."""
        products = ops.convert_to_tensor(self.products)
        spread = ops.sqrt(products[0, 0]) * ops.sqrt(products[1, 1])
        # Sums of equal values round, and their deviations are not exactly 0: least and greatest tell for certain.
        undefined = ops.any(ops.convert_to_tensor(self.least) >= ops.convert_to_tensor(self.greatest))
        correlation = ops.clip(products[0, 1] / spread, -1.0, 1.0)
        return ops.where(undefined, ops.full_like(spread, float("nan")), correlation)


@keras.saving.register_keras_serializable(package="keras_bert")
class SpearmanCorrelation(keras.metrics.Metric):
    """Spearman's rank correlation of true and predicted values: STS-B's other score (GLUE, arXiv 1804.07461, table 1).

    Ranks need all values: they are kept, 16 bytes an example, and ranked anew at every step. On two CPU cores a
    step takes 2 ms more after 1,500 examples, 6 ms after 10,000 and 100 ms after 100,000: of larger data score what
    `predict` gives. It needs Keras on TensorFlow. The number of values grows while a program runs, which XLA cannot do:
    on a GPU, where Keras uses XLA on its own, give `compile` jit_compile=False.

    Args:
        name: str. The name in logs.
        dtype: ignored but for `get_config`: values are kept in float64.

    `update_state` takes `y_true` and `y_pred`, numbers [batch] or [batch, 1]. The result is NaN where it is undefined:
    there are no two different labels or no two different predictions, or one is NaN. Equal values have the mean of
    their ranks.

    Raises:
        ValueError: on another backend than TensorFlow, with a `sample_weight`, within a function compiled by XLA, or if
            a shape does not fit.

    Example:

    >>> metric = SpearmanCorrelation()
    >>> metric.update_state([1.0, 2.0], [[1.0], [8.0]])
    >>> metric.update_state([3.0, 4.0], [[27.0], [26.0]])
    >>> round(float(metric.result()), 6)
    0.8
    """

    def __init__(self, name="spearman_correlation", dtype=None):
        super().__init__(name=name, dtype=dtype)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"SpearmanCorrelation keeps a growing list of values, which the backend {keras.backend.backend()!r} "
                "cannot do; score what `predict` gives with keras_bert.metrics.correlation.spearman_correlation"
            )
        import tensorflow as tf

        # Not a variable of Keras', whose shapes are fixed. Every replica holds the values of all of them.
        self._pairs = tf.Variable(
            tf.zeros([0, 2], tf.float64),
            trainable=False,
            shape=[None, 2],
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def reset_state(self):
        """Forgets all batches."""
        self._pairs.assign(ops.zeros([0, 2], _ACCUMULATOR))

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch; see the class."""
        if sample_weight is not None:
            raise ValueError(
                "ranks have no weights: SpearmanCorrelation takes no sample_weight. Give it to `compile` as one of "
                "metrics=, not of weighted_metrics="
            )
        _refuse_xla(self)
        rows = _rows_of_all_replicas(_value_pairs(y_true, y_pred))
        self._pairs.assign(ops.concatenate([self._pairs, rows], axis=0))

    def result(self):
        """The score of all batches since the last reset, a float64 scalar."""
        _refuse_xla(self)
        pairs = ops.convert_to_tensor(self._pairs)
        ranks = ops.stack([_ranks(pairs[:, 0]), _ranks(pairs[:, 1])])
        deviations = ranks - ops.mean(ranks, axis=1, keepdims=True)
        products = ops.matmul(deviations, ops.transpose(deviations))
        # Of equal values the ranks are multiples of one half, so the deviations and the spread are exactly 0: NaN.
        return ops.clip(products[0, 1] / (ops.sqrt(products[0, 0]) * ops.sqrt(products[1, 1])), -1.0, 1.0)


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenAccuracy(keras.metrics.Metric):
    """The share of tokens whose greatest logit is that of their label, of the tokens that have one.

    Args:
        name: str. The name in logs.
        dtype: ignored but for `get_config`: counts are float64.

    `update_state` takes `y_true`, ints [batch, length], -1 for tokens without a label, which are left out; `y_pred`,
    logits [batch, length, labels]; and `sample_weight`, numbers [batch] or None. The result is 0 where no token has a
    label.

    Raises:
        ValueError: if a shape does not fit.

    Example:

    >>> metric = TokenAccuracy()
    >>> metric.update_state([[-1, 1, 0, -1]], [[[9.0, 0.0], [1.0, 2.0], [1.0, 2.0], [9.0, 0.0]]])
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name="token_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.right = self.add_variable([], "zeros", _ACCUMULATOR, name="right")
        self.weight = self.add_variable([], "zeros", _ACCUMULATOR, name="weight")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Counts a batch; see the class."""
        y_true, y_pred = _tensors(y_true, y_pred)
        if len(y_true.shape) != 2 or len(y_pred.shape) != 3:
            raise ValueError(
                "labels must be numbers of tags [batch, length] and outputs logits [batch, length, labels]; got the "
                f"shapes {tuple(y_true.shape)} and {tuple(y_pred.shape)}"
            )
        has_label = ops.cast(y_true >= 0, _ACCUMULATOR)
        weights = has_label * _weight_column(sample_weight, has_label)
        is_right = ops.equal(ops.argmax(y_pred, axis=-1), ops.cast(y_true, "int32"))
        self.right.assign(self.right + ops.sum(weights * ops.cast(is_right, _ACCUMULATOR)))
        self.weight.assign(self.weight + ops.sum(weights))

    def result(self):
        """The share of all batches since the last reset, a float64 scalar."""
        return ops.divide_no_nan(ops.convert_to_tensor(self.right), ops.convert_to_tensor(self.weight))


def _ranks(values):
    """Ranks from 1, equal values having their mean; NaN where there is a NaN, which has no rank."""
    import tensorflow as tf

    ordered = tf.sort(values)
    below = tf.searchsorted(ordered, values, side="left")
    up_to = tf.searchsorted(ordered, values, side="right")
    ranks = tf.cast(below + up_to + 1, tf.float64) / 2
    return tf.where(tf.reduce_any(tf.math.is_nan(values)), tf.constant(float("nan"), tf.float64), ranks)


def _one_hot_classes(y_true, y_pred, num_classes):
    """Which class is true and which has the greatest logit: float64 [batch, classes] each."""
    y_true, y_pred = _tensors(y_true, y_pred)
    if len(y_true.shape) == 2 and y_true.shape[1] == 1:
        y_true = y_true[:, 0]
    if len(y_true.shape) != 1 or len(y_pred.shape) != 2 or y_pred.shape[1] != num_classes:
        raise ValueError(
            f"labels must be class numbers [batch] and outputs logits [batch, {num_classes}]; got the shapes "
            f"{tuple(y_true.shape)} and {tuple(y_pred.shape)}. num_classes must be the model's number of labels; for "
            "several labels at once use F1Score(..., multi_label=True)."
        )
    labels = ops.cast(y_true, "int32")
    true = ops.one_hot(labels, num_classes, dtype=_ACCUMULATOR)
    # A label outside of the classes has a row of zeros, which would go unnoticed.
    known = ops.logical_and(labels >= 0, labels < num_classes)[:, None]
    true = ops.where(known, true, ops.full_like(true, float("nan")))
    return true, ops.one_hot(ops.argmax(y_pred, axis=-1), num_classes, dtype=_ACCUMULATOR)


def _many_labels(y_true, y_pred, num_classes):
    """Which labels hold and which have a logit of at least 0: float64 [batch, classes] each."""
    y_true, y_pred = _tensors(y_true, y_pred)
    for what, values in (("labels must be zeros and ones", y_true), ("outputs must be logits", y_pred)):
        if len(values.shape) != 2 or values.shape[1] != num_classes:
            raise ValueError(f"{what} [batch, {num_classes}]; got the shape {tuple(values.shape)}")
    return ops.cast(y_true, _ACCUMULATOR), ops.cast(y_pred >= 0, _ACCUMULATOR)


def _value_pairs(y_true, y_pred):
    """True and predicted values side by side, float64 [batch, 2]."""
    columns = []
    for what, values in zip(("labels", "outputs"), _tensors(y_true, y_pred), strict=True):
        if len(values.shape) not in (1, 2) or (len(values.shape) == 2 and values.shape[1] != 1):
            raise ValueError(
                f"{what} must be values [batch] or [batch, 1]; got the shape {tuple(values.shape)}. A correlation is "
                "that of a regression with one output."
            )
        columns.append(ops.reshape(ops.cast(values, _ACCUMULATOR), (-1, 1)))
    return ops.concatenate(columns, axis=1)


def _weight_column(sample_weight, rows):
    """Weights as float64 [batch, 1]; ones if there are none."""
    ones = ops.ones_like(rows[:, :1])
    if sample_weight is None:
        return ones
    weights = ops.cast(ops.convert_to_tensor(sample_weight), _ACCUMULATOR)
    if len(weights.shape) > 2 or (len(weights.shape) == 2 and weights.shape[1] != 1):
        raise ValueError(f"sample_weight must have the shape [batch]; got {tuple(weights.shape)}")
    return ops.reshape(weights, (-1, 1)) * ones


def _tensors(*values):
    return [ops.convert_to_tensor(value) for value in values]


def _number_of_classes(number, fewest):
    if isinstance(number, bool) or not isinstance(number, int) or number < fewest:
        raise ValueError(f"num_classes must be a whole number of at least {fewest}; got {number!r}")
    return number


def _rows_of_all_replicas(rows):
    """The rows [batch, columns] of every replica, below each other; on one device the rows themselves."""
    if keras.backend.backend() != "tensorflow":
        return rows
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return rows
    return context.all_gather(rows, axis=0)


def _refuse_xla(metric):
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # TensorFlow tells it nowhere else

    if not tf.executing_eagerly() and GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise ValueError(
            f"{metric.name}: a growing list of values cannot be compiled by XLA, which Keras uses on its own on GPUs; "
            "give `compile` jit_compile=False"
        )
