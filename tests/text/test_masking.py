import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bert.text.masking import TokenMasker, predictions_per_sequence
from tests.reference import masking as reference

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = [*SPECIAL, "[unused0]", *(f"word{i}" for i in range(60)), *(f"##part{i}" for i in range(30))]
FIRST_WORD, FIRST_CONTINUATION = VOCABULARY.index("word0"), VOCABULARY.index("##part0")
MIN_P_VALUE = 1e-3  # seeds are fixed, so a test that passes once always passes
NAMES = {"token_ids", "masked_positions", "masked_labels", "masked_weights"}


def random_rows(rows, length, seed=0, min_length=5, continuation_rate=0.3):
    """Makes packed pairs of different lengths: arrays of token_ids, padding_mask and keys."""
    generator = np.random.default_rng(seed)
    words = generator.integers(FIRST_WORD, FIRST_CONTINUATION, (rows, length))
    continuations = generator.integers(FIRST_CONTINUATION, len(VOCABULARY), (rows, length))
    ids = np.where(generator.random((rows, length)) < continuation_rate, continuations, words)
    lengths = generator.integers(min_length, length + 1, rows)
    middles = generator.integers(1, lengths - 1)
    ids[:, 0] = CLS
    ids[np.arange(rows), middles] = SEP
    ids[np.arange(rows), lengths - 1] = SEP
    padding_mask = np.arange(length) < lengths[:, np.newaxis]
    return (
        (ids * padding_mask).astype(np.int32),
        padding_mask.astype(np.int32),
        generator.integers(-(2**63), 2**63, rows),
    )


def arrays(masked):
    return {name: value.numpy() for name, value in masked.items()}


def assert_equal(masked, expected):
    assert set(masked) == set(expected) == NAMES
    for name, value in masked.items():
        assert np.array_equal(value, expected[name]), name


def originals(masked):
    """Restores the ids before masking from the masker's outputs."""
    ids = masked["token_ids"].copy()
    for row, positions, labels, weights in zip(
        ids, masked["masked_positions"], masked["masked_labels"], masked["masked_weights"], strict=True
    ):
        row[positions[weights > 0]] = labels[weights > 0]
    return ids


def assert_equals_reference(ids, padding_mask, keys, vocabulary=VOCABULARY, **arguments):
    masked = arrays(TokenMasker(vocabulary, **arguments)(ids, padding_mask, keys))
    rows = [
        reference.mask_row(*(part.tolist() for part in row), vocabulary, **arguments)
        for row in zip(ids, padding_mask, keys, strict=True)
    ]
    assert_equal(masked, {name: np.array([row[name] for row in rows]) for name in NAMES})
    return masked


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize(
    ("length", "max_predictions", "rate"),
    [(5, 1, 0.15), (40, 20, 0.15), (40, 4, 0.3), (24, 24, 1.0), (64, 77, 0.45)],
)
def test_masks_equal_the_reference(whole_words, length, max_predictions, rate):
    rows = random_rows(400, length, seed=length + max_predictions)
    arguments = {"max_predictions": max_predictions, "rate": rate, "whole_words": whole_words}
    assert_equals_reference(*rows, **arguments)


@pytest.mark.parametrize("whole_words", [False, True])
def test_random_ids_and_padding_equal_the_reference(whole_words):
    generator = np.random.default_rng(3)
    ids = generator.integers(0, len(VOCABULARY), (500, 30)).astype(np.int32)
    padding_mask = generator.integers(0, 2, ids.shape).astype(np.int32)
    keys = generator.integers(-(2**63), 2**63, len(ids))
    masked = assert_equals_reference(
        ids,
        padding_mask,
        keys,
        max_predictions=7,
        rate=0.4,
        whole_words=whole_words,
        mask_token_rate=0.3,
        random_token_rate=0.6,
    )
    assert np.array_equal(originals(masked), ids)


@pytest.mark.parametrize("continuation_rate", [0.9, 1.0])
def test_long_words_equal_the_reference(continuation_rate):
    rows = random_rows(300, 40, seed=5, continuation_rate=continuation_rate)
    assert_equals_reference(*rows, max_predictions=8, whole_words=True, rate=0.3)


