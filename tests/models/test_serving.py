import keras
import pytest

from tests.toys import toy_classifier


def test_export_names_tensorflow_on_another_backend(tmp_path, monkeypatch):
    classifier = toy_classifier()
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="`export` needs TensorFlow, but the Keras backend is jax"):
        classifier.export(tmp_path / "1")
