"""BERT's optimizer: Adam with decoupled weight decay and clipping by global norm."""

import math
import re
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_bert.training.loss import sum_over_replicas

# Matches gamma and beta of layer normalization and every bias by the end of the variable's path: `layer_norm/gamma`,
# `query_key_value/bias`, `cls/predictions/output_bias`. Embeddings are decayed, as in the original.
EXCLUDE_FROM_WEIGHT_DECAY = (r"(^|/)(gamma|beta)$", r"(^|[/_])bias$")

_NOT_FINITE = (
    "BertAdamW: the global norm of the gradients is not finite, so no weight was changed in this step. Look for a NaN "
    "or infinity in the inputs or the loss, lower the learning rate, or compute in float32 or bfloat16, not float16"
)

Variable: TypeAlias = keras.Variable | tf.Variable


@dataclass(frozen=True)
class _Slot:
    """A variable to update, its running means, and how to update it."""

    variable: Variable
    momentum: keras.Variable
    velocity: keras.Variable
    is_decayed: bool
    rate_factor: float


@keras.saving.register_keras_serializable(package="keras_bert")
class BertAdamW(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and clipping by global norm, as the original BERT was trained.

    Source: google-research/bert `optimization.py` (`AdamWeightDecayOptimizer`); arXiv 1810.04805, appendix A.2. The
    arguments are those of `keras.optimizers.AdamW`, with BERT's defaults, and four more.

    `apply` makes the gradients dense, sums them over the replicas of the current `tf.distribute` strategy, clips the
    sum by its global norm, checks that the norm is finite, and only then updates. It works the same under Keras' `fit`
    and in a custom loop inside `strategy.run`, and gives the same weights on one device and on several. One update,
    where g is the clipped gradient and w the weight before the update:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        w = w - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)

    With `bias_correction`, m is divided by `1 - beta_1**t` and v by `1 - beta_2**t`, where t counts the updates from 1,
    as in `torch.optim.AdamW`.

    A gradient that is not finite raises `tf.errors.InvalidArgumentError` and changes no weight. XLA
    (`jit_compile=True`) cannot raise errors, so it skips such an update. For float16, this optimizer can be wrapped in
    Keras' `LossScaleOptimizer`, which skips overflows, but checks the first replica only: an overflow on another one
    raises. `apply_if_finite`, which `Trainer` uses, decides after the sum over the replicas.

    Differs from BERT: the original clips on each replica, before the sum over the replicas, which makes the result
    depend on their number; no argument restores that.

    Differs from BERT: gradients of an embedding row that occurs several times in a batch are summed before the norm is
    computed. Where the original gathers embeddings, its norm counts every occurrence by itself (1.3% off in a
    constructed case); where it multiplies by one-hot vectors, it is the same as here. No argument restores that.

    Differs from BERT: the original excludes a variable from the decay if `LayerNorm`, `layer_norm` or `bias` occurs
    anywhere in its path, which a model's name can trigger;
    `exclude_from_weight_decay=("LayerNorm", "layer_norm", "bias")` restores that.

    Args:
        learning_rate: A number, or a schedule such as `WarmupSchedule`. The default is the largest of the paper's three
            fine-tuning rates.
        weight_decay: Fraction of a weight that is subtracted per unit of learning rate.
        beta_1: Decay rate of the running mean of the gradients, in [0, 1).
        beta_2: Decay rate of the running mean of the squared gradients, in [0, 1).
        epsilon: Added to the square root of v; positive.
        clip_norm: Maximum global norm of the summed gradients. None does not clip.
        bias_correction: Whether to correct the bias of the running means towards 0, as Adam does (arXiv 1412.6980) and
            BERT does not. Stabilizes fine-tuning on small data sets (arXiv 2006.05987).
        exclude_from_weight_decay: Regular expressions searched for in `variable.path`; a variable in which one is
            found is not decayed. The default matches gamma, beta and biases.
        learning_rate_factors: Pairs of a regular expression and a factor. The learning rate of a variable is multiplied
            by the factor of the first expression found in `variable.path`, as for layer-wise decay
            (`BertEncoder.learning_rate_factors`).
        name: Name of the optimizer, and prefix of its variables.

    Raises:
        TypeError: If `exclude_from_weight_decay` is a string instead of a sequence of strings, or
            `learning_rate_factors` is not a sequence of pairs.
        ValueError: If a number is out of range or a regular expression is invalid.

    Example:

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
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,  # arXiv 1810.04805, appendix A.3
        weight_decay: float = 0.01,  # this and the next four: google-research/bert optimization.py
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = False,
        exclude_from_weight_decay: Iterable[str] = EXCLUDE_FROM_WEIGHT_DECAY,
        learning_rate_factors: Iterable[Sequence] = (),
        name: str = "bert_adamw",
    ) -> None:
        for argument, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= value < 1:
                raise ValueError(f"{argument} must be in [0, 1), got {value!r}")
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon must be greater than 0 and finite, got {epsilon!r}")
        if not 0 <= weight_decay < math.inf:
            raise ValueError(f"weight_decay must be a finite number of at least 0, got {weight_decay!r}")
        if clip_norm is not None and not 0 < clip_norm < math.inf:
            raise ValueError(f"clip_norm must be greater than 0 and finite, or None for no clipping; got {clip_norm!r}")
        if isinstance(learning_rate, float) and not 0 <= learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a finite number of at least 0, got {learning_rate!r}")
        exclusions = _compile_patterns(exclude_from_weight_decay, "exclude_from_weight_decay")
        factors = _compile_factors(learning_rate_factors)
        super().__init__(learning_rate=learning_rate, weight_decay=float(weight_decay), name=name)
        self._exclusions = exclusions
        self._rate_factors = factors
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)
        self.clip_norm = None if clip_norm is None else float(clip_norm)
        self.bias_correction = bool(bias_correction)

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the two running means of every variable; Keras calls this before the first update.

        Args:
            variables: Float32 or float64 variables of any shapes.

        Raises:
            TypeError: If a variable has fewer bits, in which `beta_2` would round to 1 and small steps to 0.

        Example:

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
                    f"BertAdamW updates float32 variables, got {variable.name!r} of {variable.dtype}. To compute in "
                    'fewer bits, build the model under keras.mixed_precision.set_global_policy("mixed_bfloat16")'
                )
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        # Slots by the id of their variable. Keras would take variables in a plain dict for the optimizer's own.
        self._slots = types.SimpleNamespace(by_id={})
        for variable, momentum, velocity in zip(variables, self._momentums, self._velocities, strict=True):
            is_decayed, factor = self.is_decayed(variable), self.learning_rate_factor(variable)
            self._slots.by_id[id(variable)] = _Slot(variable, momentum, velocity, is_decayed, factor)

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Excludes more variables from weight decay, as for Keras' own optimizers; call it before `build`.

        Args:
            var_list: Variables to exclude.
            var_names: Strings; a variable is excluded if its path contains one of them.

        Raises:
            ValueError: If the optimizer is built.

        Example:

        >>> optimizer = BertAdamW()
        >>> optimizer.exclude_from_weight_decay(var_names=["embeddings"])
        >>> optimizer.is_decayed(keras.Variable([1.0], name="embeddings"))
        False
        """
        if self.built:
            raise ValueError("exclude_from_weight_decay must be called before the optimizer is built")
        patterns = [f"^{re.escape(_get_path(variable))}$" for variable in var_list or ()]
        patterns += [re.escape(name) for name in var_names or ()]
        self._exclusions = (*self._exclusions, *map(re.compile, patterns))

    def is_decayed(self, variable: Variable) -> bool:
        """Returns whether weight decay is applied to a variable.

        Args:
            variable: A `keras.Variable`, or a `tf.Variable`, whose name is then taken as its path.

        Example:

        >>> dense = keras.layers.Dense(2, name="dense")
        >>> dense.build([1, 3])
        >>> [(variable.path, BertAdamW().is_decayed(variable)) for variable in dense.variables]
        [('dense/kernel', True), ('dense/bias', False)]
        """
        path = _get_path(variable)
        return not any(pattern.search(path) for pattern in self._exclusions)

    def learning_rate_factor(self, variable: Variable) -> float:
        """Returns the factor by which the learning rate of a variable is multiplied.

        Args:
            variable: See `is_decayed`.

        Example:

        >>> optimizer = BertAdamW(learning_rate_factors=[("embeddings", 0.5)])
        >>> optimizer.learning_rate_factor(keras.Variable([1.0], name="embeddings"))
        0.5
        """
        path = _get_path(variable)
        return next((factor for pattern, factor in self._rate_factors if pattern.search(path)), 1.0)

    def apply(
        self, grads: Sequence[tf.Tensor | None], trainable_variables: Sequence[Variable] | None = None
    ) -> tf.Tensor | None:
        """Makes the gradients dense, sums them over the replicas, clips and checks them, and updates the variables.

        Inside `strategy.run`, every replica passes its part of the gradient of the global batch's loss: the parts are
        added up, not averaged. There, the optimizer must be created and built (`optimizer.build(variables)`) inside
        `strategy.scope()`.

        Args:
            grads: Gradients, dense or `tf.IndexedSlices`, one per variable; None leaves its variable unchanged.
            trainable_variables: The variables. The default None means those that the optimizer was built with.

        Returns:
            The global norm of the summed gradients before clipping, a float32 scalar; None if `grads` is empty.

        Raises:
            RuntimeError: If called under a strategy but outside a replica, or on several replicas before it is built.
            TypeError: If a variable has fewer than 32 bits.
            ValueError: If all gradients are None, or a variable is not one that the optimizer was built with.
            tf.errors.InvalidArgumentError: If the global norm is NaN or infinite; no variable was changed.

        Example:

        >>> kernel = keras.Variable([1.0, 1.0], name="kernel")
        >>> norm = BertAdamW().apply([keras.ops.convert_to_tensor([3.0, 4.0])], [kernel])
        >>> float(norm)
        5.0
        """
        if not len(grads):
            return None
        return self._update(grads, trainable_variables, must_be_finite=True)["norm"]

    def apply_if_finite(
        self,
        grads: Sequence[tf.Tensor | None],
        trainable_variables: Sequence[Variable] | None = None,
        loss: tf.Tensor | float = 0.0,
        loss_scale: tf.Tensor | float = 1.0,
    ) -> dict[str, tf.Tensor]:
        """Like `apply`, but skips an update whose gradient is not finite instead of raising an error.

        A skipped update changes nothing, neither the step counter nor the running means. The decision is made after the
        sum over the replicas, so that it is the same on all of them.

        Args:
            grads, trainable_variables: See `apply`.
            loss: A scalar; the update is also skipped if it is not finite.
            loss_scale: Factor by which the loss was multiplied before it was differentiated, for float16.

        Returns:
            `norm`: as `apply` returns it, divided by the loss scale. `is_finite`: boolean scalar. `squared_norms`: the
            squared norm of every gradient that is not None, float32, not divided by the loss scale.

        Raises:
            RuntimeError, TypeError, ValueError: See `apply`.

        Example:

        >>> kernel = keras.Variable([1.0, 1.0], name="kernel")
        >>> optimizer = BertAdamW()
        >>> report = optimizer.apply_if_finite([keras.ops.convert_to_tensor([3.0, float("inf")])], [kernel])
        >>> bool(report["is_finite"]), int(optimizer.iterations), kernel.numpy().tolist()
        (False, 0, [1.0, 1.0])
        """
        return self._update(grads, trainable_variables, loss=loss, loss_scale=loss_scale)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, for Keras' serialization."""
        return {
            "learning_rate": super().get_config()["learning_rate"],
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

    def _update(
        self,
        grads: Sequence[tf.Tensor | None],
        variables: Sequence[Variable] | None,
        loss: tf.Tensor | float = 0.0,
        loss_scale: tf.Tensor | float = 1.0,
        must_be_finite: bool = False,
    ) -> dict[str, tf.Tensor]:
        slots = self._find_slots(variables)
        pairs = [pair for pair in zip(grads, slots, strict=True) if pair[0] is not None]
        if not pairs:
            raise ValueError("all gradients are None; the loss does not depend on the trainable variables")
        if len(pairs) < len(slots):
            paths = [_get_path(slot.variable) for gradient, slot in zip(grads, slots, strict=True) if gradient is None]
            warnings.warn(f"no gradients exist for these variables, which stay unchanged: {paths}", stacklevel=3)
        # Sums the rows that occur several times in a sparse gradient, which Keras' own optimizers do not.
        gradients = _sum_over_replicas([tf.convert_to_tensor(gradient) for gradient, _ in pairs])

        squared_norms = 2.0 * tf.stack([tf.nn.l2_loss(tf.cast(gradient, tf.float32)) for gradient in gradients])
        norm = tf.sqrt(tf.reduce_sum(squared_norms)) / loss_scale
        if must_be_finite:
            norm = tf.debugging.check_numerics(norm, _NOT_FINITE)  # everything written below depends on the norm
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(tf.cast(loss, tf.float32))
        factor = (1.0 if self.clip_norm is None else self.clip_norm / tf.maximum(norm, self.clip_norm)) / loss_scale
        factor = tf.where(is_finite, factor, 0.0)  # in a product where 0 * NaN is 0
        gradients = [tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype)) for gradient in gradients]

        with keras.name_scope(self.name):
            learning_rate = tf.where(is_finite, tf.cast(self.learning_rate, tf.float32), math.nan)
            strategy = tf.distribute.get_strategy()
            # Made once per type and factor, not per variable, which would double the operations of a training step.
            kinds = [(tf.as_dtype(slot.variable.dtype), slot.rate_factor) for _, slot in pairs]
            scalars = {kind: self._update_scalars(learning_rate, *kind) for kind in dict.fromkeys(kinds)}
            for gradient, (_, slot), kind in zip(gradients, pairs, kinds, strict=True):
                strategy.extended.update(
                    _get_value(slot.variable), self._make_updater(slot), args=(gradient, scalars[kind]), group=False
                )
                if getattr(slot.variable, "constraint", None) is not None:
                    slot.variable.assign(slot.variable.constraint(slot.variable))
        self.iterations.assign_add(tf.cast(is_finite, self.iterations.dtype))
        return {"norm": norm, "is_finite": is_finite, "squared_norms": squared_norms}

    def _find_slots(self, variables: Sequence[Variable] | None) -> list[_Slot]:
        """Returns the slots of variables; builds the optimizer before the first update."""
        if not self.built:
            if variables is None:
                raise ValueError("BertAdamW.apply needs trainable_variables, or an optimizer that was built with them")
            if tf.distribute.get_strategy().num_replicas_in_sync > 1:
                raise RuntimeError(
                    "BertAdamW.apply was called on several replicas before its variables were created. Before the "
                    "first step, call optimizer.build(trainable_variables) inside strategy.scope()"
                )
            self.build(list(variables))
        slots = self._slots.by_id
        if variables is None:
            return list(slots.values())
        unknown = [_get_path(variable) for variable in variables if id(variable) not in slots]
        if unknown:
            raise ValueError(f"BertAdamW was built without these variables: {unknown}; use another optimizer for them")
        return [slots[id(variable)] for variable in variables]

    def _update_scalars(self, learning_rate: tf.Tensor, dtype: tf.DType, rate_factor: float) -> dict[str, tf.Tensor]:
        """Returns the numbers in an update of variables of a type; a learning rate of NaN leaves them unchanged."""
        learning_rate = tf.cast(learning_rate, dtype)
        is_update = tf.math.is_finite(learning_rate)
        learning_rate = tf.where(is_update, learning_rate * rate_factor, 0.0)
        decay = learning_rate * self.weight_decay
        epsilon = tf.constant(self.epsilon, dtype)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, dtype)
            root = tf.sqrt(_one_minus_power(self.beta_2, step))
            learning_rate *= root / _one_minus_power(self.beta_1, step)
            epsilon *= root
        # The op computes 1 - beta_2 in the variable's type: 1 - float32(0.999) is 0.00099998713. That makes v too
        # small by a constant factor, by whose root the rate and epsilon are divided.
        v_root = math.sqrt((1 - self.beta_2) / (1 - float(dtype.as_numpy_dtype(self.beta_2))))
        # Betas of 1 leave the means unchanged.
        beta_1, beta_2 = (tf.where(is_update, tf.cast(beta, dtype), 1.0) for beta in (self.beta_1, self.beta_2))
        return {
            "decay": decay,
            "learning_rate": learning_rate / v_root,
            "epsilon": epsilon / v_root,
            "beta_1": beta_1,
            "beta_2": beta_2,
        }

    def _make_updater(self, slot: _Slot) -> Callable[[tf.Variable, tf.Tensor, dict[str, tf.Tensor]], None]:
        """Returns a function of a device's copy of the slot's variable, its gradient and the update's scalars."""

        def update(variable: tf.Variable, gradient: tf.Tensor, scalars: dict[str, tf.Tensor]) -> None:
            if self.weight_decay and slot.is_decayed:
                # Adam's step does not depend on the weight, so decaying first gives the original's sum of both. As a
                # difference, not as a product with 1 - rate * decay: that would keep one digit of a decay of 5e-7.
                variable.assign_sub(variable * scalars["decay"])
            # The op subtracts lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon). With powers of
            # 0, that is Adam without bias correction, in one pass over the memory instead of a dozen.
            zero = tf.zeros([], variable.dtype)
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=slot.momentum.value.handle,
                v=slot.velocity.value.handle,
                beta1_power=zero,
                beta2_power=zero,
                lr=scalars["learning_rate"],
                beta1=scalars["beta_1"],
                beta2=scalars["beta_2"],
                epsilon=scalars["epsilon"],
                grad=tf.cast(gradient, variable.dtype),
            )

        return update


