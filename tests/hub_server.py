"""A server that speaks the part of the Hugging Face Hub's API that `huggingface_hub` uses for models."""

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"
_LARGE = (".safetensors", ".bin", ".h5")  # stored by Git LFS


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class HubServer(ThreadingHTTPServer):
    """The server, its repositories, the requests it received, and the faults it is told to have."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = {}  # name -> {"refs": {"main": commit}, "commits": {commit: {path: bytes}}, ...}
        self.requests = []  # (method, path)
        self.lfs = {}
        self.cut_after = {}  # path -> number of bytes after which each answer with the file breaks off
        self.cuts_left = 0
        self.stall_after = {}  # path -> number of bytes after which an answer waits, and `stalled` is set
        self.stalled = threading.Event()
        self.served = {}  # path -> other bytes than the listing says
        self.status = None  # of every answer

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, name, files, branch="main", **settings):
        """Adds files to a repository and returns the commit."""
        repository = self.repositories.setdefault(name, {"refs": {}, "commits": {}, "created": {}})
        parent = repository["commits"].get(repository["refs"].get(branch), {})
        files = {**parent, **files}
        commit = hashlib.sha1(repr((name, sorted(files.items()))).encode()).hexdigest()
        repository["commits"][commit] = files
        repository["refs"][branch] = commit
        repository.update(settings)
        return commit

    def files(self, name, branch="main"):
        repository = self.repositories[name]
        return repository["commits"][repository["refs"][branch]]

    def downloads(self):
        """Returns the names of the files that were sent, in order."""
        return [path.split("/", 5)[5] for method, path in self.requests if method == "GET" and "/resolve/" in path]

    def handle_error(self, request, client_address):
        pass  # the client closed the connection

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _StallingFile:
    """Writes a part of the large answers, and then waits until the client is gone."""

    def __init__(self, file, limit, stalled):
        self.file, self.limit, self.stalled = file, limit, stalled

    def write(self, data):
        self.file.write(data[: self.limit])
        if len(data) > self.limit:
            self.file.flush()
            self.stalled.set()
            with contextlib.suppress(OSError):
                while self.file.write(b"\0") or True:
                    time.sleep(0.05)

    def __getattr__(self, name):
        return getattr(self.file, name)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        if "agent-harnesses" in path:
            return self.answer(404)
        self.server.requests.append((self.command, path))
        if self.server.status:
            return self.answer(self.server.status)
        match = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)(?:/(revision|tree|resolve)/(.+))?", path)
        name, kind, rest = match.groups() if match else (None, None, None)
        repository = self.server.repositories.get(name)
        authorized = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.get("private") and not authorized):
            return self.answer(404 if authorized else 401, error="RepoNotFound")
        revision, file = (rest, None) if kind in (None, "revision") else [*(rest or "main").split("/", 1), ""][:2]
        revision = revision or "main"
        commit = repository["refs"].get(revision, revision)
        if commit not in repository["commits"]:
            return self.answer(404, error="RevisionNotFound")
        files = repository["commits"][commit]
        if kind == "resolve":
            if repository.get("gated"):
                return self.answer(403, error="GatedRepo")
            return self.send_file(file, files, commit)
        if kind == "tree":
            return self.answer(200, [self.describe(path, data) for path, data in files.items()])
        siblings = [{"rfilename": path} for path in files]
        return self.answer(200, {"id": name, "sha": commit, "private": False, "siblings": siblings})

    do_HEAD = do_GET

    def describe(self, path, data):
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
        if path.endswith(_LARGE):
            entry |= {"oid": "0" * 40, "lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 130}}
        return entry

    def send_file(self, path, files, commit):
        if path not in files:
            return self.answer(404, error="EntryNotFound")
        data = files[path]
        etag = sha256(data) if path.endswith(_LARGE) else git_hash(data)
        data = self.server.served.get(path, data)
        start = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or [0, 0])[1])
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        limit = None
        if self.command == "GET" and path in self.server.cut_after and self.server.cuts_left:
            self.server.cuts_left -= 1
            limit = self.server.cut_after[path]
        if self.command == "GET" and path in self.server.stall_after:
            self.wfile = _StallingFile(self.wfile, self.server.stall_after[path], self.server.stalled)
        self.send(206 if start else 200, data[start:], headers, limit)

    def do_POST(self):
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, path))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401)
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            created = json.loads(body)
            name = f"{created['organization']}/{created['name']}"
            if created["organization"] == "others":
                return self.answer(403)
            exists = name in self.server.repositories
            if not exists:
                self.server.commit(name, {".gitattributes": b""}, created=created)
            return self.answer(409 if exists else 200, {"url": f"{self.server.address}/{name}"})
        if match := re.fullmatch(r"/api/models/(.+)/(preupload|commit)/main", path):
            name, action = match.groups()
            return self.preupload(json.loads(body)) if action == "preupload" else self.make_commit(name, body)
        if path.endswith(".git/info/lfs/objects/batch"):
            return self.answer(200, {"objects": [self.upload_action(entry) for entry in json.loads(body)["objects"]]})
        return self.answer(200 if path == "/lfs/verify" and json.loads(body)["oid"] in self.server.lfs else 404)

    def do_PUT(self):
        oid = self.path.rpartition("/")[2]
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.command, self.path))
        if sha256(data) == oid:
            self.server.lfs[oid] = data
        return self.answer(200 if oid in self.server.lfs else 400)

    def preupload(self, request):
        modes = {True: "lfs", False: "regular"}
        files = [
            {"path": file["path"], "uploadMode": modes[file["path"].endswith(_LARGE)]} for file in request["files"]
        ]
        return self.answer(200, {"files": [{**file, "shouldIgnore": False} for file in files]})

    def upload_action(self, entry):
        upload = {"href": f"{self.server.address}/lfs/{entry['oid']}"}
        return {**entry, "actions": {"upload": upload, "verify": {"href": f"{self.server.address}/lfs/verify"}}}

    def make_commit(self, name, body):
        files = {}
        for item in map(json.loads, body.splitlines()):
            if item["key"] == "file":
                files[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            elif item["key"] == "lfsFile":
                files[item["value"]["path"]] = self.server.lfs[item["value"]["oid"]]
        commit = self.server.commit(name, files)
        return self.answer(200, {"commitUrl": f"{self.server.address}/{name}/commit/{commit}", "commitOid": commit})

    def answer(self, status, value=None, error=None):
        headers = {"Content-Type": "application/json", **({"X-Error-Code": error} if error else {})}
        self.send(status, json.dumps(value if value is not None else {}).encode(), headers)

    def send(self, status, data, headers, limit=None):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:limit])
        if limit is not None:
            self.close_connection = True

    def log_message(self, *args):
        pass
