"""Shards do not depend on the number of processes or on interruptions, and runs are not mixed."""

import itertools
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from absl import logging

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import serialize_records
from keras_bert.pretraining.shard_files import describe_vocabulary, instance_files
from keras_bert.pretraining.shards import plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker, find_missing_shards, make_shards
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, contents, features, records, sidecars, tokenizer, write_corpus

ROOT = Path(__file__).parents[3]
SHARD_BYTES = 4000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Paths of files, and their plan."""
    paths = write_corpus(tmp_path_factory.mktemp("streaming") / "corpus", documents=40)
    return paths, plan_shards(paths, SHARD_BYTES)


def job_for(folder, plan, **changes):
    settings = InstanceSettings(sequence_length=24, max_predictions=4, seed=7)
    return ShardJob(
        **{
            "folder": str(folder),
            "num_shards": len(plan),
            "tokenizer": tokenizer().get_config(),
            "settings": settings,
            "num_copies": 2,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """A folder of all shards, made by this process."""
    folder = tmp_path_factory.mktemp("made")
    plan = corpus[1]
    counts = list(make_shards(job_for(folder, plan), plan))
    assert [shard for shard, _ in counts] == plan
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder."""
    for name, content in contents(made).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def finish(folder, plan, num_workers=1, **changes):
    job = job_for(folder, plan, **changes)
    missing, _ = find_missing_shards(job, plan)
    return [shard.number for shard, _ in make_shards(job, missing, num_workers)]


# What is written.


def test_only_instances_and_sidecars_are_written(made, corpus):
    number = 2 * len(corpus[1])
    assert number > 8
    names = [f"pretraining-{file:05d}-of-{number:05d}.tfrecord" for file in range(number)]
    assert sorted(contents(made)) == sorted(names + [f"{name}.json" for name in names])
    assert [Path(path).name for path in instance_files(made)] == names


def test_sidecars_describe_the_shards(made, corpus):
    paths, plan = corpus
    whole = [tokenize_documents(Path(path).read_text().split("\n"), tokenizer().tokenize) for path in paths]
    said = sidecars(made)
    for name in ("documents", "one_sentence_documents", "tokens", "unknown_tokens"):
        for copy in range(2):
            found = sum(each[name] for each in said if each["copy"] == copy)
            assert found == sum(each.counts(1)[name] for each in whole)
            assert found > 0 or name == "unknown_tokens"
    assert [each["instances"] for each in said] == [len(records(path)) for path in instance_files(made)]
    assert [each["bytes"] for each in said] == [os.path.getsize(path) for path in instance_files(made)]
    for each, (copy, shard) in zip(said, itertools.product(range(2), plan), strict=True):
        assert (each["copy"], each["shard"]) == (copy, shard.number)
        assert each["text"] == [list(piece) for piece in shard.ranges]
        settings = {"sequence_length": 24, "max_predictions": 4, "seed": 7, "masking_rate": 0.15, "whole_words": False}
        expected = {
            **settings,
            **describe_vocabulary(tokenizer()),
            "num_copies": 2,
            "record_format": "bert",
            "mode": "streaming",
        }
        assert expected.items() <= each.items()


def test_each_copy_has_the_instances_of_the_maker(made, corpus):
    job = job_for(made, corpus[1])
    maker = InstanceMaker(tokenizer(), job.settings)
    shard = corpus[1][2]
    documents = maker.read(shard)
    for copy, path in enumerate(job.paths(shard)):
        rows = maker.choose(documents, shard.number, copy)
        assert records(path) == serialize_records(maker.make(documents.token_ids, rows))


def test_instances_depend_on_the_number_of_the_shard(corpus, tmp_path):
    plan = corpus[1]
    job = job_for(tmp_path, plan)
    shards = [plan[1], replace(plan[1], number=2)]
    for shard in shards:
        ShardMaker(job)(shard)
    first, second = (set(records(job.paths(shard)[0])) for shard in shards)
    assert len(first) > 40
    assert len(first & second) < 0.1 * len(first)


