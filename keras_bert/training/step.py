"""One update of a model: micro-batches forward and backward on every replica, gradients summed, then the optimizer."""

import keras
import tensorflow as tf

from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.loss import sum_over_replicas
from keras_bert.training.loss_scale import DynamicLossScale
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.replica_gradients import ReplicaGradients, refuse_windows
from keras_bert.training.strategy import get_num_local_replicas, get_num_workers

_COUNTS = ("examples", "tokens", "places")


class TrainStep:
    """Trains a model with loss terms on batches, several of them in one call, on the replicas of a strategy.

    A batch is shared out between the replicas, and a replica's share is cut into micro-batches that are run one after
    another, so that a large batch fits into memory. Every loss term is divided by its weight over the whole batch, of
    all replicas and workers, which the labels determine beforehand: neither the number of micro-batches nor that of
    replicas changes the result, however unevenly a batch is divided. Random numbers, those of dropout, are a function
    of (seed, step, micro-batch, replica, layer) and of nothing else. What depends on the rows of a micro-batch, as
    batch normalisation does, is that of each by itself; losses that layers add (`model.losses`) are not counted.

    Differs from BERT: the original averages over the means of the shards, which gives a shard with few labels as much
    say as one with many.

    Args:
        model: a Keras model with `loss_terms(labels, outputs, sample_weight)` and `loss_weights(labels,
            sample_weight)`, as `BertClassifier` has; built in the strategy's scope.
        optimizer: a `BertAdamW`, made in the strategy's scope.
        strategy: tf.distribute.Strategy; None is the one in force, on one device unless in a scope.
        gradient_accumulation_steps: int. Parts that each replica's share of a batch is cut into.
        seed: int. Of the random numbers.
        jit_compile: bool. Whether XLA compiles forward and backward pass, once for every shape of a micro-batch.
        loss_scale: None; "dynamic" multiplies the loss by a factor that keeps float16 gradients in range, and leaves
            out updates whose gradient overflows; "auto" is "dynamic" if the model computes in float16.
        mean_loss_weights: dict of loss term to float, or None. What a term is divided by in every batch instead of its
            weight over the batch: that of the batches of an epoch, on average. Where batches hold texts of like length,
            a loss that counts tokens gives those of short texts more say otherwise, as their batches have fewer.

    Raises:
        TypeError: if the model says no loss terms, or the optimizer is another.
        ValueError: if there is no micro-batch, nothing to train, the model was made outside the strategy, or a mean
            weight is not positive.

    Example:

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
    >>> step = TrainStep(Line(), BertAdamW(0.1), gradient_accumulation_steps=2)
    >>> batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat()
    >>> int(step.run(iter(batches), first_step=0, steps=3)["examples"])
    12
    """

    def __init__(
        self,
        model,
        optimizer,
        strategy=None,
        gradient_accumulation_steps=1,
        seed=0,
        jit_compile=False,
        loss_scale="auto",
        mean_loss_weights=None,
    ):
        if mean_loss_weights is not None and min(mean_loss_weights.values()) <= 0:
            raise ValueError(f"mean_loss_weights must be positive, got {mean_loss_weights}")
        self._mean_loss_weights = mean_loss_weights
        self.strategy = tf.distribute.get_strategy() if strategy is None else strategy
        _check(model, optimizer, self.strategy, gradient_accumulation_steps)
        self.model = model
        self.optimizer = optimizer
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.seed = seed
        self.jit_compile = jit_compile
        if loss_scale == "auto":
            loss_scale = "dynamic" if keras.backend.standardize_dtype(model.compute_dtype) == "float16" else None
        self.loss_scale = DynamicLossScale() if loss_scale == "dynamic" else None
        self._workers = get_num_workers(self.strategy)
        self._gradients = ReplicaGradients(model, seed, gradient_accumulation_steps, jit_compile)
        # Without AutoGraph, which would rewrite and compile all that is called: the first update comes sooner.
        self._run = tf.function(self._run_updates, reduce_retracing=True, autograph=False)
        with self.strategy.scope():
            optimizer.build(model.trainable_variables)

    @property
    def variables(self):
        """list of tf.Variable: what training needs besides model and optimizer to go on."""
        return [] if self.loss_scale is None else self.loss_scale.variables

    def run(self, iterator, first_step, steps):
        """Makes several updates.

        They end early where the data does, and before an update whose loss or gradient is not finite: that one is not
        made. (With a loss scale it is passed over, and the factor lowered, as long as that can help.)

        Args:
            iterator: iterator of a tf.data.Dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`. Under
                several workers each has its own, which gives this worker's part of every batch; if their data does not
                end at once, the work goes on with what the others have.
            first_step: int, the number of the first of the updates in the whole training, from 0.
            steps: int. Number of updates.

        Returns:
            dict of scalar tensors, summed over the updates and the replicas: `examples`; `tokens` and `places` (tokens
            without and with padding; 0 where the inputs have no padding mask); `steps`, how many there were; `skipped`,
            how many of them were passed over; `loss_terms`, a dict of each term's means over the batches that were not.
            Of the last batch: `last_loss_terms`; `gradient_norm`, before clipping; `failed`, whether the updates ended
            because it is not finite; `bad_variable`, the number of a trainable variable whose gradient is not, or -1.
        """
        return self._run(iterator, tf.constant(first_step, tf.int64), tf.constant(steps, tf.int64))

    def _run_updates(self, iterator, first_step, steps):
        def next_update(_, done, totals):
            part = iterator.get_next_as_optional()

            def update():
                batch = self._part_or_nothing(part, iterator.element_spec)
                new_totals = self._add(totals, self._update(batch, first_step + done))
                is_made = ~new_totals["failed"]
                return is_made, done + tf.cast(is_made, tf.int64), new_totals

            return tf.cond(self._any_worker(part.has_value()), update, lambda: (tf.constant(False), done, totals))

        _, done, totals = tf.while_loop(
            lambda goes_on, done, _: goes_on & (done < steps),
            next_update,
            (tf.constant(True), tf.zeros([], tf.int64), self._nothing(iterator.element_spec)),
        )
        return {**totals, "steps": done}

    def _any_worker(self, has_part):
        """Whether any worker has a part of the next batch."""
        if self._workers == 1:
            return has_part
        return self._one(self.strategy.run(lambda: sum_over_replicas(tf.cast(has_part, tf.float32)))) > 0

    def _part_or_nothing(self, part, batch_spec):
        """This worker's part of a batch; where it has none, and others do, a part without examples."""
        if self._workers == 1:
            return part.get_value()  # and its static shapes
        return tf.cond(part.has_value(), part.get_value, lambda: _nothing_of(batch_spec))

    def _nothing(self, batch_spec):
        """The totals before the first update; the loss terms are found out by tracing the weights alone."""
        _, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch_spec)
        weights = tf.function(self.model.loss_weights, autograph=False).get_concrete_function(labels, sample_weight)
        terms = {name: tf.zeros([]) for name in weights.structured_outputs}
        return {
            **{name: tf.zeros([], tf.int64) for name in (*_COUNTS, "skipped")},
            "loss_terms": terms,
            "last_loss_terms": terms,
            "gradient_norm": tf.zeros([]),
            "failed": tf.constant(False),
            "bad_variable": tf.constant(-1),
        }

    def _add(self, totals, new):
        """The totals with another update; one that was not made does not count for the loss."""
        is_passed_over = (new["skipped"] > 0) | new["failed"]
        return {
            **{name: totals[name] + tf.cast(new[name], tf.int64) for name in (*_COUNTS, "skipped")},
            "loss_terms": {
                name: total + tf.where(is_passed_over, 0.0, new["loss_terms"][name])
                for name, total in totals["loss_terms"].items()
            },
            "last_loss_terms": new["loss_terms"],
            **{name: new[name] for name in ("gradient_norm", "failed", "bad_variable")},
        }

    def _update(self, batch, step):
        factor = tf.ones([]) if self.loss_scale is None else self.loss_scale.factor.read_value()
        report = self.strategy.run(self._update_replica, args=(batch, step, factor))
        report = tf.nest.map_structure(self._one, report)
        is_finite, can_shrink = report.pop("is_finite"), tf.constant(False)
        if self.loss_scale is not None:
            can_shrink = factor > 1.0  # if 1 does not help either, the overflow is not one of float16
            self.loss_scale.update(is_finite)
        return {**report, "skipped": tf.cast(~is_finite & can_shrink, tf.int64), "failed": ~is_finite & ~can_shrink}

    def _one(self, value):
        """The value of one replica, where all have the same."""
        return self.strategy.experimental_local_results(value)[0]

    def _update_replica(self, batch, step, factor):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        local_replicas = get_num_local_replicas(self.strategy)
        if local_replicas > 1:
            refuse_windows(batch, f"{local_replicas} replicas")
            batch = slice_batch(batch, replica % local_replicas, local_replicas)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        weights = self._weights_of_batch(labels, sample_weight)
        gradients, sums, _ = self._gradients(batch, weights, step, replica, factor)

        sums = dict(zip(sums, tf.unstack(sum_over_replicas(tf.stack(list(sums.values())))), strict=True))
        terms = {name: tf.math.divide_no_nan(sums[name], weights[name]) for name in sums}
        counts = sum_over_replicas(_counts(inputs, labels))
        applied = self.optimizer.apply_if_finite(
            gradients, self.model.trainable_variables, loss=tf.add_n(list(terms.values())), loss_scale=factor
        )
        return {
            "loss_terms": terms,
            **dict(zip(_COUNTS, tf.unstack(counts), strict=True)),
            "gradient_norm": applied["norm"],
            "is_finite": applied["is_finite"],
            "bad_variable": self._bad_variable(gradients, applied["squared_norms"]),
        }

    def _weights_of_batch(self, labels, sample_weight):
        """What the loss terms are divided by."""
        if self._mean_loss_weights is not None:
            return {name: tf.constant(weight, tf.float32) for name, weight in self._mean_loss_weights.items()}
        return {
            name: sum_over_replicas(weight) for name, weight in self.model.loss_weights(labels, sample_weight).items()
        }

    def _bad_variable(self, gradients, squared_norms):
        """The number of the first trainable variable whose gradient is not finite, or -1."""
        numbers = tf.constant([number for number, gradient in enumerate(gradients) if gradient is not None])
        is_bad = ~tf.math.is_finite(squared_norms)
        return tf.where(tf.reduce_any(is_bad), numbers[tf.argmax(tf.cast(is_bad, tf.int32))], -1)


