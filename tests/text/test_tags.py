import itertools
import json
import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.text.tags import SCHEMES, broken_places, check_tag, convert_tags, detect_scheme

ENTITY_SCHEMES = [scheme for scheme in SCHEMES if scheme != "plain"]
# Broken in every way there is: all sequences of four of these.
TAGS = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("a", "b-c"))]


def entities(tags):
    return get_entities(list(tags))


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES)
def test_entities_equal_the_golden_ones(shared, scheme):
    for case in json.loads((shared / "golden" / "metrics" / "ner.json").read_text())["cases"]:
        for tags, expected in (("y_true", "entities_true"), ("y_pred", "entities_pred")):
            found = [entities(convert_tags(sentence, scheme)) for sentence in case[tags]]
            assert [[list(entity) for entity in of_sentence] for of_sentence in found] == case[expected]


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES)
def test_a_conversion_keeps_the_entities_and_is_whole(scheme):
    for tags in (*itertools.product(TAGS, repeat=4), *itertools.product("OBIES", repeat=5)):
        converted = convert_tags(tags, scheme)
        assert entities(converted) == entities(tags)
        assert convert_tags(converted, scheme) == converted
        assert broken_places(converted, scheme) == []
        for tag in converted:
            check_tag(tag, scheme)


@pytest.mark.parametrize(("scheme", "other"), itertools.permutations(ENTITY_SCHEMES, 2))
def test_whole_tags_come_back_from_another_scheme(scheme, other):
    for tags in itertools.product(TAGS, repeat=4):
        whole = convert_tags(tags, scheme)
        assert convert_tags(convert_tags(whole, other), scheme) == whole


def test_the_schemes_by_hand():
    tags = ("B-x", "I-x", "B-x", "O", "B-y-z", "B-x", "I-x", "I-x")
    assert convert_tags(tags, "IOB2") == tags
    assert convert_tags(tags, "IOB1") == ("I-x", "I-x", "B-x", "O", "I-y-z", "I-x", "I-x", "I-x")
    assert convert_tags(tags, "IOBES") == ("B-x", "E-x", "S-x", "O", "S-y-z", "B-x", "I-x", "E-x")
    assert convert_tags((), "IOB2") == ()


def test_tags_without_types():
    assert convert_tags(["B", "I", "O", "B"], "IOBES") == ("B", "E", "O", "S")


def test_broken_places():
    assert broken_places(["O", "I-a", "I-b", "B-a", "I-a"], "IOB2") == [1, 2]
    assert broken_places(["B-a", "B-a", "I-a", "B-b"], "IOB1") == [0, 3]
    assert broken_places(["B-a", "O", "B-a", "I-a", "S-a"], "IOBES") == [0, 3]
    assert broken_places(["NN", "DT"], "plain") == []


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES)
def test_the_scheme_of_whole_tags_is_detected(scheme):
    generator = random.Random(1)
    sentences = [convert_tags(generator.choices(TAGS, k=5), scheme) for _ in range(20)]
    assert detect_scheme(iter(sentences)) == scheme


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2"])
def test_a_broken_sentence_does_not_change_the_scheme(scheme):
    broken = {"IOB1": ["B-a", "I-a"], "IOB2": ["I-a", "O"]}[scheme]
    assert detect_scheme([broken]) != scheme
    assert detect_scheme([broken, *[convert_tags(["I-a", "I-a"], scheme)] * 2]) == scheme


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["O", "O"]], "IOB2"),
        ([["O"], ["NOUN"]], "plain"),
        ([["B-a", "B-"]], "plain"),
        ([["B-a", "L-a"]], "plain"),
        ([["O", "S-a"]], "IOBES"),
        ([[], ["I-a"]], "IOB1"),
    ],
)
def test_the_scheme_of_unclear_tags(sentences, scheme):
    assert detect_scheme(sentences) == scheme


@pytest.mark.parametrize("sentences", [[], [[]]])
def test_no_tags_have_no_scheme(sentences):
    with pytest.raises(ValueError, match="no tags"):
        detect_scheme(sentences)


@pytest.mark.parametrize("tag", ["", "B-", "b-a", "I_a", "Ox", "O-a", "L-a", "person", " B-a", "B-a\u00a0"])
def test_malformed_tags(tag):
    with pytest.raises(ValueError, match="tag"):
        check_tag(tag, "IOBES")


def test_what_is_refused():
    for scheme in ("IOB1", "IOB2"):
        with pytest.raises(ValueError, match=f"'E-a' is no tag of {scheme}, which has O and B-, I- with"):
            check_tag("E-a", scheme)
    check_tag("``", "plain")
    with pytest.raises(ValueError, match=r"unknown scheme 'BIO'; allowed are .* IOB2 is also called BIO"):
        convert_tags(["O"], "BIO")
    with pytest.raises(ValueError, match=r"plain tags .* spell no entities"):
        convert_tags(["O"], "plain")
    with pytest.raises(ValueError, match="'NOUN' is no tag of entities"):
        convert_tags(["O", "NOUN"], "IOB2")
