"""One of two workers that meet, and of which one is lost then; `test_strategy.py` runs it.

    python -m tests.training.workers_program ADDRESS,ADDRESS INDEX LOST_INDEX SIGNAL [busy]

It is a program of its own because clusters can only be made before TensorFlow starts, and because it dies.
"""

import json
import os
import sys
import time

import tensorflow as tf

from keras_bert.training.cluster import Cluster, watch_workers
from keras_bert.training.strategy import (
    any_worker,
    broadcast_from_chief,
    cluster_of,
    describe_strategy,
    is_chief,
    make_strategy,
    worker_barrier,
    worker_of,
)


def report(**values):
    print(json.dumps(values), flush=True)


def meet(strategy):
    """What the workers tell each other."""
    index, _ = worker_of(strategy)
    barrier = worker_barrier(strategy)
    if index == 0:
        time.sleep(1.0)
    before = time.time()
    barrier()

    @tf.function
    def add():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(index + 1.0)))

    sums = [float(add()) for _ in range(3)]
    report(
        index=index,
        is_chief=is_chief(strategy),
        waited=[before, time.time()],
        sums=sums,
        any_worker=[any_worker(strategy, index == 1), any_worker(strategy, False)],
        broadcast_from_chief=broadcast_from_chief(strategy, [0.1 + index, float("inf")] if index == 0 else [7.0, 7.0]),
        run_info=describe_strategy(strategy),
    )
    barrier()


def end(strategy, lost, number, busy):
    """One worker gets a signal; the other waits for it, or is busy."""
    barrier = worker_barrier(strategy)
    barrier()
    if worker_of(strategy)[0] == lost:
        report(lost_at=time.time())
        os.kill(os.getpid(), number)
    time.sleep(120.0 if busy else 0.0)
    barrier()


def main(addresses, index, lost, number, busy=False):
    """Joins the cluster, meets the other worker, and does what it is told."""
    cluster = Cluster(tuple(addresses.split(",")), int(index))
    strategy = make_strategy("multi_worker", cluster=cluster, start_timeout_seconds=60)
    with watch_workers(cluster_of(strategy)):
        meet(strategy)
        end(strategy, int(lost), int(number), busy)


if __name__ == "__main__":
    main(*sys.argv[1:])
