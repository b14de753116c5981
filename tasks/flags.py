"""The flags that every fine-tuning program has, and their values as keyword arguments."""

import contextlib
import logging as standard_logging
import os
import sys

from absl import app, flags, logging

import tasks.distribution
from keras_bert.finetuning.interruption import TERMINATED

MODES = ("train", "eval", "predict", "export")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
SCHEDULES = ("bert", "linear")
ENCODERS = ("left_to_right", "left_to_right_bilstm", "two_directions")
LAYER_POOLINGS = (
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_last_four",
    "concat_last_four",
    "weighted_sum_all",
)


def define_training_flags(schedule="bert"):
    """Defines the flags of every training program; called by one, not on import.

    Args:
        schedule: str. The default decay of the learning rate.
    """
    flags.DEFINE_string("run_dir", None, "Folder for everything that the run writes.", required=True)
    flags.DEFINE_integer(
        "gradient_accumulation_steps", 1, "Parts that a device's batch is cut into, to save memory.", lower_bound=1
    )
    flags.DEFINE_bool("gradient_checkpointing", False, "Compute activations anew for the gradient, to save memory.")
    flags.DEFINE_bool(
        "jit_compile", False, "Compile forward and backward pass with XLA, once for every shape of a batch."
    )
    flags.DEFINE_integer("seed", 1, "Seed of the new layers, of the dropout and of the order of the data.", 0)
    flags.DEFINE_enum("schedule", schedule, SCHEDULES, "Decay of the learning rate; see WarmupSchedule.")
    flags.DEFINE_float("weight_decay", 0.01, "Decay of the weights.", lower_bound=0.0)
    flags.DEFINE_float("clip_norm", 1.0, "Largest global norm of the gradients.", lower_bound=1e-9)
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "mixed_bfloat16 is faster where the processor has it.")
    flags.DEFINE_bool("deterministic", False, "Make every operation give the same bits each time; slower.")
    flags.DEFINE_integer(
        "checkpoint_every", None, "Updates between two checkpoints; default: a tenth, at least 200.", 1
    )
    flags.DEFINE_integer("log_every", None, "Updates between two log records; default: a fiftieth, at most 100.", 1)
    flags.DEFINE_integer("steps_per_execution", 20, "Most updates between two returns to Python.", lower_bound=1)
    tasks.distribution.define_distribution_flags()
    flags.adopt_module_key_flags(tasks.distribution)  # or --help would leave them out
    flags.DEFINE_bool("progress", True, "Show a progress bar.")


def training_arguments():
    """The values of those flags that a `Trainer` takes; to be called before TensorFlow computes anything.

    It makes the strategy, and sets TensorFlow to be deterministic if that is asked for.

    Returns:
        dict: `run_dir`, `strategy`, and arguments of `Trainer`.

    Raises:
        ValueError, RuntimeError, OSError: as `keras_bert.training.strategy.make_strategy`.
    """
    values = flags.FLAGS
    strategy = tasks.distribution.strategy_from_flags()
    if values.deterministic:
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    names = (
        "run_dir",
        "gradient_accumulation_steps",
        "jit_compile",
        "checkpoint_every",
        "log_every",
        "steps_per_execution",
        "progress",
    )
    return {"strategy": strategy, **{name: values[name].value for name in names}}


