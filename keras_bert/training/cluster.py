"""The workers of a job on several machines: who they are, how they meet before they start, and who of them was lost."""

import contextlib
import errno
import json
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from keras_bert.io.addresses import speaks_grpc, split_address

_ROLES = ("chief", "worker")
_REFUSED_ROLES = {
    "ps": "Keras 3 does not support parameter servers, and keras_bert has none; leave them out, and the workers hold "
    "the weights between them",
    "evaluator": "keras_bert has no evaluator of its own: the workers evaluate while they train; leave it out",
}

_PORT_WAIT_SECONDS = 10.0  # for a port that a process of the job before this one still holds: those end within 3
_HELLO_SECONDS = 5.0
_SECONDS_BETWEEN_REPORTS = 30.0

_PROBE_SECONDS = 5.0
_SILENT_PROBES = 4  # so many in a row without an answer: a worker is lost after 20 to 25 seconds
_LAST_WORDS_SECONDS = 10.0

_HOW_TO_GO_ON = (
    "Training cannot go on so: start the whole job again, every worker with the same command as before; it continues "
    "from the newest checkpoint"
)
_TASK = re.compile(r"/job:worker/(?:replica:[0-9]+/)?task:([0-9]+)")
_OF_COLLECTIVES = re.compile(
    r"Collective ops is aborted|Collective has timed out|[Cc]oordination ?[Ss]ervice|tensorflow\.WorkerService"
)


class WorkerLostError(ConnectionError):
    """Another worker died, froze or cannot be reached; the message names it, and says how to go on."""


@dataclass(frozen=True)
class Cluster:
    """The workers of a job, and which of them this process is.

    Args:
        workers: tuple of "host:port", one for each process of the job, the same on all; the first is the chief. IPv6
            addresses stand in brackets.
        index: int, the place of this process in `workers`.

    Raises:
        ValueError: if an address is malformed or occurs twice, there are fewer than two workers, or the index is none
            of theirs.

    Example:

    >>> cluster = Cluster(("first:2222", "second:2222"), index=1)
    >>> cluster.describe(1)
    'worker 1 (second:2222)'
    """

    workers: tuple[str, ...]
    index: int

    def __post_init__(self):
        if isinstance(self.workers, str) or not all(isinstance(worker, str) for worker in self.workers):
            raise ValueError(f'workers must be a tuple of "host:port", got {self.workers!r}')
        object.__setattr__(self, "workers", tuple(self.workers))
        for worker in self.workers:
            if split_address(worker) is None:
                raise ValueError(f"a worker is host:port with a port from 1 to 65535, got {worker!r}")
        if len(set(self.workers)) < len(self.workers):
            raise ValueError(f"each worker needs an address of its own, got {', '.join(self.workers)}")
        if len(self.workers) < 2:
            raise ValueError(
                f"a job of several workers has at least two, got {len(self.workers)}: {list(self.workers)}. On one "
                "machine take the strategy mirrored or one_device"
            )
        if type(self.index) is not int or not 0 <= self.index < len(self.workers):
            raise ValueError(
                f"the index of a worker is 0 to {len(self.workers) - 1} with {len(self.workers)} workers, "
                f"got {self.index!r}"
            )

    @classmethod
    def from_tf_config(cls, text):
        """Reads what cluster managers write into the environment variable TF_CONFIG.

        Args:
            text: str, JSON with `cluster` (addresses by role) and `task` (`type` and `index` of this process). Roles
                are `worker` and `chief`; a chief becomes worker 0.

        Returns:
            Cluster.

        Raises:
            ValueError: if it is malformed, or has parameter servers or an evaluator.

        Example:

        >>> Cluster.from_tf_config(
        ...     '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
        ... )
        Cluster(workers=('a:1', 'b:1'), index=1)
        """
        cluster, task = _parts_of_tf_config(text)
        chiefs, workers = (cluster.get(role, []) for role in _ROLES)
        if len(chiefs) > 1:
            raise ValueError(f"TF_CONFIG has one chief at most, got {len(chiefs)}: {chiefs}")
        role, index = task.get("type"), task.get("index")
        if role in _REFUSED_ROLES:
            raise ValueError(f"TF_CONFIG makes this process a {role}: {_REFUSED_ROLES[role]}")
        if role not in cluster:
            raise ValueError(f"TF_CONFIG: task type must be one of the cluster's {sorted(cluster)}, got {role!r}")
        if not str(index).isdigit() or int(index) >= len(cluster[role]):
            raise ValueError(f"TF_CONFIG: the index of a {role} is 0 to {len(cluster[role]) - 1}, got {index!r}")
        return cls((*chiefs, *workers), int(index) + (len(chiefs) if role == "worker" else 0))

    def describe(self, index):
        """A worker in words: its number, and its address.

        Args:
            index: int.

        Returns:
            str.
        """
        return f"worker {index} ({self.workers[index]})"


