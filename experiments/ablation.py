"""Repeats an ablation of the paper: pre-trains its variants, fine-tunes each on your tasks, and writes the table.

    python -m experiments.ablation --table=pretraining_tasks --run_dir=ablations/tasks --bert_config_file=small.json \\
        --pretrain="--text_files=corpus/*.txt --vocab_file=vocab.txt --phase=128:2000:64 --learning_rate=1e-3" \\
        --task="sst2=tasks.glue --task=sst2 --data_dir=glue --epochs=3"
    python -m experiments.ablation --table=features --run_dir=ablations/features --init_checkpoint=all_minilm_l6_v2 \\
        --feature_flags="--learning_rate=1e-3 --epochs=10" \\
        --task="ner=tasks.tagging --train_file=train.conll --dev_file=dev.conll --learning_rate=2e-4"

--table is one of
  pretraining_tasks  table 5 of the paper: BERT, without next sentences, left to right, and that with a BiLSTM
  model_size         table 6: one model for each of --sizes
  masking            table 8: six masking procedures; a --task with
                     --encoder=features_concat_last_four is its feature column
  features           table 7: the BERT of --init_checkpoint fine-tuned, and six combinations of its frozen layers

Outputs are written to --run_dir: the runs in pretraining/VARIANT and fine_tuning/VARIANT/TASK, and table.md and
table.json, which are updated after each variant. A score is the median and range over --num_seeds seeds of the best
evaluation on dev; with several learning rates, those of the rate with the best trial. The flags of all programs are
checked before the first one runs. Re-run the same command to resume an interrupted ablation.
"""

import json
import sys
from pathlib import Path

from absl import app, flags

from experiments.variants import PAPER_SIZES, TABLES

# Flags that are set for each variant.
_PRETRAINING_FLAGS = (
    "run_dir", "objective", "next_sentence", "mask_token_rate", "random_token_rate", "bert_config_file", "size",
    "init_checkpoint", "progress",
)  # fmt: skip
_FINE_TUNING_FLAGS = ("run_dir", "init_checkpoint", "mode", "num_seeds", "progress")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("enum", "table", None, TABLES, "Which ablation.", required=True)
    define("string", "run_dir", None, "Folder for all outputs.", required=True)
    define("multi_string", "task", None, 'NAME=PROGRAM FLAGS, e.g. "sst2=tasks.glue --task=sst2 ..."; repeatable.')
    define("integer", "num_seeds", 3, "Number of fine-tuning runs per variant and task.", lower_bound=1)
    define("string", "pretrain", None, "Flags of tasks.pretrain for all variants.")
    define("string", "bert_config_file", None, "Model configuration; --table=model_size replaces its size.")
    default_sizes = ["x".join(map(str, size)) for size in PAPER_SIZES]
    define("list", "sizes", default_sizes, "--table=model_size: comma-separated LAYERSxHIDDENxHEADS.")
    define("string", "init_checkpoint", None, "--table=features: the pre-trained BERT.")
    define("string", "feature_flags", "--learning_rate=1e-3", "--table=features: flags of the frozen variants.")


def parse_size(text):
    """Parses LAYERSxHIDDENxHEADS."""
    numbers = text.split("x")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) for number in numbers):
        raise ValueError(f"--sizes: {text!r} is not LAYERSxHIDDENxHEADS, such as 3x768x12")
    num_layers, hidden_size, num_heads = map(int, numbers)
    if hidden_size % num_heads:
        raise ValueError(f"--sizes: the {num_heads} heads of {text!r} do not divide its hidden size {hidden_size}")
    return num_layers, hidden_size, num_heads


