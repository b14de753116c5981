import numpy as np
import tensorflow as tf

from keras_bert.text.substrings import Substrings


def test_parts_and_characters_equal_those_of_python():
    texts = ["", "a b", "\u00e9\u4e16\U0001f600x", "", "\u0301"]
    parts = [
        (row, start, end)
        for row, text in enumerate(texts)
        for start in range(len(text) + 1)
        for end in range(start, len(text) + 1)
    ]
    expected = [texts[row][start:end] for row, start, end in parts]
    in_bytes = [(row, len(texts[row][:start].encode()), len(texts[row][:end].encode())) for row, start, end in parts]
    rows, starts, ends = (tf.constant(column, tf.int32) for column in zip(*in_bytes, strict=True))
    substrings = Substrings(tf.constant(texts))
    assert [part.decode() for part in substrings.between(rows, starts, ends).numpy()] == expected
    characters = substrings.characters_before(rows, starts, ends)
    assert np.transpose(characters).tolist() == [[start, end] for _, start, end in parts]


def test_bytes_that_are_not_utf8_count_as_by_tensorflow():
    text = b"\xff\x80a\xe4\xb8b\xf0\x9f\x98\x80"
    offsets = tf.range(len(text) + 1)
    (characters,) = Substrings(tf.constant([b"\xc3\xa9", text])).characters_before(tf.ones_like(offsets), offsets)
    prefixes = [text[:offset] for offset in range(len(text) + 1)]
    assert characters.numpy().tolist() == tf.strings.length(prefixes, unit="UTF8_CHAR").numpy().tolist()


def test_no_texts_have_no_parts():
    substrings = Substrings(tf.constant([], tf.string))
    nothing = tf.constant([], tf.int32)
    assert substrings.between(nothing, nothing, nothing).numpy().tolist() == []
    assert [part.numpy().tolist() for part in substrings.characters_before(nothing, nothing)] == [[]]
