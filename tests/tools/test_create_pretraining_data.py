"""The program makes shards of instances, goes on where it was interrupted, and refuses what it cannot do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl import flags

from tests.forked import run as run_forked
from tests.pretraining.corpora import (
    VOCABULARY,
    contents,
    features,
    records,
    sidecars,
    write_corpus,
    write_vocabulary,
)
from tools import create_pretraining_data

ROOT = Path(__file__).parents[2]
SMALL = {"max_seq_length": 24, "max_predictions_per_seq": 4, "dupe_factor": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of prepared text and a vocabulary, as flags."""
    folder = tmp_path_factory.mktemp("tool")
    write_corpus(folder / "corpus", documents=30)
    return {"input_file": folder / "corpus" / "*.txt", "vocab_file": write_vocabulary(folder / "vocab.txt")}


def arguments(**options):
    return [f"--{name}={value}" for name, value in options.items()]


def values_of(**options):
    values = flags.FlagValues()
    create_pretraining_data.define_flags(values)
    values(["create_pretraining_data", *arguments(**{"progress": False, **options})])
    return values


def run(**options):
    create_pretraining_data.run(values_of(**{**SMALL, **options}))


def start(process=None, **options):
    """The program; `process` are further arguments of `Popen`."""
    command = [sys.executable, "-m", "tools.create_pretraining_data", *arguments(**options)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **(process or {}))


def one_file(folder, text):
    path = folder / "text.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Flags.


def test_help_is_quick_and_names_the_flags():
    before = os.times().children_user
    answer = start(help=True).communicate()[0]
    assert "python -m tools.create_pretraining_data" in answer
    assert all(f"{name}:" in answer for name in ("--input_file", "--[no]exact", "--num_workers", "--next_sentence"))
    assert os.times().children_user - before < 1  # seconds of work; TensorFlow's import alone takes more


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_seq_length": 4}, "max_seq_length"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq"),
        ({"dupe_factor": 0}, "dupe_factor"),
        ({"num_workers": 0}, "num_workers"),
        ({"shard_megabytes": 0}, "shard_megabytes"),
        ({"next_sentence": "next"}, "next_sentence"),
        ({"compression": "zip"}, "compression"),
        ({"output_file": "out"}, "give --output_dir=FOLDER"),
        ({"output_dir": ""}, "give --output_dir=FOLDER"),
        ({"exact": True}, "--exact writes to --output_file=FILE"),
        ({"exact": True, "output_file": "records"}, "--exact writes to --output_file=FILE"),
    ],
    ids=str,
)
def test_flags_that_are_wrong(options, message):
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        values_of(**{"input_file": "text", "vocab_file": "vocab.txt", "output_dir": "out", **options})


