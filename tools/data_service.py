"""Runs a tf.data service: a dispatcher, and workers that form batches for training programs (--data_service).

    python -m tools.data_service --port=5050 --workers=2

prints the address for --data_service on standard output once the service is ready, and runs until SIGTERM or SIGINT.
Only programs on the same machine can connect. On several machines, start a dispatcher on one, and workers on others:

    python -m tools.data_service --port=5050 --workers=0 --host=first
    python -m tools.data_service --dispatcher=grpc://first:5050 --workers=4 --host=second

--host is the name under which training programs and workers reach this machine. It does not choose a network interface:
TensorFlow's servers listen on all of them, and can only be restricted to the machine itself (--host=localhost, the
default). Connections are neither encrypted nor authenticated, and whoever can connect to a worker can run computations
on it: keep the ports inside a private network. The service needs the same version of TensorFlow as the training
programs. A pipeline that tokenizes needs --tensorflow_text; that of --data_service does not.
"""

import ipaddress
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
    flags.DEFINE_integer("port", 5050, "Port of the dispatcher; 0 selects a free port.", 0, 65535)
    flags.DEFINE_integer("workers", 2, "Number of workers in this process; 0 runs only a dispatcher.", lower_bound=0)
    flags.DEFINE_integer(
        "worker_port", 0, "Port of the first worker, followed by those of the others; 0 selects free ports.", 0, 65535
    )
    flags.DEFINE_string(
        "dispatcher", None, "grpc://host:port of a dispatcher elsewhere; this process then runs only workers."
    )
    flags.DEFINE_string(
        "host",
        "localhost",
        "Name or address under which programs reach this machine, IPv6 in brackets. With localhost, only programs on "
        "this machine can connect; with any other host, the servers listen on all network interfaces.",
    )
    flags.register_validator("host", _HOST.fullmatch, "must be a host name or address, IPv6 in brackets")
    flags.register_validator("host", _is_reachable, "must be an address to connect to, not one to listen on")
    flags.DEFINE_string("work_dir", None, "Folder for the dispatcher's state, from which it resumes after a restart.")
    flags.DEFINE_bool("tensorflow_text", False, "Load the operations of tensorflow-text, for pipelines that tokenize.")
    flags.register_multi_flags_validator(["dispatcher", "workers", "work_dir"], _fit_together)


def start_service(values):
    """Starts the dispatcher, unless there is one elsewhere, and the workers."""
    if values.dispatcher is None:
        _check_port_is_free("port", values.port)
    import tensorflow as tf

    from keras_bert.data.data_service import check_service, parse_service_address
    from keras_bert.io.addresses import is_loopback

    if values.tensorflow_text:
        import tensorflow_text  # noqa: F401 (its import loads the operations)

    servers, address = [], values.dispatcher
    if address is not None:
        if is_loopback(values.host) and not is_loopback(parse_service_address(address)[0]):
            raise ValueError(
                f"the dispatcher {address} is on another machine, which cannot connect to workers at "
                f"--host={values.host}; give the name of this machine"
            )
        check_service(address)
        target = address.removeprefix("grpc://")
    else:
        config = tf.data.experimental.service.DispatcherConfig(
            port=values.port, protocol="grpc", work_dir=values.work_dir, fault_tolerant_mode=values.work_dir is not None
        )
        servers.append(tf.data.experimental.service.DispatchServer(config))
        _restrict(values.host)
        target = servers[0].target.removeprefix("grpc://")
        address = f"grpc://{values.host}:{target.rpartition(':')[2]}"
    for index in range(values.workers):
        servers.append(_start_worker(target, index, values))
        _restrict(values.host)
    return address, servers


def main(argv):
    """Runs the service until a signal stops it; reports invalid flags, ports and addresses in one line."""
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
    # Stopping the servers can take minutes where clients left jobs behind, and they have nothing to save: a dispatcher
    # writes its state before it answers.
    os._exit(0)


def _start_worker(dispatcher, index, values):
    import tensorflow as tf

    servers = tf.data.experimental.service
    port = values.worker_port and values.worker_port + index
    _check_port_is_free("worker_port", port)
    return servers.WorkerServer(
        servers.WorkerConfig(
            dispatcher_address=dispatcher, worker_address=f"{values.host}:%port%", port=port, protocol="grpc"
        )
    )


def _restrict(host):
    """Refuses connections from other machines if `host` means this machine only."""
    from keras_bert.io.addresses import is_loopback, restrict_to_loopback

    if not is_loopback(host):
        return
    try:
        restrict_to_loopback()
    except OSError as error:
        raise OSError(
            f"the servers cannot be restricted to this machine, as --host={host} asks ({error}). Give the name of this "
            "machine to listen on all network interfaces"
        ) from error


def _check_port_is_free(flag, port):
    """Raises OSError if the port is taken: gRPC would silently share it, and each server would get some calls."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise OSError(
            f"port {port} cannot be used: {os.strerror(error.errno)}. Give another --{flag}, or 0 for any that is free"
        ) from error


def _is_reachable(host):
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return True


def _fit_together(values):
    if values["dispatcher"] is None:
        return True
    if not values["workers"]:
        raise flags.ValidationError("--dispatcher is for workers; with --workers=0 there is nothing to run")
    if values["work_dir"] is not None:
        raise flags.ValidationError("--work_dir belongs to a dispatcher, and with --dispatcher this process has none")
    return True


if __name__ == "__main__":
    define_flags()
    app.run(main)
