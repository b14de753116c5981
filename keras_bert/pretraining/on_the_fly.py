"""Batches for pre-training made from prepared text while the model trains: other sentences and masks in every epoch.

A pass over the text is an epoch, and uses what `streaming` would write as a copy of that number: the same instances, by
the same code. Shards come in another order in each epoch, a function of (seed, epoch), and are dealt out to the workers
one by one, going on from one epoch to the next: in an epoch each shard is one worker's, and over several epochs all
workers have the same number of them. Within a shard instances are in random order, and so many shards are mixed as are
open at once: an instance is never far from others of the texts of its shard.
"""

import tensorflow as tf

from keras_bert.data.python_operation import python_operation
from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_pipeline import check_numbers, resumable_options
from keras_bert.pretraining.instance_maker import COLUMNS, InstanceMaker

_ORDER_OF_SHARDS = 0
_INSTANCES_AT_ONCE = 64
_SHARDS_AT_ONCE = 2


@tf.autograph.experimental.do_not_convert  # nothing in it to rewrite: the first batch comes sooner
def text_batches(
    plan,
    tokenizer,
    settings,
    batch_size,
    worker_index=0,
    num_workers=1,
    shards_at_once=_SHARDS_AT_ONCE,
    first_epoch=0,
    epochs=None,
):
    """Batches of instances from shards of text.

    Args:
        plan: list of `Shard`, the same on all workers.
        tokenizer: `BertTokenizer`.
        settings: `InstanceSettings`.
        batch_size: int. Instances in a batch of this worker; the last ones of a dataset that ends may be left out.
        worker_index, num_workers: int. A worker takes every `num_workers`-th shard.
        shards_at_once: int. Shards whose instances are mixed; so many and two more are in memory.
        first_epoch: int.
        epochs: int or None. How many; None is without end.

    Returns:
        tf.data.Dataset of dicts of tensors [batch_size, ...], as of `InstanceMaker.make`. Its iterator can be
        checkpointed; restored, it reads the shards again that were in use.

    Raises:
        ValueError: if there are fewer shards than workers, a number is out of range, the first shard is not UTF-8, or
            no document gives an instance. What is wrong with another shard is an error of the iterator when it is
            read, `tf.errors.InvalidArgumentError` with the same message.

    Example:

    >>> from keras_bert.pretraining.instance_settings import InstanceSettings
    >>> from keras_bert.pretraining.shards import plan_shards
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("a b\\nb a\\n\\na\\nb\\n")
    >>> tokenizer = keras_bert.BertTokenizer(
    ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"], lower_case=True
    ... )
    >>> settings = InstanceSettings(sequence_length=8, max_predictions=1)
    >>> batches = text_batches(plan_shards([str(path)]), tokenizer, settings, batch_size=2)
    >>> next(iter(batches))["token_ids"].shape
    TensorShape([2, 8])
    """
    check_numbers(worker_index, num_workers, first_epoch, epochs, batch_size=batch_size, shards_at_once=shards_at_once)
    if len(plan) < num_workers:
        raise ValueError(
            f"the text has {len(plan)} shards, and there are {num_workers} workers; make smaller shards (shard_bytes)"
        )
    maker = InstanceMaker(tokenizer, settings)
    _check_instances(plan, maker)

    def shards_of_epoch(epoch):
        order = shuffled(tf.range(len(plan)), random_key(settings.seed, _ORDER_OF_SHARDS, epoch))
        return tf.data.Dataset.from_tensor_slices(order).map(lambda index: (index, epoch))

    def chosen(index, epoch):
        shard = plan[index]
        documents = maker.read(shard)
        return documents.token_ids, maker.choose(documents, shard.number, int(epoch))

    def read(index, epoch):
        token_ids, rows = python_operation(chosen, [index, epoch], (tf.int32, tf.int64))
        return tf.ensure_shape(token_ids, [None]), tf.ensure_shape(rows, [None, COLUMNS])

    def instances(token_ids, rows):
        chunks = tf.data.Dataset.from_tensor_slices(rows).batch(_INSTANCES_AT_ONCE)
        return chunks.map(lambda chunk: maker.make(token_ids, chunk))

    end = tf.int64.max if epochs is None else first_epoch + epochs
    first_shard = (worker_index - first_epoch * len(plan)) % num_workers  # as if it had begun with epoch 0
    shards = tf.data.Dataset.range(first_epoch, end).flat_map(shards_of_epoch).shard(num_workers, first_shard)
    # The next shard is read and its sentences are chosen while the ones before it are used up.
    chunks = shards.map(read, num_parallel_calls=1).prefetch(1).interleave(instances, cycle_length=shards_at_once)
    return chunks.unbatch().batch(batch_size, drop_remainder=True).prefetch(2).with_options(resumable_options())


def _check_instances(plan, maker):
    """Reads up to the first shard that gives something: a dataset without end would else look for it without end."""
    for shard in plan:
        if len(maker.choose(maker.read(shard), shard.number, 0)):
            return
    needed = "two sentences" if maker.settings.next_sentence == "sop" else "a sentence"
    raise ValueError(
        f"the text gives no instances: next_sentence={maker.settings.next_sentence!r} needs documents of {needed} or "
        f"more, and there is none in {plan[0].pieces[0][0]} and the other files. Prepared text has one sentence a line "
        "and a blank line between documents (python -m tools.prepare_corpus makes it)"
    )
