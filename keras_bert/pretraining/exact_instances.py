"""The instances of google-research/bert's `create_pretraining_data.py`, to the last random number.

For comparisons with it alone: everything is in memory, and one core does it all. The choice of sentences is the one of
`instances`; masking is here a second time, because the original draws from Python's generator piece by piece.
"""

from contextlib import ExitStack
from itertools import cycle
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instances import document_segments
from keras_bert.pretraining.records import serialize
from keras_bert.pretraining.shard_files import SIDECAR_SUFFIX, record_file, write_sidecar
from keras_bert.pretraining.shards import check_files, lines_of_range

_MASK_SHARE = 0.8
_KEPT_SHARE_OF_OTHERS = 0.5


class ExactInstance(NamedTuple):
    """A `TrainingInstance` of the original, in ids.

    Args:
        token_ids: list of int, masked.
        first_length: int. Tokens of [CLS] a [SEP], the first segment; the others are of the second.
        is_random_next: bool.
        masked_positions: list of int, ascending.
        masked_labels: list of int, the ids that stood there.
    """

    token_ids: list
    first_length: int
    is_random_next: bool
    masked_positions: list
    masked_labels: list


def read_exact_documents(paths, tokenizer):
    """Reads a corpus as the original does: a document goes on into the next file, unless a blank line ends it.

    Args:
        paths: list of str.
        tokenizer: `BertTokenizer`.

    Returns:
        `TokenizedDocuments`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is compressed or not UTF-8, or no file has a token.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"], lower_case=True)
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("a b\\nb\\n\\na")
    >>> read_exact_documents([str(path)], tokenizer).documents
    [[0, 2, 3], [3, 4]]
    """
    check_files(paths)
    sizes = [(path, 0, tf.io.gfile.stat(path).length) for path in paths]
    documents = tokenize_documents((line for file in sizes for line in lines_of_range(*file)), tokenizer.tokenize)
    if not documents.documents:
        raise ValueError(f"there is no text in {', '.join(paths[:5])}: give prepared text, one sentence a line")
    return documents


def exact_instances(
    token_ids,
    documents,
    vocabulary,
    rng,
    sequence_length,
    max_predictions,
    copies=10,
    masking_rate=0.15,
    short_sequence_rate=0.1,
    whole_words=False,
):
    """Makes all instances of a corpus in the original's order.

    Source: `create_training_instances` and `create_masked_lm_predictions` of `create_pretraining_data.py`.

    Args:
        token_ids: int array [tokens], of all documents.
        documents: list of lists of int, as `instances` describes them; none of them without a sentence.
        vocabulary: list of str.
        rng: `random.Random`. Afterwards its next number is the one that it is in the original.
        sequence_length: int.
        max_predictions: int.
        copies: int. `dupe_factor` of the original: how often each document is used.
        masking_rate: float. `masked_lm_prob`.
        short_sequence_rate: float. `short_seq_prob`.
        whole_words: bool. Whether all pieces of a word are masked together. As in the original a segment that begins
            within a word, because it was cut there, adds to the last word of the segment before.

    Returns:
        list of `ExactInstance`.

    Example:

    >>> import random
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    >>> instances = exact_instances([5, 6, 7, 8], [[0, 2, 4]], vocabulary, random.Random(1), 16, 2, copies=1)
    >>> instances[0].token_ids
    [2, 5, 4, 3, 5, 6, 7, 8, 3]
    """
    masking = _Masking(vocabulary, rng, max_predictions, masking_rate, whole_words)
    token_ids = np.asarray(token_ids).tolist()
    documents = list(documents)
    rng.shuffle(documents)
    instances = [
        masking.instance(token_ids, segments)
        for _ in range(copies)
        for index in range(len(documents))
        for segments in document_segments(documents, index, sequence_length, rng, "nsp", short_sequence_rate)
    ]
    rng.shuffle(instances)
    return instances


