import collections
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from absl import app, flags

from keras_bert.pretraining import streaming
from tests.pretraining.corpora import VOCABULARY, contents, features, records, sidecars, write_corpus, write_vocabulary
from tests.tools.program_flags import parse_flags
from tools import create_pretraining_data

ROOT = Path(__file__).parents[2]
SMALL = {"max_seq_length": 24, "max_predictions_per_seq": 4, "dupe_factor": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of prepared text and a vocabulary, as flags."""
    folder = tmp_path_factory.mktemp("tool")
    write_corpus(folder / "corpus", documents=30)
    return {"input_file": folder / "corpus" / "*.txt", "vocab_file": write_vocabulary(folder / "vocab.txt")}


def run(**options):
    create_pretraining_data.run(parse_flags(create_pretraining_data, **{**SMALL, **options}))


def run_main(monkeypatch, *argv, **options):
    monkeypatch.setattr(flags, "FLAGS", parse_flags(create_pretraining_data, **{**SMALL, **options}))
    before = signal.getsignal(signal.SIGTERM)
    try:
        create_pretraining_data.main(["create_pretraining_data", *argv])
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def program(tmp_path, corpus):
    """The options of a run with two workers, and its process, which has finished its first file."""
    options = {**SMALL, **corpus, "shard_megabytes": 0.001, "dupe_factor": 10, "num_workers": 2}
    options["output_dir"] = out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-m", "tools.create_pretraining_data"]
    command += [f"--{name}={value}" for name, value in options.items()]
    # A shell that runs tests in the background lets them ignore interrupts, and programs inherit that. Not a
    # `preexec_fn`: with one Python forks this process, and gRPC's threads, if another test started some, end the copy.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, text=True, **pipes)
    signal.signal(signal.SIGINT, before)
    while not sidecars(out):
        assert process.poll() is None, process.communicate()[1][-2000:]
        time.sleep(0.01)
    return options, process


def write_file(folder, text):
    path = folder / "text.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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
        ({"input_file": ""}, "give --input_file=.* or --show=N"),
        ({"input_file": "", "show": 3, "exact": True}, "give --input_file=.* or --show=N"),
        ({"input_file": "", "show": 3, "output_file": "records"}, "--show needs either --output_dir=FOLDER or"),
        ({"vocab_file": None}, "vocab_file"),
    ],
    ids=str,
)
def test_invalid_flags_are_refused(options, message):
    options = {"input_file": "text", "vocab_file": "vocab.txt", "output_dir": "out", **options}
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        parse_flags(create_pretraining_data, **{name: value for name, value in options.items() if value is not None})


def test_invalid_settings_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match=r"sum to at most 1, got 0\.8 and 0\.3"):
        run(input_file="missing", vocab_file="missing", output_dir=tmp_path / "out", random_token_rate=0.3)
    assert contents(tmp_path) == {}


def test_errors_are_printed_in_one_line(tmp_path, corpus, monkeypatch):
    exact = {**corpus, "exact": True, "output_file": tmp_path / "records"}
    with pytest.raises(app.UsageError, match="--num_workers has no effect with --exact"):
        run_main(monkeypatch, **exact, num_workers=2)
    with pytest.raises(app.UsageError, match=r"unexpected arguments: more\.txt"):
        run_main(monkeypatch, "more.txt", **corpus, output_dir="out")
    with pytest.raises(SystemExit, match=f"^tools.create_pretraining_data: no file .*{tmp_path}/missing.txt[^\n]*$"):
        run_main(monkeypatch, **{**corpus, "input_file": tmp_path / "missing.txt"}, output_dir=tmp_path / "out")
    with pytest.raises(SystemExit, match=r"^tools.create_pretraining_data: [^\n]*[Nn]ot a directory"):
        run_main(monkeypatch, **corpus, output_dir=write_file(tmp_path, "a file") / "out")
    with pytest.raises(SystemExit, match=r"^tools.create_pretraining_data: [^\n]*text\.txt exists; delete it"):
        run_main(monkeypatch, **{**exact, "output_file": tmp_path / "text.txt"})
    monkeypatch.setattr(create_pretraining_data, "run", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit, match="interrupted; re-run the same command to resume"):
        run_main(monkeypatch, **corpus, output_dir="out")
    assert contents(tmp_path) == {"text.txt": b"a file"}


def test_shards_are_written_and_reported(tmp_path, corpus, capsys):
    out = tmp_path / "out"
    run(**corpus, output_dir=f"{out}/", shard_megabytes=0.004, random_seed=3)
    found = sidecars(out)
    num_shards = len(found) // 2
    assert num_shards > 3
    assert {each["seed"] for each in found} == {3}
    names = ("documents", "tokens", "one_sentence_documents")
    total = {name: sum(each[name] for each in found[:num_shards]) for name in names}
    total["instances"] = sum(each["instances"] for each in found)
    assert total["documents"] == 60
    report = capsys.readouterr().out
    assert f"{total['instances']:,} instances of 60 documents with {total['tokens']:,} tokens" in report
    assert f"made {total['instances']:,} of them in" in report
    assert f"{total['one_sentence_documents']} documents have only one sentence" in report
    before = contents(out)
    next(out.glob("*-00001-of-*.tfrecord")).unlink()
    run(**corpus, output_dir=out, shard_megabytes=0.004, random_seed=3)
    assert contents(out) == before
    report = capsys.readouterr().out
    assert f"{num_shards - 1} of {num_shards} shards already existed" in report
    assert f"made {found[1]['instances'] + found[1 + num_shards]['instances']:,} of them" in report


def test_shards_of_one_document_are_counted(tmp_path, corpus, capsys):
    text = "river stone\n" * 100 + "\nlight\nwalked early\n\nslow river\nstone\n"
    options = {**corpus, "input_file": write_file(tmp_path, text), "shard_megabytes": 0.001}
    run(**options, output_dir=tmp_path / "made")
    assert "1 of 2 shards have one document, whose random next sentences are its own." in capsys.readouterr().out
    run(**options, output_dir=tmp_path / "sop", next_sentence="sop")
    assert "one document" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag, value, name, setting",
    [
        ("do_lower_case", False, "lower_case", False),
        ("do_whole_word_mask", True, "do_whole_word_mask", True),
        ("max_seq_length", 20, "sequence_length", 20),
        ("max_predictions_per_seq", 3, "max_predictions", 3),
        ("dupe_factor", 1, "num_copies", 1),
        ("masked_lm_prob", 0.2, "masked_lm_prob", 0.2),
        ("short_seq_prob", 0.5, "short_seq_prob", 0.5),
        ("use_v2_feature_names", True, "record_format", "models"),
        ("next_sentence", "sop", "next_sentence", "sop"),
        ("fill_to_length", False, "fill_to_length", False),
        ("mask_token_rate", 0.7, "mask_token_rate", 0.7),
        ("random_token_rate", 0.2, "random_token_rate", 0.2),
        ("compression", "gzip", "compression", "gzip"),
    ],
)
def test_each_flag_is_used(tmp_path, corpus, monkeypatch, flag, value, name, setting):
    jobs = []

    def make_shards(job, shards, num_workers):
        jobs.append(job)
        return iter([(shards[0], {"instances": 1, **dict.fromkeys(streaming.COUNT_NAMES, 1)})])

    monkeypatch.setattr(streaming, "make_shards", make_shards)
    run(**corpus, output_dir=tmp_path / "out")
    run(**{**SMALL, **corpus, "output_dir": tmp_path / "out", flag: value})
    plain, changed = (job.metadata() for job in jobs)
    assert changed[name] == setting != plain[name]
    assert {each for each in plain if plain[each] != changed[each]} <= {name, "strip_accents"}


@pytest.mark.slow
def test_a_killed_program_leaves_no_partial_file_and_no_process(tmp_path, program):
    options, process = program
    out, whole = options["output_dir"], tmp_path / "whole"
    processes = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # waits for all processes that have its standard error
    deadline = time.monotonic() + 20
    while any(map(is_running, processes)):  # one may have closed its files, but still be running
        assert time.monotonic() < deadline, f"some of {processes} are still running"
        time.sleep(0.1)
    assert len(processes) >= 3
    run(**{**options, "num_workers": 1, "output_dir": whole})
    assert 1 <= len(sidecars(out)) < len(sidecars(whole))
    for path in out.glob("*.tfrecord"):
        assert records(path) == records(whole / path.name)
    # A partial file, as if a process had been killed while it wrote one.
    (out / ".pretraining-00009-of-00015.tfrecord.unfinished-1").write_bytes(b"half")
    run(**{**options, "num_workers": 1})
    assert contents(out) == contents(whole)


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_program_finishes_its_current_shards(program, number):
    options, process = program
    # A terminal also interrupts the workers; SIGTERM goes to the program only.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    expected = "tools.create_pretraining_data: interrupted; re-run the same command to resume"
    assert errors.splitlines()[-1] == expected, errors[-3000:]
    assert "Traceback" not in errors
    assert not [name for name in contents(options["output_dir"]) if name.startswith(".")]


def test_unprepared_text_and_a_foreign_vocabulary_are_reported(tmp_path, corpus, capsys):
    path = write_file(tmp_path, "".join(f"{word} river\n\n" for word in ["stone"] * 5 + ["caf\u00e9"] * 4))
    run(**{**corpus, "input_file": path}, output_dir=tmp_path / "out")
    report = capsys.readouterr().out
    assert "Is this prepared text, with one sentence per line and a blank line between documents?" in report
    assert "22.2% of the tokens are [UNK]: is this the vocabulary of the text?" in report
    run(**corpus, output_dir=tmp_path / "sound")
    report = capsys.readouterr().out
    assert "prepared" not in report and "[UNK]" not in report


def test_exact_mode_writes_files_in_turn_with_sidecars(tmp_path, corpus, capsys):
    outputs = [tmp_path / "one", tmp_path / "two"]
    run(**corpus, exact=True, output_file=",".join(map(str, outputs)), use_v2_feature_names=True, show=0)
    found = [[features(record) for record in records(path)] for path in outputs]
    total = sum(map(len, found))
    assert 0 <= len(found[0]) - len(found[1]) <= 1 and total > 100
    assert {len(each["input_word_ids"]) for each in found[0]} == {24}
    sidecar = json.loads((tmp_path / "two.json").read_text())
    expected = {"mode": "exact", "num_copies": 2, "sequence_length": 24, "instances": len(found[1])}
    assert {**expected, "record_format": "models"}.items() <= sidecar.items()
    report = capsys.readouterr().out
    assert f"{total:,} instances of 60 documents" in report
    assert f"{total:,} instances in 2 files, such as {outputs[0]}" in report


def test_exact_instances_equal_the_golden_ones(shared, tmp_path):
    folder, vocabulary = shared / "golden" / "pretraining_data", shared / "data/vocab/bert-base-uncased-vocab.txt"
    options = {"input_file": folder / "sample_text.txt", "vocab_file": vocabulary, "output_file": tmp_path / "records"}
    run(exact=True, max_seq_length=64, max_predictions_per_seq=10, dupe_factor=5, **options)
    expected = np.load(folder / "sample_text.len64_wordpiece.features.npz")
    found = [features(record) for record in records(tmp_path / "records")]
    for name in expected.files:
        np.testing.assert_array_equal([each[name] for each in found], expected[name])


@pytest.fixture(scope="module", params=["nsp", "sop", "none"])
def made(request, corpus, tmp_path_factory):
    """A folder of instances, and the task of its second segments."""
    folder = tmp_path_factory.mktemp(request.param)
    run(**corpus, output_dir=folder, next_sentence=request.param, shard_megabytes=0.004)
    return folder, request.param


def show(capsys, corpus, count, **options):
    run(vocab_file=corpus["vocab_file"], show=count, **options)
    return capsys.readouterr().out.splitlines()


def test_averages_equal_those_of_all_records(made, corpus, capsys):
    folder, task = made
    found = [features(record) for path in sorted(folder.glob("*.tfrecord")) for record in records(path)]
    lines = show(capsys, corpus, 0, output_dir=folder)
    first = min(folder.glob("*.tfrecord"))
    assert lines[0] == f"{len(found)} instances in {len(sidecars(folder)):,} files, such as {first}"
    assert f"next_sentence={task}" in "".join(lines)
    mean_length = statistics.mean(sum(each["input_mask"]) for each in found)
    assert f"  tokens         {mean_length:.1f} of 24 ({1 - mean_length / 24:.1%} padding)" in lines
    kinds = collections.Counter()
    for each in found:
        names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        for position, label, weight in zip(*(each[name] for name in names), strict=True):
            now = each["input_ids"][position]
            kinds["kept" if now == label else VOCABULARY[now] if now == 4 else "random"] += bool(weight)
    total = kinds.total()
    rate = total / (mean_length * len(found))
    assert f"  masked tokens  {total / len(found):.1f} ({rate:.1%} of all tokens)" in lines
    fractions = [f"{kinds[kind] / total:.1%}" for kind in ("[MASK]", "random", "kept")]
    assert "  replaced by    [MASK] {}, another token {}, unchanged {}".format(*fractions) in lines
    positive = statistics.mean(each["next_sentence_labels"][0] for each in found)
    labels = {
        "nsp": f"  next sentence  actual {1 - positive:.1%}, random {positive:.1%}",
        "sop": f"  sentence order original {1 - positive:.1%}, swapped {positive:.1%}",
    }
    assert (lines[-1] == labels[task]) if task in labels else not lines[-1].startswith("  next")


def test_shown_instances_are_those_of_the_files(made, corpus, capsys):
    folder, task = made
    texts = set()
    for path in folder.glob("*.tfrecord"):
        for each in map(features, records(path)):
            length = sum(each["input_mask"])
            texts.add(tuple(VOCABULARY[token_id] for token_id in each["input_ids"][:length]))
    lines = show(capsys, corpus, 3, output_dir=folder)
    heads = [line for line in lines if line.startswith("instance ")]
    assert len(heads) == 3
    assert all(("next sentence: " in head) == (task == "nsp") for head in heads)
    for block in "\n".join(lines).split("\n\n")[:3]:
        head, text = block.split("\n", 1)
        assert ("\n  b: " in block) == (task != "none")
        tokens = re.sub(r"^  [ab]: |^     ", " ", text, flags=re.MULTILINE).split()
        masked = [token for token in tokens if "→" in token]
        assert f": {len(tokens)} tokens, {len(masked)} masked" in head
        assert tuple(token.partition("→")[2][:-1] if "→" in token else token for token in tokens) in texts
    assert show(capsys, corpus, 3, output_dir=folder) == lines
    assert show(capsys, corpus, 3, output_dir=folder, random_seed=1) != lines


def test_files_of_the_original_can_be_shown(made, corpus, capsys, tmp_path):
    folder, _ = made
    for number, path in enumerate(folder.glob("*.tfrecord")):
        (tmp_path / f"{number}.tf_record").write_bytes(path.read_bytes())
    lines = show(capsys, corpus, 1, output_file=tmp_path / "*.tf_record")
    assert any(line.startswith("an unknown number of instances in ") for line in lines)


def test_rejects_instances_that_cannot_be_shown(made, corpus, tmp_path):
    other = write_vocabulary(tmp_path / "other.txt", [*VOCABULARY, "more"])
    with pytest.raises(ValueError, match="made for another tokenizer: the vocabulary's SHA-256 is"):
        run(vocab_file=other, output_dir=made[0], show=1)
    with pytest.raises(FileNotFoundError, match="there are no files of instances in"):
        run(vocab_file=corpus["vocab_file"], output_dir=tmp_path, show=1)


@pytest.mark.parametrize("output", [{"output_dir": "out"}, {"exact": True, "output_file": "out"}])
def test_documents_of_one_sentence_are_used_and_counted(tmp_path, monkeypatch, corpus, capsys, output):
    monkeypatch.chdir(tmp_path)
    run(**{**corpus, "input_file": write_file(tmp_path, "river stone\n\nnight\n\nlight walked\n")}, **output)
    report = capsys.readouterr().out
    assert "6 instances of 3 documents with 5 tokens" in report
    assert "3 documents have only one sentence, without a next one" in report


def test_invalid_inputs_are_refused(tmp_path, corpus):
    options = {**corpus, "output_dir": tmp_path / "out"}
    with pytest.raises(ValueError, match="no instances were made"):  # pairs in order need two sentences
        run(**{**options, "input_file": write_file(tmp_path, "night\n")}, next_sentence="sop")
    options["vocab_file"] = write_vocabulary(tmp_path / "vocab.txt", [each for each in VOCABULARY if each != "[MASK]"])
    with pytest.raises(ValueError, match=r"vocab.txt has no \[MASK\], which masked words need; add it"):
        run(**options)
