"""Training step and inference of an encoder in bfloat16 at 128 and 512 tokens, on the backend that Keras runs on.

A training step is forward with dropout, backward and AdamW of a token classifier, which needs all outputs of the
encoder. MFU is the fraction of the device's peak that the matrix products reach (`count_training_flops`).
"""

import functools

from benchmarks.encoder import MINILM, count_training_flops, make_inputs, make_step
from benchmarks.timing import median_seconds

LENGTHS = {128: 1, 512: 8}  # and by what the batch size is divided
# Dense bfloat16 in TFLOP/s from NVIDIA's datasheets, by a part of the name; the first match counts.
PEAK_TFLOPS = {"A100": 312.0, "H100 PCIe": 756.0, "H100": 989.0, "H200": 989.0}


def measure(values):
    """Measures both lengths; a batch that does not fit into memory is halved."""
    device = get_device_name()
    peak = values.peak_tflops or next((tflops for name, tflops in PEAK_TFLOPS.items() if name in device), None)
    figures, remarks = {}, [device, f"peak {peak:g} TFLOP/s" if peak else "no MFU without --peak_tflops"]
    for length, divisor in LENGTHS.items():
        for name in ("train", "infer"):
            batch_size = max(values.batch_size // divisor, 1)
            while (measured := _measure_or_run_out_of_memory(name, batch_size, length, values)) is None:
                batch_size //= 2
            seconds, flops = measured
            figures[f"{name}{length} ex/s"] = batch_size / seconds
            if peak:
                figures[f"{name}{length}_mfu %"] = 100 * flops / seconds / (1e12 * peak)
            remarks.append(f"{name} {batch_size} x {length}")
    return figures, ", ".join(remarks)


def _measure_or_run_out_of_memory(name, batch_size, length, values):
    """Returns the time of a call and its floating-point operations; None if more than one row does not fit."""
    import keras_bert

    is_training = name == "train"
    encoder = keras_bert.BertEncoder.from_size(
        values.size,
        attention_probs_dropout_prob=values.attention_dropout,
        with_pooler=not is_training,
        dtype="mixed_bfloat16" if is_training else "bfloat16",
        seed=1,
    )
    sizes = {size: getattr(encoder, size) for size in MINILM}
    ids = make_inputs(batch_size, length, sizes)[0]
    try:
        call = make_training_step(encoder, ids) if is_training else make_inference(encoder, ids)
        seconds = median_seconds(call, values.repeats)
    except Exception as error:
        # The status of an allocation that failed, in JAX and in TensorFlow.
        is_memory = "RESOURCE_EXHAUSTED" in str(error) or type(error).__name__ == "ResourceExhaustedError"
        if batch_size == 1 or not is_memory:
            raise
        return None
    return seconds, count_training_flops(batch_size, length, **sizes) / (1 if is_training else 3)


def make_training_step(encoder, ids):
    """Returns a call of a training step."""
    import keras

    import keras_bert

    model = keras_bert.BertTokenClassifier(encoder, labels=2, seed=1)
    labels = ids["token_ids"] % 2
    if keras.backend.backend() == "jax":
        return _make_jax_training_step(model, ids, labels)
    return make_step(model, (ids, labels))


def _make_jax_training_step(model, ids, labels):
    import jax
    import keras

    optimizer = keras.optimizers.AdamW(1e-5, weight_decay=0.01)
    optimizer.build(model.trainable_variables)
    batch = jax.device_put((ids, labels))

    def compute_loss(trainable, others, ids, labels):
        logits, others = model.stateless_call(trainable, others, ids, training=True)
        total, weight = model.loss_terms(labels, logits)["loss"]
        return total / weight, others

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, batch):
        trainable, others, slots = state
        (loss, others), gradients = jax.value_and_grad(compute_loss, has_aux=True)(trainable, others, *batch)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, others, slots), loss

    parts = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = tuple([variable.value for variable in variables] for variables in parts)

    def call():
        nonlocal state
        state, loss = update(state, batch)
        return loss.block_until_ready()

    return call


def make_inference(encoder, ids):
    """Returns a call from ids to all outputs of the encoder."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        ids = jax.device_put(ids)
        parts = (encoder.trainable_variables, encoder.non_trainable_variables)
        weights = [[variable.value for variable in variables] for variables in parts]
        compiled = jax.jit(lambda weights, ids: encoder.stateless_call(*weights, ids, training=False)[0])
        return lambda: jax.block_until_ready(compiled(weights, ids))
    import tensorflow as tf

    compiled = tf.function(lambda ids: encoder(ids, training=False), autograph=False)
    ids = {name: tf.constant(array) for name, array in ids.items()}
    return lambda: compiled(ids)["pooled_output"].numpy()


def get_device_name():
    """Returns the name of the first accelerator, or "CPU"."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return "CPU" if device.platform == "cpu" else device.device_kind
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else "CPU"


PROGRAMS = {"keras_bert": measure}
