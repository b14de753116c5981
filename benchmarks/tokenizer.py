"""Ids of lines of text, without offsets, by `BertTokenizer` and by Hugging Face tokenizers, on all cores."""

import glob

from benchmarks.timing import median_seconds


def find_texts(patterns):
    """The files that patterns match, sorted.

    Args:
        patterns: list of str.

    Returns:
        list of str.
    """
    return sorted({file for pattern in patterns for file in glob.glob(pattern)})


def read_lines(patterns, most):
    """The lines of files that are not blank.

    Args:
        patterns: list of str, as for `find_texts`.
        most: int.

    Returns:
        list of str.
    """
    lines = []
    for file in find_texts(patterns):
        with open(file, encoding="utf-8-sig") as text:
            lines += [line.strip() for line in text if line.strip()]
        if len(lines) >= most:
            break
    return lines[:most]


def measure_ours(vocabulary, text, lines, batch_size, repeats):
    """`BertTokenizer` in tf.data."""
    import tensorflow as tf

    import keras_bert

    texts = read_lines(text, lines)
    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(batch_size).cache()
    ids = batches.map(lambda batch: tokenizer.tokenize(batch).values, num_parallel_calls=tf.data.AUTOTUNE)
    tokens = sum(int(tf.size(batch)) for batch in ids)
    return _figures(lambda: [None for _ in ids], repeats, len(texts), tokens)


def measure_encode_batch(vocabulary, text, lines, batch_size, repeats):
    """Hugging Face's `encode_batch`."""
    return _measure_hugging_face("encode_batch", vocabulary, text, lines, batch_size, repeats)


def measure_encode_batch_fast(vocabulary, text, lines, batch_size, repeats):
    """Hugging Face's `encode_batch_fast`, which leaves out offsets."""
    return _measure_hugging_face("encode_batch_fast", vocabulary, text, lines, batch_size, repeats)


def _measure_hugging_face(method, vocabulary, text, lines, batch_size, repeats):
    import tokenizers

    texts = read_lines(text, lines)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece.from_file(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    encode = getattr(tokenizer, method)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    tokens = sum(len(row.ids) for batch in batches for row in encode(batch, add_special_tokens=False))

    def encode_all():
        for batch in batches:
            encode(batch, add_special_tokens=False)

    return _figures(encode_all, repeats, len(texts), tokens)


def _figures(tokenize_all, repeats, lines, tokens):
    # The tokens were counted in a pass over everything: that was the warm-up.
    seconds = median_seconds(tokenize_all, repeats, warm_ups=0)
    return {("tokenize", "s"): seconds}, f"{lines} lines, {tokens} tokens, {tokens / seconds:.3g} tokens/s"


PROGRAMS = {
    "keras_bert": measure_ours,
    "Hugging Face encode_batch": measure_encode_batch,
    "Hugging Face encode_batch_fast": measure_encode_batch_fast,
}
