"""Figures as files, written whole or not at all."""

import os
import uuid
from pathlib import Path

from tools.output_file import check_output

_RESOLUTION = 120  # pixels an inch


def check_figure(path, overwrite):
    """Raises if a figure must not be written.

    Args:
        path: str.
        overwrite: bool. Whether a file that exists may be replaced.

    Raises:
        ValueError: if the name does not end in `.png`; and as `check_output`.
        FileExistsError: if the file exists.
    """
    if not path.endswith(".png"):
        raise ValueError(f"--output={path} must end in .png: the figure is written as PNG")
    check_output(path, overwrite)


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
