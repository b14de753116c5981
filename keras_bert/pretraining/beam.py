"""The shards of a corpus made by Apache Beam, on this machine or on a cluster.

The plan of shards and the function that makes one are those of `streaming`, and so are the files. A shard that Beam
makes twice, because a worker was lost or slow, appears under its name whole, with the same bytes each time.
"""

import os
import re
import threading

import tensorflow as tf
from absl import logging

from keras_bert.pretraining.shard_files import read_sidecars
from keras_bert.pretraining.streaming import ShardMaker, shard_counts

# By name, the class of Beam that runs a pipeline there. Beam's own "DirectRunner" would first fetch a program for it.
RUNNERS = {
    "direct": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}
# Their clusters know options that Beam's Python side does not.
_RUNNERS_WITH_OTHER_OPTIONS = ("flink", "spark")
# The last line of a traceback, which is what a pipeline's error has of the one in a worker.
_CAUSE = re.compile(r"^[\w.]+Error: (.+?)(?: \[while running .*)?$", re.MULTILINE)


def load_beam():
    """Imports Apache Beam.

    Returns:
        The module `apache_beam`.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            f"Apache Beam cannot be imported ({error}). Install it with: pip install 'keras-bert-zoo[beam]', or from "
            "a checkout: pip install -e '.[beam]'"
        ) from error
    return apache_beam


def make_shards_with_beam(job, shards, runner="direct", num_workers=1, options=()):
    """Makes shards in a Beam pipeline, and waits until it is finished.

    A process of a worker holds one shard at a time, however many threads it has.

    Args:
        job: `ShardJob`. Its folder, and the files of the shards, are found under the same names by all workers.
        shards: list of `Shard`.
        runner: str, one of `RUNNERS`.
        num_workers: int. With the runner "direct", how many processes; the others have options of their own for it.
        options: list of str. Beam's pipeline options, such as "--flink_master=localhost:8081".

    Returns:
        list of dict: the counts of each shard, in the order of `shards`.

    Raises:
        ImportError: if Apache Beam is not installed, or not the part of it that the runner needs.
        RuntimeError: if the pipeline failed; the message has the cause that Beam reports.
        ValueError: if an option or the runner is unknown, `num_workers` is given to another runner than "direct", or a
            path for it is relative.
    """
    beam = load_beam()
    pipeline_options = _pipeline_options(runner, num_workers, options)
    if runner != "direct":
        _check_absolute(job, shards)
    tf.io.gfile.makedirs(job.folder)
    if shards:
        pipeline = beam.Pipeline(RUNNERS[runner], pipeline_options)
        build_pipeline(pipeline, job, shards)
        logging.info("Beam makes %d shards on %s", len(shards), runner)
        _run(pipeline)
    paths = [job.paths(shard) for shard in shards]
    sidecars = read_sidecars([path for each in paths for path in each])
    missing = sum(not sidecars.keys() >= set(each) for each in paths)
    if missing:
        raise RuntimeError(
            f"the pipeline has ended, and {missing} of {len(shards)} shards are not in {job.folder}. Do the workers "
            "write to another file system? Input and output must have the same names there as here"
        )
    return [shard_counts([sidecars[path] for path in each]) for each in paths]


def build_pipeline(pipeline, job, shards):
    """Adds to a pipeline what makes shards.

    Args:
        pipeline: `apache_beam.Pipeline`.
        job: `ShardJob`.
        shards: list of `Shard`.

    Returns:
        `PCollection` of dict, the counts of each shard, as `ShardMaker` gives them.
    """
    beam = load_beam()
    # Without Reshuffle one worker would make all that it creates.
    return (
        pipeline
        | "Plan" >> beam.Create(shards, reshuffle=False)
        | "Distribute" >> beam.Reshuffle()
        | "Make shards" >> beam.Map(make_shard, job)
    )


_lock = threading.Lock()
_maker = None  # of this process, with its job; threads share it
_maker_job = None


def make_shard(shard, job):
    """Makes a shard in a worker.

    Args:
        shard: `Shard`.
        job: `ShardJob`.

    Returns:
        dict of counts, as `ShardMaker` gives it.

    Raises:
        ValueError: as `ShardMaker`.
    """
    global _maker, _maker_job
    with _lock:  # one shard at a time in memory
        if _maker_job != job:
            _maker, _maker_job = ShardMaker(job), job
        counts = _maker(shard)
    metrics = load_beam().metrics.Metrics
    for name, number in counts.items():
        metrics.counter("keras_bert.pretraining", name).inc(number)
    return counts


def _pipeline_options(runner, num_workers, options):
    from apache_beam.options.pipeline_options import PipelineOptions

    if runner not in RUNNERS:
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r}")
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    options = list(options)
    if runner == "direct":
        mode = "multi_processing" if num_workers > 1 else "in_memory"
        options = [f"--direct_num_workers={num_workers}", f"--direct_running_mode={mode}", *options]
    elif num_workers > 1:
        raise ValueError(
            f"num_workers is for the runner direct. For {runner} give its own option, such as --parallelism (Flink) "
            "or --max_num_workers (Dataflow)"
        )
    parsed, parsers = PipelineOptions(options), []
    parsed.get_all_options(add_extra_args_fn=parsers.append)
    unknown = parsers[0].parse_known_args(options)[1]
    if unknown and runner in _RUNNERS_WITH_OTHER_OPTIONS:
        logging.warning("options that Beam does not know by itself, left to %s: %s", runner, " ".join(unknown))
    elif unknown:
        raise ValueError(f"Beam has no pipeline options {' '.join(unknown)}")
    return parsed


def _check_absolute(job, shards):
    for path in (job.folder, *(piece[0] for shard in shards for piece in shard.pieces)):
        if "://" not in path and not os.path.isabs(path):
            raise ValueError(
                f"{path} is a relative path, and workers on a cluster have another working directory. Give a path "
                "from / on, which all of them have, or one of Google Cloud Storage, gs://..."
            )


def _run(pipeline):
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        causes = _CAUSE.findall(f"{type(error).__name__}: {error}")
        raise RuntimeError(f"the pipeline failed: {causes[-1] if causes else error}") from error
