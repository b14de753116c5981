"""The file that a program writes, checked before it works."""

import os


def check_output(path, overwrite):
    """Raises if a file must not be written.

    Args:
        path: str.
        overwrite: bool. Whether a file that exists may be replaced.

    Raises:
        ValueError: if the path is that of a folder, or would be in a file.
        FileExistsError: if the file exists.
    """
    if os.path.isdir(path):
        raise ValueError(f"--output={path} is a folder; give the path of a file")
    if os.path.isfile(os.path.dirname(path)):
        raise ValueError(f"--output={path} cannot be written: {os.path.dirname(path)} is a file, not a folder")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"--output={path} exists; give another name, or --overwrite to replace it")


def check_is_no_input(output, paths):
    """Raises if a file that may be replaced is one that the program reads.

    Args:
        output: str.
        paths: list of str or Path.

    Raises:
        ValueError: if one of the files is the output.
    """
    if os.path.exists(output) and any(os.path.samefile(output, path) for path in paths):
        raise ValueError(f"--output={output} is one of the files of --input; give another name, or a narrower pattern")
