import pytest
from absl import app

from benchmarks import __main__ as program
from benchmarks import machine
from benchmarks.comparison import ProgramError
from tests.tasks.programs import parse


class Worker:
    """Figures by precision, without a process."""

    def __init__(self, **figures):
        self.figures, self.turns = figures, []

    def start_turn(self, precision):
        self.turns.append(precision)

    def end_turn(self):
        train, forward = self.figures[self.turns[-1]]
        return {"train ms": train, "forward ms": forward}


def test_slow_settings_are_left_out_and_the_first_of_the_fastest_is_recommended(monkeypatch):
    workers = {
        "oneDNN on": Worker(float32=(100.0, 50.0), mixed_bfloat16=(99.0, 20.0)),
        "oneDNN off": Worker(float32=(150.0, 60.0), mixed_bfloat16=(900.0, 300.0)),
    }
    monkeypatch.setattr(machine.time, "monotonic", iter([0, 3, 31]).__next__)
    rounds = list(machine.take_turns(workers, 30))
    assert len(rounds) == 4
    for found in rounds[:2]:
        assert found["mixed_bfloat16, oneDNN off"] == {"train ms": 900.0, "forward ms": 300.0}
    for found in rounds[2:]:
        assert found["mixed_bfloat16, oneDNN off"] == {}
    assert workers["oneDNN off"].turns == [
        "float32",
        "mixed_bfloat16",
        "float32",
        "mixed_bfloat16",
        "float32",
        "float32",
    ]
    assert machine.recommend(rounds, "train ms") == "float32, oneDNN on"  # 1% is noise
    assert machine.recommend(rounds, "forward ms") == "mixed_bfloat16, oneDNN on"


def test_environments():
    assert list(machine.list_environments(1)) == ["oneDNN on", "oneDNN off"]
    environments = machine.list_environments(8)
    assert machine.describe("float32, oneDNN off", environments) == "TF_ENABLE_ONEDNN_OPTS=0 and float32"
    described = machine.describe("mixed_bfloat16, oneDNN on, 4 threads", environments)
    assert described == "TF_ENABLE_ONEDNN_OPTS=1 TF_NUM_INTRAOP_THREADS=4 and mixed_bfloat16"


def test_recommends_by_the_ratios_of_the_rounds():
    # The cores were busy in two rounds, so that the medians differ more than the settings do.
    rounds = [
        {"a": {"train ms": a}, "b": {"train ms": b}, "c": {}}
        for a, b in ((100.0, 99.0), (310.0, 305.0), (120.0, 101.0))
    ]
    assert machine.recommend(rounds, "train ms") == "a"
    rounds = [{"a": {"train ms": 2 * b}, "b": {"train ms": b}} for b in (1.0, 2.0, 3.0)]
    assert machine.recommend(rounds, "train ms") == "b"


def test_reports_why_a_process_failed(monkeypatch):
    monkeypatch.setattr(machine.json, "dumps", lambda sizes: "not json")
    with machine.Worker("oneDNN on", {}, {}) as worker:
        worker.start_turn("float32")
        with pytest.raises(ProgramError, match=r"(?s)oneDNN on failed with exit status 1.*JSONDecodeError"):
            worker.end_turn()


def test_refuses_the_flags_of_comparisons():
    with pytest.raises(app.UsageError, match="--suite=machine does not use --peer, --rounds"):
        program.check_flags(parse(program, suite="machine", rounds=2, peer="a=b"))


@pytest.mark.slow
def test_measures_all_settings(monkeypatch, capsys):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    values = parse(program, suite="machine", batch_size=2, sequence_length=8, seconds=0, vocab_size=50, **sizes)
    program.check_flags(values)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    program.main(["benchmarks"])
    output = capsys.readouterr().out
    assert output.count("Recommended for") == 2
    assert "Only 3 rounds" in output
    for precision in machine.PRECISIONS:
        assert output.count(f"\n  {precision}, oneDNN off ") == 2
