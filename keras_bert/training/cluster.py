"""The addresses of the workers of a job on several machines."""

import json
from dataclasses import dataclass
from typing import Any

from keras_bert.io.addresses import split_address

_ROLES = ("chief", "worker")
_REFUSED_ROLES = {
    "ps": "Keras 3 does not support parameter servers, and neither does keras_bert; leave them out, and every worker "
    "holds all weights",
    "evaluator": "keras_bert has no evaluator process: the workers evaluate during training; leave it out",
}
_TF_CONFIG_FORM = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The workers of a job, and the index of this process among them.

    Args:
        workers: `host:port` of every process of the job, the same on all; the first one is the chief. IPv6 addresses
            are in brackets.
        index: Index of this process in `workers`.

    Raises:
        ValueError: If an address is malformed or occurs twice, there are fewer than two workers, or the index is out of
            range.

    Example:

    >>> cluster = Cluster(("first:2222", "second:2222"), index=1)
    >>> cluster.describe(1)
    'worker 1 (second:2222)'
    """

    workers: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        if isinstance(self.workers, str) or not all(isinstance(worker, str) for worker in self.workers):
            raise ValueError(f'workers must be a tuple of "host:port", got {self.workers!r}')
        object.__setattr__(self, "workers", tuple(self.workers))
        for worker in self.workers:
            if split_address(worker) is None:
                raise ValueError(f"a worker must be host:port with a port from 1 to 65535, got {worker!r}")
        num_workers = len(self.workers)
        if len(set(self.workers)) < num_workers:
            raise ValueError(f"every worker needs its own address, got {', '.join(self.workers)}")
        if num_workers < 2:
            raise ValueError(
                f"a cluster has at least two workers, got {num_workers}: {list(self.workers)}. On a single machine, "
                "use the strategy mirrored or one_device"
            )
        if type(self.index) is not int or not 0 <= self.index < num_workers:
            raise ValueError(f"index must be 0 to {num_workers - 1} with {num_workers} workers, got {self.index!r}")

    @classmethod
    def from_tf_config(cls, text: str) -> "Cluster":
        """Parses the environment variable TF_CONFIG, which cluster managers set.

        Args:
            text: JSON with `cluster` (addresses by role) and `task` (`type` and `index` of this process). Roles are
                `worker` and `chief`; a chief becomes worker 0.

        Raises:
            ValueError: If it is malformed, or has parameter servers or an evaluator.

        Example:

        >>> Cluster.from_tf_config(
        ...     '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
        ... )
        Cluster(workers=('a:1', 'b:1'), index=1)
        """
        cluster, task = _parse_tf_config(text)
        chiefs, workers = (cluster.get(role, []) for role in _ROLES)
        if len(chiefs) > 1:
            raise ValueError(f"TF_CONFIG may have one chief at most, got {len(chiefs)}: {chiefs}")
        role, index = task.get("type"), str(task.get("index"))
        if role in _REFUSED_ROLES:
            raise ValueError(f"TF_CONFIG makes this process a {role}: {_REFUSED_ROLES[role]}")
        if role not in cluster:
            raise ValueError(f"TF_CONFIG: the task type must be one of the cluster's {sorted(cluster)}, got {role!r}")
        if not index.isdigit() or int(index) >= len(cluster[role]):
            raise ValueError(f"TF_CONFIG: the index of a {role} must be 0 to {len(cluster[role]) - 1}, got {index}")
        return cls((*chiefs, *workers), int(index) + (len(chiefs) if role == "worker" else 0))

    def describe(self, index: int) -> str:
        """Returns a worker's index and address for messages."""
        return f"worker {index} ({self.workers[index]})"


def _parse_tf_config(text: str) -> tuple[dict[str, list], dict[str, Any]]:
    """Returns the cluster and the task of TF_CONFIG, after checking their form."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"TF_CONFIG is not JSON ({error}): {text!r}") from error
    cluster, task = (config.get(key) if isinstance(config, dict) else None for key in ("cluster", "task"))
    if not isinstance(cluster, dict) or not isinstance(task, dict) or not cluster:
        raise ValueError(f"TF_CONFIG must be like {_TF_CONFIG_FORM}, got {text!r}")
    for role, addresses in cluster.items():
        if role in _REFUSED_ROLES:
            raise ValueError(f"TF_CONFIG has the role {role}: {_REFUSED_ROLES[role]}")
        if role not in _ROLES:
            raise ValueError(f"TF_CONFIG has the role {role!r}; allowed are {', '.join(_ROLES)}")
        if not isinstance(addresses, list):
            raise ValueError(f'TF_CONFIG: the addresses of {role} must be a list of "host:port", got {addresses!r}')
    return cluster, task
