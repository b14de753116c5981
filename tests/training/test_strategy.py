import contextlib
import json
import math
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from keras_bert.training.cluster import Cluster
from keras_bert.training.strategy import (
    any_worker,
    broadcast_from_chief,
    describe_strategy,
    get_cluster,
    get_num_workers,
    get_worker,
    is_chief,
    make_strategy,
    worker_barrier,
)
from tests.addresses import free_addresses
from tests.forked import ForkedProgram

CLUSTER = Cluster(("a:1", "b:1"), 0)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("parameter_server", {}, "Keras 3 does not support parameter servers.*Allowed are one_device, mirrored"),
        ("keras.distribution", {}, "keras.distribution does nothing.*on one device"),
        ("horovod", {}, "unknown strategy 'horovod'; allowed are one_device, mirrored, multi_worker, tpu"),
        ("one_device", {"num_logical_devices": 2}, "num_logical_devices belongs to the strategy mirrored"),
        ("multi_worker", {"cluster": CLUSTER, "num_logical_devices": 2}, "num_logical_devices belongs to"),
        ("mirrored", {"num_logical_devices": 0}, "at least 1, got 0"),
        ("mirrored", {"num_logical_devices": True}, "at least 1, got True"),
        ("mirrored", {"cluster": CLUSTER}, "cluster belongs to the strategy multi_worker; the strategy is mirrored"),
        ("one_device", {"tpu": "local"}, "tpu belongs to the strategy tpu"),
        ("multi_worker", {}, "needs a Cluster"),
        ("multi_worker", {"cluster": ["a:1", "b:1"]}, "needs a Cluster"),
        ("tpu", {}, 'needs a TPU: "local", a name'),
        ("tpu", {"tpu": "local"}, "built without support"),
        ("tpu", {"tpu": "grpc://127.0.0.1"}, "has no port"),
    ],
)
def test_rejects_strategies_that_cannot_be_made(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_strategy(name, **arguments)


def test_rejects_a_tpu_that_does_not_answer():
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"cannot use the TPU 'grpc://127.0.0.1:\d+'.*refused"):
        make_strategy("tpu", tpu=f"grpc://{free_addresses(1)[0]}")
    assert time.monotonic() - started < 5


def test_rejects_keras_distribution(monkeypatch):
    monkeypatch.setattr(keras.distribution, "distribution", lambda: object())
    with pytest.raises(ValueError, match=r"keras\.distribution is in use, and is refused"):
        make_strategy("one_device")


def test_rejects_a_strategy_inside_another():
    scope = tf.distribute.MirroredStrategy(["CPU:0"]).scope()
    with scope, pytest.raises(ValueError, match="inside the scope of another"):
        make_strategy("one_device")


def test_rejects_new_devices_after_tensorflow_has_started():
    tf.constant(0)
    with pytest.raises(RuntimeError, match="too late for the strategy multi_worker"):
        make_strategy("multi_worker", cluster=CLUSTER)
    message = "too late to split the CPU into 7 logical devices: TensorFlow has started with 1"
    with pytest.raises(RuntimeError, match=message):
        make_strategy("mirrored", num_logical_devices=7)


def test_refuses_to_split_the_cpu_if_there_are_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [SimpleNamespace(name=kind)] * 2)
    with pytest.raises(ValueError, match=r"splits the CPU.*has 2 GPUs"):
        make_strategy("mirrored", num_logical_devices=2)


def test_a_single_process_is_chief_and_does_not_wait():
    for strategy in (make_strategy("one_device"), make_strategy("mirrored")):
        assert get_cluster(strategy) is None
        assert (get_worker(strategy), get_num_workers(strategy), is_chief(strategy)) == ((0, 1), 1, True)
        worker_barrier(strategy)
        assert (any_worker(strategy, 1), any_worker(strategy, False)) == (True, False)
        assert broadcast_from_chief(strategy, [0.1, 2]) == [0.1, 2.0]
    description = {"strategy": "one_device", "replicas": "1", "devices": "CPU 0"}
    assert describe_strategy(make_strategy("one_device")) == description


# By name: index of the lost worker, signal, and whether the other worker is busy.
LOSSES = {
    "the chief freezes": (0, signal.SIGSTOP, True),
    "a worker is killed": (1, signal.SIGKILL, False),
    "the chief is terminated": (0, signal.SIGTERM, False),  # TensorFlow's own handler would ignore it
}


def end(processes):
    """Kills the processes, and returns their output."""
    for process in processes:
        process.kill()
    return [process.communicate() for process in processes]


@pytest.fixture(scope="module")
def pairs():
    """Pairs of workers that have communicated before one of them was lost, by name."""
    pairs = {}
    with contextlib.ExitStack() as stack:
        for name, (lost, number, busy) in LOSSES.items():
            addresses = free_addresses(2)
            command = [sys.executable, "-m", "tests.training.workers_program", ",".join(addresses)]
            ending = [str(lost), str(int(number)), *(["busy"] if busy else [])]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            processes = [ForkedProgram([*command, str(index), *ending], **pipes) for index in range(2)]
            stack.callback(end, processes)
            lines = [process.stdout.readline() for process in (*processes, processes[lost])]
            assert all(lines), end(processes)
            *reports, loss = map(json.loads, lines)
            pairs[name] = SimpleNamespace(addresses=addresses, processes=processes, reports=reports, **loss)
        for name, pair in pairs.items():
            _, pair.errors = pair.processes[1 - LOSSES[name][0]].communicate(timeout=120)
            pair.seconds = time.time() - pair.lost_at
        yield pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_workers_communicate_and_name_a_lost_worker(pairs, name):
    pair, (lost, number, _) = pairs[name], LOSSES[name]
    found = pair.reports
    assert [each["is_chief"] for each in found] == [True, False]
    expected = {"sums": [3.0, 3.0, 3.0], "any_worker": [True, False], "broadcast_from_chief": [0.1, math.inf]}
    assert all(expected.items() <= each.items() for each in found)
    assert found[1]["run_info"]["workers"] == f"2; this is worker 1 ({pair.addresses[1]})"
    # The second worker reached the barrier first, and waited for the chief.
    assert found[1]["waited"][0] < found[0]["waited"][0] - 0.5 < found[1]["waited"][1]

    assert pair.seconds < 60
    assert pair.processes[1 - lost].returncode == 1
    if number != signal.SIGSTOP:
        assert pair.processes[lost].wait(timeout=10) == -number
    assert f"lost worker {lost} ({pair.addresses[lost]})" in pair.errors
    assert "restart all workers with the same command" in pair.errors
