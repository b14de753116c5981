import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.masking import TokenMasker, predictions_per_sequence
from tests.reference import masking as reference

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = [*SPECIAL, "[unused0]", *(f"word{i}" for i in range(60)), *(f"##part{i}" for i in range(30))]
WORD, PART = VOCABULARY.index("word0"), VOCABULARY.index("##part0")
NAMES = {"token_ids", "masked_positions", "masked_labels", "masked_weights"}


@pytest.fixture(params=[False, True])
def whole_words(request):
    return request.param


def random_rows(rows, length, seed=0, min_length=5):
    """Makes packed pairs of different lengths: arrays of token_ids, padding_mask and keys."""
    generator = np.random.default_rng(seed)
    words = generator.integers(WORD, PART, (rows, length))
    continuations = generator.integers(PART, len(VOCABULARY), (rows, length))
    ids = np.where(generator.random((rows, length)) < 0.3, continuations, words)
    lengths = generator.integers(min_length, length + 1, rows)
    middles = generator.integers(1, lengths - 1)
    ids[:, 0] = CLS
    ids[np.arange(rows), middles] = SEP
    ids[np.arange(rows), lengths - 1] = SEP
    padding_mask = np.arange(length) < lengths[:, np.newaxis]
    keys = generator.integers(-(2**63), 2**63, rows)
    return (ids * padding_mask).astype(np.int32), padding_mask.astype(np.int32), keys


def arrays(masked):
    return {name: value.numpy() for name, value in masked.items()}


def assert_equal(masked, expected):
    assert set(masked) == set(expected) == NAMES
    for name, value in masked.items():
        assert np.array_equal(value, expected[name]), name


def assert_equals_reference(ids, padding_mask, keys, vocabulary=VOCABULARY, **arguments):
    """Compares the masks, and restores the original ids from them."""
    masked = arrays(TokenMasker(vocabulary, **arguments)(ids, padding_mask, keys))
    rows = [
        reference.mask_row(*(values.tolist() for values in row), vocabulary, **arguments)
        for row in zip(ids, padding_mask, keys, strict=True)
    ]
    assert_equal(masked, {name: np.array([row[name] for row in rows]) for name in NAMES})
    rows, columns = np.nonzero(masked["masked_weights"])
    masked["token_ids"][rows, masked["masked_positions"][rows, columns]] = masked["masked_labels"][rows, columns]
    assert np.array_equal(masked["token_ids"], ids)


@pytest.mark.parametrize(
    ("length", "max_predictions", "rate"), [(5, 1, 0.15), (40, 20, 0.15), (40, 4, 0.3), (24, 24, 1.0), (64, 77, 0.45)]
)
def test_masks_equal_the_reference(whole_words, length, max_predictions, rate):
    rows = random_rows(400, length, seed=length + max_predictions)
    assert_equals_reference(*rows, max_predictions=max_predictions, rate=rate, whole_words=whole_words)


@pytest.mark.parametrize(("mask_token_rate", "random_token_rate"), [(0.3, 0.6), (0, 0), (1, 0), (0, 1)])
def test_random_ids_and_padding_equal_the_reference(whole_words, mask_token_rate, random_token_rate):
    generator = np.random.default_rng(3)
    ids = generator.integers(0, len(VOCABULARY), (200, 30)).astype(np.int32)
    padding_mask = generator.integers(0, 2, ids.shape).astype(np.int32)
    rates = {"mask_token_rate": mask_token_rate, "random_token_rate": random_token_rate, "rate": 0.4}
    keys = generator.integers(-(2**63), 2**63, len(ids))
    assert_equals_reference(ids, padding_mask, keys, max_predictions=7, whole_words=whole_words, **rates)


@pytest.mark.parametrize(
    "row",
    [
        [CLS, SEP, SEP, PAD, PAD, PAD, PAD],  # no candidates
        [PAD] * 7,
        [CLS, UNK, SEP, PAD, PAD, PAD, PAD],
        [CLS, PART, WORD, SEP, PART, PART, SEP],  # words do not cross separators
        [CLS, WORD, PART, PART, SEP, PAD, PAD],  # longer than the number of tokens to mask
    ],
)
def test_special_rows_equal_the_reference(whole_words, row):
    ids = np.tile(np.array(row, np.int32), [50, 1])
    padding_mask = (ids != PAD).astype(np.int32)
    assert_equals_reference(ids, padding_mask, np.arange(50), max_predictions=2, rate=0.3, whole_words=whole_words)


@pytest.mark.parametrize(
    ("rate", "length", "number"),
    # The exact products are 1.5, 4.5, 7.5, 10.5, 31.5 and 60.5. In float64, as in Python, the last two are slightly
    # less and slightly more; in float32 they are not.
    [(0.15, 10, 2), (0.15, 30, 4), (0.15, 50, 8), (0.15, 70, 10), (0.35, 90, 31), (0.55, 110, 61)],
)
def test_number_is_rounded_as_in_python(rate, length, number):
    ids = np.full([1, length], WORD, np.int32)
    masked = TokenMasker(VOCABULARY, 100, rate=rate)(ids, np.ones_like(ids), [1])
    assert tf.reduce_sum(masked["masked_weights"]) == number == round(rate * length)


