import sys
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_bert.finetuning.plots import draw_confusion_matrix, draw_training_curve


@pytest.fixture(autouse=True)
def strict_matplotlib(monkeypatch):
    """Turns warnings, such as those about missing glyphs, into errors; forbids pyplot, which has global state."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def drawn(monkeypatch):
    """List of the matplotlib figures that were saved."""
    written = []
    save = Figure.savefig

    def savefig(self, *args, **kwargs):
        written.append(self)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return written


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_draws_counts_and_row_fractions(tmp_path, drawn):
    path = draw_confusion_matrix(tmp_path / "new" / "matrix.png", [[90, 10], [30, 20]], ["negative", "positive"])
    assert path == tmp_path / "new" / "matrix.png"
    assert is_png(path)
    assert [file.name for file in path.parent.iterdir()] == ["matrix.png"]
    axes, bar = drawn[0].axes
    cells = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert cells == {(0, 0): ("90", "white"), (1, 0): ("10", "black"), (0, 1): ("30", "white"), (1, 1): ("20", "black")}
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.9, 0.1], [0.6, 0.4]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert axes.get_title() == "150 examples, accuracy 73.3%"
    assert bar.get_ylabel() == "fraction of the true class"


def draw_names(path, drawn, names):
    draw_confusion_matrix(path / "matrix.png", np.diag(np.arange(len(names))), names)
    return [text.get_text() for text in drawn[0].axes[0].get_yticklabels()]


def test_draws_names_in_other_scripts(tmp_path, drawn):
    names = ["возврат", "Ελληνικά", "naïve", "$x$ costs $y", "_hidden", "\U000f0000b"]
    assert draw_names(tmp_path, drawn, names) == [*names[:5], "class 5"]  # no font can draw the last one


def test_shortens_long_names(tmp_path, drawn):
    shown = draw_names(tmp_path, drawn, [f"card_payment_wrong_exchange_rate_{index}" for index in range(25)])
    assert len(set(shown)) == 25
    assert max(map(len, shown)) <= 28
    names = ["short", "a" * 20 + "x" + "b" * 20, "a" * 20 + "y" + "b" * 20, "b" * 40]
    draw_names(tmp_path, drawn, names)
    first, second, third, fourth = [text.get_text() for text in drawn[1].axes[0].get_yticklabels()]
    assert first == "short" and second.endswith("… #1") and third.endswith("… #2") and fourth.endswith("b")


def test_draws_no_numbers_of_many_classes(tmp_path, drawn):
    draw_names(tmp_path, drawn, [f"class {index}" for index in range(101)])
    assert not drawn[0].axes[0].texts


@pytest.mark.parametrize("matrix", [[[1, 2]], [[1, 2, 3]] * 3, [[0.5, 0.5], [1.0, 0.0]], [[-1, 0], [0, 1]]])
def test_rejects_invalid_confusion_matrices(tmp_path, matrix):
    with pytest.raises(ValueError, match=r"counts .* of 2 classes"):
        draw_confusion_matrix(tmp_path / "matrix.png", matrix, ["a", "b"])


def records(number, metrics):
    random = np.random.default_rng(0)
    losses = [1 / step + 0.1 * random.random() for step in range(1, number + 1)]
    train = [{"event": "train", "step": 10 * step, "loss": loss} for step, loss in enumerate(losses, 1)]
    scores = [(10 * number * part // 3, dict.fromkeys(metrics, part / 4)) for part in (1, 2, 3)]
    return train + [{"event": "evaluation", "step": step, "seconds": 2.0, **values} for step, values in scores]


def draw_curve(path, drawn, log):
    """Draws a training curve; returns, for every axes, its lines as dicts from step to value."""
    assert is_png(draw_training_curve(path / "curve.png", log))
    return [
        {line.get_label(): dict(zip(*map(list, line.get_data()), strict=True)) for line in axes.lines}
        for axes in drawn[0].axes
    ]


def test_draws_loss_and_metrics_on_separate_axes(tmp_path, drawn):
    log = [{"event": "start", "step": 0, "loss": 9.0}, *records(30, ["dev/accuracy", "dev/f1"])]
    losses, scores = draw_curve(tmp_path, drawn, log)
    assert [*losses.values()] == [{record["step"]: record["loss"] for record in log if record["event"] == "train"}]
    assert scores == {name: {100: 0.25, 200: 0.5, 300: 0.75} for name in ("dev/accuracy", "dev/f1")}
    loss_axes, axes = drawn[0].axes
    assert (loss_axes.get_ylabel(), axes.get_ylabel(), axes.get_xlabel()) == ("training loss", "evaluation", "step")


def test_long_runs_have_a_running_mean(tmp_path, drawn):
    log = records(500, [])
    mean = draw_curve(tmp_path, drawn, log)[0]["mean of 10 records"]
    values = [record["loss"] for record in log if record["event"] == "train"]
    assert mean[100] == pytest.approx(np.mean(values[:10]))
    assert mean[5000] == pytest.approx(np.mean(values[-10:]))


def test_large_metrics_have_their_own_axes(tmp_path, drawn):
    log = [{"event": "evaluation", "step": step, "dev/accuracy": 0.9, "dev/perplexity": 40.0} for step in (1, 2)]
    assert [list(lines) for lines in draw_curve(tmp_path, drawn, log)] == [[], ["dev/accuracy"], ["dev/perplexity"]]


def test_uses_the_last_record_of_a_step(tmp_path, drawn):
    steps = [(10, 0.9), (20, 0.8), (30, 0.7), (20, 0.5), (30, 0.4)]
    lines, _ = draw_curve(tmp_path, drawn, [{"event": "train", "step": s, "loss": v} for s, v in steps])
    assert [list(line.items()) for line in lines.values()] == [[(10, 0.9), (20, 0.5), (30, 0.4)]]


@pytest.mark.parametrize(
    "log", [[], [{"event": "train"}], [{"event": "train", "step": 1, "loss": None}, {"event": "evaluation", "step": 1}]]
)
def test_log_without_numbers_gives_empty_axes(tmp_path, drawn, log):
    draw_curve(tmp_path, drawn, log)
    assert [axes.texts[0].get_text() for axes in drawn[0].axes] == ["no training records", "no evaluation records"]


def test_distinguishes_many_metrics(tmp_path, drawn):
    draw_curve(tmp_path, drawn, records(20, [f"dev/f1_of_class_{index}" for index in range(25)]))
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[1].lines}) == 25


def test_omits_values_that_are_not_finite_numbers(tmp_path, drawn):
    odd = {"dev/a": float("nan"), "dev/b": None, "dev/c": True, "dev/d": "0.5", "dev/e": float("inf"), "dev/f": 1}
    assert draw_curve(tmp_path, drawn, [{"event": "evaluation", "step": 5, **odd}])[1] == {"dev/f": {5: 1.0}}


@pytest.mark.parametrize(("draw", "arguments"), [(draw_confusion_matrix, ([[1]], ["a"])), (draw_training_curve, ([],))])
def test_rejects_other_file_types(tmp_path, draw, arguments):
    with pytest.raises(ValueError, match=r"must end in \.png"):
        draw(tmp_path / "figure.pdf", *arguments)
