import os
import socket
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_bert.io.addresses import is_loopback, restrict_to_loopback, speaks_grpc, split_address
from tests.addresses import free_addresses


def test_splits_an_address_into_host_and_port():
    parts = {"a:1": ("a", 1), "10.0.0.1:65535": ("10.0.0.1", 65535), "[::1]:2": ("::1", 2), "x.y-z_0:7": ("x.y-z_0", 7)}
    assert {address: split_address(address) for address in parts} == parts


@pytest.mark.parametrize("address", ["", "a", ":1", "a:", "a:0", "a:65536", "a:1:2", "::1:2", "a b:1", "-a:1", "a:1\n"])
def test_a_malformed_address_is_none(address):
    assert split_address(address) is None


def test_recognizes_loopback_hosts():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["10.0.0.1", "data", "[2001:db8::1]", "0.0.0.0", "localhost.example"]))


def test_recognizes_a_grpc_server_that_is_restricted_to_this_machine():
    server = tf.data.experimental.service.DispatchServer()
    restrict_to_loopback()
    assert speaks_grpc(*split_address(server.target.removeprefix("grpc://")), timeout_seconds=5)


def test_raises_an_error_if_nothing_answers():
    (address,) = free_addresses(1)
    with pytest.raises(OSError):
        speaks_grpc(*split_address(address), timeout_seconds=5)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        speaks_grpc("127.0.0.1", server.getsockname()[1], timeout_seconds=0.1)


# Runs in a network of its own, with a virtual cable to a second one, which stands for another machine.
NETWORK_PROGRAM = """
import socket, subprocess, sys
from keras_bert.io.addresses import restrict_to_loopback

def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)

server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
port = server.getsockname()[1]
connect = f"import socket; socket.create_connection(('10.9.0.1', {port}), 2)"
setup = "read && ip addr add 10.9.0.2/24 dev there && ip link set there up"
answers = "while read; do python3 -c \\"$0\\"; echo $?; done"
other = subprocess.Popen(["unshare", "-n", "bash", "-c", f"echo ready; {setup} && {answers}", connect], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
try:
    other.stdout.readline()
    ip("link", "add", "here", "type", "veth", "peer", "name", "there")
    ip("link", "set", "there", "netns", str(other.pid))
    ip("addr", "add", "10.9.0.1/24", "dev", "here")
    for interface in ("here", "lo"):
        ip("link", "set", interface, "up")
    other.stdin.write("\\n")
    for restrict in (lambda: None, restrict_to_loopback):
        restrict()
        other.stdin.write("\\n")
        other.stdin.flush()
        print("reached" if other.stdout.readline() == "0\\n" else "refused")
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), 2).close()
finally:
    other.kill()
"""


@pytest.mark.slow
def test_other_machines_cannot_connect_to_a_restricted_server():
    isolated = ["unshare", "--user", "--map-root-user", "--net"]
    options = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    can_isolate = subprocess.run([*isolated, "ip", "link", "add", "x", "type", "veth"], **options)
    if can_isolate.returncode:
        pytest.skip(f"no virtual networks here: {can_isolate.stderr.strip()}")
    options["env"] = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run([*isolated, sys.executable, "-c", NETWORK_PROGRAM], **options)
    assert result.stdout.split() == ["reached", "refused"], result.stderr
