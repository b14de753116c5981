import subprocess
from types import SimpleNamespace

import pytest
from absl import flags

from experiments import adapters, programs
from tests.forked import ForkedProgram
from tests.toys import toy_classifier, toy_reviews


def test_rows_have_scores_parameters_memory_and_speed():
    trials = [
        {"score": score, "examples_per_second": 10.0, "peak_host_memory": 2e9, "trainable_parameters": 1234}
        for score in (0.5, 0.7, 0.6)
    ]
    assert adapters.make_row("head only", "rte", {"trials": trials}) == {
        "Task": "RTE",
        "Method": "head only",
        "score": "0.6000 (0.5000 to 0.7000, n=3)",
        "trained parameters": "1,234",
        "peak memory": "2.00 GB",
        "examples/s": "10.0",
    }
    trial = {"score": None, "examples_per_second": None, "peak_host_memory": None, "trainable_parameters": 5}
    row = adapters.make_row("head only", "sst2", {"trials": [trial]})
    assert [row[name] for name in ("score", "peak memory", "examples/s")] == ["diverged", "-", "-"]


def test_copies_the_first_rows(tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t0\nb\t1\nc\t0\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n")
    adapters.write_first_rows(tmp_path, tmp_path / "part", 2)
    assert (tmp_path / "part" / "train.tsv").read_text() == "sentence\tlabel\na\t0\nb\t1\n"
    with pytest.raises(ValueError, match="has 3 rows; --sst2_rows asks for 4"):
        adapters.write_first_rows(tmp_path, tmp_path / "other", 4)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_compares_all_methods_on_both_tasks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(programs, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProgram}))
    texts, names = toy_reviews(48)
    toy_classifier(("negative", "positive")).save_checkpoint(tmp_path / "start")
    for task in ("RTE", "SST-2"):
        (tmp_path / task).mkdir()
        for split, part in {"train": slice(32), "dev": slice(32, 48)}.items():
            rows = list(zip(texts[part], names[part], strict=True))
            if task == "RTE":
                lines = ["index\tsentence1\tsentence2\tlabel"]
                labels = {"positive": "entailment", "negative": "not_entailment"}
                lines += [f"{n}\t{text}\tthe film\t{labels[name]}" for n, (text, name) in enumerate(rows)]
            else:
                lines = ["sentence\tlabel", *(f"{text}\t{int(name == 'positive')}" for text, name in rows)]
            (tmp_path / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    values = flags.FlagValues()
    adapters.define_flags(values)
    folders = [f"--data_dir={tmp_path}", f"--run_dir={tmp_path / 'run'}", f"--init_checkpoint={tmp_path / 'start'}"]
    values(["adapters", *folders, "--num_seeds=1", "--sst2_rows=20"])
    monkeypatch.setattr(adapters, "_RECIPE", (*adapters._RECIPE, "--max_seq_length=16"))
    adapters.run(values)
    table = capsys.readouterr().out
    assert (tmp_path / "run" / "table.md").read_text() == table
    assert len(table.splitlines()) == 2 + 2 * len(adapters.METHODS)
    folder = tmp_path / "run" / "rte" / "LoRA_rank_8_query_and_value"
    assert (folder / "adapter" / "adapter_model.safetensors").is_file()
