"""Tokenizing lines of text to ids, without offsets, by `BertTokenizer` and by Hugging Face tokenizers, on all cores."""

import glob

from benchmarks.timing import median_seconds


def find_texts(patterns):
    """Returns the files that match the patterns, sorted."""
    return sorted({file for pattern in patterns for file in glob.glob(pattern)})


def read_lines(values):
    """Reads the first `values.lines` lines that are not blank from the files that match `values.text`."""
    lines = []
    for file in find_texts(values.text):
        with open(file, encoding="utf-8-sig") as text:
            lines += [line.strip() for line in text if line.strip()]
        if len(lines) >= values.lines:
            break
    return lines[: values.lines]


def measure_ours(values):
    """Measures `BertTokenizer` in tf.data."""
    import tensorflow as tf

    import keras_bert

    texts = read_lines(values)
    tokenizer = keras_bert.BertTokenizer(values.vocabulary, lower_case=True)
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(values.batch_size).cache()
    ids = batches.map(lambda batch: tokenizer.tokenize(batch).values, num_parallel_calls=tf.data.AUTOTUNE)
    num_tokens = sum(int(tf.size(batch)) for batch in ids)
    return make_figures(lambda: [None for _ in ids], values.repeats, len(texts), num_tokens)


def measure_hugging_face(values):
    """Measures Hugging Face's `encode_batch_fast`, which leaves out offsets."""
    import tokenizers

    texts = read_lines(values)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece.from_file(values.vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    batches = [texts[start : start + values.batch_size] for start in range(0, len(texts), values.batch_size)]

    def encode():
        return [tokenizer.encode_batch_fast(batch, add_special_tokens=False) for batch in batches]

    num_tokens = sum(len(row.ids) for batch in encode() for row in batch)
    return make_figures(encode, values.repeats, len(texts), num_tokens)


def make_figures(tokenize, repeats, num_lines, num_tokens):
    # Counting the tokens was the warm-up.
    seconds = median_seconds(tokenize, repeats, warm_ups=0)
    return {"tokenize tok/s": num_tokens / seconds}, f"{num_lines} lines, {num_tokens} tokens"


PROGRAMS = {"keras_bert": measure_ours, "Hugging Face": measure_hugging_face}
