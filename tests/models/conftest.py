import pytest

from tests.models.golden import copy_checkpoint


@pytest.fixture(params=["gelu", "gelu_new"])
def golden(shared, request):
    """Folder of Hugging Face's tiny model with the head that the test module names in GOLDEN_HEAD."""
    return shared / "golden" / "hf_tiny" / request.param / request.module.GOLDEN_HEAD


@pytest.fixture
def folder(golden, tmp_path):
    """Its checkpoint, with a vocabulary of 200 words."""
    return copy_checkpoint(golden, tmp_path)
