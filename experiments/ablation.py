"""Runs an ablation of the paper again: pre-trains its variants, fine-tunes each on your tasks, and writes the table.

    python -m experiments.ablation --table=pretraining_tasks --run_dir=ablations/tasks --bert_config_file=small.json \\
        --pretrain="--text_files=corpus/*.txt --vocab_file=vocab.txt --phase=128:2000:64 --learning_rate=1e-3" \\
        --task="sst2=tasks.glue --task=sst2 --data_dir=glue --epochs=3"
    python -m experiments.ablation --table=features --run_dir=ablations/features --init_checkpoint=all_minilm_l6_v2 \\
        --feature_flags="--learning_rate=1e-3 --epochs=10" \\
        --task="ner=tasks.tagging --train_file=train.conll --dev_file=dev.conll --learning_rate=2e-4"

--table is
  pretraining_tasks  the paper's table 5: BERT, without next sentences, from left to right, and that with a BiLSTM
  model_size         table 6: one model of each of --sizes
  masking            table 8: six ways to mask; a --task with --features=concat_last_four is its feature-based column
  features           table 7: the BERT of --init_checkpoint fine-tuned, and six mixes of its frozen layers

Everything is written below --run_dir: the programs' own runs in pretraining/VARIANT and fine_tuning/VARIANT/TASK, and
table.md and table.json, which are written anew as each variant is finished. A score is the median over --num_seeds
seeds
of the best evaluation on dev, with the range; of several --learning_rates the seeds are those of the rate with the best
trial. Every program is asked whether it takes its flags before the first one is run. What has finished is not run
again: the same command goes on where an interrupted one was.
"""

import json
import sys
from pathlib import Path

from absl import app, flags

from experiments.variants import PAPER_SIZES, TABLES

_OF_PRETRAINING = (
    "run_dir", "objective", "next_sentence", "mask_share", "random_share", "bert_config_file", "size",
    "init_checkpoint", "progress",
)  # fmt: skip
_OF_FINE_TUNING = ("run_dir", "init_checkpoint", "encoder", "mode", "num_seeds", "progress")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("enum", "table", None, TABLES, "Which ablation.", required=True)
    define("string", "run_dir", None, "Folder for everything that is written.", required=True)
    define("multi_string", "task", None, 'NAME=PROGRAM FLAGS, such as "sst2=tasks.glue --task=sst2 ..."; repeat it.')
    define("integer", "num_seeds", 3, "Trainings of each variant on each task, by seed.", lower_bound=1)
    define("string", "pretrain", None, "Flags of tasks.pretrain, the same for all variants.")
    define("string", "bert_config_file", None, "The variants' size; with --table=model_size all of it but the size.")
    define(
        "list",
        "sizes",
        ["x".join(map(str, size)) for size in PAPER_SIZES],
        "With --table=model_size: BLOCKSxWIDTHxHEADS, with commas between.",
    )
    define("string", "init_checkpoint", None, "With --table=features: the BERT.")
    define("string", "feature_flags", "--learning_rate=1e-3", "With --table=features: flags of those on frozen layers.")


def parse_size(text):
    """The size of a model.

    Args:
        text: str, BLOCKSxWIDTHxHEADS.

    Returns:
        tuple of int: blocks, width, heads.

    Raises:
        ValueError: if it is not of that form, or the heads do not divide the width.

    Example:

    >>> parse_size("3x768x12")
    (3, 768, 12)
    """
    numbers = text.split("x")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) for number in numbers):
        raise ValueError(f"--sizes: {text!r} is not BLOCKSxWIDTHxHEADS, such as 3x768x12")
    blocks, width, heads = map(int, numbers)
    if width % heads:
        raise ValueError(f"--sizes: {text!r} has {heads} heads, which do not divide a width of {width}")
    return blocks, width, heads


def settings_of(values):
    """What the flags ask for, checked as far as can be without running anything.

    Args:
        values: the flags.

    Returns:
        dict fit for JSON.

    Raises:
        ValueError: if flags are missing, do not go together, or cannot be understood.
        OSError: if the configuration cannot be read.
    """
    from experiments.programs import parse_flags, parse_task

    of_features = ("init_checkpoint", "feature_flags")
    of_pretraining = ("pretrain", "bert_config_file", "sizes")
    needed, others = (of_features, of_pretraining) if values.table == "features" else (of_pretraining, of_features)
    for name in others:
        if values[name].present:
            raise ValueError(f"--{name} is not for --table={values.table}")
    missing = [name for name in ("task", *needed) if not values[name].value]
    if missing:
        raise ValueError(f"--table={values.table} needs --{missing[0]}; see --help for an example")
    own = (*_OF_FINE_TUNING, *(["features"] if values.table == "features" else []))
    tasks = [parse_task(text, own) for text in values.task]
    names = [name for name, _, _ in tasks]
    if len(set(names)) < len(names):
        raise ValueError(f"--task: two of the same name among {', '.join(names)}")
    settings = {"table": values.table, "tasks": tasks, "num_seeds": values.num_seeds}
    if values.table == "features":
        feature_flags = parse_flags("feature_flags", values.feature_flags, own)
        _check_learning_rates(tasks, feature_flags)
        return {**settings, "init_checkpoint": values.init_checkpoint, "feature_flags": feature_flags}
    _check_learning_rates(tasks)
    with open(values.bert_config_file, encoding="utf-8") as file:
        config = json.load(file)
    settings |= {"pretrain": parse_flags("pretrain", values.pretrain, _OF_PRETRAINING), "config": config}
    if values.table == "model_size":
        settings["sizes"] = [parse_size(text) for text in values.sizes]
    return settings


