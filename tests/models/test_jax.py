import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_equals_goldens_on_jax_without_tensorflow(shared, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed; pip install jax")
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.jax_program", shared / "golden" / "hf_tiny", tmp_path / "encoder.keras"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert float(run.stdout.splitlines()[-1]) < 1e-5
