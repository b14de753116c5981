"""From the text of a shard to instances, the same for files that are written and for input made on the fly.

An instance is a function of the settings, the shard's number and text, and the number of the copy. It does not depend
on the other shards, on the number of processes, or on what else is in its batch.
"""

import random
from array import array

import numpy as np
import tensorflow as tf

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instances import document_segments
from keras_bert.pretraining.shards import read_lines
from keras_bert.text.masking import TokenMasker
from keras_bert.text.pack import pack

_KEY_BITS = 63
COLUMNS = 6  # five of a `Segments`, and the key of its masks


class InstanceMaker:
    """Makes instances of shards.

    Args:
        tokenizer: `BertTokenizer`.
        settings: `InstanceSettings`.

    Raises:
        ValueError: if the vocabulary has no [MASK], or a setting is out of range.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(
    ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"], lower_case=True
    ... )
    >>> from keras_bert.pretraining.instance_settings import InstanceSettings
    >>> maker = InstanceMaker(tokenizer, InstanceSettings(sequence_length=8, max_predictions=1))
    >>> documents = tokenize_documents(["a a", "b b", "", "c", "a c"], tokenizer.tokenize)
    >>> rows = maker.choose(documents, shard_number=0, copy=0)
    >>> maker.make(documents.token_ids, rows)["token_ids"].shape[1]
    8
    """

    def __init__(self, tokenizer, settings):
        self.settings = settings
        self._tokenizer = tokenizer
        self._masker = TokenMasker(
            tokenizer.vocabulary,
            settings.max_predictions,
            rate=settings.masking_rate,
            whole_words=settings.whole_words,
            mask_share=settings.mask_share,
            random_share=settings.random_share,
        )
        self.make = tf.function(
            self._make,
            input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, COLUMNS], tf.int64)],
            autograph=False,
        )

    def read(self, shard):
        """Reads a shard and tokenizes it.

        Args:
            shard: `Shard`.

        Returns:
            `TokenizedDocuments`.

        Raises:
            ValueError: if a file is not UTF-8.
        """
        return tokenize_documents(read_lines(shard), self._tokenizer.tokenize)

    def choose(self, documents, shard_number, copy):
        """Chooses the sentences of all instances of one copy of a shard.

        Args:
            documents: `TokenizedDocuments`.
            shard_number: int.
            copy: int. Each copy has other cuts, other random sentences and other masks.

        Returns:
            int64 array [instances, 6], in an order that is random, too; for `make`.
        """
        settings = self.settings
        rows = array("q")
        for index in range(len(documents.documents)):
            rng = random.Random(f"{settings.seed} {shard_number} {copy} {index}")
            for segments in document_segments(
                documents.documents,
                index,
                settings.sequence_length,
                rng,
                settings.next_sentence,
                settings.short_sequence_rate,
                settings.fill_to_length,
            ):
                rows.extend(segments)
                rows.append(rng.getrandbits(_KEY_BITS))
        rows = np.frombuffer(rows, "int64").reshape([-1, COLUMNS])
        order = list(range(len(rows)))
        random.Random(f"{settings.seed} {shard_number} {copy}").shuffle(order)
        return rows[order]

    def _make(self, token_ids, rows):
        """Puts instances together, and masks them.

        Args:
            token_ids: int32 [tokens], those of the shard.
            rows: int64 [batch, 6], of `choose`.

        Returns:
            dict: `token_ids`, `segment_ids`, `padding_mask` int32 [batch, sequence_length]; `masked_positions`,
            `masked_labels` int32 and `masked_weights` float32 [batch, max_predictions]; `next_sentence_labels` int32
            [batch], 0 where the second segment follows the first.
        """
        a_start, a_end, b_start, b_end, label, keys = tf.unstack(rows, axis=1)
        inputs = pack(
            tf.gather(token_ids, tf.ragged.range(a_start, a_end)),
            tf.gather(token_ids, tf.ragged.range(b_start, b_end)),
            cls_id=self._tokenizer.cls_id,
            sep_id=self._tokenizer.sep_id,
            pad_id=self._tokenizer.pad_id,
            sequence_length=self.settings.sequence_length,
        )
        masked = self._masker(inputs["token_ids"], inputs["padding_mask"], keys)
        return {**inputs, **masked, "next_sentence_labels": tf.cast(label, tf.int32)}
