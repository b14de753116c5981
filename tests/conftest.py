"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden reference data and real data sets, which lies beside the checkout where there is one."""
    if not SHARED.is_dir():
        message = f"the folder of reference data is not there: {SHARED}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return SHARED