@pytest.mark.parametrize("missing", ["input_file", "vocab_file"])
def test_flags_that_are_missing(missing):
    options = {"input_file": "text", "vocab_file": "vocab.txt", "output_dir": "out"}
    del options[missing]
    with pytest.raises(flags.IllegalFlagValueError, match=missing):
        values_of(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"masked_lm_prob": 0}, "masking_rate must be above 0 and at most 1, got 0.0"),
        ({"short_seq_prob": 2}, "short_sequence_rate must be from 0 to 1, got 2.0"),
        ({"random_share": 0.3}, "together at most 1, got 0.8 and 0.3"),
        ({"next_sentence": "none", "fill_to_length": False}, "fill_to_length=False"),
    ],
    ids=str,
)
def test_settings_that_are_wrong_are_refused_before_anything_is_read(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(input_file="missing", vocab_file="missing", output_dir=tmp_path / "out", **options)
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_contradictions_and_errors_are_one_line(tmp_path, corpus):
    exact = {**corpus, "exact": True, "output_file": tmp_path / "records"}
    commands = [
        arguments(**exact, num_workers=2),
        arguments(**{**corpus, "input_file": tmp_path / "missing.txt"}, output_dir=tmp_path / "out"),
        arguments(**corpus, output_dir=one_file(tmp_path, "a file") / "out"),
        [*arguments(**corpus, output_dir="out"), "more.txt"],
    ]
    answers = [
        run_forked([sys.executable, "-m", "tools.create_pretraining_data", *each], cwd=ROOT) for each in commands
    ]
    assert all(answer.returncode == 1 for answer in answers)
    said = [answer.stdout + answer.stderr for answer in answers]
    assert all("Traceback" not in each for each in said)
    assert "the original has no --num_workers; leave it out with --exact" in said[0]
    assert f"tools.create_pretraining_data: no file is named {tmp_path}/missing.txt" in said[1]
    assert "text.txt is not a directory" in said[2] or "Not a directory" in said[2]
    assert "unexpected arguments: more.txt" in said[3]
    assert set(contents(tmp_path)) == {"text.txt"}


# Streaming.


def test_shards_and_what_is_said_of_them(tmp_path, corpus, capsys):
    out = tmp_path / "out"
    run(**corpus, output_dir=f"{out}/", shard_megabytes=0.004, random_seed=3)
    said = sidecars(out)
    shards = len(said) // 2
    assert shards > 3
    assert {each["seed"] for each in said} == {3}
    total = {
        name: sum(each[name] for each in said[:shards]) for name in ("documents", "tokens", "one_sentence_documents")
    }
    total["instances"] = sum(each["instances"] for each in said)
    assert total["documents"] == 60
    answer = capsys.readouterr().out
    assert f"{total['instances']:,} instances of 60 documents with {total['tokens']:,} tokens" in answer
    assert f"made {total['instances']:,} of them in" in answer
    assert f"{total['one_sentence_documents']} documents have one sentence" in answer
    before = contents(out)
    next(out.glob("*-00001-of-*.tfrecord")).unlink()
    run(**corpus, output_dir=out, shard_megabytes=0.004, random_seed=3)
    assert contents(out) == before
    answer = capsys.readouterr().out
    assert f"{shards - 1} of {shards} shards were there already" in answer
    assert f"made {said[1]['instances'] + said[1 + shards]['instances']:,} of them" in answer


def test_shards_of_one_document_are_counted(tmp_path, corpus, capsys):
    text = "river stone\n" * 100 + "\nlight\nwalked early\n\nslow river\nstone\n"
    options = {**corpus, "input_file": one_file(tmp_path, text), "shard_megabytes": 0.001}
    run(**options, output_dir=tmp_path / "made")
    assert (
        "1 of 2 shards have one document: random next sentences are its own. Larger shards" in capsys.readouterr().out
    )
    run(**options, output_dir=tmp_path / "sop", next_sentence="sop")
    assert "one document" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag, value, fact",
    [
        ("do_lower_case", False, ("lower_case", False)),
        ("do_whole_word_mask", True, ("whole_words", True)),
        ("max_seq_length", 20, ("sequence_length", 20)),
        ("max_predictions_per_seq", 3, ("max_predictions", 3)),
        ("dupe_factor", 1, ("copies", 1)),
        ("masked_lm_prob", 0.2, ("masking_rate", 0.2)),
        ("short_seq_prob", 0.5, ("short_sequence_rate", 0.5)),
        ("use_v2_feature_names", True, ("form", "models")),
        ("next_sentence", "sop", ("next_sentence", "sop")),
        ("fill_to_length", False, ("fill_to_length", False)),
        ("mask_share", 0.7, ("mask_share", 0.7)),
        ("random_share", 0.2, ("random_share", 0.2)),
        ("compression", "gzip", ("compression", "gzip")),
    ],
)
def test_each_flag_is_used(tmp_path, corpus, monkeypatch, flag, value, fact):
    from keras_bert.pretraining import streaming

    jobs = []

    def note(job, shards, num_workers):
        jobs.append(job)
        return iter(
            [
                (
                    shards[0],
                    {"instances": 1, "documents": 1, "tokens": 1, "one_sentence_documents": 0, "unknown_tokens": 0},
                )
            ]
        )

    monkeypatch.setattr(streaming, "make_shards", note)
    run(**corpus, output_dir=tmp_path / "out")
    run(**{**SMALL, **corpus, "output_dir": tmp_path / "out", flag: value})
    plain, changed = (job.configuration() for job in jobs)
    assert changed[fact[0]] == fact[1] != plain[fact[0]]
    assert {name for name in plain if plain[name] != changed[name]} <= {fact[0], "strip_accents"}


def test_a_folder_of_other_instances_is_refused(tmp_path, corpus):
    out = tmp_path / "out"
    run(**corpus, output_dir=out)
    before = contents(out)
    with pytest.raises(FileExistsError, match="seed is 12345 there and 3 here"):
        run(**corpus, output_dir=out, random_seed=3)
    with pytest.raises(FileExistsError, match="belongs to another run: this one has 1 shards in 3 copies"):
        run(**corpus, output_dir=out, dupe_factor=3)
    with pytest.raises(FileExistsError, match="belongs to another run"):
        run(**corpus, output_dir=out, shard_megabytes=0.004)
    assert contents(out) == before


