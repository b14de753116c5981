"""SIGTERM, with which clusters announce that a process is about to end: it saves and stops instead of dying."""

import signal
import threading

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended, as shells say it


def stop_on_sigterm():
    """Makes the first SIGTERM ask for an end; a second one ends the process at once.

    Returns:
        A function without arguments that says whether one has come.
    """
    asked = threading.Event()

    def ask(number, frame):
        asked.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, ask)
    return asked.is_set
