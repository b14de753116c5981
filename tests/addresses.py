"""Free addresses on this machine, for programs that listen."""

import contextlib
import socket


def free_addresses(count):
    """Returns `count` different strings `host:port` on which nothing listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
