import json
import threading

import pytest
from werkzeug.test import Client

from tools import serving_page
from tools.serving_page import MAX_REQUEST_BYTES, ServingApp

PATH = "/v1/models/reviews"


class FakeModel:
    """Answers with the request itself."""

    name, version, labels = "reviews", "3", ["bad", "good"]
    release = threading.Event()

    def status(self):
        return {"model_version_status": []}

    def metadata(self):
        return {"metadata": {}}

    def predict(self, request):
        if request == "late":
            self.release.wait(10)
        if request == "bad":
            raise ValueError("it is bad")
        return {"predictions": request}


def build_page(texts):
    if not texts:
        raise ValueError("no texts")
    return f"<p>{len(texts)} texts"


@pytest.fixture(scope="module")
def client():
    return Client(ServingApp(FakeModel(), build_page, timeout_seconds=0.5))


def post(client, value, path=f"{PATH}:predict", **options):
    return client.post(path, data=json.dumps(value), **options)


def test_answers_the_paths_of_tensorflow_serving(client):
    for path in (PATH, f"{PATH}/versions/3"):
        assert client.get(path).json == {"model_version_status": []}
        assert client.get(f"{path}/metadata").json == {"metadata": {}}
        response = post(client, ["ü"], f"{path}:predict")
        assert (response.status_code, response.json) == (200, {"predictions": ["ü"]})
        assert response.mimetype == "application/json"
    assert client.get("/page.json").json == {"name": "reviews", "labels": ["bad", "good"], "attention": True}


@pytest.mark.parametrize(
    "path, status, error",
    [
        ("/v1/models/other", 404, "this server has version 3 of the model 'reviews' only"),
        (f"{PATH}/versions/4", 404, "this server has version 3"),
        (f"{PATH}:classify", 404, "there is no /v1/models/reviews:classify; the model is at /v1/models/reviews"),
        (f"{PATH}/labels/stable", 404, "there is no"),
        ("/page.html", 404, "there is no"),
        (f"{PATH}:predict", 405, "must be requested by POST, not GET"),
        ("/attention", 405, "must be requested by POST, not GET"),
    ],
)
def test_refuses_other_paths_and_methods(client, path, status, error):
    response = client.get(path)
    assert response.status_code == status
    assert error in response.json["error"]


@pytest.mark.parametrize("path", ["/", "/page.json", PATH, f"{PATH}/metadata"])
def test_reads_are_not_posts(client, path):
    assert client.post(path).status_code == 405
    assert client.head(path).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_refuses_what_is_not_json(client, body):
    response = client.post(f"{PATH}:predict", data=body)
    assert response.status_code == 400
    assert response.json["error"].startswith("the request is not JSON: ")


def test_reports_errors_of_the_model(client):
    response = post(client, "bad")
    assert (response.status_code, response.json) == (400, {"error": "it is bad"})


def test_limits_size_and_time(client):
    assert post(client, "a" * (MAX_REQUEST_BYTES - 2)).status_code == 200
    response = post(client, "a" * MAX_REQUEST_BYTES)
    assert (response.status_code, response.json["error"][:36]) == (413, "the request is larger than 1 MiB; se")
    assert client.post("/attention", data={"text": "a" * MAX_REQUEST_BYTES}).status_code == 413
    FakeModel.release.clear()
    response = post(client, "late")
    FakeModel.release.set()
    assert response.status_code == 504
    assert "the model took more than 0.5 seconds" in response.json["error"]


def test_answers_several_clients_at_a_time(client):
    FakeModel.release.clear()
    answers = []
    late = threading.Thread(target=lambda: answers.append(post(client, "late").status_code))
    late.start()
    assert post(client, "now").status_code == 200
    assert answers == []
    FakeModel.release.set()
    late.join()
    assert answers == [200]


def test_refuses_more_waiting_requests_than_its_maximum(monkeypatch):
    monkeypatch.setattr(serving_page, "MAX_WAITING", 1)
    client, answers = Client(ServingApp(FakeModel())), []
    FakeModel.release.clear()
    threads = [threading.Thread(target=lambda: answers.append(post(client, "late").status_code)) for _ in range(3)]
    for thread in threads:
        thread.start()
    response = post(client, "bad")
    while response.status_code == 400:  # until the three requests have arrived
        response = post(client, "bad")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.json["error"] == "1 other requests are waiting; try again later"
    assert client.get(PATH).status_code == 200  # the server is busy, not ill
    FakeModel.release.set()
    for thread in threads:
        thread.join()
    assert answers == [200] * 3
    assert post(client, "now").status_code == 200


def test_answers_with_the_version_that_was_assigned_last():
    app = ServingApp(FakeModel())
    newer = FakeModel()
    newer.version = "4"
    app.model = newer
    client = Client(app)
    assert client.get(f"{PATH}/versions/4").status_code == 200
    assert client.get(f"{PATH}/versions/3").status_code == 404


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com", "192.168.0.7:8501", "127.0.0.1.nip.io", ""])
def test_refuses_other_host_names(client, host):
    for path in ("/", "/page.json", PATH):
        assert client.get(path, headers={"Host": host}).status_code == 400
    for trusted in ("localhost:8501", "127.0.0.1"):
        assert client.get("/", headers={"Host": trusted}).status_code == 200


def test_refuses_posts_from_pages_of_other_sites(client):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert post(client, "a", headers={"Sec-Fetch-Site": site}).status_code == status
        assert client.post("/attention", data={"text": "a"}, headers={"Sec-Fetch-Site": site}).status_code == status


def test_page_may_run_only_its_own_script_and_reach_only_this_server(client):
    response = client.get("/")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'; style-src 'sha256-" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert response.text.count("<script") == response.text.count("<style") == 1
    for word in ("http:", "https:", "//cdn", " src=", "href=", "innerHTML", "eval(", "document.write"):
        assert word not in response.text
    for path in ("/", PATH, "/missing"):
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_attention_is_optional(client):
    response = client.post("/attention", data={"question": "a", "context": "b", "more": "c"})
    assert (response.status_code, response.mimetype, response.text) == (200, "text/html", "<p>2 texts")
    response = client.post("/attention")
    assert (response.status_code, response.json) == (400, {"error": "no texts"})
    without = Client(ServingApp(FakeModel()))
    assert without.post("/attention", data={"text": "a"}).status_code == 404
    assert without.get("/page.json").json["attention"] is False
