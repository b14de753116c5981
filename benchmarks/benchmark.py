"""Measures keras_bert beside what people use otherwise, in turn and in one run, and prints medians and ratios.

    python -m benchmarks.benchmark --suite=encoder --precision=mixed_bfloat16 --peer="theirs=python their_benchmark.py"

Suites:
    encoder: the forward pass and a whole training step at a fixed shape, beside the machine's own matrix products.
    sst2: fine-tuning on SST-2 from its files on, classification of dev, and by the exported SavedModel.
    training: the loop around the step: host time, log, checkpoints; and two logical replicas beside one device.
    tokenizer: ids of lines of text, by `BertTokenizer` and by Hugging Face tokenizers (pip install '.[benchmark]').
    masking: the masking of full rows for pre-training, by `TokenMasker` and by tensorflow-text.
    pretraining: the training step of pre-training on instances made from text, and what packing gains.
    pretraining_data: instances made on the fly from prepared text, and pairs of sentences packed into rows.
    tasks: SQuAD from its files to answers: windows, fine-tuning with and without length buckets, answers, served ones.
    optimizer: one step on the 22.7 million parameters of MiniLM's shape, by `BertAdamW` and by Keras' AdamW.

A peer is any program that prints a line such as `fwd 105 ms, train 474 ms` or `train 79.4 ex/s, infer 386.6 ex/s`; what
has the same name and unit as one of ours is compared. Every program, ours too, is a fresh process in every turn.
"""

import os
import sys
from pathlib import Path

from absl import app, flags

from benchmarks import (
    encoder,
    masking,
    optimizer,
    pretraining,
    pretraining_data,
    sst2,
    tasks,
    tokenizer,
    training,
)
from benchmarks.figures import comparison_table, format_figures
from benchmarks.processes import ProgramError, parse_peer, run_turns

OURS = "keras_bert"
# By suite: its programs, ours first, and the flags that they take.
SUITES = {
    "encoder": (
        encoder.PROGRAMS,
        ("batch_size", "sequence_length", "precision", "repeats", *encoder.MINILM),
    ),
    "sst2": (
        sst2.PROGRAMS,
        ("data_dir", "init_checkpoint", "examples", "epochs", "batch_size", "precision", "seed"),
    ),
    "training": (training.PROGRAMS, ("batch_size", "sequence_length", "precision", "updates")),
    "tokenizer": (tokenizer.PROGRAMS, ("vocabulary", "text", "lines", "batch_size", "repeats")),
    "masking": (
        masking.PROGRAMS,
        ("vocabulary", "text", "lines", "batch_size", "sequence_length", "max_predictions", "repeats"),
    ),
    "pretraining": (
        pretraining.PROGRAMS,
        ("vocabulary", "text", "batch_size", "sequence_length", "precision", "updates", *encoder.MINILM),
    ),
    "pretraining_data": (
        pretraining_data.PROGRAMS,
        ("vocabulary", "text", "batch_size", "sequence_length", "instances"),
    ),
    "tasks": (
        tasks.PROGRAMS,
        ("train_file", "eval_file", "init_checkpoint", "updates", "questions", "batch_size", "precision", "seed"),
    ),
    "optimizer": (optimizer.PROGRAMS, ("repeats",)),
}
_OF_TEXT = ", ".join(suite for suite, (_, names) in SUITES.items() if "text" in names)
BATCH_SIZES = {
    "encoder": 16,
    "training": 16,
    "sst2": 32,
    "tokenizer": 512,
    "masking": 256,
    "pretraining": 32,
    "pretraining_data": 256,
    "tasks": 16,
}


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_enum("suite", None, list(SUITES), "What to measure.", required=True)
    flags.DEFINE_integer("turns", 3, "How often each program is run.", lower_bound=1)
    flags.DEFINE_multi_string("peer", [], "NAME=COMMAND of a program to compare with; repeat it for several.")
    flags.DEFINE_float("peer_timeout", 3600.0, "Seconds that a peer may take in one turn.", lower_bound=0.001)
    flags.DEFINE_string("output", None, "JSON file for the figures of every turn; must not exist.")
    flags.DEFINE_string("once", None, "Only measure this one of the suite's programs, in this process, once.")
    flags.DEFINE_integer("repeats", 5, "Calls whose median counts, within a turn. Not for sst2.", lower_bound=1)
    defaults = ", ".join(f"{suite} {number}" for suite, number in BATCH_SIZES.items())
    flags.DEFINE_integer("batch_size", None, f"Rows in a batch; default: {defaults}.", lower_bound=1)
    precisions = ["float32", "mixed_bfloat16"]
    flags.DEFINE_enum(
        "precision",
        "float32",
        precisions,
        "encoder, training, pretraining, sst2, tasks. bfloat16 needs a processor that has it.",
    )
    flags.DEFINE_integer(
        "sequence_length",
        128,
        "encoder, training, masking, pretraining, pretraining_data: tokens in a row.",
        lower_bound=1,
    )
    flags.DEFINE_integer("updates", 200, "training, pretraining, tasks: updates that count.", lower_bound=1)
    for name, value in encoder.MINILM.items():
        flags.DEFINE_integer(name, value, f"encoder, pretraining: {name}; the default is MiniLM's.", lower_bound=1)
    flags.DEFINE_string("data_dir", None, "sst2: folder of train.tsv and dev.tsv.")
    flags.DEFINE_string("init_checkpoint", "all_minilm_l6_v2", "sst2, tasks: a checkpoint, or the name of a preset.")
    flags.DEFINE_integer("examples", 4000, "sst2: examples to train on; 0 is all.", lower_bound=0)
    flags.DEFINE_integer("epochs", 1, "sst2: passes over them.", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "sst2, tasks: of the order of the examples, the new layer, and dropout.", 0)
    flags.DEFINE_string("train_file", None, "tasks: SQuAD's JSON of version 1.1, to train on.")
    flags.DEFINE_string("eval_file", None, "tasks: SQuAD's JSON, to answer.")
    flags.DEFINE_integer("questions", 500, "tasks: questions to answer; 0 is all.", lower_bound=0)
    flags.DEFINE_string("vocabulary", None, f"{_OF_TEXT}: a lower-case vocab.txt.")
    flags.DEFINE_multi_string("text", [], f"{_OF_TEXT}: files of text, or patterns.")
    flags.DEFINE_integer("lines", 51_200, "tokenizer, masking: most lines of text.", lower_bound=1)
    flags.DEFINE_integer("max_predictions", 20, "masking: most masked tokens in a row.", lower_bound=1)
    flags.DEFINE_integer("instances", 100_000, "pretraining_data: instances for each figure.", lower_bound=1)