def test_every_replaced_token_has_its_label():
    ids, padding_mask, keys = random_rows(2000, 64)
    for whole_words in (False, True):
        masked = arrays(TokenMasker(VOCABULARY, 9, whole_words=whole_words)(ids, padding_mask, keys))
        assert np.array_equal(originals(masked), ids)
        assert (masked["token_ids"] != ids).any(axis=1).mean() > 0.9
        weights, positions = masked["masked_weights"], masked["masked_positions"]
        assert set(weights.ravel()) == {0.0, 1.0}
        assert (np.diff(weights, axis=1) <= 0).all()
        assert (np.diff(positions, axis=1)[weights[:, 1:] > 0] > 0).all()
        assert (positions[weights == 0] == 0).all()
        assert (masked["masked_labels"][weights == 0] == 0).all()
        assert not np.isin(masked["masked_labels"][weights > 0], [PAD, CLS, SEP]).any()


@pytest.mark.parametrize(
    ("rate", "length", "number"),
    # The exact products are 1.5, 4.5, 7.5, 10.5, 31.5 and 60.5. In float64, as in Python, the last two are slightly
    # less and slightly more; in float32 they are not.
    [(0.15, 10, 2), (0.15, 30, 4), (0.15, 50, 8), (0.15, 70, 10), (0.35, 90, 31), (0.55, 110, 61)],
)
def test_number_is_rounded_as_in_python(rate, length, number):
    ids = np.full([1, length], FIRST_WORD, np.int32)
    masked = TokenMasker(VOCABULARY, 100, rate=rate)(ids, np.ones_like(ids), [1])
    assert tf.reduce_sum(masked["masked_weights"]) == number == round(rate * length)


@pytest.mark.parametrize("whole_words", [False, True])
def test_observed_rates(whole_words):
    ids, padding_mask, keys = random_rows(20_000, 128, min_length=64)
    masked = arrays(TokenMasker(VOCABULARY, 20, whole_words=whole_words)(ids, padding_mask, keys))
    assert abs(masked["masked_weights"].sum() / padding_mask.sum() - 0.15) < 0.005
    chosen = masked["masked_weights"] > 0
    inputs = np.take_along_axis(masked["token_ids"], masked["masked_positions"], axis=1)[chosen]
    labels = masked["masked_labels"][chosen]
    random_but_equal = 0.1 / len(VOCABULARY)  # a random entry may be [MASK], or the label itself
    assert abs((inputs == MASK).mean() - 0.8 - random_but_equal) < 0.005
    assert abs((inputs == labels).mean() - 0.1 - random_but_equal) < 0.005


def test_extreme_rates():
    ids, padding_mask, keys = random_rows(200, 40)
    masked = arrays(TokenMasker(VOCABULARY, 6, mask_token_rate=0, random_token_rate=0)(ids, padding_mask, keys))
    assert np.array_equal(masked["token_ids"], ids)
    assert masked["masked_weights"].any(axis=1).all()
    masked = arrays(
        TokenMasker(VOCABULARY, 40, rate=1, mask_token_rate=1, random_token_rate=0)(ids, padding_mask, keys)
    )
    assert ((masked["token_ids"] == MASK) == (~np.isin(ids, [PAD, CLS, SEP]))).all()


def test_random_tokens_come_from_the_whole_vocabulary():
    ids, padding_mask, keys = random_rows(3000, 40)
    masker = TokenMasker(VOCABULARY, 40, rate=1, mask_token_rate=0, random_token_rate=1)
    masked = arrays(masker(ids, padding_mask, keys))
    drawn = masked["token_ids"][~np.isin(ids, [PAD, CLS, SEP])]
    assert stats.chisquare(np.bincount(drawn, minlength=len(VOCABULARY))).pvalue > MIN_P_VALUE


