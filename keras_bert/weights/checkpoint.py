"""What a reader returns: constructor arguments, arrays by our variable paths, and what else the folder says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.encoder_kinds import ONE_BERT, Composition


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights and settings read from somebody else's files (named as in google-research/bert's `bert_config.json`).

    Args:
        source: str, "hugging_face" or "google_bert".
        path: Path of the weights: the safetensors file, its index, or the TF1 prefix.
        encoder_arguments: dict, constructor arguments of the encoder, or of each BERT that it is made of;
            `attention_direction` is among them unless it is bidirectional, or there are two.
        classifier_arguments: dict or None: `num_labels` int, `label_names` list of str or None, `problem_type` str or
            None ("regression", "single_label_classification" or "multi_label_classification", as Hugging Face calls
            them), `classifier_dropout` float. None where the file holds no head of a classifier, be it of texts, of
            tokens or of choices.
        arrays: dict {our variable path: float32 array}; kernels may be transposed views.
        tensor_names: dict {our variable path: tuple of the file's own names}.
        vocabulary_path: Path of `vocab.txt` or None.
        lower_case: bool, or None where the folder does not say.
        strip_accents: bool, or None where the folder does not say (accents are then stripped when lower-casing).
        unused: tuple of str, names in the file that were not read, sorted.
        composition: Composition, what the encoder is made of.
        skipped_optimizer_slots: int, number of Adam moments, step counters and the like, not listed in `unused`.

    Example:

    >>> checkpoint = Checkpoint(
    ...     source="google_bert", path=Path("bert_model.ckpt"), encoder_arguments={"hidden_size": 4},
    ...     classifier_arguments=None, arrays={"encoder/pooler/bias": np.zeros(4, np.float32)},
    ...     tensor_names={"encoder/pooler/bias": ("bert/pooler/dense/bias",)})
    >>> checkpoint.lower_case is None
    True
    """

    source: str
    path: Path
    encoder_arguments: Mapping[str, Any]
    classifier_arguments: Mapping[str, Any] | None
    arrays: Mapping[str, np.ndarray]
    tensor_names: Mapping[str, tuple[str, ...]]
    vocabulary_path: Path | None = None
    lower_case: bool | None = None
    strip_accents: bool | None = None
    unused: tuple[str, ...] = ()
    composition: Composition = ONE_BERT
    skipped_optimizer_slots: int = 0

    def arguments_of_head(self, head: str) -> Mapping[str, Any]:
        """`classifier_arguments`, if they are those of a head; else nothing.

        Args:
            head: str, the name that the paths of its variables begin with (google-research/bert has but one).

        Returns:
            dict.
        """
        return self.classifier_arguments or {} if f"{head}/kernel" in self.arrays else {}
