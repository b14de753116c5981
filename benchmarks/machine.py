"""The precision, oneDNN and threads that are fastest on this machine, for a training step and a forward pass.

TensorFlow reads oneDNN and threads from the environment when it starts, so each combination has a process of its own.
The processes live throughout and take turns; those that cannot win are soon left out.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.comparison import ProgramError, comparison_table, format_figures, parse_figures
from benchmarks.encoder import MINILM, make_forward_pass, make_inputs, make_training_step
from benchmarks.timing import median_seconds

PRECISIONS = ("float32", "mixed_bfloat16")
FIGURES = {"train ms": "training", "forward ms": "a forward pass"}
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_THREADS = "TF_NUM_INTRAOP_THREADS"
_HOPELESS = 2.0  # times the time of the fastest
_NOISE = 1.03  # differences below are not worth a setting
_MIN_ROUNDS, _FEW_ROUNDS = 3, 5
_TAIL_CHARACTERS = 2000


def list_environments(num_cores):
    """Returns the environment variables of the processes by name, simple ones first."""
    environments = {"oneDNN on": {_ONEDNN: "1"}, "oneDNN off": {_ONEDNN: "0"}}
    if num_cores > 1:  # half are the physical cores where each runs two threads
        half = num_cores // 2
        name = f"oneDNN on, {half} thread{'s' if half > 1 else ''}"
        environments[name] = {_ONEDNN: "1", _THREADS: str(half)}
    return environments


def measure(values):
    """Measures all settings in turn for `values.seconds`, and prints a table and the recommended settings."""
    environments = list_environments(os.cpu_count())
    sizes = {name: values[name].value for name in ("batch_size", "sequence_length", *MINILM)}
    print(f"starting {len(environments)} processes", flush=True)
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(name, sizes, added)) for name, added in environments.items()}
        for precision in PRECISIONS:  # builds and warms up all models, in all processes at once
            for worker in workers.values():
                worker.start_turn(precision)
            for worker in workers.values():
                worker.end_turn()
        print(f"measuring for {values.seconds:g} s", flush=True)
        rounds = list(take_turns(workers, values.seconds))
    print(
        f"{comparison_table(rounds, recommend(rounds, 'train ms'))}\n{len(rounds)} rounds on {os.cpu_count()} cores\n"
    )
    for figure, what in FIGURES.items():
        print(f"Recommended for {what}: {describe(recommend(rounds, figure), environments)}")
    if len(rounds) < _FEW_ROUNDS:
        print(f"Only {len(rounds)} rounds were measured, so this is uncertain; measure for longer with --seconds")


def take_turns(workers, seconds):
    """Yields {settings: figures} of each round; settings that were far slower in two rounds are then left out."""
    end = time.monotonic() + seconds
    candidates = [(precision, name) for precision in PRECISIONS for name in workers]
    least = {}  # time of a figure and settings in all rounds
    for number in itertools.count(1):
        found = {f"{precision}, {name}": {} for precision in PRECISIONS for name in workers}
        for precision, name in candidates:
            workers[name].start_turn(precision)
            found[f"{precision}, {name}"] = workers[name].end_turn()
            for figure, value in found[f"{precision}, {name}"].items():
                least[figure, precision, name] = min(value, least.get((figure, precision, name), value))
        yield found
        if number >= _MIN_ROUNDS and time.monotonic() > end:
            return
        if number > 1:
            best = {figure: min(value for key, value in least.items() if key[0] == figure) for figure in FIGURES}
            candidates = [
                (precision, name)
                for precision, name in candidates
                if any(least[figure, precision, name] < _HOPELESS * best[figure] for figure in FIGURES)
            ]


def recommend(rounds, figure):
    """Returns the first settings that are as fast as the best, round by round, of those that all rounds measured."""
    times = {name: [found[name][figure] for found in rounds] for name, last in rounds[-1].items() if last}
    best = min(times.values(), key=statistics.median)
    return next(
        name
        for name, values in times.items()
        if statistics.median(value / fastest for value, fastest in zip(values, best, strict=True)) <= _NOISE
    )


def describe(settings, environments):
    """Formats settings as the environment variables and the precision to set."""
    precision, _, name = settings.partition(", ")
    variables = " ".join(f"{variable}={value}" for variable, value in environments[name].items())
    return f"{variables} and {precision}"


class Worker:
    """A process with an environment of its own that measures a precision when it is its turn."""

    def __init__(self, name, sizes, environment):
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `__exit__`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.machine", json.dumps(sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.__exit__(None, None, None)  # closes its standard input, at which it ends
        self._errors.close()

    def start_turn(self, precision):
        """Asks for a measurement."""
        with contextlib.suppress(BrokenPipeError):  # `end_turn` reports why
            self._process.stdin.write(f"{precision}\n")
            self._process.stdin.flush()

    def end_turn(self):
        """Returns the figures; ProgramError if the process failed."""
        for line in self._process.stdout:
            if figures := parse_figures(line):
                return figures
        self._errors.seek(0)
        errors = self._errors.read().strip()[-_TAIL_CHARACTERS:]
        raise ProgramError(f"{self._name} failed with exit status {self._process.wait()}:\n{errors}")


def serve_turns(sizes):
    """Measures one training step and one forward pass for every precision that is read from standard input."""
    batch_size, sequence_length = sizes.pop("batch_size"), sizes.pop("sequence_length")
    ids, labels, arguments = make_inputs(batch_size, sequence_length, sizes)
    calls = {}
    for line in sys.stdin:
        precision, warm_ups = line.strip(), 0
        if precision not in calls:
            step = make_training_step(ids, labels, precision, arguments)
            calls[precision], warm_ups = (step, make_forward_pass(ids, precision, arguments)), 2
        seconds = [median_seconds(call, 1, warm_ups) for call in calls[precision]]
        print(format_figures(precision, dict(zip(FIGURES, [1e3 * each for each in seconds], strict=True))), flush=True)


if __name__ == "__main__":
    serve_turns(json.loads(sys.argv[1]))
