"""Labels as files contain them: names, lists of names, numbers."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from keras_bert.io.row_errors import quotation

# The names that Hugging Face configurations use.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)

# Python's float() also takes underscores, digits of other scripts and "nan", which are errors in a file.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]{1,100}")
_MAX_LABELS = 1000


def label_name(value: Any) -> str:
    """Converts a label from a file to its name, such as True to "true"; raises ValueError if it has none."""
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


def label_list(value: Any, separator: str | None = None) -> list[str]:
    """Converts the labels of a multi-label example, a list or names with separators between them, to their names."""
    if isinstance(value, str) and separator is not None:
        value = value.split(separator) if value.strip() else []
    if not isinstance(value, list):
        raise ValueError(f"several labels must be a list of names, got {quotation(value)}")
    return [label_name(name) for name in value]


def label_number(value: Any) -> float:
    """Converts the label of a regression example to a float; raises ValueError unless it is a finite number."""
    number = math.nan
    if isinstance(value, str):
        if _NUMBER.fullmatch(value.strip()):
            number = float(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"the label must be a finite number, got {quotation(value)}")
    return number


def discover_labels(examples: Iterable[Mapping[str, Any]]) -> list[str]:
    """Collects the distinct labels of examples, sorted; by value if all of them are integers.

    Raises ValueError if an example has no label or a number for it, or there are more than 1000 labels or fewer than
    two (fewer than one for multi-label examples).
    """
    found: set[str] = set()
    is_single = False
    for number, example in enumerate(examples, 1):
        label = example.get("label")
        if not isinstance(label, (str, list)):
            raise ValueError(f"the label of example {number} must be a name or a list of names: {quotation(label)}")
        is_single = is_single or isinstance(label, str)
        found.update([label] if isinstance(label, str) else label)
        if len(found) > _MAX_LABELS:
            raise ValueError(
                f"there are more than {_MAX_LABELS} distinct labels, for example {sorted(found)[:3]}; is this a "
                "regression, or the wrong column? Otherwise give the list of labels."
            )
    if len(found) < (2 if is_single else 1):
        minimum = "2 distinct labels are" if is_single else "1 label is"
        raise ValueError(f"at least {minimum} needed, got {sorted(found)}")
    if all(_INTEGER.fullmatch(label) for label in found):
        return sorted(found, key=lambda label: (int(label), label))
    return sorted(found)