def test_repeated_entries_are_drawn_once():
    vocabulary = [*SPECIAL, "twice", "once", "twice"]
    ids = np.full([3000, 10], 6, np.int32)
    arguments = {"max_predictions": 10, "rate": 1, "mask_token_rate": 0, "random_token_rate": 1}
    masked = TokenMasker(vocabulary, **arguments)(ids, np.ones_like(ids), np.arange(3000))
    numbers = np.bincount(masked["token_ids"].numpy().ravel(), minlength=8)
    assert numbers[5] == 0
    assert stats.chisquare(np.delete(numbers, 5)).pvalue > MIN_P_VALUE
    assert_equals_reference(ids[:50], np.ones_like(ids[:50]), np.arange(50), vocabulary, **arguments)


def test_positions_are_uniform():
    ids = np.full([20_000, 40], FIRST_WORD, np.int32)
    ids[:, [0, 20, 39]] = CLS, SEP, SEP
    masked = arrays(TokenMasker(VOCABULARY, 20)(ids, np.ones_like(ids), np.arange(20_000)))
    numbers = np.bincount(masked["masked_positions"][masked["masked_weights"] > 0], minlength=40)
    assert (numbers[[0, 20, 39]] == 0).all()
    assert stats.chisquare(np.delete(numbers, [0, 20, 39])).pvalue > MIN_P_VALUE


def test_words_of_one_size_are_uniform():
    row = [CLS]
    for _ in range(12):
        row += [FIRST_WORD, FIRST_WORD, FIRST_CONTINUATION]  # words of one and of two wordpieces
    ids = np.tile(np.array(row, np.int32), [20_000, 1])
    masked = arrays(TokenMasker(VOCABULARY, 7, rate=0.2, whole_words=True)(ids, np.ones_like(ids), np.arange(20_000)))
    numbers = np.bincount(masked["masked_positions"][masked["masked_weights"] > 0], minlength=len(row))
    single, first, second = numbers[1::3], numbers[2::3], numbers[3::3]
    assert np.array_equal(first, second)
    assert stats.chisquare(single).pvalue > MIN_P_VALUE
    assert stats.chisquare(first).pvalue > MIN_P_VALUE


def test_words_do_not_cross_separators():
    row = [CLS, FIRST_CONTINUATION, FIRST_WORD, SEP, FIRST_CONTINUATION, FIRST_CONTINUATION, SEP]
    ids = np.tile(np.array(row, np.int32), [200, 1])
    masked = arrays(TokenMasker(VOCABULARY, 2, rate=0.3, whole_words=True)(ids, np.ones_like(ids), np.arange(200)))
    found = {tuple(positions) for positions in masked["masked_positions"].tolist()}
    assert found == {(1, 2), (4, 5)}
    # A longer word is never masked.
    masked = arrays(TokenMasker(VOCABULARY, 1, whole_words=True)(ids, np.ones_like(ids), np.arange(200)))
    assert {tuple(positions) for positions in masked["masked_positions"].tolist()} == {(1,), (2,)}
    ids = np.tile(np.array([CLS, FIRST_WORD, FIRST_CONTINUATION, FIRST_CONTINUATION, SEP], np.int32), [20, 1])
    masked = arrays(TokenMasker(VOCABULARY, 2, rate=0.5, whole_words=True)(ids, np.ones_like(ids), np.arange(20)))
    assert not masked["masked_weights"].any()
    assert np.array_equal(masked["token_ids"], ids)


@pytest.mark.parametrize("whole_words", [False, True])
def test_rows_without_candidates(whole_words):
    ids = np.array([[CLS, SEP, PAD, PAD], [PAD] * 4, [CLS, SEP, SEP, PAD], [CLS, UNK, SEP, PAD]], np.int32)
    padding_mask = (ids != PAD).astype(np.int32)
    masker = TokenMasker(VOCABULARY, 3, whole_words=whole_words, mask_token_rate=1, random_token_rate=0)
    masked = arrays(masker(ids, padding_mask, [1, 2, 3, 4]))
    assert masked["masked_weights"].sum(axis=1).tolist() == [0, 0, 0, 1]
    assert masked["token_ids"].tolist() == [*ids[:3].tolist(), [CLS, MASK, SEP, PAD]]
    assert masked["masked_labels"].tolist()[3] == [UNK, 0, 0]


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty_batches(whole_words, shape):
    masker = TokenMasker(VOCABULARY, 4, whole_words=whole_words)
    nothing = np.zeros(shape, np.int32)
    masked = arrays(masker(nothing, nothing, np.zeros(shape[0], np.int64)))
    assert masked["token_ids"].shape == shape
    assert masked["masked_positions"].shape == masked["masked_weights"].shape == (shape[0], 4)
    assert not masked["masked_weights"].any()


