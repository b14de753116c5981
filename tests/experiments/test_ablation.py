"""The variants are those of the paper, each is pre-trained and fine-tuned once, and the table has what they came to."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from absl import flags

from experiments import ablation, programs
from experiments.programs import FINE_TUNING_PROGRAMS, Program, ProgramFailed, parse_flags, parse_task, run_once
from experiments.tables import row_of, scores_of, table_of
from experiments.variants import TABLES, Variant, variants_of
from keras_bert.finetuning.sweep import best_trial
from keras_bert.io.atomic_write import write_json
from tests.forked import ForkedProgram
from tests.pretraining.corpora import VOCABULARY, write_corpus, write_vocabulary
from tests.toys import toy_reviews

ROOT = Path(__file__).parents[2]


def parsed(*arguments):
    values = flags.FlagValues()
    ablation.define_flags(values)
    values(["ablation", *map(str, arguments)])
    return values


def test_variants_of_the_paper():
    assert {table: len(variants_of(table)) for table in TABLES} == {
        "pretraining_tasks": 4,
        "model_size": 6,
        "masking": 6,
        "features": 7,
    }
    for table in TABLES:
        variants = variants_of(table)
        assert len({variant.folder for variant in variants}) == len(variants)
        assert len({tuple(variant.row) for variant in variants}) == 1
    bilstm = variants_of("pretraining_tasks")[-1]
    assert bilstm.pretraining == variants_of("pretraining_tasks")[-2].pretraining


def test_shares_of_masks_are_what_is_left():
    for variant in variants_of("masking"):
        mask, random = (float(flag.partition("=")[2]) for flag in variant.pretrain_flags)
        shares = [int(variant.row[name].rstrip("%")) / 100 for name in ("Mask", "Same", "Random")]
        np.testing.assert_allclose([mask, 1 - mask - random, random], shares, atol=1e-9)


def test_flags_of_features_are_not_those_of_fine_tuning():
    fine_tuning, *features = variants_of("features", feature_flags=["--epochs=9"])
    assert fine_tuning.fine_tune_flags == ()
    assert features[4].fine_tune_flags == ("--features=concat_last_four", "--epochs=9")


def results_of(*trials):
    """The results of trials of a learning rate and a score each, of which that on test is the half."""
    trials = [
        {"learning_rate": rate, "score": score, "metrics": {} if score is None else {"test/f1": score / 2}}
        for rate, score in trials
    ]
    return {"score": "dev/f1", "best": best_trial(trials), "trials": trials}


def test_a_row_has_the_median_and_the_range():
    pretraining = {"updates": 2000, "seconds": 90.0, "metrics": {"eval/perplexity": 12.345}}
    results = results_of((3e-5, 0.5), (3e-5, 0.9), (3e-5, 0.6), (3e-5, None))
    row = row_of(Variant({"Pre-training": "BERT"}, "bert"), pretraining, {"ner": results})
    assert row == {
        "Pre-training": "BERT",
        "updates": "2,000",
        "minutes": "1.5",
        "LM perplexity": "12.35",
        "ner (dev/f1)": "0.6000 (0.5000 to 0.9000, n=3)",
        "ner (test/f1)": "0.3000 (0.2500 to 0.4500, n=3)",
    }
    assert table_of([row, row]).count("\n") == 4
    nothing = row_of(Variant({}, "x"), None, {"ner": results_of((3e-5, None))})
    assert nothing == {"ner (dev/f1)": "diverged"}
    assert table_of([row, nothing]).endswith("\n| - | - | - | - | diverged | - |\n")


def test_scores_are_those_of_the_best_learning_rate():
    results = results_of((1e-3, 0.1), (1e-3, None), (3e-5, 0.6), (3e-5, 0.9), (5e-5, 0.8), (5e-5, 0.8))
    assert scores_of(results) == {"dev/f1": [0.6, 0.9], "test/f1": [0.3, 0.45]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table=masking"], "--table=masking needs --task"),
        (["--table=masking", "--task=a=tasks.glue"], "needs --pretrain"),
        (["--table=features", "--task=a=tasks.glue"], "needs --init_checkpoint"),
        (["--table=features", "--pretrain=--x=1"], "--pretrain is not for --table=features"),
        (["--table=masking", "--init_checkpoint=x"], "--init_checkpoint is not for --table=masking"),
        (["--table=features", "--init_checkpoint=x", "--task=tasks.glue"], "is not NAME=PROGRAM FLAGS"),
        (["--table=features", "--init_checkpoint=x", "--task=a=rm -r"], "is not NAME=PROGRAM FLAGS"),
        (["--table=features", "--init_checkpoint=x", "--task=../a=tasks.glue"], "is not NAME=PROGRAM FLAGS"),
        (["--table=features", "--init_checkpoint=x", "--task=a=tasks.glue", "--task=a=tasks.swag"], "two of the same"),
        (["--table=features", "--init_checkpoint=x", "--task=a=tasks.glue --run_dir=x"], "--run_dir is set for each"),
        (["--table=features", "--init_checkpoint=x", "--task=a=tasks.glue --epochs 3"], "3 is no flag"),
        (["--table=features", "--init_checkpoint=x", "--task=a=tasks.glue 'x"], "cannot be split into words"),
        (
            ["--table=features", "--init_checkpoint=x", "--task=a=tasks.gleu"],
            "tasks.gleu is no program that fine-tunes",
        ),
        (
            ["--table=features", "--init_checkpoint=x", "--task=a=tasks.pretrain"],
            "those are tasks.classify, tasks.glue",
        ),
        (
            ["--table=features", "--init_checkpoint=x", "--task=a=tasks.glue --learning_rates=5e-5,3e-5"],
            "--task=a and --feature_flags=--learning_rate=1e-3 have --learning_rate and --learning_rates between them",
        ),
        (
            [
                "--table=masking",
                "--pretrain=--x",
                "--bert_config_file=x",
                "--task=a=tasks.glue --learning_rate=1 --learning_rates=1,2",
            ],
            "--task=a: give --learning_rate or --learning_rates, not both",
        ),
    ],
)
def test_what_cannot_be_asked_for(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        ablation.run(parsed(f"--run_dir={tmp_path / 'run'}", *arguments))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("size", ["3x768", "3x768x5", "0x8x2", "3x8x2x1", "axbxc", "-1x8x2"])
def test_what_is_no_size(size):
    with pytest.raises(ValueError, match="--sizes: "):
        ablation.parse_size(size)


def test_flags_in_quotes():
    assert parse_flags("pretrain", "--text_files='my corpus/*.txt'", ()) == ["--text_files=my corpus/*.txt"]
    assert parse_task("a=tasks.glue", ()) == ("a", "tasks.glue", [])


def test_programs_that_fine_tune():
    found = [path for path in (ROOT / "tasks").glob("*.py") if "    tasks.flags.run_fine_tuning(" in path.read_text()]
    assert sorted(f"tasks.{path.stem}" for path in found) == sorted(FINE_TUNING_PROGRAMS)


PRETRAINED = ["--pretrain=--text_files=x --vocab_file=x"]
ON_FILES = "--train_file=x --dev_file=x"


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        ("pretraining_tasks", ["--pretrain=--nonsense=1"], r"--pretrain, variant bert: .* flag 'nonsense'"),
        ("masking", ["--pretrain=--vocab_file=x --instance_files=x"], r"variant mask_100_.* is for --text_files"),
        (
            "masking",
            [*PRETRAINED, "--task=b=tasks.glue --epoch=3"],
            r"--task=b, variant mask_80_.*'epoch'\. Did you mean",
        ),
        ("masking", [*PRETRAINED, "--task=b=tasks.squad --version=3.0"], r"flag --version=3.0: value should be one of"),
        (
            "pretraining_tasks",
            [*PRETRAINED, f"--task=b=tasks.tagging {ON_FILES} --features=last"],
            "--task=b, variant left_to_right_bilstm: tasks.tagging does not take these .* give --encoder or --features",
        ),
        (
            "features",
            ["--feature_flags=--epochs=0"],
            "--task=a, variant embeddings: .*--epochs=0.0: must be more than 0",
        ),
    ],
)
def test_flags_that_a_program_refuses(tmp_path, monkeypatch, table, arguments, message):
    monkeypatch.chdir(ROOT)
    (tmp_path / "config.json").write_text("{}")
    size = "--init_checkpoint=x" if table == "features" else f"--bert_config_file={tmp_path / 'config.json'}"
    arguments = [f"--table={table}", size, f"--task=a=tasks.tagging {ON_FILES}", *arguments]
    with pytest.raises(ProgramFailed, match=f"(?s){message}"):
        ablation.run(parsed(f"--run_dir={tmp_path / 'run'}", *arguments))
    assert not (tmp_path / "run").exists()


def test_each_command_line_is_asked_once(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(programs, "subprocess", SimpleNamespace(run=run, DEVNULL=None, PIPE=None, STDOUT=None))
    same = [Program("a", "tasks.glue", ("--x=1",), (f"--y={place}",), tmp_path / place) for place in "bcd"]
    (tmp_path / "e").mkdir()
    write_json(tmp_path / "e" / "results.json", {}, overwrite=True)
    finished = Program("a", "tasks.glue", ("--x=2",), (), tmp_path / "e")
    programs.check_flags([*same, finished, Program("a", "tasks.swag", ("--x=1",), (), tmp_path / "f")])
    assert [command[2] for command in asked] == ["tasks.glue", "tasks.swag"]
    assert all(command[-1] == "--only_check_args" for command in asked)


def test_a_program_that_fails_says_why(tmp_path):
    program = Program("a", "tasks.nothing", (), (), tmp_path / "run")
    with pytest.raises(ProgramFailed, match=r"(?s)exit status 1; the end of .*No module named tasks\.nothing"):
        run_once(program, report=str)


def test_what_has_finished_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "subprocess", None)
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / "results.json", {"score": 1}, overwrite=True)
    assert run_once(Program("a", "tasks.nothing", (), (), tmp_path / "run"), report=None) == {"score": 1}


@pytest.fixture
def command(tmp_path):
    """A toy ablation of the model's size."""
    texts, names = toy_reviews(48)
    rows = [f"{text}\t{int(name == 'positive')}\n" for text, name in zip(texts, names, strict=True)]
    for split, part in {"train": rows[:32], "dev": rows[32:]}.items():
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(part))
    files = write_corpus(tmp_path / "corpus", files=3, documents=20)
    config = {"vocab_size": len(VOCABULARY), "type_vocab_size": 2, "hidden_act": "gelu", "max_position_embeddings": 16}
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    return [
        *("--table=model_size", "--sizes=1x8x2,2x4x1", f"--run_dir={tmp_path / 'run'}", "--num_seeds=2"),
        f"--bert_config_file={tmp_path / 'config.json'}",
        f"--pretrain=--text_files={','.join(files[:2])} --eval_text_files={files[2]} --vocab_file={vocabulary} "
        "--shard_megabytes=0.003 --phase=16:3:8",
        f"--task=sst2=tasks.glue --task=sst2 --data_dir={tmp_path} --max_seq_length=16 --epochs=1 --learning_rate=1e-3",
    ]


