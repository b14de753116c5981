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