@pytest.mark.parametrize("whole_words", [False, True])
def test_mask_does_not_depend_on_the_batch(whole_words):
    ids, padding_mask, keys = random_rows(60, 40)
    masker = TokenMasker(VOCABULARY, 6, whole_words=whole_words)
    whole = arrays(masker(ids, padding_mask, keys))
    tf.random.set_seed(7)
    rows = [arrays(masker(ids[i : i + 1], padding_mask[i : i + 1], keys[i : i + 1])) for i in range(60)]
    assert_equal(whole, {name: np.concatenate([row[name] for row in rows]) for name in NAMES})
    wider = [np.pad(part, [[0, 0], [0, 9]]) for part in (ids, padding_mask)]
    assert_equal(arrays(masker(*wider, keys)), {**whole, "token_ids": np.pad(whole["token_ids"], [[0, 0], [0, 9]])})


@pytest.mark.parametrize("whole_words", [False, True])
def test_mask_is_the_same_in_a_parallel_pipeline(whole_words):
    rows = random_rows(200, 30)
    masker = TokenMasker(VOCABULARY, 5, whole_words=whole_words)
    batches = tf.data.Dataset.from_tensor_slices(rows).batch(16).map(masker, num_parallel_calls=4)
    assert batches.element_spec["masked_labels"] == tf.TensorSpec([None, 5], tf.int32)
    masked = [arrays(batch) for batch in batches]
    assert_equal({name: np.concatenate([batch[name] for batch in masked]) for name in NAMES}, arrays(masker(*rows)))


