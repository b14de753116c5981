import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import serialize_records
from keras_bert.pretraining.shard_files import describe_vocabulary, instance_files
from keras_bert.pretraining.shards import plan_shards
from keras_bert.pretraining.streaming import COUNT_NAMES, ShardJob, ShardMaker, find_missing_shards, make_shards
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, contents, features, records, sidecars, tokenizer, write_corpus

ROOT = Path(__file__).parents[2]
SHARD_BYTES = 4000
SETTINGS = InstanceSettings(sequence_length=24, max_predictions=4, seed=7)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Paths of files, and their plan."""
    paths = write_corpus(tmp_path_factory.mktemp("streaming") / "corpus", documents=40)
    return paths, plan_shards(paths, SHARD_BYTES)


def job_for(folder, plan, **changes):
    arguments = {"tokenizer": tokenizer().get_config(), "settings": SETTINGS, "num_copies": 2, **changes}
    return ShardJob(folder=str(folder), num_shards=len(plan), **arguments)


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """A folder with all shards, made by this process."""
    folder = tmp_path_factory.mktemp("made")
    plan = corpus[1]
    assert [shard for shard, _ in make_shards(job_for(folder, plan), plan)] == plan
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder."""
    for name, content in contents(made).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def finish(folder, plan, num_workers=1, **changes):
    """Makes the missing shards; returns their numbers."""
    job = job_for(folder, plan, **changes)
    missing, _ = find_missing_shards(job, plan)
    return [shard.number for shard, _ in make_shards(job, missing, num_workers)]


def test_sidecars_describe_the_shards(made, corpus):
    paths, plan = corpus
    num_files = 2 * len(plan)
    names = [f"pretraining-{number:05d}-of-{num_files:05d}.tfrecord" for number in range(num_files)]
    assert num_files > 8
    assert sorted(contents(made)) == sorted(names + [f"{name}.json" for name in names])
    found = sidecars(made)
    whole = [tokenize_documents(Path(path).read_text().split("\n"), tokenizer().tokenize) for path in paths]
    for name, copy in itertools.product(COUNT_NAMES, range(2)):
        expected = sum(each.counts(1)[name] for each in whole)
        assert sum(each[name] for each in found if each["copy"] == copy) == expected
    assert [each["instances"] for each in found] == [len(records(path)) for path in instance_files(made)]
    assert [each["bytes"] for each in found] == [os.path.getsize(path) for path in instance_files(made)]
    common = {"num_copies": 2, "record_format": "bert", "mode": "streaming", "compression": "none"}
    common |= {"num_shards": len(plan), **SETTINGS.to_dict(), **describe_vocabulary(tokenizer())}
    for each, (copy, shard) in zip(found, itertools.product(range(2), plan), strict=True):
        ranges = [list(byte_range) for byte_range in shard.ranges]
        assert {**common, "copy": copy, "shard": shard.number, "text": ranges}.items() <= each.items()


def test_each_copy_has_the_instances_of_the_maker(made, corpus):
    job = job_for(made, corpus[1])
    maker = InstanceMaker(tokenizer(), job.settings)
    shard = corpus[1][2]
    documents = maker.read(shard)
    for copy, path in enumerate(job.paths(shard)):
        rows = maker.choose(documents, shard.number, copy)
        assert records(path) == serialize_records(maker.make(documents.token_ids, rows))


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
    paths = [tmp_path / "text.txt", tmp_path / "white_space.txt"]
    paths[0].write_text("river\nstone\n\n")
    paths[1].write_text("\n \n\n\n\n\n\n\n\n\n\n\n")
    plan = plan_shards(list(map(str, paths)), 12)
    out = tmp_path / "out"
    assert finish(out, plan) == [0, 1]
    assert [each["instances"] > 0 for each in sidecars(out)] == [True, False] * 2
    assert records(instance_files(out)[1]) == []
    assert finish(out, plan) == []


@pytest.mark.parametrize("lost", [[".tfrecord"], [".tfrecord.json"], [".tfrecord", ".tfrecord.json"]])
def test_lost_files_are_made_again(copied, made, corpus, lost):
    for suffix in lost:
        next(copied.glob(f"*-00003-of-*{suffix}")).unlink()
    (copied / ".pretraining-00003-of-00009.tfrecord.json.unfinished-5").write_text("{")
    assert finish(copied, corpus[1]) == [3]
    assert contents(copied) == contents(made)


