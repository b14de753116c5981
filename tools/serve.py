"""Starts a local server for development: a page to try any model in a browser, and TensorFlow Serving's REST paths.

    python -m tools.serve --saved_model=models/reviews/1
    python -m tools.serve --run_dir=runs/messages
    python -m tools.serve --preset=bert_tiny_novels

--saved_model is the folder of a SavedModel, or of its versions, of which the highest is served. --run_dir is a run of a
training program, and --preset the name of a preset, hf://owner/name or the folder of a checkpoint; both also show the
attention weights of a text. What has not been exported yet is exported to a temporary folder first.

The server listens to this machine only, and is not for production: use TensorFlow Serving (docs/serving.md). It
switches to the newest version in a folder of versions. SIGTERM stops it after it has answered the requests that it
accepted; SIGUSR1 restarts it in the same way, and new requests wait until it has started.
"""

import os
import re
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

from absl import app, flags, logging

from tools.program import flag_definer, hide_info_logs, run_program

_BACKLOG = 1024  # connections that wait during a restart


def find_versions(folder):
    """Returns the folders of the versions of a SavedModel, the highest last; others, such as backups, are left out."""
    folders = [path.parent for path in Path(folder).glob("*/saved_model.pb")]
    versions = [folder for folder in folders if re.fullmatch("[0-9]+", folder.name)]
    return sorted(versions, key=lambda version: int(version.name))


def find_newest(folder):
    """Returns the folder of a SavedModel, or that of its highest version; None if there is none."""
    if (Path(folder) / "saved_model.pb").is_file():
        return Path(folder)
    return next(reversed(find_versions(folder)), None)


def model_name(path):
    """Returns the name of a model from its folder, without the version and the folder of a run's exports."""
    parts = [part for part in Path(path).absolute().parts if not part.isdigit() and part != "saved_model"]
    return re.sub(r"[^\w.-]", "_", parts[-1])


def export_checkpoint(path, folder, pairs=False):
    """Exports the head of a checkpoint, or the text vectors of an encoder alone; returns the folder."""
    import keras_bert
    from keras_bert.weights.model_card import find_model_class

    name = find_model_class(path)
    if name in ("BertEncoder", "BertPretrainer"):
        model = keras_bert.BertPretrainer.from_checkpoint(path)
        if any(variable.startswith("masked_lm/") for variable in model.checkpoint_report.random):
            model = keras_bert.BertTextEmbedder.from_checkpoint(path)
    else:
        model = getattr(keras_bert, name).from_checkpoint(path)
    return model.export(Path(folder) / "1", **({"pairs": True} if pairs else {}))


def load_model(values):
    """Returns a `ServedModel`, and the checkpoint that it was exported from, if known."""
    from tools.served_model import ServedModel

    if values.saved_model:
        folder = find_newest(values.saved_model)
        if folder is None:
            raise ValueError(f"--saved_model={values.saved_model} holds no SavedModel, nor versions of one")
        return ServedModel(folder, values.name or model_name(folder)), None

    from keras_bert.finetuning.run_models import resolve_checkpoint

    flag = "run_dir" if values.run_dir else "preset"
    checkpoint = resolve_checkpoint(values.run_dir or values.preset, f"--{flag}")
    name = values.name or model_name(values.run_dir or values.preset)
    folder = find_newest(Path(values.run_dir) / "saved_model") if values.run_dir else None
    if folder is not None:
        return ServedModel(folder, name), checkpoint
    with tempfile.TemporaryDirectory() as temporary:
        return ServedModel(export_checkpoint(checkpoint, temporary, values.pairs), name), checkpoint


def load_attention(checkpoint, name):
    """Returns the function that builds pages of attention weights; None for an encoder without them."""
    from tools.attention import AttentionModel

    try:
        return AttentionModel(checkpoint, name).build_page
    except (OSError, TypeError, ValueError) as error:
        logging.warning("attention weights are not available: %s", error)
        return None


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "saved_model", None, "Folder of a SavedModel, such as models/reviews/1, or of its versions.")
    define("string", "run_dir", None, "Folder of a finished run, instead of --saved_model.")
    define("string", "preset", None, "Name of a preset or folder of a checkpoint, instead of --saved_model.")
    define("bool", "pairs", False, "The classifier of --preset takes pairs of texts.")
    define("string", "name", None, "Name of the model in addresses; default: that of the folder.")
    define("integer", "port", 8501, "Port; 0 chooses a free one.", 0, 65535)
    define("integer", "socket", None, "File descriptor of a listening socket, instead of --port.", 3)
    define("float", "timeout_seconds", 30.0, "Maximum time for a response.", 0.001)
    flags.mark_flags_as_mutual_exclusive(["saved_model", "run_dir", "preset"], required=True, flag_values=values)


