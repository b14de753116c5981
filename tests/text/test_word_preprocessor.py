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
