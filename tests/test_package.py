import subprocess
import sys
from pathlib import Path

import pytest

import keras_bert

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there():
    for name in keras_bert.__all__:
        assert getattr(keras_bert, name) is not None
    assert set(keras_bert.__all__) <= set(dir(keras_bert))


def test_an_unknown_name():
    with pytest.raises(AttributeError, match=r"no attribute 'BertClasifier'; its public names are \['BertAdamW'"):
        _ = keras_bert.BertClasifier


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, keras_bert; print(sorted({'tensorflow', 'keras', 'jax'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_imports_between_rooms_point_one_way():
    run = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