def test_truncated_files_are_made_again(copied, made, corpus, warnings):
    path = next(copied.glob("*-00003-of-*.tfrecord"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert finish(copied, corpus[1]) == [3]
    assert contents(copied) == contents(made)
    assert warnings == [f"{path} has {len(whole) - 100} bytes instead of {len(whole)} and is made again"]


def test_finished_shards_are_counted_and_not_made_again(copied, corpus):
    job, plan = job_for(copied, corpus[1]), corpus[1]
    missing, finished = find_missing_shards(job, plan)
    assert missing == list(make_shards(job, missing, num_workers=2)) == []
    found = sidecars(copied)
    for first, second, counts in zip(found[: len(plan)], found[len(plan) :], finished, strict=True):
        assert counts.pop("instances") == first["instances"] + second["instances"]
        assert counts == {name: first[name] for name in COUNT_NAMES}


def test_an_error_in_a_shard_keeps_the_others(tmp_path, corpus):
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


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"settings": InstanceSettings(sequence_length=32, max_predictions=4, seed=7, masked_lm_prob=0.2)},
            "masked_lm_prob was 0.15 and is 0.2; sequence_length was 24 and is 32",
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
    next(copied.glob("*-00003-of-*.tfrecord")).unlink()  # its sidecar is checked all the same
    before = contents(copied)
    with pytest.raises(FileExistsError, match=f"was made with other settings: .*{message}.*another folder"):
        finish(copied, corpus[1], **changes)
    assert contents(copied) == before


def test_another_corpus_is_refused(copied, corpus, tmp_path_factory):
    paths, plan = corpus
    other = tmp_path_factory.mktemp("other") / "1.txt"
    other.write_bytes(Path(paths[1]).read_bytes())
    with pytest.raises(FileExistsError, match=rf"text was .*{paths[1]}.* and is .*{other}"):
        finish(copied, plan_shards([paths[0], str(other)], SHARD_BYTES))
    with pytest.raises(FileExistsError, match=f"belongs to another run: this one has {len(plan) - 1} shards"):
        finish(copied, plan[:-1])
    with pytest.raises(FileExistsError, match=f"belongs to another run: this one has {len(plan)} shards in 3 copies"):
        finish(copied, plan, num_copies=3)


def test_an_output_that_is_a_file_is_refused(tmp_path, corpus):
    (tmp_path / "out").write_text("precious")
    with pytest.raises(NotADirectoryError, match="out is a file; give a folder for the files of instances"):
        finish(tmp_path / "out", corpus[1])
    assert (tmp_path / "out").read_text() == "precious"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_copies": 0}, "num_copies must be at least 1, got 0"),
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


@pytest.mark.slow
def test_two_processes_make_the_same_files(tmp_path, made, corpus):
    paths, plan = corpus
    assert sorted(finish(tmp_path / "out", plan, num_workers=2)) == [shard.number for shard in plan]
    assert contents(tmp_path / "out") == contents(made)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"river\n\xff\n")
    with pytest.raises(ValueError, match=r"bad\.txt is not UTF-8: byte 6 "):
        finish(tmp_path / "bad", plan_shards([*paths, str(bad)], SHARD_BYTES), num_workers=2)
    assert not [name for name in contents(tmp_path / "bad") if name.startswith(".")]


@pytest.mark.slow
def test_finished_shards_are_kept_if_a_process_is_killed(tmp_path, made, corpus):
    plan = corpus[1] * 40  # repeated, so that there is time to kill a process
    steps = make_shards(job_for(tmp_path, corpus[1]), plan, num_workers=2)
    next(steps)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"was killed.*with fewer processes or smaller shards"):
        list(steps)
    assert multiprocessing.active_children() == []
    finish(tmp_path, corpus[1])
    assert contents(tmp_path) == contents(made)


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

make("small.txt")  # TensorFlow allocates what it needs for itself
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
limit = int(status["VmSize"].split()[0]) * 1024 + more
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print("instances", make("large.txt"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("megabytes, fits", [(1, True), (20, False)])
def test_memory_is_bounded_by_the_size_of_a_shard(tmp_path, shared, megabytes, fits):
    text = (shared / "golden/pretraining_data/corpus_excerpt.txt").read_text()
    (tmp_path / "small.txt").write_text(text[:20_000])
    (tmp_path / "large.txt").write_text((text + "\n") * (20_000_000 // len(text)))
    vocabulary = shared / "data" / "vocab" / "bert-base-uncased-vocab.txt"
    more = (32 + 16 * 1) << 20  # the documented memory of a process for shards of one megabyte
    command = [sys.executable, "-c", _LIMITED_RUN, tmp_path, vocabulary, megabytes << 20, more]
    run = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("instances" in run.stdout) == fits, run.stderr[-2000:]
    assert not fits or int(run.stdout.split()[-1]) > 40_000
