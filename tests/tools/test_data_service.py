"""The service as processes: it says where it is, gives data, refuses what cannot work, and ends when it is told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.addresses import free_addresses
from tests.forked import ForkedProgram

SECONDS = 120
ROOT = Path(__file__).parents[2]


def start(*flags):
    return ForkedProgram(
        [sys.executable, "-m", "tools.data_service", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(*flags):
    process = start(*flags)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def end(process, number):
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err[-2000:]
    return out


def numbers_from(address, job):
    dataset = tf.data.Dataset.range(40).apply(
        tf.data.experimental.service.distribute("distributed_epoch", address, job)
    )
    return sorted(dataset.as_numpy_iterator())


@pytest.mark.slow
def test_a_service_in_one_process():
    service = start("--port=0", "--workers=2")
    address = service.stdout.readline().strip()
    assert address.startswith("grpc://localhost:")
    assert numbers_from(address, "one process") == list(range(40))
    code, _, err = answer_of(f"--port={address.rpartition(':')[2]}")
    assert code == 1
    assert "cannot be used: Address already in use" in err
    assert end(service, signal.SIGTERM) == ""


@pytest.mark.slow
def test_a_dispatcher_and_its_workers_apart():
    dispatcher = start("--port=0", "--workers=0", "--host=127.0.0.1")
    address = dispatcher.stdout.readline().strip()
    assert address.startswith("grpc://127.0.0.1:")
    workers = start(f"--dispatcher={address}", "--workers=2", "--host=127.0.0.1", "--tensorflow_text")
    assert workers.stdout.readline().strip() == address
    assert numbers_from(address, "apart") == list(range(40))
    end(workers, signal.SIGINT)
    end(dispatcher, signal.SIGINT)


@pytest.mark.slow
def test_a_dispatcher_that_does_not_answer_is_refused():
    (address,) = free_addresses(1)
    code, out, err = answer_of(f"--dispatcher=grpc://{address}")
    assert (code, out) == (1, "")
    assert f"{address} does not answer" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port=70000"], "port"),
        (["--workers=-1"], "workers"),
        (["--host=a b"], "must be a host's name"),
        (["--dispatcher=grpc://a:1", "--workers=0"], "nothing to run"),
        (["--dispatcher=grpc://a:1", "--work_dir=state"], "belongs to a dispatcher"),
        (["more"], "more is not understood"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags, message):
    code, out, err = answer_of(*flags)
    assert code == 1
    assert message in out + err


def test_help_does_not_wait_for_tensorflow():
    started = os.times()
    subprocess.run([sys.executable, "-m", "tools.data_service", "--help"], cwd=ROOT, capture_output=True, check=False)
    ended = os.times()
    seconds = ended.children_user + ended.children_system - started.children_user - started.children_system
    assert seconds < 1  # of the processor: a busy machine does not matter
