"""Paths of files that another file names, such as a list of modules: they must not leave the folder."""

import re
from pathlib import Path

_NAME = re.compile(r"[^/\\:\0]+")
_MAX_BYTES = 255  # of a name in a file system
# Of the cache of huggingface_hub, whose snapshots are links to blobs of the model or of the whole cache.
_CACHED, _BLOBS = "snapshots", "blobs"


def member_path(folder: Path, name: str, named_in: Path) -> Path:
    """Returns the path of a member of a folder that the file `named_in` names; ValueError if it is outside the folder.

    A member that is a symbolic link may lead elsewhere in the folder, or to the blobs of the Hugging Face cache that
    the folder belongs to. The member need not exist.

    >>> member_path(Path("folder"), "1_Pooling", Path("folder/modules.json")).name
    '1_Pooling'
    """
    path = folder / name
    is_name = _NAME.fullmatch(name) and name not in (".", "..") and len(name.encode()) <= _MAX_BYTES
    if not is_name or not is_inside(path, folder):
        raise ValueError(
            f"{named_in}: names {name[:200]!r}, which is not a file or folder directly in {folder}. Only such names "
            "are followed: correct the file, or fetch the folder from its source again."
        )
    return path


def is_inside(path: Path, folder: Path) -> bool:
    """Returns whether a path leads, through links, to a place in a folder or to the blobs of its Hugging Face cache."""
    try:
        target, folder = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a loop of links, or a name that is too long
        return False
    if target.is_relative_to(folder):
        return True
    # CACHE/models--owner--name/snapshots/COMMIT/file -> CACHE/models--owner--name/blobs/HASH or CACHE/blobs/.../HASH
    models = [parent.parent for parent in folder.parents if parent.name == _CACHED]
    return any(target.is_relative_to(root / _BLOBS) for model in models for root in (model, model.parent))
