"""`tools.predict` as a pipeline of Apache Beam, which divides its input into parts and makes those that are missing.

A part is a chunk of consecutive rows of a file. It is predicted as `tools.predict` predicts a chunk, and becomes one
file of the output folder, under its name when it is complete:

    part-00000-000000.jsonl     number of the input file, and of the part in it; in order of their names, the parts have
                                the order of the input
    _rows-00000.json            counts of an input file
    _bad_rows-00000.jsonl       the rows of an input file that were skipped, with reasons
    _job.json                   what the parts depend on

Files of any file system that TensorFlow can access may be read and written.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import tempfile
from typing import NamedTuple

import apache_beam as beam
import tensorflow as tf
from apache_beam.ml.inference.base import ModelHandler, RunInference

from keras_bert.io.atomic_write import UNFINISHED_MARK, atomic_remote_path, write_json
from keras_bert.io.beam_pipelines import check_absolute, make_pipeline, run_pipeline
from keras_bert.io.remote_paths import look_up_each
from keras_bert.io.row_errors import BadRows
from tools.parquet_tables import make_schema
from tools.prediction_batches import MAX_CHUNK_CHARACTERS, Batching, predict_rows, predict_texts
from tools.prediction_files import open_table, read_chunk, read_rows
from tools.serving_signature import ServingSignature


@dataclasses.dataclass(frozen=True)
class PredictionJob:
    """Where texts come from and predictions go to."""

    saved_model: str
    files: tuple[str, ...]
    file_format: str
    text_columns: tuple  # see `tools.prediction_files.read_rows`
    kept_columns: tuple[str, ...]
    folder: str
    output_format: str
    predictions: tuple[str, ...]
    skip_bad_rows: bool
    batching: Batching

    @property
    def columns(self):
        """Columns of the output; with several input files, `file` is the first."""
        return [*(["file"] if len(self.files) > 1 else []), "line", *self.kept_columns, *self.predictions]

    def part_path(self, file_index, number):
        return os.path.join(self.folder, f"part-{file_index:05}-{number:06}.{self.output_format}")

    def rows_path(self, file_index):
        return os.path.join(self.folder, f"_rows-{file_index:05}.json")

    def bad_rows_path(self, file_index):
        return os.path.join(self.folder, f"_bad_rows-{file_index:05}.jsonl")


class Part(NamedTuple):
    """Consecutive rows of an input file."""

    file_index: int
    number: int  # in the file, from 0
    rows: list


class SavedModelHandler(ModelHandler):
    """Runs a SavedModel on parts in Beam's `RunInference`; returns pairs of a part and the predictions for its rows."""

    def __init__(self, job):
        super().__init__(max_batch_size=1)  # a part is divided into batches of similar length
        self._job = job

    def load_model(self):
        return load_signature(self._job.saved_model)

    def run_inference(self, batch, model, inference_args=None):
        predict = functools.partial(predict_texts, model, self._job.predictions)
        for part in batch:
            found = predict_rows(iter(part.rows), predict, self._job.batching)
            yield part, [predictions for _, predictions in found]


@functools.cache
def load_signature(folder):
    """Loads a SavedModel once per process."""
    return ServingSignature(folder)


def predict_files(job, runner, num_workers=1, options=()):
    """Makes all missing parts and waits for them; returns the numbers of rows written and skipped, over all parts."""
    pipeline = make_pipeline(runner, num_workers, options)
    if runner != "direct":
        check_absolute([job.saved_model, job.folder, *job.files])
    schema = None
    if job.output_format == "parquet":
        types = load_signature(job.saved_model).types
        types = {name: types[name] for name in job.predictions}
        with _local_input(job.files[0]) as path:
            schema = make_schema(path, job.file_format, job.kept_columns, types, has_file=len(job.files) > 1)
    _claim_folder(job)
    build_pipeline(pipeline, job, schema)
    run_pipeline(pipeline)
    return _check_parts(job)


def build_pipeline(pipeline, job, schema=None):
    """Adds the steps to a pipeline. One worker reads a file, and all workers compute its parts."""
    return (
        pipeline
        | "Files" >> beam.Create(_find_parts(job).items(), reshuffle=False)
        | "Distribute files" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(read_parts, job)
        | "Distribute parts" >> beam.Reshuffle()
        | "Predict" >> RunInference(SavedModelHandler(job))
        | "Write" >> beam.Map(write_part, job, schema)
    )


