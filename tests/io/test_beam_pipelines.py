import os
import sys

import pytest

from keras_bert.io.beam_pipelines import check_absolute, load_beam, make_pipeline, run_pipeline


@pytest.fixture(scope="module")
def beam():
    try:
        return load_beam()
    except ImportError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def test_the_cause_of_a_failure_is_reported(beam):
    pipeline = make_pipeline("direct")
    # One worker fails in a generator.
    _ = pipeline | beam.Create([1, 0]) | beam.FlatMap(lambda number: (1 // number for _ in range(2)))
    with pytest.raises(RuntimeError, match=r"^the pipeline failed: integer division or modulo by zero$"):
        run_pipeline(pipeline)


@pytest.mark.parametrize(
    ("runner", "num_workers", "options", "message"),
    [
        ("local", 1, [], "runner must be one of direct, flink, spark, dataflow, got 'local'"),
        ("spark", 2, [], "num_workers applies to the runner direct only"),
        ("direct", 1, ["--direct_num_worker=2"], "Beam has no pipeline options --direct_num_worker=2"),
    ],
)
def test_invalid_arguments_are_refused(beam, runner, num_workers, options, message):
    with pytest.raises(ValueError, match=message):
        make_pipeline(runner, num_workers, options)


def test_options_are_those_of_the_pipeline(beam):
    pipeline = make_pipeline("direct", 3, ["--job_name=labels"])
    expected = {"direct_num_workers": 3, "direct_running_mode": "multi_processing", "job_name": "labels"}
    assert expected.items() <= pipeline.options.get_all_options().items()


def test_relative_paths_are_refused():
    check_absolute(["/data/in.csv", "gs://bucket/in.csv"])
    with pytest.raises(ValueError, match=r"^data/in\.csv is a relative path"):
        check_absolute(["/data/in.csv", "data/in.csv"])


def test_missing_beam_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install 'keras-bert-zoo\[beam\]'"):
        make_pipeline("direct")
