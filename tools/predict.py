"""Answers a file of any size with an exported model; only a few thousand rows are in memory at a time.

    python -m tools.predict --saved_model=runs/x/saved_model/1 --input=reviews.tsv --output=predictions.tsv

Input: TSV (no quoting), CSV or JSON Lines with named columns, or .txt with a text on every line; UTF-8, also .gz. The
columns of the texts bear the names of the model's inputs, unless --columns gives others. A file without rows is an
error.

Output: TSV, CSV or JSON Lines with a row for each row of the input, in its order: `line` (where the row begins in the
input, from 1) and the answers. Those that are lists are in JSON Lines only. It gets its name when it is complete.

    model              inputs                       columns                                 lists
    classifier         text, or text_a and text_b   label, probability_<label>; and labels,
                                                    if several may hold
    regression         text, or text_a and text_b   the values by their names
    span labeler       question, context            answer, score, start, end, null_score   n_best
    multiple choice    prompt, choices              choice (its number from 0), text        probabilities
    token classifier   text                                                                 words, entities
    pretrainer         text, with [MASK] in it                                              masks
    feature extractor  text, or text_a and text_b                                           embedding

`start` and `end` are characters of the context or text. The answers of other models bear the names of their outputs.

--columns=message says where the text stands, --columns=question=frage,context=text where several do, and
--columns=prompt=start,choices=first+second where a row has several texts of one input; in JSON Lines these may also be
a list in one column. An empty choice is none.

SQuAD's own files are answered by tasks.squad, CoNLL's by tasks.tagging, SWAG's by tasks.swag, with --mode=predict.
"""

import collections
import concurrent.futures
import os
import sys
from pathlib import Path

from absl import app, flags, logging

_INPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "txt"}
_OUTPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# What bounds the memory where a text is a book: a chunk ends with the row that reaches so many characters, a batch
# before the row that would exceed them, each row counted as long as the longest. Some models read all of a batch at
# once, in windows: two threads took 4 GiB with windows of 384 and 12 heads, and 7 GiB with twice the characters.
_CHARACTERS_IN_CHUNK = 2**22
_CHARACTERS_IN_BATCH = 2**16


def predict_rows(rows, predict, chunk_size, batch_size, threads):
    """Predictions for rows in their order, computed in batches of texts of about the same length.

    Rows are read in chunks, and each chunk is sorted by length, so that its batches hold little padding. The next chunk
    is read while one is computed; no more than two are in memory.

    Args:
        rows: iterator of `tools.prediction_files.Row`.
        predict: a function from a list of the texts of rows to a list with as many predictions.
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
    sizes = [_size(row.texts) for row in chunk]
    batches, longest = [[]], 0
    for place in sorted(range(len(chunk)), key=sizes.__getitem__):
        number, length = sizes[place]
        longest, rows = max(longest, length), len(batches[-1])
        if rows == batch_size or (rows and (rows + 1) * number * longest > _CHARACTERS_IN_BATCH):
            batches.append([])
            longest = length
        batches[-1].append(place)
    return batches


def _size(texts):
    """How many sequences the texts of a row make, and how many characters the longest has."""
    of_inputs = [[text] if isinstance(text, str) else text for text in texts]
    return max(map(len, of_inputs)), sum(max(map(len, of_input)) for of_input in of_inputs)


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
        text_columns: list of str or tuples of str. The columns for `signature.inputs`, as `read_rows` takes them.
        keep_columns: list of str. Columns of the input to be copied to the output.
        bad_rows: a `BadRows`, told of rows that cannot be used.
        progress: bool, whether to draw a bar on standard error; None draws one on a terminal.
        **sizes: chunk_size, batch_size and threads, as for `predict_rows`.

    Returns:
        int, the rows written.

    Raises:
        ValueError: if a table can hold none of the answers.
    """
    from tqdm import tqdm

    from tools.prediction_files import count_lines, open_table, read_rows

    answers = choose_answers(signature, target[1])

    def predict(rows):
        return signature(dict(zip(signature.inputs, zip(*rows, strict=True), strict=True)), answers)

    written, draws = 0, sys.stderr.isatty() if progress is None else progress
    rows = read_rows(*source, text_columns, keep_columns, bad_rows)
    with (
        open_table(*target, ["line", *keep_columns, *answers]) as write,
        tqdm(total=count_lines(source[0]) if draws else None, unit=" lines", disable=not draws) as bar,
    ):
        for row, prediction in predict_rows(rows, predict, **sizes):
            write([row.line, *row.kept, *prediction])
            written += 1
            bar.update(row.line - bar.n)
        if bar.total is not None:
            bar.update(bar.total - bar.n)
    return written


def choose_answers(signature, file_format):
    """The answers that a file can hold; the log names those that it cannot.

    Args:
        signature: a `tools.serving_signature.ServingSignature`.
        file_format: str, "tsv", "csv" or "jsonl".

    Returns:
        list of str, of `signature.columns` and `signature.lists`.

    Raises:
        ValueError: if there is none.
    """
    if file_format == "jsonl":
        return [*signature.columns, *signature.lists]
    lists = " and ".join(signature.lists)
    if not signature.columns:
        raise ValueError(
            f"the model answers lists for each row ({lists}), which TSV and CSV cannot hold; write a .jsonl file, or "
            "give --output_format=jsonl"
        )
    if lists:
        logging.warning("TSV and CSV cannot hold the lists of %s; a .jsonl file has them, too", lists)
    return signature.columns


def choose_columns(inputs, given, file_format):
    """The columns of a file that a model's texts stand in.

    Args:
        inputs: dict of str to bool, the names of the model's texts, and whether a row has several of each.
        given: list of str, as --columns has them: `input=column`, or only the column where there is one input; columns
            of several texts have + between them.
        file_format: str. In "txt" there are no columns.

    Returns:
        list with a str for each input, or a tuple of str for one of several texts, as `read_rows` takes them. What was
        not given has the input's own name.

    Raises:
        ValueError: if what is given does not fit the model or the file.
    """
    if file_format == "txt":
        if list(inputs.values()) != [False]:
            takes = " and ".join(inputs)
            raise ValueError(f"the model takes {takes}, and a .txt file has one text a line; give a file with columns")
        if given:
            raise ValueError("a .txt file has no columns, its lines are the texts; leave out --columns")
    chosen = {name: (name,) if several else name for name, several in inputs.items()} | _parse_columns(inputs, given)
    for name, columns in chosen.items():
        if file_format != "jsonl" and len(columns) == 1 and not isinstance(columns, str):
            raise ValueError(
                f"a row has several texts of {name}: give their columns with + between them, --columns="
                f"{name}=first+second, or a .jsonl file with lists of them"
            )
    flat = [column for columns in chosen.values() for column in ([columns] if isinstance(columns, str) else columns)]
    if len({*flat}) < len(flat) or "" in flat:
        raise ValueError(f"the texts must stand in different columns, each with a name; got {flat}")
    return list(chosen.values())


def _parse_columns(inputs, given):
    """What --columns says, by the names of the inputs."""
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
    define("list", "columns", [], "Columns of the model's texts, input=column with commas between them; or one column.")
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

    from keras_bert.io.row_errors import BadRows, plural
    from tools.serving_signature import ServingSignature

    signature = ServingSignature(values.saved_model)
    bad_rows = BadRows(skip=values.skip_bad_rows)
    written = predict_file(
        signature,
        ("/dev/stdin" if values.input == "-" else values.input, input_format),
        (values.output, output_format),
        choose_columns(signature.inputs, values.columns, input_format),
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
