"""Distribution strategies by name, and communication between the workers of a strategy."""

import faulthandler
import signal
import socket
import sys
import threading
import urllib.error
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import logging
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from keras_bert.training.cluster import Cluster
from keras_bert.training.lost_workers import WorkerLostError, describe_lost_workers
from keras_bert.training.worker_rendezvous import wait_for_workers

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
REFUSED_STRATEGIES = {
    "parameter_server": "Keras 3 does not support parameter servers (keras-team/keras#18624)",
    "keras.distribution": "keras.distribution does nothing on the TensorFlow backend: the model would silently train "
    "on one device",
}

# A worker without a heartbeat for so long counts as lost. TensorFlow's default is 10 seconds, which the migration of a
# virtual machine to another host can exceed. A frozen chief is noticed after 10 + 20 seconds at most.
_HEARTBEAT_SECONDS = 20
# How long an operation of the training step waits for a live worker, which may be computing, compiling or evaluating
# slowly. `worker_barrier`, `any_worker` and `broadcast_from_chief` wait without a limit.
_COLLECTIVE_TIMEOUT_SECONDS = 3600
# Maximum time for TensorFlow's start; workers that have just met need a few seconds.
_CONNECT_SECONDS = 45
_TPU_ANSWER_SECONDS = 10


def make_strategy(
    name: str,
    num_logical_devices: int | None = None,
    cluster: Cluster | None = None,
    tpu: str | None = None,
    *,
    start_timeout_seconds: float = 600.0,
    job_key: str = "",
) -> tf.distribute.Strategy:
    """Creates a distribution strategy by name. Call it before TensorFlow computes anything.

    For the same global batch, training gives the same weights under every strategy.

    Args:
        name: `"one_device"` is TensorFlow's default strategy. `"mirrored"` has a replica on every GPU of this machine,
            or without GPUs on every logical device of its CPU. `"multi_worker"` has replicas on all workers: on each,
            all GPUs or the CPU. `"tpu"` has a replica on every core of a TPU.
        num_logical_devices: With `"mirrored"` on a CPU, the number of logical devices to split it into.
        cluster: With `"multi_worker"`, the addresses of all workers.
        tpu: With `"tpu"`: `"local"` on the TPU's own machine, the TPU's name, or grpc://host:port.
        start_timeout_seconds: How long to wait until all workers of the cluster are up.
        job_key: With `"multi_worker"`, a text that all workers of the job share and nobody else has. Greetings of
            workers with another key are ignored when the workers meet.

    Raises:
        ValueError: If the name is unknown or refused or does not fit the arguments, the TPU does not exist or this
            TensorFlow does not support TPUs, or the workers disagree on the cluster.
        RuntimeError: If TensorFlow has already computed something, which is too late to configure its devices.
        TimeoutError: If workers are missing.
        WorkerLostError: If a worker is lost while TensorFlow starts.

    Example:

    >>> make_strategy("one_device").num_replicas_in_sync
    1
    """
    _check_name(name)
    _check_arguments(name, num_logical_devices, cluster, tpu)
    if name == "mirrored":
        return _make_mirrored(num_logical_devices)
    if cluster is not None:
        return _make_multi_worker(cluster, start_timeout_seconds, job_key)
    if tpu is not None:
        return _make_tpu(tpu)
    return tf.distribute.get_strategy()


def _check_name(name: str) -> None:
    allowed = ", ".join(STRATEGIES)
    if name in REFUSED_STRATEGIES:
        raise ValueError(f"the strategy {name} is refused: {REFUSED_STRATEGIES[name]}. Allowed are {allowed}")
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; allowed are {allowed}")
    if keras.distribution.distribution() is not None:
        raise ValueError(
            f"keras.distribution is in use, and is refused: {REFUSED_STRATEGIES['keras.distribution']}. Call "
            f"keras.distribution.set_distribution(None), and choose a strategy of {allowed}"
        )
    if tf.distribute.has_strategy():
        raise ValueError("a strategy cannot be created inside the scope of another one")


def _check_arguments(name: str, num_logical_devices: int | None, cluster: Cluster | None, tpu: str | None) -> None:
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