@pytest.mark.slow
def test_a_killed_program_leaves_no_half_shard_and_no_process(tmp_path, corpus):
    options = {**SMALL, **corpus, "shard_megabytes": 0.001, "dupe_factor": 10, "num_workers": 2, "progress": False}
    run(**{**options, "num_workers": 1, "output_dir": tmp_path / "whole"})
    out = tmp_path / "out"
    out.mkdir()
    program = start(**options, output_dir=out)
    while not sidecars(out):
        assert program.poll() is None, program.communicate()[1][-2000:]
        time.sleep(0.01)
    processes = descendants(program.pid)
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=60)  # waits for all processes that have its standard error
    give_up = time.monotonic() + 20
    while any(map(is_running, processes)):  # one may have closed its files, and not ended yet
        assert time.monotonic() < give_up, f"of {processes} some still run"
        time.sleep(0.1)
    assert len(processes) >= 3
    assert 1 <= len(sidecars(out)) < len(sidecars(tmp_path / "whole"))
    for path in out.glob("*.tfrecord"):
        assert records(path) == records(tmp_path / "whole" / path.name)
    # As if one had been killed in the middle of a file, which is seldom met by chance.
    (out / ".pretraining-00009-of-00015.tfrecord.unfinished-1").write_bytes(b"half")
    run(**{**options, "num_workers": 1, "output_dir": out})
    assert contents(out) == contents(tmp_path / "whole")


def descendants(process):
    children = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        children += [int(child) for child in path.read_text().split()]
    return children + [each for child in children for each in descendants(child)]


def is_running(process):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    return False


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_program_finishes_what_is_begun_and_says_so(tmp_path, corpus, signal_):
    options = {**SMALL, **corpus, "shard_megabytes": 0.001, "dupe_factor": 10, "num_workers": 2, "progress": False}
    out = tmp_path / "out"
    out.mkdir()
    # A shell that starts these tests in the background lets them ignore interrupts, and programs inherit that. Not a
    # `preexec_fn`: with one Python forks this process, and gRPC's pollers, if another test began some, end the copy.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    program = start({"start_new_session": True}, **options, output_dir=out)
    signal.signal(signal.SIGINT, before)
    while not sidecars(out):
        assert program.poll() is None, program.communicate()[1][-2000:]
        time.sleep(0.01)
    # A terminal interrupts the workers, too; whoever ends a program asks it alone.
    (os.killpg if signal_ == signal.SIGINT else os.kill)(program.pid, signal_)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 1
    said = "tools.create_pretraining_data: interrupted; the same command makes what is missing"
    assert errors.splitlines()[-1] == said, errors[-3000:]
    assert "Traceback" not in errors
    assert not [name for name in contents(out) if name.startswith(".")]


def test_text_that_is_not_prepared_and_a_vocabulary_of_another_text(tmp_path, corpus, capsys):
    path = one_file(tmp_path, "".join(f"{word} river\n\n" for word in ["stone"] * 5 + ["caf\u00e9"] * 4))
    run(**{**corpus, "input_file": path}, output_dir=tmp_path / "out")
    answer = capsys.readouterr().out
    assert (
        "Is this prepared text, one sentence a line and a blank line between documents? python -m tools.pre" in answer
    )
    assert "22.2% of the tokens are [UNK]: is the vocabulary that of this text?" in answer
    run(**corpus, output_dir=tmp_path / "sound")
    answer = capsys.readouterr().out
    assert "prepared" not in answer and "[UNK]" not in answer


# Exact.


def test_exact_files(tmp_path, corpus, capsys):
    outputs = [tmp_path / "one", tmp_path / "two"]
    run(**corpus, exact=True, output_file=",".join(map(str, outputs)), use_v2_feature_names=True)
    found = [[features(record) for record in records(path)] for path in outputs]
    total = sum(map(len, found))
    assert 0 <= len(found[0]) - len(found[1]) <= 1 and total > 100
    assert {len(each["input_word_ids"]) for each in found[0]} == {24}
    facts = json.loads((tmp_path / "two.json").read_text())
    expected = {"mode": "exact", "copies": 2, "sequence_length": 24, "instances": len(found[1]), "form": "models"}
    assert expected.items() <= facts.items()
    assert f"{total:,} instances of 60 documents" in capsys.readouterr().out


def test_the_golden_instances(shared, tmp_path):
    import numpy as np

    folder = shared / "golden" / "pretraining_data"
    run(
        input_file=folder / "sample_text.txt",
        vocab_file=shared / "data" / "vocab" / "bert-base-uncased-vocab.txt",
        exact=True,
        output_file=tmp_path / "records",
        max_seq_length=64,
        max_predictions_per_seq=10,
        dupe_factor=5,
    )
    expected = np.load(folder / "sample_text.len64_wordpiece.features.npz")
    found = [features(record) for record in records(tmp_path / "records")]
    for name in expected.files:
        np.testing.assert_array_equal([each[name] for each in found], expected[name])


