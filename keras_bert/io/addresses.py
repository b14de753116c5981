"""Addresses of gRPC servers, as TensorFlow's workers and tf.data's services are, and whether one answers there."""

import re
import socket

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?):([0-9]{1,5})")
# A server of gRPC speaks HTTP/2: to this greeting it sends a frame of settings, at once, unless it is frozen.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_HEADER_SIZE, _HTTP2_SETTINGS = 9, 4


def split_address(address):
    """Takes an address apart.

    Args:
        address: str, host:port; an IPv6 address stands in brackets.

    Returns:
        (str, int), the host, without brackets, and the port; or None, if the address is malformed.

    Example:

    >>> split_address("[::1]:2222")
    ('::1', 2222)
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 1 <= int(parts[2]) <= 65535:
        return None
    return parts[1].strip("[]"), int(parts[2])


def speaks_grpc(host, port, timeout_seconds):
    """Asks a server whether it is one of gRPC.

    Args:
        host: str.
        port: int.
        timeout_seconds: float. How long to wait for the connection, and then for the answer.

    Returns:
        bool: whether what answers speaks HTTP/2, as gRPC does.

    Raises:
        OSError: if nothing answers.
    """
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.sendall(_HTTP2_GREETING)
        header = connection.recv(_HTTP2_HEADER_SIZE)
    return len(header) == _HTTP2_HEADER_SIZE and header[3] == _HTTP2_SETTINGS
