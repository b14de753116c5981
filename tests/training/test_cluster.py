import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from keras_bert.training import lost_workers, worker_rendezvous
from keras_bert.training.cluster import Cluster
from keras_bert.training.lost_workers import WorkerLostError, describe_lost_workers, watch_workers
from keras_bert.training.worker_rendezvous import wait_for_workers
from tests.addresses import free_addresses

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@contextlib.contextmanager
def listening(address, answer=None):
    """Accepts connections, as the kernel does for a frozen process, or answers each with some bytes."""
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))) as server:
        connections = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connections.append(server.accept()[0])
                    connections[-1].sendall(answer)

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("workers", "index", "message"),
    [
        (("a:1", "b"), 0, "host:port with a port from 1 to 65535, got 'b'"),
        *((("a:1", bad), 0, f"got '{bad}'") for bad in ("b:0", "b:65536", "http://b:2", "b:2 ", "::1:2")),
        (("a:1", "a:1"), 0, "its own address"),
        (("a:1",), 0, "at least two"),
        (("a:1", "b:2"), 2, "0 to 1 with 2 workers, got 2"),
        (("a:1", "b:2"), -1, "got -1"),
        (("a:1", "b:2"), None, "got None"),
        ("a:1,b:2", 0, "must be a tuple"),
    ],
)
def test_rejects_malformed_clusters(workers, index, message):
    with pytest.raises(ValueError, match=message):
        Cluster(workers, index)


def test_accepts_host_names_and_addresses():
    workers = ("bert-0.bert:2222", "10.0.0.7:1", "[fe80::1]:65535", "worker_2:80")
    assert Cluster(list(workers), 2).workers == workers


def config(cluster, task_type="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, "environment": "cloud"})


def test_parses_tf_config():
    both = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert Cluster.from_tf_config(config(both, "chief")) == Cluster(("a:1", "b:1", "c:1"), 0)
    assert Cluster.from_tf_config(config(both, "worker", "1")) == Cluster(("a:1", "b:1", "c:1"), 2)
    assert Cluster.from_tf_config(config({"worker": ["b:1", "c:1"]}, index=1)) == Cluster(("b:1", "c:1"), 1)


TWO = {"worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        *((text, "must be like") for text in ("[]", "{}", config({}))),
        (config({**TWO, "ps": ["c:1"]}), "does not support parameter servers"),
        (config({**TWO, "evaluator": ["c:1"]}), "no evaluator process"),
        (config(TWO, "evaluator"), "no evaluator process"),
        (config({**TWO, "master": ["c:1"]}), "role 'master'; allowed are chief, worker"),
        (config({"worker": "a:1,b:1"}), "must be a list"),
        (config({"worker": [1, 2]}), "must be a tuple"),
        (config({"chief": ["a:1", "b:1"]}, "chief"), "one chief at most"),
        (config(TWO, "chief"), r"one of the cluster's \['worker'\], got 'chief'"),
        (config(TWO, index=2), "0 to 1, got 2"),
        (config(TWO, index=None), "0 to 1, got None"),
        (config({"worker": ["a:1"]}), "at least two"),
    ],
)
def test_rejects_malformed_tf_config(text, message):
    with pytest.raises(ValueError, match=message):
        Cluster.from_tf_config(text)


def rendezvous(*calls):
    """Calls `wait_for_workers` with several arguments at once; returns the errors."""

    def call(arguments):
        try:
            wait_for_workers(*arguments)
        except (OSError, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(call, calls))


def test_workers_meet_and_free_their_ports():
    addresses = free_addresses(3)
    assert rendezvous(*((Cluster(addresses, index), 20.0) for index in range(3))) == [None] * 3
    for address in addresses:
        with listening(address):
            pass


def test_names_missing_workers():
    addresses = free_addresses(3)
    errors = rendezvous(*((Cluster(addresses, index), 1.0) for index in (0, 2)))
    for error in errors:
        assert isinstance(error, TimeoutError)
        assert f"missing: worker 1 ({addresses[1]}). Each must be started" in str(error)


def test_ignores_another_program_on_the_port():
    addresses = free_addresses(2)
    with listening(addresses[1], answer=b"SSH-2.0-OpenSSH\r\n"):
        (error,) = rendezvous((Cluster(addresses, 0), 1.0))
    assert isinstance(error, TimeoutError)
    with listening(addresses[0]):
        (error,) = rendezvous((Cluster(addresses, 0), 0.1))
    assert "worker 0" in str(error) and "cannot listen on port" in str(error) and "Another process" in str(error)


def test_rejects_workers_that_disagree():
    addresses = free_addresses(2)
    others = (*addresses, "c:1")
    for calls, message in (
        ([(Cluster(addresses, 0), 20.0), (Cluster(others, 1), 20.0)], "was started with other workers"),
        ([(Cluster(addresses, 0), 20.0, "8 GPUs"), (Cluster(addresses, 1), 20.0, "CPU")], "computes on"),
    ):
        assert [message in str(error) for error in rendezvous(*calls)] == [True, True]


def greeting(key="", **hello):
    """The line with which a worker greets another."""
    signature = hmac.new(key.encode(), json.dumps(hello, sort_keys=True).encode(), hashlib.sha256).hexdigest()
    return json.dumps({**hello, "signature": signature}).encode() + b"\n"


