"""Files of instances from a corpus of any size, shard by shard, in one or several processes.

A process holds one shard at a time, and takes less than 32 MB plus 16 times its size on top of TensorFlow's memory. The
files of a shard do not depend on other shards or on the process. The first copies of all shards come before the second
ones, so that a model sees all texts before it sees one again.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import check_positive
from keras_bert.io.remote_paths import look_up_each
from keras_bert.pretraining.documents import COUNT_NAMES
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import FEATURE_NAMES, serialize_records
from keras_bert.pretraining.shard_files import (
    COMPRESSIONS,
    describe_vocabulary,
    instance_files,
    instances_path,
    open_record_file,
    read_sidecars,
    remove_unfinished,
    write_sidecar,
)
from keras_bert.pretraining.shards import Shard
from keras_bert.text.tokenizer import BertTokenizer

NUM_COPIES = 10  # `dupe_factor` of google-research/bert create_pretraining_data.py
_BATCH_SIZE = 1024

Counts = dict[str, int]


@dataclass(frozen=True)
class ShardJob:
    """Everything that a process needs to make any shard of an output folder; it can be pickled."""

    folder: str
    num_shards: int
    tokenizer: dict[str, Any]
    settings: InstanceSettings
    num_copies: int = NUM_COPIES
    record_format: str = "bert"
    compression: str = "none"

    def __post_init__(self) -> None:
        check_positive(num_copies=self.num_copies)
        if self.record_format not in FEATURE_NAMES:
            raise ValueError(f"record_format must be one of {', '.join(FEATURE_NAMES)}, got {self.record_format!r}")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {self.compression!r}")

    def paths(self, shard: Shard) -> list[str]:
        """Returns the files of a shard, one per copy."""
        num_files = self.num_shards * self.num_copies
        numbers = range(shard.number, num_files, self.num_shards)
        return [instances_path(self.folder, number, num_files) for number in numbers]

    def metadata(self) -> dict[str, Any]:
        """Returns the settings that all shards of the output share, as JSON values."""
        return {
            "mode": "streaming",
            "num_shards": self.num_shards,
            **describe_vocabulary(BertTokenizer.from_config(self.tokenizer)),
            **self.settings.to_dict(),
            "num_copies": self.num_copies,
            "record_format": self.record_format,
            "compression": self.compression,
        }


class ShardMaker:
    """Writes the files of shards. A process makes one, and then calls it with many shards."""

    def __init__(self, job: ShardJob) -> None:
        self._job = job
        tokenizer = BertTokenizer.from_config(job.tokenizer)
        self._unknown_id = tokenizer.unk_id
        self._maker = InstanceMaker(tokenizer, job.settings)
        self._metadata = job.metadata()

    def __call__(self, shard: Shard) -> Counts:
        """Writes the files and sidecars of a shard; returns the number of `instances` and the counts of its text."""
        job, maker = self._job, self._maker
        documents = maker.read(shard)
        counts = documents.counts(self._unknown_id)
        token_ids = tf.constant(documents.token_ids)
        sidecars = []
        for copy, path in enumerate(job.paths(shard)):
            rows = maker.choose(documents, shard.number, copy)
            with open_record_file(path, job.compression) as write:
                for start in range(0, len(rows), _BATCH_SIZE):
                    instances = maker.make(token_ids, rows[start : start + _BATCH_SIZE])
                    for record in serialize_records(instances, job.record_format):
                        write(record)
            source = {"shard": shard.number, "copy": copy, "text": shard.ranges}
            sidecars.append({**self._metadata, **source, "instances": len(rows), **counts})
            write_sidecar(path, sidecars[-1])
        return sum_shard_counts(sidecars)


def sum_shard_counts(sidecars: Sequence[Mapping[str, Any]]) -> Counts:
    """Returns the counts of a shard from the sidecars of all its copies."""
    num_instances = sum(sidecar["instances"] for sidecar in sidecars)
    return {"instances": num_instances, **{name: sidecars[0][name] for name in COUNT_NAMES}}


def find_missing_shards(job: ShardJob, plan: Sequence[Shard]) -> tuple[list[Shard], list[Counts]]:
    """Returns the unfinished shards of a plan and the counts of the finished ones; removes temporary files.

    Raises a FileExistsError if the folder contains shards of other settings or another corpus.
    """
    if tf.io.gfile.exists(job.folder) and not tf.io.gfile.isdir(job.folder):
        raise NotADirectoryError(f"{job.folder} is a file; give a folder for the files of instances")
    metadata = job.metadata()
    expected = {path: shard for shard in plan for path in job.paths(shard)}
    present = instance_files(job.folder)
    for path in present:
        if path not in expected:
            raise FileExistsError(
                f"{path} belongs to another run: this one has {job.num_shards} shards in {job.num_copies} copies. Give "
                "an empty folder, or the same corpus, shard size and number of copies as before"
            )
    sidecars = read_sidecars(expected)
    for path, sidecar in sidecars.items():
        _check_same(path, sidecar, {**metadata, "text": [list(byte_range) for byte_range in expected[path].ranges]})
    intact = _find_intact({path: sidecars[path] for path in present if path in sidecars})
    missing = [shard for shard in plan if not intact.issuperset(job.paths(shard))]
    finished = [shard for shard in plan if intact.issuperset(job.paths(shard))]
    remove_unfinished(job.folder)
    return missing, [sum_shard_counts([sidecars[path] for path in job.paths(shard)]) for shard in finished]


def _find_intact(sidecars: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Returns the files that have the size stated in their sidecar."""
    sizes = look_up_each(lambda path: tf.io.gfile.stat(path).length, sidecars)
    damaged = set()
    for (path, sidecar), size in zip(sidecars.items(), sizes, strict=True):
        if sidecar["bytes"] != size:
            logging.warning("%s has %d bytes instead of %d and is made again", path, size, sidecar["bytes"])
            damaged.add(path)
    return set(sidecars) - damaged


