import sys
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_bert.finetuning.plots import draw_confusion_matrix, draw_training_curve


@pytest.fixture(autouse=True)
def strict_matplotlib(monkeypatch):
    """Turns warnings, such as those about missing glyphs, into errors, and forbids pyplot with its global state."""
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


def matrix_of(number, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 3, [number, number]) + np.diag(random.integers(20, 90, number))


def test_draws_counts_and_row_fractions(tmp_path, drawn):
    path = draw_confusion_matrix(tmp_path / "new" / "matrix.png", [[90, 10], [30, 20]], ["negative", "positive"])
    assert path == tmp_path / "new" / "matrix.png"
    assert is_png(path)
    assert [file.name for file in path.parent.iterdir()] == ["matrix.png"]
    axes, bar = drawn[0].axes
    cells = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert cells == {(0, 0): ("90", "white"), (1, 0): ("10", "black"), (0, 1): ("30", "white"), (1, 1): ("20", "black")}
    # The color is the share of the row, the true class.
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.9, 0.1], [0.6, 0.4]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert axes.get_title() == "150 examples, accuracy 73.3%"
    assert bar.get_ylabel() == "fraction of the true class"


def test_draws_names_in_other_scripts(tmp_path, drawn):
    names = ["возврат", "Ελληνικά", "naïve", "$x$ costs $y", "_hidden", "\U000f0000b"]
    draw_confusion_matrix(tmp_path / "matrix.png", matrix_of(6), names)
    shown = [text.get_text() for text in drawn[0].axes[0].get_yticklabels()]
    assert shown[:5] == names[:5]
    assert shown[5] == "class 5"  # no font can draw it


def test_shortens_long_names(tmp_path, drawn):
    names = [f"card_payment_wrong_exchange_rate_{index}" for index in range(25)]
    draw_confusion_matrix(tmp_path / "matrix.png", matrix_of(25), names)
    axes = drawn[0].axes[0]
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert len(set(shown)) == 25
    assert max(map(len, shown)) <= 28


def test_draws_no_numbers_of_many_classes(tmp_path, drawn):
    draw_confusion_matrix(tmp_path / "many.png", np.diag(np.arange(101)), [f"class {i}" for i in range(101)])
    assert not drawn[0].axes[0].texts


@pytest.mark.parametrize("matrix", [[[1, 2]], [[1, 2, 3]] * 3, [[0.5, 0.5], [1.0, 0.0]], [[-1, 0], [0, 1]]])
def test_rejects_invalid_confusion_matrices(tmp_path, matrix):
    with pytest.raises(ValueError, match=r"counts .* of 2 classes"):
        draw_confusion_matrix(tmp_path / "matrix.png", matrix, ["a", "b"])


def records(number, metrics):
    random = np.random.default_rng(0)
    train = [
        {"event": "train", "step": 10 * step, "loss": float(1 / step + 0.1 * random.random()), "learning_rate": 1e-5}
        for step in range(1, number + 1)
    ]
    evaluations = [
        {"event": "evaluation", "step": 10 * number * part // 3, "seconds": 2.0, **{name: part / 4 for name in metrics}}
        for part in (1, 2, 3)
    ]
    return train + evaluations


def lines_of(axes):
    return {line.get_label(): dict(zip(*map(list, line.get_data()), strict=True)) for line in axes.lines}


def test_draws_loss_and_metrics_on_separate_axes(tmp_path, drawn):
    log = [{"event": "start", "step": 0, "loss": 9.0}, *records(30, ["dev/accuracy", "dev/f1"])]
    path = draw_training_curve(tmp_path / "curve.png", log)
    assert is_png(path)
    loss, scores = drawn[0].axes
    (line,) = lines_of(loss).values()
    assert line == {record["step"]: record["loss"] for record in log if record["event"] == "train"}
    assert lines_of(scores) == {name: {100: 0.25, 200: 0.5, 300: 0.75} for name in ("dev/accuracy", "dev/f1")}
    assert (loss.get_ylabel(), scores.get_ylabel(), scores.get_xlabel()) == ("training loss", "evaluation", "step")


def test_long_runs_have_a_running_mean(tmp_path, drawn):
    log = records(500, [])
    draw_training_curve(tmp_path / "curve.png", log)
    values = [record["loss"] for record in log if record["event"] == "train"]
    mean = lines_of(drawn[0].axes[0])["mean of 10 records"]
    assert mean[100] == pytest.approx(np.mean(values[:10]))
    assert mean[5000] == pytest.approx(np.mean(values[-10:]))


def test_large_metrics_have_their_own_axes(tmp_path, drawn):
    log = [{"event": "evaluation", "step": step, "dev/accuracy": 0.9, "dev/perplexity": 40.0} for step in (1, 2)]
    draw_training_curve(tmp_path / "curve.png", log)
    assert [list(lines_of(axes)) for axes in drawn[0].axes] == [[], ["dev/accuracy"], ["dev/perplexity"]]


def test_uses_the_last_record_of_a_step(tmp_path, drawn):
    steps = [(10, 0.9), (20, 0.8), (30, 0.7), (20, 0.5), (30, 0.4)]
    draw_training_curve(tmp_path / "curve.png", [{"event": "train", "step": s, "loss": v} for s, v in steps])
    (line,) = lines_of(drawn[0].axes[0]).values()
    assert list(line.items()) == [(10, 0.9), (20, 0.5), (30, 0.4)]


@pytest.mark.parametrize(
    "log", [[], [{"event": "train"}], [{"event": "train", "step": 1, "loss": None}, {"event": "evaluation", "step": 1}]]
)
def test_log_without_numbers(tmp_path, drawn, log):
    assert is_png(draw_training_curve(tmp_path / "curve.png", log))
    assert [axes.texts[0].get_text() for axes in drawn[0].axes] == ["no training records", "no evaluation records"]


def test_distinguishes_many_metrics(tmp_path, drawn):
    draw_training_curve(tmp_path / "curve.png", records(20, [f"dev/f1_of_class_{index}" for index in range(25)]))
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[1].lines}) == 25


def test_leaves_out_values_that_are_not_finite_numbers(tmp_path, drawn):
    odd = {"dev/a": float("nan"), "dev/b": None, "dev/c": True, "dev/d": "0.5", "dev/e": float("inf"), "dev/f": 1}
    draw_training_curve(tmp_path / "curve.png", [{"event": "evaluation", "step": 5, **odd}])
    assert lines_of(drawn[0].axes[1]) == {"dev/f": {5: 1.0}}


@pytest.mark.parametrize(
    "draw", [lambda path: draw_confusion_matrix(path, [[1]], ["a"]), lambda path: draw_training_curve(path, [])]
)
def test_rejects_other_file_types(tmp_path, draw):
    with pytest.raises(ValueError, match=r"must end in \.png"):
        draw(tmp_path / "figure.pdf")