def test_rejects_two_workers_with_the_same_index():
    # The second worker is imitated: on another machine, it could use the same port.
    addresses = free_addresses(2)
    with listening(addresses[1], answer=greeting(workers=addresses, index=0, devices="")):
        (error,) = rendezvous((Cluster(addresses, 0), 20.0))
    assert f"the worker at {addresses[1]} has the index 0; this worker has 0, and its index should be 1" in str(error)


def test_workers_meet_in_spite_of_other_greetings(caplog, monkeypatch):
    """Every worker is greeted by strangers before the others are up, and one of them never says anything."""
    monkeypatch.setattr(worker_rendezvous, "_HELLO_SECONDS", 0.5)
    addresses = free_addresses(2)
    hello = {"workers": addresses, "index": 1, "devices": ""}
    malformed = [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"9" * 100_000 + b"\n",
        json.dumps(hello).encode() + b"\n",  # without a signature
        greeting(**{**hello, "workers": 5}),
        greeting(**{**hello, "workers": [5, {}]}),
        greeting(**{**hello, "index": 400}),
        greeting(**{**hello, "index": [1]}),
        greeting(**{**hello, "devices": None}),
        greeting("another job", **{**hello, "workers": ["c:1", "d:1"]}),
        b"x" * (1 << 20) + b"xxxx",
        b"slow",
        b"",
    ]
    with ThreadPoolExecutor(2) as threads, contextlib.ExitStack() as stack:
        first = threads.submit(wait_for_workers, Cluster(addresses, 0), 20.0, "", "job 7")
        for message in malformed:
            connection = stack.enter_context(connected(addresses[0]))
            with contextlib.suppress(OSError):  # it hangs up in the middle of the longest one
                connection.sendall(message)
        time.sleep(0.7)  # so that the slow ones are dropped before all workers have met
        threads.submit(wait_for_workers, Cluster(addresses, 1), 20.0, "", "job 7").result(20)
        first.result(20)
    for reason in ("it is not a worker's", "another job key", "longer than 1048576 bytes", "within 0.5 seconds"):
        assert reason in caplog.text


def connected(address):
    """A connection to an address at which a server is about to listen."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", int(address.split(":")[1])), 5)
        time.sleep(0.05)
    raise TimeoutError(address)


def test_names_the_reason_why_a_worker_is_missing():
    addresses = free_addresses(2)
    errors = rendezvous(*((Cluster(addresses, index), 1.0, "", f"key {index}") for index in range(2)))
    assert ["it has another job key, so it is of another job" in str(error) for error in errors] == [True, True]


def test_finds_dead_frozen_and_restarted_workers():
    addresses = free_addresses(5)
    with (
        listening(addresses[1], answer=SETTINGS),  # alive
        listening(addresses[2]),  # frozen
        listening(addresses[4], answer=b'{"workers": []}\n'),  # started again, it waits for the others
    ):
        assert lost_workers.find_unreachable_workers(Cluster(addresses, 0), 0.3) == (2, 3, 4)
        assert lost_workers.find_unreachable_workers(Cluster(addresses, 3), 0.3) == (0, 2, 4)


# Messages of TensorFlow 2.21.
RESET = (
    "Collective ops is aborted by: failed to connect to all addresses; last error: UNKNOWN: Connection refused\n"
    "Additional GRPC error information from remote target /job:worker/replica:0/task:2 while calling "
    "/tensorflow.WorkerService/RecvBuf:\nThe error could be from a previous operation. Restart your program to reset."
)
NO_HEARTBEAT = (
    "Graph execution error:\n\nDetected at node CollectiveReduceV2\n\n"
    "Collective ops is aborted by: Error reported from /job:worker/task:2: The following tasks are unhealthy "
    "(stopped sending heartbeats):\n/job:worker/replica:0/task:2"
)


def test_names_lost_workers():
    addresses = free_addresses(3)
    cluster = Cluster(addresses, 0)
    with listening(addresses[1], answer=SETTINGS):
        line = describe_lost_workers(cluster, tf.errors.UnavailableError(None, None, NO_HEARTBEAT), 0.3)
        assert line.startswith(
            f"lost worker 2 ({addresses[2]}) (Error reported from /job:worker/task:2: The following tasks are "
            "unhealthy (stopped sending heartbeats)). "
        )
        assert "same command" in line and "newest checkpoint" in line and "\n" not in line
        assert describe_lost_workers(cluster, timeout_seconds=0.3).startswith(f"lost worker 2 ({addresses[2]}). ")
        with listening(addresses[2], answer=SETTINGS):
            line = describe_lost_workers(cluster, tf.errors.UnavailableError(None, None, RESET), 0.3)
            assert line.startswith(f"lost worker 2 ({addresses[2]}) (failed to connect")
            assert "it may have been restarted" in line
            line = describe_lost_workers(cluster, RuntimeError("Collective has timed out during execution."), 0.3)
            assert "(Collective has timed out during execution); all of them answer now" in line


def test_only_connection_errors_count_as_a_loss():
    cluster = Cluster(free_addresses(2), 0)
    with pytest.raises(WorkerLostError, match=r"lost worker 1 \(127.0.0.1"), watch_workers(cluster):
        raise tf.errors.DeadlineExceededError(None, None, "Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/X")
    with pytest.raises(tf.errors.InvalidArgumentError), watch_workers(cluster):
        raise tf.errors.InvalidArgumentError(None, None, "indices[0] = 9 is not in [0, 5)")
    with pytest.raises(tf.errors.UnavailableError), watch_workers(None):
        raise tf.errors.UnavailableError(None, None, NO_HEARTBEAT)
