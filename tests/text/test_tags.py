import itertools
import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.text.tags import SCHEMES, check_tag, convert_tags, detect_scheme, find_invalid_tags

ENTITY_SCHEMES = [scheme for scheme in SCHEMES if scheme != "plain"]
# All sequences of four of these include every kind of invalid sequence.
TAGS = ["O", *(f"{letter}-{name}" for letter in "BIES" for name in ("a", "b-c"))]


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES)
def test_conversion_keeps_the_entities_and_is_valid(scheme):
    for tags in (*itertools.product(TAGS, repeat=4), *itertools.product("OBIES", repeat=4)):
        converted = convert_tags(tags, scheme)
        assert get_entities(list(converted)) == get_entities(list(tags))
        assert find_invalid_tags(converted, scheme) == []
        for tag in converted:
            check_tag(tag, scheme)
        for other in ENTITY_SCHEMES:
            assert convert_tags(convert_tags(converted, other), scheme) == converted


def test_finds_invalid_tags():
    assert find_invalid_tags(["O", "I-a", "I-b", "B-a", "I-a"], "IOB2") == [1, 2]
    assert find_invalid_tags(["B-a", "B-a", "I-a", "B-b"], "IOB1") == [0, 3]
    assert find_invalid_tags(["B-a", "O", "B-a", "I-a", "S-a"], "IOBES") == [0, 3]
    assert find_invalid_tags(["NN", "DT"], "plain") == []


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES)
def test_detects_the_scheme_of_valid_tags(scheme):
    generator = random.Random(1)
    sentences = [convert_tags(generator.choices(TAGS, k=5), scheme) for _ in range(20)]
    assert detect_scheme(iter(sentences)) == scheme


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2"])
def test_an_invalid_sentence_does_not_change_the_scheme(scheme):
    invalid = {"IOB1": ["B-a", "I-a"], "IOB2": ["I-a", "O"]}[scheme]
    assert detect_scheme([invalid]) != scheme
    assert detect_scheme([invalid, *[convert_tags(["I-a", "I-a"], scheme)] * 2]) == scheme


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["O", "O"]], "IOB2"),
        ([["B-a", "B-"]], "plain"),
        ([["B-a", "L-a"]], "plain"),
        ([["O", "S-a"]], "IOBES"),
        ([[], ["I-a"]], "IOB1"),
    ],
)
def test_detects_the_scheme_of_ambiguous_tags(sentences, scheme):
    assert detect_scheme(sentences) == scheme


@pytest.mark.parametrize("tag", ["", "B-", "b-a", "I_a", "Ox", "O-a", "L-a", "person", " B-a", "B-a\u00a0"])
def test_malformed_tags_are_refused(tag):
    with pytest.raises(ValueError, match="tag"):
        check_tag(tag, "IOBES")


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match=r"'E-a' is not an IOB2 tag; allowed are O, and B-, I- followed by a type"):
        check_tag("E-a", "IOB2")
    check_tag("``", "plain")
    with pytest.raises(ValueError, match=r"unknown scheme 'BIO'; allowed are .*IOB2 is also called BIO"):
        convert_tags(["O"], "BIO")
    with pytest.raises(ValueError, match=r"plain tags do not encode entities"):
        convert_tags(["O"], "plain")
    with pytest.raises(ValueError, match="'NOUN' is not an entity tag"):
        convert_tags(["O", "NOUN"], "IOB2")
    for sentences in ([], [[]]):
        with pytest.raises(ValueError, match="no tags"):
            detect_scheme(sentences)