def test_gzip_and_the_other_format_contain_the_same(made, corpus, tmp_path):
    plan = corpus[1]
    job = job_for(tmp_path, plan, record_format="models", compression="gzip")
    ShardMaker(job)(plan[0])
    path = job.paths(plan[0])[0]
    found = [features(record) for record in records(path, "GZIP")]
    expected = [features(record) for record in records(made / Path(path).name)]
    other_names = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
    assert [{other_names.get(name, name): value for name, value in each.items()} for each in found] == expected
    assert os.path.getsize(path) < 0.5 * os.path.getsize(made / Path(path).name)


def test_a_shard_without_text_is_a_file_without_instances(tmp_path):
    paths = []
    for number, content in enumerate(["river\nstone\n\n", "\n \n\n\n\n\n\n\n\n\n\n\n"]):
        paths.append(str(tmp_path / f"{number}.txt"))
        Path(paths[-1]).write_text(content)
    plan = plan_shards(paths, 12)
    out = tmp_path / "out"
    assert finish(out, plan) == [0, 1]
    assert [each["instances"] > 0 for each in sidecars(out)] == [True, False] * 2
    assert records(instance_files(out)[1]) == []
    assert finish(out, plan) == []


# Interruptions.


@pytest.mark.parametrize("lost", [[".tfrecord"], [".tfrecord.json"], [".tfrecord", ".tfrecord.json"]])
def test_lost_files_are_made_again(copied, made, corpus, lost):
    for suffix in lost:
        next(copied.glob(f"*-00003-of-*{suffix}")).unlink()
    assert finish(copied, corpus[1]) == [3]
    assert contents(copied) == contents(made)