def _parts_of_tf_config(text):
    """The cluster and the task of TF_CONFIG, each of the form that it must have."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"TF_CONFIG is not JSON ({error}): {text!r}") from error
    form = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
    cluster = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict) or not cluster:
        raise ValueError(f"TF_CONFIG must be like {form}, got {text!r}")
    for role, addresses in cluster.items():
        if role in _REFUSED_ROLES:
            raise ValueError(f"TF_CONFIG has the role {role}: {_REFUSED_ROLES[role]}")
        if role not in _ROLES:
            raise ValueError(f"TF_CONFIG has the role {role!r}; allowed are {', '.join(_ROLES)}")
        if not isinstance(addresses, list):
            raise ValueError(f'TF_CONFIG: the addresses of {role} must be a list of "host:port", got {addresses!r}')
    return cluster, task


def wait_for_workers(cluster, timeout_seconds, devices=""):
    """Returns once all workers are there and agree on who they are; to be called before TensorFlow connects them.

    TensorFlow itself waits without end for a worker that does not come, deaf to signals. Here each worker listens on
    its own port, which TensorFlow takes over afterwards, and exchanges one line of JSON with every other.

    Args:
        cluster: `Cluster`.
        timeout_seconds: float. How long to wait for the last of them.
        devices: str, what this worker computes on; it must be the same on all.

    Raises:
        TimeoutError: if workers did not come; the message names them.
        ValueError: if another worker was started with other addresses, the same index or other devices.
        OSError: if this worker's port is taken.
    """
    _Meeting(cluster, timeout_seconds, devices).hold()


class _Meeting:
    """Whom of the workers this one has exchanged its line with."""

    def __init__(self, cluster, timeout_seconds, devices):
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._own = {"workers": list(cluster.workers), "index": cluster.index, "devices": devices}
        self._met = {cluster.index}
        self._disagreement = None
        self._has_ended = threading.Event()

    def hold(self):
        with self._listen() as server:
            thread = threading.Thread(target=self._answer, args=(server,), daemon=True)
            thread.start()
            try:
                self._ask_until_all_are_there()
            finally:
                self._has_ended.set()
                thread.join()

    def _listen(self):
        port = split_address(self._cluster.workers[self._cluster.index])[1]
        give_up = time.monotonic() + min(_PORT_WAIT_SECONDS, self._timeout_seconds)
        while True:
            try:
                return _listener(port)
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                if not taken or time.monotonic() > give_up:
                    hint = ". Another process has it: one of an earlier run, or a second one with this index"
                    raise OSError(
                        error.errno,
                        f"{self._cluster.describe(self._cluster.index)} cannot listen on port {port}: "
                        f"{error.strerror}{hint if taken else ''}",
                    ) from error
            time.sleep(0.5)

    def _answer(self, server):
        server.settimeout(0.2)
        while not self._has_ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_HELLO_SECONDS)
                    hello = _receive_line(connection)
                    if hello is not None:
                        _send_line(connection, self._own)
                        self._meet(hello)

    def _ask_until_all_are_there(self):
        started = reported = time.monotonic()
        while missing := [index for index in range(len(self._cluster.workers)) if index not in self._met]:
            for index in missing:
                self._ask(index)
                if self._disagreement is not None:
                    raise ValueError(self._disagreement)
            now = time.monotonic()
            names = ", ".join(self._cluster.describe(index) for index in missing)
            if now - started > self._timeout_seconds:
                raise TimeoutError(
                    f"not all workers came within {self._timeout_seconds:g} seconds; missing: {names}. Each must be "
                    "started with the same list of workers and its own index, and be reachable under its address"
                )
            if now - reported > _SECONDS_BETWEEN_REPORTS:
                reported = now
                logging.info("waiting for %s", names)
            time.sleep(0.2)
        if self._disagreement is not None:
            raise ValueError(self._disagreement)

    def _ask(self, index):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(split_address(self._cluster.workers[index]), _HELLO_SECONDS) as connection,
        ):
            _send_line(connection, self._own)
            hello = _receive_line(connection)
            if hello is not None:
                self._meet(hello, index)

    def _meet(self, hello, asked=None):
        """Notes a worker that is there, or how what it says does not fit."""
        index, own = hello["index"], self._own
        address = "a worker" if asked is None else f"the worker at {self._cluster.workers[asked]}"
        if hello["workers"] != own["workers"]:
            self._disagreement = (
                f"{address} was started with other workers than this one: {hello['workers']}, here they are "
                f"{own['workers']}. All need the same list in the same order"
            )
        elif index == own["index"] or index != (index if asked is None else asked):
            self._disagreement = (
                f"{address} says that its index is {index}; this one's is {own['index']}"
                f"{'' if asked is None else f', and its should be {asked}'}. Each needs its own place in the list"
            )
        elif hello["devices"] != own["devices"]:
            self._disagreement = (
                f"{self._cluster.describe(index)} computes on {hello['devices']}, and this one on {own['devices']}. "
                "All need the same number and kind of devices"
            )
        else:
            self._met.add(index)


def _listener(port):
    """A socket that listens on all of the machine's addresses, as TensorFlow's server will."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _send_line(connection, value):
    connection.sendall(json.dumps(value).encode() + b"\n")