def test_exact_refuses_an_output_that_exists_before_it_reads(tmp_path, corpus):
    path = one_file(tmp_path, "precious")
    with pytest.raises(FileExistsError, match=r"text\.txt exists; delete it, or give another name"):
        run(**corpus, exact=True, output_file=path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        run(**corpus, exact=True, output_file=tmp_path / "missing" / "records")
    assert contents(tmp_path) == {"text.txt": b"precious"}


# Text.


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "text, error",
    [("", "is empty|are empty|there is no text"), (" \n\n\t\n", "no instance was made|there is no text")],
    ids=["empty", "blank lines"],
)
def test_no_text(tmp_path, corpus, text, error, exact):
    output = {"exact": True, "output_file": tmp_path / "out"} if exact else {"output_dir": tmp_path / "out"}
    with pytest.raises(ValueError, match=error):
        run(**{**corpus, "input_file": one_file(tmp_path, text)}, **output)


@pytest.mark.parametrize("exact", [False, True])
def test_documents_of_one_sentence_are_used_and_counted(tmp_path, corpus, capsys, exact):
    output = {"exact": True, "output_file": tmp_path / "out"} if exact else {"output_dir": tmp_path / "out"}
    run(**{**corpus, "input_file": one_file(tmp_path, "river stone\n\nnight\n\nlight walked\n")}, **output)
    answer = capsys.readouterr().out
    assert "6 instances of 3 documents with 5 tokens" in answer
    assert "3 documents have one sentence, which nothing follows" in answer


def test_pairs_in_order_need_two_sentences(tmp_path, corpus):
    path = one_file(tmp_path, "river stone\n\nnight\n")
    with pytest.raises(ValueError, match="no instance was made"):
        run(**{**corpus, "input_file": path}, output_dir=tmp_path / "out", next_sentence="sop")


def test_hostile_text(tmp_path, corpus):
    text = "\ufeff\x00river\x07 [MASK]\n" + "x" * 5000 + "\n\u202eevil\ud7ff \U0010ffff\n[SEP] [CLS]\r\n\u2028\n\nriver"
    out = tmp_path / "out"
    run(**{**corpus, "input_file": one_file(tmp_path, text)}, output_dir=out, masked_lm_prob=0.01, max_seq_length=64,
        mask_share=0, random_share=0)  # fmt: skip
    rows = [features(record)["input_ids"] for path in out.glob("*.tfrecord") for record in records(path)]
    assert rows
    for row in rows:
        length = sum(token > 0 for token in row)
        assert row.count(2) == 1 and row[0] == 2
        assert row.count(3) == 2 and row[length - 1] == 3
        assert not row.count(4)
    assert {token for row in rows for token in row} == {0, 1, 2, 3, 5}


def test_text_that_is_none(tmp_path, corpus):
    for content, message in [
        (b"caf\xe9\n", "is not UTF-8: byte 3 "),
        ("text".encode("utf-16"), "is UTF-16"),
        (b"x" * 5000, None),
        (b"x" * 20_000, r"from byte 4096 on there is no line end"),
    ]:
        options = {**corpus, "input_file": one_file(tmp_path, content), "shard_megabytes": 0.004096}
        if message is None:
            run(**options, output_dir=tmp_path / "out")
        else:
            with pytest.raises(ValueError, match=message):
                run(**options, output_dir=tmp_path / "not made")


def test_files_given_twice_and_a_folder(tmp_path, corpus):
    (tmp_path / "b.txt").write_text("night\n")
    with pytest.raises(ValueError, match="is given twice"):
        run(**{**corpus, "input_file": f"{tmp_path}/b.txt,{tmp_path}/b*"}, output_dir=tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="is a folder; give a pattern of its files"):
        run(**{**corpus, "input_file": tmp_path}, output_dir=tmp_path / "out")


def test_vocabularies(tmp_path, corpus):
    options = {"input_file": corpus["input_file"], "output_dir": tmp_path / "out"}
    without_mask = write_vocabulary(tmp_path / "vocab.txt", [entry for entry in VOCABULARY if entry != "[MASK]"])
    with pytest.raises(ValueError, match=r"vocab.txt has no \[MASK\], which masked words need; add it"):
        run(**options, vocab_file=without_mask)
    with pytest.raises(FileNotFoundError, match="missing"):
        run(**options, vocab_file=tmp_path / "missing.txt")
    assert not (tmp_path / "out").exists()
