"""Runs are drawn as they were logged, and what cannot be drawn is refused in one line."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from keras_bert.training.run_dir import RunDirectory, write_json
from tools import plot_run
from tools.plot_run import smooth

ROOT = Path(__file__).parents[2]
BLUE, ORANGE = "#1f77b4", "#ff7f0e"
TITLES = [
    "training loss",
    "score: dev/f1",
    "learning rate",
    "gradient norm",
    "examples a second",
    "real tokens a second",
]


pytestmark = pytest.mark.usefixtures("strict_matplotlib")


def write_run(folder, number=10, score="f1", every=10, **series):
    """A run whose series are functions of the step, with an evaluation after every second record."""
    run = RunDirectory(folder, {})
    defaults = {
        "loss": lambda step: 1 / step,
        "learning_rate": lambda step: 1e-5,
        "gradient_norm": lambda step: 2.0,
        "examples_per_second": lambda step: 30.0,
        "tokens_per_second": lambda step: 400.0,
    }
    for record in range(1, number + 1):
        step = every * record
        values = {name: value(step) for name, value in (defaults | series).items() if value is not None}
        run.log({"event": "train", "step": step, **values})
        if score and record % 2 == 0:
            run.log({"event": "evaluation", "step": step, f"dev/{score}": 0.9 - (step - 40) ** 2 / 1e6})
    return folder


def run(*run_dirs, output, **options):
    values = flags.FlagValues()
    plot_run.define_flags(values)
    values(["plot_run", f"--output={output}", *(f"--{name}={value}" for name, value in options.items())])
    plot_run.run([str(folder) for folder in run_dirs], values)


def curves(axes):
    """What is drawn in a panel: (colour, style, data) of its lines, without the stars."""
    return [
        (to_hex(line.get_color()), line.get_linestyle(), dict(zip(*map(list, line.get_data()), strict=True)))
        for line in axes.lines
        if line.get_marker() != "*"
    ]


def stars(axes):
    return [
        (to_hex(line.get_color()), *map(float, np.ravel(line.get_data())))
        for line in axes.lines
        if line.get_marker() == "*"
    ]


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def explanation_of(figure):
    return figure.legends[0].get_title().get_text()


def share_of_colour(path, colour):
    return (np.abs(image.imread(path)[..., :3] - to_rgb(colour)).max(axis=-1) < 0.02).mean()


def test_two_runs(tmp_path, drawn, capsys):
    runs = [write_run(tmp_path / name, number) for name, number in (("short", 6), ("long", 10))]
    output = tmp_path / "new" / "runs.png"
    run(*runs, output=output)
    assert capsys.readouterr().err == f"2 runs drawn to {output}\n"
    assert output.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(output.parent) == ["runs.png"]
    assert share_of_colour(output, ORANGE) > 1e-3
    panels = drawn[0].axes
    assert [axes.get_title(loc="left") for axes in panels] == TITLES
    assert [axes.get_xlabel() for axes in panels] == [*[""] * 4, "updates", "updates"]
    assert len({axes.get_xlim() for axes in panels}) == 1
    steps = range(10, 110, 10)
    for axes, value in zip(panels[2:], (1e-5, 2, 30, 400), strict=True):
        short, long = curves(axes)
        assert long == (ORANGE, "-", dict.fromkeys(steps, value))
        assert short == (BLUE, "-", dict.fromkeys(steps[:6], value))
    assert [curve for _, _, curve in curves(panels[0])] == [{step: 1 / step for step in steps[:n]} for n in (6, 10)]
    assert [list(curve) for _, _, curve in curves(panels[1])] == [[20, 40, 60], [20, 40, 60, 80, 100]]
    assert legend_of(drawn[0]) == ["short: dev/f1 0.9 at update 40", "long: dev/f1 0.9 at update 40"]


def test_evaluations_are_marked_and_the_best_has_a_star(tmp_path, drawn):
    run(write_run(tmp_path / "run"), output=tmp_path / "runs.png")
    loss, scores = drawn[0].axes[:2]
    assert stars(scores) == [(BLUE, 40, 0.9)]
    assert stars(loss) == [(BLUE, 40, 1 / 40)]
    assert scores.lines[0].get_marker() == "o"
    assert explanation_of(drawn[0]) == "A star is where the score was best."


def test_where_less_is_better_the_star_is_at_the_least(tmp_path, drawn):
    run(write_run(tmp_path / "run"), output=tmp_path / "runs.png", lower_is_better=True)
    assert stars(drawn[0].axes[1]) == [(BLUE, 100, pytest.approx(0.8964))]


def test_runs_with_different_scores(tmp_path, drawn):
    runs = [write_run(tmp_path / name, score=score) for name, score in (("a", "f1"), ("b", "mcc"), ("c", None))]
    run(*runs, output=tmp_path / "own.png")
    assert drawn[0].axes[1].get_title(loc="left") == "score"
    assert legend_of(drawn[0]) == ["a: dev/f1 0.9 at update 40", "b: dev/mcc 0.9 at update 40", "c: no evaluation"]
    run(*runs, output=tmp_path / "given.png", score="dev/mcc")
    assert drawn[1].axes[1].get_title(loc="left") == "score: dev/mcc"
    assert len(curves(drawn[1].axes[1])) == 1
    assert [label.split(": ")[1] for label in legend_of(drawn[1])] == [
        "not evaluated by this score",
        "dev/mcc 0.9 at update 40",
        "no evaluation",
    ]


def test_the_trials_of_a_run(tmp_path, drawn):
    for seed in (1, 2, 10):
        write_run(tmp_path / "run" / "trials" / f"seed_{seed}")
    write_json(tmp_path / "run" / "results.json", {"score": "dev/f1"})
    run(tmp_path / "run", output=tmp_path / "runs.png")
    assert [label.split(":")[0] for label in legend_of(drawn[0])] == ["seed_1", "seed_2", "seed_10"]


def test_the_terms_of_a_loss_are_dashed(tmp_path, drawn):
    terms = {"loss/masked_lm": lambda step: 3.0, "loss/next_sentence": lambda step: 0.5}
    runs = [write_run(tmp_path / "two", **terms), write_run(tmp_path / "one")]
    run(*runs, output=tmp_path / "runs.png")
    axes = drawn[0].axes[0]
    drawn_terms = {style: set(curve.values()) for colour, style, curve in curves(axes) if style != "-"}
    assert drawn_terms == {"--": {3.0}, ":": {0.5}}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss/masked_lm", "loss/next_sentence"]
    assert {colour for colour, style, _ in curves(axes) if style != "-"} == {BLUE}


def test_the_curves_of_many_records_are_smoothed(tmp_path, drawn):
    def noisy(step):
        return 2.0 + (-1) ** (step // 10)

    folder = write_run(tmp_path / "run", number=60, loss=noisy, learning_rate=noisy)
    run(folder, output=tmp_path / "runs.png")
    loss, _, rate, *_ = drawn[0].axes
    raw, smoothed = (np.array(list(curve.values())) for _, _, curve in curves(loss))
    np.testing.assert_array_equal(raw, [noisy(10 * record) for record in range(1, 61)])
    np.testing.assert_allclose(smoothed, smooth(raw, 3))
    assert [line.get_alpha() for line in loss.lines if line.get_marker() != "*"] == [0.25, None]
    assert len(curves(rate)) == 1
    assert "running means over 5% of the records" in explanation_of(drawn[0])
    run(folder, output=tmp_path / "raw.png", smoothing=0)
    assert len(curves(drawn[1].axes[0])) == 1
    assert "running" not in explanation_of(drawn[1])


def test_a_running_mean_is_centred_and_leaves_gaps():
    values = np.array([1, 2, 3, math.nan, 5, 6], "float64")
    np.testing.assert_array_equal(smooth(values, 3), [1.5, 2, 2.5, math.nan, 5.5, 5.5])
    np.testing.assert_array_equal(smooth(values, 2), smooth(values, 3))
    np.testing.assert_array_equal(smooth(values, 1), values)
    np.testing.assert_array_equal(smooth(np.full(3, math.nan), 3), np.full(3, math.nan))
    np.testing.assert_array_equal(smooth(np.ones(3), 99), np.ones(3))
    np.testing.assert_array_equal(smooth(np.array([1e30, 1, 2, 3]), 3)[2:], [2, 2.5])
    assert smooth(np.zeros(0), 5).shape == (0,)


def test_what_was_not_finite_is_a_gap(tmp_path, drawn):
    run(
        write_run(tmp_path / "run", loss=lambda step: math.nan if step == 50 else 1.0),
        write_run(tmp_path / "lost", loss=lambda step: math.inf, score=None),
        output=tmp_path / "runs.png",
    )
    gap, lost = (np.array(list(curve.values())) for _, _, curve in curves(drawn[0].axes[0]))
    assert np.flatnonzero(np.isnan(gap)).tolist() == [4]
    assert np.isnan(lost).all()


def test_a_few_large_values_do_not_hide_the_others(tmp_path, drawn):
    run(
        write_run(tmp_path / "run", gradient_norm=lambda step: 1e4 if step == 50 else 1.0),
        output=tmp_path / "runs.png",
    )
    scales = {axes.get_title(loc="left"): axes.get_yscale() for axes in drawn[0].axes}
    assert {title for title, scale in scales.items() if scale == "log"} == {"gradient norm"}


def test_what_was_not_logged_is_said(tmp_path, drawn):
    nothing = dict.fromkeys(("gradient_norm", "examples_per_second", "tokens_per_second"))
    run(write_run(tmp_path / "run", score=None, **nothing), output=tmp_path / "runs.png")
    said = [[text.get_text() for text in axes.texts] for axes in drawn[0].axes]
    assert said == [[], ["nothing logged"], [], ["nothing logged"], ["nothing logged"], ["nothing logged"]]
    assert explanation_of(drawn[0]) == ""


def test_a_log_of_evaluations_only(tmp_path, drawn):
    RunDirectory(tmp_path / "run", {}).log({"event": "evaluation", "step": 3, "dev/f1": None})
    run(tmp_path / "run", output=tmp_path / "runs.png")
    assert legend_of(drawn[0]) == ["run: dev/f1 was never finite"]
    assert [text.get_text() for text in drawn[0].axes[1].texts] == ["nothing logged"]


def test_names_are_drawn_as_they_are(tmp_path, drawn):
    names = ["a_$x$_{", "_hidden", "возврат", "客服"]
    run(*[write_run(tmp_path / name) for name in names], output=tmp_path / "runs.png")
    assert [label.split(":")[0] for label in legend_of(drawn[0])] == ["a_$x$_{", "_hidden", "возврат", "\\u5ba2\\u670d"]


def test_the_legend_of_many_runs_fits(tmp_path, drawn):
    runs = [write_run(tmp_path / f"learning_rate_5e-05_seed_{seed}", number=3) for seed in range(25)]
    run(*runs, output=tmp_path / "runs.png")
    figure = drawn[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent(renderer)
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    assert not any(legend.overlaps(axes.get_tightbbox(renderer)) for axes in figure.axes)
    assert len({colour for colour, _, _ in curves(figure.axes[0])}) == 25


@pytest.mark.slow
def test_a_long_log_is_averaged_in_seconds(tmp_path, drawn):
    with open(tmp_path / "log.jsonl", "w") as log:
        for step in range(100_000):
            log.write(json.dumps({"event": "train", "step": step, "loss": 2.0 + (-1) ** step}) + "\n")
    started = time.process_time()
    run(tmp_path, output=tmp_path / "runs.png")
    assert time.process_time() - started < 10
    (_, _, raw), _ = curves(drawn[0].axes[0])
    assert 1000 <= len(raw) <= 2000
    np.testing.assert_allclose(list(raw.values()), 2)
    assert explanation_of(drawn[0]).endswith("Of long logs, a point is the mean over up to 64 updates.")


# What is refused, and how the program runs.


def call(*arguments, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "tools.plot_run"])]
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def refusal(capsys, monkeypatch, *arguments):
    """What the program says as it exits."""
    values = flags.FlagValues()
    plot_run.define_flags(values)
    rest = values(["plot_run", *map(str, arguments)])
    monkeypatch.setattr(plot_run.flags, "FLAGS", values)
    with pytest.raises(SystemExit) as exit_:
        plot_run.main(rest)
    assert capsys.readouterr().err == ""
    assert "\n" not in exit_.value.code
    return exit_.value.code


def test_bad_input_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    folder, output = write_run(tmp_path / "run"), tmp_path / "runs.png"
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "old.png").write_text("old")
    for arguments, message in (
        ([f"--output={output}"], "no RUN_DIR"),
        ([folder, "absent", f"--output={output}"], "there is no folder absent"),
        ([tmp_path / "empty", f"--output={output}"], "it has no log.jsonl"),
        ([folder, f"--output={output}", "--score=f1"], "--score=f1 is in no log; the logs have dev/f1"),
        ([folder, f"--output={tmp_path / 'runs.pdf'}"], "runs.pdf must end in .png"),
        ([folder, f"--output={tmp_path / 'folder.png'}"], "folder.png is a folder"),
        ([folder, f"--output={tmp_path / 'old.png'}"], "old.png exists; give another name, or --overwrite"),
        ([folder, f"--output={tmp_path / 'old.png' / 'runs.png'}"], "old.png is a file, not a folder"),
    ):
        said = refusal(capsys, monkeypatch, *arguments)
        assert said.startswith("tools.plot_run: ")
        assert message in said
    assert not output.exists()
    assert (tmp_path / "old.png").read_text() == "old"


def test_an_output_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    folder, output = write_run(tmp_path / "run"), tmp_path / "figures" / "runs.png"
    run(folder, output=output)
    older = output.read_bytes()
    run(folder, folder.parent / "run", write_run(tmp_path / "other"), output=output, overwrite=True)
    newer = output.read_bytes()
    assert newer != older

    def fail(self, file, **kwargs):
        file.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no space left"):
        run(folder, output=output, overwrite=True)
    assert output.read_bytes() == newer
    assert os.listdir(output.parent) == ["runs.png"]


@pytest.mark.slow
def test_the_program_draws_without_tensorflow(tmp_path):
    folder = write_run(tmp_path / "run")
    code = (
        "import sys; from absl import app; from tools import plot_run; plot_run.define_flags()\n"
        "def main(argv):\n"
        "    plot_run.main(argv)\n"
        "    print(*{'tensorflow', 'keras', 'keras_bert', 'matplotlib.pyplot'} & sys.modules.keys())\n"
        "app.run(main)"
    )
    answer = call(folder, f"--output={tmp_path / 'runs.png'}", code=code)
    assert (answer.returncode, answer.stdout) == (0, "\n"), answer.stderr
    assert (tmp_path / "runs.png").is_file()


@pytest.mark.slow
def test_the_program_refuses_and_helps(tmp_path):
    answer = call(tmp_path, f"--output={tmp_path / 'runs.png'}")
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    answer = call("--help")
    assert "python -m tools.plot_run runs/rte runs/cola --output=runs.png" in answer.stdout
    answer = call("--help", code="import sys, tools.plot_run; print('matplotlib' in sys.modules)")
    assert answer.stdout == "False\n"
