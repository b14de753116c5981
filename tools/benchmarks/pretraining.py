"""The training step of pre-training on real instances: speed, what the input costs, and what packing gains."""

import itertools
import time

import numpy as np

from tools.benchmarks.encoder import CEILING_SIZE, forward_flops, matrix_products, product_speed
from tools.benchmarks.tokenizer import find_texts

_WARM_UPDATES = 3  # they trace, allocate, and fill what is read ahead
_ROOM_FOR_PREDICTIONS = 1.25  # in a packed row, as `tasks.pretrain` has it


def measure_ours(vocabulary, text, batch_size, sequence_length, precision, updates, **sizes):
    """Updates on instances that are filled to the length, and on pairs of sentences of natural length, padded and
    packed.

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
        A pair: dict of (name, unit) to float, and a remark. `train` are rows a second on one batch again and again,
        `share` the part of the machine's ceiling of matrix products that this is, `input` how much longer an update
        takes with batches made from the text; `padded` and `packed` are real tokens a second on pairs of sentences.
    """
    import keras_bert
    from keras_bert.data.pretraining.objectives import inputs_and_labels
    from keras_bert.data.pretraining.shards import plan_shards

    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    source = tokenizer, plan_shards(find_texts(text)), sequence_length
    arguments = {
        **sizes,
        "vocab_size": tokenizer.vocab_size,
        "max_position_embeddings": max(512, sequence_length),
        "dtype": precision,
        "seed": 1,
    }
    filled = _instances(*source, batch_size, fill_to_length=True).map(inputs_and_labels)
    again = filled.take(1).cache().repeat()
    seconds, _ = _time_of_updates(arguments, again, updates)
    with_input, _ = _time_of_updates(arguments, filled, updates)
    figures = {("train", "ex/s"): batch_size / seconds, ("input", "%"): 100 * (with_input / seconds - 1)}
    products = _products(batch_size, sequence_length, tokenizer.vocab_size, **_without_vocab_size(sizes))
    ceiling = product_speed((CEILING_SIZE,) * 3, precision, repeats=5)
    figures["share", "%"] = 100 * 3e-9 * forward_flops(products) / seconds / ceiling
    for name, is_packed in (("padded", False), ("packed", True)):
        batches = _pairs(*source, batch_size, is_packed).map(inputs_and_labels)
        seconds, tokens = _time_of_updates(arguments, batches, updates)
        figures[name, "tok/s"] = tokens / seconds
    return figures, f"{updates} updates of {batch_size} rows of {sequence_length} tokens"


def _instances(tokenizer, plan, sequence_length, batch_size, fill_to_length):
    from keras_bert.data.pretraining.on_the_fly import text_batches
    from keras_bert.data.pretraining.settings import InstanceSettings

    settings = InstanceSettings(
        sequence_length=sequence_length, max_predictions=_predictions(sequence_length), fill_to_length=fill_to_length
    )
    return text_batches(plan, tokenizer, settings, batch_size)


def _pairs(tokenizer, plan, sequence_length, batch_size, is_packed):
    from keras_bert.data.pretraining.packing import packed

    pairs = _instances(tokenizer, plan, sequence_length, batch_size, fill_to_length=False)
    if not is_packed:
        return pairs
    room = int(_ROOM_FOR_PREDICTIONS * _predictions(sequence_length))
    return packed(pairs, sequence_length, room, seed=1).batch(batch_size, drop_remainder=True)


def _predictions(sequence_length):
    from keras_bert.text.masking import predictions_per_sequence

    return predictions_per_sequence(sequence_length)


def _time_of_updates(arguments, batches, updates):
    """Seconds and real tokens of an update: the median, and the mean."""
    import keras_bert
    from keras_bert.training.step import TrainStep

    model = keras_bert.BertPretrainer(keras_bert.BertEncoder(**arguments), seed=1)
    step = TrainStep(model, keras_bert.BertAdamW(1e-5))
    iterator, seconds, tokens = iter(batches.prefetch(2)), [], []
    for number in itertools.count():
        started = time.perf_counter()
        report = step.run(iterator, first_step=0, steps=1)
        tokens_of_update = float(report["tokens"])
        seconds.append(time.perf_counter() - started)
        tokens.append(tokens_of_update)
        if number + 1 == _WARM_UPDATES + updates:
            return float(np.median(seconds[_WARM_UPDATES:])), float(np.mean(tokens[_WARM_UPDATES:]))


def _products(batch_size, sequence_length, vocab_size, hidden_size, **sizes):
    """Those of the encoder, and of the head of masked words."""
    predictions = batch_size * _predictions(sequence_length)
    return [
        *matrix_products(batch_size, sequence_length, hidden_size, **sizes),
        (1, predictions, hidden_size, hidden_size),
        (1, predictions, hidden_size, vocab_size),
    ]


def _without_vocab_size(sizes):
    return {name: size for name, size in sizes.items() if name != "vocab_size"}


PROGRAMS = {"keras_bert": measure_ours}
