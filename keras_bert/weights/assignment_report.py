"""Reports which variables a checkpoint initializes, which stay random, and which of its tensors are unused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_bert.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class AssignmentReport:
    """Report on a loaded checkpoint (`*INIT_FROM_CKPT*` in google-research/bert's log); `str()` has a line per name.

    >>> print(AssignmentReport(Path("bert_model.ckpt"), {"encoder/pooler/bias": ("bert/pooler/dense/bias",)},
    ...                        ("logits/bias",), (), 2))
    bert_model.ckpt: 1 variables read, 1 stayed random, 0 tensors of the file not used, 2 optimizer slots skipped
      read    encoder/pooler/bias <- bert/pooler/dense/bias
      random  logits/bias
    """

    path: Path
    read: Mapping[str, tuple[str, ...]]  # tensor names in the file, by our variable path
    random: tuple[str, ...]  # our variable paths that are not in the file
    unused: tuple[str, ...]  # tensor names in the file that no variable takes, sorted
    skipped_optimizer_slots: int

    def __str__(self) -> str:
        head = (
            f"{self.path}: {len(self.read)} variables read, {len(self.random)} stayed random, "
            f"{len(self.unused)} tensors of the file not used, {self.skipped_optimizer_slots} optimizer slots skipped"
        )
        lines = [f"  read    {path} <- {', '.join(names)}" for path, names in self.read.items()]
        lines += [f"  random  {path}" for path in self.random]
        lines += [f"  unused  {name}" for name in self.unused]
        return "\n".join([head, *lines])


def report_assignment(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> AssignmentReport:
    """Compares a checkpoint with the shapes of all of a model's variables; ValueError if a shape differs.

    Nothing is assigned here, so a mismatch is found before the model is changed. The variables to assign are the keys
    of the report's `read`.
    """
    problems = [
        f"tensor {', '.join(checkpoint.tensor_names[path])} (our {path!r}): "
        f"expected shape {list(shapes[path])}, found {list(array.shape)}"
        for path, array in checkpoint.arrays.items()
        if path in shapes and tuple(shapes[path]) != array.shape
    ]
    if problems:
        raise ValueError(
            f"{checkpoint.path}: the weights do not fit the model: {'; '.join(problems)}. Build the model with the "
            "checkpoint's own constructor arguments."
        )
    return AssignmentReport(
        path=checkpoint.path,
        read={path: checkpoint.tensor_names[path] for path in shapes if path in checkpoint.arrays},
        random=tuple(path for path in shapes if path not in checkpoint.arrays),
        unused=checkpoint.select(lambda path: path in shapes).unused,
        skipped_optimizer_slots=checkpoint.skipped_optimizer_slots,
    )
