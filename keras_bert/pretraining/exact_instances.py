"""Exact reproduction of google-research/bert `create_pretraining_data.py`, in memory and on one core.

Differs from BERT: files are read in the order of the given paths, not in that of the file system.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.pretraining.documents import TokenizedDocuments, tokenize_documents
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.instances import Segments, choose_segments
from keras_bert.pretraining.records import serialize_records
from keras_bert.pretraining.shard_files import SIDECAR_SUFFIX, open_record_file, write_sidecar
from keras_bert.pretraining.shards import check_files, read_range
from keras_bert.text.tokenizer import BertTokenizer

_MASK_RATE = 0.8
_KEEP_RATE_OF_OTHERS = 0.5
_BATCH_SIZE = 1024


class ExactInstance(NamedTuple):
    """The original's `TrainingInstance` in ids. `first_length` counts the tokens of `[CLS] a [SEP]`."""

    token_ids: list[int]
    first_length: int
    is_random_next: bool
    masked_positions: list[int]
    masked_labels: list[int]


def read_exact_documents(paths: Sequence[str], tokenizer: BertTokenizer) -> TokenizedDocuments:
    """Reads a corpus like the original: a document continues in the next file unless a blank line ends it.

    Carriage returns are removed, also within a line, as `GFile.readline` does: `alpha\\rbeta` is one word.
    """
    check_files(paths)
    ranges = [(path, 0, tf.io.gfile.stat(path).length) for path in paths]
    lines = (line.replace("\r", "") for file_range in ranges for line in read_range(*file_range))
    documents = tokenize_documents(lines, tokenizer.tokenize)
    if not documents.documents:
        raise ValueError(f"no text found in {', '.join(paths[:5])}; give prepared text with one sentence per line")
    return documents


def make_exact_instances(
    documents: TokenizedDocuments,
    vocabulary: Sequence[str],
    rng: random.Random,
    settings: InstanceSettings,
    num_copies: int = 10,
) -> list[ExactInstance]:
    """Makes all instances of a corpus in the original's order; `num_copies` is the original's `dupe_factor`.

    Source: `create_training_instances` and `create_masked_lm_predictions`. As there, with whole words the wordpieces
    that start a truncated segment join the last word of the segment before.
    """
    masking = _Masking(vocabulary, rng, settings)
    token_ids = documents.token_ids.tolist()
    shuffled_documents = list(documents.documents)
    rng.shuffle(shuffled_documents)
    instances = [
        masking.make_instance(token_ids, segments)
        for _ in range(num_copies)
        for index in range(len(shuffled_documents))
        for segments in choose_segments(shuffled_documents, index, settings, rng)
    ]
    rng.shuffle(instances)
    return instances


class _Masking:
    """The original's masking, whose draws alternate with those that choose the sentences."""

    def __init__(self, vocabulary: Sequence[str], rng: random.Random, settings: InstanceSettings) -> None:
        ids = {token: token_id for token_id, token in enumerate(vocabulary)}
        self._cls, self._sep, self._mask = (ids[token] for token in ("[CLS]", "[SEP]", "[MASK]"))
        self._random_ids = list(ids.values())  # a duplicate entry has the position of the first and the id of the last
        self._continues_word = [token.startswith("##") for token in vocabulary]
        self._rng = rng
        self._settings = settings

    def make_instance(self, token_ids: list[int], segments: Segments) -> ExactInstance:
        a, b = token_ids[segments.a_start : segments.a_end], token_ids[segments.b_start : segments.b_end]
        original = [self._cls, *a, self._sep, *b, self._sep]
        candidates = [*range(1, len(a) + 1), *range(len(a) + 2, len(original) - 1)]
        if self._settings.do_whole_word_mask:
            words = self._group_words(original, candidates)
        else:
            words = [[position] for position in candidates]
        masked, positions = self._mask_tokens(original, words)
        labels = [original[position] for position in positions]
        return ExactInstance(masked, len(a) + 2, bool(segments.label), positions, labels)

    def _group_words(self, token_ids: list[int], candidates: list[int]) -> list[list[int]]:
        words: list[list[int]] = []
        for position in candidates:
            if words and self._continues_word[token_ids[position]]:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _mask_tokens(self, original: list[int], words: list[list[int]]) -> tuple[list[int], list[int]]:
        self._rng.shuffle(words)
        wanted = max(1, round(len(original) * self._settings.masked_lm_prob))
        num_masked = min(self._settings.max_predictions, wanted)
        masked, positions = list(original), list[int]()
        for word in words:
            if len(positions) >= num_masked:
                break
            if len(positions) + len(word) > num_masked:
                continue
            for position in word:
                masked[position] = self._replacement(original[position])
                positions.append(position)
        return masked, sorted(positions)

    def _replacement(self, token_id: int) -> int:
        if self._rng.random() < _MASK_RATE:
            return self._mask
        if self._rng.random() < _KEEP_RATE_OF_OTHERS:
            return token_id
        return self._random_ids[self._rng.randint(0, len(self._random_ids) - 1)]


