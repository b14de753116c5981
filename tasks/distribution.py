"""The flags that say on which devices and machines a program trains, and the strategy that they describe."""

import os

from absl import flags

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
_REFUSED = ("parameter_server", "keras.distribution")
# By flag: the strategy that it belongs to.
_OWNERS = {"num_logical_devices": "mirrored", "workers": "multi_worker", "worker_index": "multi_worker", "tpu": "tpu"}
_TF_CONFIG = "TF_CONFIG"


class _StrategyParser(flags.EnumParser):
    """Says of a strategy that is refused why it is."""

    def parse(self, argument):
        if argument in _REFUSED:
            from keras_bert.training.strategy import REFUSED_STRATEGIES

            raise ValueError(f"refused: {REFUSED_STRATEGIES[argument]}. Allowed are {', '.join(STRATEGIES)}")
        return super().parse(argument)


def define_distribution_flags():
    """Defines the flags; called by a program, not on import, so that one process can import several programs."""
    flags.DEFINE(
        _StrategyParser(list(STRATEGIES)),
        "strategy",
        "one_device",
        f"<{'|'.join(STRATEGIES)}>: what training runs on: one device, all GPUs of this machine, several machines, or "
        "a TPU. The result is the same.",
    )
    flags.DEFINE_integer(
        "num_logical_devices", None, "For --strategy=mirrored without GPUs: devices that the CPU is split into.", 1
    )
    flags.DEFINE_list(
        "workers",
        None,
        "For --strategy=multi_worker: host:port of every worker, comma-separated, the same for all; the first writes. "
        f"Default: those in {_TF_CONFIG}.",
    )
    flags.DEFINE_integer("worker_index", None, "The place of this process in --workers, from 0.", lower_bound=0)
    flags.DEFINE_string("tpu", None, "For --strategy=tpu: local, the TPU's name, or grpc://host:port.")
    flags.register_multi_flags_validator(["strategy", *_OWNERS], _fit_together)


def strategy_from_flags():
    """Makes the strategy that the flags describe, and TF_CONFIG in the environment; before anything is computed.

    With several workers it waits until all are there.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ValueError, RuntimeError, OSError: as `keras_bert.training.strategy.make_strategy`.
    """
    from keras_bert.training.strategy import make_strategy

    values = flags.FLAGS
    cluster = _cluster(values.strategy, values.workers, values.worker_index)
    return make_strategy(values.strategy, values.num_logical_devices, cluster, values.tpu)


def _fit_together(values):
    """Whether the flags go with each other; as they are parsed, before anything else is done."""
    strategy = values["strategy"]
    for name, owner in _OWNERS.items():
        if values[name] is not None and strategy != owner:
            raise flags.ValidationError(f"--{name} belongs to --strategy={owner}; the strategy is {strategy}")
    if (values["workers"] is None) != (values["worker_index"] is None):
        raise flags.ValidationError(
            "--workers and --worker_index belong together: all workers, and which of them this process is"
        )
    if strategy == "tpu" and not values["tpu"]:
        raise flags.ValidationError("--strategy=tpu needs --tpu: local, the TPU's name, or grpc://host:port")
    try:
        _cluster(strategy, values["workers"], values["worker_index"])
    except ValueError as error:
        raise flags.ValidationError(str(error)) from error
    return True


def _cluster(strategy, workers, index):
    """The cluster that the flags or the environment speak of, or None; refuses what would train apart."""
    text = os.environ.get(_TF_CONFIG)
    if strategy != "multi_worker":
        if text and (cluster := _several_workers(text)):
            raise ValueError(
                f"{_TF_CONFIG} speaks of {len(cluster.workers)} workers, and --strategy={strategy} would train a model "
                f"of its own on each. Take --strategy=multi_worker, or unset {_TF_CONFIG}"
            )
        return None
    if not text and workers is None:
        raise ValueError(
            "--strategy=multi_worker needs the addresses of all workers: --workers=host:port,host:port and "
            f"--worker_index=0, or {_TF_CONFIG} in the environment"
        )
    from keras_bert.training.cluster import Cluster

    from_flags = None if workers is None else Cluster(tuple(worker.strip() for worker in workers), index)
    from_environment = Cluster.from_tf_config(text) if text else from_flags
    if from_flags not in (None, from_environment):
        raise ValueError(
            f"--workers and {_TF_CONFIG} differ: worker {from_flags.index} of {', '.join(from_flags.workers)}, and "
            f"worker {from_environment.index} of {', '.join(from_environment.workers)}. Give one of the two"
        )
    return from_environment


def _several_workers(text):
    """The cluster in TF_CONFIG, or None if it is of one worker, or of no form that would matter here."""
    from keras_bert.training.cluster import Cluster

    try:
        return Cluster.from_tf_config(text)
    except ValueError:
        return None
