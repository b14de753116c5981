"""The files of `tools.extract_features`: texts read one at a time, and features written as they come."""

import contextlib
import json

import numpy as np

from keras_bert.io.atomic_write import atomic_path
from tools.prediction_files import complete_or_not_at_all, read_rows

_PAIR_SEPARATOR = " ||| "  # google-research/bert, extract_features.py
# By unit, what its number and its name are called.
_COLUMNS_OF_UNIT = {"pieces": ("position", "token"), "words": ("number", "word")}


def read_texts(path, file_format, columns, bad_rows):
    """The texts of a file; only one row is in memory at a time.

    Args:
        path: str or Path; decompressed if its name ends in `.gz`.
        file_format: str, "tsv", "csv", "jsonl", or "txt": on every line a text, or a pair as `pair_of_line` parts it.
        columns: list of one or two str, the columns of the texts; not used for "txt".
        bad_rows: a `BadRows`, told of rows that cannot be used.

    Returns:
        Iterator of `tools.prediction_files.Row`, with one text each, or two; of a "txt" file two, of which the second
        may be "", which is no second text to BERT.

    Raises:
        FileNotFoundError, ValueError, BadRowError: as `read_rows`.
    """
    if file_format != "txt":
        return read_rows(path, file_format, columns, [], bad_rows)
    rows = read_rows(path, file_format, ["text"], [], bad_rows)
    return (row._replace(texts=pair_of_line(row.texts[0])) for row in rows)


def pair_of_line(line):
    """The two texts of a line `a ||| b`; parted at the last separator, if there are several.

    Source: `read_examples` of google-research/bert, extract_features.py.

    Args:
        line: str.

    Returns:
        tuple of two str, without space around them; the second one is "" where there is no separator.
    """
    before, separator, after = line.strip().rpartition(_PAIR_SEPARATOR)
    return (before, after) if separator else (after, "")


@contextlib.contextmanager
def open_json_lines(path, unit, layers):
    """Opens a JSON Lines file for features, an object for each text, in the form of google-research/bert's
    extract_features.py.

    Args:
        path: str or Path, compressed if its name ends in `.gz`.
        unit: str. "pieces" and "words": an object has `linex_index` and `features`, a list with `token` and `layers`
            for each; "text": it has `linex_index` and `layers`. `layers` is a list of `index` and `values`.
        layers: list of int, what `index` is.

    Yields:
        A function of a list of line numbers, from 1, and the features of as many texts: a list of `TextFeatures`, or a
        float array [texts, layers, hidden]. It raises ValueError on a number that is not finite.
    """

    def layers_of(vectors):  # [layers, hidden]
        return [
            {"index": layer, "values": [round(value, 6) for value in values]}
            for layer, values in zip(layers, vectors.tolist(), strict=True)
        ]

    def object_of(text):
        if unit == "text":
            return {"layers": layers_of(text)}
        tokens = zip(text.names, text.vectors, strict=True)
        return {"features": [{"token": name, "layers": layers_of(vectors)} for name, vectors in tokens]}

    with complete_or_not_at_all(path) as file:

        def write(lines, features):
            for line, text in zip(lines, features, strict=True):
                _check_finite([line], text if unit == "text" else text.vectors)
                file.write(json.dumps({"linex_index": line - 1, **object_of(text)}) + "\n")

        yield write


@contextlib.contextmanager
def open_parquet(path, unit, vector_columns, dtype, settings, overwrite=False):
    """Opens a Parquet file for features, a row for each text, piece or word.

    Args:
        path: str or Path.
        unit: str. The columns are `line` (int64, where the text begins in its file, from 1); for "pieces" `position`
            (int32, from 0) and `token`, for "words" `number` (int32, from 0) and `word`; and the vectors.
        vector_columns: dict of column name to int, the size of its vectors, of type fixed_size_list: one, or one for
            each layer.
        dtype: str. "float32" or "float16".
        settings: dict, written as JSON under the key `keras_bert` of the file's metadata.
        overwrite: bool. Whether a file of that name may be replaced.

    Yields:
        A function as that of `open_json_lines`; vectors are [..., size], or [..., layers, hidden] if there are several
        columns. Each call writes one row group.

    Raises:
        FileExistsError: if there is a file and it may not be replaced.
        ValueError: if pyarrow is not installed.
    """
    pa, parquet = import_pyarrow()
    names = _COLUMNS_OF_UNIT.get(unit, ())
    element = pa.from_numpy_dtype(np.dtype(dtype))
    schema = pa.schema(
        [("line", pa.int64())]
        + ([(names[0], pa.int32()), (names[1], pa.string())] if names else [])
        + [(name, pa.list_(element, size)) for name, size in vector_columns.items()],
        metadata={"keras_bert": json.dumps(settings)},
    )
    with (
        atomic_path(path, overwrite) as unfinished,
        # Dictionaries would only cost time for numbers that hardly ever come again.
        parquet.ParquetWriter(unfinished, schema, compression="zstd", use_dictionary=list(names[1:])) as writer,
    ):

        def write(lines, features):
            columns = [np.array(lines, "int64")]
            if unit == "text":
                vectors = features
            else:
                columns = [np.repeat(columns[0], [len(text.names) for text in features])]
                columns.append(np.concatenate([text.numbers for text in features]))
                columns.append([name for text in features for name in text.names])
                vectors = np.concatenate([text.vectors for text in features])
            vectors = _rounded(vectors, dtype)
            _check_finite(columns[0], vectors)
            by_column = [vectors[:, place] for place in range(vectors.shape[1])] if vectors.ndim == 3 else [vectors]
            for of_column, size in zip(by_column, vector_columns.values(), strict=True):
                flat = pa.array(np.ascontiguousarray(of_column).ravel())
                columns.append(pa.FixedSizeListArray.from_arrays(flat, size))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def import_pyarrow():
    """The modules `pyarrow` and `pyarrow.parquet`.

    Raises:
        ValueError: if they are not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"Parquet needs pyarrow: pip install 'keras-bert-zoo[features]' ({error})") from error
    return pyarrow, pyarrow.parquet


def _rounded(vectors, dtype):
    with np.errstate(over="ignore"):  # what is beyond the type is found by `_check_finite`
        return vectors.astype(dtype, copy=False)


def _check_finite(lines, vectors):
    """Raises if the vectors of some lines, one or more for each, hold what is no number."""
    if np.isfinite(vectors).all():
        return
    line = lines[0]
    if len(lines) > 1:
        line = lines[np.flatnonzero(~np.isfinite(vectors.reshape([len(vectors), -1])).all(axis=1))[0]]
    raise ValueError(f"line {line}: its features are not finite in {vectors.dtype}; is the model damaged?")
