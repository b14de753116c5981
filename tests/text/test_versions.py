import configparser
import importlib.metadata
from pathlib import Path

import pytest

from keras_bert.text import versions


def test_accepts_equal_minor_versions():
    versions.check_versions("2.21.0", "2.21.1")
    versions.check_versions("2.21.0-rc1", "2.21.2rc0")
    versions.check_versions("2.22.0", "2.22.0")


@pytest.mark.parametrize("version", ["2.20.1", "3.21.0", "2.2.1", "2.21.0", "2.21.0rc0"])
def test_refuses_other_minor_and_older_versions(version):
    with pytest.raises(ImportError, match=r"pip install \"tensorflow-text==2\.21\.\*,>=2\.21\.1\"") as caught:
        versions.check_versions("2.21.0", version)
    assert f"Received: tensorflow-text {version}." in str(caught.value)


def test_refuses_a_missing_tensorflow_text(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match="tensorflow-text is not installed"):
        versions.load_tensorflow_text()


def test_setup_cfg_has_the_same_minimum():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    assert f"tensorflow-text>={versions.MINIMUM_TENSORFLOW_TEXT}," in setup["options"]["install_requires"]
