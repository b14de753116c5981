"""Pre-training batches made from prepared text during training, with new sentences and masks in every epoch.

An epoch uses the instances that `streaming` would write as the copy of that number. The order of the shards is a
function of (seed, epoch); they are dealt to the workers in turn, also across epochs.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_bert.data.python_operation import python_operation
from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_records import WorkerEpochs, check_positive, resumable_options
from keras_bert.pretraining.instance_maker import NUM_COLUMNS, InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.shards import Shard
from keras_bert.text.tokenizer import BertTokenizer

_SHARD_ORDER = 0  # purpose of the random key
_CHUNK_SIZE = 64  # instances
_OPEN_SHARDS = 2  # shards whose instances are interleaved; two more are in memory


@tf.autograph.experimental.do_not_convert  # there is nothing to convert: the first batch is ready sooner
def text_batches(
    plan: Sequence[Shard],
    tokenizer: BertTokenizer,
    settings: InstanceSettings,
    batch_size: int,
    worker_index: int = 0,
    num_workers: int = 1,
    first_epoch: int = 0,
    epochs: int | None = None,
) -> tf.data.Dataset:
    """Makes batches of instances from shards of text.

    Args:
        plan: Shards of `plan_shards`, the same on all workers.
        tokenizer: Tokenizer of the model.
        settings: Settings of the instances.
        batch_size: Instances per batch of this worker. The last ones of a finite dataset may be left out.
        worker_index, num_workers: Number of this worker, from 0, which takes every `num_workers`-th shard.
        first_epoch: Number of the first epoch.
        epochs: Number of epochs; None means no limit.

    Returns:
        A dataset of dicts of tensors `[batch_size, ...]`: `token_ids`, `segment_ids`, `padding_mask`,
        `masked_positions`, `masked_labels`, `masked_weights`, `next_sentence_labels`. Its iterator can be
        checkpointed; when restored, it re-reads the shards that were in use.

    Raises:
        ValueError: If there are fewer shards than workers, a number is out of range, the first shard is not UTF-8, or
            no document gives an instance. A defect of another shard is a `tf.errors.InvalidArgumentError` of the
            iterator with the same message.
    """
    worker = WorkerEpochs(worker_index, num_workers, first_epoch, epochs)
    check_positive(batch_size=batch_size)
    if len(plan) < num_workers:
        raise ValueError(f"got {len(plan)} shards for {num_workers} workers; make smaller shards (shard_bytes)")
    maker = InstanceMaker(tokenizer, settings)
    _check_has_instances(plan, maker)

    def order_shards(epoch: tf.Tensor) -> tf.data.Dataset:
        order = shuffled(tf.range(len(plan)), random_key(settings.seed, _SHARD_ORDER, epoch))
        return tf.data.Dataset.from_tensor_slices(order).map(lambda index: (index, epoch))

    def choose(index: np.ndarray, epoch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shard = plan[int(index)]
        documents = maker.read(shard)
        return documents.token_ids, maker.choose(documents, shard.number, int(epoch))

    def read(index: tf.Tensor, epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        token_ids, rows = python_operation(choose, [index, epoch], (tf.int32, tf.int64))
        return tf.ensure_shape(token_ids, [None]), tf.ensure_shape(rows, [None, NUM_COLUMNS])

    def make_instances(token_ids: tf.Tensor, rows: tf.Tensor) -> tf.data.Dataset:
        chunks = tf.data.Dataset.from_tensor_slices(rows).batch(_CHUNK_SIZE)
        return chunks.map(lambda chunk: maker.make(token_ids, chunk))

    first_shard = (worker_index - first_epoch * len(plan)) % num_workers  # as if training had started with epoch 0
    shards = worker.epoch_numbers().flat_map(order_shards).shard(num_workers, first_shard)
    # The next shard is read while the instances of the current ones are used.
    chunks = shards.map(read, num_parallel_calls=1).prefetch(1).interleave(make_instances, cycle_length=_OPEN_SHARDS)
    return chunks.unbatch().batch(batch_size, drop_remainder=True).prefetch(2).with_options(resumable_options())


def _check_has_instances(plan: Sequence[Shard], maker: InstanceMaker) -> None:
    """Reads up to the first shard with instances: an unlimited dataset without any would search forever."""
    for shard in plan:
        if len(maker.choose(maker.read(shard), shard.number, 0)):
            return
    needed = "two sentences" if maker.settings.next_sentence == "sop" else "one sentence"
    raise ValueError(
        f"the text gives no instances: next_sentence={maker.settings.next_sentence!r} needs documents of at least "
        f"{needed}, and there is none in {plan[0].ranges[0][0]} and the other files. Prepared text has one sentence "
        "per line and a blank line between documents (python -m tools.prepare_corpus writes it)"
    )
