"""Runs the examples in docstrings, and checks that the public interface is documented."""

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
import keras_bert.training

MODULES = ["keras_bert", *(module.name for module in pkgutil.walk_packages(keras_bert.__path__, "keras_bert."))]
# Names that examples may use without importing them.
NAMES = {"keras": keras, "keras_bert": keras_bert, "np": np, "tf": tf, "tempfile": tempfile, "Path": Path}
PUBLIC = {name: getattr(module, name) for module in (keras_bert, keras_bert.training) for name in module.__all__}
del PUBLIC["__version__"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(module, extraglobs=NAMES, optionflags=options).failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    value = PUBLIC[name]
    docstring = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        assert docstring
        return
    assert ">>>" in docstring, "has no example"
    # The help texts of fields, which programs show, document arguments as well.
    has_help = dataclasses.is_dataclass(value) and all(
        field.metadata.get("help") for field in dataclasses.fields(value)
    )
    assert has_help or "Args:" in docstring or not inspect.signature(value).parameters, "has no section Args"
    own = vars(value) if inspect.isclass(value) else {}
    methods = [key for key, method in own.items() if not key.startswith("_") and callable(getattr(value, key))]
    # The methods of Keras and TensorFlow have the meaning that their base class documents.
    undocumented = [key for key in methods if not inspect.getdoc(getattr(value, key))]
    assert undocumented == []
