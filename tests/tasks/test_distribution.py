import json

import pytest

from keras_bert.training.cluster import Cluster
from tasks import distribution
from tasks.distribution import StrategySettings

TF_CONFIG = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})
SEPARATE = "would train a separate model on each of the 2"
WORKERS = {"strategy": "multi_worker", "workers": ("a:1", " b:1"), "worker_index": 1}


@pytest.fixture(autouse=True)
def no_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def test_settings_become_a_strategy(monkeypatch):
    monkeypatch.setattr(distribution, "make_strategy", lambda *arguments, job_key: (*arguments, job_key))
    cluster = Cluster(("a:1", "b:1"), 1)
    assert StrategySettings().make() == ("one_device", None, None, None, "")
    mirrored = StrategySettings(strategy="mirrored", num_logical_devices=2)
    assert mirrored.make() == ("mirrored", 2, None, None, "")
    assert StrategySettings(strategy="tpu", tpu="local").make() == ("tpu", None, None, "local", "")
    assert StrategySettings(**WORKERS, job_key="k").make() == ("multi_worker", None, cluster, None, "k")
    monkeypatch.setenv("TF_CONFIG", TF_CONFIG)
    for settings in ({"strategy": "multi_worker"}, WORKERS):
        assert StrategySettings(**settings).make() == ("multi_worker", None, cluster, None, "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "parameter_server"}, "refused: Keras 3 does not support parameter servers"),
        ({"strategy": "keras.distribution"}, "is refused: keras.distribution does nothing on the TensorFlow backend"),
        ({"strategy": "all"}, "strategy must be one of one_device, mirrored, multi_worker, tpu; got 'all'"),
        ({"num_logical_devices": 2}, "num_logical_devices belongs to --strategy=mirrored; the strategy is one_device"),
        ({**WORKERS, "strategy": "mirrored"}, "workers belongs to"),
        ({"strategy": "tpu"}, "needs --tpu: local"),
        ({"strategy": "multi_worker"}, "--workers=host:port,host:port and --worker_index=0, or TF_CONFIG"),
        ({"strategy": "multi_worker", "worker_index": 0}, "workers and --worker_index must be given together"),
        ({**WORKERS, "workers": ("a:1", "b")}, "got 'b'"),
        ({**WORKERS, "worker_index": 2}, "0 to 1 with 2 workers, got 2"),
        ({**WORKERS, "worker_index": 0, "TF_CONFIG": TF_CONFIG}, "workers and TF_CONFIG differ: worker 0 of a:1, b:1"),
        ({**WORKERS, "workers": ("a:1", "c:1"), "TF_CONFIG": TF_CONFIG}, "differ"),
        ({"strategy": "multi_worker", "TF_CONFIG": "{"}, "TF_CONFIG is not JSON"),
        ({"strategy": "mirrored", "TF_CONFIG": TF_CONFIG}, f"strategy=mirrored {SEPARATE}"),
    ],
)
def test_rejects_settings_that_do_not_fit(monkeypatch, settings, message):
    settings = dict(settings)
    monkeypatch.setenv("TF_CONFIG", settings.pop("TF_CONFIG", ""))
    with pytest.raises(ValueError) as error:
        StrategySettings(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize("text", [json.dumps({"cluster": {"chief": ["a:1"]}, "task": {}}), "anything", ""])
def test_ignores_a_tf_config_without_other_workers(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    assert StrategySettings(strategy="mirrored").cluster() is None
