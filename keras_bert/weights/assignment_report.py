"""Says, name by name, which variables a checkpoint fills, which stay random and what in the file nobody took."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_bert.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class AssignmentReport:
    """What was read, what stayed random, what was not used (`*INIT_FROM_CKPT*` in google-research/bert's log).

    Its `str()` has one line for each name.

    Args:
        path: Path of the weights.
        read: dict {our variable path: tuple of the file's own names}.
        random: tuple of our variable paths that are not in the file.
        unused: tuple of the file's names that no variable took, sorted.
        skipped_optimizer_slots: int, optimizer state in the file, counted only.

    Example:

    >>> print(AssignmentReport(Path("bert_model.ckpt"), {"encoder/pooler/bias": ("bert/pooler/dense/bias",)},
    ...                        ("logits/bias",), (), 2))
    bert_model.ckpt: 1 variables read, 1 stayed random, 0 tensors of the file not used, 2 optimizer slots skipped
      read    encoder/pooler/bias <- bert/pooler/dense/bias
      random  logits/bias
    """

    path: Path
    read: Mapping[str, tuple[str, ...]]
    random: tuple[str, ...]
    unused: tuple[str, ...]
    skipped_optimizer_slots: int

    def __str__(self):
        head = (
            f"{self.path}: {len(self.read)} variables read, {len(self.random)} stayed random, "
            f"{len(self.unused)} tensors of the file not used, {self.skipped_optimizer_slots} optimizer slots skipped"
        )
        lines = [f"  read    {path} <- {', '.join(names)}" for path, names in self.read.items()]
        lines += [f"  random  {path}" for path in self.random]
        lines += [f"  unused  {name}" for name in self.unused]
        return "\n".join([head, *lines])


def report_assignment(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> AssignmentReport:
    """Compares a checkpoint with a model's variables (`get_assignment_map_from_checkpoint` of google-research/bert).

    Nothing is assigned here: a misfit is found before the model is touched.

    Args:
        checkpoint: Checkpoint that a reader returned.
        shapes: dict {our variable path: shape} of all the model's variables.

    Returns:
        An AssignmentReport; the variables to assign are the keys of its `read`.

    Raises:
        ValueError: if a variable has another shape than the array of the checkpoint.

    Example:

    >>> import numpy as np
    >>> checkpoint = Checkpoint(
    ...     source="google_bert", path=Path("bert_model.ckpt"), encoder_arguments={}, classifier_arguments=None,
    ...     arrays={"logits/bias": np.zeros(3, np.float32)}, tensor_names={"logits/bias": ("output_bias",)})
    >>> report_assignment(checkpoint, {"logits/bias": (3,), "logits/kernel": (4, 3)}).random
    ('logits/kernel',)
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
    left = {name for path in checkpoint.arrays if path not in shapes for name in checkpoint.tensor_names[path]}
    return AssignmentReport(
        path=checkpoint.path,
        read={path: checkpoint.tensor_names[path] for path in shapes if path in checkpoint.arrays},
        random=tuple(path for path in shapes if path not in checkpoint.arrays),
        unused=tuple(sorted({*checkpoint.unused, *left})),
        skipped_optimizer_slots=checkpoint.skipped_optimizer_slots,
    )
