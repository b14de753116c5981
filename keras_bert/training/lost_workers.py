"""Detection of lost workers, and messages that name them."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from keras_bert.io.addresses import speaks_grpc, split_address
from keras_bert.training.cluster import Cluster

_PROBE_SECONDS = 5.0
_MAX_SILENT_PROBES = 4  # in a row: a worker counts as lost after 20 to 25 seconds
_EXIT_DELAY_SECONDS = 10.0

_ADVICE = (
    "Training cannot continue: restart all workers with the same command as before; the job resumes from the newest "
    "checkpoint"
)
_TASK = re.compile(r"/job:worker/(?:replica:[0-9]+/)?task:([0-9]+)")
_COLLECTIVE_FAULT = re.compile(
    r"Collective ops is aborted|Collective has timed out|[Cc]oordination ?[Ss]ervice|tensorflow\.WorkerService"
)


class WorkerLostError(ConnectionError):
    """Another worker died, froze or cannot be reached. The message names it and says how to resume."""


def find_unreachable_workers(cluster: Cluster, timeout_seconds: float = 5.0) -> tuple[int, ...]:
    """Returns the other workers of a running job whose TensorFlow does not answer, by index; asks all at once."""
    others = [index for index in range(len(cluster.workers)) if index != cluster.index]
    with ThreadPoolExecutor(min(len(others), 64)) as pool:
        answers = pool.map(lambda index: _is_reachable(cluster.workers[index], timeout_seconds), others)
        return tuple(index for index, is_reachable in zip(others, answers, strict=True) if not is_reachable)


def _is_reachable(address: str, timeout_seconds: float) -> bool:
    host_and_port = split_address(address)
    try:
        return host_and_port is not None and speaks_grpc(*host_and_port, timeout_seconds)
    except OSError:
        return False


def describe_lost_workers(cluster: Cluster, error: Exception | None = None, timeout_seconds: float = 5.0) -> str:
    """Returns a one-line message that names the lost workers and says how to resume.

    Names the workers that do not answer now, which may include some that noticed the loss first and have exited. If all
    answer, names those that TensorFlow's error mentions.
    """
    return f"{_describe_loss(cluster, error, timeout_seconds)}. {_ADVICE}"


def _describe_loss(cluster: Cluster, error: Exception | None = None, timeout_seconds: float = 5.0) -> str:
    text = "" if error is None else getattr(error, "message", None) or str(error)
    reason = f" ({_extract_reason(text)})" if text.strip() else ""
    silent = find_unreachable_workers(cluster, timeout_seconds)
    mentioned = {int(index) for index in _TASK.findall(text)} & set(range(len(cluster.workers))) - {cluster.index}
    names = ", ".join(cluster.describe(index) for index in silent or sorted(mentioned))
    if silent:
        return f"lost {names}{reason}"
    if mentioned:
        return f"lost {names}{reason}, which answers now: it may have been restarted"
    return f"the workers lost each other{reason}; all of them answer now: one may have been restarted, or hang"


def _extract_reason(text: str) -> str:
    """Returns the first line of an error's text that is about the fault, without TensorFlow's decoration."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if _COLLECTIVE_FAULT.search(line)), lines[0])
    return reason.removeprefix("Collective ops is aborted by: ")[:300].rstrip(".:")


@contextlib.contextmanager
def watch_workers(cluster: Cluster | None) -> Iterator[None]:
    """While in this context, the loss of a worker ends this process with a message that names it.

    TensorFlow raises an error in an operation that waits for the lost worker; it is turned into a `WorkerLostError`. A
    process that is busy with something else would notice late; therefore, a thread probes the others every 5 seconds,
    and once one of them has been silent for 20 to 25 seconds, it waits 10 more and calls `os._exit(1)`. All workers
    must leave the context together, as they do right after a barrier. None means that there are no other workers.
    """
    if cluster is None:
        yield
        return
    has_ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(cluster, has_ended), daemon=True)
    thread.start()
    try:
        yield
    except tf.errors.OpError as error:
        if not _COLLECTIVE_FAULT.search(error.message):
            raise
        loss = _describe_loss(cluster, error)
        # Ends the waiting of the other workers, so that they look for the lost one while this one still answers.
        with contextlib.suppress(tf.errors.OpError, ValueError):  # impossible without the chief
            context.context().report_error_to_cluster(tf.errors.UNAVAILABLE, loss)
        raise WorkerLostError(f"{loss}. {_ADVICE}") from error
    finally:
        has_ended.set()
        thread.join()


def _watch(cluster: Cluster, has_ended: threading.Event) -> None:
    silent_probes = dict.fromkeys(range(len(cluster.workers)), 0)
    pause = _PROBE_SECONDS
    while max(silent_probes.values()) < _MAX_SILENT_PROBES:
        if has_ended.wait(pause):
            return
        started = time.monotonic()
        silent = find_unreachable_workers(cluster, _PROBE_SECONDS - 1)
        pause = max(0.0, started + _PROBE_SECONDS - time.monotonic())
        silent_probes = {index: count + 1 if index in silent else 0 for index, count in silent_probes.items()}
    if not has_ended.wait(_EXIT_DELAY_SECONDS):
        logging.error("%s", describe_lost_workers(cluster))
        logging.flush()
        os._exit(1)
