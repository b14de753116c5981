"""Figures as files, written whole or not at all."""

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
    from keras_bert.io.atomic_write import atomic_path

    with atomic_path(path, overwrite=True) as unfinished:
        figure.savefig(unfinished, format="png", dpi=_RESOLUTION)
