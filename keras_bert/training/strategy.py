"""Strategies by name: on which devices and machines a training runs, and what its workers say to each other."""

import faulthandler
import signal
import socket
import sys
import threading
import urllib.error

import keras
import tensorflow as tf
from absl import logging
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from keras_bert.training.cluster import Cluster, WorkerLostError, describe_lost_workers, wait_for_workers

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
REFUSED_STRATEGIES = {
    "parameter_server": "Keras 3 does not support parameter servers (keras-team/keras#18624): its fit does not run "
    "under one, and its optimizers have no place for one",
    "keras.distribution": "on the TensorFlow backend keras.distribution does nothing: the model would train on one "
    "device, without a word",
}

# A worker that sends no sign of life for so long counts as lost. TensorFlow's own default is 10 seconds, which a
# virtual machine that is moved to another host can exceed. A frozen chief is noticed after 10 + 20 seconds at most.
HEARTBEAT_SECONDS = 20
# How long an operation of the training step waits for a worker that lives: one that computes, compiles or evaluates
# slowly is no fault. What `worker_barrier`, `any_worker` and `broadcast_from_chief` wait for has no such limit.
COLLECTIVE_TIMEOUT_SECONDS = 3600
# TensorFlow's start has to be over by then; workers that met a moment ago need seconds.
_CONNECT_SECONDS = 45
_TPU_ANSWER_SECONDS = 10


def make_strategy(name, num_logical_devices=None, cluster=None, tpu=None, *, start_timeout_seconds=600.0):
    """Makes the tf.distribute.Strategy of a name; to be called before TensorFlow computes anything.

    A training gives the same weights on all of them for the same global batch.

    Args:
        name: str. "one_device" is TensorFlow's default strategy. "mirrored" has a replica on every GPU of this machine,
            and without GPUs on every logical device of its CPU. "multi_worker" has those of all workers: on each all
            GPUs, or one CPU. "tpu" has all cores of a TPU.
        num_logical_devices: int or None. With "mirrored" on a CPU: how many logical devices it is split into.
        cluster: `Cluster`, with "multi_worker".
        tpu: str, with "tpu": "local" on a TPU's own machine, a TPU's name, or grpc://host:port.
        start_timeout_seconds: float. How long to wait until all workers of a cluster are there.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ValueError: if the name is unknown or refused, or arguments contradict it; if there is no such TPU, or this
            TensorFlow cannot drive one; if the workers of a cluster disagree about it.
        RuntimeError: if TensorFlow has computed already, which is too late to set up its devices.
        TimeoutError: if not all workers come; the message names those that do not.
        WorkerLostError: if a worker is lost between coming and starting.

    Example:

    >>> make_strategy("one_device").num_replicas_in_sync
    1
    """
    _check_name(name)
    _check_arguments(name, num_logical_devices, cluster, tpu)
    if name == "mirrored":
        return _mirrored(num_logical_devices)
    if name == "multi_worker":
        return _multi_worker(cluster, start_timeout_seconds)
    if name == "tpu":
        return _tpu(tpu)
    return tf.distribute.get_strategy()


def _check_name(name):
    if name in REFUSED_STRATEGIES:
        raise ValueError(f"the strategy {name} is refused: {REFUSED_STRATEGIES[name]}. Allowed are {_allowed()}")
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; allowed are {_allowed()}")
    if keras.distribution.distribution() is not None:
        raise ValueError(
            "keras.distribution.distribution() is set, and is refused: "
            f"{REFUSED_STRATEGIES['keras.distribution']}. Unset it with keras.distribution.set_distribution(None); "
            f"the strategies are {_allowed()}"
        )
    if tf.distribute.has_strategy():
        raise ValueError("a strategy cannot be made inside the scope of another")


def _allowed():
    return ", ".join(STRATEGIES)


def _check_arguments(name, num_logical_devices, cluster, tpu):
    for argument, value, owner in (
        ("num_logical_devices", num_logical_devices, "mirrored"),
        ("cluster", cluster, "multi_worker"),
        ("tpu", tpu, "tpu"),
    ):
        if value is not None and name != owner:
            raise ValueError(f"{argument} belongs to the strategy {owner}; the strategy is {name}")
    if num_logical_devices is not None and (type(num_logical_devices) is not int or num_logical_devices < 1):
        raise ValueError(f"num_logical_devices must be an integer of at least 1, got {num_logical_devices!r}")
    if name == "multi_worker" and not isinstance(cluster, Cluster):
        raise ValueError(f"the strategy multi_worker needs a Cluster, the addresses of all workers; got {cluster!r}")
    if name == "tpu" and not tpu:
        raise ValueError(f'the strategy tpu needs a TPU: "local", a name, or grpc://host:port; got {tpu!r}')


