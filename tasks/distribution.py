"""Settings of the devices and machines that a program trains on, and the strategy that they describe."""

from __future__ import annotations

import os
from dataclasses import dataclass

import tensorflow as tf

from keras_bert.settings import Settings, setting
from keras_bert.training.cluster import Cluster
from keras_bert.training.strategy import REFUSED_STRATEGIES, STRATEGIES, make_strategy

# By setting: the strategy that it belongs to.
_OWNERS = {
    "num_logical_devices": "mirrored",
    "workers": "multi_worker",
    "worker_index": "multi_worker",
    "job_key": "multi_worker",
    "tpu": "tpu",
}
_TF_CONFIG = "TF_CONFIG"


@dataclass(frozen=True, kw_only=True)
class StrategySettings(Settings):
    """Devices and machines that a program trains on. The result is the same on all."""

    strategy: str = setting(
        "one_device",
        f"One of {', '.join(STRATEGIES)}: one device, all GPUs of this machine, several machines, or a TPU.",
    )
    num_logical_devices: int | None = setting(
        None, "For --strategy=mirrored without GPUs: number of devices that the CPU is split into.", lower=1
    )
    workers: tuple[str, ...] | None = setting(
        None,
        "For --strategy=multi_worker: host:port of every worker, comma-separated, the same for all; the first writes. "
        f"Default: those in {_TF_CONFIG}.",
    )
    worker_index: int | None = setting(None, "The index of this process in --workers, from 0.", lower=0)
    job_key: str | None = setting(
        None,
        "For --strategy=multi_worker: a text that all workers of the job share. When they meet, workers with another "
        "key are ignored.",
        recorded=False,
    )
    tpu: str | None = setting(None, "For --strategy=tpu: local, the TPU's name, or grpc://host:port.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy in REFUSED_STRATEGIES:
            raise ValueError(
                f"strategy={self.strategy} is refused: {REFUSED_STRATEGIES[self.strategy]}. Allowed are "
                f"{', '.join(STRATEGIES)}"
            )
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}; got {self.strategy!r}")
        for name, owner in _OWNERS.items():
            if getattr(self, name) is not None and self.strategy != owner:
                raise ValueError(f"{name} belongs to --strategy={owner}; the strategy is {self.strategy}")
        if (self.workers is None) != (self.worker_index is None):
            raise ValueError("workers and --worker_index must be given together: all workers, and this one's index")
        if self.strategy == "tpu" and not self.tpu:
            raise ValueError("strategy=tpu needs --tpu: local, the TPU's name, or grpc://host:port")
        self.cluster()

    def make(self) -> tf.distribute.Strategy:
        """Makes the strategy, before anything is computed; with several workers it waits until all are there."""
        return make_strategy(
            self.strategy, self.num_logical_devices, self.cluster(), self.tpu, job_key=self.job_key or ""
        )

    def cluster(self) -> Cluster | None:
        """Returns the cluster of settings or environment; raises ValueError if workers would train separately."""
        text = os.environ.get(_TF_CONFIG)
        if self.strategy != "multi_worker":
            if text and (cluster := _several_workers(text)):
                raise ValueError(
                    f"strategy={self.strategy} would train a separate model on each of the {len(cluster.workers)} "
                    f"workers in {_TF_CONFIG}. Use --strategy=multi_worker, or unset {_TF_CONFIG}"
                )
            return None
        if not text and self.workers is None:
            raise ValueError(
                "strategy=multi_worker needs the addresses of all workers: --workers=host:port,host:port and "
                f"--worker_index=0, or {_TF_CONFIG} in the environment"
            )
        given = None
        if self.workers is not None:
            given = Cluster(tuple(worker.strip() for worker in self.workers), self.worker_index)
        from_environment = Cluster.from_tf_config(text) if text else given
        if given not in (None, from_environment):
            raise ValueError(
                f"workers and {_TF_CONFIG} differ: worker {given.index} of {', '.join(given.workers)}, and worker "
                f"{from_environment.index} of {', '.join(from_environment.workers)}. Give one of the two"
            )
        return from_environment


def _several_workers(text: str) -> Cluster | None:
    """Returns the cluster in TF_CONFIG, or None if it has one worker, or a form that does not matter here."""
    try:
        return Cluster.from_tf_config(text)
    except ValueError:
        return None
