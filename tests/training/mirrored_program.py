"""Trains one small model plainly and on two logical devices, and saves the weights; `test_optimizer.py` runs it.

It is a program of its own because logical devices can only be made before TensorFlow starts.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW

STEPS, BATCH = 8, 16


def make_data():
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 6, size=(STEPS * BATCH, 5)).astype("int32")  # every id occurs several times in each batch
    return ids, rng.integers(0, 3, size=STEPS * BATCH).astype("int32")


def make_model(optimizer=None, jit_compile=False):
    keras.utils.set_random_seed(11)
    inputs = keras.Input([5], dtype="int32")
    hidden = keras.layers.Embedding(20, 8)(inputs)
    hidden = keras.layers.LayerNormalization()(hidden)
    hidden = keras.layers.Flatten()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer or make_optimizer(), loss=loss, jit_compile=jit_compile)
    return model


def make_optimizer(**arguments):
    # The norms of this model's gradients are above 4: the default limit of 1 clips at every step.
    return BertAdamW(**{"learning_rate": 1e-4, **arguments})


def make_dataset():
    return tf.data.Dataset.from_tensor_slices(make_data()).batch(BATCH, drop_remainder=True)


def run_custom_loop(strategy):
    """Train in our own loop, each replica's loss divided by the global batch size; return the model and the norms."""
    with strategy.scope():
        model, optimizer = make_model(), make_optimizer()
        optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def step(batch):
        ids, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(labels, model(ids, training=True))) / BATCH
        return optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    @tf.function
    def run(batch):
        return strategy.experimental_local_results(strategy.run(step, args=(batch,)))

    dataset = strategy.experimental_distribute_dataset(make_dataset())
    return model, np.array([[norm.numpy() for norm in run(batch)] for batch in dataset])


def poisoned_weights_after_error(strategy):
    """Give a NaN to one replica only; return the largest change of any variable, and the error's text."""
    with strategy.scope():
        kernel = keras.Variable(np.ones([3, 2], "float32"), name="kernel")
        optimizer = make_optimizer(learning_rate=1.0)
        optimizer.build([kernel])
    before = [variable.numpy().copy() for variable in [kernel, *optimizer.variables]]

    @tf.function
    def run():
        def step():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([tf.fill([3, 2], tf.where(tf.equal(replica, 1), np.nan, 1.0))], [kernel])

        strategy.run(step)

    try:
        run()
        message = "no error"
    except tf.errors.InvalidArgumentError as error:
        message = str(error)
    after = [variable.numpy() for variable in [kernel, *optimizer.variables]]
    return max(np.max(np.abs(new - old)) for new, old in zip(after, before, strict=True)), message


def message_without_build(strategy):
    with strategy.scope():
        kernel = keras.Variable([1.0], name="kernel")
        optimizer = make_optimizer()
    try:
        strategy.run(lambda: optimizer.apply([tf.ones([1])], [kernel]))
    except RuntimeError as error:
        return str(error)
    return "no error"


def main(folder):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    plain = make_model()
    initial = plain.get_weights()
    plain.fit(make_dataset(), shuffle=False, verbose=0)
    with strategy.scope():
        mirrored = make_model()
    mirrored.fit(make_dataset(), shuffle=False, verbose=0)
    loop, norms = run_custom_loop(strategy)
    single_loop, single_norms = run_custom_loop(tf.distribute.get_strategy())
    replicas_apart = max(
        np.max(np.abs(replicas[0].numpy() - replicas[1].numpy()))
        for replicas in (strategy.experimental_local_results(variable.value) for variable in mirrored.variables)
    )
    change, message = poisoned_weights_after_error(strategy)

    models = {"plain": plain, "mirrored": mirrored, "loop": loop, "single_loop": single_loop}
    arrays = {f"{name}/{i}": value for name, model in models.items() for i, value in enumerate(model.get_weights())}
    arrays |= {f"initial/{i}": value for i, value in enumerate(initial)}
    for name in ("plain", "mirrored"):
        slots = models[name].optimizer.variables
        arrays |= {f"{name}_optimizer/{i}": variable.numpy() for i, variable in enumerate(slots)}
    arrays |= {"norms": norms, "single_norms": single_norms, "replicas_apart": replicas_apart}
    arrays |= {"poison_change": change, "poison_message": message}
    arrays["message_without_build"] = message_without_build(strategy)
    np.savez(Path(folder) / "weights.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