def test_observed_rates_equal_the_defaults(whole_words):
    ids, padding_mask, keys = random_rows(20_000, 128, min_length=64)
    masked = arrays(TokenMasker(VOCABULARY, 20, whole_words=whole_words)(ids, padding_mask, keys))
    assert abs(masked["masked_weights"].sum() / padding_mask.sum() - 0.15) < 0.005
    chosen = masked["masked_weights"] > 0
    inputs = np.take_along_axis(masked["token_ids"], masked["masked_positions"], axis=1)[chosen]
    random_but_equal = 0.1 / len(VOCABULARY)  # a random entry may be [MASK], or the label itself
    assert abs((inputs == MASK).mean() - 0.8 - random_but_equal) < 0.005
    assert abs((inputs == masked["masked_labels"][chosen]).mean() - 0.1 - random_but_equal) < 0.005


def test_mask_does_not_depend_on_the_batch(whole_words):
    ids, padding_mask, keys = random_rows(60, 40)
    masker = TokenMasker(VOCABULARY, 6, whole_words=whole_words)
    whole = arrays(masker(ids, padding_mask, keys))
    tf.random.set_seed(7)
    rows = tf.data.Dataset.from_tensor_slices((ids, padding_mask, keys)).batch(7).map(masker, num_parallel_calls=4)
    assert rows.element_spec["masked_labels"] == tf.TensorSpec([None, 6], tf.int32)
    batches = [arrays(batch) for batch in rows]
    assert_equal(whole, {name: np.concatenate([batch[name] for batch in batches]) for name in NAMES})
    wider = [np.pad(part, [[0, 0], [0, 9]]) for part in (ids, padding_mask)]
    assert_equal(arrays(masker(*wider, keys)), {**whole, "token_ids": np.pad(whole["token_ids"], [[0, 0], [0, 9]])})


def test_traced_function_equals_eager_mode(whole_words):
    masker = TokenMasker(VOCABULARY, 5, whole_words=whole_words)
    ids_spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(masker.__call__, input_signature=[ids_spec, ids_spec, tf.TensorSpec([None], tf.int64)])
    for rows, length in ((4, 30), (0, 6), (9, 5), (3, 0), (0, 0)):
        empty = np.zeros([rows, length], np.int32)
        inputs = random_rows(rows, length) if rows and length else (empty, empty, np.arange(rows))
        assert_equal(arrays(traced(*inputs)), arrays(masker(*inputs)))
    for num_masks, num_keys in ((2, 1), (1, 2)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one for each row"):
            traced(np.zeros([2, 5], np.int32), np.zeros([num_masks, 5], np.int32), np.arange(num_keys))


@pytest.mark.parametrize("wrong", [-1, len(VOCABULARY)])
def test_unknown_ids_are_refused(whole_words, wrong):
    masker = TokenMasker(VOCABULARY, 2, whole_words=whole_words)
    row = tf.constant([[CLS, wrong, SEP]]), tf.ones([1, 3], tf.int32), tf.constant([1], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"token_ids must be 0 to {len(VOCABULARY) - 1}"):
        masker(*row)
    # In a graph the table of a whole-word masker may fail first.
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"token_ids must be 0 to|is not in .0, {len(VOCABULARY)}"):
        list(tf.data.Dataset.from_tensors(row).map(masker))


IDS = [[CLS, 7, SEP], [CLS, 8, SEP]]


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((IDS, IDS[:1], [1, 2]), ValueError, r"one for each row\. Received: shapes"),
        ((IDS, IDS, [[1], [2]]), ValueError, r"one for each row\. Received: shapes"),
        ((IDS, IDS, [1.0, 2.0]), TypeError, r"keys must be integers\. Received: a tensor of float32"),
        ((IDS, np.ones([2, 3], bool), [1, 2]), TypeError, "padding_mask must be integers"),
    ],
)
def test_invalid_inputs_are_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        TokenMasker(VOCABULARY, 2)(*inputs)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"vocabulary": SPECIAL[:-1]}, ValueError, r"lacks \[MASK\].*Add a line \[MASK\] to vocab.txt"),
        ({"vocabulary": "vocab.txt"}, TypeError, "list of strings"),
        ({"max_predictions": 0}, ValueError, "max_predictions must be at least 1. Received: 0"),
        ({"max_predictions": 2.0}, TypeError, "max_predictions must be an int. Received: 2.0"),
        ({"rate": 0.0}, ValueError, "rate must be above 0 and at most 1"),
        ({"rate": "0.15"}, TypeError, "rate must be a number. Received: '0.15'"),
        ({"random_token_rate": -0.1}, ValueError, "Received: 0.8 and -0.1"),
        ({"mask_token_rate": 0.95}, ValueError, "together at most 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        TokenMasker(**{"vocabulary": SPECIAL, "max_predictions": 2, **arguments})


def test_predictions_per_sequence_never_limits():
    assert [predictions_per_sequence(length) for length in (1, 3, 10, 128, 384, 512)] == [1, 1, 2, 19, 58, 77]
    assert predictions_per_sequence(128, rate=0.4) == 51
    for wrong, error in (((0,), ValueError), ((5.0,), TypeError), ((128, 0), ValueError)):
        with pytest.raises(error):
            predictions_per_sequence(*wrong)
