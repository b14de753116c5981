"""Downloads models from the Hugging Face Hub, and pushes folders to it, through `huggingface_hub`.

That package alone decides where the hub and the cache are, and whether it may use the network: it reads HF_ENDPOINT,
HF_HUB_CACHE, HF_HUB_OFFLINE and the user's token. Files of one commit are in one folder of its cache. A record next to
them lists the files of the repository and those whose hashes have been compared with the hub's. A folder is returned
once every file that is needed is in the record; from then on no request is made for it.
"""

import contextlib
import difflib
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from keras_bert.io.atomic_write import atomic_text_file, write_json
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import read_json
from keras_bert.weights.hub_files import select_files
from keras_bert.weights.preset_table import PRESETS

SCHEME = "hf://"
DEFAULT_REVISION = "main"
MODEL_CARD_NAME = "README.md"
_RECORDS = "keras_bert"  # folder of the records in a repository's folder of the cache
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"\w(?:[\w.-]*\w)?/\w(?:[\w.-]*\w)?", re.ASCII)
_REVISION = re.compile(r"\w[\w.+-]*(?:/\w[\w.+-]*)*", re.ASCII)
_SNAPSHOT = re.compile(r"(?:^|/)models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})(?:/|$)")
_KNOWN_REPOSITORIES = [preset.repository for preset in PRESETS.values() if preset.repository]
_BLOCK_BYTES = 1 << 20


class HubAddress(NamedTuple):
    """A model on the hub."""

    repository: str  # owner/name
    revision: str | None = None  # branch, tag or commit; None: the default branch

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def parse_address(name: str) -> HubAddress:
    """Splits `hf://owner/name` or `hf://owner/name@revision`; ValueError for another form.

    >>> parse_address("hf://google-bert/bert-base-uncased@main")
    HubAddress(repository='google-bert/bert-base-uncased', revision='main')
    """
    repository, at, revision = name.removeprefix(SCHEME).partition("@")
    is_safe = ".." not in repository and "--" not in repository and ".." not in revision
    if not is_safe or not _REPOSITORY.fullmatch(repository) or (at and not _REVISION.fullmatch(revision)):
        raise ValueError(
            f"a model on the hub is named {SCHEME}owner/name or {SCHEME}owner/name@revision, where the revision is a "
            f"branch, tag or commit; got {name!r}"
        )
    return HubAddress(repository, revision or None)


def find_address(path: PathLike) -> HubAddress | None:
    """Returns the repository and commit that a folder of the hub's cache belongs to; None for another folder.

    >>> str(find_address("/cache/models--owner--name/snapshots/" + "a" * 40))
    'hf://owner/name@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'
    """
    match = _SNAPSHOT.search(Path(path).as_posix())
    return match and HubAddress(f"{match[1]}/{match[2]}", match[3])


def download(address: HubAddress, tokenizer_only: bool = False, refresh: bool = False) -> Path:
    """Downloads what is needed of a model, unless the cache has it, and returns the folder of the cache.

    These files are needed, as far as they exist: the configuration; `vocab.txt` and `tokenizer.json`; what describes
    the pooling of a sentence encoder; and the first of `model.safetensors`, its shards, `pytorch_model.bin`, its
    shards and `tf_model.h5`, or the weights of a keras-hub preset. With `tokenizer_only`, only the files of the
    tokenizer are.

    A branch or tag stays at the commit that was downloaded first. `refresh` asks the hub for a newer one, and compares
    the hashes of all files again; it fails without a network. Without it, files are then also taken from a cache that
    another program has filled, after comparing their hashes.

    Raises:
        FileNotFoundError: there is no such repository, revision or file.
        PermissionError: the repository is gated or private, or the token is not valid.
        ConnectionError: the hub cannot be reached, or the download broke off; the next call continues with the file
            that was not complete.
        ValueError: the repository is not a BERT, or a file is not the one that the hub lists.
    """
    import httpx2
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    cache = _Cache(address, huggingface_hub)
    if not refresh:
        folder = cache.find_complete(tokenizer_only)
        if folder is not None:
            return folder
    try:
        return cache.fetch(tokenizer_only, refresh)
    except _HubFailure as failure:
        error = failure.error
        is_unreachable = isinstance(error, OfflineModeIsEnabled | LocalEntryNotFoundError | httpx2.TransportError)
        if isinstance(error, HfHubHTTPError):
            is_unreachable = error.response.status_code >= 500
        if is_unreachable and not refresh:
            folder = cache.find_files_of_others(tokenizer_only)
            if folder is not None:
                logging.warning("the hub cannot be reached; %s is read from %s", address, folder)
                return folder
        raise _explain(error, address, "download", cache.list_commits()) from error