@pytest.mark.slow
def test_an_ablation(tmp_path, command, monkeypatch, capsys):
    forked = {**vars(subprocess), "Popen": ForkedProgram}  # but for `run`, which starts no TensorFlow here
    monkeypatch.setattr(programs, "subprocess", SimpleNamespace(**forked))
    ablation.run(parsed(*command))
    table, folder = capsys.readouterr().out, tmp_path / "run"
    assert (folder / "table.md").read_text() == table
    head, _, *rows = table.splitlines()
    assert head == "| #L | #H | #A | updates | minutes | LM perplexity | sst2 (dev/accuracy) |"
    assert [row.split(" | ")[:4] for row in rows] == [["| 1", "8", "2", "3"], ["| 2", "4", "1", "3"]]
    config = json.loads((folder / "pretraining" / "2x4x1" / "model" / "config.json").read_text())
    assert [config[name] for name in ("num_hidden_layers", "hidden_size", "intermediate_size")] == [2, 4, 16]
    data = json.loads((folder / "table.json").read_text())
    trials = json.loads((folder / "fine_tuning" / "2x4x1" / "sst2" / "results.json").read_text())["trials"]
    assert data[1]["scores"]["sst2"] == {"dev/accuracy": [trial["score"] for trial in trials]} and len(trials) == 2
    # What has finished is not run again, and nothing is mixed with other settings.
    monkeypatch.setattr(programs, "subprocess", None)
    ablation.run(parsed(*command))
    assert capsys.readouterr().out == table
    with pytest.raises(FileExistsError, match="num_seeds is 3, there it was 2"):
        ablation.run(parsed(*command, "--num_seeds=3"))