def define_fine_tuning_flags(max_seq_length=128, has_dropout=True, bucket_step=8):
    """Defines the flags; called by a program, not on import, so that one process can import several programs.

    Args:
        max_seq_length: int. The default of the flag of that name.
        has_dropout: bool. Whether the task has a dropout before its new layer.
        bucket_step: int. The default of the flag of that name.
    """
    define_training_flags()
    flags.DEFINE_list("mode", ["train", "eval", "export"], f"What to do, any of {','.join(MODES)}, comma-separated.")
    flags.register_validator("mode", _are_modes, f"allowed are {','.join(MODES)}, comma-separated, each at most once")
    flags.DEFINE_string(
        "init_checkpoint", None, "Weights to begin with: a checkpoint, the folder of another run, or a preset's name."
    )
    flags.DEFINE_enum(
        "encoder",
        None,
        ENCODERS,
        "Another encoder for the checkpoint's weights, as the paper compares them (section 5.1); default: its own. "
        "Weights that were trained in both directions give a quick look, and no fair comparison.",
    )
    flags.DEFINE_enum(
        "features",
        None,
        LAYER_POOLINGS,
        "The feature-based approach (section 5.3): a BERT that does not learn, and two new BiLSTMs on this layer "
        "pooling. They want a higher --learning_rate than a BERT, such as 1e-3.",
    )
    flags.register_multi_flags_validator(["encoder", "features"], _has_one_encoder)
    flags.DEFINE_string(
        "init_checkpoint_right_to_left",
        None,
        "With --encoder=two_directions: the weights from right to left, where --init_checkpoint has the others. "
        "Default: the same, if they were trained in both directions.",
    )
    flags.register_multi_flags_validator(["encoder", "init_checkpoint_right_to_left"], _has_two_directions)
    flags.DEFINE_float("epochs", 3.0, "Passes over the training examples, more than 0.")
    flags.register_validator("epochs", lambda epochs: 0 < epochs < float("inf"), "must be more than 0")
    flags.DEFINE_integer("batch_size", 32, "Examples in a batch, of all devices together.", lower_bound=1)
    flags.DEFINE_integer("token_budget", None, "Most tokens in a batch, with padding; batches vary.", lower_bound=1)
    flags.DEFINE_integer(
        "bucket_step", bucket_step, "Width of the length buckets in tokens; 0 is no buckets.", lower_bound=0
    )
    flags.DEFINE_bool(
        "static_shapes", None, "Pad all batches to one shape, which XLA compiles once; default: only on a TPU."
    )
    flags.DEFINE_float("learning_rate", 5e-5, "Peak of the learning rate.")
    flags.register_validator("learning_rate", lambda rate: 0 < rate < float("inf"), "must be a positive number")
    flags.DEFINE_list("learning_rates", None, "Several peaks to try, comma-separated; the best on dev is taken.")
    flags.register_validator("learning_rates", _are_rates, "must be positive numbers, comma-separated, none twice")
    flags.DEFINE_integer("num_seeds", 1, "Trainings with each learning rate, with the seeds seed, seed + 1, ...", 1)
    flags.DEFINE_integer("max_seq_length", max_seq_length, "Most tokens in an input.", lower_bound=3)
    flags.DEFINE_string("freeze", "none", "What stays as it is: none, embeddings, encoder, or a number of blocks.")
    flags.register_validator("freeze", _is_freeze, "allowed are none, embeddings, encoder, or a positive number")
    if has_dropout:
        flags.DEFINE_float("dropout", 0.1, "Dropout before the new layer.", lower_bound=0.0, upper_bound=0.999)
    flags.DEFINE_float("warmup_proportion", 0.1, "Share of the updates that warm up.", 0.0, 1.0)
    flags.DEFINE_bool(
        "bias_correction", None, "Adam's bias correction, which the original lacks; default: below 10,000 examples."
    )
    flags.DEFINE_float(
        "layer_decay", 1.0, "Learning rate of a block, as a share of that of the block above.", 1e-9, 1.0
    )
    flags.DEFINE_integer(
        "reinitialize_blocks", None, "How many of the highest blocks begin anew, with the pooler; default: nothing.", 0
    )
    flags.DEFINE_integer("evaluate_every", None, "Updates between two evaluations; default: once an epoch.", 1)
    flags.DEFINE_integer("patience", None, "End after so many evaluations in a row without a better score.", 1)
    flags.DEFINE_integer("eval_batch_size", 64, "Examples in a batch of evaluation and prediction.", lower_bound=1)
    flags.DEFINE_enum("export_dtype", None, ["float32", "bfloat16"], "dtype of the SavedModel; default: the model's.")
    flags.DEFINE_string(
        "data_service", None, "grpc://host:port of a tf.data service that makes the batches; see tools.data_service."
    )
    flags.register_multi_flags_validator(["data_service", "deterministic"], _is_service)
    flags.DEFINE_bool("skip_bad_rows", False, "Count and skip malformed rows, instead of stopping at the first.")


