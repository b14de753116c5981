"""Measures the time of calls, of training and of exported models."""

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

_LEARNING_RATE = 5e-5


def median_seconds(function, repeats, warm_ups=2):
    """Returns the median time of a call, after `warm_ups` calls that trace, allocate and fill caches."""
    for _ in range(warm_ups):
        function()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def load_head(head_class, init_checkpoint, **arguments):
    """Loads a head from a checkpoint or the name of a preset; `arguments` are those of its `from_checkpoint`."""
    from keras_bert.weights.preset_names import is_preset_name

    load = head_class.from_preset if is_preset_name(init_checkpoint) else head_class.from_checkpoint
    return load(init_checkpoint, **arguments)


def make_optimizer(num_train_steps):
    """Returns a `BertAdamW` with the schedule of fine-tuning."""
    import keras_bert

    return keras_bert.BertAdamW(keras_bert.WarmupSchedule(_LEARNING_RATE, num_train_steps))


def time_trainer(model, examples, plan, num_warm_up_steps, num_steps):
    """Returns the time of `num_steps` training steps by the Trainer, after the steps that trace."""
    from keras_bert.data.batching import training_batches
    from keras_bert.training import RunDirectory, Trainer, TrainerSettings

    times = []

    def note_time():
        times.append(time.perf_counter())
        return {}

    total = num_warm_up_steps + num_steps
    with tempfile.TemporaryDirectory() as folder:
        # An evaluation precedes the checkpoint: the last one is the end of the last step.
        Trainer(
            model,
            make_optimizer(total),
            RunDirectory(Path(folder) / "run", {}),
            TrainerSettings(total, evaluate_every=num_warm_up_steps, checkpoint_every=total),
            evaluate=note_time,
        ).train(training_batches(examples, plan))
    return times[-1] - times[0]


@contextlib.contextmanager
def exported_signature(model, precision):
    """Yields the text signature of the exported model; `mixed_bfloat16` models are exported in bfloat16."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        saved = model.export(Path(folder) / "1", dtype="bfloat16" if precision == "mixed_bfloat16" else precision)
        loaded = tf.saved_model.load(saved)
        yield loaded.signatures["serving_default"]
