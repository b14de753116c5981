import socket
import time
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data import data_service
from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.data_service import check_service, parse_service_address, service_batches
from keras_bert.data.tokenized_examples import TokenizedExamples
from tests.addresses import free_addresses

NUM_EXAMPLES = 90
SERVERS = tf.data.experimental.service


def start_service(num_workers):
    """Returns the address, and the servers, which have to be kept alive."""
    dispatcher = SERVERS.DispatchServer()
    config = SERVERS.WorkerConfig(dispatcher_address=dispatcher.target.removeprefix("grpc://"))
    workers = [SERVERS.WorkerServer(config) for _ in range(num_workers)]
    return types.SimpleNamespace(dispatcher=dispatcher, workers=workers, address=dispatcher.target)


@pytest.fixture(scope="module")
def service():
    return start_service(num_workers=2)


@pytest.fixture(scope="module")
def examples():
    random = np.random.default_rng(0)
    lengths = random.integers(3, 30, NUM_EXAMPLES)
    ids = random.integers(1, 1000, lengths.sum()).astype("uint16")
    # Each label is the index of its example.
    return TokenizedExamples(ids, lengths, lengths // 2, labels=np.arange(NUM_EXAMPLES))


@pytest.fixture(scope="module")
def plan(examples):
    return BatchPlan(examples.lengths, batch_size=4, seed=7)


def labels_of(batches):
    return [tuple(labels.numpy().tolist()) for _, labels in batches]


def epochs_of(batches, plan, num_epochs):
    """Returns for each batch the epoch of the plan that contains it."""
    known = {tuple(batch.numpy().tolist()): epoch for epoch in range(num_epochs) for batch in plan.epoch(epoch)}
    return [known[batch] for batch in batches]


def test_one_worker_yields_the_batches_of_the_plan_in_order(examples, plan):
    single = start_service(num_workers=1)
    batches = list(service_batches(examples, plan, single.address, "in order", epochs=2))
    local = list(training_batches(examples, plan).take(2 * plan.batches_per_epoch))
    assert labels_of(batches) == labels_of(local)
    for (inputs, _), (expected, _) in zip(batches, local, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(inputs[name], value)
            assert inputs[name].dtype == value.dtype


def test_two_clients_of_two_workers_see_each_example_once_per_epoch(service, examples, plan):
    def consume(_):
        return labels_of(service_batches(examples, plan, service.address, "two clients", epochs=3))

    with ThreadPoolExecutor(2) as threads:
        parts = list(threads.map(consume, range(2)))
    assert all(parts)
    batches = [*parts[0], *parts[1]]
    assert Counter(epochs_of(batches, plan, 3)) == dict.fromkeys(range(3), plan.batches_per_epoch)
    assert Counter(label for batch in batches for label in batch) == dict.fromkeys(range(NUM_EXAMPLES), 3)


def test_epochs_differ_in_order_and_hardly_mix(service, examples, plan):
    batches = []
    for _, labels in service_batches(examples, plan, service.address, "order", epochs=2):
        batches.append(tuple(labels.numpy().tolist()))
        time.sleep(0.02)  # the duration of a short training step, with which the workers keep pace
    size = plan.batches_per_epoch
    epochs = epochs_of(batches, plan, 2)
    assert Counter(epochs) == {0: size, 1: size}
    assert len(set(batches)) == 2 * size
    assert sum(epochs[:size]) <= 8  # those prefetched by two workers, and those being sent


def test_starts_at_a_later_epoch_and_repeats_without_end(service, examples, plan):
    batches = labels_of(service_batches(examples, plan, service.address, "later", first_epoch=2, epochs=1))
    assert set(epochs_of(batches, plan, 3)) == {2}
    size = 4 * plan.batches_per_epoch
    assert len(list(service_batches(examples, plan, service.address, "endless").take(size))) == size


def test_windows_are_batched_as_without_a_service(service):
    ids, lengths = np.arange(1, 13), [3, 4, 5]
    examples = TokenizedExamples(ids, lengths, lengths, labels=np.array([5, 6]), rows_per_example=[2, 1])
    plan = BatchPlan(examples.lengths, batch_size=2, bucket_step=None)
    ((inputs, labels),) = service_batches(examples, plan, service.address, "windows", epochs=1)
    assert labels.numpy().tolist() == [5, 6]
    assert inputs["window_text_ids"].numpy().tolist() == [0, 0, 1]
    assert inputs["token_ids"].shape == (3, 5)


def test_the_iterator_cannot_be_saved(service, examples, plan, tmp_path):
    iterator = iter(service_batches(examples, plan, service.address, "saved"))
    with pytest.raises(tf.errors.OpError):
        tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))


@pytest.mark.parametrize("address", ["", "localhost:5050", "grpc://localhost", "grpc://a b:1", "grpc://a:0"])
def test_refuses_a_malformed_address(address):
    with pytest.raises(ValueError, match="grpc://host:port") as error:
        parse_service_address(address)
    assert repr(address) in str(error.value)


def test_refuses_a_port_where_nothing_listens_at_once(examples, plan):
    (address,) = free_addresses(1)
    started = time.monotonic()
    with pytest.raises(ConnectionError, match=f"{address} does not answer"):
        service_batches(examples, plan, f"grpc://{address}", "nobody")
    assert time.monotonic() - started < 3


def test_refuses_a_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(data_service, "_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ConnectionError, match="does not answer"):
        check_service(f"grpc://127.0.0.1:{server.getsockname()[1]}")


def test_refuses_a_server_of_another_protocol():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threads.submit(answer)
        with pytest.raises(ConnectionError, match=r"is not a tf\.data service"):
            check_service(f"grpc://127.0.0.1:{server.getsockname()[1]}")


def test_refuses_the_address_of_a_worker_and_an_empty_job_name(service, examples, plan):
    with pytest.raises(ConnectionError, match=r"refused the data.*dispatcher"):
        service_batches(examples, plan, f"grpc://{service.workers[0]._address}", "worker")
    with pytest.raises(ValueError, match="job_name is empty"):
        service_batches(examples, plan, service.address, "")


def test_refuses_too_many_examples_before_sending_them(examples, plan, monkeypatch):
    # Larger ones abort the process inside gRPC.
    size = examples.lengths.sum() * 2 + NUM_EXAMPLES * (8 + 4 + 4 + 8) + NUM_EXAMPLES * 8 + plan.batches_per_epoch * 16
    monkeypatch.setattr(data_service, "_MAX_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"{size:,} bytes.*at most {size - 1:,}"):
        service_batches(examples, plan, "grpc://localhost:1", "large")
    monkeypatch.setattr(data_service, "_MAX_BYTES", size)
    with pytest.raises(ConnectionError):
        service_batches(examples, plan, "grpc://localhost:1", "large")