def _check_learning_rates(tasks, feature_flags=()):
    """Refuses what the programs do, too, but not yet when they only parse their flags."""
    both = {"learning_rate", "learning_rates"}
    for name, _, given in tasks:
        if both <= _names(given):
            raise ValueError(f"--task={name}: give --learning_rate or --learning_rates, not both")
        if both <= _names([*given, *feature_flags]):
            raise ValueError(
                f"--task={name} and --feature_flags={' '.join(feature_flags)} have --learning_rate and "
                "--learning_rates between them, and a program takes one; give the same one of them in both"
            )


def _names(given):
    return {flag.removeprefix("--").partition("=")[0] for flag in given}


def programs_of(variant, settings, folder):
    """The programs that pre-train a variant and fine-tune it on each task.

    Args:
        variant: a `experiments.variants.Variant`.
        settings: dict as `settings_of` gives.
        folder: Path, of the whole ablation.

    Returns:
        A pair: the `experiments.programs.Program` that pre-trains, or None; and dict of task to the one that
        fine-tunes.
    """
    from experiments.programs import Program

    pretraining, start = None, settings.get("init_checkpoint")
    if variant.pretraining is not None:
        start = folder / "pretraining" / variant.pretraining
        given = (*settings["pretrain"], *variant.pretrain_flags)
        config = f"--bert_config_file={_config_file(variant, folder)}"
        name = f"--pretrain, variant {variant.pretraining}"
        pretraining = Program(name, "tasks.pretrain", given, (config,), start)
    fine_tuning = {}
    for name, module, given in settings["tasks"]:
        given = (*given, *variant.fine_tune_flags, "--mode=train", f"--num_seeds={settings['num_seeds']}")
        run = folder / "fine_tuning" / variant.folder / name
        name_of_both = f"--task={name}, variant {variant.folder}"
        fine_tuning[name] = Program(name_of_both, module, given, (f"--init_checkpoint={start}",), run)
    return pretraining, fine_tuning


def run_variant(variant, settings, folder, report):
    """Pre-trains a variant and fine-tunes it on each task, unless that has been done.

    Args:
        variant, settings, folder: as for `programs_of`.
        report: function that takes a line before each program is run.

    Returns:
        A pair: dict, what the pre-training came to, or None; and dict of task to what the fine-tuning came to.

    Raises:
        ProgramFailed: if a program failed.
    """
    from experiments.programs import run_once

    pretraining, fine_tuning = programs_of(variant, settings, folder)
    if pretraining is not None:
        config = json.dumps(_resized(settings["config"], variant.size), indent=2) + "\n"
        _config_file(variant, folder).write_text(config, encoding="utf-8")
        pretraining = run_once(pretraining, report)
    return pretraining, {name: run_once(program, report) for name, program in fine_tuning.items()}


def _config_file(variant, folder):
    return folder / f"{variant.pretraining}.json"


def _resized(config, size):
    if size is None:
        return config
    blocks, width, heads = size
    return {
        **config,
        "num_hidden_layers": blocks,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,  # paper, section 3
    }


def run(values):
    """Checks the flags, runs what has not been run, and writes the table."""
    from experiments.programs import check_flags
    from experiments.tables import row_of, scores_of, table_of
    from experiments.variants import variants_of
    from keras_bert.io.atomic_write import atomic_text_file, write_json
    from keras_bert.training.run_dir import RunDirectory

    settings = settings_of(values)
    variants = variants_of(settings["table"], settings.get("sizes", PAPER_SIZES), settings.get("feature_flags", ()))
    folder = Path(values.run_dir).resolve()
    programs = [programs_of(variant, settings, folder) for variant in variants]
    # Before the folder belongs to these settings, so that they can be mended.
    check_flags(
        [pretraining for pretraining, _ in programs if pretraining is not None]
        + [program for _, fine_tuning in programs for program in fine_tuning.values()]
    )
    run_dir = RunDirectory(values.run_dir, settings)  # kept, as it holds the folder's lock
    rows, data = [], []
    for variant in variants:
        pretraining, fine_tuning = run_variant(variant, settings, folder, lambda line: print(line, file=sys.stderr))
        rows.append(row_of(variant, pretraining, fine_tuning))
        scores = {name: scores_of(results) for name, results in fine_tuning.items()}
        data.append({"variant": variant.row, "pretraining": pretraining, "scores": scores})
        with atomic_text_file(run_dir.path / "table.md", overwrite=True) as file:
            file.write(table_of(rows))
        write_json(run_dir.path / "table.json", data, overwrite=True)
    print(table_of(rows), end="")


def main(argv):
    """Runs the program; what is wrong with flags or programs is said without a traceback."""
    from experiments.programs import ProgramFailed

    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; flags of a program stand in quotes, as one word")
    try:
        run(flags.FLAGS)
    except KeyboardInterrupt:
        sys.exit("experiments.ablation: interrupted; the same command goes on where it was")
    except (OSError, ValueError, ProgramFailed) as error:
        sys.exit(f"experiments.ablation: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
