"""The same weights on one device, on two logical devices, and on two workers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_cluster import free_addresses

pytestmark = pytest.mark.slow
MODELS = ("classifier", "two_terms", "uneven_shards")


def start(mode, output, *arguments):
    program = [sys.executable, "-m", "tests.training.replicas_program", mode, str(output), *arguments]
    with open(f"{output}.log", "w") as log:
        return subprocess.Popen(program, cwd=Path(__file__).parents[2], stdout=log, stderr=subprocess.STDOUT)


def finish(process, output):
    try:
        assert process.wait(timeout=600) == 0, Path(f"{output}.log").read_text()[-3000:]
    finally:
        process.kill()
    return dict(np.load(output))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By mode, what the program trained."""
    folder = tmp_path_factory.mktemp("replicas")
    results = {}
    for mode in ("one", "mirrored"):
        output = folder / f"{mode}.npz"
        results[mode] = finish(start(mode, output), output)
    addresses = ",".join(free_addresses(2))
    outputs = [folder / f"worker{index}.npz" for index in range(2)]
    workers = [start("worker", output, str(index), addresses) for index, output in enumerate(outputs)]
    results |= {output.stem: finish(worker, output) for worker, output in zip(workers, outputs, strict=True)}
    return results


def weights_of(result, name):
    return np.concatenate([value.ravel() for key, value in result.items() if key.startswith(f"{name}/weight ")])


@pytest.mark.parametrize("mode", ["mirrored", "worker0", "worker1"])
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_the_weights_are_those_of_one_device(found, model, micro_batches, mode):
    one, other = (weights_of(found[name], f"{model}/{micro_batches}") for name in ("one", mode))
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
    for number in ("examples", "steps", "gradient_norm", "failed"):
        key = f"{model}/{micro_batches}/report {number}"
        np.testing.assert_allclose(found[mode][key], found["one"][key], rtol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_micro_batches_change_nothing_and_clipping_was_active(found, model):
    one, two = (weights_of(found["one"], f"{model}/{micro_batches}") for micro_batches in (1, 2))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)
    assert found["one"][f"{model}/1/report gradient_norm"] > 0.1  # the program's limit


def test_workers_hold_identical_weights(found):
    for key, value in found["worker0"].items():
        if "/weight " in key or key.startswith("dropout"):
            np.testing.assert_array_equal(value, found["worker1"][key])


def test_workers_whose_data_differ_in_length_end_together(found):
    for mode in found:
        assert found[mode]["uneven_shards/1/report steps"] == 3
        assert found[mode]["uneven_shards/1/report examples"] == 20


@pytest.mark.parametrize("mode", ["one", "mirrored", "worker0"])
def test_with_dropout_the_seed_alone_decides(found, mode):
    np.testing.assert_array_equal(found[mode]["dropout/0"], found[mode]["dropout/1"])  # in one call, and in two
    assert np.abs(found[mode]["dropout/0"] - found[mode]["dropout/2"]).max() > 1e-4


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
    np.testing.assert_allclose(weights_of(found[mode], "fit"), weights_of(found[mode], "even"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["one", "mirrored"])
def test_compiled_by_xla_with_static_shapes_as_on_a_tpu(found, mode):
    assert found[mode]["jit/loss"] == pytest.approx(found[mode]["even/loss"], rel=1e-5)
    np.testing.assert_allclose(weights_of(found[mode], "jit"), weights_of(found["one"], "even"), rtol=0, atol=1e-5)
