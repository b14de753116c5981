"""How long a fine-tuning takes, as the fine-tuning programs do it, without evaluation."""

import tempfile
import time
from pathlib import Path

WARM_UP_STEPS = 10  # updates of the training that trace the step and do not count
_LEARNING_RATE = 5e-5


def make_head(cls, init_checkpoint, **arguments):
    """A model on the weights of a checkpoint.

    Args:
        cls: a head of `keras_bert`.
        init_checkpoint: str. A checkpoint, or the name of a preset.
        **arguments: as for its `from_checkpoint`.

    Returns:
        A model of the class.
    """
    from keras_bert.weights.preset_names import PRESETS

    return (cls.from_preset if init_checkpoint in PRESETS else cls.from_checkpoint)(init_checkpoint, **arguments)


def seconds_of_updates(model, examples, plan, steps):
    """The time of the updates behind the first ones, which trace the step.

    Args:
        model: a head with `loss_terms`.
        examples: `TokenizedExamples` with labels.
        plan: a `BatchPlan` of their lengths.
        steps: int. All updates, more than `WARM_UP_STEPS`.

    Returns:
        float, of `steps - WARM_UP_STEPS` updates.
    """
    import keras_bert
    from keras_bert.data.batching import training_batches
    from keras_bert.training import RunDirectory, Trainer, TrainerSettings

    times = []

    def note_time():
        times.append(time.perf_counter())
        return {}

    with tempfile.TemporaryDirectory() as folder:
        # An evaluation comes before the checkpoint: the last one is the end of the last update.
        Trainer(
            model,
            keras_bert.BertAdamW(keras_bert.WarmupSchedule(_LEARNING_RATE, steps)),
            RunDirectory(Path(folder) / "run", {}),
            TrainerSettings(steps, evaluate_every=WARM_UP_STEPS, checkpoint_every=steps),
            evaluate=note_time,
        ).train(training_batches(examples, plan))
    return times[-1] - times[0]
