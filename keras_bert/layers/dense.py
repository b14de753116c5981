"""A dense layer, its low-rank adapter, and the activations that a BERT configuration can name."""

import math
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert.layers.base_layer import BaseLayer
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.seeds import derive_seed
from keras_bert.typing import Tensor

# "gelu" and "gelu_new" are Hugging Face's names. They differ by up to 4.7e-4. google-research/bert writes "gelu" and
# computes the tanh form (modeling.py); its reader translates the name.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: ops.gelu(x, approximate=False),  # with erf
    "gelu_new": lambda x: ops.gelu(x, approximate=True),  # the tanh form
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """Returns the function of a `hidden_act`."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"unknown activation: hidden_act={name!r}; allowed are {sorted(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


_LORA_ARGUMENTS = ("lora_rank", "lora_alpha", "lora_dropout", "lora_parts")
_WHOLE = (True,)  # one adapter for all columns of a kernel


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(BaseLayer):
    """`activation(x @ kernel + bias)` over the last axis, [..., input size] -> [..., units].

    Inputs are flattened to two dimensions, as in google-research/bert (modeling.py): Keras' own Dense multiplies a
    batch of matrices, whose gradient for the kernel is a batch of products that are summed afterwards.

    With `lora_rank`, the built layer has a low-rank adapter; see `enable_lora`. `kernel` remains the variable without
    the adapter, and `merged_kernel` returns the sum.
    """

    def __init__(
        self,
        units: int,
        activation: str = "linear",
        initializer_range: float = 0.02,
        seed: int | None = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        lora_dropout: float = 0.0,
        lora_parts: Sequence[bool] = _WHOLE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.activation = activation
        self.initializer_range = initializer_range
        self.seed = seed
        self._set_lora(lora_rank, lora_alpha, lora_dropout, lora_parts)
        self.lora_enabled = False
        self._activation_function = get_activation(activation)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates `kernel` [input size, units] and `bias` [units], and the adapter if the layer has one."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], self.units),
            initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range, seed=self.seed),
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")
        if self.lora_rank is not None:
            self._add_adapter("he_uniform", "zeros")

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
        lora_dropout: float = 0.0,
        lora_parts: Sequence[bool] = _WHOLE,
    ) -> None:
        """Freezes the kernel and adds a trainable low-rank adapter to it (LoRA, arXiv 2106.09685).

        The layer then computes `activation(x @ (kernel + lora_alpha / rank * a @ b) + bias)`. Arguments and attributes
        are those of `keras.layers.Dense`, except for the last two arguments: `lora_kernel_a` and `lora_kernel_b` are
        float32 in every dtype policy, and the bias stays trainable.

        Enable LoRA before the layer is used in a compiled function and before an optimizer is built.

        Args:
            rank: the rank of the adapter.
            lora_alpha: the adapter is scaled by `lora_alpha / rank`; None means `rank`, a scale of 1.
            a_initializer: initializer of `lora_kernel_a` [input size, rank].
            b_initializer: initializer of `lora_kernel_b` [rank, units]; zeros leave the outputs unchanged at first.
            lora_dropout: rate of the dropout on the adapter's input.
            lora_parts: for a kernel with several matrices side by side, which of them have an adapter of their own:
                (True, False, True) adapts the first and the third of three. Both variables then hold the adapters side
                by side: [input size, adapters * rank] and [rank, adapters * units of a part].

        Raises:
            ValueError: if the layer is not built, LoRA is enabled already, or an argument is out of range.

        Example:

        >>> dense = Dense(6)
        >>> dense.build((None, 4))
        >>> dense.enable_lora(2, lora_alpha=4)
        >>> [(weight.name, tuple(weight.shape)) for weight in dense.trainable_weights]
        [('bias', (6,)), ('lora_kernel_a', (4, 2)), ('lora_kernel_b', (2, 6))]
        """
        if not self.built:
            raise ValueError(f"the layer {self.name!r} has no kernel yet; build it before `enable_lora`")
        if self.lora_enabled:
            raise ValueError(
                f"the layer {self.name!r} has an adapter of rank {self.lora_rank} already; LoRA can be enabled once"
            )
        check_lora(rank, lora_alpha)
        self._set_lora(rank, lora_alpha, lora_dropout, lora_parts)
        self._tracker.unlock()  # private to Keras, whose own `enable_lora` adds the variables in the same way
        try:
            self._add_adapter(a_initializer, b_initializer)
        finally:
            self._tracker.lock()

    def _set_lora(self, rank: int | None, alpha: float | None, dropout: float, parts: Sequence[bool]) -> None:
        if rank is not None:
            check_lora(rank, alpha)
            if not any(parts) or self.units % len(parts):
                raise ValueError(
                    f"lora_parts must select at least one of equal parts of {self.units} columns; got {tuple(parts)}"
                )
        self.lora_rank = rank
        self.lora_alpha = rank if alpha is None else alpha
        self.lora_dropout = dropout
        self.lora_parts = tuple(bool(part) for part in parts)

    def _add_adapter(self, a_initializer: Any, b_initializer: Any) -> None:
        assert self.lora_rank is not None
        number, width = sum(self.lora_parts), self.units // len(self.lora_parts)
        # float32, as in Keras: the products of small numbers would underflow.
        self.lora_kernel_a = self.add_weight(
            name="lora_kernel_a",
            shape=(self.kernel.shape[0], number * self.lora_rank),
            initializer=keras.initializers.get(a_initializer),
            dtype="float32",
        )
        self.lora_kernel_b = self.add_weight(
            name="lora_kernel_b",
            shape=(self.lora_rank, number * width),
            initializer=keras.initializers.get(b_initializer),
            dtype="float32",
        )
        if self.lora_dropout:
            seed = derive_seed(self.seed, "lora_dropout")
            self.lora_input_dropout = Dropout(self.lora_dropout, seed, dtype=self.dtype_policy, name="lora_dropout")
        self.kernel.trainable = False
        self.lora_enabled = True

    @property
    def lora_scale(self) -> float:
        """Factor of the product of the adapter's matrices."""
        assert self.lora_rank is not None and self.lora_alpha is not None
        return self.lora_alpha / self.lora_rank

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Maps the last axis of `x`."""
        # Rows stay as they are: shapes cost time in small batches.
        rows = x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))  # [rows, input size]
        if self.lora_enabled:
            rows = self._adapted(rows, training)
        elif keras.backend.backend() == "tensorflow":
            from keras_bert.layers.tensorflow.fast_dense import dense

            kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
            rows = dense(rows, kernel, bias, self.activation, self._activation_function, training)
        else:
            rows = self._activation_function(ops.matmul(rows, self.kernel) + self.bias)  # [rows, units]
        return rows if len(x.shape) == 2 else ops.reshape(rows, (*ops.shape(x)[:-1], self.units))

    def _adapted(self, rows: Tensor, training: bool) -> Tensor:
        """Maps rows [rows, input size] by kernel and adapter; no matrix of the kernel's size is computed."""
        adapter_rows = self.lora_input_dropout(rows, training=training) if self.lora_dropout else rows
        low = ops.matmul(adapter_rows, self.lora_kernel_a)  # [rows, adapters * rank]
        adapter = ops.matmul(low, self._expanded_b()) * self.lora_scale  # [rows, units]
        if keras.backend.backend() != "tensorflow":
            return self._activation_function(ops.matmul(rows, self.kernel) + self.bias + adapter)
        from keras_bert.layers.tensorflow.fast_dense import activate, dense

        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        before = dense(rows, kernel, bias, "linear", get_activation("linear"), training) + adapter
        return activate(before, self.activation, self._activation_function, training)

    def _expanded_b(self) -> Tensor:
        """Returns `lora_kernel_b` as [adapters * rank, units]: each adapter's rows are zero outside of its part."""
        b = ops.convert_to_tensor(self.lora_kernel_b)
        if len(self.lora_parts) == 1:
            return b
        blocks = iter(ops.split(b, sum(self.lora_parts), axis=1))
        zeros = ops.zeros((self.lora_rank, self.units // len(self.lora_parts)), b.dtype)
        rows = []
        for part, is_adapted in enumerate(self.lora_parts):
            if is_adapted:
                columns = [zeros] * len(self.lora_parts)
                columns[part] = next(blocks)
                rows.append(ops.concatenate(columns, axis=1))
        return ops.concatenate(rows, axis=0)

    def merged_kernel(self) -> np.ndarray:
        """Returns the kernel with the adapter added, in the kernel's dtype."""
        kernel = np.asarray(ops.convert_to_numpy(self.kernel))
        if not self.lora_enabled:
            return kernel
        a, b = (np.asarray(ops.convert_to_numpy(part)) for part in (self.lora_kernel_a, self.lora_kernel_b))
        return merge_adapter(kernel, a, b, self.lora_scale, self.lora_parts)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the input's shape with `units` as the last axis."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **{name: getattr(self, name) for name in _LORA_ARGUMENTS}}

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Saves kernel, bias and adapter."""
        if not self.lora_enabled:
            return super().save_own_variables(store)
        store["0"], store["1"] = self.kernel, self.bias
        store["lora_kernel_a"], store["lora_kernel_b"] = self.lora_kernel_a, self.lora_kernel_b
        # With these, a layer without LoRA can load the sum.
        store["lora_scale"] = np.array([self.lora_scale])
        store["lora_parts"] = np.array(self.lora_parts, "int8")

    def load_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Loads kernel, bias and adapter.

        A layer without LoRA loads the sum of a kernel and its adapter. A layer with LoRA that loads a kernel without
        an adapter starts with an adapter of zero.
        """
        has_adapter = "lora_kernel_a" in store.keys()  # noqa: SIM118  Keras' store only has the method
        if not self.lora_enabled and not has_adapter:
            return super().load_own_variables(store)
        kernel = np.array(store["0"])
        if has_adapter:
            a, b = np.array(store["lora_kernel_a"]), np.array(store["lora_kernel_b"])
            scale, parts = float(np.array(store["lora_scale"])[0]), tuple(np.array(store["lora_parts"]).astype(bool))
            if not self.lora_enabled:
                kernel = merge_adapter(kernel, a, b, scale, parts)
            elif (b.shape[0], scale, parts) != (self.lora_rank, self.lora_scale, self.lora_parts):
                raise ValueError(
                    f"the adapter of {self.path} has the rank {self.lora_rank} and the scale {self.lora_scale:g}, that "
                    f"in the file {b.shape[0]} and {scale:g}, or other parts; load it into a layer with the same"
                )
            else:
                self.lora_kernel_a.assign(a)
                self.lora_kernel_b.assign(b)
        else:
            self.lora_kernel_b.assign(ops.zeros(self.lora_kernel_b.shape))
        self.kernel.assign(kernel)
        self.bias.assign(np.array(store["1"]))


def check_lora(rank: Any, alpha: Any) -> None:
    """Raises ValueError unless the rank is a positive integer, and alpha None or a positive number."""
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"the rank of LoRA must be an integer of at least 1, got {rank!r}")
    is_number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool)
    if alpha is not None and not (is_number and 0 < alpha < math.inf):
        raise ValueError(f"lora_alpha must be a positive number, got {alpha!r}")


def merge_adapter(kernel: np.ndarray, a: np.ndarray, b: np.ndarray, scale: float, parts: Sequence[bool]) -> np.ndarray:
    """Returns `kernel + scale * a @ b`, computed in float32, in the dtype of the kernel.

    `parts` is a flag for each of the equal parts of the kernel's columns, whether it has an adapter; see
    `Dense.enable_lora`.

    >>> merge_adapter(np.zeros([1, 4]), np.ones([1, 1]), np.ones([1, 2]), 3.0, (False, True))
    array([[0., 0., 3., 3.]])
    """
    rank, width = b.shape[0], kernel.shape[1] // len(parts)
    merged = kernel.astype("float32")
    for number, part in enumerate(index for index, is_adapted in enumerate(parts) if is_adapted):
        columns = slice(part * width, (part + 1) * width)
        product = a[:, number * rank : (number + 1) * rank] @ b[:, number * width : (number + 1) * width]
        merged[:, columns] += np.float32(scale) * product
    return merged.astype(kernel.dtype)
