"""Extracts features: vectors of texts, words or wordpieces from the hidden layers of a BERT, for files of any size.

    python -m tools.extract_features --preset=all_minilm_l6_v2 --input=texts.txt --output=features.jsonl
    python -m tools.extract_features --preset=all_minilm_l6_v2 --input=reviews.tsv --unit=text --output=vectors.parquet

Input: .txt with one text per line, or a pair as `first text ||| second text`; or TSV (no quoting), CSV or JSON Lines
with named columns; UTF-8, optionally .gz. An empty text is encoded as [CLS] [SEP]. A file without rows is an error.

Output, in the order of the input: JSON Lines in the format of google-research/bert's extract_features.py, where
`linex_index` is the line number from 0; or Parquet with one row per wordpiece, word or text, where `line` is the line
number from 1. Only a few thousand texts are in memory at a time. The file appears under its name when it is complete.
"""

import os
import sys

from absl import app, flags

from tools.output_file import check_output
from tools.predict import infer_format
from tools.program import flag_definer, hide_info_logs, run_program

_INPUT_FORMATS = {".txt": "txt", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_OUTPUT_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_TEXT, _PAIR = ("text",), ("text_a", "text_b")
_LAYERS = (-1, -2, -3, -4)  # google-research/bert, extract_features.py
# The flags that only some of the units have.
_UNIT_FLAGS = {
    "wordpieces": ("layers", "combine"),
    "words": ("layers", "combine", "word_pooling"),
    "text": ("pooling", "normalize"),
}
# Bounds on the memory: texts, characters and numbers that are held at a time.
_MAX_TEXTS = 2048
_MAX_CHARACTERS = 2**21
_MAX_NUMBERS = 2**25


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "checkpoint", None, "Folder or file of the model, for example runs/x/model.")
    define("string", "preset", None, "Name of a preset, instead of --checkpoint.")
    flags.mark_flags_as_mutual_exclusive(["checkpoint", "preset"], required=True, flag_values=values)
    define("string", "input", None, "File of texts.", required=True)
    define("string", "output", None, "File of features.", required=True)
    define("enum", "input_format", None, sorted({*_INPUT_FORMATS.values()}), "Input format; default: from its name.")
    define("enum", "format", None, sorted({*_OUTPUT_FORMATS.values()}), "Output format; default: from its name.")
    define("string", "text_column", None, "Column of the texts; by default 'text'.")
    define("string", "text_a_column", None, "Column of the first texts of pairs, with --text_b_column.")
    define("string", "text_b_column", None, "Column of the second texts of pairs.")
    define("enum", "unit", "wordpieces", list(_UNIT_FLAGS), "What to extract features of.")
    define(
        "list",
        "layers",
        None,
        "Comma-separated hidden states: -1 is the output of the last layer, 1 that of the first, 0 the embeddings. "
        "Default: -1,-2,-3,-4. The vectors of --unit=text are those of the last layer.",
    )
    define(
        "enum",
        "combine",
        "stack",
        ["stack", "concat", "sum", "mean"],
        "How to combine several layers into one vector; stack keeps them separate, as JSON Lines always does.",
    )
    define("enum", "word_pooling", "first", ["first", "mean"], "--unit=words: first wordpiece, or mean of all.")
    own = "Default: that of a sentence-transformers folder, otherwise"
    define(
        "enum",
        "pooling",
        None,
        ["mean", "cls", "max", "weighted"],
        f"--unit=text: pooling over the tokens. {own} mean.",
    )
    define("bool", "normalize", None, f"--unit=text: scale each vector to length 1. {own} true.")
    define("integer", "max_seq_length", None, f"Maximum sequence length in tokens. {own} 128.", lower_bound=3)
    define("integer", "batch_size", 32, "Texts per batch.", lower_bound=1)
    define("enum", "dtype", "float32", ["float32", "bfloat16"], "Type of the computation.")
    define("enum", "vector_dtype", "float32", ["float32", "float16"], "Type of the vectors in Parquet.")
    define("bool", "skip_bad_rows", False, "Skip and count invalid rows instead of failing.")
    define("bool", "overwrite", False, "Replace an existing output.")
    define("enum", "progress", "auto", ["auto", "on", "off"], "Show a progress bar; auto: on a terminal.")