def test_truncated_files_are_made_again(copied, made, corpus, monkeypatch):
    messages = []
    monkeypatch.setattr(logging, "warning", lambda message, *arguments: messages.append(message % arguments))
    path = next(copied.glob("*-00003-of-*.tfrecord"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert finish(copied, corpus[1]) == [3]
    assert contents(copied) == contents(made)
    assert messages == [f"{path} has {len(whole) - 100} bytes instead of {len(whole)} and is made again"]


def test_an_output_that_is_a_file_is_refused(tmp_path, corpus):
    (tmp_path / "out").write_text("precious")
    with pytest.raises(NotADirectoryError, match="out is a file; give a folder for the files of instances"):
        finish(tmp_path / "out", corpus[1])
    assert (tmp_path / "out").read_text() == "precious"


def test_finished_shards_are_not_made_again(copied, made, corpus):
    job = job_for(copied, corpus[1])
    missing, finished = find_missing_shards(job, corpus[1])
    assert missing == []
    assert sum(counts["instances"] for counts in finished) == sum(each["instances"] for each in sidecars(made))
    names = "documents", "one_sentence_documents", "tokens", "unknown_tokens"
    said = [each for each in sidecars(made) if each["copy"] == 0]
    assert [[counts[name] for name in names] for counts in finished] == [
        [each[name] for name in names] for each in said
    ]
    assert finish(copied, corpus[1], num_workers=2) == []


def test_unfinished_files_are_removed(copied, made, corpus):
    path = next(copied.glob("*-00001-of-*.tfrecord"))
    path.with_name(f"{path.name}.json").unlink()
    path.rename(path.with_name(f".{path.name}.unfinished-1234"))
    path.with_name(f".{path.name}.json.unfinished-5").write_text("{")
    assert [number for number, _ in enumerate(corpus[1]) if str(path) in instance_files(copied)] == []
    assert finish(copied, corpus[1]) == [1]
    assert contents(copied) == contents(made)


@pytest.mark.parametrize("name", ["out/", "[a] *"])
def test_folder_names_may_contain_special_characters(tmp_path, made, corpus, name):
    folder = os.path.join(tmp_path, name)
    plan = corpus[1]
    list(make_shards(job_for(folder, plan), plan[:2]))
    (Path(folder) / ".pretraining-00002-of-00009.tfrecord.unfinished-1").touch()
    assert find_missing_shards(job_for(folder, plan), plan)[0] == plan[2:]
    expected = contents(made)
    paths = [path for shard in plan[:2] for path in job_for(folder, plan).paths(shard)]
    names = sorted(os.path.basename(path) + suffix for path in paths for suffix in ("", ".json"))
    assert contents(Path(folder)) == {name: expected[name] for name in names}
    with pytest.raises(FileExistsError, match="belongs to another run: this one has 3 shards in 2 copies"):
        find_missing_shards(job_for(folder, plan[:3]), plan[:3])


def test_an_error_in_a_shard_keeps_the_others(tmp_path, made, corpus):
    paths, plan = corpus
    bad = tmp_path / "1.txt"
    content = bytearray(Path(paths[1]).read_bytes())
    content[-9] = 0xFF
    bad.write_bytes(content)
    plan = plan_shards([paths[0], str(bad)], SHARD_BYTES)
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=rf"1\.txt is not UTF-8: byte {len(content) - 9} "):
        finish(out, plan)
    assert len(instance_files(out)) == 2 * (len(plan) - 1)
    assert not [name for name in contents(out) if name.startswith(".")]
    assert [shard.number for shard in find_missing_shards(job_for(out, plan), plan)[0]] == [len(plan) - 1]


# Folders of another run.


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"settings": InstanceSettings(sequence_length=24, max_predictions=4, seed=8)}, "seed was 7 and is 8"),
        (
            {"settings": InstanceSettings(sequence_length=32, max_predictions=4, seed=7, masking_rate=0.2)},
            "sequence_length was 24 and is 32; masking_rate was 0.15 and is 0.2",
        ),
        ({"record_format": "models"}, "record_format was 'bert' and is 'models'"),
        ({"compression": "gzip"}, "compression was 'none' and is 'gzip'"),
        (
            {"tokenizer": BertTokenizer([*VOCABULARY, "more"], lower_case=True).get_config()},
            r"vocabulary_sha256 was '\w{64}' and is '\w{64}'; vocab_size was 17 and is 18",
        ),
        (
            {"tokenizer": BertTokenizer(VOCABULARY, lower_case=False).get_config()},
            "lower_case was True and is False; strip_accents was True and is False",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_other_settings_are_refused(copied, corpus, changes, message):
    before = contents(copied)
    with pytest.raises(FileExistsError, match=f"was made with other settings: .*{message}.*another folder"):
        finish(copied, corpus[1], **changes)
    assert contents(copied) == before


def test_another_corpus_is_refused(copied, corpus, tmp_path_factory):
    paths, plan = corpus
    other = tmp_path_factory.mktemp("other") / "1.txt"
    other.write_bytes(Path(paths[1]).read_bytes())
    other_plan = plan_shards([paths[0], str(other)], SHARD_BYTES)
    assert len(other_plan) == len(plan)
    with pytest.raises(FileExistsError, match=rf"text was .*{paths[1]}.* and is .*{other}"):
        finish(copied, other_plan)
    with pytest.raises(FileExistsError, match=f"belongs to another run: this one has {len(plan) - 1} shards"):
        finish(copied, plan[:-1])
    with pytest.raises(FileExistsError, match=f"belongs to another run: this one has {len(plan)} shards in 3 copies"):
        finish(copied, plan, num_copies=3)


def test_a_sidecar_without_its_file_is_checked(copied, corpus):
    next(copied.glob("*-00003-of-*.tfrecord")).unlink()
    other = InstanceSettings(sequence_length=24, max_predictions=4, seed=8)
    with pytest.raises(FileExistsError, match="seed was 7 and is 8"):
        finish(copied, corpus[1], settings=other)


def test_an_invalid_sidecar_is_refused(copied, corpus):
    next(copied.glob("*-00003-of-*.json")).write_text("{")
    with pytest.raises(ValueError, match=r"is not JSON .*delete it and make its shard again"):
        finish(copied, corpus[1])


# Arguments.


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_copies": 0}, "copies must be at least 1, got 0"),
        ({"record_format": "tfm"}, "record_format must be one of bert, models, got 'tfm'"),
        ({"compression": "zip"}, "compression must be one of none, gzip, got 'zip'"),
    ],
)
def test_invalid_jobs_are_refused(tmp_path, corpus, changes, message):
    with pytest.raises(ValueError, match=message):
        job_for(tmp_path, corpus[1], **changes)


