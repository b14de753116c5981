"""An opened file of named tensors, whose names, shapes and types are checked before any tensor is read."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.layout import Shapes
from keras_bert.weights.variable_map import VariableMap

_FLOAT_TYPES = frozenset({"F16", "BF16", "F32", "F64", "float16", "bfloat16", "float32", "float64"})
_MAX_PROBLEMS_LISTED = 5
_MAX_NAMES_LISTED = 3


@dataclass(frozen=True)
class TensorEntry:
    """One tensor in a file's table of contents."""

    shape: tuple[int, ...]
    dtype: str  # name of the type in the file
    file: Path


@dataclass(frozen=True)
class TensorFile:
    """An opened file of named tensors."""

    path: Path  # for messages: the file, its index, or a TF1 prefix
    entries: Mapping[str, TensorEntry]
    read: Callable[[str], np.ndarray]

    def read_variables(self, variables: VariableMap, shapes: Shapes) -> dict[str, np.ndarray]:
        """Returns our variables as float32 arrays by path, kernels possibly as transposed views.

        Raises ValueError if any tensor is missing, has another shape than `shapes` implies, or is not of a float type.
        """
        problems = [
            problem
            for path, stored in variables.items()
            for name, shape in stored.file_shapes(shapes[path]).items()
            if (problem := self._find_problem(path, name, shape))
        ]
        if problems:
            raise ValueError(self._message(problems))
        # One variable at a time: apart from the result, only the tensors of one variable are in memory.
        return {
            path: stored.join([self.read(name).astype(np.float32, copy=False) for name in stored.names])
            for path, stored in variables.items()
        }

    def account(self, variables: VariableMap, slots: Collection[str] = ()) -> dict[str, Any]:
        """Returns the fields of a `Checkpoint` that say which tensors were read; `slots` are those of an optimizer."""
        used = {name for stored in variables.values() for name in stored.names}
        return {
            "tensor_names": {path: stored.names for path, stored in variables.items()},
            "unused": tuple(sorted(self.entries.keys() - used - set(slots))),
            "skipped_optimizer_slots": len(slots),
        }

    def _find_problem(self, path: str, name: str, shape: tuple[int, ...]) -> str | None:
        entry = self.entries.get(name)
        if entry is None:
            return f"{self.path}: tensor {name!r} (our {path!r}): expected shape {list(shape)}, found no such tensor"
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

    def _message(self, problems: list[str]) -> str:
        lines = [f"the weights do not match their configuration; {len(problems)} tensors are missing or differ:"]
        lines += problems[:_MAX_PROBLEMS_LISTED]
        if len(problems) > _MAX_PROBLEMS_LISTED:
            lines.append(f"... and {len(problems) - _MAX_PROBLEMS_LISTED} more")
        names = ", ".join(sorted(self.entries)[:_MAX_NAMES_LISTED])
        lines.append(
            f"The file contains {len(self.entries)} tensors ({names}, ...). Check that it is a complete BERT and that "
            "the configuration belongs to it."
        )
        return "\n".join(lines)
