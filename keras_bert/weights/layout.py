"""The shapes of our variables, and the one place that knows how query, key and value are fused.

A kernel is stored [in, out]. The columns of `query_key_value/kernel` are query | key | value, each as many as
`heads * head_size`.
"""

from collections.abc import Mapping

import numpy as np

# Heads with logits for labels: of a text, of each of its tokens, and the one of a choice.
CLASSIFIER_HEAD, TOKEN_HEAD, CHOICE_HEAD = "logits", "token_logits", "choice_logits"
# Values of the encoder's argument `attention_direction`.
BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT = "bidirectional", "left_to_right", "right_to_left"
POOLER_PATHS = ("encoder/pooler/kernel", "encoder/pooler/bias")


def is_pooler(path: str) -> bool:
    """Whether a variable is one of a pooler, which some checkpoints lack (those of heads that need none).

    Source: none in BERT.

    Args:
        path: str.

    Returns:
        bool.

    Example:

    >>> is_pooler("encoder/left_to_right/pooler/bias")
    True
    """
    return path.rpartition("/")[0].endswith("pooler")


def fuse_query_key_value(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Joins three projections into our one variable (`attention_layer` of google-research/bert `modeling.py`).

    Args:
        query: array [hidden, hidden] (kernel, [in, out]) or [hidden] (bias), any float dtype.
        key: array of the same shape.
        value: array of the same shape.

    Returns:
        A new array [hidden, 3 * hidden] or [3 * hidden].

    Example:

    >>> fuse_query_key_value(np.array([1.0]), np.array([2.0]), np.array([3.0]))
    array([1., 2., 3.])
    """
    return np.concatenate([query, key, value], axis=-1)


def split_query_key_value(fused: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parts our one variable into the three projections of google-research/bert `modeling.py`: undoes the fusing.

    Args:
        fused: array [hidden, 3 * hidden] (kernel, [in, out]) or [3 * hidden] (bias), any dtype.

    Returns:
        Three views (query, key, value), each [hidden, hidden] or [hidden].

    Raises:
        ValueError: if the last axis cannot be parted into three equal pieces.

    Example:

    >>> split_query_key_value(np.array([1.0, 2.0, 3.0]))
    (array([1.]), array([2.]), array([3.]))
    """
    if fused.shape[-1] % 3:
        raise ValueError(
            f"a fused query_key_value array has 3 * hidden columns; received shape {list(fused.shape)}, whose last "
            "axis is not a multiple of 3. Pass `query_key_value/kernel` or `query_key_value/bias`."
        )
    query, key, value = np.split(fused, 3, axis=-1)
    return query, key, value


def expected_encoder_shapes(config: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The path and shape of every variable of an encoder of the given sizes (google-research/bert `modeling.py`).

    Args:
        config: mapping with the ints `vocab_size`, `hidden_size`, `num_hidden_layers`, `intermediate_size`,
            `max_position_embeddings` and `type_vocab_size`; other keys are not looked at.

    Returns:
        A dict {path: shape}, in the order in which data meets the variables, the pooler last.

    Example:

    >>> shapes = expected_encoder_shapes({
    ...     "vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 16,
    ...     "max_position_embeddings": 8, "type_vocab_size": 2})
    >>> shapes["encoder/embeddings/token_embeddings"]
    (7, 4)
    >>> shapes["encoder/transformer_block_0/self_attention/query_key_value/kernel"]
    (4, 12)
    """
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    shapes = {
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


def expected_classifier_shapes(
    hidden_size: int, num_labels: int, head: str = CLASSIFIER_HEAD
) -> dict[str, tuple[int, ...]]:
    """The path and shape of the two variables of a classifier's head (google-research/bert `run_classifier.py`).

    Args:
        hidden_size: int, width of the vectors that are classified.
        num_labels: int, number of logits.
        head: str, its name: `CLASSIFIER_HEAD`, `TOKEN_HEAD` or `CHOICE_HEAD`.

    Returns:
        A dict {path: shape}.

    Example:

    >>> expected_classifier_shapes(4, 3)
    {'logits/kernel': (4, 3), 'logits/bias': (3,)}
    """
    return _dense(head, hidden_size, num_labels)


def expected_span_shapes(hidden_size: int) -> dict[str, tuple[int, ...]]:
    """The path and shape of the two variables that find spans (google-research/bert `run_squad.py`).

    Args:
        hidden_size: int, width of a token's vector.

    Returns:
        A dict {path: shape}; the first logit of a token is that of a start, the second that of an end.

    Example:

    >>> expected_span_shapes(4)
    {'spans/kernel': (4, 2), 'spans/bias': (2,)}
    """
    return _dense("spans", hidden_size, 2)


def expected_pretraining_shapes(config: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The path and shape of the variables of both heads of pre-training (google-research/bert `run_pretraining.py`).

    The masked words' logits are a product with the encoder's word table, which is not among them.

    Args:
        config: mapping with the ints `vocab_size` and `hidden_size`; other keys are not looked at.

    Returns:
        A dict {path: shape}.

    Example:

    >>> shapes = expected_pretraining_shapes({"vocab_size": 7, "hidden_size": 4})
    >>> shapes["masked_lm/bias"], shapes["next_sentence/kernel"]
    ((7,), (4, 2))
    """
    hidden = config["hidden_size"]
    return {
        **_dense("masked_lm/transform", hidden, hidden),
        **_layer_norm("masked_lm/layer_norm", hidden),
        "masked_lm/bias": (config["vocab_size"],),
        **_dense("next_sentence", hidden, 2),
    }


def _dense(path, size_in, size_out):
    return {f"{path}/kernel": (size_in, size_out), f"{path}/bias": (size_out,)}


def _layer_norm(path, size):
    return {f"{path}/gamma": (size,), f"{path}/beta": (size,)}
