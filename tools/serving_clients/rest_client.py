"""A client of TensorFlow Serving's REST API, made of Python's own library."""

import base64
import contextlib
import http.client
import json
import urllib.parse

from tools.serving_clients.client import ServingClient, ServingError, Version
from tools.serving_clients.signature import Signature, Tensor

_LONGEST_QUOTATION = 500


class RestClient(ServingClient):
    """Asks a model by REST; see `ServingClient`."""

    def versions(self):
        """The versions of the model; see `ServingClient`."""
        answer = self._call("GET", "")
        with self._expecting("the versions of the model", answer):
            return [
                Version(int(each["version"]), each["state"], each.get("status", {}).get("error_message", ""))
                for each in answer["model_version_status"]
            ]

    def _read_signatures(self):
        answer = self._call("GET", "/metadata")
        with self._expecting("the signatures of the model", answer):
            return {
                name: Signature(_tensors(signature.get("inputs", {})), _tensors(signature.get("outputs", {})))
                for name, signature in answer["metadata"]["signature_def"]["signature_def"].items()
            }

    def _ask(self, fitted, signature):
        for name, values in fitted.items():
            if values.shape and 0 in values.shape[:-1]:
                raise ValueError(f"JSON cannot tell the shape {values.shape} of {name}, which holds nothing; use gRPC")
        inputs = {name: _as_json(values.items) for name, values in fitted.items()}
        answer = self._call("POST", ":predict", {"signature_name": signature, "inputs": inputs})
        with self._expecting("outputs", answer):
            outputs, specs = answer["outputs"], self.signature(signature).outputs
            if len(specs) == 1:  # then the server leaves out the name
                outputs = {name: outputs for name in specs}
            return {name: _from_json(outputs[name]) for name in specs}

    def _call(self, method, what, body=None):
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        if self.version is not None:
            kind = "versions" if isinstance(self.version, int) else "labels"
            path += f"/{kind}/{urllib.parse.quote(str(self.version), safe='')}"
        connection = http.client.HTTPConnection(self.address, timeout=self.timeout_seconds)
        try:
            with contextlib.closing(connection):
                connection.request(method, path + what, None if body is None else json.dumps(body).encode())
                response = connection.getresponse()
                content = response.read().decode("utf-8", "replace")
        except TimeoutError:
            raise ServingError(f"{self.address} has not answered in {self.timeout_seconds:g} seconds") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ServingError(
                f"{self.address} is not available: {reason}. Is it the port for REST (8501, if not changed)?"
            ) from None
        return self._checked(response.status, content)

    def _checked(self, status, content):
        try:
            answer = json.loads(content)
        except ValueError:
            answer = content[:_LONGEST_QUOTATION]
        if status == http.client.OK:
            return answer
        message = answer.get("error", answer) if isinstance(answer, dict) else answer
        if status == http.client.NOT_FOUND:
            raise ServingError(f"{self.address} does not serve {self._of_model()}: {message}")
        raise ServingError(f"{self.address} refused the request (HTTP {status}): {message}")

    @contextlib.contextmanager
    def _expecting(self, what, answer):
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError):
            quotation = json.dumps(answer)[:_LONGEST_QUOTATION]
            raise ServingError(f"{self.address} did not answer {what}, but {quotation}") from None


def _tensors(infos):
    tensors = {}
    for name, info in sorted(infos.items()):
        shape = info["tensor_shape"]
        sizes = None if shape.get("unknown_rank") else tuple(int(each["size"]) for each in shape.get("dim", []))
        tensors[name] = Tensor(info["dtype"].removeprefix("DT_").lower(), sizes)
    return tensors


def _as_json(items):
    """The nested lists of a request; bytes that are no text go in base64."""
    if isinstance(items, list):
        return [_as_json(item) for item in items]
    if not isinstance(items, bytes):
        return items
    try:
        return items.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(items).decode()}


def _from_json(items):
    """The nested lists of an answer, in which the server writes outputs called `..._bytes` in base64."""
    if isinstance(items, list):
        return [_from_json(item) for item in items]
    if isinstance(items, dict):
        return base64.b64decode(items["b64"]).decode("utf-8", "replace")
    return items
