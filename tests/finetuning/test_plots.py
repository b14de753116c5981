import itertools
import sys
import warnings

import numpy as np
import pytest
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_bert.finetuning import plots
from keras_bert.finetuning.plots import draw_confusion_matrix, draw_training_curve

LOSS_BLUE = np.array([31, 119, 180]) / 255  # tab:blue


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


def fraction_of_color(path, color):
    pixels = image.imread(path)[..., :3]
    return (np.abs(pixels - color).max(axis=-1) < 0.02).mean()


def matrix_of(number, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 3, [number, number]) + np.diag(random.integers(20, 90, number))


def renderer_of(figure):
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    return renderer


def overlaps(texts, renderer):
    """Pairs of neighbouring horizontal texts whose boxes overlap."""
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    return [1 for one, two in itertools.pairwise(boxes) if one.overlaps(two)]


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


@pytest.mark.parametrize("number", [2, 25])
def test_names_and_counts_do_not_overlap(tmp_path, drawn, number):
    names = [f"card_payment_wrong_exchange_rate_{index}" for index in range(number)]
    draw_confusion_matrix(tmp_path / "matrix.png", matrix_of(number), names)
    axes, renderer = drawn[0].axes[0], renderer_of(drawn[0])
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert len(set(shown)) == number
    assert not overlaps(axes.get_yticklabels(), renderer)
    by_row = {}
    for text in axes.texts:
        by_row.setdefault(text.get_position()[1], []).append(text)
    assert not any(overlaps(texts, renderer) for texts in by_row.values())
    if number > 20:  # upright: their boxes are those of the letters
        assert not overlaps(axes.get_xticklabels(), renderer)


def test_large_counts_fit_into_their_cells(tmp_path, drawn):
    draw_confusion_matrix(tmp_path / "matrix.png", np.full([6, 6], 1_234_567), list("abcdef"))
    axes, renderer = drawn[0].axes[0], renderer_of(drawn[0])
    width = axes.get_window_extent(renderer).width / 6
    assert all(text.get_window_extent(renderer).width < width for text in axes.texts)


def test_draws_names_in_other_scripts(tmp_path, drawn):
    names = ["возврат", "Ελληνικά", "naïve", "$x$ costs $y", "_hidden", "\u17a0\u1784\u17d2"]
    draw_confusion_matrix(tmp_path / "matrix.png", matrix_of(6), names)
    shown = [text.get_text() for text in drawn[0].axes[0].get_yticklabels()]
    assert shown[:5] == names[:5]
    assert shown[5] in (names[5], "class 5")  # as the installed fonts have it


def test_numbers_names_that_no_font_can_draw(monkeypatch):
    assert plots._find_fonts(["a", "\U000f0000b"])[0] == ["a", "class 1"]


def test_abbreviated_names_stay_distinct():
    start, end = "refund_not_showing_up", "on_account_statement"
    shown = plots._abbreviate([f"{start}{middle}{end}" for middle in ("_here_", "_there_")] + ["short"])
    assert len(set(shown)) == 3
    assert all(len(name) <= 28 for name in shown)
    assert shown[2] == "short"


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
    assert fraction_of_color(path, LOSS_BLUE) > 1e-4
    loss, scores = drawn[0].axes
    (line,) = lines_of(loss).values()
    assert line == {record["step"]: record["loss"] for record in log if record["event"] == "train"}
    assert lines_of(scores) == {name: {100: 0.25, 200: 0.5, 300: 0.75} for name in ("dev/accuracy", "dev/f1")}
    assert (loss.get_ylabel(), scores.get_ylabel(), scores.get_xlabel()) == ("training loss", "evaluation", "step")


@pytest.mark.parametrize("number", [1, 4, 300])
def test_steps_begin_at_zero_and_have_integer_ticks(tmp_path, drawn, number):
    log = [{"event": "train", "step": step, "loss": 1.0} for step in range(1, number + 1)]
    draw_training_curve(tmp_path / "curve.png", log)
    axes = drawn[0].axes[-1]
    assert axes.get_xlim()[0] == 0
    assert all(tick == int(tick) for tick in axes.get_xticks())


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


def test_leaves_out_values_that_are_not_finite_numbers(tmp_path, drawn):
    odd = {"dev/a": float("nan"), "dev/b": None, "dev/c": True, "dev/d": "0.5", "dev/e": float("inf"), "dev/f": 1}
    draw_training_curve(tmp_path / "curve.png", [{"event": "evaluation", "step": 5, **odd}])
    assert lines_of(drawn[0].axes[1]) == {"dev/f": {5: 1.0}}


def test_legend_of_many_metrics_is_outside_the_axes(tmp_path, drawn):
    draw_training_curve(tmp_path / "curve.png", records(20, [f"dev/f1_of_class_{index}" for index in range(25)]))
    axes, renderer = drawn[0].axes[1], renderer_of(drawn[0])
    assert not axes.get_legend().get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 25


@pytest.mark.parametrize(
    "draw", [lambda path: draw_confusion_matrix(path, [[1]], ["a"]), lambda path: draw_training_curve(path, [])]
)
def test_rejects_other_file_types(tmp_path, draw):
    with pytest.raises(ValueError, match=r"must end in \.png"):
        draw(tmp_path / "figure.pdf")


def test_error_keeps_the_old_file(tmp_path, monkeypatch):
    path = draw_training_curve(tmp_path / "curve.png", [])
    older = path.read_bytes()

    def fail(self, file, **kwargs):
        file.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no space left"):
        draw_training_curve(path, records(5, ["dev/f1"]))
    assert path.read_bytes() == older
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


def test_many_classes_have_no_numbers(tmp_path, drawn):
    draw_confusion_matrix(tmp_path / "many.png", np.diag(np.arange(101)), [f"class {i}" for i in range(101)])
    assert not drawn[0].axes[0].texts
