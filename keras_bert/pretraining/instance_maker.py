"""Instances from the text of a shard, the same for written files and for data made on the fly."""

import random
from array import array

import numpy as np
import tensorflow as tf

from keras_bert.pretraining.documents import TokenizedDocuments, tokenize_documents
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.instances import choose_segments
from keras_bert.pretraining.shards import Shard, read_lines
from keras_bert.text.masking import TokenMasker
from keras_bert.text.pack import pack
from keras_bert.text.tokenizer import BertTokenizer

_KEY_BITS = 63
NUM_COLUMNS = 6  # the five of a `Segments`, and the key of its mask


class InstanceMaker:
    """Makes the instances of shards, as a function of the settings, the shard's number and text, and the copy's number.

    `make(token_ids, rows)` assembles and masks the instances that `choose` returned, from int32 `[tokens]` and int64
    `[batch, 6]`.
    """

    def __init__(self, tokenizer: BertTokenizer, settings: InstanceSettings) -> None:
        self.settings = settings
        self._tokenizer = tokenizer
        self._masker = TokenMasker(
            tokenizer.vocabulary,
            settings.max_predictions,
            rate=settings.masked_lm_prob,
            whole_words=settings.do_whole_word_mask,
            mask_token_rate=settings.mask_token_rate,
            random_token_rate=settings.random_token_rate,
        )
        self.make = tf.function(
            self._make,
            input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, NUM_COLUMNS], tf.int64)],
            autograph=False,
        )

    def read(self, shard: Shard) -> TokenizedDocuments:
        """Reads and tokenizes a shard."""
        return tokenize_documents(read_lines(shard), self._tokenizer.tokenize)

    def choose(self, documents: TokenizedDocuments, shard_number: int, copy: int) -> np.ndarray:
        """Chooses the sentences of all instances of one copy of a shard, int64 `[instances, 6]` in random order."""
        settings = self.settings
        values = array("q")
        for index in range(len(documents.documents)):
            rng = random.Random(f"{settings.seed} {shard_number} {copy} {index}")
            for segments in choose_segments(documents.documents, index, settings, rng):
                values.extend(segments)
                values.append(rng.getrandbits(_KEY_BITS))
        rows = np.frombuffer(values, "int64").reshape([-1, NUM_COLUMNS])
        order = list(range(len(rows)))
        random.Random(f"{settings.seed} {shard_number} {copy}").shuffle(order)
        return rows[order]

    def _make(self, token_ids: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
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