def choose_columns(values, input_format):
    """Returns the one or two columns of the texts; none for "txt"."""
    single, pair = values.text_column, [values.text_a_column, values.text_b_column]
    if input_format == "txt":
        if single is not None or any(pair):
            raise ValueError("a .txt file has no columns, its lines are the texts; leave out the column flags")
        return []
    if not any(pair):
        return [single or "text"]
    if single is not None or not all(pair) or pair[0] == pair[1]:
        raise ValueError("give either --text_column, or --text_a_column and --text_b_column, which must differ")
    return pair


def check_unit(values):
    """Raises if a flag is given that has no effect on the chosen unit."""
    for name in {name: None for names in _UNIT_FLAGS.values() for name in names}:
        units = [unit for unit, names in _UNIT_FLAGS.items() if name in names]
        if values[name].present and values.unit not in units:
            raise ValueError(
                f"--{name} is for --unit={' or '.join(units)} and has no effect with --unit={values.unit}; leave it out"
            )


def choose_layers(given, unit):
    """Returns the layers to read, from the items of --layers or None."""
    if given is None:
        return [-1] if unit == "text" else list(_LAYERS)
    try:
        return [int(layer) for layer in given]
    except ValueError:
        raise ValueError(f"--layers must be comma-separated integers, got {','.join(given)!r}") from None


def load_model(values, layers):
    """Loads the model that the flags name: a `BertTextEmbedder` for texts, otherwise a `BertFeatureExtractor`."""
    from keras_bert.models.feature_extractor import BertFeatureExtractor
    from keras_bert.models.text_embedder import BertTextEmbedder

    kind, arguments = BertFeatureExtractor, {"layers": layers, "combine": values.combine}
    if values.unit == "text":
        kind, arguments = BertTextEmbedder, {"pooling": values.pooling, "normalize": values.normalize}
    arguments |= {"sequence_length": values.max_seq_length, "dtype": values.dtype}
    load = kind.from_preset if values.preset else kind.from_checkpoint
    return load(
        values.preset or values.checkpoint,
        **{name: value for name, value in arguments.items() if value is not None},
    )


def open_features(values, output_format, layers, model):
    """Opens the output; see `tools.feature_files`."""
    from tools.feature_files import open_json_lines, open_parquet

    if output_format == "jsonl":
        return open_json_lines(values.output, values.unit, layers)
    if values.unit == "text":
        columns = {"vector": model.size}
        chosen = {"pooling": model.pooling, "normalize": model.normalize}
    else:
        chosen = {"layers": layers}
        columns = {f"layer_{layer}": model.encoder.hidden_size for layer in layers}
        if values.combine != "stack":
            columns = {"vector": model.encoder.hidden_size * (len(layers) if values.combine == "concat" else 1)}
    chosen["max_seq_length"] = model.preprocessor.sequence_length
    names = ("unit", *_UNIT_FLAGS[values.unit], "max_seq_length", "dtype")
    settings = {"model": values.preset or values.checkpoint}
    settings |= {name: chosen[name] if name in chosen else getattr(values, name) for name in names}
    return open_parquet(values.output, values.unit, columns, values.vector_dtype, settings, values.overwrite)


