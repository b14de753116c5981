"""A constant load on the development server, `tools.serve`: latencies, wrong answers, memory, and what overload does.

Texts of mixed lengths arrive at a fixed rate, whether or not earlier ones are answered, and every answer is compared
with that of the model itself. After a sixth of the time a new version is added, and after a third the server restarts,
both under load. Then ten times the rate arrives for a few seconds.
"""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.comparison import ProgramError
from benchmarks.scale import status_mebibytes
from benchmarks.serving import make_texts
from benchmarks.timing import load_head
from tools.program import hide_info_logs

_LENGTHS = (8, 16, 32, 64, 128)  # tokens; the numbers of texts are in inverse proportion
_OVERLOAD, _OVERLOAD_SECONDS = 10, 5.0
_CLIENT = Path(__file__).with_name("load_client.py")


def measure(values):
    """Measures the exported classifier of `values.init_checkpoint`, and prints the figures."""
    locust = find_locust()
    if locust is None:
        raise ProgramError("--suite=load needs locust: pip install '.[benchmark]'")
    hide_info_logs()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = _export(values.init_checkpoint, folder)
        with Server(model) as server:
            _send(locust, server, folder, values.rate, 5.0)  # first requests take longer
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                events = pool.submit(_disturb, server, model, values.seconds)
                answers = _send(locust, server, folder, values.rate, values.seconds)
                memory = events.result()
            if server.versions != ["2"]:
                raise ProgramError(f"the server changed to the versions {server.versions} instead of 2")
            overload = _send(locust, server, folder, _OVERLOAD * values.rate, _OVERLOAD_SECONDS, max_tries=1)
    middle = min(answer["start"] for answer in answers) + values.seconds / 2
    halves = [[answer for answer in answers if (answer["start"] >= middle) == later] for later in (False, True)]
    print(
        f"{values.rate:g} requests/s for {values.seconds / 2:g} s, a new version and a restart: {_describe(halves[0])}"
    )
    print(f"{values.rate:g} requests/s for {values.seconds / 2:g} s: {_describe(halves[1])}")
    print(f"memory of the server in that time, MiB: {', '.join(f'{size:.0f}' for size in memory)}")
    print(f"{_OVERLOAD * values.rate:g} requests/s for {_OVERLOAD_SECONDS:g} s: {_describe(overload)}")


def find_locust():
    """Returns the program locust of this environment or of the path, or None."""
    return shutil.which("locust", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def _export(checkpoint, folder):
    """Writes a classifier and requests to it with their expected answers; returns the folder of its versions."""
    from keras_bert.models.classifier import BertClassifier
    from tools.served_model import ServedModel

    head = load_head(BertClassifier, checkpoint, labels=["negative", "positive"])
    model = folder / "reviews"
    head.export(model / "1")
    served = ServedModel(model / "1", "reviews")
    texts = [text for length in _LENGTHS for text in make_texts(head.preprocessor, max(_LENGTHS) // length, length)]
    requests = [[text, served.predict({"instances": [text]})["predictions"][0]] for text in texts]
    order = np.random.default_rng(0).permutation(len(requests))
    (folder / "requests.json").write_text(json.dumps([requests[index] for index in order]))
    return model


class Server:
    """A process of `tools.serve`."""

    def __init__(self, model):
        command = [sys.executable, "-m", "tools.serve", f"--saved_model={model}", "--port=0"]
        root = Path(__file__).parents[1]
        self.process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
        self._started = threading.Semaphore(0)
        self.versions = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self):
        try:
            self.wait_for_start()
        except ProgramError:
            self.process.kill()
            raise
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self._reader.join()
        if self.process.wait() != 0:
            raise ProgramError(f"the server ended with status {self.process.returncode}")

    def _read(self):
        for line in self.process.stderr:
            if match := re.match(r"REST: (http://localhost:\d+)", line):
                self.address = match[1]
                self._started.release()
            elif line.startswith("Version: "):
                self.versions.append(line.split()[1])

    def wait_for_start(self):
        """Waits until the server has printed its address, after a start or a restart."""
        if not self._started.acquire(timeout=120):
            raise ProgramError("the server does not start")

    def restart(self):
        """Restarts the server and waits for it."""
        self.process.send_signal(signal.SIGUSR1)
        self.wait_for_start()


def _disturb(server, model, seconds):
    """Adds a version and restarts the server in the first half; returns samples of its memory in the second, in MiB."""
    started = time.monotonic()

    def wait_until(fraction):
        time.sleep(max(0.0, started + fraction * seconds - time.monotonic()))

    wait_until(1 / 6)
    shutil.copytree(model / "1", model / ".2")
    (model / ".2").rename(model / "2")
    wait_until(1 / 3)
    server.restart()
    memory = []
    for step in range(6):
        wait_until(0.5 + 0.099 * step)
        memory.append(status_mebibytes("VmRSS", server.process.pid))
    return memory


def _send(locust, server, folder, rate, seconds, max_tries=10):
    """Sends requests; returns a dict for each. Refused ones are sent again after a second, up to `max_tries` times."""
    users = max(1, round(10 * rate))  # each sends a request every ten seconds; more would wait for a slow server
    output = folder / "answers.json"
    job = {"requests": str(folder / "requests.json"), "output": str(output), "pacing": users / rate, "tries": max_tries}
    command = [locust, "-f", _CLIENT, "--headless", "--only-summary", f"--host={server.address}", f"-u{users}"]
    command += [f"-r{rate}", f"-t{seconds:g}s", "--stop-timeout=60"]
    finished = subprocess.run(command, env={**os.environ, "LOAD_JOB": json.dumps(job)}, capture_output=True, text=True)
    if not output.is_file():
        raise ProgramError(f"locust wrote no answers: {finished.stderr[-2000:]}")
    answers = json.loads(output.read_text())
    output.unlink()
    return answers


def _describe(answers):
    """Returns a sentence about outcomes and latencies."""
    times = [answer["milliseconds"] for answer in answers if answer["outcome"] == "right"]
    outcomes = [answer["outcome"] for answer in answers]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted({*outcomes}))
    again = sum(answer["tries"] > 1 for answer in answers)
    p50, p95, p99 = np.percentile(times, [50, 95, 99]) if times else [float("nan")] * 3
    return f"{counts}; {again} sent again; right ones p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms"
