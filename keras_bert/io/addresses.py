"""Addresses of gRPC servers, such as TensorFlow's workers and tf.data services."""

import errno
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterator

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?):([0-9]{1,5})")
# A gRPC server speaks HTTP/2: it answers this preface with a SETTINGS frame at once, unless it hangs.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_FRAME_HEADER_SIZE, _HTTP2_SETTINGS = 9, 4


def split_address(address: str) -> tuple[str, int] | None:
    """Splits `host:port`, where an IPv6 host is in brackets; returns None for a malformed address."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[2]) <= 65535:
        return None
    return match[1].strip("[]"), int(match[2])


def speaks_grpc(host: str, port: int, timeout_seconds: float) -> bool:
    """Returns whether the server at an address speaks HTTP/2, as gRPC does; raises OSError if nothing answers."""
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.sendall(_HTTP2_PREFACE)
        header = connection.recv(_HTTP2_FRAME_HEADER_SIZE)
    return len(header) == _HTTP2_FRAME_HEADER_SIZE and header[3] == _HTTP2_SETTINGS


def is_loopback(host: str) -> bool:
    """Returns whether a host, with or without brackets, is a name or address that exists on each machine for itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def restrict_to_loopback() -> None:
    """Makes the listening sockets of this process refuse connections from other machines, or raises OSError.

    For servers such as those of TensorFlow, which listen on all network interfaces and offer no choice. Linux only.
    """
    if not hasattr(socket, "SO_BINDTODEVICE"):
        raise OSError(errno.ENOTSUP, "only Linux can restrict a listening socket to an interface")
    for server in listening_sockets():
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


def listening_sockets() -> Iterator[socket.socket]:
    """Yields the listening internet sockets of this process, as duplicates that are closed after use. Linux only."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            duplicate = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # closed in the meantime
            continue
        with duplicate:
            is_internet = duplicate.family in (socket.AF_INET, socket.AF_INET6)
            if is_internet and duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield duplicate