def extract_file(model, rows, write, values, report_line):
    """Writes the features of all texts, chunk by chunk."""
    from tools.prediction_files import read_chunk

    length, max_texts = model.preprocessor.sequence_length, _MAX_TEXTS
    if values.unit != "text":
        numbers_per_text = length * len(model.layers_read) * model.encoder.hidden_size
        max_texts = min(_MAX_TEXTS, max(_MAX_NUMBERS // numbers_per_text, values.batch_size))
    num_texts = num_truncated = 0
    while chunk := read_chunk(rows, max_texts, _MAX_CHARACTERS):
        columns = zip(*(row.texts for row in chunk), strict=True)
        names = _PAIR if len(chunk[0].texts) == 2 else _TEXT
        columns = {name: list(column) for name, column in zip(names, columns, strict=True)}
        if values.unit == "text":
            examples = model.tokenize(check_single(columns, chunk))
            features = model.encode(examples, values.batch_size)
        else:
            units = model.tokenize(columns, values.unit)
            examples = units.examples
            features = model.extract(units, word_pooling=values.word_pooling, batch_size=values.batch_size)
        write([row.line for row in chunk], features)
        num_texts += len(chunk)
        num_truncated += int((examples.token_counts > length).sum())
        report_line(chunk[-1].line)
    return num_texts, num_truncated


def check_single(columns, chunk):
    """Returns the single texts of a chunk; ValueError if there is a pair, which has no vector."""
    if len(columns) == 1:
        return columns
    for row in chunk:
        if row.texts[1]:
            raise ValueError(f"line {row.line} has a pair of texts; --unit=text takes single ones")
    return {"text": columns["text_a"]}


def check_paths(values):
    """Checks that the input exists and that the output may be written."""
    if not os.path.isfile(values.input):
        problem = "is a folder" if os.path.isdir(values.input) else "does not exist"
        raise FileNotFoundError(f"--input={values.input} {problem}")
    if os.path.exists(values.output) and os.path.samefile(values.input, values.output):
        raise ValueError(f"--input and --output are the same file, {values.output}; give --output another name")
    check_output(values.output, values.overwrite)


def run(values):
    """Checks the flags, loads the model, writes the features, and reports on standard error."""
    check_paths(values)
    input_format = infer_format(values.input, values.input_format, _INPUT_FORMATS, "--input_format")
    output_format = infer_format(values.output, values.format, _OUTPUT_FORMATS, "--format")
    if output_format == "parquet" and values.output.endswith(".gz"):
        raise ValueError(f"--output={values.output}: Parquet is already compressed; leave out .gz")
    if output_format == "jsonl" and (values.combine != "stack" or values.vector_dtype != "float32"):
        raise ValueError(
            "JSON Lines keeps layers separate, with six decimals; --combine and --vector_dtype are for Parquet"
        )
    check_unit(values)
    columns = choose_columns(values, input_format)
    if values.unit == "text" and len(columns) == 2:
        raise ValueError("--unit=text takes single texts; leave out --text_a_column and --text_b_column")
    layers = choose_layers(values.layers, values.unit)

    from tqdm import tqdm

    from keras_bert.io.row_errors import BadRows, plural
    from tools.feature_files import read_texts
    from tools.parquet_tables import import_pyarrow
    from tools.prediction_files import count_lines

    if output_format == "parquet":
        import_pyarrow()
    model = load_model(values, layers)
    bad_rows = BadRows(skip=values.skip_bad_rows)
    rows = read_texts(values.input, input_format, columns, bad_rows)
    has_bar = {"auto": sys.stderr.isatty(), "on": True, "off": False}[values.progress]
    total = count_lines(values.input) if has_bar else None
    with (
        open_features(values, output_format, layers, model) as write,
        tqdm(total=total, unit=" lines", disable=not has_bar) as bar,
    ):
        num_texts, num_truncated = extract_file(model, rows, write, values, lambda line: bar.update(line - bar.n))
    skipped = f"; {plural(bad_rows.count, 'bad row')} skipped" if bad_rows.count else ""
    length = model.preprocessor.sequence_length
    truncated = f"; {num_truncated} of them truncated to {length} tokens" if num_truncated else ""
    print(f"features of {plural(num_texts, 'text')} written to {values.output}{truncated}{skipped}", file=sys.stderr)


def main(argv):
    """Runs the program; errors of files, flags and the model are printed without a traceback."""
    hide_info_logs()
    run_program("extract_features", run, argv, "files are given by flags")


if __name__ == "__main__":
    define_flags()
    app.run(main)
