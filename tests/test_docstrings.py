"""Runs the examples in docstrings."""

import doctest
import importlib
import pkgutil
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert

MODULES = ["keras_bert", *(module.name for module in pkgutil.walk_packages(keras_bert.__path__, "keras_bert."))]
# Names that examples may use without importing them.
NAMES = {"keras": keras, "keras_bert": keras_bert, "np": np, "tf": tf, "tempfile": tempfile, "Path": Path}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, extraglobs=NAMES, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, raise_on_error=False
    )
    assert result.failed == 0
