"""Runs an exported model on a file of any size. Only a few thousand rows are in memory at a time.

    python -m tools.predict --saved_model=runs/x/saved_model/1 --input=reviews.tsv --output=predictions.tsv

Input: TSV (no quoting), CSV or JSON Lines with named columns, or .txt with one text per line; UTF-8, optionally .gz. By
default the text columns have the names of the model's inputs. A file without rows is an error.

Output: TSV, CSV or JSON Lines with one row per input row, in the same order: `line` (the line on which the row begins,
from 1) and the predictions. Lists are written to JSON Lines only. The file appears under its name when it is complete.

    model              inputs                       columns                                 lists
    classifier         text, or text_a and text_b   label, probability_<label>; and labels
                                                    for multi-label classification
    regression         text, or text_a and text_b   the values by name
    span labeler       question, context            answer, score, start, end, null_score   n_best
    multiple choice    prompt, choices              choice (its index), text                probabilities
    token classifier   text                                                                 words, entities
    pretrainer         text, with [MASK] in it                                              masks
    feature extractor  text, or text_a and text_b                                           embedding

`start` and `end` are character offsets into the context or text. A model that reads long texts in windows adds the
columns `num_windows`, how many it read, and `truncated`, whether the text has more. Predictions of other models have
the names of their outputs.

--columns=message names the column of the text, --columns=question=frage,context=text those of several inputs, and
--columns=prompt=start,choices=first+second those of an input with several texts per row, which in JSON Lines may also
be a list in one column. An empty choice is ignored.

Files in the formats of SQuAD, CoNLL and SWAG are for tasks.squad, tasks.tagging and tasks.swag with --mode=predict.
"""

import collections
import concurrent.futures
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from absl import app, flags, logging

from tools.program import flag_definer, run_program

_INPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "txt"}
_OUTPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# Bounds on the memory where a text is a book: a chunk ends with the row that reaches so many characters, a batch before
# the row that would exceed them, with every row counted as long as the longest. Some models read a whole batch at once,
# in windows: two threads took 4 GiB with windows of 384 tokens and 12 heads.
_MAX_CHUNK_CHARACTERS = 2**22
_MAX_BATCH_CHARACTERS = 2**16


@dataclass(frozen=True)
class Batching:
    """Rows that are read and sorted by length at a time, rows per batch, and batches computed at the same time."""

    chunk_size: int
    batch_size: int
    num_threads: int


