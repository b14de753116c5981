"""The shards of a corpus made by Apache Beam, with the plan, function and files of `streaming`."""

import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import check_positive
from keras_bert.io.beam_pipelines import check_absolute, load_beam, make_pipeline, run_pipeline
from keras_bert.pretraining.shard_files import read_sidecars
from keras_bert.pretraining.shards import Shard
from keras_bert.pretraining.streaming import Counts, ShardJob, ShardMaker, sum_shard_counts


def make_shards_with_beam(
    job: ShardJob, shards: Sequence[Shard], runner: str = "direct", num_workers: int = 1, options: Sequence[str] = ()
) -> list[Counts]:
    """Makes shards in a Beam pipeline, waits for its end, and returns the counts of each shard.

    `num_workers` is the number of processes of the runner "direct"; `options` are Beam's pipeline options.
    """
    check_positive(num_workers=num_workers)
    pipeline = make_pipeline(runner, num_workers, options)
    if runner != "direct":
        check_absolute([job.folder, *(path for shard in shards for path, _, _ in shard.ranges)])
    tf.io.gfile.makedirs(job.folder)
    if shards:
        build_pipeline(pipeline, job, shards)
        logging.info("Beam makes %d shards on %s", len(shards), runner)
        run_pipeline(pipeline)
    paths = [job.paths(shard) for shard in shards]
    sidecars = read_sidecars(path for each in paths for path in each)
    num_missing = sum(not sidecars.keys() >= set(each) for each in paths)
    if num_missing:
        raise RuntimeError(
            f"the pipeline has ended, but {num_missing} of {len(shards)} shards are missing in {job.folder}. Input and "
            "output must have the same paths on the workers as on this machine, on a shared file system"
        )
    return [sum_shard_counts([sidecars[path] for path in each]) for each in paths]


def build_pipeline(pipeline: Any, job: ShardJob, shards: Sequence[Shard]) -> Any:
    """Adds the steps that make shards to a pipeline; returns a `PCollection` of their counts."""
    beam = load_beam()
    # Without Reshuffle one worker would make all shards that it creates.
    return (
        pipeline
        | "Plan" >> beam.Create(shards, reshuffle=False)
        | "Distribute" >> beam.Reshuffle()
        | "Make shards" >> beam.Map(make_shard, job)
    )


_lock = threading.Lock()
_maker: ShardMaker | None = None  # one per process, shared by its threads
_maker_job: ShardJob | None = None


def make_shard(shard: Shard, job: ShardJob) -> Counts:
    """Makes a shard in a worker, and returns its counts."""
    global _maker, _maker_job
    with _lock:  # one shard in memory at a time
        if _maker is None or _maker_job != job:
            _maker, _maker_job = ShardMaker(job), job
        counts = _maker(shard)
    metrics = load_beam().metrics.Metrics
    for name, count in counts.items():
        metrics.counter("keras_bert.pretraining", name).inc(count)
    return counts
