import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.python_operation import python_operation
from tests.data.conftest import saved_and_restored
from tests.forked import ForkedProgram

PROGRAM = """
import signal, sys, threading, time
import tensorflow as tf
from keras_bert.data.python_operation import python_operation

is_inside = threading.Event()

def slow(number):
    if number:
        is_inside.set()
        time.sleep(3)
    return number

def in_pipeline(number):
    return python_operation(slow, [number], (tf.int64,))

iterator = iter(tf.data.Dataset.range(100).map(in_pipeline, num_parallel_calls=1).prefetch(1))
next(iterator)
is_inside.wait()
print("inside", flush=True)
"""


def in_pipeline(function, number=10, threads=None):
    numbers = tf.data.Dataset.range(number)
    return numbers.map(lambda n: python_operation(function, [n], (tf.int64,)), num_parallel_calls=threads)


def values(dataset):
    return [value.item() for (value,) in dataset.as_numpy_iterator()]


def test_takes_and_returns_arrays():
    def sums(rows, names):
        return rows.max(axis=1), np.array([name.upper() for name in names], object)

    @tf.function
    def call(rows, names):
        return python_operation(sums, [rows, names], (tf.int32, tf.string))

    result, names = call(tf.constant([[1, 2], [3, 4]]), tf.constant(["a", "b"]))
    assert result.numpy().tolist() == [2, 4]
    assert names.numpy().tolist() == [b"A", b"B"]


@pytest.mark.parametrize("is_symbolic", [False, True])
def test_a_pipeline_can_be_saved(tmp_path, is_symbolic):
    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = is_symbolic
    dataset = in_pipeline(lambda number: number * 2).with_options(options)
    restored = saved_and_restored(dataset, 1, tmp_path / "position")
    assert [int(value) for (value,) in restored] == [2 * number for number in range(1, 10)]


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_an_error_keeps_its_message_and_leaves_no_lock(threads):
    def fail(number):
        if number == 3:
            raise ValueError("a.txt is not UTF-8")
        return number

    for _ in range(3):
        iterator = iter(in_pipeline(fail, threads=threads).prefetch(2))
        assert [int(next(iterator)[0]) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"ValueError: a\.txt is not UTF-8"):
            next(iterator)
    assert values(in_pipeline(lambda number: number, threads=threads)) == list(range(10))


def test_calls_run_in_parallel():
    together = threading.Barrier(2, timeout=30)

    def meet(number):
        together.wait()
        return number

    # Each call waits for another, of the same pipeline or of the other one.
    pairs = tf.data.Dataset.zip(*(in_pipeline(meet, threads=2).prefetch(1) for _ in range(2)))
    assert [int(first) for (first,), (_,) in pairs] == list(range(10))


def test_calls_can_be_nested():
    inner = in_pipeline(lambda number: number, number=4)
    assert values(in_pipeline(lambda number: number + sum(values(inner)), threads=2)) == [6 + n for n in range(10)]


ENDINGS = [
    ("", None, 0),
    ("sys.exit(7)", None, 7),
    ("raise ValueError('of the program')", None, 1),
    ("time.sleep(100)", signal.SIGINT, -signal.SIGINT),
    ("time.sleep(100)", signal.SIGTERM, -signal.SIGTERM),
    (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nprint('armed', flush=True)\ntime.sleep(100)",
        signal.SIGTERM,
        5,
    ),
    ("del iterator", None, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "sent", "status"), ENDINGS)
def test_the_program_exits_with_its_own_status(ending, sent, status):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TF_CPP_MIN_LOG_LEVEL": "2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = ForkedProgram([sys.executable, "-c", PROGRAM + ending], env=environment, **pipes)
    try:
        assert program.stdout.readline() == "inside\n"
        if "armed" in ending:
            assert program.stdout.readline() == "armed\n"
        if sent is not None:
            program.send_signal(sent)
        started = time.monotonic()
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == status, errors
    assert time.monotonic() - started < 30  # the call takes 3 seconds; a program that ignores it would never end
    assert ("ValueError: of the program" in errors) == (status == 1)
    assert ("KeyboardInterrupt" in errors) == (sent == signal.SIGINT)
