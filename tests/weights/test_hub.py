"""Downloads from and pushes to a local server that speaks the hub's API."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from keras_bert.weights import hub as hub_module
from keras_bert.weights.hub import HubAddress, download, find_address, parse_address, push_folder
from tests import forked

NAME = "owner/name"
WEIGHTS = bytes(range(256)) * 4000
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "tokenizer_config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"other weights",
    "flax_model.msgpack": b"other weights",
    "README.md": b"a card",
}
NEEDED = ["config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"]


@pytest.fixture
def offline(monkeypatch):
    from huggingface_hub import constants

    return lambda value=True: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", value)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_downloads_what_is_needed_and_makes_no_second_request(hub):
    commit = hub.commit(NAME, FILES)
    folder = download(HubAddress(NAME))
    assert contents(folder) == {name: FILES[name] for name in NEEDED}
    assert folder.name == commit
    assert hub.downloads() == NEEDED  # the weights last, after config.json has been checked
    hub.requests.clear()
    assert download(HubAddress(NAME)) == folder
    assert download(HubAddress(NAME), tokenizer_only=True) == folder
    assert download(HubAddress(NAME, commit)) == folder
    assert hub.requests == []
    assert find_address(folder) == (NAME, commit)


def test_tokenizer_alone_then_the_rest(hub):
    hub.commit(NAME, FILES)
    folder = download(HubAddress(NAME), tokenizer_only=True)
    assert set(contents(folder)) == {"tokenizer_config.json", "vocab.txt"}
    hub.requests.clear()
    assert download(HubAddress(NAME)) == folder
    assert hub.downloads() == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("revision", ["commit", "v1", "refs/pr/1"])
def test_pinned_revision(hub, offline, revision):
    branch = "main" if revision == "commit" else revision
    first = hub.commit(NAME, FILES, branch)
    hub.commit(NAME, {**FILES, "vocab.txt": b"newer"})
    address = HubAddress(NAME, first if revision == "commit" else revision)
    folder = download(address)
    assert folder.name == first and (folder / "vocab.txt").read_bytes() == FILES["vocab.txt"]
    offline()
    assert download(address) == folder
    # Another revision than the one in the cache is not taken for it.
    with pytest.raises(ConnectionError, match=rf"HF_HUB_OFFLINE forbids .* has these commits of it: \['{first}'\]"):
        download(HubAddress(NAME))


def test_a_branch_moves_only_on_request(hub):
    hub.commit(NAME, FILES)
    folder = download(HubAddress(NAME))
    newer = hub.commit(NAME, {"vocab.txt": b"newer"})
    assert download(HubAddress(NAME)) == folder
    hub.requests.clear()
    assert download(HubAddress(NAME), refresh=True).name == newer
    assert hub.downloads() == ["vocab.txt"]  # the other files have not changed
    assert download(HubAddress(NAME)).name == newer


def test_failed_refresh_keeps_the_complete_commit(hub, offline):
    hub.commit(NAME, FILES)
    folder = download(HubAddress(NAME))
    hub.commit(NAME, {"model.safetensors": WEIGHTS[::-1]})
    hub.cut_after, hub.cuts_left = {"model.safetensors": 1000}, 20
    with pytest.raises(ConnectionError):
        download(HubAddress(NAME), refresh=True)
    offline()
    assert download(HubAddress(NAME)) == folder


def test_cut_connection_is_resumed(hub):
    hub.commit(NAME, FILES)
    hub.cut_after, hub.cuts_left = {"model.safetensors": 300_000}, 1
    assert contents(download(HubAddress(NAME)))["model.safetensors"] == WEIGHTS
    assert hub.downloads() == [*NEEDED, "model.safetensors"]


def test_broken_download_never_looks_complete(hub, offline):
    hub.commit(NAME, FILES)
    hub.cut_after, hub.cuts_left = {"model.safetensors": 0}, 20
    with pytest.raises(ConnectionError, match=r"hf://owner/name: the download failed .* run the same call again"):
        download(HubAddress(NAME))
    offline()
    with pytest.raises(ConnectionError, match="is not complete in the cache"):
        download(HubAddress(NAME))
    offline(False)
    hub.cuts_left = 0
    hub.requests.clear()
    assert contents(download(HubAddress(NAME))) == {name: FILES[name] for name in NEEDED}
    assert hub.downloads() == ["model.safetensors"]


def test_killed_before_the_hash_was_compared(hub, offline, monkeypatch):
    """A file that a killed process left in the cache is compared before it is used, also without a network."""
    commit = hub.commit(NAME, FILES)
    verify = hub_module._verify

    def die(path, *args):
        if path.name == "model.safetensors":
            raise KeyboardInterrupt
        verify(path, *args)

    monkeypatch.setattr(hub_module, "_verify", die)
    with pytest.raises(KeyboardInterrupt):
        download(HubAddress(NAME, commit))
    monkeypatch.setattr(hub_module, "_verify", verify)
    (weights,) = Path(_cache()).rglob("model.safetensors")
    damaged = bytes([WEIGHTS[0] ^ 1]) + WEIGHTS[1:]
    weights.resolve().write_bytes(damaged)
    offline()
    with pytest.raises(ValueError, match=r"model.safetensors: the file that was downloaded has the hash"):
        download(HubAddress(NAME, commit))
    offline(False)
    assert contents(download(HubAddress(NAME, commit)))["model.safetensors"] == WEIGHTS


def _cache():
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


@pytest.mark.parametrize(
    ("name", "served"),
    [("model.safetensors", WEIGHTS[::-1]), ("config.json", b'{"model_type": "best"}'), ("vocab.txt", b"short")],
)
def test_wrong_contents(hub, offline, name, served):
    hub.commit(NAME, FILES)
    hub.served = {name: served}
    with pytest.raises((ValueError, ConnectionError), match=rf"hf://owner/name.*{name}.*(hash|size)"):
        download(HubAddress(NAME))
    assert name not in contents(Path(_cache()))
    offline()
    with pytest.raises(ConnectionError, match="is not complete in the cache"):
        download(HubAddress(NAME))
    offline(False)
    hub.served = {}
    assert contents(download(HubAddress(NAME)))[name] == FILES[name]


def test_file_that_vanished_from_the_cache_is_downloaded_again(hub):
    hub.commit(NAME, FILES)
    folder = download(HubAddress(NAME))
    (folder / "vocab.txt").unlink()
    assert "vocab.txt" in contents(download(HubAddress(NAME)))


@pytest.mark.parametrize("is_listed", [False, True])
def test_offline_with_a_cache_that_another_program_filled(hub, offline, is_listed):
    from huggingface_hub import hf_hub_download, snapshot_download

    hub.commit(NAME, FILES)
    if is_listed:
        snapshot_download(NAME, allow_patterns=["*.json", "*.safetensors"])
        offline()
        with pytest.raises(ConnectionError, match="is not complete in the cache"):  # vocab.txt is known to exist
            download(HubAddress(NAME))
        offline(False)
        snapshot_download(NAME, allow_patterns=["vocab.txt"])
    else:
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            hf_hub_download(NAME, name)
    offline()
    folder = download(HubAddress(NAME))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    weights = (folder / "model.safetensors").resolve()
    weights.write_bytes(WEIGHTS[::-1])
    with pytest.raises(ValueError, match="has the hash"):
        download(HubAddress(NAME))


def test_refresh_finds_a_file_that_was_damaged_in_the_cache(hub):
    hub.commit(NAME, FILES)
    weights = (download(HubAddress(NAME)) / "model.safetensors").resolve()
    weights.write_bytes(WEIGHTS[::-1])
    with pytest.raises(ValueError, match="has the hash"):
        download(HubAddress(NAME), refresh=True)
    assert contents(download(HubAddress(NAME)))["model.safetensors"] == WEIGHTS


_KILLED = """
import sys
from huggingface_hub import constants