def is_downloaded(address: HubAddress) -> bool:
    """Returns whether `download` finds all files in the cache; it does not ask the hub."""
    import huggingface_hub.constants

    return _Cache(address, huggingface_hub).find_complete(tokenizer_only=False) is not None


class _HubFailure(Exception):
    """An error of `huggingface_hub` or its HTTP client, as opposed to one of ours."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _hub_failures() -> Iterator[None]:
    """Turns the errors of `huggingface_hub`, which have several base classes, into `_HubFailure`."""
    import httpx2

    try:
        yield
    except (OSError, RuntimeError, httpx2.HTTPError) as error:
        raise _HubFailure(error) from error


class _Cache:
    """The folder of a repository in the cache of `huggingface_hub`."""

    def __init__(self, address: HubAddress, huggingface_hub: Any) -> None:
        self.address = address
        self.revision = address.revision or DEFAULT_REVISION
        self.hub = huggingface_hub
        self.path = Path(huggingface_hub.constants.HF_HUB_CACHE) / f"models--{address.repository.replace('/', '--')}"

    def find_commit(self) -> str | None:
        """Returns the commit that the revision was when it was downloaded; None if it was not."""
        if _COMMIT.fullmatch(self.revision):
            return self.revision
        file = self.path / "refs" / self.revision
        commit = file.read_text("utf-8").strip() if file.is_file() else ""
        return commit if _COMMIT.fullmatch(commit) else None

    def list_commits(self) -> list[str]:
        """Returns the commits of which the cache has files."""
        folder = self.path / "snapshots"
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def snapshot(self, commit: str) -> Path:
        return self.path / "snapshots" / commit

    def find_complete(self, tokenizer_only: bool) -> Path | None:
        """Returns the folder if the record says that all files were complete, and they are still there."""
        commit = self.find_commit()
        if commit is None:
            return None
        folder, (listing, verified) = self.snapshot(commit), self.read_record(commit)
        if not listing:
            return None

        def read(name: str) -> dict[str, Any]:
            return read_json(folder / name)

        try:
            needed = select_files(listing, read, str(self.address), tokenizer_only)
        except FileNotFoundError:
            return None
        is_complete = all(name in verified and _size(folder / name) == verified[name] for name in needed)
        return folder if is_complete else None

    def fetch(self, tokenizer_only: bool, verify_all: bool) -> Path:
        """Downloads the missing files of the revision's newest commit, and compares their hashes with the hub's.

        `verify_all` also compares those of files that were compared before.
        """
        repository = self.address.repository
        api = self.hub.HfApi(library_name="keras_bert")
        commit = self.revision
        if not _COMMIT.fullmatch(commit):
            with _hub_failures():
                commit = api.repo_info(repository, revision=self.revision).sha
            if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
                raise ConnectionError(f"{self.address}: the hub answered with the commit {commit!r}; try again later")
        with _hub_failures():
            entries = list(api.list_repo_tree(repository, recursive=True, revision=commit))
        listing = {entry.path: entry for entry in entries if isinstance(entry, self.hub.RepoFile)}
        folder, (_, verified) = self.snapshot(commit), self.read_record(commit)
        verified = {} if verify_all else {name: size for name, size in verified.items() if _size(folder / name) == size}
        # From now on a folder without all of these files is known to be incomplete.
        self.write_record(commit, listing, verified)

        def get(name: str) -> Path:
            path = folder / name
            if name not in verified:
                with _hub_failures():
                    path = Path(self.hub.hf_hub_download(repository, name, revision=commit, library_name="keras_bert"))
                entry = listing[name]
                hash_name, expected = ("sha256", entry.lfs.sha256) if entry.lfs else ("git", entry.blob_id)
                _verify(path, entry.size, hash_name, expected, f"{self.address}: {name}")
                verified[name] = entry.size
            return path

        for name in select_files(listing, lambda name: read_json(get(name)), str(self.address), tokenizer_only):
            get(name)
        self.write_record(commit, listing, verified)
        self.write_reference(commit)
        return folder

    def find_files_of_others(self, tokenizer_only: bool) -> Path | None:
        """Returns the folder if another program has downloaded all files that are needed, as far as can be known.

        Which files the repository has is known from our record, from a listing that `huggingface_hub` has stored, or
        only from the folder itself. The names of the files that its links lead to are their hashes.
        """
        commit = self.find_commit()
        if commit is None or not self.snapshot(commit).is_dir():
            return None
        folder = self.snapshot(commit)
        listing: Collection[str] = self.read_record(commit)[0]
        if not listing:
            try:
                files = self.hub.get_cached_repo_tree(self.address.repository, revision=commit)
                listing = [file.path for file in files]
            except self.hub.errors.CachedRepoTreeNotFoundError:
                paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
                listing = sorted(paths)
                logging.warning("%s: only the files in the cache are known: %s", self.address, listing)
        try:
            needed = select_files(listing, lambda name: read_json(folder / name), str(self.address), tokenizer_only)
        except FileNotFoundError:
            return None
        for name in needed:
            path = folder / name
            if not path.is_file():
                return None
            stated = os.path.basename(os.readlink(path)) if path.is_symlink() else ""
            hash_name = {40: "git", 64: "sha256"}.get(len(stated))
            if hash_name is not None:
                _verify(path, path.stat().st_size, hash_name, stated, f"{self.address}: {name}")
        return folder

    def _record_path(self, commit: str) -> Path:
        return self.path / _RECORDS / f"{commit}.json"

    def read_record(self, commit: str) -> tuple[list[str], dict[str, int]]:
        """Returns the names of the repository's files and the sizes of those that were verified; empty if unknown."""
        try:
            record = json.loads(self._record_path(commit).read_text("utf-8"))
            return list(record["listing"]), dict(record["verified"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return [], {}

    def write_record(self, commit: str, listing: Iterable[str], verified: Mapping[str, int]) -> None:
        record = {"listing": sorted(listing), "verified": dict(sorted(verified.items()))}
        with _ignore_read_only(self._record_path(commit)) as path:
            write_json(path, record, overwrite=True)

    def write_reference(self, commit: str) -> None:
        """Stores which commit the revision is, where `huggingface_hub` does; only now that the files are complete."""
        if self.revision == commit:
            return
        with _ignore_read_only(self.path / "refs" / self.revision) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_text_file(path, overwrite=True) as file:
                file.write(commit)


@contextlib.contextmanager
def _ignore_read_only(path: Path) -> Iterator[Path]:
    """Continues if a file cannot be written, as in a cache that is shared and read-only."""
    try:
        yield path
    except OSError as error:
        logging.warning("%s cannot be written: %s", path, error)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _verify(path: Path, size: int, hash_name: str, expected: str, source: str) -> None:
    """Raises ValueError, and removes the file from the cache, unless it has this size and hash."""
    found_size = path.stat().st_size
    found = hash_file(path, hash_name) if found_size == size else f"{found_size} bytes"
    if found == expected:
        return
    blob = path.parent / os.readlink(path) if path.is_symlink() else path
    path.unlink()
    blob.unlink(missing_ok=True)
    raise ValueError(
        f"{source}: the file that was downloaded has the hash {found}; the hub lists {size} bytes with the hash "
        f"{expected}. It was removed from the cache. Run the same call again; if it fails again, a proxy or mirror "
        "changes the file."
    )


def hash_file(path: PathLike, hash_name: str = "sha256") -> str:
    """Returns the SHA-256 of a file as hexadecimal digits, or the SHA-1 by which Git names it (`hash_name="git"`).

    >>> path = Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = path.write_text("a")
    >>> hash_file(path)[:8], hash_file(path, "git")[:8]
    ('ca978112', '2e65efe2')
    """
    digest = hashlib.sha256()
    if hash_name == "git":
        digest = hashlib.sha1(b"blob %d\0" % Path(path).stat().st_size, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def check_repository(name: str) -> HubAddress:
    """Returns the address of a repository to push to; ValueError unless it is `owner/name`."""
    address = parse_address(name)
    if address.revision is not None:
        raise ValueError(f"a push goes to the default branch; leave out the revision in {name!r}")
    return address


def push_folder(
    folder: PathLike,
    repository: str,
    private: bool | None = None,
    message: str = "Upload a BERT of keras_bert",
    create_pull_request: bool = False,
) -> str:
    """Uploads the files of a folder to a model on the hub, in one commit; a repository that does not exist is created.

    Files of the repository that the folder does not have are kept. Hidden files are not uploaded.

    Args:
        folder: a folder with a model.
        repository: `owner/name`, also with `hf://` before it.
        private: whether a repository that is created is private; None means the default of the owner, mostly public.
        message: title of the commit.
        create_pull_request: whether to propose the commit instead of making it.

    Returns:
        The address of the commit, or of the pull request.

    Raises:
        FileNotFoundError: there is no such folder, or it has no files.
        PermissionError: the user is not logged in, or may not write to the repository.
        ConnectionError: the hub cannot be reached, or the upload broke off. Nothing is committed.
        ValueError: the name is not one of a repository, a file is a link, or the hub refuses a file.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    address = check_repository(repository)
    folder = Path(folder)
    files = sorted(path for path in folder.rglob("*") if not path.is_dir() and not _is_hidden(path.relative_to(folder)))
    if not files:
        raise FileNotFoundError(f"{folder} is not a folder with files; pass the folder that save_checkpoint returned")
    links = [str(path) for path in files if path.is_symlink()]
    if links:
        raise ValueError(f"a push uploads no links, so that only files of the folder are published; got {links}")
    api = HfApi(library_name="keras_bert")
    operations = [CommitOperationAdd(path.relative_to(folder).as_posix(), str(path)) for path in files]
    try:
        with _hub_failures():
            api.create_repo(address.repository, private=private, exist_ok=True)
            commit = api.create_commit(
                address.repository, operations, commit_message=message, create_pr=create_pull_request
            )
    except _HubFailure as failure:
        raise _explain(failure.error, address, "upload") from failure.error
    return str(commit.pr_url if create_pull_request else commit.commit_url)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _explain(error: Exception, address: HubAddress, action: str, commits: Collection[str] = ()) -> Exception:
    """Returns the error to raise in place of one of `huggingface_hub` or its HTTP client: what is wrong, what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{address.repository}"
    log_in = "log in with `hf auth login`, or set HF_TOKEN to a token"
    if isinstance(error, errors.GatedRepoError):
        return PermissionError(
            f"{address} is gated: its owner gives access on request. Ask for it on {page}, and {log_in} of "
            "your account."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return FileNotFoundError(
            f"{address}: the repository has no branch, tag or commit {address.revision!r}. See {page}/commits/main, or "
            f"leave the revision out: {SCHEME}{address.repository}."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        near = difflib.get_close_matches(address.repository, _KNOWN_REPOSITORIES, n=3)
        meant = f" Similar: {', '.join(SCHEME + name for name in near)}." if near else ""
        return FileNotFoundError(
            f"{address}: the hub has no such model, or it is private. Check the name on {page}; for a private one, "
            f"{log_in} that may {'write' if action == 'upload' else 'read'} it.{meant}"
        )
    if isinstance(error, errors.DisabledRepoError):
        return PermissionError(f"{address} is disabled by the hub. Pass another model.")
    if isinstance(error, errors.EntryNotFoundError) and isinstance(error, errors.HfHubHTTPError):
        return FileNotFoundError(f"{address}: a file of the model is missing on the hub ({error}). Try again.")
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            may = "write to" if action == "upload" else "read"
            return PermissionError(f"{address}: the hub refuses the {action} ({status}); {log_in} that may {may} it.")
        if status < 500 and status != 429:
            return ValueError(f"{address}: the hub refuses the {action}: {error}")
        return ConnectionError(f"{address}: the hub cannot answer now (status {status}). Try again later.")
    held = f" The cache has these commits of it: {sorted(commits)}; name one after @." if commits else ""
    if isinstance(error, errors.OfflineModeIsEnabled):
        return ConnectionError(
            f"{address} is not complete in the cache, and HF_HUB_OFFLINE forbids the {action}. Unset it, or download "
            f"the model where there is a network, and copy the cache ({constants.HF_HUB_CACHE}).{held}"
        )
    if isinstance(error, OSError) and error.errno is not None:  # such as a full disk
        return error
    cause = error.__cause__ or error
    return ConnectionError(
        f"{address}: the {action} failed ({type(cause).__name__}: {str(cause)[:300]}). Check the connection to "
        f"{constants.ENDPOINT} (a proxy? HF_ENDPOINT?) and run the same call again.{held}"
    )
