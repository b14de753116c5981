"""The kinds of encoders that checkpoints hold: one BERT, a BERT below BiLSTMs, or two BERTs of one direction each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_bert.weights.bert_config import shorten
from keras_bert.weights.layout import BIDIRECTIONAL, LEFT_TO_RIGHT, POOLER_PATHS, RIGHT_TO_LEFT, expected_encoder_shapes

BERT, BILSTM, TWO_DIRECTIONS = "bert", "bilstm", "two_directions"
_FAMILIES = (BERT, BILSTM, TWO_DIRECTIONS)
_ENCODER = "encoder/"
_WEIGHTED_LAST_FOUR, _CONCAT_LAST_FOUR, _WEIGHTED_ALL = "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
# The layer poolings of the paper (section 5.3, table 7), equal to those of `keras_bert.layers.layer_pooling`.
LAYER_POOLINGS = ("embeddings", "second_to_last", "last", _WEIGHTED_LAST_FOUR, _CONCAT_LAST_FOUR, _WEIGHTED_ALL)


@dataclass(frozen=True)
class EncoderKind:
    """Structure of an encoder built from BERTs (paper, sections 5.1 and 5.3).

    `family` is "bert"; "bilstm" for a BERT below BiLSTMs; or "two_directions" for a left-to-right and a right-to-left
    BERT of the same sizes. `features` is the layer pooling of a frozen BERT that the BiLSTMs read, one of
    `LAYER_POOLINGS`; None means the BERT's output.

    >>> EncoderKind("bilstm", bilstm_units=2).head_width(8)
    4
    """

    family: str = BERT
    bilstm_units: int | None = None
    bilstm_layers: int = 1
    features: str | None = None

    def prefixes(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Returns the path prefix of each BERT's variables, by attention direction."""
        if self.family == TWO_DIRECTIONS:
            return {direction: f"{_ENCODER}{direction}/" for direction in (LEFT_TO_RIGHT, RIGHT_TO_LEFT)}
        return {arguments.get("attention_direction", BIDIRECTIONAL): _ENCODER}

    def shapes(self, arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every variable by path, given the constructor arguments of a BERT."""
        bert = expected_encoder_shapes(arguments)
        if self.family != BILSTM:
            prefixes = self.prefixes(arguments).values()
            return {replace_prefix(path, prefix): shape for prefix in prefixes for path, shape in bert.items()}
        shapes = {path: shape for path, shape in bert.items() if path not in POOLER_PATHS}
        return shapes | self._bilstm_shapes(arguments)

    def _bilstm_shapes(self, arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        assert self.bilstm_units is not None
        width, units = arguments["hidden_size"], self.bilstm_units
        shapes: dict[str, tuple[int, ...]] = {}
        if self.features == _CONCAT_LAST_FOUR:
            width = 4 * width
        if self.has_weighted_sum:
            layers = 4 if self.features == _WEIGHTED_LAST_FOUR else arguments["num_hidden_layers"]
            shapes = {f"{_ENCODER}layer_pooling/layer_weights": (layers,), f"{_ENCODER}layer_pooling/scale": ()}
        for layer in range(self.bilstm_layers):
            for lstm in ("forward", "backward"):
                cell = f"{_ENCODER}bilstm_{layer}/{lstm}/lstm_cell"
                shapes |= {
                    f"{cell}/kernel": (width, 4 * units),
                    f"{cell}/recurrent_kernel": (units, 4 * units),
                    f"{cell}/bias": (4 * units,),
                }
            width = 2 * units
        pooler = f"{_ENCODER}bilstm_pooler"
        return {**shapes, f"{pooler}/kernel": (width, width), f"{pooler}/bias": (width,)}

    @property
    def has_weighted_sum(self) -> bool:
        """Whether the layer pooling has learned weights."""
        return self.features in (_WEIGHTED_LAST_FOUR, _WEIGHTED_ALL)

    def head_width(self, hidden_size: int) -> int:
        """Returns the size of the vectors that a head receives, given the hidden size of a BERT."""
        if self.family == BILSTM:
            assert self.bilstm_units is not None
            return 2 * self.bilstm_units
        return hidden_size if self.family == BERT else 2 * hidden_size

    def name(self, arguments: Mapping[str, Any]) -> str:
        """Returns the name used in messages, flags and `keras_bert.weights.conversion`.

        >>> EncoderKind("bilstm", 2).name({"attention_direction": "left_to_right"})
        'left_to_right_bilstm'
        """
        if self.family == TWO_DIRECTIONS:
            return TWO_DIRECTIONS
        if self.features is not None:
            return f"features_{self.features}"
        direction = arguments.get("attention_direction", BIDIRECTIONAL)
        return direction if self.family == BERT else f"{direction}_{BILSTM}"


ONE_BERT = EncoderKind()


def replace_prefix(path: str, prefix: str) -> str:
    """Moves the variable of a BERT to the prefix that `EncoderKind.prefixes` gives it.

    >>> replace_prefix("encoder/pooler/bias", "encoder/left_to_right/")
    'encoder/left_to_right/pooler/bias'
    """
    return prefix + path.removeprefix(_ENCODER)


def read_encoder_kind(config: Mapping[str, Any], path: Path) -> EncoderKind:
    """Reads the encoder kind from a configuration; `path` is its file, for error messages.

    >>> read_encoder_kind({"encoder_family": "bilstm", "bilstm_units": 4}, Path("config.json"))
    EncoderKind(family='bilstm', bilstm_units=4, bilstm_layers=1, features=None)
    """
    family = config.get("encoder_family", BERT)
    if family not in _FAMILIES:
        raise ValueError(
            f"{path}: encoder_family must be one of {_FAMILIES}; found {shorten(family)}. Correct the field."
        )
    if family != BILSTM:
        return EncoderKind(family)
    numbers = {"bilstm_units": config.get("bilstm_units"), "bilstm_layers": config.get("bilstm_layers", 1)}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(
                f"{path}: {name} must be an integer of at least 1; found {shorten(number)}. Correct the field."
            )
    features = config.get("features")
    if features not in (None, *LAYER_POOLINGS):
        raise ValueError(
            f"{path}: features must be one of {LAYER_POOLINGS}; found {shorten(features)}. Correct the field."
        )
    return EncoderKind(family, **numbers, features=features)


def write_encoder_kind(kind: EncoderKind) -> dict[str, Any]:
    """Returns the configuration fields that `read_encoder_kind` reads; none for a single BERT."""
    if kind.family == BERT:
        return {}
    fields: dict[str, Any] = {"encoder_family": kind.family}
    if kind.family == BILSTM:
        fields |= {name: getattr(kind, name) for name in ("bilstm_units", "bilstm_layers", "features")}
    return fields
