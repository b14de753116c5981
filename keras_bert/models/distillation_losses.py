"""Losses of knowledge distillation, one per example; teachers' tensors are constants."""

from __future__ import annotations

from keras import ops

from keras_bert.layers.self_attention import MASKED_SCORE
from keras_bert.layers.text_pooling import scale_to_unit_length
from keras_bert.typing import Tensor


def logit_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Computes `T² KL(softmax(teacher / T) || softmax(student / T))` (arXiv 1503.02531, section 2).

    The factor T² keeps the gradients independent of the temperature T.

    Args:
        student, teacher: logits [batch, labels].
        temperature: T; above 1, it raises the weight of small probabilities.

    Returns:
        float32 [batch].

    >>> logit_loss(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]])).numpy().tolist()
    [0.0]
    """
    targets = ops.log_softmax(ops.stop_gradient(ops.cast(teacher, "float32")) / temperature)
    logs = ops.log_softmax(ops.cast(student, "float32") / temperature)
    return temperature**2 * ops.sum(ops.exp(targets) * (targets - logs), axis=-1)


def hidden_state_loss(student: Tensor, teacher: Tensor, padding_mask: Tensor) -> Tensor:
    """Computes the mean squared difference of hidden states [batch, length, hidden] over tokens and units.

    Returns:
        float32 [batch]; padding does not count, and a row of padding only is 0.

    >>> hidden_state_loss(np.ones([1, 2, 4]), np.zeros([1, 2, 4]), np.array([[1, 0]])).numpy().tolist()
    [1.0]
    """
    difference = ops.cast(student, "float32") - ops.stop_gradient(ops.cast(teacher, "float32"))
    return _token_mean(ops.mean(ops.square(difference), axis=-1), padding_mask)


def relation_loss(student: Tensor, teacher: Tensor, padding_mask: Tensor, num_heads: int) -> Tensor:
    """Computes the difference of two models' self-attention relations (MiniLMv2, arXiv 2012.15828, section 3).

    The relations of queries (and likewise of keys and of values) are `softmax(Q Q^T / sqrt(size))` in each of
    `num_heads` heads, into which the units of all attention heads are split again; so both models may have any widths
    and numbers of attention heads. The loss is the KL divergence from the teacher's relations to the student's, the
    mean over heads and tokens, summed over queries, keys and values.

    Args:
        student, teacher: query, key and value side by side, [batch, length, 3 * hidden], as `SelfAttention.project`
            returns them. The hidden sizes may differ; both must be multiples of `num_heads`.
        padding_mask: 1 for tokens, 0 for padding, [batch, length].
        num_heads: number of relation heads.

    Returns:
        float32 [batch].

    >>> states = np.arange(24.0).reshape([1, 2, 12])
    >>> relation_loss(states, states, np.array([[1, 1]]), num_heads=2).numpy().tolist()
    [0.0]
    """
    targets = _log_relations(ops.stop_gradient(teacher), padding_mask, num_heads)
    logs = _log_relations(student, padding_mask, num_heads)
    divergence = ops.sum(ops.exp(targets) * (targets - logs), axis=-1)  # [batch, 3, heads, length]
    return _token_mean(ops.sum(ops.mean(divergence, axis=2), axis=1), padding_mask)


def text_vector_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Computes 1 minus the cosine of vectors [batch, size]; returns float32 [batch].

    >>> text_vector_loss(np.array([[3.0, 0.0]]), np.array([[0.0, 2.0]])).numpy().tolist()
    [1.0]
    """
    student, teacher = (scale_to_unit_length(ops.cast(vectors, "float32")) for vectors in (student, teacher))
    return 1.0 - ops.sum(student * ops.stop_gradient(teacher), axis=-1)


def _log_relations(projected: Tensor, padding_mask: Tensor, num_heads: int) -> Tensor:
    """Returns logarithms of relations [batch, 3, heads, length, length]; padding is masked as a key."""
    batch, length, width = ops.shape(projected)
    size = width // (3 * num_heads)
    states = ops.reshape(projected, (batch, length, 3, num_heads, size))
    states = ops.transpose(states, (0, 2, 3, 1, 4))  # [batch, 3, heads, length, size]
    scores = ops.cast(ops.matmul(states, ops.swapaxes(states, -1, -2)), "float32") * size**-0.5
    masked = (1.0 - ops.cast(padding_mask, "float32")) * MASKED_SCORE
    return ops.log_softmax(scores + masked[:, None, None, None, :], axis=-1)


def _token_mean(values: Tensor, padding_mask: Tensor) -> Tensor:
    """Returns the mean over the tokens of `values` [batch, length], without padding."""
    is_token = ops.cast(padding_mask, "float32")
    num_tokens = ops.maximum(ops.sum(is_token, axis=1), 1.0)
    return ops.sum(values * is_token, axis=1) / num_tokens
