"""Batches of pre-training instances made from prepared text on the fly, and packed ones, on all cores.

The time is that of the steady state: shards are read and tokenized ahead, and what is ahead at the beginning is ahead
at the end, too.
"""

import time

from benchmarks.tokenizer import find_texts

_WARM_UP_SHARE = 0.2  # of the instances, before those that count
_PACKED_LENGTH, _PACKED_PREDICTIONS, _PACKED_BATCH_SIZE = 512, 96, 32


def measure_ours(vocabulary, text, batch_size, sequence_length, instances):
    """`text_batches` with next and with ordered sentences and with single segments, and packed pairs of sentences.

    Args:
        vocabulary: str, path of a lower-case vocab.txt.
        text: list of str, patterns of files of prepared text.
        batch_size: int. Instances in a batch.
        sequence_length: int. Most tokens of an instance; pairs that are packed go into rows of 512.
        instances: int. How many count for each figure, at least.

    Returns:
        A pair: dict of (name, unit) to float, instances a second, and a remark: how full the packed rows are.

    Raises:
        ValueError: if there is no such text.
    """
    import keras_bert
    from keras_bert.pretraining.instance_settings import InstanceSettings
    from keras_bert.pretraining.on_the_fly import text_batches
    from keras_bert.pretraining.row_packing import pack_dataset
    from keras_bert.pretraining.shards import plan_shards
    from keras_bert.text.masking import predictions_per_sequence

    plan = plan_shards(find_texts(text))
    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    figures = {}
    for task in ("nsp", "sop", "none"):
        settings = InstanceSettings(
            sequence_length=sequence_length,
            max_predictions=predictions_per_sequence(sequence_length),
            next_sentence=task,
        )
        batches = text_batches(plan, tokenizer, settings, batch_size)
        figures[task, "ex/s"], _ = _speed(batches, instances)
    settings = InstanceSettings(
        sequence_length=_PACKED_LENGTH,
        max_predictions=predictions_per_sequence(_PACKED_LENGTH),
        fill_to_length=False,
    )
    pairs = text_batches(plan, tokenizer, settings, batch_size)
    rows = pack_dataset(pairs, _PACKED_LENGTH, _PACKED_PREDICTIONS, seed=1).batch(_PACKED_BATCH_SIZE)
    figures["packed", "ex/s"], fullness = _speed(rows, instances)
    return figures, f"{len(plan)} shards; packed rows are {100 * fullness:.1f}% full"


def _speed(batches, instances):
    """Instances a second, and the share of the tokens that are not padding."""
    done, started, tokens, places = 0, None, 0, 0
    for batch in batches.as_numpy_iterator():
        if started is None and done >= _WARM_UP_SHARE * instances:
            done, started = 0, time.perf_counter()
        # Of packed rows each has several instances.
        done += int(batch.get("next_sentence_weights", batch["padding_mask"][:, 0]).sum())
        tokens, places = tokens + int(batch["padding_mask"].sum()), places + batch["padding_mask"].size
        if started is not None and done >= instances:
            break
    return done / (time.perf_counter() - started), tokens / places


PROGRAMS = {"keras_bert": measure_ours}
