"""Flags derived from dataclasses of settings, and the shared parts of all training programs."""

import contextlib
import dataclasses
import logging as standard_logging
import os
import sys

from absl import app, flags, logging

from keras_bert.finetuning.fine_tuner import MODES, fine_tune
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.run_models import saved_configuration
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.sweep import format_results
from keras_bert.finetuning.workers import TERMINATED
from keras_bert.settings import REQUIRED, Settings, flag_definition, kinds, setting
from keras_bert.training.strategy import is_chief
from keras_bert.training.trainer import TrainingDiverged, TrainingInterrupted
from tasks.distribution import StrategySettings

flags.disclaim_key_flags()  # --help shows flags as those of the program that defines them


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSettings(Settings):
    """Flags of every program, which the library takes as arguments."""

    run_dir: str = setting(REQUIRED, "Folder that all outputs are written to.")
    deterministic: bool = setting(
        False, "Use deterministic operations, for results that are equal to the last bit; slower.", modes=("train",)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModeSettings(Settings):
    """Modes of a fine-tuning program."""

    mode: tuple[str, ...] = setting(
        ("train", "eval", "export"), f"What to do, any of {','.join(MODES)}, comma-separated.", choices=MODES
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.mode or len(set(self.mode)) < len(self.mode):
            raise ValueError(f"mode must be any of {', '.join(MODES)}, each at most once; got {','.join(self.mode)!r}")


def define_settings(settings_classes, values, defaults=None):
    """Defines a flag for each setting, which are checked together when the command line is parsed."""
    for settings_class in settings_classes:
        for field in dataclasses.fields(settings_class):
            _define_flag(field, kinds(settings_class)[field.name], values, (defaults or {}).get(field.name))

    def check(_):
        try:
            modes = read_flags(ModeSettings, values).mode if "mode" in values else None
            for settings_class in settings_classes:
                _check_effects(read_flags(settings_class, values), values, modes)
        except (TypeError, ValueError) as error:
            raise flags.IllegalFlagValueError(f"--{error}") from error
        return True

    flags.register_validator("run_dir", check, flag_values=values)


def _define_flag(field, kind, values, default):
    is_required = field.default is REQUIRED
    if default is None:
        default = None if is_required else field.default
    flag_kind, arguments = flag_definition(field, kind, default)
    getattr(flags, f"DEFINE_{flag_kind}")(field.name, *arguments, flag_values=values, required=is_required)


def read_flags(settings_class, values, saved=None):
    """Builds a dataclass of settings from its flags."""
    saved = settings_class.recorded(saved or {})
    arguments = {}
    for field in dataclasses.fields(settings_class):
        value = _parse(values[field.name].value, kinds(settings_class)[field.name], field)
        if values[field.name].present or field.name not in saved:
            arguments[field.name] = value
        is_fixed = saved and field.name in settings_class.fixed_by_run
        if is_fixed and values[field.name].present and saved.get(field.name) != value:
            raise ValueError(
                f"{field.name}={value}: the model was trained with {field.name} {saved.get(field.name)}, so it may "
                "have seen the examples to evaluate on; leave the flag out"
            )
    return settings_class(**{**saved, **arguments})


def _parse(value, kind, field):
    if kind.is_list and isinstance(value, list):
        if kind.scalars == {float}:
            try:
                numbers = tuple(map(float, value))
            except ValueError:
                raise ValueError(f"{field.name} must be numbers, comma-separated; got {','.join(value)!r}") from None
            return numbers if len(numbers) != 1 else numbers[0]
        return tuple(value)
    if kind.scalars == {int, str} and isinstance(value, str):
        return int(value) if value.isdigit() else value
    return value


def _check_effects(settings, values, modes):
    """Refuses flags on the command line that the modes or the other settings do not use."""
    reasons = settings.without_effect()
    for field in dataclasses.fields(settings):
        if not values[field.name].present:
            continue
        used_by = field.metadata["modes"]
        if modes is not None and used_by is not None and not set(used_by) & set(modes):
            raise ValueError(
                f"{field.name} has no effect with --mode={','.join(modes)}; it is used by {', '.join(used_by)}. Add "
                "the mode, or leave the flag out"
            )
        if field.name in reasons:
            raise ValueError(f"{field.name} has no effect {reasons[field.name]}")


def fine_tuning_program(name, task_class, **defaults):
    """Returns `define_flags`, `run` and `main` of a program that fine-tunes a task; `defaults` are of its flags."""
    settings_class = task_class.settings_class

    def define(values=flags.FLAGS):
        classes = (ProgramSettings, ModeSettings, settings_class, FineTuningRecipe, FineTuningRuntime, StrategySettings)
        define_settings(classes, values, defaults)

    def run(values):
        with errors_without_traceback(name, values):
            modes = values.mode
            # A trained model is used with the settings that it was trained with, unless a flag says otherwise.
            saved = {} if "train" in modes else saved_configuration(values.run_dir, values.init_checkpoint)
            saved.pop("init_checkpoint", None)
            strategy = prepare(values)
            recipe = read_flags(FineTuningRecipe, values, saved)
            task = task_class.from_settings(read_flags(settings_class, values, saved), modes, recipe.seed)
            runtime = read_flags(FineTuningRuntime, values)
            results = fine_tune(task, recipe, values.run_dir, strategy, runtime, modes)
            if is_chief(strategy):
                print(format_results(results))
            return results

    def main(argv):
        check_arguments(argv)
        run(flags.FLAGS)

    return define, run, main


def check_arguments(argv):
    """Refuses positional arguments."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag, repeated for several")


def prepare(values):
    """Makes the strategy, and TensorFlow deterministic if asked for; before TensorFlow computes anything."""
    strategy = read_flags(StrategySettings, values).make()
    if values.deterministic:
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    return strategy


@contextlib.contextmanager
def errors_without_traceback(program, values):
    """Ends the program with the message of an error that the user can fix; with -v 1 its traceback is logged.

    Lets the library's messages through, unless --verbosity says otherwise, and of TensorFlow's only warnings.
    """
    if "verbosity" in values and not values["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    folders = (os.sep + "tensorflow" + os.sep, os.sep + "tensorboard" + os.sep)
    logging.get_absl_handler().addFilter(
        lambda record: (
            record.levelno >= standard_logging.WARNING or not any(name in record.pathname for name in folders)
        )
    )
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(f"{program}: interrupted; re-run the same command to resume from the newest checkpoint")
    except TrainingInterrupted as interruption:
        logging.warning("%s: %s", program, interruption)
        sys.exit(TERMINATED)
    except (ImportError, OSError, TrainingDiverged, ValueError) as error:
        logging.debug("the error's origin", exc_info=True)
        sys.exit(f"{program}: {error}")