class _Masking:
    """The original's masking. Its draws come between those that choose the sentences."""

    def __init__(self, vocabulary, rng, max_predictions, rate, whole_words):
        ids = {token: number for number, token in enumerate(vocabulary)}
        self._cls, self._sep, self._mask = (ids[token] for token in ("[CLS]", "[SEP]", "[MASK]"))
        self._words = list(ids.values())  # of an entry that stands twice, the place of the first and the id of the last
        self._continues_word = [token.startswith("##") for token in vocabulary]
        self._rng = rng
        self._max_predictions = max_predictions
        self._rate = rate
        self._whole_words = whole_words

    def instance(self, token_ids, segments):
        a, b = token_ids[segments.a_start : segments.a_end], token_ids[segments.b_start : segments.b_end]
        original = [self._cls, *a, self._sep, *b, self._sep]
        candidates = [*range(1, len(a) + 1), *range(len(a) + 2, len(original) - 1)]
        words = self._words_of(original, candidates) if self._whole_words else [[place] for place in candidates]
        masked, places = self._masked(original, words)
        labels = [original[place] for place in places]
        return ExactInstance(masked, len(a) + 2, bool(segments.label), places, labels)

    def _words_of(self, token_ids, candidates):
        words = []
        for place in candidates:
            if words and self._continues_word[token_ids[place]]:
                words[-1].append(place)
            else:
                words.append([place])
        return words

    def _masked(self, original, words):
        rng = self._rng
        rng.shuffle(words)
        number = min(self._max_predictions, max(1, round(len(original) * self._rate)))
        masked, places = list(original), []
        for word in words:
            if len(places) >= number:
                break
            if len(places) + len(word) > number:
                continue
            for place in word:
                masked[place] = self._replacement(original[place])
                places.append(place)
        return masked, sorted(places)

    def _replacement(self, token_id):
        rng = self._rng
        if rng.random() < _MASK_SHARE:
            return self._mask
        if rng.random() < _KEPT_SHARE_OF_OTHERS:
            return token_id
        return self._words[rng.randint(0, len(self._words) - 1)]


def write_exact(paths, instances, sequence_length, max_predictions, form, facts):
    """Writes instances to files that take turns, as the original does.

    Args:
        paths: list of str. Each appears whole, with what made it beside it.
        instances: list of `ExactInstance`.
        sequence_length, max_predictions: int.
        form: str, the names of the features: "bert" or "models".
        facts: dict fit for JSON, what made them.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: as `check_free`.
    """
    check_free(paths)
    numbers = dict.fromkeys(paths, 0)
    with ExitStack() as files:
        writers = cycle([(path, files.enter_context(record_file(path))) for path in paths])
        for batch in batches_of_arrays(instances, sequence_length, max_predictions):
            for record in serialize(batch, form):
                path, write = next(writers)
                write(record)
                numbers[path] += 1
    for path in paths:
        write_sidecar(path, {**facts, "mode": "exact", "form": form, "instances": numbers[path]})


def check_free(paths):
    """Refuses files that exist, so that nothing is overwritten, and those whose folder is not there.

    Args:
        paths: list of str.

    Raises:
        FileExistsError: if there is such a file, or the one that is to stand beside it.
        FileNotFoundError: if there is no folder for it.
        ValueError: if one is given twice.
    """
    for path in paths:
        for each in (path, path + SIDECAR_SUFFIX):
            if tf.io.gfile.exists(each):
                raise FileExistsError(f"{each} exists; delete it, or give another name")
        folder = path.rpartition("/")[0]
        if folder and not tf.io.gfile.isdir(folder):
            raise FileNotFoundError(f"there is no folder {folder} for {path}; make it")
    if len(set(paths)) < len(paths):
        raise ValueError(f"a file is given twice: {', '.join(paths)}")


def batches_of_arrays(instances, sequence_length, max_predictions, batch_size=1024):
    """Instances as padded arrays, in their order.

    Source: `write_instance_to_example_files` of `create_pretraining_data.py`.

    Args:
        instances: list of `ExactInstance`.
        sequence_length, max_predictions: int, as for `exact_instances`.
        batch_size: int.

    Yields:
        dict of arrays, as `InstanceMaker.make` gives them.

    Example:

    >>> instance = ExactInstance([2, 4, 3, 6, 3], 3, True, [1], [5])
    >>> (batch,) = batches_of_arrays([instance], sequence_length=6, max_predictions=2)
    >>> batch["token_ids"].tolist(), batch["masked_labels"].tolist()
    ([[2, 4, 3, 6, 3, 0]], [[5, 0]])
    """
    for start in range(0, len(instances), batch_size):
        batch = instances[start : start + batch_size]
        lengths = [len(instance.token_ids) for instance in batch]
        firsts = [instance.first_length for instance in batch]
        positions = np.arange(sequence_length)
        padding_mask = (positions < np.array(lengths)[:, None]).astype("int32")
        yield {
            "token_ids": _padded([instance.token_ids for instance in batch], sequence_length),
            "padding_mask": padding_mask,
            "segment_ids": padding_mask * (positions >= np.array(firsts)[:, None]),
            "masked_positions": _padded([instance.masked_positions for instance in batch], max_predictions),
            "masked_labels": _padded([instance.masked_labels for instance in batch], max_predictions),
            "masked_weights": _padded([[1] * len(instance.masked_positions) for instance in batch], max_predictions),
            "next_sentence_labels": np.array([instance.is_random_next for instance in batch], "int32"),
        }


def _padded(rows, width):
    padded = np.zeros([len(rows), width], "int32")
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
