"""Masking of packed rows of ids in tf.data, by `TokenMasker` and by tensorflow-text, on all cores.

tensorflow-text is measured with single pieces alone: with whole words, its limit counts words. Its result is brought to
the same form: ids, and positions, labels and weights of a fixed number a row.
"""

from benchmarks.timing import median_seconds
from benchmarks.tokenizer import read_lines


def read_rows(vocabulary, text, lines, sequence_length):
    """Full rows of ids from lines of text: `[CLS]`, half of a row, `[SEP]`, the other half, `[SEP]`.

    Args:
        vocabulary: str, path of a lower-case vocab.txt.
        text: list of str, patterns of files.
        lines: int, most lines.
        sequence_length: int, ids in a row, at least 5.

    Returns:
        int32 array `[rows, sequence_length]`.

    Raises:
        ValueError: the row is too short for two segments, or the lines do not fill one.
    """
    import numpy as np

    import keras_bert

    if sequence_length < 5:
        raise ValueError(f"a row of two segments has 5 ids or more; got {sequence_length}")
    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    ids = tokenizer.tokenize(read_lines(text, lines)).values.numpy()
    tokens = sequence_length - 3
    if len(ids) < tokens:
        raise ValueError(f"{len(ids)} tokens do not fill a row of {sequence_length}; give more --text or --lines")
    ids = ids[: len(ids) // tokens * tokens].reshape(-1, tokens)
    cls_id, sep_id = (np.full([len(ids), 1], special, np.int32) for special in (tokenizer.cls_id, tokenizer.sep_id))
    first, second = np.split(ids, [tokens // 2], axis=1)
    return np.concatenate([cls_id, first, sep_id, second, sep_id], axis=1)


def measure_ours(vocabulary, text, lines, batch_size, sequence_length, max_predictions, repeats):
    """`TokenMasker`, by pieces and by whole words."""
    from keras_bert.text.masking import TokenMasker
    from keras_bert.text.vocabulary import load_vocabulary

    rows = read_rows(vocabulary, text, lines, sequence_length)
    entries = load_vocabulary(vocabulary)
    figures = {}
    for name, whole_words in (("pieces", False), ("words", True)):
        masker = TokenMasker(entries, max_predictions, whole_words=whole_words)
        figures[name, "ex/s"] = _rows_per_second(masker, rows, batch_size, repeats)
    return figures, _describe(rows)


def measure_tensorflow_text(vocabulary, text, lines, batch_size, sequence_length, max_predictions, repeats):
    """tensorflow-text's `mask_language_model`, whose random numbers have no seed."""
    import tensorflow as tf
    import tensorflow_text

    from keras_bert.text.masking import MASK_SHARE, RANDOM_SHARE, RATE
    from keras_bert.text.vocabulary import load_vocabulary

    rows = read_rows(vocabulary, text, lines, sequence_length)
    entries = load_vocabulary(vocabulary)
    unselectable = [entries.index(token) for token in ("[CLS]", "[SEP]")]
    selector = tensorflow_text.RandomItemSelector(max_predictions, RATE, unselectable_ids=unselectable)
    mask_id = entries.index("[MASK]")
    chooser = tensorflow_text.MaskValuesChooser(len(entries), mask_id, MASK_SHARE, RANDOM_SHARE)

    def mask(token_ids, padding_mask, keys):
        ragged = tf.RaggedTensor.from_tensor(token_ids, lengths=tf.reduce_sum(padding_mask, axis=1))
        masked, positions, labels = tensorflow_text.mask_language_model(ragged, selector, chooser)
        positions, weights = tensorflow_text.pad_model_inputs(positions, max_predictions)
        labels, _ = tensorflow_text.pad_model_inputs(labels, max_predictions)
        return masked.to_tensor(shape=tf.shape(token_ids)), positions, labels, weights

    return {("pieces", "ex/s"): _rows_per_second(mask, rows, batch_size, repeats)}, _describe(rows)


def _rows_per_second(mask, rows, batch_size, repeats):
    import numpy as np
    import tensorflow as tf

    inputs = (rows, np.ones_like(rows), np.arange(len(rows)))
    batches = tf.data.Dataset.from_tensor_slices(inputs).batch(batch_size).cache()
    masked = batches.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return len(rows) / median_seconds(lambda: _exhaust(masked), repeats)


def _exhaust(dataset):
    for _ in dataset:
        pass


def _describe(rows):
    return f"{rows.shape[0]} rows of {rows.shape[1]} ids"


PROGRAMS = {
    "keras_bert": measure_ours,
    "tensorflow-text": measure_tensorflow_text,
}
