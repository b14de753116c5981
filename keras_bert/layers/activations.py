"""The activations that a BERT configuration can name."""

from keras import ops


def _gelu_erf(x):
    return ops.gelu(x, approximate=False)


def _gelu_tanh(x):
    return ops.gelu(x, approximate=True)


# "gelu" and "gelu_new" are the names that Hugging Face configurations use for the two forms. google-research/bert
# writes "gelu" and computes the tanh form (modeling.py); its reader translates the name.
_ACTIVATIONS = {
    "gelu": _gelu_erf,
    "gelu_new": _gelu_tanh,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def get_activation(name):
    """The function behind the `hidden_act` of a BERT configuration.

    The two GELUs differ by up to 4.7e-4: published scores were reached with either, but a checkpoint should run with
    its own.

    Args:
        name: str. "gelu" (with erf), "gelu_new" (the tanh form of google-research/bert), "relu", "tanh" or "linear".

    Returns:
        A function from a float tensor to a float tensor of the same shape.

    Raises:
        ValueError: if the name is not one of these.

    Example:

    >>> float(get_activation("relu")(-1.0))
    0.0
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"unknown activation: hidden_act={name!r}; allowed are {sorted(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]
