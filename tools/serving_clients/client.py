"""What the clients of both protocols have in common: one model of a server, asked by the names of its signatures."""

from typing import NamedTuple

from tools.serving_clients.signature import fit_inputs

DEFAULT_SIGNATURE = "serving_default"


class ServingError(Exception):
    """A server is not there, does not have the model, refuses a request, or takes too long.

    Args:
        message: str, what a server says among it, all of which becomes one line.
    """

    def __init__(self, message):
        super().__init__(" ".join(message.split()))


class Version(NamedTuple):
    """A version of a model on a server.

    Attributes:
        number: int.
        state: str: "START", "LOADING", "AVAILABLE", "UNLOADING" or "END".
        message: str. What went wrong, or "".
    """

    number: int
    state: str
    message: str


class ServingClient:
    """A model on a server of TensorFlow Serving; a subclass speaks one of the server's protocols.

    Args:
        address: str, host:port.
        model: str. The model's name on the server.
        version: int, or str for a label such as "stable", or None for the newest one.
        timeout_seconds: float. How long to wait for each answer.
    """

    def __init__(self, address, model, version=None, timeout_seconds=10.0):
        self.address = address
        self.model = model
        self.version = version
        self.timeout_seconds = timeout_seconds
        self._signatures = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Lets go of the connection."""

    def versions(self):
        """The versions of the model that the server knows, or the one that this client asks.

        Returns:
            list of `Version`.

        Raises:
            ServingError: if the server or the model is not there.
        """
        raise NotImplementedError

    def signatures(self):
        """What the model can be asked.

        Returns:
            dict of name to `Signature`.

        Raises:
            ServingError: if the server or the model is not there.
        """
        if self._signatures is None:
            # The one that initializes the model is not for requests.
            received = self._read_signatures()
            self._signatures = {name: received[name] for name in sorted(received) if not name.startswith("__")}
        return self._signatures

    def signature(self, name=DEFAULT_SIGNATURE):
        """One of the signatures.

        Args:
            name: str.

        Returns:
            `Signature`.

        Raises:
            ServingError: if the server or the model is not there.
            ValueError: if the model has no such signature.
        """
        if name not in self.signatures():
            raise ValueError(f"{self.model} has no signature {name!r}; it has {', '.join(self.signatures())}")
        return self.signatures()[name]

    def predict(self, inputs, signature=DEFAULT_SIGNATURE):
        """Asks the model.

        Args:
            inputs: dict of name to list, a row each, as for `tools.serving_clients.signature.fit_inputs`.
            signature: str.

        Returns:
            dict of output name to nested list of str and numbers.

        Raises:
            ServingError: if the server or the model is not there, or does not answer in time, or refuses the request.
            ValueError: if the model has no such signature, or the inputs are not what it takes.
        """
        specs = self.signature(signature)
        return self._ask(fit_inputs(inputs, specs.inputs), signature)

    def _read_signatures(self):
        raise NotImplementedError

    def _ask(self, fitted, signature):
        raise NotImplementedError

    def _of_model(self):
        """The model, as messages name it."""
        return self.model if self.version is None else f"{self.model} (version {self.version})"
