"""What an encoder is made of: one BERT, one with BiLSTMs on top, or two of one direction each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_bert.weights.layout import (
    BIDIRECTIONAL,
    LEFT_TO_RIGHT,
    POOLER_PATHS,
    RIGHT_TO_LEFT,
    expected_encoder_shapes,
)

BERT, BILSTM, TWO_DIRECTIONS = "bert", "bilstm", "two_directions"
_KINDS = (BERT, BILSTM, TWO_DIRECTIONS)
_ENCODER = "encoder/"
_WEIGHTED_LAST_FOUR, _CONCAT_LAST_FOUR, _WEIGHTED_ALL = "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
# The paper's mixes of layers (section 5.3 and table 7).
LAYER_POOLINGS = ("embeddings", "second_to_last", "last", _WEIGHTED_LAST_FOUR, _CONCAT_LAST_FOUR, _WEIGHTED_ALL)


@dataclass(frozen=True)
class Composition:
    """What an encoder is made of (paper, arXiv 1810.04805, sections 5.1 and 5.3).

    Args:
        kind: str, "bert" for one BERT, "bilstm" for one with BiLSTMs on top, or "two_directions" for one from left to
            right beside one from right to left, both of the same sizes.
        bilstm_units: int, width of each of the two LSTMs of a BiLSTM; None where there are none.
        bilstm_layers: int, how many BiLSTMs there are.
        features: str, the mix of the BERT's layers that the BiLSTMs read, one of `LAYER_POOLINGS`, while the BERT
        itself does
            not learn; None is its output.

    Example:

    >>> Composition("bilstm", 2).head_width(8)
    4
    """

    kind: str = BERT
    bilstm_units: int | None = None
    bilstm_layers: int = 1
    features: str | None = None

    def folders(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Where the variables of each BERT stand.

        Args:
            arguments: mapping of a BERT's constructor arguments, of which `attention_direction` is looked at.

        Returns:
            A dict {attention direction: beginning of the paths}.
        """
        if self.kind == TWO_DIRECTIONS:
            return {direction: f"{_ENCODER}{direction}/" for direction in (LEFT_TO_RIGHT, RIGHT_TO_LEFT)}
        return {arguments.get("attention_direction", BIDIRECTIONAL): _ENCODER}

    def shapes(self, arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The path and shape of every variable of the encoder.

        Args:
            arguments: mapping of a BERT's constructor arguments.

        Returns:
            A dict {path: shape}.
        """
        of_bert = expected_encoder_shapes(arguments)
        if self.kind != BILSTM:
            folders = self.folders(arguments).values()
            return {moved(path, folder): shape for folder in folders for path, shape in of_bert.items()}
        below = {path: shape for path, shape in of_bert.items() if path not in POOLER_PATHS}
        return below | self._bilstm_shapes(arguments)

    def _bilstm_shapes(self, arguments):
        width, units, shapes = arguments["hidden_size"], self.bilstm_units, {}
        if self.features == _CONCAT_LAST_FOUR:
            width = 4 * width
        if self.has_weighted_sum:
            layers = 4 if self.features == _WEIGHTED_LAST_FOUR else arguments["num_hidden_layers"]
            shapes = {f"{_ENCODER}layer_mix/layer_weights": (layers,), f"{_ENCODER}layer_mix/scale": ()}
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
        """Whether the mix of layers has weights, which are learned."""
        return self.features in (_WEIGHTED_LAST_FOUR, _WEIGHTED_ALL)

    def head_width(self, hidden_size: int) -> int:
        """Width of the vectors that a head reads.

        Args:
            hidden_size: int, that of a BERT.

        Returns:
            int.
        """
        if self.kind == BERT:
            return hidden_size
        return 2 * (self.bilstm_units if self.kind == BILSTM else hidden_size)

    def name(self, arguments: Mapping[str, Any]) -> str:
        """What the encoder is called in messages and by `keras_bert.weights.conversion`.

        Args:
            arguments: mapping of a BERT's constructor arguments, of which `attention_direction` is looked at.

        Returns:
            str: the direction, with "_bilstm" behind it where there is one; "features_" and the mix; or
            "two_directions".

        Example:

        >>> Composition("bilstm", 2).name({"attention_direction": "left_to_right"})
        'left_to_right_bilstm'
        """
        if self.kind == TWO_DIRECTIONS:
            return TWO_DIRECTIONS
        if self.features is not None:
            return features_name(self.features)
        direction = arguments.get("attention_direction", BIDIRECTIONAL)
        return direction if self.kind == BERT else f"{direction}_{BILSTM}"


ONE_BERT = Composition()


def features_name(mix: str) -> str:
    """What the encoder is called whose BiLSTMs read a mix of a BERT's layers (source: none in BERT).

    Args:
        mix: str, one of `LAYER_POOLINGS`.

    Returns:
        str.

    Example:

    >>> features_name("concat_last_four")
    'features_concat_last_four'
    """
    return f"features_{mix}"


def moved(path: str, folder: str) -> str:
    """The path of a BERT's variable where the BERT is a part of an encoder (source: none in BERT).

    Args:
        path: str, as in `keras_bert.weights.layout`.
        folder: str, as `Composition.folders` gives it.

    Returns:
        str.

    Example:

    >>> moved("encoder/pooler/bias", "encoder/left_to_right/")
    'encoder/left_to_right/pooler/bias'
    """
    return folder + path.removeprefix(_ENCODER)


def read_composition(config: Mapping[str, Any], path: Path) -> Composition:
    """The composition that a configuration of ours states (source: none in BERT).

    Args:
        config: dict as read from the file.
        path: Path of that file, for messages.

    Returns:
        A Composition.

    Raises:
        ValueError: if there is no such composition, no such mix, or the width of a BiLSTM is missing.

    Example:

    >>> read_composition({"composition": "bilstm", "bilstm_units": 4}, Path("config.json"))
    Composition(kind='bilstm', bilstm_units=4, bilstm_layers=1, features=None)
    """
    kind = config.get("composition", BERT)
    if kind not in _KINDS:
        raise ValueError(f"{path}: composition must be one of {_KINDS}; found {kind!r}. Correct the field.")
    if kind != BILSTM:
        return Composition(kind)
    numbers = {"bilstm_units": config.get("bilstm_units"), "bilstm_layers": config.get("bilstm_layers", 1)}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(
                f"{path}: {name} must be a whole number of at least 1; found {number!r}. Correct the field."
            )
    features = config.get("features")
    if features not in (None, *LAYER_POOLINGS):
        raise ValueError(f"{path}: features must be one of {LAYER_POOLINGS}; found {features!r}. Correct the field.")
    return Composition(kind, **numbers, features=features)