def fine_tuning_arguments():
    """The flags' values as the keyword arguments of `keras_bert.finetuning.fine_tuner.fine_tune`; to be called before
    TensorFlow
    computes anything.

    It makes the strategy, and sets TensorFlow to be deterministic if that is asked for.

    Returns:
        dict. `given` are the names of the flags that the command line has.

    Raises:
        absl.flags.IllegalFlagValueError: if two flags contradict each other.
        ValueError, RuntimeError, OSError: as `keras_bert.training.strategy.make_strategy`.
    """
    from keras_bert.training.strategy import needs_static_shapes

    values = flags.FLAGS
    if values["learning_rate"].present and values["learning_rates"].present:
        raise flags.IllegalFlagValueError("give --learning_rate or --learning_rates, not both")
    if values.token_budget is not None and not values.bucket_step:
        raise flags.IllegalFlagValueError("--token_budget needs length buckets: --bucket_step must be at least 1")
    rates = [float(rate) for rate in values.learning_rates or [values.learning_rate]]
    training = training_arguments()
    return {
        **training,
        "modes": tuple(values.mode),
        "init_checkpoint": values.init_checkpoint,
        "encoder": f"features_{values.features}" if values.features else values.encoder,
        "init_checkpoint_right_to_left": values.init_checkpoint_right_to_left,
        "learning_rates": rates,
        "seeds": [values.seed + restart for restart in range(values.num_seeds)],
        "max_seq_length": values.max_seq_length,
        "freeze": int(values.freeze) if values.freeze.isdigit() else values.freeze,
        "dropout": values.dropout if "dropout" in values else None,
        "precision": values.precision,
        "epochs": values.epochs,
        # A budget of tokens alone, unless a number of examples is asked for, too.
        "batch_size": values.batch_size if values["batch_size"].present or not values.token_budget else None,
        "token_budget": values.token_budget,
        "bucket_step": values.bucket_step or None,
        "static_shapes": needs_static_shapes(training["strategy"])
        if values.static_shapes is None
        else values.static_shapes,
        "schedule": values.schedule,
        "warmup_proportion": values.warmup_proportion,
        "weight_decay": values.weight_decay,
        "clip_norm": values.clip_norm,
        "bias_correction": values.bias_correction,
        "layer_decay": values.layer_decay,
        "reinitialize_blocks": values.reinitialize_blocks,
        "patience": values.patience,
        "gradient_checkpointing": values.gradient_checkpointing,
        "evaluate_every": values.evaluate_every,
        "eval_batch_size": values.eval_batch_size,
        "export_dtype": values.export_dtype,
        "data_service": values.data_service,
        "given": frozenset(name for name in values if values[name].present),
    }


def run_fine_tuning(program, make_task, argv):
    """What every fine-tuning program does, once its flags are parsed.

    Args:
        program: str, its name.
        make_task: function of the flags' values that gives the task, as `keras_bert.finetuning.fine_tuner.fine_tune`
        wants it.
        argv: list of str, what the command line has beside flags.

    Raises:
        absl.app.UsageError: if there is anything.
    """
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag, repeated for several")
    from keras_bert.finetuning.fine_tuner import fine_tune

    log_to_standard_error()
    with errors_without_traceback(program):
        arguments = fine_tuning_arguments()
        fine_tune(make_task(flags.FLAGS), **arguments)


def log_to_standard_error():
    """Lets the library's messages through, unless --verbosity says otherwise, and of TensorFlow's only warnings."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    folders = (os.sep + "tensorflow" + os.sep, os.sep + "tensorboard" + os.sep)
    logging.get_absl_handler().addFilter(
        lambda record: (
            record.levelno >= standard_logging.WARNING or not any(name in record.pathname for name in folders)
        )
    )


@contextlib.contextmanager
def errors_without_traceback(program):
    """Ends the program with the message of an error that the user can do something about; -v 1 logs where it arose.

    Args:
        program: str, its name.
    """
    from keras_bert.training.trainer import TrainingDiverged, TrainingInterrupted

    try:
        yield
    except KeyboardInterrupt:
        sys.exit(f"{program}: interrupted; the same command goes on from the newest checkpoint")
    except TrainingInterrupted as interruption:
        logging.warning("%s: %s", program, interruption)
        sys.exit(TERMINATED)
    except (ImportError, OSError, TrainingDiverged, ValueError) as error:
        logging.debug("the error's origin", exc_info=True)
        sys.exit(f"{program}: {error}")


def _are_modes(modes):
    return bool(modes) and set(modes) <= set(MODES) and len(set(modes)) == len(modes)


def _are_rates(rates):
    try:
        numbers = None if rates is None else [float(rate) for rate in rates]
    except ValueError:
        return False
    positive = numbers is not None and all(0 < number < float("inf") for number in numbers)
    return numbers is None or (bool(numbers) and positive and len(set(numbers)) == len(numbers))


def _has_one_encoder(values):
    if values["encoder"] is not None and values["features"] is not None:
        raise flags.ValidationError("give --encoder or --features, not both")
    return True


def _has_two_directions(values):
    if values["init_checkpoint_right_to_left"] is not None and values["encoder"] != "two_directions":
        raise flags.ValidationError("--init_checkpoint_right_to_left is for --encoder=two_directions")
    return True


def _is_service(values):
    if values["data_service"] is None:
        return True
    from keras_bert.data.data_service import parse_service_address

    try:
        parse_service_address(values["data_service"])
    except ValueError as error:
        raise flags.ValidationError(str(error)) from error
    if values["deterministic"]:
        raise flags.ValidationError(
            "--deterministic cannot be had with --data_service: which batches come when depends on its workers' speed"
        )
    return True


def _is_freeze(value):
    return value in ("none", "embeddings", "encoder") or (value.isdigit() and int(value) > 0)
