"""Losses of distillation for one text at a time, in slow, obvious Python."""

import math


def _softmax(values):
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def _kl(p, q):
    return sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True))


def _dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def logit_loss(student, teacher, temperature):
    """T² KL(teacher || student) of two lists of logits (arXiv 1503.02531)."""
    p, q = ([logit / temperature for logit in logits] for logits in (teacher, student))
    return temperature**2 * _kl(_softmax(p), _softmax(q))


def hidden_state_loss(student, teacher):
    """Mean squared difference of two lists of the states of tokens."""
    squares = [
        (float(a) - float(b)) ** 2 for s, t in zip(student, teacher, strict=True) for a, b in zip(s, t, strict=True)
    ]
    return sum(squares) / len(squares)


def _relations(states, num_heads):
    """Relations of one of query, key or value, [tokens][hidden]: [heads][tokens][tokens]."""
    size = len(states[0]) // num_heads
    heads = [[state[head * size : (head + 1) * size] for state in states] for head in range(num_heads)]
    return [[_softmax([_dot(a, b) / math.sqrt(size) for b in head]) for a in head] for head in heads]


def relation_loss(student, teacher, num_heads):
    """Loss of MiniLMv2 (arXiv 2012.15828) of two triples of query, key and value, each [tokens][hidden]."""
    total = 0.0
    for own, other in zip(student, teacher, strict=True):
        divergences = [
            _kl(p, q)
            for p_head, q_head in zip(_relations(other, num_heads), _relations(own, num_heads), strict=True)
            for p, q in zip(p_head, q_head, strict=True)
        ]
        total += sum(divergences) / len(divergences)
    return total


def text_vector_loss(student, teacher):
    """1 minus the cosine of two vectors."""
    return 1 - _dot(student, teacher) / math.sqrt(_dot(student, student) * _dot(teacher, teacher))
