"""The meeting of all workers of a job before TensorFlow connects them."""

import contextlib
import errno
import json
import socket
import threading
import time
from typing import Any

from absl import logging

from keras_bert.io.addresses import split_address
from keras_bert.training.cluster import Cluster

_PORT_WAIT_SECONDS = 10.0  # for a port that a process of the previous job still holds: those end within 3
_HELLO_SECONDS = 5.0
_SECONDS_BETWEEN_REPORTS = 30.0


def wait_for_workers(cluster: Cluster, timeout_seconds: float, devices: str = "") -> None:
    """Returns once all workers are up and agree on the cluster; call it before TensorFlow connects them.

    TensorFlow itself waits forever for a missing worker, without reacting to signals. Here, every worker listens on its
    own port, which TensorFlow takes over later, and exchanges one line of JSON with every other worker. `devices`
    describes the devices of this worker, which must be the same on all.

    Raises:
        TimeoutError: If workers are missing.
        ValueError: If another worker has other addresses, the same index or other devices.
        OSError: If this worker's port is in use.
    """
    _Rendezvous(cluster, timeout_seconds, devices).hold()


class _Rendezvous:
    def __init__(self, cluster: Cluster, timeout_seconds: float, devices: str) -> None:
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._hello = {"workers": list(cluster.workers), "index": cluster.index, "devices": devices}
        self._met = {cluster.index}
        self._disagreement: str | None = None
        self._has_ended = threading.Event()

    def hold(self) -> None:
        with self._listen() as server:
            thread = threading.Thread(target=self._answer, args=(server,), daemon=True)
            thread.start()
            try:
                self._ask_until_all_are_met()
            finally:
                self._has_ended.set()
                thread.join()

    def _listen(self) -> socket.socket:
        port = _split(self._cluster.workers[self._cluster.index])[1]
        deadline = time.monotonic() + min(_PORT_WAIT_SECONDS, self._timeout_seconds)
        while True:
            try:
                return _create_server(port)
            except OSError as error:
                is_in_use = error.errno == errno.EADDRINUSE
                if not is_in_use or time.monotonic() > deadline:
                    hint = ". Another process uses it: one of an earlier run, or another worker with the same index"
                    raise OSError(
                        error.errno,
                        f"{self._cluster.describe(self._cluster.index)} cannot listen on port {port}: "
                        f"{error.strerror}{hint if is_in_use else ''}",
                    ) from error
            time.sleep(0.5)

    def _answer(self, server: socket.socket) -> None:
        server.settimeout(0.2)
        while not self._has_ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_HELLO_SECONDS)
                    hello = _receive_hello(connection)
                    if hello is not None:
                        _send_hello(connection, self._hello)
                        self._meet(hello)

    def _ask_until_all_are_met(self) -> None:
        started = reported = time.monotonic()
        while missing := [index for index in range(len(self._cluster.workers)) if index not in self._met]:
            for index in missing:
                self._ask(index)
                self._raise_disagreement()
            now = time.monotonic()
            names = ", ".join(self._cluster.describe(index) for index in missing)
            if now - started > self._timeout_seconds:
                raise TimeoutError(
                    f"not all workers were up within {self._timeout_seconds:g} seconds; missing: {names}. Each must be "
                    "started with the same list of workers and its own index, and be reachable at its address"
                )
            if now - reported > _SECONDS_BETWEEN_REPORTS:
                reported = now
                logging.info("waiting for %s", names)
            time.sleep(0.2)
        self._raise_disagreement()

    def _raise_disagreement(self) -> None:
        if self._disagreement is not None:
            raise ValueError(self._disagreement)

    def _ask(self, index: int) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(_split(self._cluster.workers[index]), _HELLO_SECONDS) as connection,
        ):
            _send_hello(connection, self._hello)
            hello = _receive_hello(connection)
            if hello is not None:
                self._meet(hello, index)

    def _meet(self, hello: dict[str, Any], asked: int | None = None) -> None:
        """Records a worker that is up, or how its hello disagrees with this worker's."""
        index, ours = hello["index"], self._hello
        name = "a worker" if asked is None else f"the worker at {self._cluster.workers[asked]}"
        if hello["workers"] != ours["workers"]:
            self._disagreement = (
                f"{name} was started with other workers than this one: {hello['workers']}, here they are "
                f"{ours['workers']}. All need the same list in the same order"
            )
        elif index == ours["index"] or asked not in (None, index):
            expected = "" if asked is None else f", and its index should be {asked}"
            self._disagreement = (
                f"{name} has the index {index}; this worker has {ours['index']}{expected}. Each needs its own index"
            )
        elif hello["devices"] != ours["devices"]:
            self._disagreement = (
                f"{self._cluster.describe(index)} computes on {hello['devices']}, and this one on {ours['devices']}. "
                "All need the same number and kind of devices"
            )
        else:
            self._met.add(index)


def _split(address: str) -> tuple[str, int]:
    host_and_port = split_address(address)
    assert host_and_port is not None  # `Cluster` checked it
    return host_and_port


def _create_server(port: int) -> socket.socket:
    """Returns a socket that listens on all addresses of the machine, as TensorFlow's server will."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _send_hello(connection: socket.socket, hello: dict[str, Any]) -> None:
    connection.sendall(json.dumps(hello).encode() + b"\n")


def _receive_hello(connection: socket.socket) -> dict[str, Any] | None:
    """Returns the hello of another waiting worker, or None if the other side is something else."""
    with connection.makefile("rb") as lines:
        line = lines.readline(1 << 20)
    try:
        hello = json.loads(line)
    except ValueError:
        return None
    return hello if isinstance(hello, dict) and set(hello) == {"workers", "index", "devices"} else None
