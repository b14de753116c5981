import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keras_bert.io.beam_pipelines import RUNNERS, load_beam
from keras_bert.pretraining import beam as beam_module
from keras_bert.pretraining.beam import build_pipeline, make_shard, make_shards_with_beam
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.shards import Shard, plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker, find_missing_shards, make_shards
from tests.pretraining.corpora import contents, tokenizer, write_corpus, write_vocabulary
from tests.tools.program_flags import parse_flags
from tools import create_pretraining_data

SHARD_BYTES = 2000
# Beam's own job server takes the serialized pipeline that would go to Flink; its workers are threads of this process.
EMBEDDED = ["--job_endpoint=embed", "--environment_type=LOOPBACK"]


@pytest.fixture(scope="module")
def apache_beam():
    try:
        return load_beam()
    except ImportError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def plan(tmp_path):
    return plan_shards(write_corpus(tmp_path / "corpus"), SHARD_BYTES)


def job_for(folder, plan):
    settings = InstanceSettings(sequence_length=24, max_predictions=4)
    return ShardJob(str(folder), len(plan), tokenizer().get_config(), settings, num_copies=2)


@pytest.fixture
def job(tmp_path, plan):
    return job_for(tmp_path / "beam", plan)


@pytest.fixture
def expected(tmp_path, plan):
    """The files of the streaming mode, byte for byte."""
    folder = tmp_path / "streaming"
    assert len(list(make_shards(job_for(folder, plan), plan))) == len(plan) > 3
    return contents(folder)


def test_the_same_files_as_streaming(apache_beam, job, plan, expected):
    counts = make_shards_with_beam(job, plan)
    assert contents(Path(job.folder)) == expected
    assert (counts, []) == find_missing_shards(job, plan)[::-1]
    assert all(each["instances"] for each in counts)


@pytest.mark.slow
def test_the_same_files_with_several_workers(apache_beam, job, plan, expected, monkeypatch):
    # Workers are processes of their own: in this one no shard is made.
    monkeypatch.setattr(ShardMaker, "__call__", lambda maker, shard: pytest.fail("made in the process of the pipeline"))
    make_shards_with_beam(job, plan, num_workers=2)
    assert contents(Path(job.folder)) == expected


@pytest.mark.slow
def test_the_same_files_from_a_portable_runner(apache_beam, job, plan, expected):
    make_shards_with_beam(job, plan, "flink", options=EMBEDDED)
    assert contents(Path(job.folder)) == expected


def test_only_missing_shards_are_made_again(apache_beam, job, plan, expected):
    make_shards_with_beam(job, plan)
    assert make_shards_with_beam(job, []) == []
    folder = Path(job.folder)
    os.remove(job.paths(plan[1])[0] + ".json")
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    make_shards_with_beam(job, find_missing_shards(job, plan)[0])
    assert contents(folder) == expected
    made = {path.name for path in folder.iterdir() if path.stat().st_mtime_ns != times.get(path.name)}
    assert made == {Path(path).name + suffix for path in job.paths(plan[1]) for suffix in ("", ".json")}


def test_a_shard_made_twice_at_once_is_whole(apache_beam, tmp_path, job, plan, expected):
    """Imitates a runner that replaces a slow worker as lost: both workers write to the same folder."""
    os.mkdir(job.folder)
    makers = [ShardMaker(job), ShardMaker(job)]
    with ThreadPoolExecutor(2) as threads:
        for shard in plan:
            one, other = threads.map(lambda maker, shard=shard: maker(shard), makers)
            assert one == other
    assert contents(Path(job.folder)) == expected


def test_a_worker_makes_shards_of_several_jobs(apache_beam, tmp_path, plan, expected):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, shards in ((one, plan[:2]), (two, plan), (one, plan[2:])):
        folder.mkdir(exist_ok=True)
        for shard in shards:
            make_shard(shard, job_for(folder, plan))
    assert contents(one) == contents(two) == expected


def test_counters_report_the_progress(apache_beam, job, plan):
    os.mkdir(job.folder)
    with apache_beam.Pipeline(RUNNERS["direct"]) as pipeline:
        build_pipeline(pipeline, job, plan[:2])
    counters = pipeline.result.metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    _, finished = find_missing_shards(job, plan)
    assert len(finished) == 2
    for name in ("instances", "documents"):
        assert found[name] == sum(counts[name] for counts in finished) > 0


def test_an_error_of_a_worker_is_reported(apache_beam, tmp_path, job, plan):
    path, start, _ = plan[1].ranges[0]
    with open(path, "r+b") as file:
        file.seek(start + 5)
        file.write(b"\xff")
    with pytest.raises(RuntimeError, match=rf"^the pipeline failed: {path} is not UTF-8: byte {start + 5} [^\n]*$"):
        make_shards_with_beam(job, plan)
    assert not [name for name in os.listdir(job.folder) if "unfinished" in name]


def test_the_program_passes_options_to_beam(apache_beam, tmp_path, expected, plan):
    corpus = sorted({path for shard in plan for path, _, _ in shard.ranges})
    options = {"input_file": ",".join(corpus), "vocab_file": write_vocabulary(tmp_path / "vocab.txt")}
    options |= {"max_seq_length": 24, "max_predictions_per_seq": 4, "dupe_factor": 2, "runner": "direct"}
    options |= {"output_dir": tmp_path / "made", "shard_megabytes": SHARD_BYTES / 1e6}
    values = parse_flags(create_pretraining_data, **options)
    with pytest.raises(ValueError, match="Beam has no pipeline options --flink_mastr=localhost:8081"):
        create_pretraining_data.run(values, ["--flink_mastr=localhost:8081"])
    create_pretraining_data.run(values, ["--job_name=shards"])
    assert contents(tmp_path / "made") == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(runner="local"), "runner must be one of direct, flink, spark, dataflow, got 'local'"),
        (dict(num_workers=0), "num_workers must be at least 1, got 0"),
        (dict(runner="spark", num_workers=2), "num_workers applies to the runner direct only"),
        (dict(options=["--direct_num_worker=2"]), "Beam has no pipeline options --direct_num_worker=2"),
        (dict(options=["input.txt"]), "Beam has no pipeline options input.txt"),
    ],
)
def test_invalid_arguments_are_refused(apache_beam, job, plan, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_shards_with_beam(job, plan, **arguments)
    assert not os.path.exists(job.folder)


def test_relative_paths_are_refused_on_a_cluster(apache_beam, job, plan, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="beam is a relative path"):
        make_shards_with_beam(job_for("beam", plan), plan, "flink", options=EMBEDDED)
    shards = [Shard(0, (("corpus/0.txt", 0, 10),))]
    with pytest.raises(ValueError, match=r"corpus/0\.txt is a relative path"):
        make_shards_with_beam(job, shards, "flink", options=EMBEDDED)
    assert not os.path.exists(job.folder)


def test_shards_missing_after_the_pipeline_are_an_error(apache_beam, job, plan, monkeypatch):
    monkeypatch.setattr(beam_module, "make_shard", lambda shard, job: {})
    with pytest.raises(RuntimeError, match=f"{len(plan)} of {len(plan)} shards are missing in"):
        make_shards_with_beam(job, plan)


def test_missing_beam_is_reported(job, plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install 'keras-bert-zoo\[beam\]'.*pip install -e '\.\[beam\]'"):
        make_shards_with_beam(job, plan)
    assert not os.path.exists(job.folder)
