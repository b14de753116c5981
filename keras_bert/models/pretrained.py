"""Moves weights between models and checkpoint folders, and loads the tokenizer of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from absl import logging

from keras_bert.text.vocabulary import is_lower_case_vocabulary, load_vocabulary
from keras_bert.typing import PathLike
from keras_bert.weights.assignment_report import AssignmentReport, report_assignment
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import encoder_name
from keras_bert.weights.encoder_kinds import BERT
from keras_bert.weights.google_bert_writer import write_google_bert
from keras_bert.weights.hugging_face_writer import TokenizerSettings, write_hugging_face
from keras_bert.weights.keras_hub_writer import write_keras_hub
from keras_bert.weights.preset_names import resolve_preset

if TYPE_CHECKING:
    from keras_bert.text.tokenizer import BertTokenizer

# Writers by the name of their format. All take the arguments of `write_hugging_face`, and refuse those that their
# format cannot hold (ValueError) before they write anything.
WRITERS: dict[str, Callable[..., Path]] = {
    "hugging_face": write_hugging_face,
    "google": write_google_bert,
    "keras_hub": write_keras_hub,
}


class FromPreset:
    """Adds `from_preset` to a model that has `from_checkpoint`."""

    @classmethod
    def from_checkpoint(cls, path: PathLike, **kwargs: Any) -> Self:
        """Creates a model with the weights of a checkpoint."""
        raise NotImplementedError

    @classmethod
    def from_preset(cls, name: str, **kwargs: Any) -> Self:
        """Creates a model with the weights of a preset: `from_checkpoint` of the preset's folder.

        Args:
            name: one of `keras_bert.weights.preset_names.PRESETS`.
            **kwargs: as for `from_checkpoint`.

        Raises:
            ValueError: if the preset is unknown.
            FileNotFoundError: if its files are not installed; the message says how to install them.
        """
        return cls.from_checkpoint(resolve_preset(name), **kwargs)


def read_bert(path: PathLike) -> Checkpoint:
    """Reads a checkpoint whose encoder is a single BERT; raises ValueError for other encoders."""
    checkpoint = read_checkpoint(path)
    if checkpoint.encoder_kind.family != BERT:
        raise ValueError(
            f"{path} has the encoder {encoder_name(checkpoint)!r}, which is not a BertEncoder; load it with "
            "`from_checkpoint` of the model class that saved it, such as BertClassifier"
        )
    return checkpoint


def load_tokenizer(
    checkpoint: Checkpoint, vocabulary: PathLike | Sequence[str] | None = None, lower_case: bool | None = None
) -> BertTokenizer:
    """Creates the tokenizer that a checkpoint was trained with.

    `vocabulary` replaces the checkpoint's `vocab.txt`. A `lower_case` of None is read from the checkpoint, or inferred
    from the vocabulary; a contradiction is a ValueError.
    """
    from keras_bert.text.tokenizer import BertTokenizer

    vocabulary = vocabulary if vocabulary is not None else checkpoint.vocabulary
    if isinstance(vocabulary, (str, os.PathLike)):
        vocabulary = Path(vocabulary)
    if vocabulary is None:
        raise ValueError(f"{checkpoint.path} has no vocab.txt; pass vocabulary=, a file or a list of wordpieces")
    if lower_case is None:
        lower_case = checkpoint.lower_case
    elif checkpoint.lower_case not in (None, lower_case):
        raise ValueError(
            f"lower_case={lower_case} contradicts the checkpoint {checkpoint.path}, "
            f"which was trained with lower_case={checkpoint.lower_case}; omit lower_case"
        )
    if lower_case is None:
        words = load_vocabulary(vocabulary) if isinstance(vocabulary, Path) else vocabulary
        lower_case = is_lower_case_vocabulary(words)
        logging.info("%s does not state lower_case; inferred %s from its vocabulary", checkpoint.path, lower_case)
    return BertTokenizer(vocabulary, lower_case, checkpoint.strip_accents)


def assign_arrays(variables: Mapping[str, keras.Variable], checkpoint: Checkpoint) -> AssignmentReport:
    """Assigns a checkpoint's arrays to variables by path; nothing is assigned if a shape differs (ValueError)."""
    report = report_assignment(checkpoint, {path: tuple(variable.shape) for path, variable in variables.items()})
    for path in report.read:
        variables[path].assign(checkpoint.arrays[path])
    logging.info("%s", report)
    return report


def relative_variables(model: keras.Model, prefix: str = "") -> dict[str, keras.Variable]:
    """Returns the weights of a model by their path below the model's own name, in the order of creation.

    >>> model = keras.Sequential([keras.layers.Dense(2, name="logits")], name="mine")
    >>> model.build((None, 3))
    >>> list(relative_variables(model, "head/"))
    ['head/logits/kernel', 'head/logits/bias']
    """
    return {prefix + weight.path.removeprefix(f"{model.name}/"): weight for weight in model.weights}


def write_checkpoint(
    path: PathLike,
    encoder: Any,
    variables: Mapping[str, keras.Variable],
    tokenizer: BertTokenizer | None = None,
    classifier_arguments: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    encoder_arguments: Mapping[str, Any] | None = None,
    format: str = "hugging_face",
) -> Path:
    """Writes a model in one of the formats of `WRITERS`; raises ValueError for another.

    `variables` are those of the whole model by path, the encoder's under `encoder/`. `encoder_arguments` replace those
    of the encoder in the configuration. Only keras_bert can read the folder if the encoder is not a bidirectional BERT.
    """
    if format not in WRITERS:
        raise ValueError(f"format must be one of {list(WRITERS)}; got {format!r}")
    settings = None
    if tokenizer is not None:
        settings = TokenizerSettings(tokenizer.vocabulary, tokenizer.lower_case, tokenizer.strip_accents)
    arguments = {**encoder.bert_encoders()[0].get_config(), **(encoder_arguments or {})}
    arrays = {name: np.asarray(variable) for name, variable in variables.items()}
    return WRITERS[format](path, arguments, arrays, classifier_arguments, settings, dtype, encoder.encoder_kind())