def _check(model, optimizer, strategy, gradient_accumulation_steps):
    missing = [name for name in ("loss_terms", "loss_weights") if not callable(getattr(model, name, None))]
    if missing:
        raise TypeError(f"{type(model).__name__} cannot be trained: it has no method {' and no '.join(missing)}")
    if not isinstance(optimizer, BertAdamW):
        raise TypeError(
            f"the optimizer must be a BertAdamW, which sums gradients over replicas before it clips them; got "
            f"{type(optimizer).__name__}. With other optimizers use Keras' `fit`"
        )
    if gradient_accumulation_steps < 1:
        raise ValueError(f"gradient_accumulation_steps must be at least 1, got {gradient_accumulation_steps}")
    if not model.trainable_variables:
        raise ValueError(f"{type(model).__name__} has no trainable variables; is all of it frozen?")
    if not all(strategy.extended.variable_created_in_scope(variable.value) for variable in model.trainable_variables):
        raise ValueError(
            f"{type(model).__name__} was made outside the strategy that is to train it; make model and optimizer "
            "inside strategy.scope()"
        )


def _counts(inputs, labels):
    """float32 [3]: examples, tokens without padding, and with it."""
    padding_mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
    tokens, places, padding_rows = 0, 0, 0
    if padding_mask is not None:
        tokens, places = tf.math.count_nonzero(padding_mask, dtype=tf.int32), tf.size(padding_mask)
        padding_rows = tf.reduce_sum(tf.cast(~tf.reduce_any(padding_mask != 0, axis=-1), tf.int32))
    rows = tf.shape(tf.nest.flatten(labels)[0])[0]
    return tf.cast(tf.stack([rows - padding_rows, tokens, places]), tf.float32)


def _nothing_of(spec):
    """A batch without rows, or, if it has a static shape and weights, with rows of weight 0; other sizes that are not
    known are 1."""
    has_weights = keras.utils.unpack_x_y_sample_weight(spec)[2] is not None

    def zeros(part):
        rows = part.shape[0] if has_weights else None
        return tf.zeros([rows or 0, *(size or 1 for size in part.shape[1:])], part.dtype)

    return tf.nest.map_structure(zeros, spec)