def make_settings(values):
    """Returns the settings as a dict for JSON, checked as far as possible without running a program."""
    from experiments.programs import parse_flags, parse_task

    needed, unused = ("pretrain", "bert_config_file", "sizes"), ("init_checkpoint", "feature_flags")
    has_pretraining = values.table != "features"
    if not has_pretraining:
        needed, unused = unused, needed
    for name in unused:
        if values[name].present:
            raise ValueError(f"--{name} has no effect with --table={values.table}; leave it out")
    missing = [name for name in ("task", *needed) if not values[name].value]
    if missing:
        raise ValueError(f"--table={values.table} needs --{missing[0]}; see --help for an example")
    varies_encoder = values.table in ("features", "pretraining_tasks")
    reserved = (*_FINE_TUNING_FLAGS, "encoder") if varies_encoder else _FINE_TUNING_FLAGS
    tasks = [parse_task(text, reserved) for text in values.task]
    names = [name for name, _, _ in tasks]
    if len(set(names)) < len(names):
        raise ValueError(f"--task: names must differ, got {', '.join(names)}")
    feature_flags = [] if has_pretraining else parse_flags("feature_flags", values.feature_flags, reserved)
    settings = {"table": values.table, "tasks": tasks, "num_seeds": values.num_seeds}
    if not has_pretraining:
        return {**settings, "init_checkpoint": values.init_checkpoint, "feature_flags": feature_flags}
    config = json.loads(Path(values.bert_config_file).read_text(encoding="utf-8"))
    settings |= {"pretrain": parse_flags("pretrain", values.pretrain, _PRETRAINING_FLAGS), "config": config}
    if values.table == "model_size":
        settings["sizes"] = [parse_size(text) for text in values.sizes]
    return settings


def make_programs(variant, settings, folder):
    """Returns the `Program` that pre-trains a variant, or None, and {task: `Program` that fine-tunes it}."""
    from experiments.programs import Program

    pretraining, checkpoint = None, settings.get("init_checkpoint")
    if variant.pretraining is not None:
        checkpoint = folder / "pretraining" / variant.pretraining
        given = (*settings["pretrain"], *variant.pretrain_flags)
        config = f"--bert_config_file={_config_path(variant, folder)}"
        name = f"--pretrain, variant {variant.pretraining}"
        pretraining = Program(name, "tasks.pretrain", given, (config,), checkpoint)
    fine_tuning = {}
    for task, module, given in settings["tasks"]:
        given = (*given, *variant.fine_tune_flags, "--mode=train", f"--num_seeds={settings['num_seeds']}")
        run_dir = folder / "fine_tuning" / variant.folder / task
        name = f"--task={task}, variant {variant.folder}"
        fine_tuning[task] = Program(name, module, given, (f"--init_checkpoint={checkpoint}",), run_dir)
    return pretraining, fine_tuning


def run_variant(variant, settings, folder):
    """Pre-trains and fine-tunes a variant unless that is done; returns the results of both, as `make_programs`."""
    from experiments.programs import run_once

    def report(line):
        print(line, file=sys.stderr)

    pretraining, fine_tuning = make_programs(variant, settings, folder)
    if pretraining is not None:
        config = json.dumps(_resize(settings["config"], variant.size), indent=2) + "\n"
        _config_path(variant, folder).write_text(config, encoding="utf-8")
        pretraining = run_once(pretraining, report)
    return pretraining, {task: run_once(program, report) for task, program in fine_tuning.items()}


def _config_path(variant, folder):
    return folder / f"{variant.pretraining}.json"


def _resize(config, size):
    if size is None:
        return config
    num_layers, hidden_size, num_heads = size
    return {
        **config,
        "num_hidden_layers": num_layers,
        "hidden_size": hidden_size,
        "num_attention_heads": num_heads,
        "intermediate_size": 4 * hidden_size,  # paper, section 3
    }


def run(values):
    """Checks the flags, runs all programs that have not finished, and writes the table."""
    from experiments.programs import check_flags
    from experiments.tables import collect_scores, format_table, make_row, write_table
    from experiments.variants import list_variants
    from keras_bert.training.run_dir import RunDirectory

    settings = make_settings(values)
    variants = list_variants(settings["table"], settings.get("sizes", PAPER_SIZES), settings.get("feature_flags", ()))
    folder = Path(values.run_dir).resolve()
    # Checked before the run directory records the settings, so that they can be corrected.
    programs = [make_programs(variant, settings, folder) for variant in variants]
    check_flags(
        [pretraining for pretraining, _ in programs if pretraining is not None]
        + [program for _, fine_tuning in programs for program in fine_tuning.values()]
    )
    run_dir = RunDirectory(values.run_dir, settings)  # kept, because it holds the lock of the folder
    rows, records = [], []
    for variant in variants:
        pretraining, fine_tuning = run_variant(variant, settings, folder)
        rows.append(make_row(variant, pretraining, fine_tuning))
        scores = {task: collect_scores(results) for task, results in fine_tuning.items()}
        records.append({"variant": variant.row, "pretraining": pretraining, "scores": scores})
        write_table(run_dir.path, rows, records)
    print(format_table(rows), end="")


def main(argv):
    """Runs the ablation."""
    from experiments.programs import run_experiment

    run_experiment("experiments.ablation", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
