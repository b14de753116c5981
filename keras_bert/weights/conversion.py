"""Converts checkpoints of BERTs to those of the paper's other encoders (arXiv 1810.04805, sections 5.1 and 5.3)."""

import dataclasses
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.encoder_kinds import BILSTM, LAYER_POOLINGS, TWO_DIRECTIONS, EncoderKind, replace_prefix
from keras_bert.weights.layout import BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT

LEFT_TO_RIGHT_BILSTM = "left_to_right_bilstm"
_FEATURES = {EncoderKind(BILSTM, features=pooling).name({}): pooling for pooling in LAYER_POOLINGS}
ENCODERS = (LEFT_TO_RIGHT, LEFT_TO_RIGHT_BILSTM, TWO_DIRECTIONS, *_FEATURES)
# "A randomly initialized two-layer 768-dimensional BiLSTM" (section 5.3): of 384 units in each direction.
_FEATURES_LAYERS, _FEATURES_UNITS = 2, 384


def encoder_name(checkpoint: Checkpoint) -> str:
    """Returns the name of a checkpoint's encoder: one of `ENCODERS`, "bidirectional", "right_to_left" and so on."""
    return checkpoint.encoder_kind.name(checkpoint.encoder_arguments)


def convert_encoder(checkpoint: Checkpoint, encoder: str, right_to_left: Checkpoint | None = None) -> Checkpoint:
    """Returns a checkpoint whose weights initialize another encoder, one of `ENCODERS`.

    "left_to_right_bilstm" adds a BiLSTM of the BERT's width, without weights; "two_directions" takes the weights of
    `right_to_left`, or of a bidirectional `checkpoint` for both directions; "features_..." adds two BiLSTMs on a layer
    pooling of a frozen BERT. Heads are kept only if the encoder remains a single BERT.
    """
    if encoder not in ENCODERS:
        raise ValueError(f"encoder must be one of {ENCODERS}, or None for the checkpoint's own; got {encoder!r}")
    if right_to_left is not None and encoder != TWO_DIRECTIONS:
        raise ValueError(f"a second checkpoint, from right to left, is for encoder={TWO_DIRECTIONS!r}; got {encoder!r}")
    if encoder_name(checkpoint) == encoder:
        if right_to_left is not None:
            raise ValueError(f"{checkpoint.path} has both directions already; omit the second checkpoint")
        return checkpoint
    if encoder == LEFT_TO_RIGHT:
        return _in_direction(checkpoint, LEFT_TO_RIGHT)
    if encoder == LEFT_TO_RIGHT_BILSTM:
        left = _in_direction(checkpoint, LEFT_TO_RIGHT)
        return _with_bilstm(left, left.encoder_arguments["hidden_size"] // 2)
    if encoder in _FEATURES:
        bert = _in_direction(checkpoint, BIDIRECTIONAL)
        return _with_bilstm(bert, _FEATURES_UNITS, _FEATURES_LAYERS, _FEATURES[encoder])
    if right_to_left is None:
        if encoder_name(checkpoint) != BIDIRECTIONAL:
            raise ValueError(
                f"{checkpoint.path} has one direction: two directions need a second checkpoint, from right to left"
            )
        right_to_left = checkpoint
    return _join(_in_direction(checkpoint, LEFT_TO_RIGHT), _in_direction(right_to_left, RIGHT_TO_LEFT))


def _in_direction(checkpoint: Checkpoint, direction: str) -> Checkpoint:
    """Sets the attention direction of a checkpoint of a single BERT."""
    found = encoder_name(checkpoint)
    if found not in (BIDIRECTIONAL, direction):
        raise ValueError(
            f"{checkpoint.path} has the encoder {found!r}, whose weights do not fit a {direction} encoder; pass a "
            f"{' or '.join(sorted({direction, BIDIRECTIONAL}))} checkpoint"
        )
    if found == BIDIRECTIONAL != direction:
        message = "%s was trained bidirectionally: its score as a %s encoder says little about a model trained that way"
        logging.warning(message, checkpoint.path, direction)
    arguments = {**checkpoint.encoder_arguments, "attention_direction": direction}
    return dataclasses.replace(checkpoint, encoder_arguments=arguments)


def _with_bilstm(checkpoint: Checkpoint, units: int, layers: int = 1, features: str | None = None) -> Checkpoint:
    return dataclasses.replace(_without_heads(checkpoint), encoder_kind=EncoderKind(BILSTM, units, layers, features))


def _join(left: Checkpoint, right: Checkpoint) -> Checkpoint:
    """Joins two directions; with two files, tensor names in the report are prefixed with the direction."""
    _check_compatible(left, right)
    kind = EncoderKind(TWO_DIRECTIONS)
    arrays, names, unused = {}, {}, set()
    for checkpoint, (direction, prefix) in zip((left, right), kind.prefixes({}).items(), strict=True):
        part, label = _without_heads(checkpoint), "" if right.path == left.path else f"{direction}: "
        for path, array in part.arrays.items():
            arrays[replace_prefix(path, prefix)] = array
            names[replace_prefix(path, prefix)] = tuple(label + name for name in part.tensor_names[path])
        unused |= {label + name for name in part.unused}
    return dataclasses.replace(
        _without_heads(left),
        encoder_arguments=_without_direction(left),
        arrays=arrays,
        tensor_names=names,
        unused=tuple(sorted(unused)),
        encoder_kind=kind,
    )


def _without_heads(checkpoint: Checkpoint) -> Checkpoint:
    encoder = checkpoint.select(lambda path: path.startswith("encoder/"))
    return dataclasses.replace(encoder, classifier_arguments=None)


def _without_direction(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: value for name, value in checkpoint.encoder_arguments.items() if name != "attention_direction"}


def _check_compatible(left: Checkpoint, right: Checkpoint) -> None:
    ours, theirs = (
        {**_without_direction(checkpoint), "lower_case": checkpoint.lower_case, "vocabulary": _vocabulary(checkpoint)}
        for checkpoint in (left, right)
    )
    differing = [name for name in ours if ours[name] != theirs[name] and None not in (ours[name], theirs[name])]
    if differing:
        raise ValueError(
            f"{left.path} and {right.path} cannot form one encoder, because they differ in {differing}; "
            "pass two models with the same sizes and vocabulary"
        )


def _vocabulary(checkpoint: Checkpoint) -> bytes | None:
    vocabulary = checkpoint.vocabulary
    if isinstance(vocabulary, Path):
        return vocabulary.read_bytes()
    return None if vocabulary is None else "".join(f"{token}\n" for token in vocabulary).encode()
