"""A web application for development: a page to try a model, and the paths of TensorFlow Serving's REST API.

It answers requests to this machine by its local names only, limits their size and time, and its page sends requests to
nowhere else. There are no users and no encryption: it is not for production.
"""

import concurrent.futures
import json
import re
import threading
from pathlib import Path

from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    GatewayTimeout,
    HTTPException,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from werkzeug.wrappers import Request, Response

from tools.attention_page import hash_for_policy

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 2**20
_MESSAGES = {413: f"the request is larger than {MAX_REQUEST_BYTES >> 20} MiB; send less text"}
_NUM_THREADS = 2  # requests computed at the same time
MAX_WAITING = 64  # requests that wait for these; more are refused
_MODEL_PATH = re.compile(r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+))?(?P<verb>:predict|/metadata)?")
_PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
# What the page may do: run its own script and style, and send requests and forms to this server.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{tag}-src '{hash_for_policy(text)}'" for tag, text in re.findall(r"(?s)<(style|script)>(.*?)</\1>", _PAGE)),
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)


class _Request(Request):
    trusted_hosts = (HOST, "localhost")  # a page elsewhere that gives this machine another name is refused
    max_content_length = max_form_memory_size = MAX_REQUEST_BYTES


class ServingApp:
    """The application, as WSGI defines one.

    Args:
        model: a `tools.served_model.ServedModel`. Another version may be assigned to the attribute of this name while
            requests are answered; each is answered by one version.
        build_attention_page: function of one or two texts that returns a page as HTML, or None.
        timeout_seconds: seconds that a response may take.
    """

    def __init__(self, model, build_attention_page=None, timeout_seconds=30.0):
        self.model = model
        self._build_attention_page = build_attention_page
        self._timeout_seconds = timeout_seconds
        self._pool = concurrent.futures.ThreadPoolExecutor(_NUM_THREADS)
        self._free_places = threading.Semaphore(_NUM_THREADS + MAX_WAITING)

    def __call__(self, environ, start_response):
        request = _Request(environ)
        try:
            response = self._respond(request)
        except HTTPException as error:
            response = _json_response({"error": _MESSAGES.get(error.code, error.description)}, error.code)
            if isinstance(error, ServiceUnavailable):
                response.headers["Retry-After"] = "1"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Content-Security-Policy", "frame-ancestors 'none'")
        return response(environ, start_response)

    def _respond(self, request):
        request.host  # noqa: B018 (raises an error unless the host is trusted)
        model, path = self.model, _MODEL_PATH.fullmatch(request.path)
        if path is None:
            return self._respond_for_page(request)
        if path["name"] != model.name or path["version"] not in (None, model.version):
            raise NotFound(f"this server has version {model.version} of the model {model.name!r} only")
        if path["verb"] == ":predict":
            _check_method(request, "POST")
            content = _read_json(request)
            return _json_response(self._compute(lambda: model.predict(content)))
        _check_method(request, "GET")
        return _json_response(model.metadata() if path["verb"] else model.status())

    def _respond_for_page(self, request):
        """Responds to the requests of the page that are not TensorFlow Serving's."""
        if request.path == "/attention" and self._build_attention_page is not None:
            _check_method(request, "POST")
            texts = list(request.form.values())[:2]
            return Response(self._compute(lambda: self._build_attention_page(texts)), mimetype="text/html")
        if request.path == "/page.json":
            _check_method(request, "GET")
            has_attention = self._build_attention_page is not None
            return _json_response({"name": self.model.name, "labels": self.model.labels, "attention": has_attention})
        if request.path == "/":
            _check_method(request, "GET")
            return Response(_PAGE, mimetype="text/html", headers={"Content-Security-Policy": _POLICY})
        raise NotFound(f"there is no {request.path}; the model is at /v1/models/{self.model.name}")

    def _compute(self, function):
        """Returns the result of a function in another thread; its ValueError is the client's fault."""
        if not self._free_places.acquire(blocking=False):
            raise ServiceUnavailable(f"{MAX_WAITING} other requests are waiting; try again later")
        future = self._pool.submit(function)
        future.add_done_callback(lambda _: self._free_places.release())  # also if it was cancelled
        try:
            return future.result(self._timeout_seconds)
        except (ValueError, RecursionError) as error:
            raise BadRequest(str(error)) from error
        except TimeoutError:
            future.cancel()
            raise GatewayTimeout(
                f"the model took more than {self._timeout_seconds:g} seconds; send less text, or raise the limit by "
                "--timeout_seconds"
            ) from None


def _check_method(request, method):
    """Raises an error for another method, or if a page of another site sends the request."""
    allowed = {method, "HEAD"} if method == "GET" else {method}
    if request.method not in allowed:
        raise MethodNotAllowed([method], f"{request.path} must be requested by {method}, not {request.method}")
    if method == "POST" and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Forbidden("only this server's own page may send requests from a browser")


def _read_json(request):
    try:
        return json.loads(request.get_data())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is not JSON: {error}") from None


def _json_response(value, status=200):
    return Response(json.dumps(value, ensure_ascii=False), status, mimetype="application/json")
