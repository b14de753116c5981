"""SIGTERM, with which clusters announce that a process is about to end: training saves and stops instead of dying."""

import contextlib
import signal
import threading

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended, as shells say it


@contextlib.contextmanager
def stop_on_sigterm():
    """While it lasts, the first SIGTERM asks for an end; a second one ends the process at once.

    One that was not answered by an exception when it ends is then carried out.

    Yields:
        A function without arguments that says whether one has come.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield lambda: False
        return
    asked = threading.Event()
    before = signal.getsignal(signal.SIGTERM)

    def ask(number, frame):
        asked.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
    if asked.is_set():
        signal.raise_signal(signal.SIGTERM)
