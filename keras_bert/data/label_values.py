"""Labels as files hold them: names, lists of names, numbers."""

import math
import re

from keras_bert.io.row_errors import quotation

# The names that Hugging Face configurations use.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)

# What Python's float() takes beyond it (underscores, other scripts' digits, nan) is a slip in a file.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,100}")
_MOST_LABELS = 1000


def label_name(value):
    """A single label from a file, as its name.

    Args:
        value: str, int, float or bool. White space around a name does not belong to it.

    Returns:
        str: 1 becomes "1", and true "true", as JSON writes them.

    Raises:
        ValueError: if the label is missing, empty, or not printable.

    Example:

    >>> [label_name(value) for value in (" good", 1, True)]
    ['good', '1', 'true']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"the label must be a string or a number, got {quotation(value)}")
    name = value.strip()
    if not name:
        raise ValueError("the label is empty")
    if not name.isprintable():
        raise ValueError(f"the label is not printable: {quotation(name)}")
    return name


def label_list(value, separator=None):
    """Several labels from a file, as their names.

    Args:
        value: a list of labels; or str, the names with separators between them. An empty one is no label at all.
        separator: str, or None if the value must be a list.

    Returns:
        list of str.

    Raises:
        ValueError: if one of the labels is not a label, see `label_name`.

    Example:

    >>> label_list(["sport"]), label_list("sport, politics", ","), label_list("", ",")
    (['sport'], ['sport', 'politics'], [])
    """
    if isinstance(value, str) and separator is not None:
        value = value.split(separator) if value.strip() else []
    if not isinstance(value, list):
        raise ValueError(f"several labels must be a list of names, got {quotation(value)}")
    return [label_name(name) for name in value]


def label_number(value):
    """A number from a file, as a regression's label.

    Args:
        value: str, int or float.

    Returns:
        float, finite.

    Raises:
        ValueError: if it is something else.

    Example:

    >>> label_number("3.20"), label_number(4)
    (3.2, 4.0)
    """
    if isinstance(value, str):
        number = float(value) if _NUMBER.fullmatch(value.strip()) else math.nan
    else:
        number = _as_float(value)
    if not math.isfinite(number):
        raise ValueError(f"the label must be a finite number, got {quotation(value)}")
    return number


def _as_float(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def discover_labels(examples):
    """The distinct labels of examples, in an order that depends on nothing but them.

    Args:
        examples: iterable of dicts with `label`, a str or a list of str.

    Returns:
        list of str, sorted; by value if all are whole numbers.

    Raises:
        ValueError: if examples have no labels, numbers for labels, a single distinct label (of which several at once
            may consist, but not a choice), or more than 1000.

    Example:

    >>> discover_labels([{"text": "a", "label": "10"}, {"text": "b", "label": "9"}, {"text": "c", "label": "10"}])
    ['9', '10']
    """
    found, single = set(), False
    for number, example in enumerate(examples, 1):
        label = example.get("label")
        if not isinstance(label, (str, list)):
            raise ValueError(f"example {number} has no label that is a name or a list of names: {quotation(label)}")
        single = single or isinstance(label, str)
        found.update([label] if isinstance(label, str) else label)
        if len(found) > _MOST_LABELS:
            raise ValueError(
                f"there are more than {_MOST_LABELS} distinct labels, for example {sorted(found)[:3]}; is this a "
                "regression, or another column than the labels? Otherwise give the list of labels."
            )
    if len(found) < (2 if single else 1):
        raise ValueError(f"at least {'2 distinct labels are' if single else '1 label is'} needed, got {sorted(found)}")
    if all(_WHOLE_NUMBER.fullmatch(label) for label in found):
        return sorted(found, key=lambda label: (int(label), label))
    return sorted(found)