endpoint, cache = sys.argv[1:]
constants.ENDPOINT = endpoint
constants.HUGGINGFACE_CO_URL_TEMPLATE = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
constants.HF_HUB_CACHE, constants.HF_HUB_DISABLE_XET = cache, True
from keras_bert.weights.hub import HubAddress, download
download(HubAddress("owner/name"))
"""


@pytest.mark.slow
def test_killed_process(hub, offline):
    hub.commit(NAME, FILES)
    hub.stall_after = {"model.safetensors": 500_000}
    command = [sys.executable, "-c", _KILLED, hub.address, _cache()]
    with forked.ForkedProgram(command, env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}) as program:
        assert hub.stalled.wait(60)
        program.kill()
    assert program.returncode == -signal.SIGKILL
    offline()
    with pytest.raises(ConnectionError, match="is not complete in the cache"):
        download(HubAddress(NAME))
    offline(False)
    hub.stall_after = {}
    hub.requests.clear()
    assert contents(download(HubAddress(NAME))) == {name: FILES[name] for name in NEEDED}
    assert hub.downloads() == ["model.safetensors"]


def test_progress_bar(hub, capsys, monkeypatch):
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    hub.commit(NAME, FILES)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # elsewhere there is none
    enable_progress_bars()
    try:
        download(HubAddress(NAME))
    finally:
        disable_progress_bars()
    assert re.search(r"model.safetensors: 100%.* 1.02M/1.02M", capsys.readouterr().err)


def test_read_only_cache_is_used(hub, offline, monkeypatch):
    from huggingface_hub import hf_hub_download

    hub.commit(NAME, FILES)
    for name in NEEDED:
        hf_hub_download(NAME, name)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hub_module, "write_json", refuse)
    monkeypatch.setattr(hub_module, "atomic_text_file", refuse)
    assert set(contents(download(HubAddress(NAME)))) == set(NEEDED)


@pytest.mark.parametrize(
    ("settings", "address", "error", "message"),
    [
        (
            {"gated": True},
            NAME,
            PermissionError,
            "is gated: .* Ask for it on http.*/owner/name, and log in with `hf auth",
        ),
        ({"private": True}, "owner/nam", FileNotFoundError, "no such model, or it is private"),
        ({}, "google-bert/bert-base-uncase", FileNotFoundError, "Similar: hf://google-bert/bert-base-uncased"),
        ({}, f"{NAME}@v9", FileNotFoundError, r"no branch, tag or commit 'v9'. See http.*/commits/main, or leave"),
        (
            {"files": {"config.json": b'{"model_type": "roberta"}'}},
            NAME,
            ValueError,
            "is not a BERT: .* found 'roberta'",
        ),
        ({"files": {"config.json": b"[]"}}, NAME, ValueError, "config.json: expected a JSON object"),
        ({"status": 503}, NAME, ConnectionError, r"cannot answer now \(status 503\)"),
        ({"status": 429}, NAME, ConnectionError, r"cannot answer now \(status 429\)"),
        ({"status": 401}, NAME, PermissionError, r"refuses the download \(401\); log in|no such model"),
        ({"status": 418}, NAME, ValueError, "refuses the download"),
    ],
)
def test_errors_say_what_to_do(hub, settings, address, error, message):
    files = settings.pop("files", {})
    hub.status = settings.pop("status", None)
    hub.commit(NAME, {**FILES, **files}, **settings)
    if hub.status == 401:
        error = (PermissionError, FileNotFoundError)
    with pytest.raises(error, match=message):
        download(parse_address(address))
    assert "model.safetensors" not in hub.downloads()


def test_private_repository_needs_the_token(hub, monkeypatch):
    hub.commit(NAME, FILES, private=True)
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", "wrong")
        with pytest.raises(FileNotFoundError, match="or it is private"):
            download(HubAddress(NAME))
    assert set(contents(download(HubAddress(NAME)))) == set(NEEDED)


def test_missing_network(hub, monkeypatch):
    from huggingface_hub import constants

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=rf"ConnectError.*Check the connection to http://127.0.0.1:{port} "):
        download(HubAddress(NAME))


def test_offline_without_a_cache(hub, offline):
    offline()
    with pytest.raises(ConnectionError, match=r"HF_HUB_OFFLINE forbids the download\. Unset it, or download"):
        download(HubAddress(NAME))
    assert hub.requests == []


@pytest.mark.parametrize(
    "name",
    ["hf://", "hf://a", "hf://a/b/c", "hf://a/..", "hf://../b", "hf://a--b/c", "hf://a/b@", "hf://a/b@../c", "hf://a/b@/c",
     "hf://a/b@c/../d", "hf://a /b", "hf://a/b\n", "hf://.a/b", "hf://a/b?c=d"],
)  # fmt: skip
def test_addresses_that_are_refused(name):
    with pytest.raises(ValueError, match="a model on the hub is named hf://owner/name or hf://owner/name@revision"):
        parse_address(name)


def test_preset_of_keras_hub(hub):
    names = ["metadata.json", "preprocessor.json", "task.json", "task.weights.h5", "model.weights.h5"]
    names = ["tokenizer.json", "assets/tokenizer/vocabulary.txt", *names]
    config = json.dumps({"class_name": "BertBackbone", "registered_name": "keras_hub>BertBackbone"})
    hub.commit(NAME, {"config.json": config.encode(), **dict.fromkeys(names, b"{}"), "image.png": b""})
    assert set(contents(download(HubAddress(NAME)))) == {"config.json", *names}


def test_push_creates_the_repository_and_commits_all_files(hub, tmp_path):
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    files = {**FILES, "1_Pooling/config.json": b"{}"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / ".hidden").write_text("secret")
    url = push_folder(folder, f"hf://{NAME}", private=True)
    assert hub.files(NAME) == {**files, ".gitattributes": b""}
    assert url == f"{hub.address}/{NAME}/commit/{hub.repositories[NAME]['refs']['main']}"
    assert hub.repositories[NAME]["created"]["visibility"] == "private"
    assert sum(method == "PUT" for method, _ in hub.requests) == 2  # the two files of weights, by Git LFS
    (folder / "vocab.txt").write_bytes(b"newer")
    push_folder(folder, NAME)
    assert hub.files(NAME)["vocab.txt"] == b"newer"
    assert contents(download(HubAddress(NAME)))["vocab.txt"] == b"newer"


def test_push_errors(hub, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="is not a folder with files"):
        push_folder(tmp_path / "absent", NAME)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match="leave out the revision"):
        push_folder(tmp_path / "model", f"{NAME}@v1")
    with pytest.raises(PermissionError, match=r"refuses the upload \(403\); log in .* that may write to it"):
        push_folder(tmp_path / "model", "others/name")
    os.symlink("/etc/hostname", tmp_path / "model" / "link.txt")
    with pytest.raises(ValueError, match="uploads no links"):
        push_folder(tmp_path / "model", NAME)
    (tmp_path / "model" / "link.txt").unlink()
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises((PermissionError, FileNotFoundError), match="log in with `hf auth login`"):
        push_folder(tmp_path / "model", NAME)
    assert NAME not in hub.repositories
