import json

import pytest
from absl import app

from benchmarks import __main__ as program
from benchmarks import scale
from tests.tasks.programs import parse


def make_figures():
    """Time grows with batch size and length, memory with their product and the length."""
    return {
        scale.point_name(kind, length, size): {
            "time s": size * (length or 1) * 1e-3,
            "memory MiB": size * (length or 1) ** 2 * 1e-2,
            "tokenize tok/s": 1e6 * size,
            "batches tok/s": 1e6 * size,
        }
        for kind, length, size in scale.list_points()
    }


def test_fits_exponents():
    assert scale.fit_exponent([1, 2, 8], [3, 12, 192]) == pytest.approx(2)
    lines = scale.make_tables(make_figures()).splitlines()
    assert "| 128 tokens, time s | 0.128 | 0.512 | 2.048 | 8.192 | 32.77 | 1.00 (1.00) |" in lines
    assert sum(line.startswith("| exponent in the length | 2.00 (2.00) |") for line in lines) == 2


def test_skips_what_would_not_fit(tmp_path, monkeypatch, capsys):
    figures = make_figures()
    del figures["train 256 x 512"]
    assert scale.expected_memory(figures, "train", 512, 256) == pytest.approx(256 * 512**2 * 1e-2)
    assert scale.expected_memory({}, "train", 512, 1) == 0
    (tmp_path / "scale.json").write_text(json.dumps(figures))
    monkeypatch.setattr(scale, "_run_point", None)  # nothing is measured again
    scale.measure(parse(program, suite="scale", folder=tmp_path, max_gib=1))
    assert "train 256 x 512: skipped, would need about 655 GiB" in capsys.readouterr().out


def test_plots_are_stable(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        scale.draw_curves(make_figures(), folder)
    for name in ("train.svg", "serve.svg", "predict.svg"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_needs_a_folder():
    with pytest.raises(app.UsageError, match="needs --folder"):
        program.check_flags(parse(program, suite="scale"))