def predict_rows(rows, predict, batching):
    """Predicts for rows in order, computing batches of texts of similar length.

    The next chunk is read while one is computed; at most two are in memory.
    """
    from tools.prediction_files import read_chunk

    pool = concurrent.futures.ThreadPoolExecutor(batching.num_threads)
    waiting = collections.deque()
    try:
        while chunk := read_chunk(rows, batching.chunk_size, _MAX_CHUNK_CHARACTERS):
            batches = _make_batches(chunk, batching.batch_size)
            futures = [pool.submit(predict, [chunk[i].texts for i in batch]) for batch in batches]
            waiting.append((chunk, batches, futures))
            if len(waiting) == 2:
                yield from _restore_order(*waiting.popleft())
        while waiting:
            yield from _restore_order(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _make_batches(chunk, batch_size):
    """Groups the indices of a chunk's rows into batches of similar length."""
    sizes = [_measure(row.texts) for row in chunk]
    batches, longest = [[]], 0
    for index in sorted(range(len(chunk)), key=sizes.__getitem__):
        num_sequences, length = sizes[index]
        longest, num_rows = max(longest, length), len(batches[-1])
        is_full = num_rows and (num_rows + 1) * num_sequences * longest > _MAX_BATCH_CHARACTERS
        if num_rows == batch_size or is_full:
            batches.append([])
            longest = length
        batches[-1].append(index)
    return batches


def _measure(texts):
    """Returns the number of sequences of a row, and the number of characters of the longest."""
    inputs = [[text] if isinstance(text, str) else text for text in texts]
    return max(map(len, inputs)), sum(max(map(len, texts)) for texts in inputs)


def _restore_order(chunk, batches, futures):
    predictions = [None] * len(chunk)
    for batch, future in zip(batches, futures, strict=True):
        for index, prediction in zip(batch, future.result(), strict=True):
            predictions[index] = prediction
    return zip(chunk, predictions, strict=True)


def predict_file(signature, source, target, text_columns, keep_columns, bad_rows, batching, progress=False):
    """Writes the predictions for every row of a file."""
    from tqdm import tqdm

    from tools.prediction_files import count_lines, open_table, read_rows

    names = choose_predictions(signature, target[1])

    def predict(rows):
        return signature(dict(zip(signature.inputs, zip(*rows, strict=True), strict=True)), names)

    num_written, has_bar = 0, sys.stderr.isatty() if progress is None else progress
    rows = read_rows(*source, text_columns, keep_columns, bad_rows)
    with (
        open_table(*target, ["line", *keep_columns, *names]) as write,
        tqdm(total=count_lines(source[0]) if has_bar else None, unit=" lines", disable=not has_bar) as bar,
    ):
        for row, prediction in predict_rows(rows, predict, batching):
            write([row.line, *row.kept, *prediction])
            num_written += 1
            bar.update(row.line - bar.n)
        if bar.total is not None:
            bar.update(bar.total - bar.n)
    return num_written


def choose_predictions(signature, file_format):
    """Returns the names of the predictions that a file format can hold; logs those that it cannot."""
    if file_format == "jsonl":
        return [*signature.columns, *signature.lists]
    lists = " and ".join(signature.lists)
    if not signature.columns:
        raise ValueError(
            f"the model returns a list per row ({lists}), which TSV and CSV cannot hold; write a .jsonl file, or give "
            "--output_format=jsonl"
        )
    if lists:
        logging.warning("TSV and CSV cannot hold the lists of %s; write a .jsonl file to get them", lists)
    return signature.columns


def choose_columns(inputs, given, file_format):
    """Chooses the file columns that hold a model's texts."""
    if file_format == "txt":
        if list(inputs.values()) != [False]:
            names = " and ".join(inputs)
            raise ValueError(
                f"the model takes {names}, but a .txt file has one text per line; give a file with columns"
            )
        if given:
            raise ValueError("a .txt file has no columns, its lines are the texts; leave out --columns")
    chosen = {name: (name,) if has_several else name for name, has_several in inputs.items()}
    chosen |= _parse_columns(inputs, given)
    for name, columns in chosen.items():
        if file_format != "jsonl" and len(columns) == 1 and not isinstance(columns, str):
            raise ValueError(
                f"a row has several texts of {name}: give their columns joined by +, --columns={name}=first+second, or "
                "a .jsonl file with lists of texts"
            )
    flat = [column for columns in chosen.values() for column in ([columns] if isinstance(columns, str) else columns)]
    if len({*flat}) < len(flat) or "" in flat:
        raise ValueError(f"--columns must name different columns; got {flat}")
    return list(chosen.values())


def _parse_columns(inputs, given):
    """Parses the items of --columns into {input name: column or tuple of columns}."""
    columns = {}
    for item in given:
        if len(inputs) == 1 and "=" not in item:
            item = f"{next(iter(inputs))}={item}"
        name, equals, column = item.partition("=")
        if not equals or name not in inputs or name in columns:
            wanted = ",".join(f"{name}=..." for name in inputs)
            raise ValueError(
                f"the model takes {' and '.join(inputs)}: give --columns={wanted}; got {','.join(given)!r}"
            )
        columns[name] = tuple(column.split("+")) if inputs[name] else column
    return columns


def infer_format(path, given, formats, flag):
    """Returns the format of a file: `given`, or that of its suffix in `formats`, which `.gz` may follow."""
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if given is None and suffix not in formats:
        raise ValueError(
            f"cannot tell the format of {path} from its name, which ends in none of {list(formats)} (optionally "
            f"followed by .gz); give {flag}"
        )
    return given or formats[suffix]


def check_paths(saved_model, source, target, overwrite):
    """Checks that the model and the input exist and that the output may be written; "-" is a standard stream."""
    if not os.path.isfile(os.path.join(saved_model, "saved_model.pb")):
        versions = sorted(str(path.parent) for path in Path(saved_model).glob("*/saved_model.pb"))
        advice = f"; did you mean one of {versions}?" if versions else ""
        raise FileNotFoundError(
            f"--saved_model={saved_model} is not the folder of a SavedModel: it has no saved_model.pb{advice}"
        )
    if source != "-" and (not os.path.exists(source) or os.path.isdir(source)):
        raise FileNotFoundError(f"--input={source} {'is a folder' if os.path.isdir(source) else 'does not exist'}")
    if target == "-" or not os.path.lexists(target):
        return
    if os.path.exists(target) and not os.path.isfile(target):
        raise ValueError(f"--output={target} is not a regular file; give the path of a file, or - for standard output")
    if source != "-" and os.path.exists(target) and os.path.samefile(source, target):
        raise ValueError(f"--input and --output are the same file, {target}; give --output another name")
    if not overwrite:
        raise FileExistsError(f"--output={target} exists; give another name, or --overwrite to replace it")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    input_formats, output_formats = sorted({*_INPUT_FORMATS.values()}), sorted({*_OUTPUT_FORMATS.values()})
    define("string", "saved_model", None, "Folder of the SavedModel, for example models/reviews/1.", required=True)
    define("string", "input", None, "File of texts; - is standard input, which needs --format.", required=True)
    define("string", "output", None, "File of predictions; - is standard output.", required=True)
    define("enum", "format", None, input_formats, "Format of the input; default: inferred from its name.")
    define("enum", "output_format", None, output_formats, "Format of the output; default: inferred from its name.")
    define("list", "columns", [], "Comma-separated columns of the model's texts, as input=column; or one column.")
    define("list", "keep_columns", [], "Comma-separated columns of the input to copy to the output.")
    define("bool", "skip_bad_rows", False, "Skip and count invalid rows instead of failing.")
    define("bool", "overwrite", False, "Replace an existing output.")
    define("integer", "batch_size", 32, "Rows per batch.", lower_bound=1)
    define("integer", "chunk_size", 2048, "Rows read and sorted by length at a time.", lower_bound=1)
    define("integer", "threads", 2, "Batches computed at the same time.", lower_bound=1)
    define("enum", "progress", "auto", ["auto", "on", "off"], "Show a progress bar; auto: on a terminal.")


def run(values):
    """Checks the flags, loads the model, predicts, and reports the number of rows on standard error."""
    check_paths(values.saved_model, values.input, values.output, values.overwrite)
    input_format = infer_format(values.input, values.format, _INPUT_FORMATS, "--format")
    output_format = infer_format(values.output, values.output_format, _OUTPUT_FORMATS, "--output_format")
    if input_format == "txt" and values.keep_columns:
        raise ValueError("a .txt file has no columns; leave out --keep_columns")

    from keras_bert.io.row_errors import BadRows, plural
    from tools.serving_signature import ServingSignature

    signature = ServingSignature(values.saved_model)
    bad_rows = BadRows(skip=values.skip_bad_rows)
    num_written = predict_file(
        signature,
        ("/dev/stdin" if values.input == "-" else values.input, input_format),
        (values.output, output_format),
        choose_columns(signature.inputs, values.columns, input_format),
        values.keep_columns,
        bad_rows,
        Batching(values.chunk_size, values.batch_size, values.threads),
        progress={"auto": None, "on": True, "off": False}[values.progress],
    )
    skipped = f"; {plural(bad_rows.count, 'bad row')} skipped" if bad_rows.count else ""
    print(f"{plural(num_written, 'row')} written to {values.output}{skipped}", file=sys.stderr)


def main(argv):
    """Runs the program; errors of files and flags are printed without a traceback."""
    run_program("predict", run, argv, "files are given by flags")


if __name__ == "__main__":
    define_flags()
    app.run(main)
