"""What a checkpoint says of the encoder, the tokenizer and the classification layer that it was trained with, and how
one is written."""

import dataclasses

import numpy as np
from absl import logging

from keras_bert.layers.attention_mask import LEFT_TO_RIGHT, RIGHT_TO_LEFT
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import convert_encoder, encoder_name
from keras_bert.weights.encoder_kinds import BERT, BILSTM, ONE_BERT, TWO_DIRECTIONS, Composition
from keras_bert.weights.hugging_face_writer import write_hugging_face


def read_encoder(path, encoder=None, right_to_left=None, seed=None, **encoder_arguments):
    """A checkpoint, and an encoder for its weights, into which they have not been put yet.

    Args:
        path: str or Path, as for `BertEncoder.from_checkpoint`.
        encoder: str or None. None is the checkpoint's own encoder; one of
            `keras_bert.weights.conversion.ENCODERS` another, made of a checkpoint of a BERT: "left_to_right",
            "left_to_right_bilstm" or "two_directions" of the paper's comparisons (section 5.1), or, such as
            "features_concat_last_four", BiLSTMs on features (section 5.3).
        right_to_left: str or Path or None. For two directions: the checkpoint of the one from right to left, where
            `path` is that of the one from left to right.
        seed: int or None. Seed of what the checkpoints have no weights of.
        **encoder_arguments: constructor arguments of `BertEncoder` that replace the checkpoint's.

    Returns:
        A pair: Checkpoint, whose arrays have the paths of that encoder's variables, and the encoder.

    Raises:
        FileNotFoundError, ValueError: if a checkpoint is missing, damaged or no BERT; as `convert_encoder`.
    """
    checkpoint = read_checkpoint(path)
    if encoder is not None:
        other = None if right_to_left is None else read_checkpoint(right_to_left)
        checkpoint = convert_encoder(checkpoint, encoder, other)
    elif right_to_left is not None:
        raise ValueError('a checkpoint of an encoder from right to left is for encoder="two_directions"')
    arguments = {"seed": seed, **checkpoint.encoder_arguments, **encoder_arguments}
    return checkpoint, _make_encoder(checkpoint.composition, arguments)


def _make_encoder(composition, arguments):
    if composition.kind == BERT:
        return BertEncoder(**arguments)
    seed = arguments["seed"]
    if composition.kind == BILSTM:
        with_pooler = arguments.pop("with_pooler", True)
        below = BertEncoder(**arguments, with_pooler=False)
        return BiLstmEncoder(
            below,
            composition.bilstm_units,
            composition.bilstm_layers,
            composition.features,
            with_pooler,
            derive_seed(seed, BILSTM),
        )
    left, right = (
        BertEncoder(
            **{**arguments, "attention_direction": direction, "seed": derive_seed(seed, direction), "name": direction}
        )
        for direction in (LEFT_TO_RIGHT, RIGHT_TO_LEFT)
    )
    return TwoDirectionEncoder(left, right)


def read_bert(path):
    """A checkpoint whose encoder is a single BERT.

    Args:
        path: str or Path, as for `BertEncoder.from_checkpoint`.

    Returns:
        A Checkpoint.

    Raises:
        FileNotFoundError, ValueError: if it is missing, damaged, or of another encoder.
    """
    checkpoint = read_checkpoint(path)
    if checkpoint.composition.kind != BERT:
        raise ValueError(
            f"{path} has the encoder {encoder_name(checkpoint)!r}, which is no BertEncoder; read it by the "
            "`from_checkpoint` of the model that it was saved from, such as BertClassifier"
        )
    return checkpoint


def tokenizer_of(checkpoint, vocabulary=None, lower_case=None):
    """The tokenizer that a checkpoint was trained with.

    Args:
        checkpoint: a `keras_bert.weights.checkpoint.Checkpoint`.
        vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
        lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.

    Returns:
        A BertTokenizer.

    Raises:
        ValueError: if there is no vocabulary, or `lower_case` contradicts the checkpoint.
    """
    from keras_bert.text.tokenizer import BertTokenizer
    from keras_bert.text.vocabulary import is_lower_case_vocabulary, load_vocabulary

    vocabulary = vocabulary if vocabulary is not None else checkpoint.vocabulary_path
    if vocabulary is None:
        raise ValueError(
            f"{checkpoint.path} has no vocab.txt beside it; give vocabulary=, a file or a list of wordpieces"
        )
    if lower_case is None:
        lower_case = checkpoint.lower_case
    elif checkpoint.lower_case not in (None, lower_case):
        raise ValueError(
            f"lower_case={lower_case} contradicts the checkpoint {checkpoint.path}, "
            f"which was trained with lower_case={checkpoint.lower_case}; leave lower_case out"
        )
    if lower_case is None:
        words = vocabulary if isinstance(vocabulary, (list, tuple)) else load_vocabulary(vocabulary)
        lower_case = is_lower_case_vocabulary(words)
        logging.info(
            "%s does not say whether it is lower-cased; its vocabulary looks so: %s", checkpoint.path, lower_case
        )
    return BertTokenizer(vocabulary, lower_case, checkpoint.strip_accents)


