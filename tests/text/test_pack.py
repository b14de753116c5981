import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.pack import pack, packed_lengths, split_pairs_into_windows
from tests.reference import packing as reference
from tests.reference.windows import windows_of

SPECIAL = {"cls_id": 101, "sep_id": 102, "pad_id": 7}
NAMES = ("token_ids", "segment_ids", "padding_mask")


def ragged(rows):
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


@pytest.mark.parametrize("sequence_length", [3, 4, 5, 8, 9, 16])
def test_pairs_agree_with_the_reference(sequence_length):
    generator = random.Random(sequence_length)
    lengths = [(generator.randrange(12), generator.randrange(12)) for _ in range(300)]
    rows = [(list(range(1000, 1000 + a)), list(range(2000, 2000 + b))) for a, b in lengths]
    packed = pack(
        ragged([a for a, _ in rows]), ragged([b for _, b in rows]), sequence_length=sequence_length, **SPECIAL
    )
    for index, (a, b) in enumerate(rows):
        expected = reference.pack(a, b, sequence_length=sequence_length, **SPECIAL)
        assert tuple(packed[name][index].numpy().tolist() for name in NAMES) == expected


@pytest.mark.parametrize("sequence_length", [2, 3, 7])
def test_single_segments_agree_with_the_reference(sequence_length):
    rows = [list(range(1000, 1000 + length)) for length in range(10)]
    packed = pack(ragged(rows), None, sequence_length=sequence_length, **SPECIAL)
    for index, row in enumerate(rows):
        expected = reference.pack(row, None, sequence_length=sequence_length, **SPECIAL)
        assert tuple(packed[name][index].numpy().tolist() for name in NAMES) == expected


def test_longest_pads_to_the_longest_row_after_trimming():
    segment = ragged([[5], [5, 5, 5, 5, 5, 5], []])
    short = pack(segment, None, sequence_length=6, pad_to="longest", **SPECIAL)
    assert short["token_ids"].numpy().tolist() == [
        [101, 5, 102, 7, 7, 7],
        [101, 5, 5, 5, 5, 102],
        [101, 102, 7, 7, 7, 7],
    ]
    full = pack(segment, segment, sequence_length=20, pad_to="max_length", **SPECIAL)
    longest = pack(segment, segment, sequence_length=20, pad_to="longest", **SPECIAL)
    assert longest["token_ids"].shape == [3, 15]
    for name in NAMES:
        np.testing.assert_array_equal(longest[name], full[name][:, :15])


@pytest.mark.parametrize(("pad_to", "length"), [("max_length", 8), ("longest", 2)])
def test_batch_without_rows(pad_to, length):
    packed = pack(ragged([]), ragged([]), sequence_length=8, pad_to=pad_to, **SPECIAL)
    assert [packed[name].shape for name in NAMES] == [[0, length]] * 3


def test_rows_without_tokens():
    packed = pack(ragged([[], []]), None, sequence_length=3, **SPECIAL)
    assert packed["token_ids"].numpy().tolist() == [[101, 102, 7]] * 2


