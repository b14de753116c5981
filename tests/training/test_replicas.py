import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_bert.training.strategy import make_strategy
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.tolerances import assert_close
from tests.training.models import HAS_FLOAT16
from tests.training.replicas_program import BATCH_SIZES, FACTOR, OVERFLOWING, collect_results

pytestmark = pytest.mark.slow
MODES = ("one", "mirrored", "worker0", "worker1")
STRATEGIES = MODES[1:]
FLOAT16 = pytest.mark.skipif(not HAS_FLOAT16, reason="oneDNN is limited to instructions without float16")


def start(mode, output, *arguments):
    program = [sys.executable, "-m", "tests.training.replicas_program", mode, str(output), *arguments]
    with open(f"{output}.log", "w") as log:
        return ForkedProgram(program, cwd=Path(__file__).parents[2], stdout=log, stderr=subprocess.STDOUT)


def finish(process, output):
    assert process.wait(timeout=600) == 0, Path(f"{output}.log").read_text()[-3000:]
    return dict(np.load(output))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results by mode; training on one device runs in this process."""
    outputs = {mode: tmp_path_factory.mktemp("replicas") / f"{mode}.npz" for mode in STRATEGIES}
    addresses = ",".join(free_addresses(2))
    programs = {"mirrored": start("mirrored", outputs["mirrored"])}
    programs |= {name: start("worker", outputs[name], name[-1], addresses) for name in ("worker0", "worker1")}
    try:
        found = {"one": collect_results(make_strategy("one_device"))}
        return found | {mode: finish(program, outputs[mode]) for mode, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()


def get_weights(results, name):
    weights = [value.ravel() for key, value in results.items() if key.startswith(f"{name}/weight ")]
    assert len(weights) > 1
    return np.concatenate(weights)


@pytest.mark.parametrize("mode", STRATEGIES)
@pytest.mark.parametrize("name", ["classifier", "two_terms", "uneven_shards", pytest.param("float16", marks=FLOAT16)])
def test_weights_equal_those_of_one_device(found, name, mode):
    """With gradient accumulation on all but one device, and clipping at every step."""
    one, other = found["one"], found[mode]
    assert_close(get_weights(other, name), get_weights(one, name), num_terms=sum(BATCH_SIZES), magnitude=1.0)
    for number in ("examples", "steps", "gradient_norm", "failed"):
        dtype = "float16" if name == "float16" else "float32"
        assert_close(other[f"{name}/{number}"], one[f"{name}/{number}"], max(BATCH_SIZES), dtype)
    assert one[f"{name}/gradient_norm"] > 0.1  # the limit


def test_workers_and_replicas_hold_identical_weights(found):
    weights = [key for key in found["worker0"] if "/weight " in key]
    assert len(weights) > 30
    for key in weights:
        np.testing.assert_array_equal(found["worker0"][key], found["worker1"][key])
    differences = [value for key, value in found["mirrored"].items() if key.endswith("/difference")]
    assert len(differences) > 6 and max(differences) == 0.0


@FLOAT16
@pytest.mark.parametrize("mode", MODES)
def test_an_overflow_on_one_replica_skips_the_step_on_all(found, mode):
    assert list(found[mode]["float16/skipped"]) == [int(i in OVERFLOWING) for i in range(len(BATCH_SIZES))]
    assert found[mode]["float16/factor"] == FACTOR / 2 ** len(OVERFLOWING)


def test_workers_with_different_amounts_of_data_end_together(found):
    for mode in found:
        assert found[mode]["uneven_shards/steps"] == 3
        assert found[mode]["uneven_shards/examples"] == 20


@pytest.mark.parametrize("mode", ["one", "mirrored", "worker0"])
def test_dropout_does_not_depend_on_the_number_of_calls(found, mode):
    np.testing.assert_array_equal(get_weights(found[mode], "dropout/1"), get_weights(found[mode], "dropout/2"))


def test_replicas_draw_different_reproducible_masks(found):
    mirrored, workers = found["mirrored"], (found["worker0"], found["worker1"])
    first = mirrored["masks/0/0"], mirrored["masks/0/1"]
    assert 0.2 < (first[0] == first[1]).mean() < 0.8
    for replica in range(2):
        np.testing.assert_array_equal(mirrored[f"masks/1/{replica}"], first[replica])
        assert 0.2 < (mirrored[f"masks/2/{replica}"] == first[replica]).mean() < 0.8
        np.testing.assert_array_equal(workers[replica]["masks/0/0"], first[replica])  # wherever the replica is


@pytest.mark.parametrize(("name", "expected"), [("even", "even"), ("jit_two_terms", "two_terms")])
def test_xla_compiles_static_shapes_and_uneven_batches(found, name, expected):
    """With gradient accumulation; the static shapes, as on a TPU, also with gradient checkpointing."""
    weights = get_weights(found["mirrored"], name), get_weights(found["one"], expected)
    assert_close(*weights, num_terms=sum(BATCH_SIZES), magnitude=1.0)


def test_a_custom_loop_on_replicas_equals_one_device(found):
    one, mirrored = found["one"], found["mirrored"]
    assert one["loop/norms"].min() > 1.5  # the limit is 1: every step was clipped
    np.testing.assert_array_equal(mirrored["loop/norms"][:, 0], mirrored["loop/norms"][:, 1])
    assert_close(mirrored["loop/norms"][:, :1], one["loop/norms"], num_terms=128)
    assert_close(get_weights(mirrored, "loop"), get_weights(one, "loop"), num_terms=128, magnitude=1.0)


def test_an_error_on_one_replica_is_raised(found):
    mirrored = found["mirrored"]
    assert "norm of the gradients is not finite" in str(mirrored["nan/message"])
    assert mirrored["nan/change"] == 0.0
    assert "optimizer.build(trainable_variables) inside strategy.scope()" in str(mirrored["before_build"])


def test_splits_a_cpu_into_logical_devices(found):
    mirrored = found["mirrored"]
    assert mirrored["replicas"] == 2
    assert list(mirrored["worker"]) == [0, 1] and mirrored["any_worker"]
    assert json.loads(str(mirrored["run_info"])) == {"strategy": "mirrored", "replicas": "2", "devices": "CPU 0, CPU 1"}
