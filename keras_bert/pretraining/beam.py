"""The shards of a corpus made by Apache Beam, with the plan, function and files of `streaming`."""

import os
import re
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import check_positive
from keras_bert.pretraining.shard_files import read_sidecars
from keras_bert.pretraining.shards import Shard
from keras_bert.pretraining.streaming import Counts, ShardJob, ShardMaker, sum_shard_counts

# Beam's runner classes by name. Beam's own "DirectRunner" would download a program first.
RUNNERS = {
    "direct": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}
# Their clusters accept options that Beam's Python package does not know.
_RUNNERS_WITH_OTHER_OPTIONS = ("flink", "spark")
# The last line of a worker's traceback within the error message of a pipeline.
_CAUSE = re.compile(r"^[\w.]+Error: (.+?)(?: \[while running .*)?$", re.MULTILINE)


def load_beam() -> ModuleType:
    """Imports Apache Beam, or says how to install it."""
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            f"Apache Beam cannot be imported ({error}). Install it with: pip install 'keras-bert-zoo[beam]', or from "
            "a checkout: pip install -e '.[beam]'"
        ) from error
    return apache_beam


def make_shards_with_beam(
    job: ShardJob, shards: Sequence[Shard], runner: str = "direct", num_workers: int = 1, options: Sequence[str] = ()
) -> list[Counts]:
    """Makes shards in a Beam pipeline, waits for its end, and returns the counts of each shard.

    `num_workers` is the number of processes of the runner "direct"; `options` are Beam's pipeline options.
    """
    beam = load_beam()
    pipeline_options = _make_pipeline_options(runner, num_workers, options)
    if runner != "direct":
        _check_absolute(job, shards)
    tf.io.gfile.makedirs(job.folder)
    if shards:
        pipeline = beam.Pipeline(RUNNERS[runner], pipeline_options)
        build_pipeline(pipeline, job, shards)
        logging.info("Beam makes %d shards on %s", len(shards), runner)
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            causes = _CAUSE.findall(f"{type(error).__name__}: {error}")
            raise RuntimeError(f"the pipeline failed: {causes[-1] if causes else error}") from error
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


def _make_pipeline_options(runner: str, num_workers: int, options: Sequence[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions

    if runner not in RUNNERS:
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r}")
    check_positive(num_workers=num_workers)
    options = list(options)
    if runner == "direct":
        mode = "multi_processing" if num_workers > 1 else "in_memory"
        options = [f"--direct_num_workers={num_workers}", f"--direct_running_mode={mode}", *options]
    elif num_workers > 1:
        raise ValueError(
            f"num_workers applies to the runner direct only. Give an option of {runner} instead, such as --parallelism "
            "(Flink) or --max_num_workers (Dataflow)"
        )
    parsed, parsers = PipelineOptions(options), list[Any]()
    parsed.get_all_options(add_extra_args_fn=parsers.append)
    unknown = parsers[0].parse_known_args(options)[1]
    if unknown and runner in _RUNNERS_WITH_OTHER_OPTIONS:
        logging.warning("passing options that Beam does not know to %s: %s", runner, " ".join(unknown))
    elif unknown:
        raise ValueError(f"Beam has no pipeline options {' '.join(unknown)}")
    return parsed


def _check_absolute(job: ShardJob, shards: Sequence[Shard]) -> None:
    for path in (job.folder, *(path for shard in shards for path, _, _ in shard.ranges)):
        if "://" not in path and not os.path.isabs(path):
            raise ValueError(
                f"{path} is a relative path, but workers on a cluster have another working directory. Give an absolute "
                "path that exists on all of them, or one of Google Cloud Storage (gs://...)"
            )
