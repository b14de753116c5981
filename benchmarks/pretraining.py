"""Training steps of pre-training on instances made from text while the model trains, and the gain of packing.

`cached` trains on one batch again and again; `padded` and `packed` on instances as `tasks.pretrain` makes them; `input`
is how much longer a step on padded rows takes than a cached one.
"""

import time

from benchmarks.encoder import MINILM
from benchmarks.tokenizer import find_texts

_NUM_WARM_UP_STEPS = 5
# So small that a measurement reads many shards and includes the steps that wait for one.
_SHARD_BYTES = 1_000_000


def measure(values):
    """Measures real tokens per second; `values` are the flags of the suite."""
    import keras_bert

    tokenizer = keras_bert.BertTokenizer(values.vocabulary, lower_case=True)
    encoder = keras_bert.BertEncoder(
        **{**{name: values[name].value for name in MINILM}, "vocab_size": tokenizer.vocab_size},
        max_position_embeddings=max(512, values.sequence_length),
        dtype=values.precision,
        seed=1,
    )
    datasets = make_datasets(tokenizer, values)
    seconds, tokens = time_steps(keras_bert.BertPretrainer(encoder, seed=1), datasets, values.steps)
    figures = {f"{name} tok/s": tokens[name] / seconds[name] for name in datasets}
    figures["input %"] = 100 * (seconds["padded"] / seconds["cached"] - 1)
    per_row = ", ".join(f"{name} {tokens[name] / values.batch_size:.0f}" for name in ("padded", "packed"))
    return figures, f"{values.batch_size} rows of {values.sequence_length} tokens; real tokens per row: {per_row}"


def make_datasets(tokenizer, values):
    """Returns {name: tf.data.Dataset of batches}."""
    from keras_bert.pretraining.instance_settings import InstanceSettings
    from keras_bert.pretraining.objectives import inputs_and_labels
    from keras_bert.pretraining.on_the_fly import text_batches
    from keras_bert.pretraining.row_packing import pack_dataset, predictions_per_row
    from keras_bert.pretraining.shards import plan_shards
    from keras_bert.text.masking import predictions_per_sequence

    length, batch_size = values.sequence_length, values.batch_size
    num_predictions = predictions_per_sequence(length)
    settings = InstanceSettings(sequence_length=length, max_predictions=num_predictions)
    instances = text_batches(plan_shards(find_texts(values.text), _SHARD_BYTES), tokenizer, settings, batch_size)
    rows = pack_dataset(instances, length, predictions_per_row(num_predictions), seed=1)
    padded = instances.map(inputs_and_labels)
    return {
        "cached": padded.take(1).cache().repeat(),
        "padded": padded.prefetch(2),
        "packed": rows.batch(batch_size, drop_remainder=True).map(inputs_and_labels).prefetch(2),
    }


def time_steps(model, datasets, num_steps):
    """Returns the mean seconds and the mean real tokens of a step, by name of the dataset."""
    from keras_bert import BertAdamW
    from keras_bert.training.step import TrainStep

    step = TrainStep(model, BertAdamW(1e-5))
    seconds, tokens = {}, {}
    for name, batches in datasets.items():
        iterator = iter(batches)
        float(step.run(iterator, first_step=0, steps=_NUM_WARM_UP_STEPS)["tokens"])
        started = time.perf_counter()
        tokens[name] = float(step.run(iterator, first_step=0, steps=num_steps)["tokens"]) / num_steps
        seconds[name] = (time.perf_counter() - started) / num_steps
    return seconds, tokens


PROGRAMS = {"keras_bert": measure}
