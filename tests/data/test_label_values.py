import itertools

import pytest

from keras_bert.data.label_values import discover_labels, label_list, label_name, label_number

NAMES = {"a": "a", " a b\t": "a b", 1: "1", -3: "-3", 1.5: "1.5", False: "false"}
NUMBERS = {"1": 1.0, " -2.50 ": -2.5, "1e-3": 0.001, ".5": 0.5, "5.": 5.0, 3: 3.0}


@pytest.mark.parametrize(("convert", "expected"), [(label_name, NAMES), (label_number, NUMBERS)])
def test_converts_names_and_numbers(convert, expected):
    assert {value: convert(value) for value in expected} == expected
    assert isinstance(label_number(3), float)


@pytest.mark.parametrize(
    "value, message",
    [
        ("", "the label is empty"),
        (" \t", "the label is empty"),
        (None, "must be a string or a number, got None"),
        (["a"], r"must be a string or a number, got \['a'\]"),
        ("a\nb", r"not printable: 'a\\nb'"),
        ("\ud800", r"not printable: '\\ud800'"),
        ("a\0", "not printable"),
        ("a\u2028b", "not printable"),
    ],
)
def test_refuses_other_names(value, message):
    with pytest.raises(ValueError, match=message):
        label_name(value)


def test_converts_lists():
    assert label_list("a|b c| d ", "|") == ["a", "b c", "d"]
    assert label_list("  ", "|") == label_list([]) == []
    assert label_list(["a", 1, True]) == ["a", "1", "true"]
    with pytest.raises(ValueError, match="the label is empty"):
        label_list("a,,b", ",")
    with pytest.raises(ValueError, match="must be a list of names, got 'a,b'"):
        label_list("a,b")
    with pytest.raises(ValueError, match="got None"):
        label_list(["a", None])


@pytest.mark.parametrize("value", ["", "nan", "inf", "1_000", "３", "1,5", "0x10", "1e999", True, None, 10**400, [1.0]])
def test_refuses_other_numbers(value):
    with pytest.raises(ValueError, match="the label must be a finite number, got"):
        label_number(value)


def examples_of(*labels):
    return [{"text": "a", "label": label} for label in labels]


def test_discovers_sorted_labels():
    for labels, expected in [
        (["b", "a", "b", "c"], ["a", "b", "c"]),
        (["10", "9", "-1", "9"], ["-1", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        (["1", "01", "2"], ["01", "1", "2"]),
        ([["b", "a"], [], ["c"]], ["a", "b", "c"]),
        ([["a"], []], ["a"]),
        (map(str, range(1000)), [str(number) for number in range(1000)]),
    ]:
        assert discover_labels(iter(examples_of(*labels))) == expected


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], r"at least 1 label is needed, got \[\]"),
        (examples_of("a", "a"), r"at least 2 distinct labels are needed, got \['a'\]"),
        (examples_of([], []), r"at least 1 label is needed"),
        ([{"text": "a"}], "the label of example 1 must be"),
        (examples_of("a", 0.5), "the label of example 2 must be a name or a list of names: 0.5"),
        (
            ({"text": "a", "label": str(number)} for number in itertools.count()),
            "more than 1000 distinct labels, for example .*; is this a regression",
        ),
    ],
)
def test_refuses_to_discover_invalid_labels(examples, message):
    with pytest.raises(ValueError, match=message):
        discover_labels(examples)
