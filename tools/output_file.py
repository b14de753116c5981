"""Checks of a program's output file, made before it does any work."""

import os


def check_output(path, overwrite):
    """Raises if the path is a folder, is inside a file, or exists and `overwrite` is false."""
    if os.path.isdir(path):
        raise ValueError(f"--output={path} is a folder; give the path of a file")
    if os.path.isfile(os.path.dirname(path)):
        raise ValueError(f"--output={path} cannot be written: {os.path.dirname(path)} is a file, not a folder")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"--output={path} exists; give another name, or --overwrite to replace it")


def check_is_no_input(output, paths):
    """Raises if the output, which may be overwritten, is one of the input files."""
    if os.path.exists(output) and any(os.path.samefile(output, path) for path in paths):
        raise ValueError(f"--output={output} is one of the files of --input; give another name, or a narrower pattern")