def _make_mirrored(num_logical_devices: int | None) -> tf.distribute.Strategy:
    if num_logical_devices is not None:
        _split_cpu(num_logical_devices)
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    return tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def _split_cpu(num_devices: int) -> None:
    if gpus := tf.config.list_physical_devices("GPU"):
        raise ValueError(
            f"num_logical_devices splits the CPU, to try out replicas without GPUs, but this machine has {len(gpus)} "
            "GPUs. Leave it out, or hide the GPUs with CUDA_VISIBLE_DEVICES=-1"
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
    except RuntimeError as error:
        present = len(tf.config.list_logical_devices("CPU"))
        if present != num_devices:
            raise RuntimeError(
                f"too late to split the CPU into {num_devices} logical devices: TensorFlow has started with {present}. "
                "Make the strategy before anything is computed"
            ) from error


def _make_multi_worker(cluster: Cluster, start_timeout_seconds: float, job_key: str) -> tf.distribute.Strategy:
    if context.context()._initialized:
        raise RuntimeError(
            "too late for the strategy multi_worker: TensorFlow has already started. Make the strategy before "
            "anything is computed"
        )
    gpus = len(tf.config.list_physical_devices("GPU"))
    wait_for_workers(cluster, start_timeout_seconds, f"{gpus} GPUs" if gpus else "CPU", job_key)
    message = "all %d workers are up and connecting; if one of them dies now, this process ends within %d seconds"
    logging.info(message, len(cluster.workers), _CONNECT_SECONDS)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=_CONNECT_SECONDS * 1000 // 2,
        heartbeat_timeout_in_ms=_HEARTBEAT_SECONDS * 1000,
        coordinated_jobs=[coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=len(cluster.workers))],
    )
    implementation = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.NCCL if gpus else implementation.RING, timeout_seconds=_COLLECTIVE_TIMEOUT_SECONDS
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus} if gpus else None,  # its default is the CPU
    )
    # TensorFlow would wait here forever for a worker that dies now, without reacting to signals or letting another
    # Python thread run. This timer does not need one.
    faulthandler.dump_traceback_later(_CONNECT_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    except tf.errors.OpError as error:
        raise WorkerLostError(describe_lost_workers(cluster, error)) from error
    finally:
        faulthandler.cancel_dump_traceback_later()
        _restore_sigterm()


def _restore_sigterm() -> None:
    """Restores the handler of SIGTERM, which TensorFlow's workers replace."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _make_tpu(tpu: str) -> tf.distribute.Strategy:
    if tpu == "local" and not kernels.get_registered_kernels_for_op("ConfigureDistributedTPU").kernel:
        raise ValueError(
            f"there is no TPU: this TensorFlow {tf.__version__} is built without support for TPUs. Install a build "
            "with TPU support on the TPU's machine; elsewhere, use one_device, mirrored or multi_worker"
        )
    try:
        if tpu.startswith("grpc://"):
            _check_address_answers(tpu.removeprefix("grpc://"))
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, urllib.error.URLError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f'cannot use the TPU {tpu!r}: {getattr(error, "message", None) or error}. Use "local" on the TPU\'s own '
            "machine, the name of a TPU that this machine's cloud account can see, or grpc://host:port"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _check_address_answers(address: str) -> None:
    """Raises an error if nothing answers at an address; TensorFlow would wait forever."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError("the address has no port")
    socket.create_connection((host.strip("[]"), int(port)), _TPU_ANSWER_SECONDS).close()


def get_cluster(strategy: tf.distribute.Strategy) -> Cluster | None:
    """Returns the workers of a strategy, or None if this process is the only one."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    resolver = strategy.cluster_resolver
    addresses = resolver.cluster_spec().as_dict()
    chiefs, workers = (tuple(addresses.get(role, ())) for role in ("chief", "worker"))
    if len(chiefs + workers) < 2:
        return None
    return Cluster(chiefs + workers, resolver.task_id + (len(chiefs) if resolver.task_type == "worker" else 0))


def get_worker(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns the index of this process among the workers of a strategy, and the number of workers."""
    cluster = get_cluster(strategy)
    return (0, 1) if cluster is None else (cluster.index, len(cluster.workers))


def get_num_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of processes that train under a strategy."""
    return get_worker(strategy)[1]


def get_num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas in each process."""
    return strategy.num_replicas_in_sync // get_num_workers(strategy)


def needs_static_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy requires tensors of static shape, as TPUs do."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the first worker, the one that writes files."""
    return get_worker(strategy)[0] == 0


def worker_barrier(strategy: tf.distribute.Strategy) -> None:
    """Returns once all workers have called this, however long it takes while they are alive.

    Call it between training steps, and in the same order on all workers as `any_worker` and `broadcast_from_chief`.
    """
    if get_cluster(strategy) is not None:
        _sum_over_workers(strategy, [0.0])


def any_worker(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether the flag is set on any of the workers. It is also a barrier."""
    return bool(flag) if get_cluster(strategy) is None else _sum_over_workers(strategy, [float(bool(flag))])[0] > 0


def broadcast_from_chief(strategy: tf.distribute.Strategy, values: Sequence[float]) -> list[float]:
    """Returns the chief's numbers, bit by bit, on all workers; each passes equally many. It is also a barrier."""
    if get_cluster(strategy) is None:
        return [float(value) for value in values]
    return _sum_over_workers(strategy, values if is_chief(strategy) else [0.0] * len(values))


def _sum_over_workers(strategy: tf.distribute.Strategy, values: Sequence[float]) -> list[float]:
    return _sum_over_first_replicas(strategy, tf.constant(values, tf.float64)).numpy().tolist()


@tf.function(autograph=False)
def _sum_over_first_replicas(strategy: tf.distribute.Strategy, values: tf.Tensor) -> tf.Tensor:
    """Returns the sum over the workers, to which each contributes once, on its first replica."""
    no_limit = tf.distribute.experimental.CommunicationOptions(timeout_seconds=0)
    local_replicas = get_num_local_replicas(strategy)

    def contribute() -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        is_first = tf.equal(replica.replica_id_in_sync_group % local_replicas, 0)
        return replica.all_reduce("SUM", tf.where(is_first, values, tf.zeros_like(values)), no_limit)

    return strategy.experimental_local_results(strategy.run(contribute))[0]


def describe_strategy(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """Returns log lines that describe where training runs."""
    cluster = get_cluster(strategy)
    names = (tf.zeros([]).device,)  # for TensorFlow's default strategy, which does not list its devices
    if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
        names = strategy.extended.worker_devices
    devices = [tf.DeviceSpec.from_string(device) for device in names]
    lines = {
        "strategy": _get_name(strategy),
        "replicas": str(strategy.num_replicas_in_sync),
        "devices": ", ".join(f"{device.device_type} {device.device_index}" for device in devices),
    }
    if cluster is not None:
        lines["workers"] = f"{len(cluster.workers)}; this is {cluster.describe(cluster.index)}"
        lines["devices"] += " on each"
    return lines


def _get_name(strategy: tf.distribute.Strategy) -> str:
    kinds = {
        "mirrored": tf.distribute.MirroredStrategy,
        "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
        "tpu": tf.distribute.TPUStrategy,
    }
    found = (name for name, kind in kinds.items() if isinstance(strategy, kind))
    return next(found, "one_device" if strategy.num_replicas_in_sync == 1 else type(strategy).__name__)
