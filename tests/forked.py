"""Starts Python programs as forks of a process that has already imported TensorFlow and keras_bert.

The imports take six seconds of CPU time per process. A forked program behaves like one started by `subprocess`: it has
its own arguments, environment, working directory and streams, runs as `__main__`, and exits as Python does. Only
environment variables that are read by the imports, such as KERAS_BACKEND, are those of the test process.
"""

import array
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MAX_REQUEST_BYTES = 1 << 20
_NUM_STREAMS = 3
_INT64 = "q"


class ForkedProgram(subprocess.Popen):
    """Drop-in replacement for `subprocess.Popen` of `[sys.executable, "-m" or "-c", ...]`."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others):
        *_, read_in, write_in, read_out, write_out, read_error, write_error = others[:9]
        assert preexec_fn is None and not pass_fds and args[0] == sys.executable and args[1] in ("-m", "-c"), args
        request = {
            "arguments": [os.fsdecode(argument) for argument in args[1:]],
            "environment": dict(os.environ if env is None else env),
            "folder": os.fsdecode(cwd or os.getcwd()),
        }
        self._status, status = os.pipe()
        streams = [own if given == -1 else given for own, given in enumerate((read_in, write_out, write_error))]
        connection = _server()
        socket.send_fds(connection, [json.dumps(request).encode()], [*streams, status])
        os.close(status)
        (self.pid,) = array.array(_INT64, connection.recv(8))
        self._child_created = True
        self._close_pipe_fds(read_in, write_in, read_out, write_out, read_error, write_error)

    def _try_wait(self, wait_flags):
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        (status,) = array.array(_INT64, os.read(self._status, 8))
        os.close(self._status)
        return self.pid, status

    def _internal_poll(self, *arguments, **options):  # whatever arguments this version of Python has
        if self.returncode is None and self._child_created:
            process, status = self._try_wait(os.WNOHANG)
            if process:
                self._handle_exitstatus(status)
        return self.returncode


def run(command, timeout=None, **options):
    """Like `subprocess.run(command, capture_output=True, text=True)`, with a `ForkedProgram`."""
    with ForkedProgram(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as program:
        try:
            outputs = program.communicate(timeout=timeout)
        finally:
            program.kill()
    return subprocess.CompletedProcess(command, program.returncode, *outputs)


@functools.cache
def _server():
    """Returns a connection to the process that forks; that process ends with this one."""
    connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.forked", str(other.fileno())]
    subprocess.Popen(command, pass_fds=[other.fileno()], cwd=ROOT, stdin=subprocess.DEVNULL)
    other.close()
    return connection


def _serve(connection):
    """Forks for each request. Returns only in the child, with the request."""
    status_pipes = {}  # by child process
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            _report_exits(status_pipes)
        if connection in ready:
            message, files, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, _NUM_STREAMS + 1)
            if not message:
                sys.exit()
            *streams, status = files
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                for each in (connection.detach(), woken, wake, status, *status_pipes.values()):
                    os.close(each)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                return json.loads(message)
            for stream in streams:
                os.close(stream)
            status_pipes[process] = status
            connection.send(array.array(_INT64, [process]))


def _report_exits(status_pipes):
    while status_pipes:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        os.write(status_pipes[process], array.array(_INT64, [status]))
        os.close(status_pipes.pop(process))


def _run_program(request):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    _open_streams()
    kind, program, *arguments = request["arguments"]
    sys.path[0] = request["folder"] if kind == "-m" else ""
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if kind == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *arguments]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)


def _open_streams():
    """Opens the standard streams as Python does at startup, because their files were replaced."""
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    as_text = functools.partial(os.fdopen, encoding=encoding, errors=errors or None, closefd=False)
    sys.stdin, sys.stdout = as_text(0), as_text(1, "w")
    sys.stderr = as_text(2, "w", buffering=1, errors="backslashreplace")


def _import():
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    import keras_bert.export.saved_model
    import keras_bert.text.preprocessor
    import keras_bert.training.trainer  # noqa: F401

    # Fails if TensorFlow has already started its threads, which a fork would not have.
    tf.config.threading.set_inter_op_parallelism_threads(tf.config.threading.get_inter_op_parallelism_threads())
    gc.freeze()


if __name__ == "__main__":
    _import()
    _run_program(_serve(socket.socket(fileno=int(sys.argv[1]))))
