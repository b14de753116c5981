import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from absl import flags

from experiments import ablation, programs
from experiments.programs import FINE_TUNING_PROGRAMS, ProgramFailed
from experiments.tables import collect_scores, format_table, make_row
from experiments.variants import TABLES, Variant, list_variants
from keras_bert.finetuning.sweep import best_trial
from tests.forked import ForkedProgram
from tests.pretraining.corpora import VOCABULARY, write_corpus, write_vocabulary
from tests.toys import toy_reviews

ROOT = Path(__file__).parents[2]


def make_values(*arguments):
    values = flags.FlagValues()
    ablation.define_flags(values)
    values(["ablation", *map(str, arguments)])
    return values


def test_variants_of_every_table():
    assert [len(list_variants(table)) for table in TABLES] == [4, 6, 6, 7]
    for table in TABLES:
        variants = list_variants(table)
        assert len({variant.folder for variant in variants}) == len(variants)
        assert len({tuple(variant.row) for variant in variants}) == 1
    for variant in list_variants("masking"):
        mask, random = (float(flag.partition("=")[2]) for flag in variant.pretrain_flags)
        percentages = [float(variant.row[name].rstrip("%")) for name in ("Mask", "Same", "Random")]
        assert [100 * mask, 100 * (1 - mask - random), 100 * random] == pytest.approx(percentages)


def make_results(*trials):
    """Results of trials from pairs of learning rate and dev score; the test score is half the dev score."""
    trials = [
        {"learning_rate": rate, "score": score, "metrics": {} if score is None else {"test/f1": score / 2}}
        for rate, score in trials
    ]
    return {"score": "dev/f1", "best": best_trial(trials), "trials": trials}


def test_rows_have_median_and_range():
    pretraining = {"updates": 2000, "seconds": 90.0, "metrics": {"eval/perplexity": 12.345}}
    results = make_results((3e-5, 0.5), (3e-5, 0.9), (3e-5, 0.6), (3e-5, None))
    row = make_row(Variant({"Pre-training": "BERT"}, "bert"), pretraining, {"ner": results})
    assert row == {
        "Pre-training": "BERT",
        "updates": "2,000",
        "minutes": "1.5",
        "LM perplexity": "12.35",
        "ner (dev/f1)": "0.6000 (0.5000 to 0.9000, n=3)",
        "ner (test/f1)": "0.3000 (0.2500 to 0.4500, n=3)",
    }
    results = make_results((1e-3, 0.1), (1e-3, None), (3e-5, 0.6), (3e-5, 0.9), (5e-5, 0.8), (5e-5, 0.8))
    assert collect_scores(results) == {"dev/f1": [0.6, 0.9], "test/f1": [0.3, 0.45]}  # of the best learning rate
    diverged = make_row(Variant({}, "x"), None, {"ner": make_results((3e-5, None))})
    assert diverged == {"ner (dev/f1)": "diverged"}
    assert format_table([row, diverged]).endswith("\n| - | - | - | - | diverged | - |\n")


FEATURES = ("--table=features", "--init_checkpoint=x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table=masking", "--task=a=tasks.glue"], "needs --pretrain"),
        (["--table=features", "--pretrain=--x=1"], "--pretrain has no effect with --table=features"),
        ([*FEATURES, "--task=a=rm -r"], "is not NAME=PROGRAM FLAGS"),
        ([*FEATURES, "--task=a=tasks.pretrain"], "programs are tasks.classify, tasks.distill"),
        ([*FEATURES, "--task=a=tasks.glue", "--task=a=tasks.swag"], "names must differ"),
        ([*FEATURES, "--task=a=tasks.glue --run_dir=x"], "--run_dir is set for each variant"),
        ([*FEATURES, "--task=a=tasks.glue --epochs 3"], "3 is not a flag"),
        ([*FEATURES, "--task=a=tasks.glue 'x"], "cannot be split into words"),
        ([*FEATURES, "--task=a=tasks.glue --encoder=left_to_right"], "--encoder is set for each variant"),
    ],
)
def test_rejects_invalid_flags(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        ablation.run(make_values(f"--run_dir={tmp_path / 'run'}", *arguments))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="the 5 heads of '3x768x5' do not divide"):
        ablation.parse_size("3x768x5")


def test_knows_all_fine_tuning_programs():
    found = [path for path in (ROOT / "tasks").glob("*.py") if "= fine_tuning_program(" in path.read_text()]
    assert sorted(f"tasks.{path.stem}" for path in found) == sorted(FINE_TUNING_PROGRAMS)


@pytest.mark.slow
def test_checks_the_flags_of_all_programs_first(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = [*FEATURES, f"--run_dir={tmp_path / 'run'}", "--feature_flags=--epochs=0"]
    with pytest.raises(ProgramFailed, match=r"(?s)--task=a, variant embeddings: .*--epochs must be a positive number"):
        ablation.run(make_values(*arguments, "--task=a=tasks.tagging --train_file=x --dev_file=x"))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def command(tmp_path):
    """Flags of an ablation with one toy model."""
    texts, names = toy_reviews(48)
    rows = [f"{text}\t{int(name == 'positive')}\n" for text, name in zip(texts, names, strict=True)]
    for split, part in {"train": rows[:32], "dev": rows[32:]}.items():
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(part))
    *files, held_out = write_corpus(tmp_path / "corpus", files=3, documents=20)
    config = {"vocab_size": len(VOCABULARY), "type_vocab_size": 2, "hidden_act": "gelu", "max_position_embeddings": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return [
        *("--table=model_size", "--sizes=2x4x1", f"--run_dir={tmp_path / 'run'}", "--num_seeds=2"),
        f"--bert_config_file={tmp_path / 'config.json'}",
        f"--pretrain=--text_files={','.join(files)} --eval_text_files={held_out} "
        f"--vocab_file={write_vocabulary(tmp_path / 'vocab.txt')} --shard_megabytes=0.003 --phase=16:3:8",
        f"--task=sst2=tasks.glue --task=sst2 --data_dir={tmp_path} --max_seq_length=16 --epochs=1 --learning_rate=1e-3",
    ]


@pytest.mark.slow
def test_pretrains_and_fine_tunes_every_variant_once(tmp_path, command, monkeypatch, capsys):
    forked = {**vars(subprocess), "Popen": ForkedProgram}  # except `run`, which does not start TensorFlow here
    monkeypatch.setattr(programs, "subprocess", SimpleNamespace(**forked))
    ablation.run(make_values(*command))
    table, folder = capsys.readouterr().out, tmp_path / "run"
    assert (folder / "table.md").read_text() == table
    head, _, *rows = table.splitlines()
    assert head == "| #L | #H | #A | updates | minutes | LM perplexity | sst2 (dev/accuracy) |"
    assert [row.split(" | ")[:4] for row in rows] == [["| 2", "4", "1", "3"]]
    config = json.loads((folder / "pretraining" / "2x4x1" / "model" / "config.json").read_text())
    assert [config[name] for name in ("num_hidden_layers", "hidden_size", "intermediate_size")] == [2, 4, 16]
    trials = json.loads((folder / "fine_tuning" / "2x4x1" / "sst2" / "results.json").read_text())["trials"]
    records = json.loads((folder / "table.json").read_text())
    assert records[0]["scores"]["sst2"] == {"dev/accuracy": [trial["score"] for trial in trials]} and len(trials) == 2

    monkeypatch.setattr(programs, "subprocess", None)  # finished programs are not started again
    ablation.run(make_values(*command))
    assert capsys.readouterr().out == table
    with pytest.raises(FileExistsError, match="num_seeds"):
        ablation.run(make_values(*command, "--num_seeds=3"))