@pytest.mark.parametrize("whole_words", [False, True])
def test_traced_function_equals_eager_mode(whole_words):
    masker = TokenMasker(VOCABULARY, 5, whole_words=whole_words)
    ids_spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(masker.__call__, input_signature=[ids_spec, ids_spec, tf.TensorSpec([None], tf.int64)])
    for rows, length in ((4, 30), (0, 6), (9, 5), (3, 0)):
        inputs = random_rows(rows, length) if length else (np.zeros([rows, 0], np.int32),) * 2 + (np.arange(rows),)
        assert_equal(arrays(traced(*inputs)), arrays(masker(*inputs)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="one for each row"):
        traced(np.zeros([2, 5], np.int32), np.zeros([2, 5], np.int32), [1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="one for each row"):
        traced(np.zeros([2, 5], np.int32), np.zeros([1, 5], np.int32), [1, 2])


def test_different_keys_give_unrelated_masks():
    ids = np.full([1000, 64], FIRST_WORD, np.int32)
    ids[:, 0], ids[:, -1] = CLS, SEP
    for whole_words in (False, True):
        masker = TokenMasker(VOCABULARY, 20, whole_words=whole_words)
        masked = arrays(masker(ids, np.ones_like(ids), np.arange(1000)))
        assert len({tuple(row) for row in masked["masked_positions"].tolist()}) == 1000
        # Masks of neighbouring keys share positions by chance only: 10 x 10 / 62, and the 0 of the padding.
        positions = masked["masked_positions"]
        shared = [len(np.intersect1d(positions[i], positions[i + 1])) for i in range(999)]
        assert abs(np.mean(shared) - 1 - 10 * 10 / 62) < 0.15


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("wrong", [-1, len(VOCABULARY)])
def test_unknown_ids_are_refused(whole_words, wrong):
    masker = TokenMasker(VOCABULARY, 2, whole_words=whole_words)
    row = tf.constant([[CLS, wrong, SEP]]), tf.ones([1, 3], tf.int32), tf.constant([1], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"token_ids must be 0 to {len(VOCABULARY) - 1}"):
        masker(*row)
    # In a graph the table of a whole-word masker may complain first.
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"token_ids must be 0 to|is not in .0, {len(VOCABULARY)}"):
        list(tf.data.Dataset.from_tensors(row).map(masker))


def test_invalid_inputs_are_refused():
    masker = TokenMasker(VOCABULARY, 2)
    ids = [[CLS, 7, SEP], [CLS, 8, SEP]]
    for wrong in (
        (ids, ids[:1], [1, 2]),
        (ids, ids, [1]),
        (ids[0], ids[0], [1, 2, 3]),
        (ids, ids, [[1], [2]]),
        (ids, ids, 1),
    ):
        with pytest.raises(ValueError, match=r"one for each row\. Received: shapes"):
            masker(*wrong)
    with pytest.raises(TypeError, match=r"keys must be integers\. Received: a tensor of float32"):
        masker(ids, ids, [1.0, 2.0])
    with pytest.raises(TypeError, match="padding_mask must be integers"):
        masker(ids, np.ones([2, 3], bool), [1, 2])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"vocabulary": SPECIAL[:-1]}, ValueError, r"lacks \[MASK\].*Add a line \[MASK\] to vocab.txt"),
        ({"vocabulary": SPECIAL[1:]}, ValueError, r"lacks \[PAD\]"),
        ({"vocabulary": "vocab.txt"}, TypeError, "list of strings"),
        ({"max_predictions": 0}, ValueError, "max_predictions must be at least 1. Received: 0"),
        ({"max_predictions": 2.0}, TypeError, "max_predictions must be an int. Received: 2.0"),
        ({"rate": 0.0}, ValueError, "rate must be above 0 and at most 1"),
        ({"rate": 15}, ValueError, "Received: 15"),
        ({"rate": float("nan")}, ValueError, "Received: nan"),
        ({"rate": "0.15"}, TypeError, "rate must be a number. Received: '0.15'"),
        ({"mask_token_rate": -0.1}, ValueError, "Received: -0.1 and 0.1"),
        ({"random_token_rate": -0.1}, ValueError, "Received: 0.8 and -0.1"),
        ({"mask_token_rate": 0.95}, ValueError, "together at most 1"),
        ({"mask_token_rate": float("nan")}, ValueError, "Received: nan"),
        ({"random_token_rate": None}, TypeError, "random_token_rate must be a number"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        TokenMasker(**{"vocabulary": SPECIAL, "max_predictions": 2, **arguments})


def test_predictions_per_sequence_never_limits():
    assert [predictions_per_sequence(length) for length in (1, 3, 10, 128, 384, 512)] == [1, 1, 2, 19, 58, 77]
    assert predictions_per_sequence(128, rate=0.4) == 51
    ids = np.full([4, 50], FIRST_WORD, np.int32)
    enough = predictions_per_sequence(50, 0.3)
    counts = [
        int(tf.reduce_sum(TokenMasker(VOCABULARY, cap, rate=0.3)(ids, np.ones_like(ids), range(4))["masked_weights"]))
        for cap in (enough - 1, enough, enough + 5)
    ]
    assert counts[0] < counts[1] == counts[2]
    for wrong, error in (((0,), ValueError), ((5.0,), TypeError), ((128, 0), ValueError)):
        with pytest.raises(error):
            predictions_per_sequence(*wrong)


def test_real_vocabulary_equals_the_reference(vocabularies, tokenizers):
    from keras_bert.text.preprocessor import BertPreprocessor

    texts = ["Unquestionably, the photosynthesising rhododendrons outlasted Wittgenstein's misunderstandings."] * 50
    packed = BertPreprocessor(tokenizers["uncased"])(texts)
    rows = packed["token_ids"].numpy(), packed["padding_mask"].numpy(), np.arange(50)
    masked = assert_equals_reference(
        *rows, vocabulary=vocabularies["uncased"], max_predictions=20, whole_words=True, rate=0.3
    )
    assert np.array_equal(originals(masked), rows[0])
