"""Addresses of gRPC servers, and who answers there; what users of it say is tested with them."""

import socket

import pytest
import tensorflow as tf

from keras_bert.io.addresses import speaks_grpc, split_address
from tests.addresses import free_addresses


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("a:1", ("a", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[::1]:22", ("::1", 22)),
        ("x.y-z_0:7", ("x.y-z_0", 7)),
    ],
)
def test_an_address_is_host_and_port(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "a", ":1", "a:", "a:0", "a:65536", "a:1:2", "::1:2", "a b:1", "-a:1", "a:1\n"])
def test_a_malformed_address_is_none(address):
    assert split_address(address) is None


def test_a_server_of_tensorflow_is_known_from_others():
    server = tf.data.experimental.service.DispatchServer()
    assert speaks_grpc(*split_address(server.target.removeprefix("grpc://")), timeout_seconds=5)


def test_nobody_is_an_error():
    (address,) = free_addresses(1)
    with pytest.raises(OSError):
        speaks_grpc(*split_address(address), timeout_seconds=5)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        speaks_grpc("127.0.0.1", server.getsockname()[1], timeout_seconds=0.1)