def suite_arguments(values):
    """The flags of a suite as keyword arguments of its programs.

    Args:
        values: the parsed flags.

    Returns:
        dict.

    Raises:
        absl.app.UsageError: if a flag is given that another suite takes, or a file is missing.
    """
    suite = values.suite
    names = SUITES[suite][1]
    of_suites = {name for _, flag_names in SUITES.values() for name in flag_names}
    if strangers := sorted(name for name in of_suites - set(names) if values[name].present):
        raise app.UsageError(
            f"the suite {suite} has no use for --{', --'.join(strangers)}; its flags are --{', --'.join(names)}"
        )
    arguments = {name: values[name].value for name in names}
    if "batch_size" in arguments:
        arguments["batch_size"] = arguments["batch_size"] or BATCH_SIZES[suite]
    if suite == "sst2":
        missing = [name for name in ("train.tsv", "dev.tsv") if not (Path(values.data_dir or "") / name).is_file()]
        if values.data_dir is None or missing:
            raise app.UsageError(
                f"the suite sst2 needs --data_dir, a folder with train.tsv and dev.tsv; got {values.data_dir}, "
                f"where there is no {' and no '.join(missing)}"
            )
    for name in ("train_file", "eval_file"):
        if name in names and not Path(arguments[name] or "").is_file():
            raise app.UsageError(f"the suite {suite} needs --{name}, a file of SQuAD; got {arguments[name]}")
    reads_text = "text" in names
    if reads_text and not (values.vocabulary and tokenizer.find_texts(values.text)):
        raise app.UsageError(f"the suite {suite} needs --vocabulary and --text, which must match a file")
    if reads_text and not Path(values.vocabulary).is_file():
        raise app.UsageError(f"--vocabulary: there is no file {values.vocabulary}")
    return arguments


def find_programs(suite, own_flags, peers):
    """The programs of a suite and the peers, with their commands.

    Args:
        suite: str.
        own_flags: list of str. The command line, which the suite's programs are given, too.
        peers: list of str, `NAME=COMMAND`.

    Returns:
        dict of name to list of str, ours first.

    Raises:
        absl.app.UsageError: if a peer is malformed, or a name occurs twice.
    """
    programs = {
        name: [sys.executable, "-m", "benchmarks.benchmark", *own_flags, f"--once={name}"] for name in SUITES[suite][0]
    }
    for peer in peers:
        try:
            name, command = parse_peer(peer)
        except ValueError as error:
            raise app.UsageError(str(error)) from None
        if name in programs:
            raise app.UsageError(f"--peer={peer}: there are two programs of the name {name}; give it another")
        programs[name] = command
    return programs


def compare(programs, turns, peer_timeout, output, description):
    """Runs the programs in turn, prints the table, and writes the figures.

    Args:
        programs: dict of name to command.
        turns: int.
        peer_timeout: float, seconds.
        output: Path or None. The file is written anew after every turn.
        description: dict fit for JSON: what was measured.

    Raises:
        SystemExit: if a program fails; the turns before are printed all the same.
    """
    finished, problem = [], None
    try:
        for turn in run_turns(programs, turns, OURS, peer_timeout, report=lambda line: print(line, flush=True)):
            finished.append(turn)
            if output:
                write_figures(output, description, finished)
    except ProgramError as error:
        problem = str(error)
    if finished:
        print(f"\n{comparison_table(finished, OURS)}\n{len(finished)} turns; {os.cpu_count()} cores", flush=True)
    if problem:
        sys.exit(problem)


def write_figures(path, description, turns):
    """Writes all figures as JSON, whole or not at all."""
    from keras_bert.io.atomic_write import write_json  # loads TensorFlow, which --help does not need

    named = [
        {name: {" ".join(figure).strip(): value for figure, value in figures.items()} for name, figures in turn.items()}
        for turn in turns
    ]
    write_json(path, {**description, "turns": named}, overwrite=True)


def main(argv):
    """Measures one program of the suite in this process, or has all of them measured in turn."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; repeat --text or --peer for several")
    values = flags.FLAGS
    arguments = suite_arguments(values)
    own = SUITES[values.suite][0]
    if values.once is not None:
        if values.once not in own:
            raise app.UsageError(f"--once={values.once}: the programs of the suite {values.suite} are {list(own)}")
        print(format_figures(values.once, *own[values.once](**arguments)))
        return
    output = None if values.output is None else Path(values.output)
    if output and (output.exists() or not output.parent.is_dir()):
        raise app.UsageError(f"--output={output} must be a new file in a folder that exists")
    programs = find_programs(values.suite, sys.argv[1:], values.peer)
    description = {"suite": values.suite, "arguments": arguments, "programs": programs, "cores": os.cpu_count()}
    compare(programs, values.turns, values.peer_timeout, output, description)


if __name__ == "__main__":
    define_flags()
    app.run(main)
