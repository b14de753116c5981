"""The meeting of all workers of a job before TensorFlow connects them."""

import contextlib
import errno
import hashlib
import hmac
import json
import socket
import threading
import time
from typing import Any

from absl import logging

from keras_bert.io.addresses import split_address
from keras_bert.io.untrusted_files import parse_json
from keras_bert.training.cluster import Cluster

_PORT_WAIT_SECONDS = 10.0  # for a port that a process of the previous job still holds: those end within 3
_HELLO_SECONDS = 5.0  # for a whole greeting, however slowly it comes
_MAX_HELLO_BYTES = 1 << 20
_MAX_CONNECTIONS = 64  # that are answered at once; a worker whose connection is closed asks again
_SECONDS_BETWEEN_REPORTS = 30.0


def wait_for_workers(cluster: Cluster, timeout_seconds: float, devices: str = "", job_key: str = "") -> None:
    """Returns once all workers are up and agree on the cluster; call it before TensorFlow connects them.

    TensorFlow itself waits forever for a missing worker, without reacting to signals. Here, every worker listens on its
    own port, which TensorFlow takes over later, and exchanges one line of JSON with every other worker. `devices`
    describes the devices of this worker, which must be the same on all.

    Whatever else connects to the port is dropped with a line in the log and delays nobody: a greeting that is
    malformed, longer than 1 MiB, slower than 5 seconds, or not signed with the `job_key`. Workers of another job have
    another key; without a key, anybody who reaches the port can make this worker stop by greeting it with other
    addresses. (The key protects this meeting only, not TensorFlow's own connections.)

    Raises:
        TimeoutError: If workers are missing.
        ValueError: If another worker has other addresses, the same index or other devices.
        OSError: If this worker's port is in use.
    """
    _Rendezvous(cluster, timeout_seconds, devices, job_key).hold()


class _Rendezvous:
    def __init__(self, cluster: Cluster, timeout_seconds: float, devices: str, job_key: str) -> None:
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._job_key = job_key.encode()
        self._connections: set[socket.socket] = set()  # those of others, until they are answered
        self._drops: dict[str, int] = {}  # how many greetings were dropped for which reason
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
                for connection in list(self._connections):  # those that are silent: they hold the port
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

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
                connection, (host, *_) = server.accept()
                if len(self._connections) >= _MAX_CONNECTIONS:
                    connection.close()
                    self._drop(host, f"{_MAX_CONNECTIONS} other connections are open")
                    continue
                self._connections.add(connection)
                # A thread each: whoever connects and stays silent must not keep the workers waiting.
                threading.Thread(target=self._answer_one, args=(connection, host), daemon=True).start()

    def _answer_one(self, connection: socket.socket, host: str) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                hello = self._receive_hello(connection, host)
                if hello is not None:
                    self._send_hello(connection)
                    self._meet(hello)
        finally:
            self._connections.discard(connection)

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
                    f"{self._describe_drops()}"
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
            self._send_hello(connection)
            hello = self._receive_hello(connection, self._cluster.describe(index))
            if hello is not None:
                self._meet(hello, index)

    def _send_hello(self, connection: socket.socket) -> None:
        connection.settimeout(_HELLO_SECONDS)
        connection.sendall(json.dumps({**self._hello, "signature": self._sign(self._hello)}).encode() + b"\n")

    def _sign(self, hello: dict[str, Any]) -> str:
        text = json.dumps(hello, sort_keys=True)
        return hmac.new(self._job_key, text.encode(), hashlib.sha256).hexdigest()

    def _receive_hello(self, connection: socket.socket, sender: str) -> dict[str, Any] | None:
        """Returns the hello of another waiting worker of this job; drops everything else, and returns None."""
        try:
            hello = _parse_hello(_receive_line(connection))
            if not hmac.compare_digest(hello.pop("signature").encode(), self._sign(hello).encode()):
                raise ValueError("it has another job key, so it is of another job")
        except ValueError as error:
            self._drop(sender, str(error))
            return None
        return hello

    def _drop(self, sender: str, reason: str) -> None:
        if self._has_ended.is_set():
            return
        self._drops[reason] = number = self._drops.get(reason, 0) + 1
        if number == 1:
            logging.warning("dropped a greeting from %s: %s", sender, reason)

    def _describe_drops(self) -> str:
        drops = "; ".join(f"{number}: {reason}" for reason, number in self._drops.items())
        return f". Greetings were dropped ({drops})" if drops else ""

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


def _receive_line(connection: socket.socket) -> bytes:
    """Receives up to a line feed, within limits of time and size that hold for the whole line."""
    deadline, line = time.monotonic() + _HELLO_SECONDS, bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            received = connection.recv(1 << 16)
        except TimeoutError:
            received = None
        if received is None or time.monotonic() > deadline:
            raise ValueError(f"it did not end within {_HELLO_SECONDS:g} seconds")
        line += received
        if len(line) > _MAX_HELLO_BYTES:
            raise ValueError(f"it is longer than {_MAX_HELLO_BYTES} bytes")
        if not received:
            raise ValueError("the connection was closed before its end")
    return bytes(line)


def _parse_hello(line: bytes) -> dict[str, Any]:
    """Parses a greeting; raises ValueError unless it has the form of one."""
    try:
        hello = parse_json(line)
    except ValueError:
        hello = None
    kinds = {"workers": list, "index": int, "devices": str, "signature": str}
    is_hello = isinstance(hello, dict) and hello.keys() == kinds.keys()
    if not is_hello or not all(type(hello[name]) is kind for name, kind in kinds.items()):
        raise ValueError("it is not a worker's")
    if not all(type(worker) is str for worker in hello["workers"]) or not 0 <= hello["index"] < len(hello["workers"]):
        raise ValueError("it is not a worker's")
    return hello
