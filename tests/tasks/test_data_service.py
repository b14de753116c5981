"""Training on batches from a tf.data service, by two workers on loopback, and when it is interrupted."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tasks import training_input as module
from tasks.training_input import check_training_input, errors_of_service

SECONDS = 300
ROOT = Path(__file__).parents[2]


class Job:
    """Two workers that train the toy RTE together, and what they said."""

    def __init__(self, run_dir, toy_glue, checkpoint, service, *flags):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        addresses = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
        for each in sockets:
            each.close()
        command = [
            *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", f"--run_dir={run_dir}"),
            *(f"--init_checkpoint={checkpoint}", "--mode=train", "--max_seq_length=16", "--batch_size=8"),
            *("--epochs=25", "--steps_per_call=5", "--log_every=5", "--evaluate_every=500", "--noprogress"),
            *("--strategy=multi_worker", f"--workers={addresses}", f"--data_service={service}", *flags),
        ]
        self.run_dir = run_dir
        self.said = [run_dir.with_name(f"{time.monotonic_ns()}_{index}.log") for index in range(2)]
        self.workers = []
        for index, file in enumerate(self.said):
            with open(file, "w") as said:
                self.workers.append(
                    subprocess.Popen(
                        [*command, f"--worker_index={index}"], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT
                    )
                )

    def wait_for_update(self, update):
        log, deadline = self.run_dir / "log.jsonl", time.monotonic() + SECONDS
        while not (log.is_file() and f'"step": {update},' in log.read_text()):
            assert self.workers[0].poll() is None, self.said[0].read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def finish(self):
        try:
            return [worker.wait(timeout=SECONDS) for worker in self.workers]
        finally:
            for worker in self.workers:
                worker.kill()


@pytest.fixture(scope="module")
def service():
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.data_service", "--port=0", "--workers=2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0


@pytest.mark.slow
def test_two_workers_train_and_resume_with_a_new_pass(service, toy_glue, toy_checkpoint, tmp_path):
    first = Job(tmp_path / "run", toy_glue, toy_checkpoint, service)
    first.wait_for_update(30)
    first.workers[1].send_signal(signal.SIGTERM)
    assert first.finish() == [143, 143], [file.read_text()[-3000:] for file in first.said]
    assert f"tf.data service at {service}" in first.said[0].read_text()
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("step_*")
    assert not json.loads((checkpoint / "manifest.json").read_text())["places"]

    again = Job(tmp_path / "run", toy_glue, toy_checkpoint, service)
    assert again.finish() == [0, 0], [file.read_text()[-3000:] for file in again.said]
    stopped = int(checkpoint.name.removeprefix("step_"))
    assert f"model and optimizer, of update {stopped} of 500; this input's place cannot be saved: a new pass over" in (
        " ".join(again.said[0].read_text().split())
    )
    assert json.loads((tmp_path / "run" / "results.json").read_text())["best"]["steps"] == 500
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["event"] == "resumed"] == [stopped]
    assert {record["step"] for record in records if record["event"] == "train"} >= set(range(5, 501, 5))


@pytest.mark.slow
def test_a_run_with_a_service_is_another_than_one_without(service, toy_glue, toy_checkpoint, tmp_path):
    command = [
        *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", "--mode=train", "--epochs=1"),
        *(f"--init_checkpoint={toy_checkpoint}", f"--run_dir={tmp_path / 'run'}", "--max_seq_length=16"),
    ]
    first = subprocess.run([*command, f"--data_service={service}"], cwd=ROOT, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr[-3000:]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert other.returncode == 1
    assert "data_service is None, there it was True" in other.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data_service=localhost:5050"], "grpc://host:port"),
        (["--data_service=grpc://a:1", "--deterministic"], "speed"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags, message):
    answer = subprocess.run(
        [sys.executable, "-m", "tasks.glue", "--task=rte", "--data_dir=none", "--run_dir=none", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert answer.returncode != 0
    assert message in answer.stdout + answer.stderr


def test_a_batch_that_does_not_divide_by_the_workers_is_refused(monkeypatch):
    monkeypatch.setattr(module, "number_of_workers", lambda strategy: 3)
    with pytest.raises(ValueError, match="--batch_size=32 does not divide by 3; take 30 or 33"):
        check_training_input(None, "grpc://localhost:1", 32, None, static_shapes=False)
    with pytest.raises(ValueError, match=r"--token_budget=2 does not divide by 3; take 3$"):
        check_training_input(None, "grpc://localhost:1", None, 2, static_shapes=False)


def test_a_service_that_does_not_answer_is_refused_before_training():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match="does not answer"):
        check_training_input(None, f"grpc://127.0.0.1:{port}", 32, None, static_shapes=False)


def test_a_service_that_has_forgotten_the_training_is_named():
    service = "grpc://a:1"
    with pytest.raises(ConnectionError, match="grpc://a:1 does not know this training"), errors_of_service(service):
        raise tf.errors.NotFoundError(None, None, "Iteration id 7 not found")
    with pytest.raises(tf.errors.NotFoundError), errors_of_service(None):
        raise tf.errors.NotFoundError(None, None, "a file")
