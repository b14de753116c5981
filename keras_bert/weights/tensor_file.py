"""The tensors of an opened file, checked by name, shape and type before any of them is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_bert.weights.variable_map import Piece

_FLOAT_TYPES = frozenset({"F16", "BF16", "F32", "F64", "float16", "bfloat16", "float32", "float64"})
_PROBLEMS_LISTED = 5
_NAMES_LISTED = 3


@dataclass(frozen=True)
class TensorEntry:
    """What a file's table of contents says of one tensor.

    Args:
        shape: tuple of ints, as stored.
        dtype: str, the type's name as the file gives it.
        file: Path of the file that holds the tensor.

    Example:

    >>> TensorEntry((2, 3), "F32", Path("model.safetensors")).shape
    (2, 3)
    """

    shape: tuple[int, ...]
    dtype: str
    file: Path


@dataclass(frozen=True)
class TensorFile:
    """An opened file of named tensors.

    Args:
        path: Path that messages name: the file, its index, or a TF1 prefix.
        entries: dict {name: TensorEntry} of all tensors.
        read: function from a name to the array, which reads it from the disk.

    Example:

    >>> file = TensorFile(
    ...     Path("model.safetensors"),
    ...     {"classifier.weight": TensorEntry((3, 4), "F32", Path("model.safetensors"))},
    ...     read=lambda name: np.zeros((3, 4), np.float32))
    >>> pieces = {"logits/kernel": Piece(("classifier.weight",), transposed=True)}
    >>> file.assemble(pieces, {"logits/kernel": (4, 3)})["logits/kernel"].shape
    (4, 3)
    """

    path: Path
    entries: Mapping[str, TensorEntry]
    read: Callable[[str], np.ndarray]

    def assemble(self, pieces: Mapping[str, Piece], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Checks all wanted tensors against the table of contents, then reads them one after the other.

        Args:
            pieces: dict {our variable path: Piece}.
            shapes: dict {our variable path: shape of our variable}.

        Returns:
            A dict {our variable path: float32 array}; kernels may be transposed views.

        Raises:
            ValueError: if a tensor is missing, misshapen or not of a float type.
        """
        problems = [
            problem
            for path, piece in pieces.items()
            for name, shape in piece.file_shapes(shapes[path]).items()
            if (problem := self._problem(path, name, shape))
        ]
        if problems:
            raise ValueError(self._message(problems))
        # One variable after the other: beside the result there are never more than the parts of one variable in memory.
        return {
            path: piece.join([self.read(name).astype(np.float32, copy=False) for name in piece.names])
            for path, piece in pieces.items()
        }

    def _problem(self, path, name, shape):
        entry = self.entries.get(name)
        if entry is None:
            return f"{self.path}: tensor {name!r} (our {path!r}): expected shape {list(shape)}, found none of that name"
        if entry.shape != shape:
            return (
                f"{entry.file}: tensor {name!r} (our {path!r}): expected shape {list(shape)}, found {list(entry.shape)}"
            )
        if entry.dtype not in _FLOAT_TYPES:
            return (
                f"{entry.file}: tensor {name!r} (our {path!r}): expected a float type, one of {sorted(_FLOAT_TYPES)}, "
                f"found {entry.dtype} (a quantized file? Save the weights as float first)"
            )
        return None

    def _message(self, problems):
        lines = [
            f"the weights do not fit their configuration; {len(problems)} of the wanted tensors are missing or differ:"
        ]
        lines += problems[:_PROBLEMS_LISTED]
        if len(problems) > _PROBLEMS_LISTED:
            lines.append(f"... and {len(problems) - _PROBLEMS_LISTED} more")
        names = ", ".join(sorted(self.entries)[:_NAMES_LISTED])
        lines.append(
            f"The file holds {len(self.entries)} tensors ({names}, ...). Check that it is a whole BERT and that the "
            "configuration belongs to it."
        )
        return "\n".join(lines)