def same_head(labels, problem_type, head):
    """Whether a checkpoint's classification layer answers what a classifier asks.

    Args:
        labels: list of str, the classifier's.
        problem_type: str, the classifier's.
        head: dict, the checkpoint's `arguments_of_head`; empty if it has no such layer.

    Returns:
        bool. A layer without named labels fits any names, if there are as many.

    Example:

    >>> same_head(["no", "yes"], "regression", {"label_names": ["yes", "no"]})
    False
    """
    if head.get("problem_type") not in (None, problem_type):
        return False
    names, number = head.get("label_names"), head.get("num_labels")
    return labels == names if names else len(labels) == number


def without_head(checkpoint, head):
    """A checkpoint whose classification layer counts among what was not used.

    Args:
        checkpoint: a `keras_bert.weights.checkpoint.Checkpoint`.
        head: str, the name that the paths of the layer's variables begin with.

    Returns:
        A Checkpoint.
    """
    arrays = {path: array for path, array in checkpoint.arrays.items() if not path.startswith(f"{head}/")}
    left = {name for path in checkpoint.arrays if path not in arrays for name in checkpoint.tensor_names[path]}
    return dataclasses.replace(checkpoint, arrays=arrays, unused=tuple(sorted({*checkpoint.unused, *left})))


def write_checkpoint(
    path, encoder, variables, tokenizer=None, classifier_arguments=None, dtype="float32", encoder_arguments=None
):
    """Writes a model as a Hugging Face folder; unless it has a single bidirectional BERT, as one that only we read.

    Args:
        path: str or Path of the folder to write.
        encoder: a `BertEncoder`, a `BiLstmEncoder` or a `TwoDirectionEncoder`.
        variables: dict of path to Keras variable, as `variables_by_path` gives: the encoder's under `encoder/`.
        tokenizer: a `BertTokenizer`, or None.
        classifier_arguments: dict as in a `keras_bert.weights.checkpoint.Checkpoint`, or None.
        dtype: str. The type that weights are stored in, "float32" or "bfloat16".
        encoder_arguments: dict, arguments of the encoder that the folder states in place of its own, or None.

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if there is something at `path`.
        ValueError: if the vocabulary is not the encoder's, or on another dtype.
    """
    return write_hugging_face(
        path,
        {**encoder.bert_encoders()[0].get_config(), **(encoder_arguments or {})},
        {name: np.asarray(variable) for name, variable in variables.items()},
        classifier_arguments,
        vocabulary=None if tokenizer is None else tokenizer.vocabulary,
        lower_case=None if tokenizer is None else tokenizer.lower_case,
        strip_accents=None if tokenizer is None else tokenizer.strip_accents,
        dtype=dtype,
        composition=_composition_of(encoder),
    )


def get_encoder_kind(encoder):
    """What an encoder is called where checkpoints are begun with another one.

    Args:
        encoder: a `BertEncoder`, a `BiLstmEncoder` or a `TwoDirectionEncoder`.

    Returns:
        str, as `keras_bert.weights.conversion.encoder_name` of its checkpoint gives.

    Example:

    >>> get_encoder_kind(keras_bert.BertEncoder(9, 8, num_hidden_layers=1, num_attention_heads=2))
    'bidirectional'
    """
    return _composition_of(encoder).name(encoder.bert_encoders()[0].get_config())


def _composition_of(encoder):
    if isinstance(encoder, BiLstmEncoder):
        return Composition(BILSTM, encoder.units, encoder.num_layers, encoder.features)
    return Composition(TWO_DIRECTIONS) if isinstance(encoder, TwoDirectionEncoder) else ONE_BERT
