"""What a checkpoint says of the tokenizer and the classification layer that it was trained with, and how one is
written."""

import dataclasses

import numpy as np
from absl import logging


def tokenizer_of(checkpoint, vocabulary=None, lower_case=None):
    """The tokenizer that a checkpoint was trained with.

    Args:
        checkpoint: a `keras_bert.checkpoints.checkpoint.Checkpoint`.
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
        checkpoint: a `keras_bert.checkpoints.checkpoint.Checkpoint`.
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
    """Writes a model as a Hugging Face folder; with an encoder of one direction as one that only we read.

    Args:
        path: str or Path of the folder to write.
        encoder: a `BertEncoder`.
        variables: dict of path to Keras variable, as `variables_by_path` gives: the encoder's under `encoder/`.
        tokenizer: a `BertTokenizer`, or None.
        classifier_arguments: dict as in a `keras_bert.checkpoints.checkpoint.Checkpoint`, or None.
        dtype: str. The type that weights are stored in, "float32" or "bfloat16".
        encoder_arguments: dict, arguments of the encoder that the folder states in place of its own, or None.

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if there is something at `path`.
        ValueError: if the vocabulary is not the encoder's, or on another dtype.
    """
    from keras_bert.checkpoints.hugging_face_writer import write_hugging_face

    return write_hugging_face(
        path,
        {**encoder.get_config(), **(encoder_arguments or {})},
        {name: np.asarray(variable) for name, variable in variables.items()},
        classifier_arguments,
        vocabulary=None if tokenizer is None else tokenizer.vocabulary,
        lower_case=None if tokenizer is None else tokenizer.lower_case,
        strip_accents=None if tokenizer is None else tokenizer.strip_accents,
        dtype=dtype,
    )
