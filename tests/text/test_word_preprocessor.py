import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.reference import windows as reference

WORDS = ["playing", "play", "!", "cafe", "\u200b", "", "unheard", "[cafe]", "a b", "x" * 300, "play-play"]


@pytest.mark.parametrize("sequence_length, stride", [(3, None), (8, 2), (12, None), (128, 5), (16, 100)])
def test_windows_and_positions_equal_the_reference(toy, sequence_length, stride):
    generator = np.random.default_rng(1)
    sequences = [generator.choice(WORDS, size).tolist() for size in (1, 0, 40, 7, 0, 100)]
    prepared = BertWordPreprocessor(toy, sequence_length, stride)(tf.ragged.constant(sequences, tf.string, 1))
    room = sequence_length - 2
    step = min(max(room // 2, 1) if stride is None else stride, room)
    window, positions = 0, []
    for sequence in sequences:
        wordpieces = [toy.tokenize(word).numpy().tolist() or [toy.unk_id] for word in sequence]
        flat = [token_id for ids in wordpieces for token_id in ids]
        first_wordpieces = np.cumsum([0, *map(len, wordpieces)])[:-1]
        windows = reference.split_into_windows(flat, room, step)
        spans = [(number * step, len(tokens)) for number, tokens in enumerate(windows)]
        best = reference.is_max_context(spans)
        for number, tokens in enumerate(windows):
            row = prepared.inputs["token_ids"][window + number].numpy()
            length = int(tf.reduce_sum(prepared.inputs["padding_mask"][window + number]))
            assert row[:length].tolist() == [toy.cls_id, *tokens, toy.sep_id]
        positions += [
            (window + number, wordpiece - begin + 1)
            for wordpiece in first_wordpieces
            for number, (begin, length) in enumerate(spans)
            if begin <= wordpiece < begin + length and best[number][wordpiece - begin]
        ]
        window += len(windows)
    assert len(prepared.inputs["token_ids"]) == window
    assert list(zip(prepared.windows.numpy(), prepared.positions.numpy(), strict=True)) == positions
    assert len(positions) == sum(map(len, sequences))  # no word is lost, even without any token
    assert prepared.num_words.numpy().tolist() == list(map(len, sequences))
    assert int(tf.reduce_sum(prepared.num_windows)) == window


def test_words_after_the_maximum_of_windows_are_not_read(toy):
    preprocessor = BertWordPreprocessor(toy, sequence_length=6, stride=2)  # windows of 4 wordpieces
    words = tf.ragged.constant([["play"] * 50, [], ["play"] * 3, ["playing"] * 50, ["play"] * 8])
    whole, cut = preprocessor(words), preprocessor(words, max_windows=3)
    assert cut.num_windows.numpy().tolist() == [3, 1, 1, 3, 3]
    assert cut.num_words.numpy().tolist() == [8, 0, 3, 4, 8]
    # Words of windows that were read are read as before, but where a window with more context was dropped.
    np.testing.assert_array_equal(cut.inputs["token_ids"][:3], whole.inputs["token_ids"][:3])
    assert (
        list(zip(cut.windows.numpy(), cut.positions.numpy(), strict=True))[:6]
        == list(zip(whole.windows.numpy(), whole.positions.numpy(), strict=True))[:6]
    )
    assert preprocessor(words[4:], max_windows=2).num_words.numpy().tolist() == [6]
