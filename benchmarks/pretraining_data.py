"""Pre-training instances made from prepared text on the fly, and packed into rows, in instances per second.

Measures the steady state: as much is read ahead at the beginning as at the end.
"""

import time

from benchmarks.tokenizer import find_texts

_WARM_UP_FRACTION = 0.2  # fraction of the instances, made before the measurement
_PACKED_LENGTH, _PACKED_PREDICTIONS, _PACKED_BATCH_SIZE = 512, 96, 32


def measure(values):
    """Measures every sentence task, and sentence pairs packed into rows of 512; `values` are the flags of the suite."""
    import keras_bert
    from keras_bert.pretraining.instance_settings import InstanceSettings
    from keras_bert.pretraining.on_the_fly import text_batches
    from keras_bert.pretraining.row_packing import pack_dataset
    from keras_bert.pretraining.shards import plan_shards
    from keras_bert.text.masking import predictions_per_sequence

    plan = plan_shards(find_texts(values.text))
    tokenizer = keras_bert.BertTokenizer(values.vocabulary, lower_case=True)
    figures = {}
    for task in ("nsp", "sop", "none"):
        settings = InstanceSettings(
            sequence_length=values.sequence_length,
            max_predictions=predictions_per_sequence(values.sequence_length),
            next_sentence=task,
        )
        batches = text_batches(plan, tokenizer, settings, values.batch_size)
        figures[f"{task} ex/s"], _ = measure_speed(batches, values.instances)
    settings = InstanceSettings(
        sequence_length=_PACKED_LENGTH, max_predictions=predictions_per_sequence(_PACKED_LENGTH), fill_to_length=False
    )
    pairs = text_batches(plan, tokenizer, settings, values.batch_size)
    rows = pack_dataset(pairs, _PACKED_LENGTH, _PACKED_PREDICTIONS, seed=1).batch(_PACKED_BATCH_SIZE)
    figures["packed ex/s"], density = measure_speed(rows, values.instances)
    return figures, f"{len(plan)} shards; packed rows hold {100 * density:.1f}% real tokens"


def measure_speed(batches, num_instances):
    """Returns instances per second, and the fraction of the positions that hold real tokens."""
    count, started, num_tokens, num_positions = 0, None, 0, 0
    for batch in batches.as_numpy_iterator():
        if started is None and count >= _WARM_UP_FRACTION * num_instances:
            count, started = 0, time.perf_counter()
        # A packed row holds several instances.
        count += int(batch.get("next_sentence_weights", batch["padding_mask"][:, 0]).sum())
        num_tokens += int(batch["padding_mask"].sum())
        num_positions += batch["padding_mask"].size
        if started is not None and count >= num_instances:
            break
    return count / (time.perf_counter() - started), num_tokens / num_positions


PROGRAMS = {"keras_bert": measure}
