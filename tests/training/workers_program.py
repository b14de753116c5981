"""One of two workers, one of which is lost after they have communicated; run by `test_strategy.py`.

    python -m tests.training.workers_program ADDRESS,ADDRESS INDEX LOST_INDEX SIGNAL [busy]

A separate program because clusters can only be created before TensorFlow starts, and because it dies.
"""

import json
import os
import sys
import time

import tensorflow as tf

from keras_bert.training.cluster import Cluster
from keras_bert.training.lost_workers import watch_workers
from keras_bert.training.strategy import (
    any_worker,
    broadcast_from_chief,
    describe_strategy,
    get_cluster,
    get_worker,
    is_chief,
    make_strategy,
    worker_barrier,
)


def report(**values):
    print(json.dumps(values), flush=True)


def communicate(strategy):
    """Communicates with the other worker, and reports the results."""
    index, _ = get_worker(strategy)
    if index == 0:
        time.sleep(1.0)
    before = time.time()
    worker_barrier(strategy)
    waited = [before, time.time()]

    @tf.function
    def add():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(index + 1.0)))

    report(
        is_chief=is_chief(strategy),
        waited=waited,
        sums=[float(add()) for _ in range(3)],
        any_worker=[any_worker(strategy, index == 1), any_worker(strategy, False)],
        broadcast_from_chief=broadcast_from_chief(strategy, [7.0, 7.0] if index else [0.1, float("inf")]),
        run_info=describe_strategy(strategy),
    )
    worker_barrier(strategy)


def end(strategy, lost, number, busy):
    """Sends one worker a signal; the other waits for it, or is busy."""
    worker_barrier(strategy)
    if get_worker(strategy)[0] == lost:
        report(lost_at=time.time())
        os.kill(os.getpid(), number)
    time.sleep(120.0 if busy else 0.0)
    worker_barrier(strategy)


def main(addresses, index, lost, number, busy=False):
    cluster = Cluster(tuple(addresses.split(",")), int(index))
    strategy = make_strategy("multi_worker", cluster=cluster, start_timeout_seconds=60)
    with watch_workers(get_cluster(strategy)):
        communicate(strategy)
        end(strategy, int(lost), int(number), busy)


if __name__ == "__main__":
    main(*sys.argv[1:])
