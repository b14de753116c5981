import signal
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.io.addresses import listening_sockets
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tools import data_service

SECONDS = 120
ROOT = Path(__file__).parents[2]


def start(*flags):
    command = [sys.executable, "-m", "tools.data_service", *flags]
    return ForkedProgram(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_to_end(*flags):
    process = start(*flags)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def stop(process, number):
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err[-2000:]
    return out


def interfaces_of_listening_sockets():
    """Returns {port: interface, or b"" for all} of this process."""
    return {
        server.getsockname()[1]: server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")
        for server in listening_sockets()
    }


@pytest.mark.parametrize(("host", "interface"), [("localhost", b"lo"), ("[::1]", b"lo"), ("data", b"")])
def test_localhost_is_not_reachable_from_other_machines(host, interface):
    values = types.SimpleNamespace(
        port=0, workers=1, worker_port=0, dispatcher=None, host=host, work_dir=None, tensorflow_text=False
    )
    others = interfaces_of_listening_sockets()
    address, servers = data_service.start_service(values)
    assert address.startswith(f"grpc://{host}:")
    interfaces = {port: name for port, name in interfaces_of_listening_sockets().items() if port not in others}
    assert int(address.rpartition(":")[2]) in interfaces
    assert list(interfaces.values()) == [interface] * len(servers)


@pytest.mark.slow
def test_a_dispatcher_and_its_workers_in_separate_processes():
    dispatcher = start("--port=0", "--workers=1")
    address = dispatcher.stdout.readline().strip()
    assert address.startswith("grpc://localhost:")
    workers = start(f"--dispatcher={address}", "--workers=2", "--host=127.0.0.1", "--tensorflow_text")
    assert workers.stdout.readline().strip() == address
    distribute = tf.data.experimental.service.distribute("distributed_epoch", address, "numbers")
    assert sorted(tf.data.Dataset.range(40).apply(distribute).as_numpy_iterator()) == list(range(40))
    code, _, err = run_to_end(f"--port={address.rpartition(':')[2]}")
    assert code == 1
    assert "cannot be used: Address already in use" in err
    stop(workers, signal.SIGINT)
    assert stop(dispatcher, signal.SIGTERM) == ""


@pytest.mark.slow
def test_refuses_a_dispatcher_that_does_not_answer():
    (address,) = free_addresses(1)
    code, out, err = run_to_end(f"--dispatcher=grpc://{address}")
    assert (code, out) == (1, "")
    assert f"{address} does not answer" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port=70000"], "port"),
        (["--workers=-1"], "workers"),
        (["--host=a b"], "must be a host name"),
        (["--host=0.0.0.0"], "an address to connect to"),
        (["--host=[::]"], "an address to connect to"),
        (["--dispatcher=grpc://other:1"], "is on another machine, which cannot connect to workers at --host=localhost"),
        (["--dispatcher=grpc://a:1", "--workers=0"], "nothing to run"),
        (["--dispatcher=grpc://a:1", "--work_dir=state"], "belongs to a dispatcher"),
        (["more"], "more is not understood"),
    ],
)
def test_refuses_invalid_flags(flags, message):
    code, out, err = run_to_end(*flags)
    assert code == 1
    assert message in out + err