def test_types_and_static_shapes_in_a_graph():
    specification = tf.RaggedTensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[specification, specification])
    def packed(a, b):
        result = pack(a, b, sequence_length=9, **SPECIAL)
        assert [result[name].shape.as_list() for name in NAMES] == [[None, 9]] * 3
        return result

    result = packed(ragged([[1, 2]]), ragged([[3]]))
    assert {result[name].dtype for name in NAMES} == {tf.int32}
    assert result["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0, 0, 0]]


def test_accepts_ids_of_64_bits():
    packed = pack(tf.cast(ragged([[1]]), tf.int64), None, sequence_length=3, **SPECIAL)
    assert packed["token_ids"].dtype == tf.int32


def test_packed_lengths_count_what_is_not_trimmed():
    a = ragged([[1, 2, 3], [], [1]])
    assert packed_lengths(a, None).numpy().tolist() == [5, 2, 3]
    assert packed_lengths(a, ragged([[1], [1], []])).numpy().tolist() == [7, 4, 3]


@pytest.mark.parametrize(("pair", "length"), [(False, 1), (True, 2), (False, 0), (True, -1)])
def test_too_short_a_length_is_refused(pair, length):
    segment = ragged([[1]])
    with pytest.raises(ValueError, match=f"at least {3 if pair else 2}.*Received: {length}"):
        pack(segment, segment if pair else None, sequence_length=length, **SPECIAL)


@pytest.mark.parametrize("length", [None, 8.0, "8", True])
def test_length_that_is_no_int_is_refused(length):
    with pytest.raises(TypeError, match="sequence_length must be an int"):
        pack(ragged([[1]]), None, sequence_length=length, **SPECIAL)


@pytest.mark.parametrize("segment", [None, [[1, 2]], tf.constant([[1, 2]]), tf.ragged.constant([["a"]])])
def test_segment_that_is_no_ragged_ids_is_refused(segment):
    with pytest.raises(TypeError, match="segment_a must be a RaggedTensor of integer ids"):
        pack(segment, None, sequence_length=8, **SPECIAL)


def test_unknown_padding_is_refused():
    with pytest.raises(ValueError, match="pad_to must be one of"):
        pack(ragged([[1]]), None, sequence_length=8, pad_to="batch", **SPECIAL)


def test_unequal_numbers_of_rows_are_refused():
    one, two = ragged([[1]]), ragged([[1], [2]])
    with pytest.raises(ValueError, match=r"same number of rows.*Received: 2 and 1"):
        pack(two, one, sequence_length=8, **SPECIAL)
    with pytest.raises(ValueError, match="same number of rows"):
        packed_lengths(one, two)
    specification = tf.RaggedTensorSpec([None, None], tf.int32)
    function = tf.function(lambda a, b: pack(a, b, sequence_length=8, **SPECIAL), input_signature=[specification] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        function(two, one)


def test_windows_of_single_segments():
    rows = [list(range(10, 10 + size)) for size in (0, 3, 4, 5, 11)]
    windows, none, row_ids = split_pairs_into_windows(tf.ragged.constant(rows, tf.int32), None, 6, stride=None)
    expected = [(window, i) for i, row in enumerate(rows) for window in windows_of(row, window_length=4, stride=2)]
    assert none is None
    assert list(zip(windows.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


def test_windows_of_pairs_repeat_a_and_cover_b():
    segment_a = tf.ragged.constant([[1, 2], [1, 2, 3, 4, 5, 6, 7, 8], [], [1]])
    b_rows = [list(range(20, 31)), list(range(40, 52)), list(range(60, 69)), []]
    a, b, row_ids = split_pairs_into_windows(segment_a, tf.ragged.constant(b_rows, tf.int32), 11, stride=3)
    # Of the 8 places, an a of 2 leaves 6; one of 8 is trimmed to 4; none leaves 8.
    expected_a = {0: [1, 2], 1: [1, 2, 3, 4], 2: [], 3: [1]}
    lengths = {0: 6, 1: 4, 2: 8, 3: 1}
    expected = [(expected_a[i], window, i) for i, row in enumerate(b_rows) for window in windows_of(row, lengths[i], 3)]
    assert list(zip(a.to_list(), b.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


def test_packing_drops_nothing_of_a_window():
    generator = np.random.default_rng(0)
    rows = [generator.integers(10, 99, [size]).tolist() for size in generator.integers(0, 40, [50])]
    a, b = tf.ragged.constant(rows[:25], tf.int32), tf.ragged.constant(rows[25:], tf.int32)
    for second in (None, b):
        a_windows, b_windows, row_ids = split_pairs_into_windows(a, second, 12, stride=4)
        assert int(tf.reduce_max(packed_lengths(a_windows, b_windows))) <= 12
        assert sorted(set(row_ids.numpy().tolist())) == list(range(25))
