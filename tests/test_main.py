import importlib.metadata

import pytest

from keras_bert import __main__ as report
from keras_bert.text import versions
from keras_bert.weights import preset_names
from keras_bert.weights.preset_table import BUNDLED, PRESETS


def test_a_good_installation(capsys, monkeypatch):
    monkeypatch.setattr(report, "processor_features", lambda: frozenset({"avx512f", "avx2"}))
    assert report.main() == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["tensorflow"] == importlib.metadata.version("tensorflow")
    assert lines["devices"].startswith("cpu:0")
    assert lines["bfloat16"] == "slow, because the processor has no instructions for it; use float32"


def test_a_wrong_tensorflow_text(capsys, monkeypatch):
    monkeypatch.setattr(versions.importlib.metadata, "version", lambda name: "2.20.0")
    assert report.main() == 1
    message = capsys.readouterr().out.strip().splitlines()[-1]
    assert message.endswith('Install it with: pip install "tensorflow-text==2.21.*,>=2.21.1"')


@pytest.mark.parametrize(
    ("features", "devices", "environment", "is_advised"),
    [
        (["avx2", "fma"], ["cpu:0"], {}, True),
        (["avx2"], ["cpu:0"], {"TF_ENABLE_ONEDNN_OPTS": "0"}, False),
        (["avx2", "avx512f"], ["cpu:0"], {}, False),
        (["avx2"], ["gpu:0"], {}, False),
        ([], ["cpu:0"], {}, False),
    ],
)
def test_advises_onednn_where_tensorflow_leaves_it_off(features, devices, environment, is_advised):
    assert (report.advise_onednn(features, devices, environment) is not None) == is_advised


def test_presets_that_are_here(monkeypatch, tmp_path):
    monkeypatch.setattr(
        preset_names, "is_downloaded", lambda address: address.repository == "google-bert/bert-base-cased"
    )
    monkeypatch.setattr(preset_names.importlib.util, "find_spec", lambda name: None)
    here = [name for name, preset in PRESETS.items() if preset.source == BUNDLED]
    assert preset_names.find_local_presets() == [*here, "bert_base_en_cased"]