def write_exact_instances(
    paths: Sequence[str],
    instances: Sequence[ExactInstance],
    settings: InstanceSettings,
    record_format: str,
    metadata: Mapping[str, Any],
) -> None:
    """Writes instances to files in turn, like the original, each file with a sidecar that holds `metadata`."""
    check_outputs(paths)
    counts = dict.fromkeys(paths, 0)
    with ExitStack() as files:
        writers = cycle([(path, files.enter_context(open_record_file(path))) for path in paths])
        for batch in _pad_batches(instances, settings):
            for record in serialize_records(batch, record_format):
                path, write = next(writers)
                write(record)
                counts[path] += 1
    for path in paths:
        settings_of_file = {"mode": "exact", "record_format": record_format, "instances": counts[path]}
        write_sidecar(path, {**metadata, **settings_of_file})


def check_outputs(paths: Sequence[str]) -> None:
    """Raises an error if an output file exists, its folder does not, or a path is given twice."""
    for path in paths:
        for each in (path, path + SIDECAR_SUFFIX):
            if tf.io.gfile.exists(each):
                raise FileExistsError(f"{each} exists; delete it, or give another name")
        folder = path.rpartition("/")[0]
        if folder and not tf.io.gfile.isdir(folder):
            raise FileNotFoundError(f"the folder {folder} of {path} does not exist; create it")
    if len(set(paths)) < len(paths):
        raise ValueError(f"an output file is given twice: {', '.join(paths)}")


def _pad_batches(instances: Sequence[ExactInstance], settings: InstanceSettings) -> Iterator[dict[str, np.ndarray]]:
    """Yields padded arrays by name, as in the original's `write_instance_to_example_files`."""
    length, max_predictions = settings.sequence_length, settings.max_predictions
    positions = np.arange(length)
    for start in range(0, len(instances), _BATCH_SIZE):
        batch = instances[start : start + _BATCH_SIZE]
        lengths = np.array([len(instance.token_ids) for instance in batch])
        first_lengths = np.array([instance.first_length for instance in batch])
        padding_mask = (positions < lengths[:, None]).astype("int32")
        yield {
            "token_ids": _pad([instance.token_ids for instance in batch], length),
            "padding_mask": padding_mask,
            "segment_ids": padding_mask * (positions >= first_lengths[:, None]),
            "masked_positions": _pad([instance.masked_positions for instance in batch], max_predictions),
            "masked_labels": _pad([instance.masked_labels for instance in batch], max_predictions),
            "masked_weights": _pad([[1] * len(instance.masked_positions) for instance in batch], max_predictions),
            "next_sentence_labels": np.array([instance.is_random_next for instance in batch], "int32"),
        }


def _pad(rows: list[list[int]], width: int) -> np.ndarray:
    padded = np.zeros([len(rows), width], "int32")
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
