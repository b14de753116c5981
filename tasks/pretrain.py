r"""Pre-trains BERT on masked words and next sentences, from prepared text or from files of instances.

    python -m tasks.pretrain --text_files='corpus/*.txt' --vocab_file=vocab.txt --size=tiny --run_dir=runs/tiny \
        --phase=128:9000:256 --phase=512:1000:256

Each --phase is LENGTH:STEPS:ROWS, and they follow each other; the default is the paper's recipe. Text becomes instances
during training; files of tools.create_pretraining_data are given by --instance_files instead, once per phase. --run_dir
then holds model/ (weights, vocabulary and a model card), training_curve.png, results.json and log.jsonl. Re-run the
same command to resume an interrupted run, in whatever phase.
"""

import shlex
import sys

from absl import app, flags

from keras_bert.finetuning.pretrain import pretrain
from keras_bert.finetuning.pretraining_data import PretrainingData
from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.finetuning.runtime import RuntimeSettings
from keras_bert.training.strategy import is_chief
from tasks.distribution import StrategySettings
from tasks.flags import ProgramSettings, check_arguments, define_settings, errors_without_traceback, prepare, read_flags


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    classes = (ProgramSettings, PretrainingData, PretrainingRecipe, RuntimeSettings, StrategySettings)
    define_settings(classes, values)


def run(values):
    """Pre-trains with parsed flags, and returns the result of `pretrain`."""
    with errors_without_traceback("tasks.pretrain", values):
        strategy = prepare(values)
        data, recipe, runtime = (
            read_flags(settings, values) for settings in (PretrainingData, PretrainingRecipe, RuntimeSettings)
        )
        command = shlex.join(["python", "-m", "tasks.pretrain", *sys.argv[1:]])
        results = pretrain(data, recipe, values.run_dir, strategy, runtime, command)
        if is_chief(strategy):
            print(f"{'steps':<32}{results['updates']}")
            scores = {"training loss": results["loss"], **results["metrics"]}
            for name, value in scores.items():
                print(f"{name:<32}{'not a number' if value is None else format(value, '.4f')}")
            print(f"{'model':<15}{results['model']}")
        return results


def main(argv):
    """Runs the command line."""
    check_arguments(argv)
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags()
    app.run(main)
