"""Figures as files, written whole or not at all."""

import os
import uuid
from pathlib import Path

_RESOLUTION = 120  # pixels an inch


def check_output(path, overwrite):
    """Raises if the figure must not be written.

    Args:
        path: str.
        overwrite: bool. Whether a file that exists may be replaced.

    Raises:
        ValueError: if the name does not end in `.png`, is that of a folder, or would be in a file.
        FileExistsError: if the file exists.
    """
    if not path.endswith(".png"):
        raise ValueError(f"--output={path} must end in .png: the figure is written as PNG")
    if os.path.isdir(path):
        raise ValueError(f"--output={path} is a folder; give the path of a file")
    if os.path.isfile(os.path.dirname(path)):
        raise ValueError(f"--output={path} cannot be written: {os.path.dirname(path)} is a file, not a folder")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"--output={path} exists; give another name, or --overwrite to replace it")


def write_figure(figure, path):
    """Writes a figure as PNG; the whole file or nothing.

    Args:
        figure: matplotlib `Figure`.
        path: str or Path. A file of this name is replaced.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished-{uuid.uuid4().hex}")
    try:
        figure.savefig(unfinished, format="png", dpi=_RESOLUTION)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
