"""Time and memory of training, serving and `predict` as their inputs grow, with fitted exponents; needs Linux.

Every point is measured in a process of its own and added to scale.json, so that re-running the same command resumes.
`memory` is the peak of the resident memory above that of the loaded model after its first call, on one short text.
"""

import concurrent.futures
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.comparison import format_figures, run_program
from benchmarks.encoder import MINILM, make_inputs, make_training_step
from benchmarks.timing import load_head, median_seconds

LENGTHS = (128, 256, 384, 512)
# The sizes are batch sizes for train and serve, rows for predict, processes for input.
SIZES = {
    "train": (1, 4, 16, 64, 256),
    "serve": (1, 4, 16, 64, 256),
    "predict": (1_000, 10_000, 100_000, 1_000_000),
    "input": (1, 2),
}
_SHORT = 8  # tokens
_SECONDS, _MAX_CALLS = 4.0, 15  # per point, after the first call
_INPUT_TEXTS = 9216
_WORD = "the"


def measure(values):
    """Measures the points that scale.json in `values.folder` lacks, prints tables, and draws the curves."""
    from keras_bert.io.atomic_write import atomic_text_file

    folder = Path(values.folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scale.json"
    figures = json.loads(file.read_text("utf-8")) if file.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        common = {"sizes": {name: values[name].value for name in MINILM}, "saved_model": f"{temporary}/model/1"}
        for kind, length, size in list_points():
            name = point_name(kind, length, size)
            if name in figures:
                continue
            if (expected := expected_memory(figures, kind, length, size)) > 1024 * values.max_gib:
                print(f"{name}: skipped, would need about {expected / 1024:.0f} GiB", flush=True)
                continue
            if kind == "serve" and not Path(common["saved_model"]).exists():
                _run_point("export", {"kind": "export", **common})
            line, figures[name] = _run_point(name, {"kind": kind, "length": length, "size": size, **common})
            print(line, flush=True)
            with atomic_text_file(file, overwrite=True) as output:
                output.write(json.dumps(figures, indent=1) + "\n")
    print(make_tables(figures))
    draw_curves(figures, folder)


def list_points():
    """Yields kind, length and size of every point, by increasing size."""
    for kind, sizes in SIZES.items():
        for length in LENGTHS if kind in ("train", "serve") else (None,):
            for size in sizes:
                yield kind, length, size


def point_name(kind, length, size):
    """Returns the name of a point in scale.json."""
    return f"{kind} {size}" if length is None else f"{kind} {size} x {length}"


def curve(figures, kind, length, figure):
    """Returns the sizes that were measured, and their figures."""
    sizes = [size for size in SIZES[kind] if point_name(kind, length, size) in figures]
    return sizes, [figures[point_name(kind, length, size)][figure] for size in sizes]


def expected_memory(figures, kind, length, size):
    """Extrapolates the MiB of a point from the next smaller size, in proportion; 0 without one."""
    sizes, memory = curve(figures, kind, length, "memory MiB") if kind != "input" else ([], [])
    smaller = [pair for pair in zip(sizes, memory, strict=True) if pair[0] < size]
    return smaller[-1][1] * size / smaller[-1][0] if smaller else 0.0


def fit_exponent(sizes, values):
    """Fits `values` = c * `sizes` ** exponent by least squares of the logarithms; returns the exponent."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _run_point(name, arguments):
    return run_program(name, [sys.executable, "-m", "benchmarks.scale", name, json.dumps(arguments)])


def measure_point(kind, sizes, saved_model, length=None, size=1):
    """Returns the figures of a point, measured in this process."""
    if kind == "input":
        return measure_input(size)
    if kind == "export":
        started = time.perf_counter()
        _export(sizes, saved_model)
        return {"time s": time.perf_counter() - started}
    if kind == "train":
        first_call = call = _training_step(size, length, sizes)
    elif kind == "serve":
        first_call, call = _served_requests(size, length, saved_model)
    else:
        first_call, call = _predictions(size)
    first_call()
    baseline = _reset_peak_memory()
    # The first training step or request takes memory from the system, which can double its time.
    seconds = median_seconds(call, 1, warm_ups=0 if kind == "predict" else 1)
    if repeats := min(int(_SECONDS / seconds), _MAX_CALLS):
        seconds = median_seconds(call, repeats, warm_ups=0)
    return {"time s": seconds, "memory MiB": max(status_mebibytes("VmHWM") - baseline, 0.1)}


def _training_step(size, length, sizes):
    ids, labels, arguments = make_inputs(size, length, sizes)
    short = make_inputs(1, _SHORT, sizes)[:2]
    return make_training_step(ids, labels, "float32", arguments, first_batch=short)


def _export(sizes, path):
    import keras_bert

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", _WORD]
    words += [f"[unused{number}]" for number in range(sizes["vocab_size"] - len(words))]
    preprocessor = keras_bert.BertPreprocessor(keras_bert.BertTokenizer(words, lower_case=True), max(LENGTHS))
    encoder = keras_bert.BertEncoder(**sizes, max_position_embeddings=max(LENGTHS), seed=1)
    keras_bert.BertClassifier(encoder, 2, preprocessor, seed=1).export(path)


def _served_requests(size, length, saved_model):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizer's operations

    serve = tf.saved_model.load(saved_model).signatures["serving_default"]

    def request(num_texts, num_tokens):
        texts = tf.constant([" ".join([_WORD] * (num_tokens - 2))] * num_texts)  # without [CLS] and [SEP]
        return lambda: serve(text=texts)["probabilities"].numpy()

    return request(1, _SHORT), request(size, length)


def _predictions(num_rows):
    import keras_bert

    preprocessor, texts = _preprocessor(), _texts(num_rows)
    # As small as possible, for a million rows in minutes.
    encoder = keras_bert.BertEncoder(preprocessor.tokenizer.vocab_size, 32, 1, 1, seed=1)
    classifier = keras_bert.BertClassifier(encoder, 2, preprocessor, seed=1)
    return lambda: classifier.predict(texts[:64], verbose=0), lambda: classifier.predict(texts, verbose=0)


def _preprocessor():
    from keras_bert import BertClassifier

    return load_head(BertClassifier, "bert_tiny_novels", labels=2).preprocessor


def _texts(number):
    from tools.support_messages import read_support_messages

    return list(itertools.islice(itertools.cycle(read_support_messages("train").texts), number))


def measure_input(num_processes):
    """Returns the tokens per second of tokenizing and of making batches, of processes with one core each."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(num_processes)
    cores = sorted(os.sched_getaffinity(0))[:num_processes]
    with concurrent.futures.ProcessPoolExecutor(num_processes, context, _set_barrier, (barrier,)) as pool:
        rates = list(pool.map(_measure_input_on_core, cores))
    return {figure: sum(rate[figure] for rate in rates) for figure in rates[0]}


def _set_barrier(barrier):
    _measure_input_on_core.barrier = barrier


def _measure_input_on_core(core):
    os.sched_setaffinity(0, {core})  # before TensorFlow counts the cores
    import tensorflow as tf

    from keras_bert.data.batching import BatchPlan, epoch_batches
    from keras_bert.data.tokenized_examples import tokenize_examples

    preprocessor, texts = _preprocessor(), _texts(_INPUT_TEXTS)
    examples = tokenize_examples(({"text": text} for text in texts), preprocessor)
    chunks = tf.data.Dataset.from_tensor_slices(texts).batch(512).cache()
    ids = chunks.map(lambda chunk: preprocessor.tokenizer.tokenize(chunk).values)
    batches = epoch_batches(examples, BatchPlan(examples.lengths, batch_size=32, seed=1), epoch=0)
    rates = {}
    for figure, dataset in {"tokenize tok/s": ids, "batches tok/s": batches}.items():
        rates[figure] = 0
        for warm_up in (True, False):
            _measure_input_on_core.barrier.wait()
            passes, started = 0, time.perf_counter()
            while time.perf_counter() < started + (0.5 if warm_up else _SECONDS):
                for _ in dataset:
                    pass
                passes += 1
            rates[figure] = passes * len(examples.token_ids) / (time.perf_counter() - started)
    return rates


def _reset_peak_memory():
    """Resets VmHWM to the current resident memory, and returns that."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_mebibytes("VmRSS")


def status_mebibytes(name, process="self"):
    """Returns a size, such as VmRSS, the resident memory, of this process or of the one with a number."""
    status = dict(line.split(":") for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    return int(status[name].split()[0]) / 1024


def make_tables(figures):
    """Formats time, memory and exponents as Markdown tables."""
    lines = []
    for kind, sizes in SIZES.items():
        names = ["tokenize tok/s", "batches tok/s"] if kind == "input" else ["time s", "memory MiB"]
        lines += [
            "",
            f"| {kind} | {' | '.join(f'{size:,}' for size in sizes)} | exponent |",
            f"|---{'|---' * (len(sizes) + 1)}|",
        ]
        for figure in names:
            for length in LENGTHS if kind in ("train", "serve") else (None,):
                done, values = curve(figures, kind, length, figure)
                cells = [f"{value:,.4g}" for value in values] + ["-"] * (len(sizes) - len(values))
                head = figure if length is None else f"{length} tokens, {figure}"
                lines.append(f"| {head} | {' | '.join(cells)} | {_exponents(done, values)} |")
            if kind in ("train", "serve"):
                cells = [_in_length(figures, kind, figure, size) for size in sizes]
                lines.append(f"| exponent in the length | {' | '.join(cells)} | |")
    return "\n".join(lines[1:])


def _in_length(figures, kind, figure, size):
    done = [length for length in LENGTHS if point_name(kind, length, size) in figures]
    return _exponents(done, [figures[point_name(kind, length, size)][figure] for length in done])


def _exponents(sizes, values):
    """Formats the exponent over all sizes, and in parentheses between the two largest."""
    if len(sizes) < 2:
        return "-"
    return f"{fit_exponent(sizes, values):.2f}" + (
        f" ({fit_exponent(sizes[-2:], values[-2:]):.2f})" if len(sizes) > 2 else ""
    )


def draw_curves(figures, folder):
    """Draws time and memory as SVG files; the same figures give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, ids do not depend on the process, and the files are small.
    style = {"svg.fonttype": "none", "svg.hashsalt": "keras_bert", "font.size": 9, "font.sans-serif": ["DejaVu Sans"]}
    style |= {"axes.spines.top": False, "axes.spines.right": False}
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context(style):
        for kind, label in {"train": "batch size", "serve": "batch size", "predict": "rows"}.items():
            drawing = Figure(figsize=(7.2, 2.8), layout="constrained")
            panels = drawing.subplots(1, 2)
            for axes, figure in zip(panels, ("time s", "memory MiB"), strict=True):
                for length in LENGTHS if kind != "predict" else (None,):
                    sizes, values = curve(figures, kind, length, figure)
                    name = _exponents(sizes, values).split()[0]
                    name = f"exponent {name}" if length is None else f"{length} tokens: {name}"
                    axes.plot(sizes, values, marker="s", markersize=3, linewidth=1, label=name, clip_on=False)
                axes.set(xscale="log", yscale="log", xlabel=label, ylabel=figure.replace(" ", " (") + ")")
                axes.set_xticks(SIZES[kind], [f"{size:,}" for size in SIZES[kind]])
                axes.yaxis.set_major_formatter("{x:,g}")
                decades = np.log10(axes.get_ylim())
                axes.set_ylim(10 ** np.floor(decades[0]), 10 ** np.ceil(decades[1]))
                axes.minorticks_off()
                axes.tick_params(left=False, bottom=False)
                axes.legend(fontsize=8, frameon=False, loc="upper left")
            drawing.savefig(Path(folder) / f"{kind}.svg", format="svg", metadata=no_metadata)


if __name__ == "__main__":
    print(format_figures(sys.argv[1], measure_point(**json.loads(sys.argv[2]))))
