"""Moves weights between models and checkpoint folders, and loads the tokenizer of a checkpoint."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from absl import logging

from keras_bert.typing import PathLike
from keras_bert.weights.assignment_report import AssignmentReport, report_assignment
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import encoder_name
from keras_bert.weights.encoder_kinds import BERT
from keras_bert.weights.hugging_face_writer import TokenizerSettings, write_hugging_face

if TYPE_CHECKING:
    from keras_bert.text.tokenizer import BertTokenizer


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

    `vocabulary` replaces the checkpoint's `vocab.txt`. `lower_case` None is what the checkpoint states, else it is
    inferred from the vocabulary; a contradiction is a ValueError.
    """
    from keras_bert.text.tokenizer import BertTokenizer
    from keras_bert.text.vocabulary import is_lower_case_vocabulary, load_vocabulary

    vocabulary = vocabulary if vocabulary is not None else checkpoint.vocabulary_path
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


def is_same_head(labels: Sequence[str], problem_type: str | None, head: Mapping[str, Any]) -> bool:
    """Returns whether a checkpoint's classification layer, by its `head_arguments`, has these labels.

    A layer without label names matches any names of the same number.
    """
    if head.get("problem_type") not in (None, problem_type):
        return False
    names, num_labels = head.get("label_names"), head.get("num_labels")
    return labels == names if names else len(labels) == num_labels


def drop_head(checkpoint: Checkpoint, head: str) -> Checkpoint:
    """Removes a classification layer from a checkpoint; its tensors are listed as unused."""
    arrays = {path: array for path, array in checkpoint.arrays.items() if not path.startswith(f"{head}/")}
    left = {name for path in checkpoint.arrays if path not in arrays for name in checkpoint.tensor_names[path]}
    return dataclasses.replace(checkpoint, arrays=arrays, unused=tuple(sorted({*checkpoint.unused, *left})))


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
) -> Path:
    """Writes a model as a Hugging Face folder, which only we read unless the encoder is a bidirectional BERT.

    `variables` are those of the whole model by path, the encoder's under `encoder/`. `encoder_arguments` replace those
    of the encoder in the configuration.
    """
    settings = None
    if tokenizer is not None:
        settings = TokenizerSettings(tokenizer.vocabulary, tokenizer.lower_case, tokenizer.strip_accents)
    return write_hugging_face(
        path,
        {**encoder.bert_encoders()[0].get_config(), **(encoder_arguments or {})},
        {name: np.asarray(variable) for name, variable in variables.items()},
        classifier_arguments,
        settings,
        dtype,
        encoder.encoder_kind(),
    )