def _one_minus_power(beta: float, step: tf.Tensor) -> tf.Tensor:
    """Returns `1 - beta**step` without the cancellation that costs it five digits in float32."""
    return -tf.math.expm1(step * (math.log(beta) if beta else -math.inf))


def _sum_over_replicas(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    if tf.distribute.get_replica_context() is None:
        raise RuntimeError(
            "BertAdamW.apply was called under a tf.distribute strategy but outside a replica, where there are no "
            "gradients to sum. Call it in the function that is passed to strategy.run"
        )
    return sum_over_replicas(gradients)


def _get_path(variable: Variable) -> str:
    return variable.path if hasattr(variable, "path") else variable.name.split(":")[0]


def _get_value(variable: Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _compile_factors(pairs: Iterable[Sequence]) -> tuple[tuple[re.Pattern, float], ...]:
    try:
        pairs = [(pattern, float(factor)) for pattern, factor in pairs]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"learning_rate_factors must be pairs of a regular expression and a number, got {pairs!r}"
        ) from error
    if not all(0 <= factor < math.inf for _, factor in pairs):
        raise ValueError(f"learning_rate_factors must be at least 0 and finite, got {pairs!r}")
    patterns = _compile_patterns([pattern for pattern, _ in pairs], "learning_rate_factors")
    return tuple(zip(patterns, (factor for _, factor in pairs), strict=True))


def _compile_patterns(patterns: Iterable[str], argument: str) -> tuple[re.Pattern, ...]:
    if isinstance(patterns, str):
        raise TypeError(
            f"{argument} must be a sequence of regular expressions, got the string {patterns!r}. "
            f"Write ({patterns!r},), or () to decay every variable"
        )
    try:
        return tuple(re.compile(pattern) for pattern in patterns)
    except re.error as error:
        raise ValueError(
            f"{argument} contains {error.pattern!r}, which is not a regular expression: {error}"
        ) from error