def _mirrored(num_logical_devices):
    if num_logical_devices is not None:
        _split_cpu(num_logical_devices)
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    return tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def _split_cpu(number):
    if gpus := tf.config.list_physical_devices("GPU"):
        raise ValueError(
            f"num_logical_devices splits the CPU, for trying things out where there is no GPU; here are {len(gpus)}. "
            "Leave it out, or hide the GPUs with CUDA_VISIBLE_DEVICES=-1"
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)
    except RuntimeError as error:
        there = len(tf.config.list_logical_devices("CPU"))
        if there != number:
            raise RuntimeError(
                f"too late to split the CPU into {number} logical devices: TensorFlow has started with {there}. Make "
                "the strategy before anything else is computed"
            ) from error


def _multi_worker(cluster, start_timeout_seconds):
    if context.context()._initialized:
        raise RuntimeError(
            "too late for the strategy multi_worker: TensorFlow has started without it. Make the strategy before "
            "anything else is computed"
        )
    gpus = len(tf.config.list_physical_devices("GPU"))
    wait_for_workers(cluster, start_timeout_seconds, f"{gpus} GPUs" if gpus else "CPU")
    logging.info(
        "all %d workers are there and connect now; should one of them die meanwhile, this process ends in %d seconds",
        len(cluster.workers),
        _CONNECT_SECONDS,
    )
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=_CONNECT_SECONDS * 1000 // 2,
        heartbeat_timeout_in_ms=HEARTBEAT_SECONDS * 1000,
        coordinated_jobs=[coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=len(cluster.workers))],
    )
    implementation = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.NCCL if gpus else implementation.RING, timeout_seconds=COLLECTIVE_TIMEOUT_SECONDS
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus} if gpus else None,  # it does not look for itself: it would take the CPU
    )
    # TensorFlow waits here without end for a worker that dies just now, deaf to signals, and lets no other thread of
    # Python run. This timer needs none.
    faulthandler.dump_traceback_later(_CONNECT_SECONDS, exit=True, file=sys.__stderr__)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    except tf.errors.OpError as error:
        raise WorkerLostError(describe_lost_workers(cluster, error)) from error
    finally:
        faulthandler.cancel_dump_traceback_later()
        _take_back_sigterm()


def _take_back_sigterm():
    """Undoes that TensorFlow's workers swallow SIGTERM: what was to happen on it happens again."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _tpu(tpu):
    if tpu == "local" and not kernels.get_registered_kernels_for_op("ConfigureDistributedTPU").kernel:
        raise ValueError(
            f"there is no TPU here: this TensorFlow {tf.__version__} is built without support for them. On a TPU's "
            "machine install a build that has it; elsewhere take one_device, mirrored or multi_worker"
        )
    try:
        if tpu.startswith("grpc://"):
            _refuse_silent_address(tpu.removeprefix("grpc://"))
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, urllib.error.URLError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f'cannot use the TPU {tpu!r}: {getattr(error, "message", None) or error}. It is "local" on a TPU\'s own '
            "machine, the name of a TPU that this machine's cloud account can see, or grpc://host:port"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _refuse_silent_address(address):
    """TensorFlow would wait for it without end."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError("the address has no port")
    socket.create_connection((host.strip("[]"), int(port)), _TPU_ANSWER_SECONDS).close()


