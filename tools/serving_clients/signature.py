"""What a signature of a served model takes and gives, and requests that fit it."""

import base64
import reprlib
from typing import NamedTuple


class Tensor(NamedTuple):
    """An input or an output of a signature.

    Attributes:
        dtype: str, as TensorFlow Serving calls it, without DT_ and in lower case: "string", "int32", "float".
        shape: tuple of int, -1 for what may vary, the first of them mostly the rows; None if not even their number is
            known.
    """

    dtype: str
    shape: tuple[int, ...] | None

    def __str__(self):
        sizes = None if self.shape is None else ["any" if size < 0 else str(size) for size in self.shape]
        return f"{self.dtype} [{'...' if sizes is None else ', '.join(sizes)}]"


class Signature(NamedTuple):
    """A signature of a served model.

    Attributes:
        inputs: dict of name to `Tensor`.
        outputs: the same.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class Values(NamedTuple):
    """What is sent for one input.

    Attributes:
        items: nested list of bytes or numbers, all lists of one level of one length.
        shape: tuple of int.
    """

    items: list
    shape: tuple[int, ...]


def fit_inputs(inputs, specs):
    """Makes of a request what a signature takes, or says why it does not.

    Args:
        inputs: dict of name to list, a row each: a text (str, bytes, or `{"b64": ...}` for bytes in base64), a number,
            or a list of them. Lists that are shorter than others are filled up with "" and 0, which the exports of
            keras_bert take for nothing.
        specs: dict of name to `Tensor`.

    Returns:
        dict of name to `Values`.

    Raises:
        ValueError: if an input is missing or not one of the signature, is nested otherwise or of another type, or the
            inputs differ in their rows.

    Example:

    >>> fit_inputs({"choices": [["a", "b"], ["c"]]}, {"choices": Tensor("string", (-1, -1))})
    {'choices': Values(items=[[b'a', b'b'], [b'c', b'']], shape=(2, 2))}
    """
    if set(inputs) != set(specs):
        takes = ", ".join(f"{name}: {spec}" for name, spec in sorted(specs.items()))
        raise ValueError(f"the signature takes {takes}; got {', '.join(sorted(inputs)) or 'nothing'}")
    fitted = {name: _fit(name, values, specs[name]) for name, values in inputs.items()}
    rows = {name: values.shape[0] for name, values in fitted.items() if values.shape}
    if len(set(rows.values())) > 1:
        raise ValueError(f"all inputs must have as many rows as the others, got {rows}")
    return fitted


def _fit(name, values, spec):
    rank = _depth(values) if spec.shape is None else len(spec.shape)
    items = _converted(name, values, spec, rank)
    sizes = _sizes(items, rank)
    if any(wanted not in (-1, size) for wanted, size in zip(spec.shape or sizes, sizes, strict=True)):
        raise ValueError(f"{name} must be {spec}, got one of {sizes}")
    return Values(_filled(items, sizes, b"" if spec.dtype == "string" else 0), tuple(sizes))


def _depth(values):
    return 1 + max(map(_depth, values), default=0) if isinstance(values, list) else 0


def _converted(name, value, spec, depth):
    if depth == 0:
        return _converted_item(name, value, spec)
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be {spec}, a list of what is within; got {reprlib.repr(value)} for a list")
    return [_converted(name, within, spec, depth - 1) for within in value]


def _converted_item(name, value, spec):
    if spec.dtype == "string":
        return _bytes_of(name, value)
    wanted = bool if spec.dtype == "bool" else int if "int" in spec.dtype else int | float
    if not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool):
        raise ValueError(f"{name} must be {spec}, got {reprlib.repr(value)} in it")
    return value


def _bytes_of(name, value):
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, dict) and list(value) == ["b64"]:
            return base64.b64decode(value["b64"], validate=True)
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half of a surrogate pair, which is no text: {reprlib.repr(value)}") from None
    except (AttributeError, TypeError, ValueError):
        wanted = 'a text, or bytes as {"b64": "their base64"}'
        raise ValueError(f"{name} must hold {wanted}; got {reprlib.repr(value)}") from None


def _sizes(items, depth):
    if depth == 0:
        return []
    within = [_sizes(item, depth - 1) for item in items] or [[0] * (depth - 1)]
    return [len(items), *map(max, zip(*within, strict=True))]


def _filled(items, sizes, blank):
    if not sizes:
        return items
    missing = blank if len(sizes) == 1 else _filled([], sizes[1:], blank)
    return [_filled(item, sizes[1:], blank) for item in items] + [missing] * (sizes[0] - len(items))
