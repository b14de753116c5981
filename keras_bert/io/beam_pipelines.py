"""Pipelines of Apache Beam: its runners, their options, and the errors of workers."""

import os
import re
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from absl import logging

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
_CAUSE = re.compile(r"^[\w.]+Error: (.+)$", re.MULTILINE)
_STEP = re.compile(r" \[while running '.*?'\]")  # what Beam appends to the first argument of an error


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


def make_pipeline(runner: str, num_workers: int = 1, options: Sequence[str] = ()) -> Any:
    """Makes an empty pipeline.

    `num_workers` is the number of processes of the runner "direct"; `options` are Beam's pipeline options.
    """
    beam = load_beam()
    return beam.Pipeline(RUNNERS.get(runner), _make_pipeline_options(runner, num_workers, options))


def run_pipeline(pipeline: Any) -> None:
    """Runs a pipeline to its end; raises RuntimeError with the cause if it fails."""
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        causes = _CAUSE.findall(f"{type(error).__name__}: {error}")
        cause = _STEP.sub("", causes[-1]) if causes else error
        raise RuntimeError(f"the pipeline failed: {cause}") from error


def check_absolute(paths: Iterable[str]) -> None:
    """Raises ValueError if workers on a cluster could not find one of the paths."""
    for path in paths:
        if "://" not in path and not os.path.isabs(path):
            raise ValueError(
                f"{path} is a relative path, but workers on a cluster have another working directory. Give an absolute "
                "path that exists on all of them, or one of Google Cloud Storage (gs://...)"
            )


def _make_pipeline_options(runner: str, num_workers: int, options: Sequence[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions

    if runner not in RUNNERS:
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r}")
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
