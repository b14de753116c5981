"""Base class of the layers, and the creation of sublayers."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras

from keras_bert.layers.seeds import derive_seed

LayerT = TypeVar("LayerT")


class BaseLayer(keras.layers.Layer):
    """A layer that has each argument of its constructor as an attribute of the same name."""

    def compute_output_shape(self, input_shape: Sequence[int | None], *other_shapes: Any) -> Sequence[int | None]:
        """Returns the shape of the first input."""
        return input_shape

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """Raises ValueError. Keras' `Model.quantize` only warns of layers without this method, and changes nothing.

        A model of which Keras has quantized other layers before it meets one of these has to be created again.
        """
        raise ValueError(
            f"{type(self).__name__} {self.path!r} cannot be quantized (mode={mode!r}): keras_bert's layers compute in "
            'float32, bfloat16 or float16. `export(path, format="onnx", quantize="int8_dynamic")`, or another format, '
            'writes a model with int8 weights, and `export(path, dtype="bfloat16")` one of half the size. To quantize '
            "other layers of a model, leave these out with `filters`"
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **constructor_arguments(self, type(self).__init__)}


def constructor_arguments(instance: Any, constructor: Callable[..., None]) -> dict[str, Any]:
    """Returns the attributes that are named like the arguments of a constructor, without `**kwargs`."""
    names = inspect.signature(constructor).parameters
    return {name: getattr(instance, name) for name in names if name not in ("self", "kwargs")}


def create_sublayer(parent: Any, kind: Callable[..., LayerT], name: str, *arguments: Any, **keywords: Any) -> LayerT:
    """Creates a layer with the dtype of its parent and a seed derived from the parent's."""
    return kind(*arguments, **keywords, seed=derive_seed(parent.seed, name), dtype=parent.dtype_policy, name=name)
