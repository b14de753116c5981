"""Input and output files of `tools.extract_features`, both processed chunk by chunk."""

import contextlib
import json

import numpy as np

from keras_bert.io.atomic_write import atomic_path
from tools.parquet_tables import import_pyarrow
from tools.prediction_files import open_output, read_rows

_PAIR_SEPARATOR = " ||| "  # google-research/bert, extract_features.py
_UNIT_COLUMNS = {"wordpieces": ("position", "token"), "words": ("number", "word")}


def read_texts(path, file_format, columns, bad_rows):
    """Yields `tools.prediction_files.Row` with one or two texts each; two for "txt", where the second may be empty."""
    if file_format != "txt":
        return read_rows(path, file_format, columns, [], bad_rows)
    rows = read_rows(path, file_format, ["text"], [], bad_rows)
    return (row._replace(texts=split_pair(row.texts[0])) for row in rows)


def split_pair(line):
    """Splits `a ||| b` at the last separator, as `read_examples` of google-research/bert, extract_features.py."""
    before, separator, after = line.strip().rpartition(_PAIR_SEPARATOR)
    return (before, after) if separator else (after, "")


@contextlib.contextmanager
def open_json_lines(path, unit, layers):
    """Opens a JSON Lines file for features in the format of google-research/bert's extract_features.py.

    A text has a `vector`, which that format lacks.
    """

    def format_layers(vectors):  # [layers, hidden]
        return [
            {"index": layer, "values": [round(value, 6) for value in values]}
            for layer, values in zip(layers, vectors.tolist(), strict=True)
        ]

    def format_text(text):
        if unit == "text":
            return {"vector": [round(value, 6) for value in text.tolist()]}
        tokens = zip(text.names, text.vectors, strict=True)
        return {"features": [{"token": name, "layers": format_layers(vectors)} for name, vectors in tokens]}

    with open_output(path) as file:

        def write(lines, features):
            for line, text in zip(lines, features, strict=True):
                _check_finite([line], text if unit == "text" else text.vectors)
                file.write(json.dumps({"linex_index": line - 1, **format_text(text)}) + "\n")

        yield write


@contextlib.contextmanager
def open_parquet(path, unit, vector_columns, dtype, settings, overwrite=False):
    """Opens a Parquet file for features, with one row per text, wordpiece or word.

    The columns are `line`, from 1; `position` and `token`, or `number` and `word`; and the vectors.
    """
    pa, parquet = import_pyarrow()
    names = _UNIT_COLUMNS.get(unit, ())
    element = pa.from_numpy_dtype(np.dtype(dtype))
    schema = pa.schema(
        [("line", pa.int64())]
        + ([(names[0], pa.int32()), (names[1], pa.string())] if names else [])
        + [(name, pa.list_(element, size)) for name, size in vector_columns.items()],
        metadata={"keras_bert": json.dumps(settings)},
    )
    with (
        atomic_path(path, overwrite) as unfinished,
        # Dictionary encoding would only cost time for numbers that hardly ever repeat.
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
            with np.errstate(over="ignore"):  # overflow is found by the next line
                vectors = vectors.astype(dtype, copy=False)
            _check_finite(columns[0], vectors)
            by_column = [vectors[:, index] for index in range(vectors.shape[1])] if vectors.ndim == 3 else [vectors]
            for column, size in zip(by_column, vector_columns.values(), strict=True):
                flat = pa.array(np.ascontiguousarray(column).ravel())
                columns.append(pa.FixedSizeListArray.from_arrays(flat, size))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _check_finite(lines, vectors):
    """Raises if the vectors of the lines contain NaN or infinity; one line may have many vectors."""
    if np.isfinite(vectors).all():
        return
    line = lines[0]
    if len(lines) > 1:
        line = lines[np.flatnonzero(~np.isfinite(vectors.reshape([len(vectors), -1])).all(axis=1))[0]]
    raise ValueError(f"line {line}: its features are not finite in {vectors.dtype}; is the model damaged?")
