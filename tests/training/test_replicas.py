"""The same weights on one device, on two logical devices, and on two workers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_bert.training.strategy import make_strategy
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.training.replicas_program import BATCH_SIZES, FACTOR, OVERFLOWING, results

pytestmark = pytest.mark.slow
MODELS = ("classifier", "two_terms", "uneven_shards")
MODES = ("one", "mirrored", "worker0", "worker1")


def start(mode, output, *arguments):
    program = [sys.executable, "-m", "tests.training.replicas_program", mode, str(output), *arguments]
    with open(f"{output}.log", "w") as log:
        return ForkedProgram(program, cwd=Path(__file__).parents[2], stdout=log, stderr=subprocess.STDOUT)


def finish(process, output):
    assert process.wait(timeout=600) == 0, Path(f"{output}.log").read_text()[-3000:]
    return dict(np.load(output))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By mode, what was trained: by the program, and meanwhile on one device here."""
    outputs = {mode: tmp_path_factory.mktemp("replicas") / f"{mode}.npz" for mode in MODES[1:]}
    addresses = ",".join(free_addresses(2))
    programs = {"mirrored": start("mirrored", outputs["mirrored"])}
    programs |= {name: start("worker", outputs[name], name[-1], addresses) for name in ("worker0", "worker1")}
    try:
        found = {"one": results(make_strategy("one_device"))}
        return found | {mode: finish(program, outputs[mode]) for mode, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()


def test_a_cpu_is_split_into_logical_devices(found):
    split = {key.removeprefix("split/"): value for key, value in found["mirrored"].items() if key.startswith("split/")}
    assert split["replicas"] == 2
    assert list(split["worker"]) == [0, 1] and split["any_worker"]
    assert "too late to split the CPU into 3 logical devices: TensorFlow has started with 2" in str(split["message"])
    assert json.loads(str(split["run_info"])) == {"strategy": "mirrored", "replicas": "2", "devices": "CPU 0, CPU 1"}


def weights_of(result, name):
    return np.concatenate([value.ravel() for key, value in result.items() if key.startswith(f"{name}/weight ")])


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("gradient_accumulation_steps", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_the_weights_are_those_of_one_device(found, model, gradient_accumulation_steps, mode):
    one, other = (weights_of(found[name], f"{model}/{gradient_accumulation_steps}") for name in ("one", mode))
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
    for number in ("examples", "steps", "gradient_norm", "failed"):
        key = f"{model}/{gradient_accumulation_steps}/report {number}"
        np.testing.assert_allclose(found[mode][key], found["one"][key], rtol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_micro_batches_change_nothing_and_clipping_was_active(found, model):
    one, two = (
        weights_of(found["one"], f"{model}/{gradient_accumulation_steps}") for gradient_accumulation_steps in (1, 2)
    )
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)
    assert found["one"][f"{model}/1/report gradient_norm"] > 0.1  # the program's limit


def test_workers_and_replicas_hold_identical_weights(found):
    weights = [key for key in found["worker0"] if "/weight " in key]
    assert len(weights) > 50
    for key in weights:
        np.testing.assert_array_equal(found["worker0"][key], found["worker1"][key])
    apart = [value for key, value in found["mirrored"].items() if key.endswith("/report apart")]
    assert len(apart) > 10 and max(apart) == 0.0


@pytest.mark.parametrize("gradient_accumulation_steps", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_an_overflow_on_one_replica_makes_all_pass_over_the_update(found, mode, gradient_accumulation_steps):
    skipped = [int(number in OVERFLOWING) for number in range(len(BATCH_SIZES))]
    assert list(found["one"]["first_half/1/report skipped"]) == [0] * len(skipped)  # these rows alone
    assert list(found["one"]["second_half/1/report skipped"]) == skipped
    name = f"float16/{gradient_accumulation_steps}"
    assert list(found[mode][f"{name}/report skipped"]) == skipped
    assert found[mode][f"{name}/report factor"] == FACTOR / 2 ** len(OVERFLOWING)
    one, other = weights_of(found["one"], "float16/1"), weights_of(found[mode], name)
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)


def test_workers_whose_data_differ_in_length_end_together(found):
    for mode in found:
        assert found[mode]["uneven_shards/1/report steps"] == 3
        assert found[mode]["uneven_shards/1/report examples"] == 20


@pytest.mark.parametrize("mode", ["one", "mirrored", "worker0"])
def test_with_dropout_the_seed_alone_decides(found, mode):
    same = weights_of(found[mode], "dropout/0")
    np.testing.assert_array_equal(same, weights_of(found[mode], "dropout/1"))  # in one call, and in two
    assert np.abs(same - weights_of(found[mode], "dropout/2")).max() > 1e-4


def test_replicas_draw_different_masks_and_the_same_ones_again(found):
    mirrored, workers = found["mirrored"], (found["worker0"], found["worker1"])
    first = mirrored["masks/0/0"], mirrored["masks/0/1"]
    assert 0.2 < (first[0] == first[1]).mean() < 0.8
    for replica in range(2):
        np.testing.assert_array_equal(mirrored[f"masks/1/{replica}"], first[replica])
        assert 0.2 < (mirrored[f"masks/2/{replica}"] == first[replica]).mean() < 0.8
        np.testing.assert_array_equal(workers[replica]["masks/0/0"], first[replica])  # wherever the replica is


@pytest.mark.parametrize("mode", ["one", "mirrored"])
def test_keras_fit_gives_the_same_weights_for_batches_that_divide_evenly(found, mode):
    np.testing.assert_allclose(weights_of(found[mode], "fit"), weights_of(found["one"], "even"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["one", "mirrored"])
def test_compiled_by_xla_with_static_shapes_as_on_a_tpu(found, mode):
    """On two replicas with recomputed activations and in micro-batches."""
    name = "report loss_terms loss"
    assert found[mode][f"jit_even/{name}"] == pytest.approx(found["one"][f"even/{name}"], rel=1e-5)
    np.testing.assert_allclose(weights_of(found[mode], "jit_even"), weights_of(found["one"], "even"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("gradient_accumulation_steps", [1, 2])
@pytest.mark.parametrize("mode", ["one", "mirrored"])
def test_compiled_by_xla_with_uneven_batches(found, mode, gradient_accumulation_steps):
    compiled = weights_of(found[mode], f"jit_two_terms/{gradient_accumulation_steps}")
    np.testing.assert_allclose(compiled, weights_of(found["one"], "two_terms/1"), rtol=0, atol=1e-6)
