"""One worker's part of a run: watches the other workers, and saves and stops training on SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

import tensorflow as tf

from keras_bert.training.lost_workers import watch_workers
from keras_bert.training.strategy import get_cluster, make_strategy, worker_barrier

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended, as in shells

Result = TypeVar("Result")


def run_on_worker(
    work: Callable[[tf.distribute.Strategy], Result], strategy: tf.distribute.Strategy | None = None
) -> Result:
    """Calls `work` with the strategy (None means one device); raises WorkerLostError if another worker is lost."""
    strategy = strategy or make_strategy("one_device")
    with watch_workers(get_cluster(strategy)):
        results = work(strategy)
        worker_barrier(strategy)  # a worker that ends looks like a lost one to those that still work
    return results


@contextlib.contextmanager
def stop_on_sigterm() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether SIGTERM was received; after the block it takes effect."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield lambda: False
        return
    asked = threading.Event()
    before = signal.getsignal(signal.SIGTERM)

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
    if asked.is_set():
        signal.raise_signal(signal.SIGTERM)
