"""Runs a tf.data service: a dispatcher and workers that make batches for training programs (--data_service).

    python -m tools.data_service --port=5050 --workers=2

prints the address for --data_service, one line on standard output, once the service is ready, and runs until SIGTERM or
SIGINT. On several machines, a dispatcher on one, and on each of the others workers for it:

    python -m tools.data_service --port=5050 --workers=0 --host=first
    python -m tools.data_service --dispatcher=grpc://first:5050 --workers=4 --host=second

Training programs and workers connect to the workers under the name in --host. Connections are neither encrypted nor
authenticated, and whoever reaches a worker can have it compute: keep the ports inside a private network. The service
must be of the same TensorFlow version as the training programs. It has TensorFlow's own operations alone; those of
tensorflow-text are there only with --tensorflow_text, which a pipeline needs that tokenizes (--data_service's do not:
their texts are tokenized before).
"""

import os
import re
import signal
import socket
import sys
import threading

from absl import app, flags

_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_integer("port", 5050, "Port of the dispatcher; 0 is any that is free.", 0, 65535)
    flags.DEFINE_integer("workers", 2, "Workers in this process; 0 is a dispatcher alone.", lower_bound=0)
    flags.DEFINE_integer(
        "worker_port", 0, "Port of the first worker, the others have those after it; 0 is any that are free.", 0, 65535
    )
    flags.DEFINE_string(
        "dispatcher", None, "grpc://host:port of a dispatcher that runs elsewhere; here are then only workers."
    )
    flags.DEFINE_string("host", "localhost", "Name or address under which other machines reach this one.")
    flags.register_validator("host", _HOST.fullmatch, "must be a host's name or address, IPv6 in brackets")
    flags.DEFINE_string(
        "work_dir", None, "Folder for the dispatcher's state: started again with it, a dispatcher goes on."
    )
    flags.DEFINE_bool("tensorflow_text", False, "Load the operations of tensorflow-text, for pipelines that tokenize.")
    flags.register_multi_flags_validator(["dispatcher", "workers", "work_dir"], _fit_together)


def start_service(values):
    """Starts the dispatcher, or takes the one elsewhere, and the workers.

    Args:
        values: the flags.

    Returns:
        (str, list): the dispatcher's address, and the servers, each of which ends when nothing refers to it any more.

    Raises:
        ConnectionError: if the dispatcher elsewhere does not answer.
        OSError: if a port is in use.
        ValueError: if the dispatcher's address is malformed.
    """
    if values.dispatcher is None:
        _refuse_used_port("port", values.port)
    import tensorflow as tf

    from keras_bert.data.data_service import check_service

    if values.tensorflow_text:
        import tensorflow_text  # noqa: F401 (its import loads the operations)

    dispatchers, address = [], values.dispatcher
    if address is not None:
        check_service(address)
        of_workers = address.removeprefix("grpc://")
    else:
        config = tf.data.experimental.service.DispatcherConfig(
            port=values.port, protocol="grpc", work_dir=values.work_dir, fault_tolerant_mode=values.work_dir is not None
        )
        dispatchers = [tf.data.experimental.service.DispatchServer(config)]
        of_workers = dispatchers[0].target.removeprefix("grpc://")
        address = f"grpc://{values.host}:{of_workers.rpartition(':')[2]}"
    workers = [_start_worker(of_workers, number, values) for number in range(values.workers)]
    return address, [*dispatchers, *workers]


def main(argv):
    """Runs the service until it is told to stop; what is wrong with flags, ports or addresses is said in one line."""
    if len(argv) > 1:
        sys.exit(f"tools.data_service: {argv[1]} is not understood; the program takes flags only, see --help")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        address, _servers = start_service(flags.FLAGS)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.data_service: {error}")
    print(address, flush=True)
    stopped.wait()
    # The servers' own end can wait for minutes where consumers left jobs behind, and has nothing to save: a dispatcher
    # writes its state before it answers.
    os._exit(0)


def _start_worker(dispatcher, number, values):
    import tensorflow as tf

    servers = tf.data.experimental.service
    port = values.worker_port and values.worker_port + number
    _refuse_used_port("worker_port", port)
    return servers.WorkerServer(
        servers.WorkerConfig(
            dispatcher_address=dispatcher, worker_address=f"{values.host}:%port%", port=port, protocol="grpc"
        )
    )


def _refuse_used_port(flag, port):
    """gRPC would share the port with another server without a word, and each would get some of the calls."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise OSError(
            f"port {port} cannot be used: {os.strerror(error.errno)}. Give another --{flag}, or 0 for any that is free"
        ) from error


def _fit_together(values):
    if values["dispatcher"] is None:
        return True
    if not values["workers"]:
        raise flags.ValidationError("--dispatcher is for workers; with --workers=0 there is nothing to run")
    if values["work_dir"] is not None:
        raise flags.ValidationError("--work_dir belongs to a dispatcher, and with --dispatcher there is none here")
    return True


if __name__ == "__main__":
    define_flags()
    app.run(main)
