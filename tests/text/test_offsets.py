import random

import pytest
import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer
from tests.reference import tokenization as reference
from tests.text.conftest import LOWER_CASED, TOY_VOCABULARY, VOCABULARY_FILES
from tests.text.fuzz import fuzzed_bytes, invalid_bytes, representative_code_points


def assert_equals_reference(tokenizer, texts, lower_case, **arguments):
    """Compares ids and the four offsets of every text with the reference, and ids with `tokenize`."""
    result = tokenizer.tokenize_with_offsets(texts)
    ids = {token: index for index, token in enumerate(tokenizer.vocabulary)}
    for text, *found in zip(texts, *(part.to_list() for part in result), strict=True):
        tokens = reference.tokenize(text, ids, lower_case, **arguments)
        offsets = ([token[field] for token in tokens] for field in range(1, 5))
        assert found == [[ids[token.text] for token in tokens], *offsets], text
    assert result.token_ids.to_list() == tokenizer.tokenize(texts).to_list()


@pytest.mark.parametrize("name", VOCABULARY_FILES)
def test_golden_texts(tokenizers, golden_rows, name):
    assert_equals_reference(tokenizers[name], [row["text"] for row in golden_rows(name)], name in LOWER_CASED)


@pytest.mark.parametrize("name", VOCABULARY_FILES)
def test_fuzzed_bytes(tokenizers, code_point_rows, name):
    generator = random.Random(21)
    code_points = [row[0] for row in code_point_rows("cased")]
    texts = [fuzzed_bytes(generator, code_points) for _ in range(500)]
    assert_equals_reference(tokenizers[name], texts, name in LOWER_CASED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_every_code_point(tokenizers, code_point_rows, name):
    code_points = representative_code_points(row[0] for row in code_point_rows(name))
    texts = [f"a{chr(code_point)}b" for code_point in code_points]
    assert_equals_reference(tokenizers[name], texts, name in LOWER_CASED)


@pytest.mark.parametrize(
    "arguments", [{"strip_accents": False}, {"special_tokens_in_text": True}, {"max_characters_per_word": 5}]
)
def test_fuzzed_bytes_with_other_arguments(vocabularies, code_point_rows, arguments):
    generator = random.Random(22)
    code_points = [row[0] for row in code_point_rows("cased")]
    texts = [fuzzed_bytes(generator, code_points) for _ in range(500)]
    tokenizer = BertTokenizer(vocabularies["uncased"], True, **arguments)
    if "strip_accents" in arguments:
        arguments = {"accents_stripped": False}
    assert_equals_reference(tokenizer, texts, True, **arguments)


def test_reference_decodes_like_python():
    generator = random.Random(24)
    for text in [invalid_bytes(generator) for _ in range(5_000)]:
        decoded = reference.decode(text)
        assert "".join(character for character, _, _ in decoded) == text.decode("utf-8", "ignore")
        assert all(text[start:end].decode() == character for character, start, end in decoded)


def covered_text(tokenizer, text):
    result = tokenizer.tokenize_with_offsets(text)
    data = text.encode()
    starts, ends = result.start_characters.numpy(), result.end_characters.numpy()
    spans = zip(result.start_bytes.numpy(), result.end_bytes.numpy(), strict=True)
    covered = [data[start:end].decode() for start, end in spans]
    assert covered == [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return covered


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("Pla\u00adying!", ["Pla\u00ady", "ing", "!"]),  # a removed character inside a token
        ("\u200bplay\u200b", ["play"]),  # removed characters around one
        ("CAFÉ", ["CAFÉ"]),
        ("ca\u0301fe", ["ca\u0301fe"]),  # a stripped mark inside a token
        ("cafe\u0301!", ["cafe", "!"]),  # a stripped mark after a token is not covered
        ("İ", ["İ"]),  # lower-cased to two characters of three bytes, stripped to one
        ("strange words", ["strange", "words"]),  # [UNK] covers its word
        ("é" * 201, ["é" * 201]),
        ("\U0001f600play", ["\U0001f600play"]),
    ],
)
def test_text_that_tokens_cover(toy, text, covered):
    assert covered_text(toy, text) == covered


def test_special_token_covers_its_spelling():
    tokenizer = BertTokenizer(TOY_VOCABULARY, lower_case=True, special_tokens_in_text=True)
    assert covered_text(tokenizer, "é[MA\u00adSK]play[CLS][SEP]") == ["é", "[MA\u00adSK]", "play", "[CLS]", "[SEP]"]


def test_decomposed_syllable_is_covered_by_both_tokens():
    tokenizer = BertTokenizer([*TOY_VOCABULARY, "\u1100", "##\u1161"], lower_case=True)
    assert covered_text(tokenizer, "가") == ["가", "가"]


def test_batches_and_graphs(toy):
    result = toy.tokenize_with_offsets(["", "é play", b"\xff!"])
    assert [part.dtype for part in result] == [tf.int32] * 5
    assert result.start_bytes.to_list() == [[], [0, 3], [1]]
    assert result.start_characters.to_list() == [[], [0, 2], [0]]
    assert [part.to_list() for part in toy.tokenize_with_offsets([])] == [[]] * 5
    for signature in ([None], [1]):
        function = tf.function(toy.tokenize_with_offsets, input_signature=[tf.TensorSpec(signature, tf.string)])
        assert function(tf.constant(["playing"])).end_bytes.to_list() == [[4, 7]]
    assert tf.function(lambda: toy.tokenize_with_offsets([""]))().end_bytes.to_list() == [[]]
