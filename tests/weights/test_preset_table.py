"""The table of presets against published sizes, and the documentation against the table."""

import re
from pathlib import Path

import pytest

import keras_bert
from keras_bert.models.encoder import ENCODER_SIZES
from keras_bert.weights.preset_names import resolve_preset
from keras_bert.weights.preset_table import BUNDLED, HUB, PRESETS, Preset, format_presets

DOCS = Path(__file__).parents[2] / "docs" / "presets.md"


def test_documentation_has_the_table():
    assert format_presets() in DOCS.read_text("utf-8"), "replace the table in docs/presets.md by format_presets()"


def test_names_and_places():
    assert keras_bert.list_presets() == list(PRESETS.values())
    assert all(isinstance(preset, Preset) and preset.name == name for name, preset in PRESETS.items())
    assert all(re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name) for name in PRESETS)
    hub = [preset.repository for preset in PRESETS.values() if preset.source == HUB]
    assert len(set(hub)) == len(hub) and None not in hub
    miniatures = {re.sub(r"_H-|_A-", ",", name) for name in hub if name.startswith("google/")}
    assert miniatures == {
        f"google/bert_uncased_L-{layers},{hidden},{hidden // 64}"
        for layers in range(2, 13, 2)
        for hidden in (128, 256, 512, 768)
    }


# "Number of parameters" of the models' pages and papers, in millions; without the pre-training heads.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("bert_tiny_en_uncased", 4.4),  # google-research/bert, README.md, and arXiv 1908.08962, table 1
        ("bert_mini_en_uncased", 11.2),
        ("bert_small_en_uncased", 28.8),
        ("bert_medium_en_uncased", 41.4),
        ("bert_base_en_uncased", 109.5),
        ("bert_large_en_uncased", 335.1),
        ("all_minilm_l6_v2", 22.7),
        ("bge_small_en_v1_5", 33.4),
    ],
)
def test_numbers_of_parameters(name, millions):
    assert round(PRESETS[name].parameters / 1e6, 1) == millions


@pytest.mark.parametrize("size", ENCODER_SIZES)
def test_parameters_are_those_of_the_encoder(size):
    if size in ("base", "large"):
        pytest.skip("takes seconds")
    encoder = keras_bert.BertEncoder.from_size(size)
    preset = PRESETS[f"bert_{size}_en_uncased"]
    assert preset.parameters == encoder.count_params()
    for argument, value in ENCODER_SIZES[size].items():
        assert getattr(preset, argument) == value


def test_bundled_preset_has_the_size_of_its_file():
    for preset in PRESETS.values():
        if preset.source == BUNDLED:
            encoder = keras_bert.BertEncoder.from_preset(preset.name)
            assert encoder.count_params() == preset.parameters
            file = resolve_preset(preset.name) / preset.format
            # int8 has scales too
            assert file.stat().st_size == pytest.approx(preset.download_size, rel=0.015)


def test_package_has_the_size_of_its_file(minilm):
    preset = PRESETS["all_minilm_l6_v2"]
    assert (minilm / preset.format).stat().st_size == pytest.approx(preset.download_size, rel=0.01)
