"""The training step of pre-training on real instances: speed, what the input costs, and what packing gains."""

import time

from benchmarks.encoder import CEILING_SIZE, forward_flops, matrix_products, product_speed
from benchmarks.tokenizer import find_texts

_WARM_UPDATES = 5  # they compile the step and begin to read ahead
# Small, so that a measurement reads many of them, and bears its share of that: an update now and then waits for a
# shard, or for a group of instances to be packed.
_SHARD_BYTES = 1_000_000


def measure_ours(vocabulary, text, batch_size, sequence_length, precision, updates, **sizes):
    """Updates on one batch again and again, and on batches made from text while the model trains, padded and packed.

    Args:
        vocabulary: str, path of a lower-case vocab.txt.
        text: list of str, patterns of files of prepared text.
        batch_size: int. Rows in a batch.
        sequence_length: int. Tokens in a row.
        precision: str, the dtype policy.
        updates: int. How many count for each figure.
        **sizes: of the encoder: `vocab_size` (that of the vocabulary is taken), `hidden_size`, `num_hidden_layers`,
            `num_attention_heads`, `intermediate_size`.

    Returns:
        A pair: dict of (name, unit) to float, and a remark. `train` are rows a second on one batch, `share` the part of
        the machine's ceiling of matrix products that this is, `input` how much longer an update takes with batches made
        from the text; `padded` and `packed` are real tokens a second, of instances that `tasks.pretrain` would make.
    """
    import keras_bert

    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    sizes = {**sizes, "vocab_size": tokenizer.vocab_size}
    encoder = keras_bert.BertEncoder(
        **sizes,
        max_position_embeddings=max(512, sequence_length),
        dtype=precision,
        seed=1,
    )
    inputs = _inputs(tokenizer, text, batch_size, sequence_length)
    seconds, tokens = _times_of_updates(keras_bert.BertPretrainer(encoder, seed=1), inputs, updates)
    products = _products(batch_size, sequence_length, **sizes)
    ceiling = product_speed((CEILING_SIZE,) * 3, precision, repeats=5)
    figures = {
        ("train", "ex/s"): batch_size / seconds["again"],
        ("share", "%"): 100 * 3e-9 * forward_flops(products) / seconds["again"] / ceiling,
        ("input", "%"): 100 * (seconds["padded"] / seconds["again"] - 1),
        **{(name, "tok/s"): tokens[name] / seconds[name] for name in ("padded", "packed")},
    }
    fullness = ", ".join(f"{name} {tokens[name] / batch_size:.0f}" for name in ("padded", "packed"))
    return figures, f"{batch_size} rows of {sequence_length} tokens; of them real: {fullness}"


def _inputs(tokenizer, text, batch_size, sequence_length):
    """{name: tf.data.Dataset of batches}."""
    from keras_bert.pretraining.instance_settings import InstanceSettings
    from keras_bert.pretraining.objectives import inputs_and_labels
    from keras_bert.pretraining.on_the_fly import text_batches
    from keras_bert.pretraining.row_packing import pack_dataset, predictions_per_row
    from keras_bert.pretraining.shards import plan_shards
    from keras_bert.text.masking import predictions_per_sequence

    predictions = predictions_per_sequence(sequence_length)
    settings = InstanceSettings(sequence_length=sequence_length, max_predictions=predictions)
    instances = text_batches(plan_shards(find_texts(text), _SHARD_BYTES), tokenizer, settings, batch_size)
    rows = pack_dataset(instances, sequence_length, predictions_per_row(predictions), seed=1)
    padded = instances.map(inputs_and_labels)
    return {
        "again": padded.take(1).cache().repeat(),
        "padded": padded.prefetch(2),
        "packed": rows.batch(batch_size, drop_remainder=True).map(inputs_and_labels).prefetch(2),
    }


def _times_of_updates(model, inputs, updates):
    """By name of the input, the mean seconds of an update and its mean of real tokens.

    One input after the other, and none reads ahead while it is another's turn.
    """
    from keras_bert import BertAdamW
    from keras_bert.training.step import TrainStep

    step = TrainStep(model, BertAdamW(1e-5))
    seconds, tokens = {}, {}
    for name, batches in inputs.items():
        iterator = iter(batches)
        float(step.run(iterator, first_step=0, steps=_WARM_UPDATES)["tokens"])
        started = time.perf_counter()
        tokens[name] = float(step.run(iterator, first_step=0, steps=updates)["tokens"]) / updates
        seconds[name] = (time.perf_counter() - started) / updates
    return seconds, tokens


def _products(batch_size, sequence_length, vocab_size, hidden_size, **sizes):
    """Those of the encoder, and of the head of masked words."""
    from keras_bert.text.masking import predictions_per_sequence

    predictions = batch_size * predictions_per_sequence(sequence_length)
    return [
        *matrix_products(batch_size, sequence_length, hidden_size, **sizes),
        (1, predictions, hidden_size, hidden_size),
        (1, predictions, hidden_size, vocab_size),
    ]


PROGRAMS = {"keras_bert": measure_ours}
