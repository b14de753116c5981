"""One update of a model: micro-batches forward and backward, their gradients summed, then the optimizer."""

import keras
import tensorflow as tf

from keras_bert.training.loss import total_loss


class TrainStep:
    """Trains a model with loss terms on batches, several of them in one call.

    A batch is cut into micro-batches that are run one after another, so that a large batch fits into memory. Every loss
    term is divided by its weight over the whole batch, which the labels determine beforehand: the number of
    micro-batches does not change the result (apart from the draws of dropout).

    Args:
        model: a Keras model with `loss_terms(labels, outputs, sample_weight)` and `loss_weights(labels,
            sample_weight)`, as `BertClassifier` has.
        optimizer: a `BertAdamW`, or any Keras optimizer.
        micro_batches: int. Parts that each batch is cut into.

    Raises:
        TypeError: if the model says no loss terms.
        ValueError: if there is no micro-batch, or nothing to train.

    Example:

    >>> from keras_bert.training.optimizer import BertAdamW
    >>> class Line(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.dense = keras.layers.Dense(1)
    ...         self.dense.build((None, 1))
    ...
    ...     def call(self, inputs, training=False):
    ...         return self.dense(inputs)
    ...
    ...     def loss_terms(self, labels, outputs, sample_weight=None):
    ...         return {"loss": (tf.reduce_sum((outputs - labels) ** 2), tf.cast(tf.size(labels), tf.float32))}
    ...
    ...     def loss_weights(self, labels, sample_weight=None):
    ...         return {"loss": tf.cast(tf.size(labels), tf.float32)}
    >>> step = TrainStep(Line(), BertAdamW(0.1), micro_batches=2)
    >>> batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat()
    >>> int(step.run(iter(batches), 3)["examples"])
    12
    """

    def __init__(self, model, optimizer, micro_batches=1):
        missing = [name for name in ("loss_terms", "loss_weights") if not callable(getattr(model, name, None))]
        if missing:
            raise TypeError(f"{type(model).__name__} cannot be trained: it has no method {' and no '.join(missing)}")
        if micro_batches < 1:
            raise ValueError(f"micro_batches must be at least 1, got {micro_batches}")
        if not model.trainable_variables:
            raise ValueError(f"{type(model).__name__} has no trainable variables; is all of it frozen?")
        self.model = model
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def run(self, iterator, steps):
        """Makes several updates.

        Args:
            iterator: iterator of a tf.data.Dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`.
            steps: int tensor. Number of updates.

        Returns:
            dict of scalar tensors, summed over the updates: `examples`; `tokens` and `places` (tokens without and with
            padding; 0 where the inputs have no padding mask); and each loss term by its name, which is a mean over its
            batch. `gradient_norm` is that of the last update, before clipping.

        Raises:
            tf.errors.InvalidArgumentError: if a gradient is not finite; that update was not made.
        """
        totals = self._nothing(iterator.element_spec)
        for _ in tf.range(steps):
            new = self._update(next(iterator))
            norm = new.pop("gradient_norm")
            totals = {**{name: totals[name] + value for name, value in new.items()}, "gradient_norm": norm}
        return totals

    def _nothing(self, batch_spec):
        """The totals before the first update; the loss terms are found out by tracing the weights alone."""
        _, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch_spec)
        weights = tf.function(self.model.loss_weights).get_concrete_function(labels, sample_weight)
        counts = {name: tf.zeros([], tf.int32) for name in ("examples", "tokens", "places")}
        return {
            **{name: tf.zeros([]) for name in weights.structured_outputs},
            **counts,
            "gradient_norm": tf.zeros([]),
        }

    def _update(self, batch):
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        weights = self.model.loss_weights(labels, sample_weight)
        summed = self._gradients if self.micro_batches == 1 else self._summed_gradients
        gradients, sums = summed(batch, weights)
        norm = self.optimizer.apply(gradients, self.model.trainable_variables)
        padding_mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        return {
            **{name: total_loss({name: (sums[name], weights[name])}) for name in sums},
            "examples": tf.shape(labels)[0],
            "tokens": 0 if padding_mask is None else tf.math.count_nonzero(padding_mask, dtype=tf.int32),
            "places": 0 if padding_mask is None else tf.size(padding_mask),
            "gradient_norm": tf.zeros([]) if norm is None else norm,
        }

    def _gradients(self, batch, weights):
        """Gradients of a batch's share of the loss, and the sums of its terms."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, training=True)
            terms = self.model.loss_terms(labels, outputs, sample_weight)
            sums = {name: loss_sum for name, (loss_sum, _) in terms.items()}
            loss = total_loss({name: (loss_sum, weights[name]) for name, loss_sum in sums.items()})
        return tape.gradient(loss, self.model.trainable_variables), sums

    def _summed_gradients(self, batch, weights):
        if isinstance(batch[0], dict) and "window_text_ids" in batch[0]:
            raise ValueError("micro_batches must be 1 with windows: cutting a batch would part the windows of a text")
        rows = tf.shape(batch[1])[0]
        gradients = [tf.zeros(variable.shape, variable.dtype) for variable in self.model.trainable_variables]
        unused = set()  # variables that the loss does not depend on: the optimizer has to leave them alone
        sums = {name: tf.zeros_like(weight) for name, weight in weights.items()}
        for part in tf.range(self.micro_batches):
            first, limit = rows * part // self.micro_batches, rows * (part + 1) // self.micro_batches
            new_gradients, new_sums = self._gradients(_rows(batch, first, limit), weights)
            unused.update(index for index, new in enumerate(new_gradients) if new is None)
            gradients = [
                total if new is None else total + tf.convert_to_tensor(new)
                for total, new in zip(gradients, new_gradients, strict=True)
            ]
            sums = {name: sums[name] + new_sums[name] for name in sums}
        return [None if index in unused else gradient for index, gradient in enumerate(gradients)], sums


def _rows(batch, first, limit):
    return tf.nest.map_structure(lambda values: values[first:limit], batch)
