"""The client that speaks the protocol of a server's address."""


def open_client(server, model, version=None, timeout_seconds=10.0):
    """A client for a server's address.

    Args:
        server: str, `grpc://host:port` or `http://host:port`.
        model, version, timeout_seconds: as for `ServingClient`.

    Returns:
        `ServingClient`.

    Raises:
        ValueError: if the address is malformed.
    """
    from keras_bert.io.addresses import split_address

    scheme, _, address = server.partition("://")
    if scheme not in ("grpc", "http") or split_address(address.removesuffix("/")) is None:
        raise ValueError(
            f"a server's address is grpc://host:port or http://host:port, such as grpc://localhost:8500 or "
            f"http://localhost:8501; got {server!r}"
        )
    # One protocol's packages need not wait for the other's.
    if scheme == "grpc":
        from tools.serving_clients.grpc_client import GrpcClient as Client
    else:
        from tools.serving_clients.rest_client import RestClient as Client
    return Client(address.removesuffix("/"), model, version, timeout_seconds)
