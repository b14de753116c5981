"""What an encoder is made of: one BERT, one with a BiLSTM on top, or two of one direction each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.layout import (
    BIDIRECTIONAL,
    LEFT_TO_RIGHT,
    POOLER_PATHS,
    RIGHT_TO_LEFT,
    expected_encoder_shapes,
)

BERT, BILSTM, TWO_DIRECTIONS = "bert", "bilstm", "two_directions"
_KINDS = (BERT, BILSTM, TWO_DIRECTIONS)
_ENCODER = "encoder/"


@dataclass(frozen=True)
class Composition:
    """What an encoder is made of (paper, arXiv 1810.04805, section 5.1).

    Args:
        kind: str, "bert" for one BERT, "bilstm" for one with a BiLSTM on top, or "two_directions" for one from left to
            right beside one from right to left, both of the same sizes.
        bilstm_units: int, width of each of the two LSTMs; None where there are none.

    Example:

    >>> Composition("bilstm", 2).head_width(8)
    4
    """

    kind: str = BERT
    bilstm_units: int | None = None

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
        return below | _bilstm_shapes(arguments["hidden_size"], self.bilstm_units)

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
        """What the encoder is called in messages and by `keras_bert.checkpoints.conversion`.

        Args:
            arguments: mapping of a BERT's constructor arguments, of which `attention_direction` is looked at.

        Returns:
            str: the direction, with "_bilstm" behind it where there is one; or "two_directions".

        Example:

        >>> Composition("bilstm", 2).name({"attention_direction": "left_to_right"})
        'left_to_right_bilstm'
        """
        if self.kind == TWO_DIRECTIONS:
            return TWO_DIRECTIONS
        direction = arguments.get("attention_direction", BIDIRECTIONAL)
        return direction if self.kind == BERT else f"{direction}_{BILSTM}"


ONE_BERT = Composition()


def moved(path: str, folder: str) -> str:
    """The path of a BERT's variable where the BERT is a part of an encoder (source: none in BERT).

    Args:
        path: str, as in `keras_bert.checkpoints.layout`.
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
        ValueError: if there is no such composition, or the width of a BiLSTM is missing.

    Example:

    >>> read_composition({"composition": "bilstm", "bilstm_units": 4}, Path("config.json"))
    Composition(kind='bilstm', bilstm_units=4)
    """
    kind, units = config.get("composition", BERT), config.get("bilstm_units")
    if kind not in _KINDS:
        raise ValueError(f"{path}: composition must be one of {_KINDS}; found {kind!r}. Correct the field.")
    if kind != BILSTM:
        return Composition(kind)
    if isinstance(units, bool) or not isinstance(units, int) or units < 1:
        raise ValueError(
            f"{path}: bilstm_units must be a whole number of at least 1; found {units!r}. Correct the field."
        )
    return Composition(kind, units)


def _bilstm_shapes(hidden_size, units):
    shapes = {}
    for lstm in ("forward", "backward"):
        cell = f"{_ENCODER}bilstm/{lstm}/lstm_cell"
        shapes |= {
            f"{cell}/kernel": (hidden_size, 4 * units),
            f"{cell}/recurrent_kernel": (units, 4 * units),
            f"{cell}/bias": (4 * units,),
        }
    pooler = f"{_ENCODER}bilstm_pooler"
    return {**shapes, f"{pooler}/kernel": (2 * units, 2 * units), f"{pooler}/bias": (2 * units,)}
