"""Predictions for rows in batches of texts of similar length."""

import collections
import concurrent.futures
from dataclasses import dataclass

from tools.prediction_files import read_chunk

# Bounds on the memory where a text is a book: a chunk ends with the row that reaches so many characters, a batch before
# the row that would exceed them, with every row counted as long as the longest. Some models read a whole batch at once,
# in windows: two threads took 4 GiB with windows of 384 tokens and 12 heads.
MAX_CHUNK_CHARACTERS = 2**22
_MAX_BATCH_CHARACTERS = 2**16


@dataclass(frozen=True)
class Batching:
    """Rows that are read and sorted by length at a time, rows per batch, and batches computed at the same time."""

    chunk_size: int
    batch_size: int
    num_threads: int


def predict_rows(rows, predict, batching):
    """Predicts for rows in order, computing batches of texts of similar length.

    The next chunk is read while one is computed; at most two are in memory.
    """
    pool = concurrent.futures.ThreadPoolExecutor(batching.num_threads)
    waiting = collections.deque()
    try:
        while chunk := read_chunk(rows, batching.chunk_size, MAX_CHUNK_CHARACTERS):
            batches = _make_batches(chunk, batching.batch_size)
            futures = [pool.submit(predict, [chunk[i].texts for i in batch]) for batch in batches]
            waiting.append((chunk, batches, futures))
            if len(waiting) == 2:
                yield from _restore_order(*waiting.popleft())
        while waiting:
            yield from _restore_order(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def predict_texts(signature, names, rows):
    """Returns the named predictions of a `ServingSignature` for one batch of the texts of rows."""
    return signature(dict(zip(signature.inputs, zip(*rows, strict=True), strict=True)), names)


def _make_batches(chunk, batch_size):
    """Groups the indices of a chunk's rows into batches of similar length."""
    sizes = [_measure(row.texts) for row in chunk]
    batches, longest = [[]], 0
    for index in sorted(range(len(chunk)), key=sizes.__getitem__):
        num_sequences, length = sizes[index]
        longest, num_rows = max(longest, length), len(batches[-1])
        is_full = num_rows and (num_rows + 1) * num_sequences * longest > _MAX_BATCH_CHARACTERS
        if num_rows == batch_size or is_full:
            batches.append([])
            longest = length
        batches[-1].append(index)
    return batches


def _measure(texts):
    """Returns the number of sequences of a row, and the number of characters of the longest."""
    inputs = [[text] if isinstance(text, str) else text for text in texts]
    return max(map(len, inputs)), sum(max(map(len, texts)) for texts in inputs)


def _restore_order(chunk, batches, futures):
    predictions = [None] * len(chunk)
    for batch, future in zip(batches, futures, strict=True):
        for index, prediction in zip(batch, future.result(), strict=True):
            predictions[index] = prediction
    return zip(chunk, predictions, strict=True)
