import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.finetuning import training_input
from keras_bert.finetuning.recipe import FineTuningRecipe
from tasks import glue
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.tasks import programs
from tests.tasks.programs import SECONDS, check_status, interrupt, read_json

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def service():
    command = [sys.executable, "-m", "tools.data_service", "--port=0", "--workers=2"]
    process = ForkedProgram(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0


@pytest.mark.slow
def test_two_workers_train_and_resume_with_a_new_pass(service, start_rte, tmp_path):
    flags = (f"--data_service={service}", "--checkpoint_every=200")
    first = start_rte(tmp_path / "run", *flags, workers=2)
    stopped_at = interrupt(first, 30)
    assert f"tf.data service at {service}" in first[0].output
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("step_*")
    assert int(checkpoint.name.removeprefix("step_")) == stopped_at
    assert not read_json(checkpoint / "manifest.json")["has_positions"]

    again = start_rte(tmp_path / "run", *flags, workers=2)
    check_status(again, 0)
    log = " ".join(again[0].output.split())
    assert f"model and optimizer at step {stopped_at} of 120; a new pass over the data starts" in log
    assert read_json(tmp_path / "run" / "results.json")["best"]["steps"] == 120
    assert again[0].steps("resumed") == [stopped_at]
    assert {*first[0].steps("train"), *again[0].steps("train")} >= set(range(5, 121, 5))


@pytest.mark.slow
def test_run_with_a_service_differs_from_one_without(service, toy_glue, toy_checkpoint, tmp_path):
    options = {"task": "rte", "data_dir": toy_glue, "epochs": 1}
    programs.run(glue, "train", tmp_path / "run", toy_checkpoint, data_service=service, **options)
    with pytest.raises(SystemExit, match="data_service is None, but True in that run"):
        programs.run(glue, "train", tmp_path / "run", toy_checkpoint, **options)


def test_batch_size_must_be_divisible_by_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(training_input, "get_num_workers", lambda strategy: 3)
    for options, message in (
        ({}, "batch_size=32 does not divide by 3; take 30 or 33"),
        ({"token_budget": 2}, r"token_budget=2 does not divide by 3; take 3$"),
    ):
        with pytest.raises(ValueError, match=message):
            training_input.check_training_input(None, FineTuningRecipe(**options), "grpc://localhost:1")


def test_rejects_a_service_that_does_not_answer_and_names_one_that_was_restarted():
    (address,) = free_addresses(1)
    with pytest.raises(ConnectionError, match="does not answer"):
        training_input.check_training_input(None, FineTuningRecipe(), f"grpc://{address}")
    explain = training_input.explain_service_errors
    with pytest.raises(ConnectionError, match="grpc://a:1 does not know this training"), explain("grpc://a:1"):
        raise tf.errors.NotFoundError(None, None, "Iteration id 7 not found")
    with pytest.raises(tf.errors.NotFoundError), explain(None):
        raise tf.errors.NotFoundError(None, None, "a file")
