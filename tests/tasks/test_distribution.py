import functools
import json
import subprocess
import sys

import pytest
from absl import flags

from keras_bert.training import strategy
from keras_bert.training.cluster import Cluster
from tasks import distribution

TF_CONFIG = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})


@pytest.fixture
def parse(monkeypatch):
    """A function that parses a command line with new flags, and gives what the strategy would be made of."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    made = []
    monkeypatch.setattr(strategy, "make_strategy", lambda *arguments: made.append(arguments) or "a strategy")

    def parse(*arguments):
        values = flags.FlagValues()
        monkeypatch.setattr(flags, "FLAGS", values)
        for name in ("DEFINE", "DEFINE_integer", "DEFINE_list", "DEFINE_string", "register_multi_flags_validator"):
            monkeypatch.setattr(flags, name, functools.partial(getattr(flags, name), flag_values=values))
        distribution.define_distribution_flags()
        values(["program", *arguments])
        assert distribution.strategy_from_flags() == "a strategy"
        return made[-1]

    return parse


def test_flags_become_a_strategy(parse, monkeypatch):
    assert parse() == ("one_device", None, None, None)
    assert parse("--strategy=mirrored", "--num_logical_devices=2") == ("mirrored", 2, None, None)
    assert parse("--strategy=tpu", "--tpu=local") == ("tpu", None, None, "local")
    cluster = Cluster(("a:1", "b:1"), 1)
    workers = ("--strategy=multi_worker", "--workers=a:1, b:1", "--worker_index=1")
    assert parse(*workers) == ("multi_worker", None, cluster, None)
    monkeypatch.setenv("TF_CONFIG", TF_CONFIG)
    assert parse("--strategy=multi_worker") == ("multi_worker", None, cluster, None)
    assert parse(*workers) == ("multi_worker", None, cluster, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=parameter_server"], "refused: Keras 3 does not support parameter servers"),
        (["--strategy=keras.distribution"], "refused: on the TensorFlow backend keras.distribution does nothing"),
        (["--strategy=all"], "should be one of <one_device|mirrored|multi_worker|tpu>"),
        (["--num_logical_devices=2"], "--num_logical_devices belongs to --strategy=mirrored; the strategy is one_dev"),
        (["--strategy=mirrored", "--num_logical_devices=0"], "0 is not a positive integer"),
        (["--strategy=mirrored", "--workers=a:1,b:1", "--worker_index=0"], "--workers belongs to"),
        (["--strategy=mirrored", "--tpu=local"], "--tpu belongs to --strategy=tpu"),
        (["--strategy=tpu"], "needs --tpu: local"),
        (["--strategy=multi_worker"], "--workers=host:port,host:port and --worker_index=0, or TF_CONFIG"),
        (["--strategy=multi_worker", "--workers=a:1,b:1"], "--workers and --worker_index belong together"),
        (["--strategy=multi_worker", "--worker_index=0"], "--workers and --worker_index belong together"),
        (["--strategy=multi_worker", "--workers=a:1,b", "--worker_index=0"], "got 'b'"),
        (["--strategy=multi_worker", "--workers=a:1,b:1", "--worker_index=2"], "0 to 1 with 2 workers, got 2"),
    ],
)
def test_flags_that_do_not_fit_are_refused(parse, arguments, message):
    with pytest.raises(flags.Error) as error:
        parse(*arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (TF_CONFIG, ["--workers=a:1,b:1", "--worker_index=0"], "--workers and TF_CONFIG differ: worker 0 of a:1, b:1"),
        (TF_CONFIG, ["--workers=a:1,c:1", "--worker_index=1"], "differ"),
        ("{", [], "TF_CONFIG is not JSON"),
    ],
)
def test_a_tf_config_that_does_not_fit_is_refused(parse, monkeypatch, text, arguments, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(flags.Error) as error:
        parse("--strategy=multi_worker", *arguments)
    assert message in str(error.value)


def test_workers_are_not_trained_apart(parse, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", TF_CONFIG)
    with pytest.raises(flags.Error, match="--strategy=mirrored would train a model of its own on each"):
        parse("--strategy=mirrored")
    alone = json.dumps({"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}})
    for text in (alone, "anything", ""):
        monkeypatch.setenv("TF_CONFIG", text)
        assert parse("--strategy=mirrored") == ("mirrored", None, None, None)


def test_names_are_those_of_the_library():
    assert distribution.STRATEGIES == strategy.STRATEGIES
    assert set(distribution._REFUSED) == set(strategy.REFUSED_STRATEGIES)


def test_defining_flags_loads_neither_keras_nor_tensorflow():
    program = (
        "import sys; from tasks import distribution; distribution.define_distribution_flags();"
        "from absl import flags; flags.FLAGS(['program', '--strategy=mirrored', '--num_logical_devices=2']);"
        "sys.exit(any(name in sys.modules for name in ('keras', 'tensorflow', 'keras_bert')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
