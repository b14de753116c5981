"""Writes what the layers of a BERT make of texts, for a model that is trained on features; google-research/bert's
extract_features.py for files of any size.

    python -m tools.extract_features --preset=all_minilm_l6_v2 --input=texts.txt --output=features.jsonl
    python -m tools.extract_features --checkpoint=uncased_L-12_H-768_A-12 --input=reviews.tsv --unit=text \\
        --layers=-1 --output=embeddings.parquet

Input: .txt with a text on every line, or a pair as `first text ||| second text`; or TSV (no quoting), CSV or JSON Lines
with named columns; UTF-8, also .gz. An empty text is a text, [CLS] [SEP]. A file without rows is an error.

Output: JSON Lines in the original's form, where `linex_index` is the number of the line, from 0; or Parquet with a row
for each piece, word or text, which `line`, from 1, says where it stands. Both are in the input's order. Only a few
thousand texts are in memory at a time. The file gets its name when it is complete.
"""

import os
import sys

from absl import app, flags, logging

from tools.output_file import check_output
from tools.predict import format_of

_INPUT_FORMATS = {".txt": "txt", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_OUTPUT_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_TEXT, _PAIR = ("text",), ("text_a", "text_b")
# Of google-research/bert, extract_features.py; of a text it is the last one that similarity is measured by.
_LAYERS_OF_TOKENS, _LAYERS_OF_TEXTS = (-1, -2, -3, -4), (-1,)
# By unit, the flags that say something of it alone.
_FLAGS_OF_UNIT = {"pieces": (), "words": ("pieces_of_word",), "text": ("pooling", "normalize")}
# What bounds the memory: the texts, characters and numbers that are in it at a time.
_MOST_TEXTS = 2048
_MOST_CHARACTERS = 2**21
_MOST_NUMBERS = 2**25


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("string", "checkpoint", None, "Folder or file of the model, for example runs/x/model.")
    define("string", "preset", None, "Name of a preset, instead.")
    flags.mark_flags_as_mutual_exclusive(["checkpoint", "preset"], required=True, flag_values=values)
    define("string", "input", None, "File of texts.", required=True)
    define("string", "output", None, "File of features.", required=True)
    define("enum", "input_format", None, sorted({*_INPUT_FORMATS.values()}), "Format of the input, if not by its name.")
    define("enum", "format", None, sorted({*_OUTPUT_FORMATS.values()}), "Format of the output, if not by its name.")
    define("string", "text_column", None, "Column of the texts; 'text' if no column is given.")
    define("string", "text_a_column", None, "Column of the first texts of pairs, with --text_b_column.")
    define("string", "text_b_column", None, "Column of the second texts of pairs.")
    define("enum", "unit", "pieces", ["pieces", "words", "text"], "What has features: a wordpiece, a word or a text.")
    define(
        "list",
        "layers",
        None,
        "Hidden states, with commas between them: -1 is the highest block's, 1 the lowest one's, 0 that of the "
        "embeddings. By default -1,-2,-3,-4, and for texts -1.",
    )
    define(
        "enum",
        "combine",
        "stack",
        ["stack", "concat", "sum", "mean"],
        "How several layers become one vector; stack: they stay apart. JSON Lines have them apart.",
    )
    define(
        "enum", "pieces_of_word", "first", ["first", "mean"], "--unit=words: of which pieces a word's vector is made."
    )
    define("enum", "pooling", "mean", ["mean", "cls", "max"], "--unit=text: how its pieces' vectors become one.")
    define("bool", "normalize", True, "--unit=text: whether a text's vector is given the length 1.")
    define("integer", "max_seq_length", 128, "Most pieces of a text, [CLS] and [SEP] included.", lower_bound=3)
    define("integer", "batch_size", 32, "Texts in a batch.", lower_bound=1)
    define("enum", "dtype", "float32", ["float32", "bfloat16"], "What is computed in.")
    define("enum", "vector_dtype", "float32", ["float32", "float16"], "What vectors are stored in, in Parquet.")
    define("bool", "skip_bad_rows", False, "Whether to count and pass over rows that cannot be used.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    define("enum", "progress", "auto", ["auto", "on", "off"], "Whether to draw a bar; auto: on a terminal.")


def choose_columns(values, input_format):
    """The columns that texts stand in.

    Args:
        values: the flags.
        input_format: str.

    Returns:
        list of one or two str; empty for "txt".

    Raises:
        ValueError: if the flags do not fit together, or a "txt" file is to have columns.
    """
    single, pair = values.text_column, [values.text_a_column, values.text_b_column]
    if input_format == "txt":
        if single is not None or any(pair):
            raise ValueError("a .txt file has no columns, its lines are the texts; leave out the flags of columns")
        return []
    if not any(pair):
        return [single or "text"]
    if single is not None or not all(pair) or pair[0] == pair[1]:
        raise ValueError("give either --text_column, or --text_a_column and --text_b_column, which are two columns")
    return pair


def check_unit(values):
    """Raises if a flag is given that says nothing of the unit."""
    for unit, names in _FLAGS_OF_UNIT.items():
        given = [name for name in names if values[name].present]
        if given and values.unit != unit:
            raise ValueError(
                f"--{given[0]} is for --unit={unit}, and has no effect with --unit={values.unit}; leave it out"
            )


def choose_layers(given, unit):
    """The layers that are read.

    Args:
        given: list of str, or None.
        unit: str.

    Returns:
        list of int.

    Raises:
        ValueError: if one is no number.
    """
    if given is None:
        return list(_LAYERS_OF_TEXTS if unit == "text" else _LAYERS_OF_TOKENS)
    try:
        return [int(layer) for layer in given]
    except ValueError:
        raise ValueError(f"--layers must be whole numbers with commas between them, got {','.join(given)!r}") from None


def read_model(values, layers):
    """The model that the flags name, as a `BertFeatureExtractor`."""
    from keras_bert.models.feature_extractor import BertFeatureExtractor

    read = BertFeatureExtractor.from_preset if values.preset else BertFeatureExtractor.from_checkpoint
    return read(
        values.preset or values.checkpoint,
        layers=layers,
        combine=values.combine,
        pooling=values.pooling,
        normalize=values.normalize,
        sequence_length=values.max_seq_length,
        dtype=values.dtype,
    )


def open_output(values, output_format, layers, hidden_size):
    """The context manager that gives the function which writes features; see `tools.feature_files`."""
    from tools.feature_files import open_json_lines, open_parquet

    if output_format == "jsonl":
        return open_json_lines(values.output, values.unit, layers)
    if values.combine == "stack":
        columns = {f"layer_{layer}": hidden_size for layer in layers}
    else:
        columns = {"vector": hidden_size * (len(layers) if values.combine == "concat" else 1)}
    names = ("unit", "combine", *_FLAGS_OF_UNIT[values.unit], "max_seq_length", "dtype")
    settings = {"model": values.preset or values.checkpoint, "layers": layers}
    settings |= {name: getattr(values, name) for name in names}
    return open_parquet(values.output, values.unit, columns, values.vector_dtype, settings, values.overwrite)


def extract_file(extractor, rows, write, unit, pieces_of_word, batch_size, done):
    """Writes the features of all texts, chunk by chunk.

    Args:
        extractor: a `BertFeatureExtractor`.
        rows: iterator of `tools.prediction_files.Row`, as `read_texts` gives.
        write: function of a list of line numbers and the features of as many texts.
        unit, pieces_of_word, batch_size: as the flags.
        done: function that is told the number of each chunk's last line.

    Returns:
        A pair of int: the texts, and how many of them were truncated.
    """
    from tools.prediction_files import read_chunk

    length = extractor.preprocessor.sequence_length
    numbers_of_text = length * len(extractor.layers_read) * extractor.encoder.hidden_size
    most_texts = _MOST_TEXTS if unit == "text" else min(_MOST_TEXTS, max(_MOST_NUMBERS // numbers_of_text, batch_size))
    texts = truncated = 0
    while chunk := read_chunk(rows, most_texts, _MOST_CHARACTERS):
        columns = zip(*(row.texts for row in chunk), strict=True)
        names = _PAIR if len(chunk[0].texts) == 2 else _TEXT
        columns = {name: list(column) for name, column in zip(names, columns, strict=True)}
        units = extractor.tokenize(columns, "words" if unit == "words" else "pieces")
        if unit == "text":
            features = extractor.embed(units.examples, batch_size)
        else:
            features = extractor.extract(units, pieces_of_word=pieces_of_word, batch_size=batch_size)
        write([row.line for row in chunk], features)
        texts += len(chunk)
        truncated += int((units.examples.token_counts > length).sum())
        done(chunk[-1].line)
    return texts, truncated


def check_paths(values):
    """Raises if the input is not there, or the output must not be written."""
    if not os.path.isfile(values.input):
        raise FileNotFoundError(f"--input={values.input} is {'a folder' if os.path.isdir(values.input) else 'no file'}")
    if os.path.exists(values.output) and os.path.samefile(values.input, values.output):
        raise ValueError(f"--input and --output are the same file, {values.output}; give --output another name")
    check_output(values.output, values.overwrite)


def run(values):
    """Checks the flags, reads the model, writes the features, and says on standard error what was written."""
    check_paths(values)
    input_format = format_of(values.input, values.input_format, _INPUT_FORMATS, "--input_format")
    output_format = format_of(values.output, values.format, _OUTPUT_FORMATS, "--format")
    if output_format == "parquet" and values.output.endswith(".gz"):
        raise ValueError(f"--output={values.output}: Parquet is compressed by itself; leave out .gz")
    if output_format == "jsonl" and (values.combine != "stack" or values.vector_dtype != "float32"):
        raise ValueError("JSON Lines have layers apart and six decimals; --combine and --vector_dtype are for Parquet")
    check_unit(values)
    columns = choose_columns(values, input_format)
    layers = choose_layers(values.layers, values.unit)

    from tqdm import tqdm

    from keras_bert.io.row_errors import BadRows, plural
    from tools.feature_files import import_pyarrow, read_texts
    from tools.prediction_files import count_lines

    if output_format == "parquet":
        import_pyarrow()
    extractor = read_model(values, layers)
    bad_rows = BadRows(skip=values.skip_bad_rows)
    rows = read_texts(values.input, input_format, columns, bad_rows)
    draws = {"auto": sys.stderr.isatty(), "on": True, "off": False}[values.progress]
    total = count_lines(values.input) if draws else None
    with (
        open_output(values, output_format, layers, extractor.encoder.hidden_size) as write,
        tqdm(total=total, unit=" lines", disable=not draws) as bar,
    ):
        texts, truncated = extract_file(
            extractor,
            rows,
            write,
            values.unit,
            values.pieces_of_word,
            values.batch_size,
            lambda line: bar.update(line - bar.n),
        )
    skipped = f"; {plural(bad_rows.count, 'bad row')} skipped" if bad_rows.count else ""
    long = f"; {truncated} of them truncated to {values.max_seq_length} pieces" if truncated else ""
    print(f"features of {plural(texts, 'text')} written to {values.output}{long}{skipped}", file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with files, flags or the model is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # without the list of all weights that were read
    try:
        run(flags.FLAGS)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.extract_features: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
