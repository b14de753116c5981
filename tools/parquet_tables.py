"""Parquet files with named columns, read and written row by row."""

import contextlib
import json

import numpy as np

from keras_bert.data.formats.delimited import check_columns
from keras_bert.io.atomic_write import atomic_path

_ROWS_AT_A_TIME = 2048


def import_pyarrow():
    """Returns the modules `pyarrow` and `pyarrow.parquet`, or raises ValueError with how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"Parquet needs pyarrow: pip install 'keras-bert-zoo[features]' ({error})") from error
    return pyarrow, pyarrow.parquet


def read_parquet(path, columns):
    """Yields the number of each row, from 1, and the values of some columns."""
    with _open_file(path) as file:
        check_columns(path, file.schema_arrow.names, columns)
        if not file.metadata.num_rows:
            raise ValueError(f"{path} has no rows")
        row = 0
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=sorted({*columns})):
            values = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            for of_row in zip(*(values[column] for column in columns), strict=True):
                row += 1
                yield row, list(of_row)


def count_rows(path):
    """Returns the number of rows of a file."""
    with _open_file(path) as file:
        return file.metadata.num_rows


def _open_file(path):
    pa, parquet = import_pyarrow()
    try:
        return parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


def make_schema(source, file_format, kept_columns, prediction_types, has_file=False):
    """Makes the schema of a table of predictions.

    Kept columns have the types of the input if that is Parquet, and are strings otherwise. `prediction_types` are those
    of a `ServingSignature`, by column; `has_file` is whether the first column is the file of the row.
    """
    pa, _ = import_pyarrow()
    fields = [("file", pa.string())] if has_file else []
    fields.append(("line", pa.int64()))
    if file_format == "parquet" and kept_columns:
        with _open_file(source) as file:
            check_columns(source, file.schema_arrow.names, kept_columns)
            fields += [(name, file.schema_arrow.field(name).type) for name in kept_columns]
    else:
        fields += [(name, pa.string()) for name in kept_columns]
    for name, (depth, element) in prediction_types.items():
        arrow_type = (
            pa.struct([(key, _scalar_type(dtype)) for key, dtype in element.items()])
            if isinstance(element, dict)
            else _scalar_type(element)
        )
        for _ in range(depth):
            arrow_type = pa.list_(arrow_type)
        fields.append((name, arrow_type))
    return pa.schema(fields)


def _scalar_type(dtype):
    pa, _ = import_pyarrow()
    return pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))


@contextlib.contextmanager
def open_parquet_table(path, schema):
    """Opens a Parquet file for writing row by row; it appears under its name when it is complete.

    A value of a column of strings that is no string is written as JSON.
    """
    pa, parquet = import_pyarrow()
    rows = []
    with atomic_path(path, overwrite=True) as unfinished, parquet.ParquetWriter(unfinished, schema) as writer:

        def flush():
            arrays = []
            for field, values in zip(schema, zip(*rows, strict=True), strict=True):
                if pa.types.is_string(field.type):
                    values = map(_to_string, values)
                arrays.append(pa.array(list(values), field.type))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            rows.clear()

        def write(values):
            rows.append(values)
            if len(rows) == _ROWS_AT_A_TIME:
                flush()

        yield write
        if rows:
            flush()


def _to_string(value):
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
