"""Reads and writes what a sentence-transformers folder has besides the BERT: pooling, a dense layer, normalization, and
the maximum length."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.bert_config import read_json, read_json_value, shorten
from keras_bert.weights.folder_paths import member_path
from keras_bert.weights.hugging_face_tokenizer import read_tokenizer, to_json
from keras_bert.weights.layout import PROJECTION
from keras_bert.weights.pytorch_file import open_pytorch
from keras_bert.weights.safetensors_file import open_safetensors
from keras_bert.weights.variable_map import StoredVariable

MODULES_NAME = "modules.json"
SETTINGS_NAME = "sentence_bert_config.json"
LIBRARY_CONFIG_NAME = "config_sentence_transformers.json"
_TRANSFORMER, _POOLING, _DENSE, _NORMALIZE = "Transformer", "Pooling", "Dense", "Normalize"
_MODULES = tuple(
    (_TRANSFORMER, _POOLING, *dense, *normalize) for dense in ((), (_DENSE,)) for normalize in ((), (_NORMALIZE,))
)
_PACKAGE = "sentence_transformers"
# Our poolings by their names in the versions from 6 on; and the flags of the older ones, with those that we lack.
_POOLINGS = {"cls": "cls", "max": "max", "mean": "mean", "weightedmean": "weighted"}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Our activations of the dense layer by the names of PyTorch's classes.
_ACTIVATIONS = {"torch.nn.modules.activation.Tanh": "tanh", "torch.nn.modules.linear.Identity": "linear"}
_DENSE_WEIGHTS, _KERNEL, _BIAS = "model.safetensors", "linear.weight", "linear.bias"
_EMBEDDING = "sentence_embedding"
_ADVICE = (
    "Such vectors cannot be computed by a BertTextEmbedder. To ignore these files, pass pooling=, normalize= and "
    "sequence_length=."
)


@dataclass(frozen=True)
class EmbeddingSettings:
    """How a sentence encoder makes one vector of a text."""

    pooling: str  # "mean", "cls", "max" or "weighted"
    normalize: bool  # whether vectors are scaled to length 1
    max_length: int | None  # maximum length of a text in tokens; None: that of the encoder
    projection: int | None = None  # size of a dense layer after the pooling
    projection_activation: str = "tanh"


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
    projection: dict[str, Any] = {}
    if _DENSE in paths:
        path = _check_member(folder, member_path(folder, paths[_DENSE], modules_path) / "config.json")
        settings = read_json(path)
        _check_names(path, settings)
        _require(path, "in_features", settings.get("in_features"), (hidden_size,))
        _require(path, "activation_function", settings.get("activation_function"), tuple(_ACTIVATIONS))
        size = settings.get("out_features")
        if type(size) is not int or size < 1:
            raise ValueError(
                f"{path}: out_features must be a positive integer; found {shorten(size)}. Correct the field."
            )
        activation = _ACTIVATIONS[settings["activation_function"]]
        projection = {"projection": size, "projection_activation": activation}
    if _NORMALIZE in paths:
        settings_path = member_path(folder, paths[_NORMALIZE], modules_path) / "config.json"
        if settings_path.is_file():  # older versions write none
            _check_names(settings_path, read_json(_check_member(folder, settings_path)))
    _check_prompt(folder / LIBRARY_CONFIG_NAME)
    return EmbeddingSettings(pooling, _NORMALIZE in paths, _read_max_length(folder), **projection)


def read_projection(folder: Path, settings: EmbeddingSettings, hidden_size: int) -> dict[str, np.ndarray]:
    """Reads the weights of a folder's dense layer by our variable path; none if it has no such layer."""
    if settings.projection is None:
        return {}
    modules_path = folder / MODULES_NAME
    dense = member_path(folder, _read_modules(modules_path)[_DENSE], modules_path)
    openers = {_DENSE_WEIGHTS: open_safetensors, "pytorch_model.bin": open_pytorch}
    name = next((name for name in openers if (dense / name).is_file()), None)
    if name is None:
        raise FileNotFoundError(f"{dense} has no file of weights, one of {list(openers)}; fetch the folder again")
    kernel, bias = f"{PROJECTION}/kernel", f"{PROJECTION}/bias"
    variables = {kernel: StoredVariable((_KERNEL,), transposed=True), bias: StoredVariable((_BIAS,))}
    shapes = {kernel: (hidden_size, settings.projection), bias: (settings.projection,)}
    with openers[name](_check_member(folder, dense / name)) as tensors:
        if _BIAS not in tensors.entries:
            arrays = tensors.read_variables({kernel: variables[kernel]}, shapes)
            return {**arrays, bias: np.zeros(shapes[bias], np.float32)}
        return tensors.read_variables(variables, shapes)


def embedding_files(settings: EmbeddingSettings, hidden_size: int) -> dict[str, str]:
    """Returns the contents of a folder's files for sentence-transformers by path, besides those of the BERT."""
    names = [_TRANSFORMER, _POOLING]
    names += [_DENSE] * (settings.projection is not None) + [_NORMALIZE] * settings.normalize
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
    flags = {flag: _POOLINGS.get(name) == settings.pooling for flag, name in _POOLING_FLAGS.items()}
    files = {
        MODULES_NAME: to_json(modules),
        "1_Pooling/config.json": to_json({"word_embedding_dimension": hidden_size, **flags, "include_prompt": True}),
        SETTINGS_NAME: to_json({"max_seq_length": settings.max_length, "do_lower_case": False}),
        LIBRARY_CONFIG_NAME: to_json({"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}),
    }
    if settings.projection is not None:
        activations = {activation: name for name, activation in _ACTIVATIONS.items()}
        sizes = {"in_features": hidden_size, "out_features": settings.projection, "bias": True}
        activation = {"activation_function": activations[settings.projection_activation]}
        files["2_Dense/config.json"] = to_json({**sizes, **activation})
    if settings.normalize:
        files[f"{len(names) - 1}_Normalize/config.json"] = to_json({})
    return files


def projection_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Returns the tensors of the dense layer by the path of their file in the folder; none without such a layer."""
    if f"{PROJECTION}/kernel" not in arrays:
        return {}
    tensors = {_KERNEL: arrays[f"{PROJECTION}/kernel"].T, _BIAS: arrays[f"{PROJECTION}/bias"]}
    return {f"2_Dense/{_DENSE_WEIGHTS}": tensors}


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
            f"{path}: the modules must be Transformer, Pooling and, at most, Dense and Normalize of {_PACKAGE}; found "
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
    return _POOLINGS[modes[0]]


def _check_names(path: Path, settings: Mapping[str, Any]) -> None:
    """Raises ValueError if a module reads or writes something other than the vector of the text."""
    for name in ("module_input_name", "module_output_name"):
        _require(path, name, settings.get(name, _EMBEDDING), (_EMBEDDING,))


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
