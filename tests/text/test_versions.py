import importlib.metadata

import pytest

from keras_bert.text import versions


def test_equal_minor_versions_pass():
    assert versions.check_versions("2.21.0", "2.21.1") is None
    assert versions.check_versions("2.21.0-rc1", "2.21.0rc0") is None


@pytest.mark.parametrize("other", ["2.20.1", "3.21.0", "2.2.1"])
def test_other_minor_versions_are_refused_with_the_command_that_helps(other):
    with pytest.raises(ImportError, match=r"pip install \"tensorflow-text==2\.21\.\*\"") as caught:
        versions.check_versions("2.21.0", other)
    assert "2.21.0" in str(caught.value) and other in str(caught.value)


def test_missing_tensorflow_text_is_a_sentence(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match="tensorflow-text is not installed"):
        versions.load_tensorflow_text()