def make_server(model, attention, port, timeout_seconds, fd=None):
    """Returns a server that answers several clients at a time; `serve_forever` starts it.

    `fd` is the file descriptor of a listening socket, instead of a port.
    """
    from werkzeug import serving

    from tools.serving_page import HOST, ServingApp

    # The time to receive a request; and no second request by a connection, which the end of the server would interrupt.
    settings = {"timeout": timeout_seconds, "protocol_version": "HTTP/1.0"}
    handler = type("Handler", (serving.WSGIRequestHandler,), settings)
    application = ServingApp(model, attention, timeout_seconds)
    server = serving.make_server(HOST, port, application, threaded=True, request_handler=handler, fd=fd)
    server.daemon_threads = False  # `serve_forever` returns when all accepted requests are answered
    return server


def watch_versions(folder, application, stopped):
    """Switches an application to the newest version of its model in a folder, every second until an event is set."""
    from tools.served_model import ServedModel

    while not stopped.wait(1):
        newest = find_newest(folder)
        if newest is None or newest.name == application.model.version:
            continue
        try:
            application.model = ServedModel(newest, application.model.name)
        except Exception as error:  # for example half of a version, while it is copied: it is tried again
            logging.warning("%s cannot be loaded, and version %s stays: %s", newest, application.model.version, error)
        else:
            # In one call, so that the log of a request does not get into the line.
            sys.stderr.write(f"Version: {newest.name}\n")


def serve(server, watched):
    """Serves until a signal; returns whether to restart."""
    signals, stopped = [], threading.Event()

    def stop(number, _):
        signals.append(number)
        threading.Thread(target=server.shutdown).start()  # which waits for `serve_forever`

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, stop)
    if watched is not None:  # not a daemon: the process must not end while TensorFlow loads a model
        threading.Thread(target=watch_versions, args=[watched, server.app, stopped]).start()
    try:
        server.serve_forever()
    finally:
        stopped.set()
    if signal.SIGUSR1 in signals:  # until the next `serve`: no request is left that SIGTERM would have to wait for
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return signal.SIGUSR1 in signals and signal.SIGTERM not in signals


def run(values):
    """Loads the model and serves it until the process is interrupted."""
    from tools.serving_page import HOST

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until it serves; by default, the signal ends the process
    # Not the server's own, so that it stays open in a restart and connections wait in it.
    listener = (
        socket.socket(fileno=values.socket)
        if values.socket
        else socket.create_server((HOST, values.port), backlog=_BACKLOG)
    )
    model, checkpoint = load_model(values)
    attention = load_attention(checkpoint, model.name) if checkpoint else None
    port = listener.getsockname()[1]
    server = make_server(model, attention, port, values.timeout_seconds, listener.fileno())
    print(f"Page: http://localhost:{port}/\nREST: http://localhost:{port}/v1/models/{model.name}", file=sys.stderr)
    print(
        "The server is for development and listens to this machine only; Ctrl+C stops it.", file=sys.stderr, flush=True
    )
    is_versioned = values.saved_model and not (Path(values.saved_model) / "saved_model.pb").is_file()
    if serve(server, values.saved_model if is_versioned else None):
        listener.set_inheritable(True)
        arguments = [argument for argument in sys.orig_argv[1:] if not argument.startswith("--socket=")]
        os.execv(sys.executable, [sys.executable, *arguments, f"--socket={listener.fileno()}"])


def main(argv):
    """Runs the program; errors of the model and the flags are printed without a traceback."""
    hide_info_logs()
    run_program("serve", run, argv, "texts are given on the page", (OSError, TypeError, ValueError))


if __name__ == "__main__":
    define_flags()
    app.run(main)
