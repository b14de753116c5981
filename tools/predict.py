"""Runs an exported model on a file of any size. Only a few thousand rows are in memory at a time.

    python -m tools.predict --saved_model=runs/x/saved_model/1 --input=reviews.tsv --output=predictions.tsv

Input: TSV (no quoting), CSV, JSON Lines or Parquet with named columns, or .txt with one text per line; text is UTF-8,
optionally .gz. By default the text columns have the names of the model's inputs. A file without rows is an error.

Output: TSV, CSV, JSON Lines or Parquet with one row per input row, in the same order: `line` (the line on which the row
begins, or the number of the row in Parquet, from 1) and the predictions. Lists are written to JSON Lines and Parquet
only. The file appears under its name when it is complete.

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
--columns=prompt=start,choices=first+second those of an input with several texts per row, which in JSON Lines and
Parquet may also be a list in one column. An empty choice is ignored.

With --runner=direct, flink, spark or dataflow Apache Beam computes the same rows, here or on a cluster. --input may
then be a pattern of files, and --output is a folder of part files, one for each --chunk_size rows. Re-run the same
command to resume an interrupted run. With --skip_bad_rows the folder also has the skipped rows with the reasons.
Arguments after -- are pipeline options:

    python -m tools.predict ... --input='inbox/*.parquet' --output=labels.parquet --runner=direct --num_workers=4
    python -m tools.predict ... --runner=flink -- --flink_master=HOST:8081 --parallelism=64

Files in the formats of SQuAD, CoNLL and SWAG are for tasks.squad, tasks.tagging and tasks.swag with --mode=predict.
"""

import functools
import os
import sys
from pathlib import Path

from absl import app, flags, logging

from tools.program import flag_definer, run_program

_OUTPUT_FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_INPUT_FORMATS = {**_OUTPUT_FORMATS, ".txt": "txt"}
_RUNNERS = ["direct", "flink", "spark", "dataflow"]


