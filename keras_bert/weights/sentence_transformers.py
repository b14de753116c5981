"""Reads and writes what a sentence-transformers folder has besides the BERT: pooling, normalization, maximum length."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_bert.weights.bert_config import read_json, read_json_value, shorten
from keras_bert.weights.folder_paths import member_path
from keras_bert.weights.hugging_face_tokenizer import read_tokenizer, to_json

MODULES_NAME = "modules.json"
SETTINGS_NAME = "sentence_bert_config.json"
LIBRARY_CONFIG_NAME = "config_sentence_transformers.json"
_TRANSFORMER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
_MODULES = ((_TRANSFORMER, _POOLING), (_TRANSFORMER, _POOLING, _NORMALIZE))
_PACKAGE = "sentence_transformers"
# Their names of our poolings in the versions from 6 on; and the flags of the older ones, with those that we lack.
_POOLINGS = ("cls", "max", "mean")
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_EMBEDDING = "sentence_embedding"
_ADVICE = (
    "Such vectors cannot be computed by a BertFeatureExtractor. To ignore these files, pass pooling=, normalize= and "
    "sequence_length=."
)


@dataclass(frozen=True)
class EmbeddingSettings:
    """How a sentence encoder makes one vector of a text."""

    pooling: str  # "mean", "cls" or "max"
    normalize: bool  # whether vectors are scaled to length 1
    max_length: int | None  # maximum length of a text in tokens; None: that of the encoder


def read_embedding_settings(folder: Path, hidden_size: int) -> EmbeddingSettings | None:
    """Reads the settings of a sentence-transformers folder; None if it is not one.

    Raises ValueError if a file is corrupt, or if the folder has a module or a setting that we do not have.

    >>> read_embedding_settings(Path("folder/of/a/bert"), hidden_size=384) is None
    True
    """
    modules_path = folder / MODULES_NAME
    if not modules_path.is_file():
        return None
    paths = _read_modules(modules_path)
    pooling_path = member_path(folder, paths[_POOLING], modules_path) / "config.json"
    pooling = _read_pooling(_check_member(folder, pooling_path), hidden_size)
    if _NORMALIZE in paths:
        settings_path = member_path(folder, paths[_NORMALIZE], modules_path) / "config.json"
        if settings_path.is_file():  # older versions write none
            settings = read_json(_check_member(folder, settings_path))
            for name in ("module_input_name", "module_output_name"):
                _require(settings_path, name, settings.get(name, _EMBEDDING), (_EMBEDDING,))
    _check_prompt(folder / LIBRARY_CONFIG_NAME)
    return EmbeddingSettings(pooling, _NORMALIZE in paths, _read_max_length(folder))


def embedding_files(settings: EmbeddingSettings, hidden_size: int) -> dict[str, str]:
    """Returns the contents of a folder's files for sentence-transformers by path, besides those of the BERT."""
    names = [_TRANSFORMER, _POOLING, *([_NORMALIZE] if settings.normalize else [])]
    modules = [
        # The names of all versions so far: the newer ones map them to their own.
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{name}" if index else "",
            "type": f"{_PACKAGE}.models.{name}",
        }
        for index, name in enumerate(names)
    ]
    flags = {flag: pooling == settings.pooling for flag, pooling in _POOLING_FLAGS.items()}
    files = {
        MODULES_NAME: to_json(modules),
        "1_Pooling/config.json": to_json({"word_embedding_dimension": hidden_size, **flags, "include_prompt": True}),
        SETTINGS_NAME: to_json({"max_seq_length": settings.max_length, "do_lower_case": False}),
        LIBRARY_CONFIG_NAME: to_json({"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}),
    }
    if settings.normalize:
        files["2_Normalize/config.json"] = to_json({})
    return files


def _read_modules(path: Path) -> dict[str, str]:
    """Returns the folder of each module by its name."""
    modules = read_json_value(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError(f"{path}: expected a list of modules; found {shorten(modules)}. Fetch the file again.")
    types = [module.get("type") for module in modules]
    names = tuple(
        kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith(f"{_PACKAGE}.") else None for kind in types
    )
    if names not in _MODULES:
        raise ValueError(
            f"{path}: the modules must be Transformer, Pooling and, at most, Normalize of {_PACKAGE}; found "
            f"{shorten(types)}. {_ADVICE}"
        )
    paths = {name: module.get("path") for name, module in zip(names, modules, strict=True) if name is not None}
    for name, folder in paths.items():
        if not isinstance(folder, str) or (name == _TRANSFORMER and folder):
            expected = 'must be ""' if name == _TRANSFORMER else "must be a name"
            raise ValueError(
                f"{path}: the path of the module {name} {expected}; found {shorten(folder)}. Save the model again with "
                f"a current version of {_PACKAGE}, or pass the folder of the Transformer with pooling=, normalize= and "
                "sequence_length=."
            )
    return paths


def _check_member(folder: Path, path: Path) -> Path:
    """Returns the path of a module's file; ValueError if a link takes it out of the folder."""
    member_path(path.parent, path.name, folder / MODULES_NAME)
    return path


def _read_pooling(path: Path, hidden_size: int) -> str:
    settings = read_json(path)
    name = settings.get("pooling_mode")
    if name is None:
        modes = [pooling for flag, pooling in _POOLING_FLAGS.items() if settings.get(flag)]
    else:
        modes = name if isinstance(name, list) else [name]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ValueError(f"{path}: the pooling must be one of {list(_POOLINGS)}; found {shorten(modes)}. {_ADVICE}")
    for name in ("word_embedding_dimension", "embedding_dimension"):
        if settings.get(name) is not None:
            _require(path, name, settings[name], (hidden_size,))
    return modes[0]


def _read_max_length(folder: Path) -> int | None:
    """Returns the maximum length that the Transformer module, or the tokenizer, states."""
    path = folder / SETTINGS_NAME
    settings = read_json(path) if path.is_file() else {}
    _require(path, "transformer_task", settings.get("transformer_task", "feature-extraction"), ("feature-extraction",))
    if settings.get("modality_config") is not None:
        text = {"method": "forward", "method_output_name": "last_hidden_state"}
        _require(path, "modality_config", settings["modality_config"], ({"text": text},))
    tokenizer = read_tokenizer(folder)
    # The library lower-cases texts itself then, which changes nothing before a tokenizer that does.
    lower_cases = settings.get("do_lower_case") or False
    _require(path, "do_lower_case", lower_cases, (False, True) if tokenizer.lower_case else (False,))
    length = settings.get("max_seq_length")
    if length is None:
        return tokenizer.max_length
    if type(length) is not int or length < 2:
        raise ValueError(
            f"{path}: max_seq_length must be an integer of at least 2; found {shorten(length)}. Correct the field."
        )
    return length


def _check_prompt(path: Path) -> None:
    """Raises ValueError if the library puts a prompt before every text."""
    settings = read_json(path) if path.is_file() else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is not None and not (isinstance(prompts, Mapping) and isinstance(name, str) and prompts.get(name) == ""):
        raise ValueError(
            f"{path}: default_prompt_name must be null; found {shorten(name)}, which puts a prompt before every text. "
            "Pass pooling=, normalize= and sequence_length=, and put the prompt before the texts yourself."
        )


def _require(path: Path, name: str, found: Any, allowed: tuple[Any, ...]) -> None:
    if found not in allowed:
        raise ValueError(
            f"{path}: {name} must be {' or '.join(map(json.dumps, allowed))}; found {shorten(found)}. {_ADVICE}"
        )