def test_errors_are_raised_before_processes_are_started(tmp_path, corpus, monkeypatch):
    plan = corpus[1]
    process = multiprocessing.context.ForkServerProcess
    monkeypatch.setattr(process, "start", lambda self: pytest.fail("a process starts"))
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        finish(tmp_path, plan, num_workers=0)
    without_mask = BertTokenizer([*VOCABULARY[:4], "river"], lower_case=True).get_config()
    with pytest.raises(ValueError, match=r"lacks \[MASK\]"):
        finish(tmp_path, plan, num_workers=2, tokenizer=without_mask)


# Processes.


@pytest.mark.slow
def test_two_processes_make_the_same_files(tmp_path, made, corpus):
    plan = corpus[1]
    assert sorted(finish(tmp_path, plan, num_workers=2)) == [shard.number for shard in plan]
    assert contents(tmp_path) == contents(made)


@pytest.mark.slow
def test_finished_shards_are_kept_if_a_process_is_killed(tmp_path, made, corpus):
    plan = corpus[1] * 40  # the same again and again, so that there is time
    steps = make_shards(job_for(tmp_path, corpus[1]), plan, num_workers=2)
    next(steps)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"was killed.*with fewer processes or smaller shards"):
        list(steps)
    assert multiprocessing.active_children() == []
    finish(tmp_path, corpus[1])
    assert contents(tmp_path) == contents(made)


@pytest.mark.slow
def test_an_error_in_a_process_is_raised(tmp_path, corpus):
    paths, _ = corpus
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"river\n\xff\n")
    plan = plan_shards([*paths, str(bad)], SHARD_BYTES)
    with pytest.raises(ValueError, match=r"bad\.txt is not UTF-8: byte 6 "):
        finish(tmp_path / "out", plan, num_workers=2)
    assert not [name for name in contents(tmp_path / "out") if name.startswith(".")]


# Memory.

# Documented memory of a process in addition to TensorFlow's; the address space is limited.
_MEGABYTES, _PER_MEGABYTE = 32, 16

_LIMITED_RUN = """
import resource, sys
from pathlib import Path
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.shards import plan_shards
from keras_bert.pretraining.streaming import ShardJob, make_shards
from keras_bert.text.tokenizer import BertTokenizer

folder, vocabulary, shard_bytes, more = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
tokenizer = BertTokenizer(vocabulary, lower_case=True).get_config()

def make(corpus):
    plan = plan_shards([str(folder / corpus)], shard_bytes)
    job = ShardJob(str(folder / "out" / corpus), len(plan), tokenizer, InstanceSettings(), num_copies=1)
    return sum(counts["instances"] for _, counts in make_shards(job, plan))

make("small.txt")  # so that TensorFlow has what it needs for itself
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
limit = int(status["VmSize"].split()[0]) * 1024 + more
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print("instances", make("novels.txt"))
"""


@pytest.fixture(scope="module")
def novels(shared, tmp_path_factory):
    """A folder with 20 MB of novels as prepared text, and a few kilobytes of it."""
    folder = tmp_path_factory.mktemp("novels")
    size = 0
    with (folder / "novels.txt").open("w") as file:
        for path in sorted((shared / "data" / "text" / "english_novels").glob("*.txt")):
            paragraphs = re.split(r"\n\s*\n", path.read_text(errors="replace"))
            for number, paragraph in enumerate(paragraphs):
                size += file.write(re.sub(r"(?<=[.!?]) ", "\n", " ".join(paragraph.split())) + "\n")
                if number % 40 == 0:
                    file.write("\n")
            if size > 20e6:
                break
    with (folder / "novels.txt").open() as file:
        (folder / "small.txt").write_text(file.read(20_000))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("megabytes, fits", [(1, True), (20, False)])
def test_memory_is_bounded_by_the_size_of_a_shard(novels, shared, megabytes, fits):
    vocabulary = shared / "data" / "vocab" / "bert-base-uncased-vocab.txt"
    more = (_MEGABYTES + _PER_MEGABYTE * 1) << 20  # what shards of one megabyte may need
    shutil.rmtree(novels / "out", ignore_errors=True)
    arguments = [_LIMITED_RUN, novels, vocabulary, megabytes << 20, more]
    run = subprocess.run(
        [sys.executable, "-c", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ("instances" in run.stdout) == fits, run.stderr[-2000:]
    if fits:
        assert int(run.stdout.split()[-1]) > 40_000
