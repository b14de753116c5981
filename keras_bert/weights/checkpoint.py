"""The weights and settings that the readers return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.encoder_kinds import ONE_BERT, EncoderKind


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights and settings read from the files of google-research/bert or Hugging Face."""

    source: str  # the module that read it, such as "hugging_face"
    path: Path  # the safetensors file, its index, or the TF1 prefix
    # Constructor arguments of the encoder, or of each BERT in it. `attention_direction` is present unless the encoder
    # is bidirectional or has both directions.
    encoder_arguments: Mapping[str, Any]
    # `num_labels` int, `label_names` list or None, `problem_type` str or None, `classifier_dropout` float, and
    # `pooling` if it is not the pooler. None if the file has no classifier of texts, tokens or choices.
    classifier_arguments: Mapping[str, Any] | None
    arrays: Mapping[str, np.ndarray]  # float32, by our variable path; kernels may be transposed views
    tensor_names: Mapping[str, tuple[str, ...]]  # tensor names in the file, by our variable path
    vocabulary: Path | tuple[str, ...] | None = None  # a vocab.txt, or the wordpieces
    lower_case: bool | None = None  # None: unknown
    strip_accents: bool | None = None  # None: unknown; accents are then stripped when lower-casing
    max_characters_per_word: int | None = None  # None: unknown; that of google-research/bert then
    unused: tuple[str, ...] = ()  # names in the file that were not read, sorted
    encoder_kind: EncoderKind = ONE_BERT
    skipped_optimizer_slots: int = 0  # not listed in `unused`

    def select(self, is_kept: Callable[[str], bool]) -> "Checkpoint":
        """Keeps the arrays of these paths only; the tensors of the others are listed as unused."""
        arrays = {path: array for path, array in self.arrays.items() if is_kept(path)}
        left = {name for path in self.arrays.keys() - arrays.keys() for name in self.tensor_names[path]}
        return replace(self, arrays=arrays, unused=tuple(sorted({*self.unused, *left})))

    def head_arguments(self, head: str) -> Mapping[str, Any]:
        """Returns `classifier_arguments` if the file's classifier is this head, else an empty mapping."""
        return self.classifier_arguments or {} if f"{head}/kernel" in self.arrays else {}
