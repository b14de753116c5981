"""Names and shapes of our variables (google-research/bert `modeling.py`), and how query, key and value are fused.

A kernel is stored [in, out]. The columns of `query_key_value/kernel` are query | key | value, each `heads * head_size`
wide.
"""

from collections.abc import Mapping

import numpy as np

# Heads with logits for labels: of a text, of each of its tokens, and of a choice; and for a span's start and end.
CLASSIFIER_HEAD, TOKEN_HEAD, CHOICE_HEAD, SPAN_HEAD = "logits", "token_logits", "choice_logits", "spans"
# Values of the encoder's argument `attention_direction`.
PROJECTION = "projection"  # the dense layer of a model of embeddings
BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT = "bidirectional", "left_to_right", "right_to_left"
# What makes one vector of those of a text's tokens: the layer on [CLS] that pre-training trains, or without it one of
# `POOLINGS` (sentence-transformers, Pooling: pooling_mode).
POOLER = "pooler"
POOLINGS = ("mean", "cls", "max", "weighted")
POOLER_PATHS = ("encoder/pooler/kernel", "encoder/pooler/bias")

Shapes = dict[str, tuple[int, ...]]


def is_pooler(path: str) -> bool:
    """Returns whether a variable belongs to a pooler, of an encoder or of a part of it."""
    return path.rpartition("/")[0].endswith("pooler")


def fuse_query_key_value(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Joins three kernels [hidden, hidden] or biases [hidden] into one variable, 3 * hidden wide."""
    return np.concatenate([query, key, value], axis=-1)


def split_query_key_value(fused: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns views of query, key and value; the inverse of `fuse_query_key_value`."""
    if fused.shape[-1] % 3:
        raise ValueError(
            f"a fused query_key_value array has 3 * hidden columns; received shape {list(fused.shape)}, whose last "
            "axis is not a multiple of 3. Pass `query_key_value/kernel` or `query_key_value/bias`."
        )
    query, key, value = np.split(fused, 3, axis=-1)
    return query, key, value


def expected_encoder_shapes(config: Mapping[str, int]) -> Shapes:
    """Returns the shape of every variable of an encoder with the given constructor arguments, in forward order.

    >>> shapes = expected_encoder_shapes({
    ...     "vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 16,
    ...     "max_position_embeddings": 8, "type_vocab_size": 2})
    >>> shapes["encoder/transformer_block_0/self_attention/query_key_value/kernel"]
    (4, 12)
    """
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "encoder/embeddings/token_embeddings": (config["vocab_size"], hidden),
        "encoder/embeddings/segment_embeddings": (config["type_vocab_size"], hidden),
        "encoder/embeddings/position_embeddings": (config["max_position_embeddings"], hidden),
        **_layer_norm("encoder/embeddings/layer_norm", hidden),
    }
    for index in range(config["num_hidden_layers"]):
        block = f"encoder/transformer_block_{index}"
        shapes |= _dense(f"{block}/self_attention/query_key_value", hidden, 3 * hidden)
        shapes |= _dense(f"{block}/self_attention/output", hidden, hidden)
        shapes |= _layer_norm(f"{block}/self_attention_layer_norm", hidden)
        shapes |= _dense(f"{block}/intermediate", hidden, intermediate)
        shapes |= _dense(f"{block}/output", intermediate, hidden)
        shapes |= _layer_norm(f"{block}/output_layer_norm", hidden)
    return shapes | _dense("encoder/pooler", hidden, hidden)


def expected_classifier_shapes(hidden_size: int, num_labels: int, head: str = CLASSIFIER_HEAD) -> Shapes:
    """Returns the shapes of a classification layer (`run_classifier.py`); `SPAN_HEAD` has 2 labels (`run_squad.py`).

    >>> expected_classifier_shapes(4, 3)
    {'logits/kernel': (4, 3), 'logits/bias': (3,)}
    """
    return _dense(head, hidden_size, num_labels)


def expected_pretraining_shapes(config: Mapping[str, int]) -> Shapes:
    """Returns the shapes of both pre-training heads (`run_pretraining.py`), without the shared word embeddings."""
    hidden = config["hidden_size"]
    return {
        **_dense("masked_lm/transform", hidden, hidden),
        **_layer_norm("masked_lm/layer_norm", hidden),
        "masked_lm/bias": (config["vocab_size"],),
        **_dense("next_sentence", hidden, 2),
    }


def _dense(path: str, size_in: int, size_out: int) -> Shapes:
    return {f"{path}/kernel": (size_in, size_out), f"{path}/bias": (size_out,)}


def _layer_norm(path: str, size: int) -> Shapes:
    return {f"{path}/gamma": (size,), f"{path}/beta": (size,)}
