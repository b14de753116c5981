"""Base class of encoders that are built from `BertEncoder`s."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import keras

from keras_bert.models.encoder import BertEncoder, require_ids
from keras_bert.models.keras_archive import checked_config, load_part
from keras_bert.models.pretrained import relative_variables
from keras_bert.typing import Inputs, Tensor
from keras_bert.weights.encoder_kinds import EncoderKind


class ComposedEncoder(keras.Model, ABC):
    """An encoder built from others, with the interface of a `BertEncoder` for heads, training and export.

    A subclass has one attribute per `BertEncoder`, lists them in `PARTS`, and sets `hidden_size` and `with_pooler`. The
    first part determines sizes and dtype.
    """

    PARTS: tuple[str, ...] = ()
    hidden_size: int
    with_pooler: bool

    def __init__(self, encoders: Mapping[str, BertEncoder], name: str | None = None) -> None:
        for part, encoder in encoders.items():
            if not isinstance(encoder, BertEncoder):
                raise ValueError(f"{part} must be a BertEncoder, got {encoder!r}")
        super().__init__(dtype=encoders[self.PARTS[0]].dtype_policy, name=name)
        for part, encoder in encoders.items():
            setattr(self, part, encoder)

    def bert_encoders(self) -> list[BertEncoder]:
        """Returns the `BertEncoder`s that this encoder is built from."""
        return [getattr(self, name) for name in self.PARTS]

    @abstractmethod
    def encoder_kind(self) -> EncoderKind:
        """Returns how the encoder is built, for its checkpoint."""

    @property
    def vocab_size(self) -> int:
        """Number of word embeddings."""
        return self.bert_encoders()[0].vocab_size

    @property
    def type_vocab_size(self) -> int:
        """Number of segments."""
        return self.bert_encoders()[0].type_vocab_size

    @property
    def max_position_embeddings(self) -> int:
        """Maximum input length in tokens."""
        return self.bert_encoders()[0].max_position_embeddings

    @property
    def initializer_range(self) -> float:
        """Standard deviation of initial kernels, including those of a head."""
        return self.bert_encoders()[0].initializer_range

    def __call__(self, inputs: Inputs, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Encodes a batch of ids."""
        require_ids(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def variables_by_path(self, prefix: str = "") -> dict[str, keras.Variable]:
        """Returns the weights by path, as `BertEncoder.variables_by_path`.

        A single part's weights keep their paths; those of several parts are below the part's name.
        """
        variables: dict[str, keras.Variable] = {}
        for name in self.PARTS:
            folder = f"{name}/" if len(self.PARTS) > 1 else ""
            variables |= getattr(self, name).variables_by_path(prefix + folder)
        known = {id(weight) for weight in variables.values()}
        own = relative_variables(self, prefix)
        return variables | {path: weight for path, weight in own.items() if id(weight) not in known}

    def learning_rate_factors(self, decay: float) -> list[tuple[str, float]]:
        """Returns factors as `BertEncoder.learning_rate_factors` does; new layers use the full rate."""
        return self.bert_encoders()[0].learning_rate_factors(decay)  # blocks of the same depth have the same name

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and the dtype of the parts."""
        parts = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.PARTS}
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**parts, "name": self.name, "trainable": self.trainable, "dtype": dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates an encoder from `get_config`, all parts in the configured dtype, with new weights."""
        with checked_config(cls.__name__):
            arguments = {name: value for name, value in config.items() if name != "dtype"}
            for name in cls.PARTS:
                part = {**config[name], "config": {**config[name]["config"], "dtype": config["dtype"]}}
                arguments[name] = load_part(part, (BertEncoder,))
            return cls(**arguments)