def read_parts(file, job):
    """Yields the missing parts of an input file, and writes its counts and bad rows; takes its index and the numbers of
    its finished parts."""
    file_index, finished = file
    path = job.files[file_index]
    bad_rows = _RecordedBadRows(path, job.skip_bad_rows)
    num_rows = num_parts = 0
    with _local_input(path) as local:
        rows = read_rows(local, job.file_format, job.text_columns, job.kept_columns, bad_rows)
        while chunk := read_chunk(rows, job.batching.chunk_size, MAX_CHUNK_CHARACTERS):
            if num_parts not in finished:
                yield Part(file_index, num_parts, chunk)
            num_rows, num_parts = num_rows + len(chunk), num_parts + 1
    if bad_rows.rows:
        with (
            _local_output(job.bad_rows_path(file_index)) as local,
            open_table(local, "jsonl", ["file", "line", "reason"]) as write,
        ):
            for line, reason in bad_rows.rows:
                write([path, line, reason])
    counts = {"file": path, "rows": num_rows, "bad_rows": len(bad_rows.rows), "parts": num_parts}
    with _local_output(job.rows_path(file_index)) as local:
        write_json(local, counts, overwrite=True)


def write_part(predicted, job, schema=None):
    """Writes the file of a part, from the pair of it and its predictions."""
    part, predictions = predicted
    file = [job.files[part.file_index]] if len(job.files) > 1 else []
    with (
        _local_output(job.part_path(part.file_index, part.number)) as local,
        open_table(local, job.output_format, job.columns, schema) as write,
    ):
        for row, prediction in zip(part.rows, predictions, strict=True):
            write([*file, row.line, *row.kept, *prediction])


class _RecordedBadRows(BadRows):
    """Keeps the lines of a file that were skipped, with reasons."""

    def __init__(self, file, skip):
        super().__init__(skip)
        self._file = file
        self.rows = []

    def report(self, file, line, reason, row=None):
        super().report(self._file, line, reason, row)
        self.rows.append((line, reason))


def _claim_folder(job):
    """Makes the output folder, or checks that its parts are those of this job."""
    fingerprint, path = None, os.path.join(job.saved_model, "fingerprint.pb")
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, "rb") as file:
            fingerprint = file.read().hex()
    settings = dataclasses.asdict(job) | {
        "fingerprint": fingerprint,
        "sizes": look_up_each(lambda path: tf.io.gfile.stat(path).length, job.files),
        "chunk_size": job.batching.chunk_size,
    }
    for name in ("folder", "batching", "skip_bad_rows"):  # the parts do not depend on these
        del settings[name]
    settings = json.loads(json.dumps(settings))
    path = os.path.join(job.folder, "_job.json")
    if tf.io.gfile.exists(path):
        found = _read_json(path)
        changed = [name for name in settings if found.get(name) != settings[name]]
        if changed:
            raise ValueError(
                f"--output={job.folder} has parts of another job, which differs in {', '.join(changed)} (see {path}); "
                "give another folder, or the same flags to resume"
            )
    elif tf.io.gfile.exists(job.folder) and (not tf.io.gfile.isdir(job.folder) or tf.io.gfile.listdir(job.folder)):
        raise FileExistsError(f"--output={job.folder} exists and has other files; give another name")
    else:
        tf.io.gfile.makedirs(job.folder)
        with _local_output(path) as local:
            write_json(local, settings, overwrite=True)


def _find_parts(job):
    """Returns the numbers of the finished parts of each input file, by its index."""
    finished = {index: [] for index in range(len(job.files))}
    for name in tf.io.gfile.listdir(job.folder):
        match = re.fullmatch(rf"part-(\d+)-(\d+)\.{job.output_format}", name)
        if match:
            finished[int(match[1])].append(int(match[2]))
    return finished


def _check_parts(job):
    """Raises if a part is missing; returns the numbers of rows written and skipped."""
    found = {os.path.basename(path) for path in tf.io.gfile.listdir(job.folder)}
    missing = [path for index in range(len(job.files)) if os.path.basename(path := job.rows_path(index)) not in found]
    counts = [] if missing else look_up_each(_read_json, map(job.rows_path, range(len(job.files))))
    paths = [job.part_path(index, number) for index, each in enumerate(counts) for number in range(each["parts"])]
    missing += [path for path in paths if os.path.basename(path) not in found]
    if missing:
        raise RuntimeError(
            f"the pipeline has ended, but {missing[0]} is missing. The model, input and output must have the same "
            "paths on the workers as on this machine, on a shared file system"
        )
    for name in found:
        if name.startswith(".") and UNFINISHED_MARK in name:  # of a worker that was killed
            tf.io.gfile.remove(os.path.join(job.folder, name))
    return sum(each["rows"] for each in counts), sum(each["bad_rows"] for each in counts)


def _read_json(path):
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


@contextlib.contextmanager
def _local_input(path):
    """Yields the path of a file, or of a temporary copy of one that is not on this machine."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        tf.io.gfile.copy(path, local)
        yield local


@contextlib.contextmanager
def _local_output(path):
    """Yields the path of a file to write atomically, or of a temporary file that is moved to another file system."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        yield local
        with atomic_remote_path(path) as unfinished:
            tf.io.gfile.copy(local, unfinished)