def _check_same(path: str, sidecar: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    different = [
        f"{name} was {sidecar.get(name)!r} and is {value!r}"
        for name, value in expected.items()
        if sidecar.get(name) != value
    ]
    if different:
        raise FileExistsError(
            f"{path} was made with other settings: {'; '.join(different)}. Give the same settings, or another folder"
        )


def make_shards(job: ShardJob, shards: Sequence[Shard], num_workers: int = 1) -> Iterator[tuple[Shard, Counts]]:
    """Makes shards in this process, or in several others; yields each finished shard with its counts."""
    check_positive(num_workers=num_workers)
    tf.io.gfile.makedirs(job.folder)
    make = ShardMaker(job)  # also with several processes: an error is clearer here than in one of them
    if num_workers == 1:
        for shard in shards:
            yield shard, make(shard)
        return
    # Processes are forked from one that has imported TensorFlow but not used it, so they start at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(num_workers, context, _start_process, (job,))
    try:
        tasks = {pool.submit(_make_in_process, shard): shard for shard in shards}
        waiting = set(tasks)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for task in done:
                yield tasks[task], task.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process was killed, perhaps because it ran out of memory. Run again with fewer processes or "
            "smaller shards; finished shards are kept"
        ) from error
    finally:
        # After an error, too: no process may write to the folder once this function has ended.
        pool.shutdown(wait=True, cancel_futures=True)


_make: ShardMaker | None = None  # one per process, so that tasks need not pickle the job


def _start_process(job: ShardJob) -> None:
    global _make
    # The main process handles interrupts; this one finishes its shard.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # There are as many processes as cores, so one thread each is enough.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _make = ShardMaker(job)


def _exit_with_parent() -> None:
    # A killed main process cannot end its workers: they would continue to write, and then wait forever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _make_in_process(shard: Shard) -> Counts:
    assert _make is not None
    return _make(shard)
