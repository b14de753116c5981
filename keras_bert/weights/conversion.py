"""Checkpoints of BERTs as those of other encoders, for the comparisons of the paper (arXiv 1810.04805, sections 5.1 and
5.3)."""

import dataclasses

from absl import logging

from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.encoder_kinds import BILSTM, LAYER_POOLINGS, TWO_DIRECTIONS, Composition, features_name, moved
from keras_bert.weights.layout import BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT

LEFT_TO_RIGHT_BILSTM = "left_to_right_bilstm"
_FEATURES = {features_name(mix): mix for mix in LAYER_POOLINGS}
ENCODERS = (LEFT_TO_RIGHT, LEFT_TO_RIGHT_BILSTM, TWO_DIRECTIONS, *_FEATURES)
# "A randomly initialized two-layer 768-dimensional BiLSTM" (section 5.3): of 384 units in each direction.
_FEATURES_LAYERS, _FEATURES_UNITS = 2, 384


def encoder_name(checkpoint: Checkpoint) -> str:
    """What the encoder of a checkpoint is called (source: none in BERT).

    Args:
        checkpoint: Checkpoint.

    Returns:
        str: one of `ENCODERS`, or "bidirectional", "right_to_left" and so on.

    Example:

    >>> from keras_bert.weights.checkpoint_reader import read_checkpoint
    >>> encoder = keras_bert.BertEncoder(9, 8, num_hidden_layers=1, num_attention_heads=2)
    >>> checkpoint = read_checkpoint(encoder.save_checkpoint(Path(tempfile.mkdtemp()) / "model"))
    >>> encoder_name(checkpoint), encoder_name(convert_encoder(checkpoint, "two_directions"))
    ('bidirectional', 'two_directions')
    """
    return checkpoint.composition.name(checkpoint.encoder_arguments)


def convert_encoder(checkpoint: Checkpoint, encoder: str, right_to_left: Checkpoint | None = None) -> Checkpoint:
    """A checkpoint whose weights are to be those of another encoder (paper, sections 5.1 and 5.3).

    A head stays only where the encoder remains a single BERT.

    Args:
        checkpoint: Checkpoint of a BERT, bidirectional or from left to right, or of such an encoder already.
        encoder: str, "left_to_right"; "left_to_right_bilstm", with a BiLSTM of the BERT's width on top, which the
            checkpoint has no weights of; "two_directions"; or "features_" and one of
            `keras_bert.weights.encoder_kinds.LAYER_POOLINGS`, with two BiLSTMs on that mix of the layers of a BERT
            that does
            not learn.
        right_to_left: Checkpoint of the other of two directions; None takes the bidirectional weights of `checkpoint`
            for both.

    Returns:
        A Checkpoint.

    Raises:
        ValueError: if there is no such encoder, it cannot be made of these checkpoints, or the two of them are not of
            the same sizes and vocabulary.
    """
    if encoder not in ENCODERS:
        raise ValueError(f"encoder must be one of {ENCODERS}, or None for the checkpoint's own; got {encoder!r}")
    if right_to_left is not None and encoder != TWO_DIRECTIONS:
        raise ValueError(f"a second checkpoint, from right to left, is for encoder={TWO_DIRECTIONS!r}; got {encoder!r}")
    if encoder_name(checkpoint) == encoder:
        if right_to_left is not None:
            raise ValueError(f"{checkpoint.path} has both directions already; leave the second checkpoint out")
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
                f"{checkpoint.path} is of one direction: two directions need a second checkpoint, from right to left"
            )
        right_to_left = checkpoint
    return _joined(_in_direction(checkpoint, LEFT_TO_RIGHT), _in_direction(right_to_left, RIGHT_TO_LEFT))


def _in_direction(checkpoint, direction):
    """The checkpoint of a BERT whose attention has a direction from now on."""
    found = encoder_name(checkpoint)
    if found not in (BIDIRECTIONAL, direction):
        raise ValueError(
            f"{checkpoint.path} has the encoder {found!r}, whose weights are not for one that is {direction}; give a "
            f"checkpoint that is {' or '.join(sorted({direction, BIDIRECTIONAL}))}"
        )
    if found == BIDIRECTIONAL != direction:
        logging.warning(
            "%s was trained in both directions: what it is worth %s says little about a model trained so",
            checkpoint.path,
            direction,
        )
    arguments = {**checkpoint.encoder_arguments, "attention_direction": direction}
    return dataclasses.replace(checkpoint, encoder_arguments=arguments)


def _with_bilstm(checkpoint, units, layers=1, features=None):
    return dataclasses.replace(_encoder_alone(checkpoint), composition=Composition(BILSTM, units, layers, features))


def _joined(left, right):
    """The checkpoint of two directions; of tensors from two files the report says which one is meant."""
    _check_alike(left, right)
    composition, arrays, names, unused = Composition(TWO_DIRECTIONS), {}, {}, set()
    for checkpoint, (direction, folder) in zip((left, right), composition.folders({}).items(), strict=True):
        part, label = _encoder_alone(checkpoint), "" if right.path == left.path else f"{direction}: "
        arrays |= {moved(path, folder): array for path, array in part.arrays.items()}
        names |= {moved(path, folder): tuple(label + name for name in part.tensor_names[path]) for path in part.arrays}
        unused |= {label + name for name in part.unused}
    return dataclasses.replace(
        _encoder_alone(left),
        encoder_arguments=_without_direction(left),
        arrays=arrays,
        tensor_names=names,
        unused=tuple(sorted(unused)),
        composition=composition,
    )


def _encoder_alone(checkpoint):
    """A checkpoint without a head: its layers count among what was not used."""
    arrays = {path: array for path, array in checkpoint.arrays.items() if path.startswith("encoder/")}
    left = {name for path in checkpoint.arrays.keys() - arrays.keys() for name in checkpoint.tensor_names[path]}
    unused = tuple(sorted({*checkpoint.unused, *left}))
    return dataclasses.replace(checkpoint, arrays=arrays, unused=unused, classifier_arguments=None)


def _without_direction(checkpoint):
    return {name: value for name, value in checkpoint.encoder_arguments.items() if name != "attention_direction"}


def _check_alike(left, right):
    ours, theirs = (
        {**_without_direction(checkpoint), "lower_case": checkpoint.lower_case, "vocabulary": _vocabulary(checkpoint)}
        for checkpoint in (left, right)
    )
    differing = [name for name in ours if ours[name] != theirs[name] and None not in (ours[name], theirs[name])]
    if differing:
        raise ValueError(
            f"{left.path} and {right.path} are to be the two directions of one encoder, and differ in {differing}; "
            "give two models of the same sizes and vocabulary"
        )


def _vocabulary(checkpoint):
    return None if checkpoint.vocabulary_path is None else checkpoint.vocabulary_path.read_bytes()
