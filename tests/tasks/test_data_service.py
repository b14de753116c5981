"""Training on batches from a tf.data service, by two workers on loopback, and when it is interrupted."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.finetuning import training_input as module
from keras_bert.finetuning.training_input import check_training_input, errors_of_service
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.forked import run as run_forked
from tests.tasks.programs import SECONDS, UPDATES, Workers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def service():
    process = ForkedProgram(
        [sys.executable, "-m", "tools.data_service", "--port=0", "--workers=2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0


@pytest.mark.slow
def test_two_workers_train_and_resume_with_a_new_pass(service, start, tmp_path):
    flags = (f"--data_service={service}", "--checkpoint_every=200")
    first = Workers(start, tmp_path / "run", *flags)
    first.programs[0].wait_for_update(30)
    first.programs[1].process.send_signal(signal.SIGTERM)
    assert first.finish() == [143, 143], [program.said[-3000:] for program in first.programs]
    assert f"tf.data service at {service}" in first.programs[0].said
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("step_*")
    assert not json.loads((checkpoint / "manifest.json").read_text())["places"]

    again = Workers(start, tmp_path / "run", *flags)
    assert again.finish() == [0, 0], [program.said[-3000:] for program in again.programs]
    stopped = int(checkpoint.name.removeprefix("step_"))
    log = " ".join(again.programs[0].said.split())
    assert f"model and optimizer at step {stopped} of {UPDATES}; a new pass over the data starts" in log
    assert json.loads((tmp_path / "run" / "results.json").read_text())["best"]["steps"] == UPDATES
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["event"] == "resumed"] == [stopped]
    assert {record["step"] for record in records if record["event"] == "train"} >= set(range(5, UPDATES + 1, 5))


@pytest.mark.slow
def test_a_run_with_a_service_is_another_than_one_without(service, toy_glue, toy_checkpoint, tmp_path):
    command = [
        *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", "--mode=train", "--epochs=1"),
        *(f"--init_checkpoint={toy_checkpoint}", f"--run_dir={tmp_path / 'run'}", "--max_seq_length=16"),
    ]
    first = run_forked([*command, f"--data_service={service}"], cwd=ROOT)
    assert first.returncode == 0, first.stderr[-3000:]
    other = run_forked(command, cwd=ROOT)
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
    answer = run_forked(
        [sys.executable, "-m", "tasks.glue", "--task=rte", "--data_dir=none", "--run_dir=none", *flags], cwd=ROOT
    )
    assert answer.returncode != 0
    assert message in answer.stdout + answer.stderr


def test_a_batch_that_does_not_divide_by_the_workers_is_refused(monkeypatch):
    monkeypatch.setattr(module, "get_num_workers", lambda strategy: 3)
    with pytest.raises(ValueError, match="--batch_size=32 does not divide by 3; take 30 or 33"):
        check_training_input(None, "grpc://localhost:1", 32, None, static_shapes=False)
    with pytest.raises(ValueError, match=r"--token_budget=2 does not divide by 3; take 3$"):
        check_training_input(None, "grpc://localhost:1", None, 2, static_shapes=False)


def test_a_service_that_does_not_answer_is_refused_before_training():
    (address,) = free_addresses(1)
    with pytest.raises(ConnectionError, match="does not answer"):
        check_training_input(None, f"grpc://{address}", 32, None, static_shapes=False)


def test_a_service_that_has_forgotten_the_training_is_named():
    service = "grpc://a:1"
    with pytest.raises(ConnectionError, match="grpc://a:1 does not know this training"), errors_of_service(service):
        raise tf.errors.NotFoundError(None, None, "Iteration id 7 not found")
    with pytest.raises(tf.errors.NotFoundError), errors_of_service(None):
        raise tf.errors.NotFoundError(None, None, "a file")
