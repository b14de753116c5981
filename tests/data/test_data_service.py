"""A service with two workers on loopback: what its consumers get, and what is refused."""

import dataclasses
import socket
import time
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

EXAMPLES = 90
SERVERS = tf.data.experimental.service


@dataclasses.dataclass
class Service:
    """A dispatcher with workers in this process."""

    dispatcher: SERVERS.DispatchServer
    workers: list
    address: str


def start_service(workers):
    dispatcher = SERVERS.DispatchServer()
    config = SERVERS.WorkerConfig(dispatcher_address=dispatcher.target.removeprefix("grpc://"))
    return Service(dispatcher, [SERVERS.WorkerServer(config) for _ in range(workers)], dispatcher.target)


@pytest.fixture(scope="module")
def service():
    return start_service(workers=2)


@pytest.fixture(scope="module")
def examples():
    random = np.random.default_rng(0)
    lengths = random.integers(3, 30, EXAMPLES)
    ids = random.integers(1, 1000, lengths.sum()).astype("uint16")
    return TokenizedExamples(ids, lengths, lengths // 2, labels=np.arange(EXAMPLES))  # a label names its example


@pytest.fixture(scope="module")
def plan(examples):
    return BatchPlan(examples.lengths, batch_size=4, seed=7)


def labels_of(batches):
    return [tuple(labels.numpy().tolist()) for _, labels in batches]


def epochs_of(batches, plan, epochs):
    """Of each batch the epoch of the plan that has it."""
    known = {tuple(batch.numpy().tolist()): epoch for epoch in range(epochs) for batch in plan.epoch(epoch)}
    return [known[batch] for batch in batches]


def test_one_worker_gives_the_batches_of_the_plan_in_their_order(examples, plan):
    alone = start_service(workers=1)
    batches = list(service_batches(examples, plan, alone.address, "in order", epochs=2))
    local = list(training_batches(examples, plan).take(2 * plan.batches_per_epoch))
    assert labels_of(batches) == labels_of(local)
    for (inputs, _), (expected, _) in zip(batches, local, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(inputs[name], value)
            assert inputs[name].dtype == value.dtype


def test_two_consumers_of_two_workers_see_each_example_once_an_epoch(service, examples, plan):
    def consume(_):
        return labels_of(service_batches(examples, plan, service.address, "two consumers", epochs=3))

    with ThreadPoolExecutor(2) as threads:
        parts = list(threads.map(consume, range(2)))
    assert all(parts)
    batches = [*parts[0], *parts[1]]
    assert Counter(epochs_of(batches, plan, 3)) == dict.fromkeys(range(3), plan.batches_per_epoch)
    assert Counter(label for batch in batches for label in batch) == dict.fromkeys(range(EXAMPLES), 3)


def test_epochs_differ_in_order_and_hardly_mix(service, examples, plan):
    batches = []
    for batch in service_batches(examples, plan, service.address, "order", epochs=2):
        batches.append(tuple(batch[1].numpy().tolist()))
        time.sleep(0.02)  # as long as a short update: the workers keep step then
    size = plan.batches_per_epoch
    epochs = epochs_of(batches, plan, 2)
    first, second = ({batch for batch, of in zip(batches, epochs, strict=True) if of == epoch} for epoch in (0, 1))
    assert len(first) == len(second) == size
    assert not first & second
    assert sum(epochs[:size]) <= 8  # of those under way: prefetched by two workers, and being sent


def test_a_later_epoch_to_begin_with(service, examples, plan):
    batches = labels_of(service_batches(examples, plan, service.address, "later", first_epoch=2, epochs=1))
    assert set(epochs_of(batches, plan, 3)) == {2}


def test_the_batches_have_no_end_by_themselves(service, examples, plan):
    batches = labels_of(service_batches(examples, plan, service.address, "endless").take(4 * plan.batches_per_epoch))
    assert len(batches) == 4 * plan.batches_per_epoch


def test_windows_are_as_without_a_service(service):
    examples = TokenizedExamples(np.arange(1, 13), [3, 4, 5], [3, 4, 5], [2, 1], labels=np.array([5, 6]))
    plan = BatchPlan(examples.lengths, batch_size=2, bucket_step=None)
    ((inputs, labels),) = service_batches(examples, plan, service.address, "windows", epochs=1)
    assert labels.numpy().tolist() == [5, 6]
    assert inputs["window_text_ids"].numpy().tolist() == [0, 0, 1]
    assert inputs["token_ids"].shape == (3, 5)


def test_the_iterator_cannot_be_saved(service, examples, plan, tmp_path):
    iterator = iter(service_batches(examples, plan, service.address, "saved"))
    with pytest.raises(tf.errors.OpError):
        tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))


@pytest.mark.parametrize(
    "address",
    ["", "localhost:5050", "grpc://localhost", "grpc://:5050", "grpc://a b:1", "grpc://a:0", "grpc://a:65536"],
)
def test_a_malformed_address_is_refused(address):
    with pytest.raises(ValueError, match="grpc://host:port") as error:
        parse_service_address(address)
    assert repr(address) in str(error.value)


def test_an_address_is_host_and_port():
    assert parse_service_address("grpc://[::1]:5050") == ("::1", 5050)
    assert parse_service_address("grpc://10.0.0.1:65535") == ("10.0.0.1", 65535)


def test_a_port_where_nobody_listens_is_refused_at_once(examples, plan):
    (address,) = free_addresses(1)
    started = time.monotonic()
    with pytest.raises(ConnectionError, match=f"{address} does not answer"):
        service_batches(examples, plan, f"grpc://{address}", "nobody")
    assert time.monotonic() - started < 3


def test_a_port_that_says_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(data_service, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ConnectionError, match="does not answer"):
        check_service(f"grpc://127.0.0.1:{server.getsockname()[1]}")


def test_a_server_of_another_kind_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threads.submit(answer)
        with pytest.raises(ConnectionError, match=r"no tf\.data service"):
            check_service(f"grpc://127.0.0.1:{server.getsockname()[1]}")


def test_a_worker_of_the_service_is_not_its_dispatcher(service, examples, plan):
    with pytest.raises(ConnectionError, match=r"did not take the data.*dispatcher"):
        service_batches(examples, plan, f"grpc://{service.workers[0]._address}", "worker")


def test_a_job_needs_a_name(service, examples, plan):
    with pytest.raises(ValueError, match="job_name is empty"):
        service_batches(examples, plan, service.address, "")


def test_too_many_examples_are_refused_before_anything_is_sent(examples, plan, monkeypatch):
    # Larger ones abort the process inside gRPC.
    size = examples.lengths.sum() * 2 + EXAMPLES * (8 + 4 + 4 + 8) + EXAMPLES * 8 + plan.batches_per_epoch * 16
    monkeypatch.setattr(data_service, "_MOST_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"{size:,} bytes.*only {size - 1:,}"):
        service_batches(examples, plan, "grpc://localhost:1", "large")
    monkeypatch.setattr(data_service, "_MOST_BYTES", size)
    with pytest.raises(ConnectionError):
        service_batches(examples, plan, "grpc://localhost:1", "large")
