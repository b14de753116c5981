import random

import pytest
import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer
from tests.reference import tokenization as reference
from tests.text.conftest import LOWER_CASED, VOCABULARY_FILES, code_point_rows, golden_rows
from tests.text.fuzz import LONG_TEXTS, fuzzed_bytes, invalid_bytes


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
def test_golden_texts_equal_the_reference(shared, tokenizers, name):
    texts = [row["text"] for row in golden_rows(shared, name)]
    assert_equals_reference(tokenizers[name], texts, name in LOWER_CASED)


@pytest.mark.parametrize("name", VOCABULARY_FILES)
def test_fuzzed_bytes_equal_the_reference(shared, tokenizers, name):
    generator = random.Random(21)
    code_points = [code_point for code_point, _ in code_point_rows(shared, "cased")]
    texts = [fuzzed_bytes(generator, code_points) + invalid_bytes(generator) for _ in range(500)]
    texts += [text.encode() for text in LONG_TEXTS]
    assert_equals_reference(tokenizers[name], texts, name in LOWER_CASED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_every_code_point_equals_the_reference(shared, tokenizers, name):
    # The 131,072 private characters from U+F0000 differ only in their numbers: a thousand are enough.
    texts = [f"a{chr(row[0])}b" for row in code_point_rows(shared, name) if row[0] < 0xF0000 + 1000]
    assert_equals_reference(tokenizers[name], texts, name in LOWER_CASED)


@pytest.mark.parametrize(
    "arguments", [{"strip_accents": False}, {"special_tokens_in_text": True}, {"max_characters_per_word": 5}]
)
def test_fuzzed_bytes_with_other_arguments_equal_the_reference(shared, vocabularies, arguments):
    generator = random.Random(22)
    code_points = [code_point for code_point, _ in code_point_rows(shared, "cased")]
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


def test_tokens_cover_their_original_characters(toy):
    # A removed character or a stripped mark is covered inside a token, but not around it; [UNK] covers its word.
    text = "Pla\u00adying! \u200bplay\u200b ca\u0301fe cafe\u0301 strange İ"
    result = toy.tokenize_with_offsets(text)
    spans = zip(result.start_bytes.numpy(), result.end_bytes.numpy(), strict=True)
    covered = [text.encode()[start:end].decode() for start, end in spans]
    assert covered == ["Pla\u00ady", "ing", "!", "play", "ca\u0301fe", "cafe", "strange", "İ"]
    spans = zip(result.start_characters.numpy(), result.end_characters.numpy(), strict=True)
    assert covered == [text[start:end] for start, end in spans]


def test_offsets_are_the_same_in_eager_mode_and_in_graphs(toy):
    result = toy.tokenize_with_offsets(["", "é play", b"\xff!"])
    assert [part.dtype for part in result] == [tf.int32] * 5
    assert result.start_bytes.to_list() == [[], [0, 3], [1]]
    assert result.start_characters.to_list() == [[], [0, 2], [0]]
    assert [part.to_list() for part in toy.tokenize_with_offsets([])] == [[]] * 5
    for signature in ([None], [1]):
        function = tf.function(toy.tokenize_with_offsets, input_signature=[tf.TensorSpec(signature, tf.string)])
        assert function(tf.constant(["playing"])).end_bytes.to_list() == [[4, 7]]
    assert tf.function(lambda: toy.tokenize_with_offsets([""]))().end_bytes.to_list() == [[]]
