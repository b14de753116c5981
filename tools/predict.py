"""Classifies a file of any size with an exported classifier; only a few thousand rows are in memory at a time.

    python -m tools.predict --saved_model=runs/x/saved_model/1 --input=reviews.tsv --output=predictions.tsv

Input: TSV (no quoting), CSV or JSON Lines with named columns, or .txt with a text on every line; UTF-8, also .gz. A
model of texts reads --text_column, a model of pairs --text_a_column and --text_b_column. A file without rows is an
error.

Output: TSV, CSV or JSON Lines with a row for each row of the input, in its order: `line` (where the row begins in the
input, from 1), `label` and `probability_<label>` for every label; for several labels at once also `labels`, those that
hold; for regression the values by their names. It gets its name when it is complete.
"""

import collections
import concurrent.futures
import os
import sys
from pathlib import Path

from absl import app, flags

_INPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "txt"}
_OUTPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_TEXT_INPUTS = ("text", "text_a", "text_b")
# What bounds the memory where a text is a book: a chunk or a batch ends with the row that reaches so many characters.
_CHARACTERS_IN_CHUNK = 2**24
_CHARACTERS_IN_BATCH = 2**20


def predict_rows(rows, predict, chunk_size, batch_size, threads):
    """Predictions for rows in their order, computed in batches of texts of about the same length.

    Rows are read in chunks, and each chunk is sorted by length, so that its batches hold little padding. The next chunk
    is read while one is computed; no more than two are in memory.

    Args:
        rows: iterator of `tools.prediction_files.Row`.
        predict: a function from a list of tuples of texts to a list with as many predictions.
        chunk_size: int. Rows in a chunk; up to `batch_size`, batches are as the file has them.
        batch_size: int. Rows in a batch.
        threads: int. Batches computed at the same time.

    Returns:
        Iterator of `(row, prediction)`.
    """
    from tools.prediction_files import read_chunk

    pool = concurrent.futures.ThreadPoolExecutor(threads)
    waiting = collections.deque()
    try:
        while chunk := read_chunk(rows, chunk_size, _CHARACTERS_IN_CHUNK):
            batches = _batches_by_length(chunk, batch_size)
            waiting.append(
                (chunk, batches, [pool.submit(predict, [chunk[i].texts for i in batch]) for batch in batches])
            )
            if len(waiting) == 2:
                yield from _in_order(*waiting.popleft())
        while waiting:
            yield from _in_order(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _batches_by_length(chunk, batch_size):
    """The places of a chunk's rows, in lists of places with texts of about the same length."""
    lengths = [sum(map(len, row.texts)) for row in chunk]
    batches, characters = [[]], 0
    for place in sorted(range(len(chunk)), key=lengths.__getitem__):
        if len(batches[-1]) == batch_size or characters >= _CHARACTERS_IN_BATCH:
            batches.append([])
            characters = 0
        batches[-1].append(place)
        characters += lengths[place]
    return batches


def _in_order(chunk, batches, futures):
    predictions = [None] * len(chunk)
    for batch, future in zip(batches, futures, strict=True):
        for place, prediction in zip(batch, future.result(), strict=True):
            predictions[place] = prediction
    return zip(chunk, predictions, strict=True)


def predict_file(signature, source, target, text_columns, keep_columns, bad_rows, progress, **sizes):
    """Writes the predictions for every row of a file.

    Args:
        signature: a `tools.serving_signature.ServingSignature`.
        source, target: pairs of path and format, as `read_rows` and `open_table` take them.
        text_columns: list of str. The columns for `signature.inputs`.
        keep_columns: list of str. Columns of the input to be copied to the output.
        bad_rows: a `BadRows`, told of rows that cannot be used.
        progress: bool, whether to draw a bar on standard error; None draws one on a terminal.
        **sizes: chunk_size, batch_size and threads, as for `predict_rows`.

    Returns:
        int, the rows written.
    """
    from tqdm import tqdm

    from tools.prediction_files import count_lines, open_table, read_rows

    def predict(rows):
        return signature(dict(zip(signature.inputs, zip(*rows, strict=True), strict=True)))

    written, draws = 0, sys.stderr.isatty() if progress is None else progress
    rows = read_rows(*source, text_columns, keep_columns, bad_rows)
    with (
        open_table(*target, ["line", *keep_columns, *signature.columns]) as write,
        tqdm(total=count_lines(source[0]) if draws else None, unit=" lines", disable=not draws) as bar,
    ):
        for row, prediction in predict_rows(rows, predict, **sizes):
            write([row.line, *row.kept, *prediction])
            written += 1
            bar.update(row.line - bar.n)
        if bar.total is not None:
            bar.update(bar.total - bar.n)
    return written


def choose_columns(inputs, given, file_format):
    """The columns of a file that a model's texts stand in.

    Args:
        inputs: tuple of str, the names of the model's texts.
        given: dict of input name to the column that the user gave for it, or None.
        file_format: str. In "txt" there are no columns.

    Returns:
        list of str, one for each input; what was not given has the input's own name.

    Raises:
        ValueError: if a column is given for a text that the model does not take, or the file has no columns for pairs.
    """
    wanted = [f"--{name}_column" for name in inputs]
    refused = [f"--{name}_column" for name, column in given.items() if column is not None and name not in inputs]
    takes = "pairs of texts" if len(inputs) > 1 else "single texts"
    if refused:
        raise ValueError(f"the model takes {takes}: give {' and '.join(wanted)}, not {' and '.join(refused)}")
    if file_format == "txt":
        if len(inputs) > 1:
            raise ValueError(f"the model takes {takes}, and a .txt file has one text a line; give a file with columns")
        if given[inputs[0]] is not None:
            raise ValueError(f"a .txt file has no columns, its lines are the texts; leave out {wanted[0]}")
    columns = [given[name] or name for name in inputs]
    if len(set(columns)) < len(columns):
        raise ValueError(f"{' and '.join(wanted)} must be different columns; got {columns}")
    return columns


def format_of(path, given, formats, flag):
    """The format of a file: the one given, or what the file's name says.

    Args:
        path: str, of which `.gz` may be the end; "-" says nothing.
        given: str or None.
        formats: dict of suffix to format.
        flag: str. The flag that gives it, for the message.

    Returns:
        str.

    Raises:
        ValueError: if there is no telling.
    """
    name = Path(path[: -len(".gz")] if path.endswith(".gz") else path)
    if given is None and name.suffix.lower() not in formats:
        raise ValueError(
            f"the format of {path} cannot be told by its name, which ends in none of {list(formats)} (with or without "
            f".gz after it); give {flag}"
        )
    return given or formats[name.suffix.lower()]


def check_paths(saved_model, source, target, overwrite):
    """Raises if the model or the input is not there, or the output must not be written.

    Args:
        saved_model: str. The folder of a SavedModel.
        source, target: str. Files, or "-".
        overwrite: bool. Whether an output that exists may be replaced.

    Raises:
        FileNotFoundError, FileExistsError, ValueError: with what to do.
    """
    if not os.path.isfile(os.path.join(saved_model, "saved_model.pb")):
        versions = [path.parent for path in Path(saved_model).glob("*/saved_model.pb")]
        advice = f"; perhaps one of these is meant: {sorted(map(str, versions))}" if versions else ""
        raise FileNotFoundError(
            f"--saved_model={saved_model} is not the folder of a SavedModel: it has no saved_model.pb{advice}"
        )
    if source != "-" and (not os.path.exists(source) or os.path.isdir(source)):
        raise FileNotFoundError(f"--input={source} is {'a folder' if os.path.isdir(source) else 'no file'}")
    if target == "-" or not os.path.lexists(target):
        return
    if os.path.exists(target) and not os.path.isfile(target):
        raise ValueError(f"--output={target} is there and no file; give the path of a file, or - for standard output")
    if source != "-" and os.path.exists(target) and os.path.samefile(source, target):
        raise ValueError(f"--input and --output are the same file, {target}; give --output another name")
    if not overwrite:
        raise FileExistsError(f"--output={target} exists; give another name, or --overwrite to replace it")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    input_formats, output_formats = sorted({*_INPUT_FORMATS.values()}), sorted({*_OUTPUT_FORMATS.values()})
    define("string", "saved_model", None, "Folder of the SavedModel, for example models/reviews/1.", required=True)
    define("string", "input", None, "File of texts; - is standard input, which needs --format.", required=True)
    define("string", "output", None, "File of predictions; - is standard output.", required=True)
    define("enum", "format", None, input_formats, "Format of the input, if not by its name.")
    define("enum", "output_format", None, output_formats, "Format of the output, if not by its name.")
    for name in _TEXT_INPUTS:
        define("string", f"{name}_column", None, f"Column of the model's input {name}; by default {name!r}.")
    define("list", "keep_columns", [], "Columns of the input to be copied to the output, with commas between them.")
    define("bool", "skip_bad_rows", False, "Whether to count and pass over rows that cannot be used.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    define("integer", "batch_size", 32, "Rows in a batch.", lower_bound=1)
    define("integer", "chunk_size", 2048, "Rows that are read, and sorted by length, at a time.", lower_bound=1)
    define("integer", "threads", 2, "Batches computed at the same time.", lower_bound=1)
    define("enum", "progress", "auto", ["auto", "on", "off"], "Whether to draw a bar; auto: on a terminal.")


def run(values):
    """Checks the flags, loads the model, predicts, and says on standard error what was written."""
    check_paths(values.saved_model, values.input, values.output, values.overwrite)
    input_format = format_of(values.input, values.format, _INPUT_FORMATS, "--format")
    output_format = format_of(values.output, values.output_format, _OUTPUT_FORMATS, "--output_format")
    if input_format == "txt" and values.keep_columns:
        raise ValueError("a .txt file has no columns; leave out --keep_columns")

    from keras_bert.data.bad_rows import BadRows, plural
    from tools.serving_signature import ServingSignature

    signature = ServingSignature(values.saved_model)
    given = {name: getattr(values, f"{name}_column") for name in _TEXT_INPUTS}
    bad_rows = BadRows(skip=values.skip_bad_rows)
    written = predict_file(
        signature,
        ("/dev/stdin" if values.input == "-" else values.input, input_format),
        (values.output, output_format),
        choose_columns(signature.inputs, given, input_format),
        values.keep_columns,
        bad_rows,
        progress={"auto": None, "on": True, "off": False}[values.progress],
        chunk_size=values.chunk_size,
        batch_size=values.batch_size,
        threads=values.threads,
    )
    skipped = f"; {plural(bad_rows.count, 'bad row')} skipped" if bad_rows.count else ""
    print(f"{plural(written, 'row')} written to {values.output}{skipped}", file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag")
    try:
        run(flags.FLAGS)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.predict: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
