"""Training on batches from a tf.data service, by two workers on loopback, and when it is interrupted."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.finetuning import training_input as module
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.training_input import check_training_input, explain_service_errors
from tasks import glue
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.tasks import programs
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
    assert not json.loads((checkpoint / "manifest.json").read_text())["has_positions"]

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
def test_run_with_a_service_differs_from_one_without(service, toy_glue, toy_checkpoint, tmp_path):
    given = {"task": "rte", "data_dir": toy_glue, "epochs": 1}
    programs.run(glue, "train", tmp_path / "run", toy_checkpoint, data_service=service, **given)
    with pytest.raises(SystemExit, match="data_service is None, but True in that run"):
        programs.run(glue, "train", tmp_path / "run", toy_checkpoint, **given)


def test_batch_has_to_divide_by_the_workers(monkeypatch):
    monkeypatch.setattr(module, "get_num_workers", lambda strategy: 3)
    with pytest.raises(ValueError, match="batch_size=32 does not divide by 3; take 30 or 33"):
        check_training_input(None, FineTuningRecipe(), "grpc://localhost:1")
    with pytest.raises(ValueError, match=r"token_budget=2 does not divide by 3; take 3$"):
        check_training_input(None, FineTuningRecipe(token_budget=2), "grpc://localhost:1")


def test_service_that_does_not_answer_is_refused_before_training():
    (address,) = free_addresses(1)
    with pytest.raises(ConnectionError, match="does not answer"):
        check_training_input(None, FineTuningRecipe(), f"grpc://{address}")


def test_service_that_has_forgotten_the_training_is_named():
    service = "grpc://a:1"
    message = "grpc://a:1 does not know this training"
    with pytest.raises(ConnectionError, match=message), explain_service_errors(service):
        raise tf.errors.NotFoundError(None, None, "Iteration id 7 not found")
    with pytest.raises(tf.errors.NotFoundError), explain_service_errors(None):
        raise tf.errors.NotFoundError(None, None, "a file")
