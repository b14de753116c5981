import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.reference.max_context import is_max_context
from tests.reference.windows import windows_of
from tests.text.conftest import TOY_VOCABULARY

WORDS = ["playing", "play", "!", "cafe", "\u200b", "", "unheard", "[cafe]", "a b", "x" * 300, "play-play"]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(TOY_VOCABULARY, lower_case=True)


def pieces_of(tokenizer, word):
    return tokenizer.tokenize(word).numpy().tolist() or [tokenizer.unk_id]


@pytest.mark.parametrize("sequence_length, stride", [(3, None), (8, 2), (12, None), (128, 5), (16, 100)])
def test_windows_and_places_are_those_of_the_reference(tokenizer, sequence_length, stride):
    generator = np.random.default_rng(1)
    sequences = [generator.choice(WORDS, size).tolist() for size in (1, 0, 40, 7, 0, 100)]
    words = tf.ragged.constant(sequences, tf.string, ragged_rank=1)
    prepared = BertWordPreprocessor(tokenizer, sequence_length, stride)(words)
    room = sequence_length - 2
    step = min(max(room // 2, 1) if stride is None else stride, room)
    window, places = 0, []
    for sequence in sequences:
        pieces = [pieces_of(tokenizer, word) for word in sequence]
        flat = [piece for of_word in pieces for piece in of_word]
        first_pieces = np.cumsum([0, *map(len, pieces)])[:-1]
        cut = windows_of(flat, room, step)
        spans = [(number * step, len(tokens)) for number, tokens in enumerate(cut)]
        best = is_max_context(spans)
        for number, tokens in enumerate(cut):
            row = prepared.inputs["token_ids"][window + number].numpy()
            length = int(tf.reduce_sum(prepared.inputs["padding_mask"][window + number]))
            assert row[:length].tolist() == [tokenizer.cls_id, *tokens, tokenizer.sep_id]
        for piece in first_pieces:
            read = [
                (window + number, piece - begin + 1)
                for number, (begin, length) in enumerate(spans)
                if begin <= piece < begin + length and best[number][piece - begin]
            ]
            places += read
        window += len(cut)
    assert len(prepared.inputs["token_ids"]) == window
    assert list(zip(prepared.windows.numpy(), prepared.places.numpy(), strict=True)) == places
    assert len(places) == sum(map(len, sequences))  # no word is lost, not one of which nothing is left either


def test_a_graph_gives_the_same(tokenizer):
    preprocessor = BertWordPreprocessor(tokenizer, 8)
    words = tf.ragged.constant([["playing", "\u200b"], []], tf.string, ragged_rank=1)
    graph = tf.function(preprocessor, input_signature=[tf.RaggedTensorSpec([None, None], tf.string, 1, tf.int64)])
    for found, expected in zip(tf.nest.flatten(graph(words)), tf.nest.flatten(preprocessor(words)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_no_sequences(tokenizer):
    words = tf.RaggedTensor.from_row_lengths(tf.constant([], tf.string), tf.constant([], tf.int64))
    prepared = BertWordPreprocessor(tokenizer)(words)
    assert prepared.inputs["token_ids"].shape[0] == prepared.places.shape[0] == 0


def test_its_configuration_makes_it_again(tokenizer):
    config = BertWordPreprocessor(tokenizer, 12, 3).get_config()
    assert BertWordPreprocessor.from_config(config).get_config() == config


def test_what_cannot_be_is_refused(tokenizer):
    with pytest.raises(TypeError, match="must be a BertTokenizer"):
        BertWordPreprocessor("vocab.txt")
    with pytest.raises(ValueError, match="at least 3"):
        BertWordPreprocessor(tokenizer, 2)
    with pytest.raises(ValueError, match="stride"):
        BertWordPreprocessor(tokenizer, 8, 0)
