"""Compares the speed of keras_bert with other libraries, in fresh processes, and prints medians and speedups.

    python -m benchmarks --suite=encoder --precision=mixed_bfloat16 --peer="theirs=python their_benchmark.py"
    python -m benchmarks --suite=machine
    python -m benchmarks --suite=scale --folder=runs/scale

Suites:
    encoder: forward pass and training step at a fixed shape.
    sst2: fine-tuning on SST-2 by the Trainer and by fit, classification of dev, and the exported model.
    serving: requests of six shapes to an exported classifier, as a SavedModel and in the other runtimes.
    squad: SQuAD from its files to answers, and the exported model.
    pretraining: training steps of pre-training on instances made from text, padded and packed.
    pretraining_data: making instances for pre-training from text.
    tokenizer: BertTokenizer and Hugging Face tokenizers (pip install '.[benchmark]').
    optimizer: BertAdamW and Keras' AdamW.
    accelerator: training step and inference of BERT-large in bfloat16, and the fraction of a GPU's peak that they reach
        (MFU), on TensorFlow or, with KERAS_BACKEND=jax, on JAX.
    machine: no comparison: recommends precision, oneDNN and threads for this machine, in about two minutes.
    load: no comparison: latencies, wrong answers and memory of the development server under a constant load, and under
        ten times that (pip install '.[benchmark]').
    scale: no comparison: time and memory by length, batch size, rows and processes, as tables and plots, in about half
        an hour on Linux; re-run the same command to resume.

A peer is any program that prints a line such as `forward 105 ms, train 474 ms` or `train 79.4 ex/s, infer 386.6 ex/s`;
figures of the same name and unit are compared. In every round each program runs once, as a process of its own.
"""

import glob
import importlib
import json
import os
import shlex
import sys
from pathlib import Path

from absl import app, flags

from benchmarks import load, machine, scale
from benchmarks.comparison import ProgramError, comparison_table, format_figures, run_rounds
from benchmarks.encoder import MINILM

OURS = "keras_bert"
_TEXT_FLAGS = ("vocabulary", "text", "batch_size")
# The flags of each suite.
SUITES = {
    "encoder": ("batch_size", "sequence_length", "precision", "repeats", *MINILM),
    "sst2": ("data_dir", "init_checkpoint", "examples", "epochs", "batch_size", "precision", "seed"),
    "serving": ("init_checkpoint", "repeats"),
    "squad": ("train_file", "eval_file", "init_checkpoint", "steps", "questions", "batch_size", "precision", "seed"),
    "pretraining": (*_TEXT_FLAGS, "sequence_length", "precision", "steps", *MINILM),
    "pretraining_data": (*_TEXT_FLAGS, "sequence_length", "instances"),
    "tokenizer": (*_TEXT_FLAGS, "lines", "repeats"),
    "optimizer": ("repeats",),
    "accelerator": ("batch_size", "size", "attention_dropout", "peak_tflops", "repeats"),
    "machine": ("batch_size", "sequence_length", "seconds", *MINILM),
    "load": ("init_checkpoint", "rate", "seconds"),
    "scale": ("folder", "max_gib", *MINILM),
}
# Suites without programs to compare.
_WITHOUT_COMPARISON = {"machine": machine.measure, "load": load.measure, "scale": scale.measure}
BATCH_SIZES = {
    "encoder": 16,
    "sst2": 32,
    "squad": 16,
    "pretraining": 32,
    "pretraining_data": 256,
    "tokenizer": 512,
    "accelerator": 256,
    "machine": 8,
}
_COMPARISON_FLAGS = ("rounds", "peer", "peer_timeout", "output", "once")  # of the other suites


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, name, default, text, *arguments, **options):
        suites = [suite for suite, names in SUITES.items() if name in names]
        text = f"{', '.join(suites)}: {text}" if suites else text
        getattr(flags, f"DEFINE_{kind}")(name, default, text, *arguments, flag_values=values, **options)

    define("string", "suite", None, f"What to measure: {', '.join(SUITES)}.", required=True)
    define("integer", "rounds", 3, "Number of times each program is run.", lower_bound=1)
    define("multi_string", "peer", [], "NAME=COMMAND of a program to compare with; repeat it for several.")
    define("float", "peer_timeout", 3600.0, "Seconds that a peer may take per round.", lower_bound=0.001)
    define("string", "output", None, "JSON file for the figures of every round; must not exist.")
    define("string", "once", None, "Run only this program of the suite, once, in this process.")
    define("integer", "repeats", 5, "Calls per round, whose median is taken.", lower_bound=1)
    define(
        "integer",
        "batch_size",
        None,
        f"Rows per batch (an eighth at 512 tokens: accelerator); default: {BATCH_SIZES}.",
        lower_bound=1,
    )
    define("string", "precision", "float32", "Dtype policy, float32 or mixed_bfloat16.")
    define("integer", "sequence_length", 128, "Tokens per row.", lower_bound=1)
    define("integer", "steps", 200, "Training steps that are measured.", lower_bound=1)
    for name, value in MINILM.items():
        define("integer", name, value, "Size of the encoder; the default is MiniLM's.", lower_bound=1)
    define("string", "size", "large", "Name of the encoder's size, tiny to large.")
    define("float", "attention_dropout", 0.1, "Dropout on attention probabilities; flash attention needs 0.")
    define("float", "peak_tflops", None, "Peak of the device in bfloat16, if it is not an A100, H100 or H200.")
    define("float", "seconds", 30.0, "How long to measure, without the start.", lower_bound=0.0)
    define("float", "rate", 10.0, "Requests per second.", lower_bound=0.001)
    define("string", "folder", None, "Folder for scale.json and the plots.")
    define("float", "max_gib", 12.0, "Points that would need more memory are skipped.", lower_bound=0.0)
    define("string", "data_dir", None, "Folder of train.tsv and dev.tsv.")
    define("string", "init_checkpoint", "all_minilm_l6_v2", "A checkpoint, or the name of a preset.")
    define("integer", "examples", 2000, "Training examples; 0 is all.", lower_bound=0)
    define("integer", "epochs", 2, "Epochs; the first one is not measured.", lower_bound=2)
    define("integer", "seed", 1, "Seed of the order of the examples, the new layer, and dropout.", lower_bound=0)
    define("string", "train_file", None, "SQuAD 1.1 file to train on.")
    define("string", "eval_file", None, "SQuAD file to answer.")
    define("integer", "questions", 500, "Questions to answer; 0 is all.", lower_bound=0)
    define("string", "vocabulary", None, "An uncased vocab.txt.")
    define("multi_string", "text", [], "Text files, or patterns.")
    define("integer", "lines", 51_200, "Maximum number of lines of text.", lower_bound=1)
    define("integer", "instances", 100_000, "Instances per figure.", lower_bound=1)


