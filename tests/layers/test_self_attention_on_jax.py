import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_equals_the_plain_attention():
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed; pip install jax")
    run = subprocess.run(
        [sys.executable, "-m", "tests.layers.attention_on_jax"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