def predict_file(signature, source, target, text_columns, keep_columns, bad_rows, batching, progress=False):
    """Writes the predictions for every row of a file."""
    from tqdm import tqdm

    from tools.parquet_tables import make_schema
    from tools.prediction_batches import predict_rows, predict_texts
    from tools.prediction_files import count_lines, open_table, read_rows

    names, schema = choose_predictions(signature, target[1]), None
    if target[1] == "parquet":
        schema = make_schema(*source, keep_columns, {name: signature.types[name] for name in names})
    predict = functools.partial(predict_texts, signature, names)
    num_written, has_bar = 0, sys.stderr.isatty() if progress is None else progress
    rows = read_rows(*source, text_columns, keep_columns, bad_rows)
    with (
        open_table(*target, ["line", *keep_columns, *names], schema) as write,
        tqdm(total=count_lines(*source) if has_bar else None, unit=" lines", disable=not has_bar) as bar,
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
    if file_format in ("jsonl", "parquet"):
        return [*signature.columns, *signature.lists]
    lists = " and ".join(signature.lists)
    if not signature.columns:
        raise ValueError(
            f"the model returns a list per row ({lists}), which TSV and CSV cannot hold; write a .jsonl or .parquet "
            "file, or give --output_format"
        )
    if lists:
        logging.warning("TSV and CSV cannot hold the lists of %s; write a .jsonl or .parquet file to get them", lists)
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
        if file_format not in ("jsonl", "parquet") and len(columns) == 1 and not isinstance(columns, str):
            raise ValueError(
                f"a row has several texts of {name}: give their columns joined by +, --columns={name}=first+second, or "
                "a .jsonl or .parquet file with lists of texts"
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
    check_saved_model(saved_model)
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


def check_saved_model(saved_model):
    """Raises unless there is a SavedModel in the folder."""
    if not os.path.isfile(os.path.join(saved_model, "saved_model.pb")):
        versions = sorted(str(path.parent) for path in Path(saved_model).glob("*/saved_model.pb"))
        advice = f"; did you mean one of {versions}?" if versions else ""
        raise FileNotFoundError(
            f"--saved_model={saved_model} is not the folder of a SavedModel: it has no saved_model.pb{advice}"
        )


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
    define("enum", "runner", None, _RUNNERS, "Apache Beam runner; Beam's options follow --.")
    define("integer", "num_workers", 1, "Number of processes of --runner=direct.", lower_bound=1)
    define("enum", "progress", "auto", ["auto", "on", "off"], "Show a progress bar; auto: on a terminal.")


def run(values, beam_options=()):
    """Checks the flags, loads the model, predicts, and reports the number of rows on standard error."""
    if values.runner:
        _check_pipeline_flags(values)
    elif values.num_workers > 1:
        raise ValueError("--num_workers applies to --runner=direct only; without a runner there are --threads")
    else:
        check_paths(values.saved_model, values.input, values.output, values.overwrite)
    input_format = infer_format(values.input, values.format, _INPUT_FORMATS, "--format")
    output_format = infer_format(values.output, values.output_format, _OUTPUT_FORMATS, "--output_format")
    if input_format == "txt" and values.keep_columns:
        raise ValueError("a .txt file has no columns; leave out --keep_columns")
    for flag, path, file_format in (("input", values.input, input_format), ("output", values.output, output_format)):
        if file_format == "parquet" and (path == "-" or path.endswith(".gz")):
            raise ValueError(f"--{flag}={path} cannot be Parquet, which is neither streamed nor compressed as a whole")

    from keras_bert.io.row_errors import BadRows, plural
    from tools.prediction_batches import Batching

    batching = Batching(values.chunk_size, values.batch_size, values.threads)
    if values.runner:
        num_written, num_skipped = _run_pipeline(values, input_format, output_format, batching, beam_options)
    else:
        from tools.serving_signature import ServingSignature

        signature, bad_rows = ServingSignature(values.saved_model), BadRows(skip=values.skip_bad_rows)
        num_written = predict_file(
            signature,
            ("/dev/stdin" if values.input == "-" else values.input, input_format),
            (values.output, output_format),
            choose_columns(signature.inputs, values.columns, input_format),
            values.keep_columns,
            bad_rows,
            batching,
            progress={"auto": None, "on": True, "off": False}[values.progress],
        )
        num_skipped = bad_rows.count
    skipped = f"; {plural(num_skipped, 'bad row')} skipped" if num_skipped else ""
    print(f"{plural(num_written, 'row')} written to {values.output}{skipped}", file=sys.stderr)


def _check_pipeline_flags(values):
    if "-" in (values.input, values.output):
        raise ValueError("a pipeline (--runner) reads files and writes a folder; - is not available")
    if values.overwrite:
        raise ValueError("--overwrite does not apply to the folder of a pipeline (--runner); remove it yourself")
    if "://" not in values.saved_model:
        check_saved_model(values.saved_model)


def _run_pipeline(values, input_format, output_format, batching, beam_options):
    """Predicts with Apache Beam; returns the numbers of rows written and skipped."""
    from keras_bert.io.remote_paths import matching_files
    from tools.prediction_pipeline import PredictionJob, load_signature, predict_files

    signature = load_signature(values.saved_model)
    job = PredictionJob(
        saved_model=values.saved_model,
        files=tuple(matching_files([values.input])),
        file_format=input_format,
        text_columns=tuple(choose_columns(signature.inputs, values.columns, input_format)),
        kept_columns=tuple(values.keep_columns),
        folder=values.output,
        output_format=output_format,
        predictions=tuple(choose_predictions(signature, output_format)),
        skip_bad_rows=values.skip_bad_rows,
        batching=batching,
    )
    return predict_files(job, values.runner, values.num_workers, beam_options)


def main(argv):
    """Runs the program; errors of files and flags are printed without a traceback."""
    values = flags.FLAGS
    if not values.runner:
        run_program("predict", run, argv, "files are given by flags")
        return
    errors = (OSError, ValueError, ImportError, RuntimeError)
    run_program("predict", functools.partial(run, beam_options=argv[1:]), argv[:1], "", errors)


if __name__ == "__main__":
    define_flags()
    app.run(main)