def _receive_line(connection):
    """What the other side says if it is a worker that waits, too, or None."""
    with connection.makefile("rb") as lines:
        line = lines.readline(1 << 20)
    try:
        hello = json.loads(line)
    except ValueError:
        return None
    return hello if isinstance(hello, dict) and set(hello) == {"workers", "index", "devices"} else None


def unreachable_workers(cluster, timeout_seconds=5.0):
    """The other workers of a running job whose TensorFlow does not answer: dead, frozen, restarted or cut off.

    Args:
        cluster: `Cluster`.
        timeout_seconds: float. How long to wait for an answer; all are asked at once.

    Returns:
        tuple of int, their indices.
    """
    others = [index for index in range(len(cluster.workers)) if index != cluster.index]
    with ThreadPoolExecutor(min(len(others), 64)) as pool:
        answers = pool.map(lambda index: _answers(cluster.workers[index], timeout_seconds), others)
        return tuple(index for index, answered in zip(others, answers, strict=True) if not answered)


def _answers(address, timeout_seconds):
    try:
        return speaks_grpc(*split_address(address), timeout_seconds)
    except OSError:
        return False


def describe_lost_workers(cluster, error=None, timeout_seconds=5.0):
    """Says in one line which workers were lost, and how to go on.

    All other workers are asked, and those named that do not answer: among them may be some that noticed the loss first
    and have ended already. If all answer, those are named that the error speaks of.

    Args:
        cluster: `Cluster`.
        error: the exception that TensorFlow raised, or None.
        timeout_seconds: float. How long to wait for their answers.

    Returns:
        str.
    """
    return f"{_loss(cluster, error, timeout_seconds)}. {_HOW_TO_GO_ON}"


def _loss(cluster, error=None, timeout_seconds=5.0):
    text = "" if error is None else getattr(error, "message", None) or str(error)
    reason = f" ({_first_reason(text)})" if text.strip() else ""
    silent = unreachable_workers(cluster, timeout_seconds)
    blamed = {int(index) for index in _TASK.findall(text)} & set(range(len(cluster.workers))) - {cluster.index}
    names = ", ".join(cluster.describe(index) for index in silent or sorted(blamed))
    if silent:
        return f"lost {names}{reason}"
    if blamed:
        return f"lost {names}{reason}, which answers now: it may have been restarted"
    return f"the workers lost each other{reason}; all of them answer now: one may have been restarted, or be stuck"


def _first_reason(text):
    """The first line of an error's text that speaks of the fault, without what TensorFlow writes around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if _OF_COLLECTIVES.search(line)), lines[0])
    return reason.removeprefix("Collective ops is aborted by: ")[:300].rstrip(".:")


@contextlib.contextmanager
def watch_workers(cluster):
    """While it lasts, a worker that is lost ends this process with a message that names it.

    TensorFlow raises an error in an operation that waits for the lost worker; it is turned into a `WorkerLostError`.
    A process that is busy with something else would notice late; a thread that asks the others every 5 seconds ends it
    by `os._exit(1)` once one of them has been silent for 20 to 25 seconds and 10 more have passed. All workers must
    leave it together, as they do right after a barrier.

    Args:
        cluster: `Cluster`, or None, which is no other worker and nothing to watch.

    Raises:
        WorkerLostError: if TensorFlow lost the connection to a worker.
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
        if not _OF_COLLECTIVES.search(error.message):
            raise
        loss = _loss(cluster, error)
        _tell_the_others(loss)
        raise WorkerLostError(f"{loss}. {_HOW_TO_GO_ON}") from error
    finally:
        has_ended.set()
        thread.join()


def _tell_the_others(message):
    """Ends what the other workers wait for, so that they look for the lost one while this one still answers."""
    with contextlib.suppress(tf.errors.OpError, ValueError):  # without the chief it cannot; they notice by themselves
        context.context().report_error_to_cluster(tf.errors.UNAVAILABLE, message)


def _watch(cluster, has_ended):
    silent_probes = dict.fromkeys(range(len(cluster.workers)), 0)
    lost, pause = [], _PROBE_SECONDS
    while not lost:
        if has_ended.wait(pause):
            return
        started = time.monotonic()
        silent = unreachable_workers(cluster, _PROBE_SECONDS - 1)
        pause = max(0.0, started + _PROBE_SECONDS - time.monotonic())
        silent_probes = {index: count + 1 if index in silent else 0 for index, count in silent_probes.items()}
        lost = [index for index, count in silent_probes.items() if count >= _SILENT_PROBES]
    if not has_ended.wait(_LAST_WORDS_SECONDS):
        logging.error("%s", describe_lost_workers(cluster))
        logging.flush()
        os._exit(1)