def cluster_of(strategy):
    """The workers of a strategy.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        `Cluster`, or None if this process is the only one.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    resolver = strategy.cluster_resolver
    addresses = resolver.cluster_spec().as_dict()
    chiefs, workers = (tuple(addresses.get(role, ())) for role in ("chief", "worker"))
    if len(chiefs + workers) < 2:
        return None
    return Cluster(chiefs + workers, resolver.task_id + (len(chiefs) if resolver.task_type == "worker" else 0))


def worker_of(strategy):
    """Which of a strategy's workers this process is, and how many there are.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        (int, int): index and number; (0, 1) if this process is the only one.

    Example:

    >>> worker_of(tf.distribute.get_strategy())
    (0, 1)
    """
    cluster = cluster_of(strategy)
    return (0, 1) if cluster is None else (cluster.index, len(cluster.workers))


def get_num_workers(strategy):
    """How many processes train under a strategy.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        int.
    """
    return worker_of(strategy)[1]


def get_num_local_replicas(strategy):
    """How many of a strategy's replicas are in each process.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        int.
    """
    return strategy.num_replicas_in_sync // get_num_workers(strategy)


def needs_static_shapes(strategy):
    """Whether a strategy computes only with tensors whose shape is known beforehand, as on a TPU.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        bool.

    Example:

    >>> needs_static_shapes(tf.distribute.get_strategy())
    False
    """
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_chief(strategy):
    """Whether this process is the one that writes.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        bool, True on the first worker.
    """
    return worker_of(strategy)[0] == 0


def worker_barrier(strategy):
    """Makes a place where all workers wait for each other.

    All workers make their barriers and call them in the same order, between steps of the training. It waits as long as
    every worker lives.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        Function without arguments that returns once all workers have called it; with one worker it does nothing.

    Example:

    >>> worker_barrier(tf.distribute.get_strategy())()
    """
    return lambda: None if cluster_of(strategy) is None else _sum_over_workers(strategy, [0.0])


def any_worker(strategy, flag):
    """Whether any of the workers says yes; all call it at the same place, as a barrier.

    Args:
        strategy: tf.distribute.Strategy.
        flag: bool, what this worker says.

    Returns:
        bool, the same on all workers.

    Example:

    >>> any_worker(tf.distribute.get_strategy(), True)
    True
    """
    return bool(flag) if cluster_of(strategy) is None else _sum_over_workers(strategy, [float(bool(flag))])[0] > 0


def broadcast_from_chief(strategy, values):
    """The chief's numbers, on all workers; all call it at the same place, as a barrier, with equally many numbers.

    Args:
        strategy: tf.distribute.Strategy.
        values: list of float.

    Returns:
        list of float, exactly the chief's.

    Example:

    >>> broadcast_from_chief(tf.distribute.get_strategy(), [0.25])
    [0.25]
    """
    if cluster_of(strategy) is None:
        return [float(value) for value in values]
    return _sum_over_workers(strategy, values if is_chief(strategy) else [0.0] * len(values))


def _sum_over_workers(strategy, values):
    return _sum_over_first_replicas(strategy, tf.constant(values, tf.float64)).numpy().tolist()


@tf.function(autograph=False)
def _sum_over_first_replicas(strategy, values):
    """The sum of what each worker gives, from its first replica."""
    no_limit = tf.distribute.experimental.CommunicationOptions(timeout_seconds=0)
    local_replicas = get_num_local_replicas(strategy)

    def give():
        replica = tf.distribute.get_replica_context()
        is_first = tf.equal(replica.replica_id_in_sync_group % local_replicas, 0)
        return replica.all_reduce("SUM", tf.where(is_first, values, tf.zeros_like(values)), no_limit)

    return strategy.experimental_local_results(strategy.run(give))[0]


def describe_strategy(strategy):
    """What a training runs on, for its log.

    Args:
        strategy: tf.distribute.Strategy.

    Returns:
        dict of str to str.

    Example:

    >>> describe_strategy(tf.distribute.get_strategy())["replicas"]
    '1'
    """
    cluster = cluster_of(strategy)
    names = (tf.zeros([]).device,)  # where TensorFlow's default strategy puts things; it does not say so itself
    if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
        names = strategy.extended.worker_devices
    devices = [tf.DeviceSpec.from_string(device) for device in names]
    run_info = {
        "strategy": _name_of(strategy),
        "replicas": str(strategy.num_replicas_in_sync),
        "devices": ", ".join(f"{device.device_type} {device.device_index}" for device in devices),
    }
    if cluster is not None:
        run_info["workers"] = f"{len(cluster.workers)}; this is {cluster.describe(cluster.index)}"
        run_info["devices"] += " on each"
    return run_info


def _name_of(strategy):
    kinds = {
        "mirrored": tf.distribute.MirroredStrategy,
        "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
        "tpu": tf.distribute.TPUStrategy,
    }
    found = (name for name, kind in kinds.items() if isinstance(strategy, kind))
    return next(found, "one_device" if strategy.num_replicas_in_sync == 1 else type(strategy).__name__)
