import json

import pytest


@pytest.fixture(scope="session")
def golden(shared):
    """Reads the golden cases of a name."""
    return lambda name: json.loads((shared / "golden" / "metrics" / f"{name}.json").read_text())["cases"]
