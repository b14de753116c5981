"""The optimizer that BERT was trained with: Adam without bias correction, with decoupled weight decay."""

import math
import re

import keras
import tensorflow as tf

from keras_bert.training.loss import sum_over_replicas

# The layer normalisations' gamma and beta, and every bias, by the last part of the variable's path: `layer_norm/gamma`,
# `query_key_value/bias`, `cls/predictions/output_bias`. Embeddings are decayed, as in the original.
EXCLUDE_FROM_WEIGHT_DECAY = (r"(^|/)(gamma|beta)$", r"(^|[/_])bias$")

_NOT_FINITE = (
    "BertAdamW: the global norm of the gradients is not finite, so no weight was changed in this step. Look for a NaN "
    "or infinity in the inputs or the loss, lower the learning rate, or compute in float32 or bfloat16, not float16"
)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertAdamW(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and clipping by global norm, as the original BERT was trained.

    Source: google-research/bert `optimization.py` (`AdamWeightDecayOptimizer`); arXiv 1810.04805, appendix A.2.

    `apply` makes the gradients dense (rows that occur twice in a sparse gradient are summed), sums them over the
    replicas of the current `tf.distribute` strategy, clips the sum by its global norm, checks that the norm is finite,
    and only then updates. It is the same code under Keras' `fit` and in a custom loop inside `strategy.run`, and gives
    the same weights on one device and on several. One update, with g the clipped gradient and w the weight before it:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        w = w - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)

    A gradient that is not finite raises `tf.errors.InvalidArgumentError` and changes no weight. XLA
    (`jit_compile=True`) cannot raise: there such an update is left out. Keras' `LossScaleOptimizer` may wrap this
    optimizer for float16 and skips an overflow before it arrives here. It looks at the first replica only: an overflow
    on another one raises, too. `apply_if_finite` decides after the sum over the replicas; `Trainer` uses that.

    Differs from BERT: the original clips on each replica, before the sum over the replicas, which makes the result
    depend on their number; no argument restores that. It excludes a variable from the decay where `LayerNorm`,
    `layer_norm` or `bias` stands anywhere in its path, which a model's name can trigger;
    `exclude_from_weight_decay=("LayerNorm", "layer_norm", "bias")` restores that.

    Args:
        learning_rate: float, or a schedule such as `WarmupSchedule`. Defaults to 5e-5.
        weight_decay: float. Fraction of a weight that is taken off per unit of learning rate. Defaults to 0.01.
        beta_1: float in [0, 1). Decay of the mean of the gradients. Defaults to 0.9.
        beta_2: float in [0, 1). Decay of the mean of the squared gradients. Defaults to 0.999.
        epsilon: float. Added to the square root of the uncorrected mean of squares. Defaults to 1e-6.
        clip_norm: float or None. Largest global norm of the summed gradients; None does not clip. Defaults to 1.0.
        bias_correction: bool. Whether to multiply the step by `sqrt(1 - beta_2**t) / (1 - beta_1**t)`, as Adam does
            (arXiv 1412.6980, end of section 2) and BERT does not. It steadies fine-tuning on small sets (arXiv
            2006.05987). Defaults to False.
        exclude_from_weight_decay: sequence of str. Regular expressions searched for in `variable.path`; where one is
            found, the variable is not decayed. Defaults to `EXCLUDE_FROM_WEIGHT_DECAY`: gamma, beta and biases.
        learning_rate_factors: sequence of (regular expression, factor). The learning rate of a variable is multiplied
            by the factor of the first expression that is found in `variable.path`, as for layer-wise decay
            (`BertEncoder.learning_rate_factors`). Defaults to none.
        name: str. Name of the optimizer's own variables. Defaults to `"bert_adamw"`.

    Raises:
        TypeError: if `exclude_from_weight_decay` is one string instead of a sequence of strings, or
            `learning_rate_factors` is no sequence of pairs.
        ValueError: if a number is out of its range or a regular expression cannot be read.

    Example:

    >>> import keras
    >>> kernel = keras.Variable([[2.0]], name="kernel")
    >>> optimizer = BertAdamW(learning_rate=0.1, weight_decay=0.0)
    >>> norm = optimizer.apply([keras.ops.convert_to_tensor([[3.0]])], [kernel])
    >>> float(norm)
    3.0
    >>> round(float(kernel.numpy()[0, 0]), 4)  # 2 - 0.1 * (1 - 0.9) / sqrt(1 - 0.999), for the gradient clipped to 1
    1.6838
    """

    def __init__(
        self,
        learning_rate=5e-5,  # the largest of the paper's three fine-tuning rates, appendix A.3
        weight_decay=0.01,  # this and the next four: google-research/bert optimization.py
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        bias_correction=False,
        exclude_from_weight_decay=EXCLUDE_FROM_WEIGHT_DECAY,
        learning_rate_factors=(),
        name="bert_adamw",
    ):
        for argument, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= value < 1:
                raise ValueError(f"{argument} must lie in [0, 1). Received: {value!r}")
        if not epsilon > 0:
            raise ValueError(f"epsilon must be greater than 0. Received: {epsilon!r}")
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay must be a number of at least 0. Received: {weight_decay!r}")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm must be greater than 0, or None for no clipping. Received: {clip_norm!r}")
        if isinstance(learning_rate, float) and not learning_rate >= 0:
            raise ValueError(f"learning_rate must be at least 0. Received: {learning_rate!r}")
        exclusions = _compile_all(exclude_from_weight_decay)
        factors = _factors_by_pattern(learning_rate_factors)
        super().__init__(learning_rate=learning_rate, weight_decay=float(weight_decay), name=name)
        self._exclusions = exclusions
        self._rate_factors = factors
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)
        self.clip_norm = None if clip_norm is None else float(clip_norm)
        self.bias_correction = bool(bias_correction)

    def build(self, variables):
        """Create the two running means of every variable; Keras calls this before the first update.

        Args:
            variables: list of float32 or float64 `keras.Variable`, of any shapes.

        Raises:
            TypeError: if a variable has fewer bits, in which `beta_2` would round to 1 and small steps to nothing.

        Example:

        >>> import keras
        >>> optimizer = BertAdamW()
        >>> optimizer.build([keras.Variable([1.0, 2.0], name="kernel")])
        >>> len(optimizer.variables)  # iterations, learning rate and two means
        4
        """
        if self.built:
            return
        for variable in variables:
            if keras.backend.standardize_dtype(variable.dtype) not in ("float32", "float64"):
                raise TypeError(
                    f"BertAdamW updates float32 variables. Received: {variable.name!r} of {variable.dtype}. To compute "
                    'in fewer bits, build the model under keras.mixed_precision.set_global_policy("mixed_bfloat16").'
                )
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        # Decided here and not in `update_step`, which is given TensorFlow's variables: they have no path.
        self._decayed = tuple(self.is_decayed(variable) for variable in variables)
        self._factors = tuple(self.learning_rate_factor(variable) for variable in variables)

    def is_decayed(self, variable):
        """Say whether weight decay is applied to a variable.

        Args:
            variable: `keras.Variable`, or a `tf.Variable`, whose name then stands for its path.

        Returns:
            bool.

        Example:

        >>> import keras
        >>> dense = keras.layers.Dense(2, name="dense")
        >>> dense.build([1, 3])
        >>> [(variable.path, BertAdamW().is_decayed(variable)) for variable in dense.variables]
        [('dense/kernel', True), ('dense/bias', False)]
        """
        path = _path_of(variable)
        return not any(pattern.search(path) for pattern in self._exclusions) and self._use_weight_decay(variable)

    def learning_rate_factor(self, variable):
        """Say what the learning rate is multiplied by for a variable.

        Args:
            variable: as for `is_decayed`.

        Returns:
            float.

        Example:

        >>> import keras
        >>> optimizer = BertAdamW(learning_rate_factors=[("embeddings", 0.5)])
        >>> optimizer.learning_rate_factor(keras.Variable([1.0], name="embeddings"))
        0.5
        """
        path = _path_of(variable)
        return next((factor for pattern, factor in self._rate_factors if pattern.search(path)), 1.0)

    def apply(self, grads, trainable_variables=None):
        """Make the gradients dense, sum them over the replicas, clip, check, and update the variables.

        Inside `strategy.run` every replica passes its part of the gradient of the global batch's loss: the parts are
        added up, not averaged. There the optimizer must be made and built (`optimizer.build(variables)`) inside
        `strategy.scope()`.

        Args:
            grads: list of float tensors or `tf.IndexedSlices`, one per variable; None for a variable left as it is.
            trainable_variables: list of `keras.Variable`. Defaults to None: those that the optimizer was built with.

        Returns:
            float32 scalar tensor: the global norm of the summed gradients, before clipping. None if `grads` is empty.

        Raises:
            RuntimeError: if called under a strategy but outside a replica, or on several replicas before it is built.
            TypeError: if a variable has fewer than 32 bits.
            ValueError: if all gradients are None, or a variable is not one of those that the optimizer was built with.
            tf.errors.InvalidArgumentError: if the global norm is NaN or infinite; no variable was changed.

        Example:

        >>> import keras
        >>> kernel = keras.Variable([1.0, 1.0], name="kernel")
        >>> norm = BertAdamW().apply([keras.ops.convert_to_tensor([3.0, 4.0])], [kernel])
        >>> float(norm)
        5.0
        """
        if not len(grads):
            return None
        return self._update(grads, trainable_variables, must_be_finite=True)["norm"]

    def apply_if_finite(self, grads, trainable_variables=None, loss=0.0, loss_scale=1.0):
        """As `apply`, but says of a gradient that is not finite instead of raising; nothing is changed then.

        Not even the step counter is, nor the running means: it is as if the batch had not been seen. The decision is
        taken after the sum over the replicas, so that all of them decide the same.

        Args:
            grads, trainable_variables: as for `apply`.
            loss: float scalar tensor. The update is left out where this is not finite, too.
            loss_scale: float scalar tensor. What the loss was multiplied by before it was differentiated, for float16.

        Returns:
            dict: `norm` as `apply` returns, without the loss scale; `is_finite`, bool scalar tensor; `squared_norms`,
            float32 tensor with one number for every gradient that is not None, with the loss scale.

        Raises:
            RuntimeError, TypeError, ValueError: as `apply`.

        Example:

        >>> import keras
        >>> kernel = keras.Variable([1.0, 1.0], name="kernel")
        >>> optimizer = BertAdamW()
        >>> report = optimizer.apply_if_finite([keras.ops.convert_to_tensor([3.0, float("inf")])], [kernel])
        >>> bool(report["is_finite"]), int(optimizer.iterations), kernel.numpy().tolist()
        (False, 0, [1.0, 1.0])
        """
        return self._update(grads, trainable_variables, loss=loss, loss_scale=loss_scale)

    def update_step(self, gradient, variable, learning_rate):
        """Update one variable and its two running means; `apply` calls this.

        Args:
            gradient: float tensor of the variable's shape, summed over replicas and clipped.
            variable: `tf.Variable`, the one that lies on the current device.
            learning_rate: float scalar tensor; NaN leaves all three as they are, whatever the gradient, which then has
                to be zero.

        Example:

        >>> import keras
        >>> kernel = keras.Variable([1.0], name="kernel")
        >>> optimizer = BertAdamW()
        >>> optimizer.build([kernel])
        >>> optimizer.update_step(keras.ops.convert_to_tensor([0.0]), kernel.value, 1.0)
        >>> kernel.numpy()  # only the weight decay moved it
        array([0.99], dtype=float32)
        """
        index = self._get_variable_index(variable)
        learning_rate = tf.cast(learning_rate, variable.dtype)
        is_update = tf.math.is_finite(learning_rate)
        learning_rate = tf.where(is_update, learning_rate * self._factors[index], 0.0)
        # A mean that keeps all of itself and takes in nothing of the gradient stays as it is.
        beta_1, beta_2 = (
            tf.where(is_update, tf.cast(beta, variable.dtype), 1.0) for beta in (self.beta_1, self.beta_2)
        )
        gradient = tf.cast(gradient, variable.dtype)
        if self.weight_decay and self._decayed[index]:
            # Adam's step does not depend on the weight, so taking the decay off first is the original's sum of both.
            # As a difference, not as a product with 1 - rate * decay: of a decay of 5e-7 that keeps one digit.
            variable.assign_sub(variable * (learning_rate * self.weight_decay))
        powers = (0.0, 0.0)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, variable.dtype)
            powers = (self.beta_1**step, self.beta_2**step)
        # The op subtracts rate * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon): with powers of 0
        # it is Adam without bias correction, in one pass over the memory instead of a dozen.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.cast(powers[0], variable.dtype),
            beta2_power=tf.cast(powers[1], variable.dtype),
            lr=learning_rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, variable.dtype),
            grad=gradient,
        )

    def get_config(self):
        """Return the constructor arguments, for Keras' serialization.

        Returns:
            dict from argument name to number, string, list of strings or serialized schedule.

        Example:

        >>> optimizer = BertAdamW.from_config(BertAdamW(clip_norm=None).get_config())
        >>> optimizer.clip_norm is None
        True
        """
        config = super().get_config()
        return {
            "learning_rate": config["learning_rate"],
            "weight_decay": self.weight_decay,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "clip_norm": self.clip_norm,
            "bias_correction": self.bias_correction,
            "exclude_from_weight_decay": [pattern.pattern for pattern in self._exclusions],
            "learning_rate_factors": [[pattern.pattern, factor] for pattern, factor in self._rate_factors],
            "name": self.name,
        }

    def _update(self, grads, variables, loss=0.0, loss_scale=1.0, must_be_finite=False):
        gradients, variables = self._filter_empty_gradients(grads, self._variables_to_update(variables))
        # A sparse gradient's rows that occur more than once are summed by this, which Keras' own optimizers omit.
        gradients = _sum_over_replicas([tf.convert_to_tensor(gradient) for gradient in gradients])

        squared_norms = tf.stack([2.0 * tf.nn.l2_loss(tf.cast(gradient, tf.float32)) for gradient in gradients])
        norm = tf.sqrt(tf.reduce_sum(squared_norms)) / loss_scale
        if must_be_finite:
            norm = tf.debugging.check_numerics(norm, _NOT_FINITE)  # all that is written depends on the norm
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(tf.cast(loss, tf.float32))
        factor = (1.0 if self.clip_norm is None else self.clip_norm / tf.maximum(norm, self.clip_norm)) / loss_scale
        factor = tf.where(is_finite, factor, 0.0)  # in a product where 0 * NaN is 0
        gradients = [tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype)) for gradient in gradients]

        with keras.name_scope(self.name):
            learning_rate = tf.where(is_finite, tf.cast(self.learning_rate, tf.float32), math.nan)
            self._backend_update_step(gradients, variables, learning_rate)
            for variable in variables:
                if variable.constraint is not None:
                    variable.assign(variable.constraint(variable))
        self.iterations.assign_add(tf.cast(is_finite, self.iterations.dtype))
        return {"norm": norm, "is_finite": is_finite, "squared_norms": squared_norms}

    def _variables_to_update(self, variables):
        if variables is None:
            if not self.built:
                raise ValueError("BertAdamW.apply needs trainable_variables, or an optimizer that was built with them")
            return self._trainable_variables
        if not self.built:
            if tf.distribute.get_strategy().num_replicas_in_sync > 1:
                raise RuntimeError(
                    "BertAdamW.apply was called on several replicas before its variables were made. Before the first "
                    "step, call optimizer.build(trainable_variables) inside strategy.scope()."
                )
            self.build(list(variables))
        self._check_variables_are_known(variables)
        return list(variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return list(grads_and_vars)  # Keras would sum here, after clipping; `apply` has done it before

    def _apply_weight_decay(self, variables):
        """Do nothing: Keras would decay here, by other rules of exclusion; `update_step` does it."""


def _sum_over_replicas(gradients):
    if tf.distribute.get_replica_context() is None:
        raise RuntimeError(
            "BertAdamW.apply was called under a tf.distribute strategy but outside a replica, where there are no "
            "gradients to sum. Call it in the function that is given to strategy.run."
        )
    return sum_over_replicas(gradients)


def _path_of(variable):
    return variable.path if hasattr(variable, "path") else variable.name.split(":")[0]


def _factors_by_pattern(pairs):
    try:
        patterns, factors = [pattern for pattern, _ in pairs], [float(factor) for _, factor in pairs]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"learning_rate_factors must be pairs of a regular expression and a number. Received: {pairs!r}"
        ) from error
    if not all(0 <= factor < math.inf for factor in factors):
        raise ValueError(f"learning_rate_factors must be at least 0 and finite. Received: {pairs!r}")
    return tuple(zip(_compile_all(patterns, "learning_rate_factors"), factors, strict=True))


def _compile_all(patterns, argument="exclude_from_weight_decay"):
    if isinstance(patterns, str):
        raise TypeError(
            f"{argument} must be a sequence of regular expressions. Received one string: {patterns!r}. "
            f"Write ({patterns!r},), or () to decay every variable."
        )
    try:
        return tuple(re.compile(pattern) for pattern in patterns)
    except re.error as error:
        raise ValueError(f"{argument} holds {error.pattern!r}, which is not a regular expression: {error}.") from error