def check_flags(values):
    """Raises if a flag of another suite is given, or a file is missing; sets the default batch size."""
    suite = values.suite
    if suite not in SUITES:
        raise app.UsageError(f"--suite={suite} must be one of {', '.join(SUITES)}")
    all_names = {name for names in SUITES.values() for name in names} | {*_COMPARISON_FLAGS}
    used = {*SUITES[suite]} | ({*_COMPARISON_FLAGS} if suite not in _WITHOUT_COMPARISON else set())
    if unused := sorted(name for name in all_names - used if values[name].present):
        raise app.UsageError(f"--suite={suite} does not use --{', --'.join(unused)}")
    if values.batch_size is None:
        values.batch_size = BATCH_SIZES.get(suite)
    if suite == "scale" and not values.folder:
        raise app.UsageError("--suite=scale needs --folder")
    files = {
        "sst2": [Path(values.data_dir or "") / name for name in ("train.tsv", "dev.tsv")],
        "squad": [values.train_file, values.eval_file],
    }.get(suite, [])
    if "text" in SUITES[suite]:
        files = [values.vocabulary, *(values.text or [None])]
    for file in files:
        if file is None or not glob.glob(str(file)):
            needed = {"sst2": "--data_dir", "squad": "--train_file and --eval_file"}.get(
                suite, "--vocabulary and --text"
            )
            raise app.UsageError(f"--suite={suite} needs {needed}; there is no file {file}")


def parse_peers(peers):
    """Returns {name: command} from items of `NAME=COMMAND`."""
    programs = {}
    for peer in peers:
        name, _, command = peer.partition("=")
        if not name or not command or name in (OURS, *programs):
            raise app.UsageError(f'--peer={peer} is not NAME=COMMAND with a new name; e.g. --peer="theirs=python x.py"')
        programs[name] = shlex.split(command)
    return programs


def compare(programs, values):
    """Runs the programs round by round, prints the table, and writes the figures of every round."""
    from keras_bert.io.atomic_write import atomic_text_file

    finished, problem = [], None
    try:
        for found in run_rounds(programs, values.rounds, values.peer_timeout, lambda line: print(line, flush=True)):
            finished.append(found)
            if values.output:
                record = {"suite": values.suite, "programs": programs, "cores": os.cpu_count(), "rounds": finished}
                with atomic_text_file(values.output, overwrite=True) as file:
                    file.write(json.dumps(record, indent=2) + "\n")
    except ProgramError as error:
        problem = str(error)
    if finished:
        print(f"\n{comparison_table(finished, OURS)}\n{len(finished)} rounds on {os.cpu_count()} cores", flush=True)
    if problem:
        sys.exit(problem)


def main(argv):
    """Measures one program of the suite in this process, or runs all of them round by round."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    values = flags.FLAGS
    check_flags(values)
    if values.suite in _WITHOUT_COMPARISON:
        try:
            return _WITHOUT_COMPARISON[values.suite](values)
        except ProgramError as error:
            sys.exit(str(error))
    own = importlib.import_module(f"benchmarks.{values.suite}").PROGRAMS
    if values.once is not None:
        if values.once not in own:
            raise app.UsageError(f"--once={values.once}: the programs of the suite {values.suite} are {list(own)}")
        print(format_figures(values.once, *own[values.once](values)))
        return
    if values.output and Path(values.output).exists():
        raise app.UsageError(f"--output={values.output} exists; give another name")
    command = [sys.executable, "-m", "benchmarks", *sys.argv[1:]]
    programs = {name: [*command, f"--once={name}"] for name in own} | parse_peers(values.peer)
    compare(programs, values)


if __name__ == "__main__":
    define_flags()
    app.run(main)
