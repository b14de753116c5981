"""Reads and writes LoRA adapters (arXiv 2106.09685) as folders of Hugging Face's PEFT library.

A folder holds `adapter_config.json` and `adapter_model.safetensors`: two matrices for each adapted dense layer, with
query, key and value as layers of their own, and the head.
"""

import json
import math
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from safetensors.numpy import save_file

from keras_bert.io.atomic_write import atomic_folder
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import read_json
from keras_bert.weights.encoder_kinds import EncoderKind
from keras_bert.weights.hugging_face import (
    CLASSIFIER_HEADS,
    SPANS,
    map_classifier,
    map_encoder_kind,
    map_hugging_face_pretraining_heads,
)
from keras_bert.weights.layout import CLASSIFIER_HEAD, TOKEN_HEAD, Shapes
from keras_bert.weights.safetensors_file import open_safetensors
from keras_bert.weights.tensor_file import TensorFile
from keras_bert.weights.variable_map import StoredVariable, VariableMap, select_head

ADAPTER_CONFIG_NAME = "adapter_config.json"
ADAPTER_WEIGHTS_NAME = "adapter_model.safetensors"
# PEFT's names of the dense layers, the path of each in a block or encoder, and its part of the kernel. PEFT compares
# ends of names, and would also take "attention.output.dense" for an "output.dense"; here it is the feed-forward one.
TARGETS: Mapping[str, tuple[str, int]] = {
    "query": ("self_attention/query_key_value", 0),
    "key": ("self_attention/query_key_value", 1),
    "value": ("self_attention/query_key_value", 2),
    "attention.output.dense": ("self_attention/output", 0),
    "intermediate.dense": ("intermediate", 0),
    "output.dense": ("output", 0),
    "pooler.dense": ("pooler", 0),
}
_ATTENTION_OUTPUT, _OUTPUT = "attention.output.dense", "output.dense"
# The ends of the modules' names as regular expressions, for a selection that no list of ends describes.
_PATTERNS = {
    **{name: rf"attention\.self\.{name}" for name in ("query", "key", "value")},
    _ATTENTION_OUTPUT: r"attention\.output\.dense",
    "intermediate.dense": r"intermediate\.dense",
    _OUTPUT: r"layer\.\d+\.output\.dense",
    "pooler.dense": r"pooler\.dense",
}
_PREFIX = "base_model.model."
# Spans have none: PEFT 0.21's class for QUESTION_ANS does not pass token_type_ids on, and computes other logits.
_TASK_TYPES = {CLASSIFIER_HEAD: "SEQ_CLS", TOKEN_HEAD: "TOKEN_CLS"}
_KERNEL = re.compile(r"(?:.*/)?(?:transformer_block_\d+/(?P<layer>.+)|(?P<pooler>pooler))/kernel")
# Fields without influence on the outputs. Any other one that is set is refused by name.
_HARMLESS = {
    "auto_mapping", "base_model_name_or_path", "inference_mode", "megatron_core", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "task_type",
}  # fmt: skip
_READ = {
    "bias", "init_lora_weights", "lora_alpha", "lora_dropout", "modules_to_save", "peft_type", "r", "target_modules",
    "use_rslora",
}  # fmt: skip
_PLAIN_INITIALIZERS = (None, True, False, "gaussian")  # others change the weights of the base model
_MAX_ALPHA = 1e6
_MAX_NAMES_LISTED = 5


@dataclass(frozen=True, eq=False)
class Adapter:
    """A LoRA adapter, in the layout of `keras_bert.layers.dense.Dense`."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]  # names of `TARGETS`, in their order; adapted in all layers
    # [input size, parts * rank] and [rank, parts * units of a part] float32, by the path of the kernel. The adapted
    # parts of a fused kernel are side by side.
    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]
    head: Mapping[str, np.ndarray]  # variables outside of the encoder by path; empty if the file has none


@dataclass(frozen=True)
class _Module:
    """A dense layer of the encoder, as PEFT divides it."""

    target: str
    kernel: str  # path of our variable
    part: int


def target_parts(targets: Collection[str]) -> dict[str, tuple[bool, ...]]:
    """Returns which parts of each kernel are adapted, by the layer's path in a block or encoder.

    >>> target_parts(["query", "value", "pooler.dense"])
    {'self_attention/query_key_value': (True, False, True), 'pooler': (True,)}
    """
    unknown = sorted(str(target) for target in targets if target not in TARGETS)
    if unknown or not targets:
        raise ValueError(f"the targets of LoRA must be any of {', '.join(TARGETS)}; got {', '.join(unknown) or 'none'}")
    parts: dict[str, tuple[bool, ...]] = {}
    for path in dict.fromkeys(path for path, _ in TARGETS.values()):
        adapted = tuple(name in targets for name, (layer, _) in TARGETS.items() if layer == path)
        if any(adapted):
            parts[path] = adapted
    return parts


def ordered_targets(targets: Collection[str]) -> tuple[str, ...]:
    """Returns the targets in the order of `TARGETS`, each once; ValueError for unknown ones."""
    target_parts(targets)
    return tuple(name for name in TARGETS if name in targets)


def read_adapter(
    path: PathLike, kind: EncoderKind, arguments: Mapping[str, Any], shapes: Shapes, head_paths: Collection[str]
) -> Adapter:
    """Reads a PEFT folder for a model, everything checked before a matrix is read.

    `kind` and `arguments` are those of the model's encoder, and `shapes` those of its variables by path, the encoder's
    under `encoder/`; `head_paths` are the paths of those that are trained with an adapter. Raises FileNotFoundError if
    a file is missing, and ValueError if the folder is damaged, does not fit the model, or has a setting that changes
    outputs and is not supported; the message names it.
    """
    folder = Path(path)
    config_path, weights = folder / ADAPTER_CONFIG_NAME, folder / ADAPTER_WEIGHTS_NAME
    if not config_path.is_file():
        raise FileNotFoundError(f"{config_path}: there is no such file; give the folder of a PEFT adapter")
    config = read_json(config_path)
    rank, alpha, dropout = _check_config(config, config_path)
    if not weights.is_file():
        raise FileNotFoundError(
            f"{weights}: there is no such file. An adapter is read from safetensors alone; save an adapter_model.bin "
            "again with PEFT's save_pretrained(folder, safe_serialization=True)"
        )
    with open_safetensors(weights) as tensors:
        inner = {name.removeprefix(_PREFIX) for name in tensors.entries}
        variables = _map_model(kind, arguments, shapes, inner)
        modules = _map_modules(variables)
        adapted = _adapted_modules(config, config_path, tensors, modules)
        _check_modules_to_save(config, config_path, tensors, variables, head_paths)
        head = {name: _prefixed(stored) for name, stored in variables.items() if name in head_paths}
        head = select_head(head, tensors.entries.keys())
        matrices = {
            f"{module}.lora_{matrix}": StoredVariable((_tensor_name(module, matrix),), transposed=True)
            for module in adapted
            for matrix in ("A", "B")
        }
        known = {name for stored in (*matrices.values(), *head.values()) for name in stored.names}
        unknown = sorted(tensors.entries.keys() - known)
        if unknown:
            raise ValueError(
                f"{weights}: the tensors {_listed(unknown)} do not belong to an adapter of this model. Adapters of the "
                f"layers {', '.join(TARGETS)} and the whole head can be read; merge others into the base model with "
                "PEFT's merge_and_unload()"
            )
        all_shapes = {name: shapes[name] for name in head}
        for name, module in adapted.items():
            size_in, size_out = shapes[module.kernel]
            all_shapes[f"{name}.lora_A"] = (size_in, rank)
            all_shapes[f"{name}.lora_B"] = (rank, size_out // _num_parts(module.kernel))
        arrays = tensors.read_variables({**matrices, **head}, all_shapes)
    nonfinite = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if nonfinite:
        raise ValueError(f"{weights}: {_listed(nonfinite)} contain NaN or infinite values. Fetch or train it again.")
    found = {module.target for module in adapted.values()}
    return Adapter(
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        targets=tuple(name for name in TARGETS if name in found),
        matrices=_join_parts(arrays, adapted),
        head={name: arrays[name] for name in head},
    )


def write_adapter(
    path: PathLike,
    adapter: Adapter,
    kind: EncoderKind,
    arguments: Mapping[str, Any],
    base_model: str | None = None,
) -> Path:
    """Writes an adapter as a PEFT folder, completely or not at all; returns the folder.

    `base_model` is the name or folder of the model that the adapter belongs to, which PEFT's `AutoPeftModel` loads.
    Raises FileExistsError if `path` exists, and is not an empty folder.
    """
    path = Path(path)
    paths = {*adapter.matrices, *adapter.head}
    variables = _map_model(kind, arguments, paths, ("bert.",))
    tensors: dict[str, np.ndarray] = {}
    for name, module in _map_modules(variables).items():
        if module.target in adapter.targets:
            a, b = adapter.matrices[module.kernel]
            position = _position(module, adapter.targets)
            width = b.shape[1] // _num_adapted(module.kernel, adapter.targets)
            tensors[_tensor_name(name, "A")] = a[:, position * adapter.rank : (position + 1) * adapter.rank].T
            tensors[_tensor_name(name, "B")] = b[:, position * width : (position + 1) * width].T
    for name, array in adapter.head.items():
        tensors |= _prefixed(variables[name]).split(array)
    config: dict[str, Any] = {
        "alpha_pattern": {},
        "auto_mapping": None,
        "base_model_name_or_path": base_model,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(adapter.alpha) if float(adapter.alpha).is_integer() else float(adapter.alpha),
        "lora_dropout": adapter.dropout,
        "modules_to_save": _head_modules({name: variables[name] for name in adapter.head}) or None,
        "peft_type": "LORA",
        "r": int(adapter.rank),
        "rank_pattern": {},
        "revision": None,
        "target_modules": _target_modules(adapter.targets),
        "task_type": next((task for head, task in _TASK_TYPES.items() if f"{head}/kernel" in paths), None),
        "use_dora": False,
        "use_rslora": False,
    }
    with atomic_folder(path) as folder:
        (folder / ADAPTER_CONFIG_NAME).write_bytes((json.dumps(config, indent=2) + "\n").encode("utf-8"))
        stored = {name: np.asarray(tensor, "float32", order="C") for name, tensor in tensors.items()}
        save_file(stored, folder / ADAPTER_WEIGHTS_NAME, metadata={"format": "pt"})
        shutil.copymode(folder / ADAPTER_CONFIG_NAME, folder / ADAPTER_WEIGHTS_NAME)
    logging.info("wrote an adapter of rank %d, %d tensors, to %s", adapter.rank, len(tensors), path)
    return path


def _check_config(config: Mapping[str, Any], path: Path) -> tuple[int, float, float]:
    """Returns rank, alpha and dropout; ValueError for anything that cannot be honoured."""

    def require(is_valid: bool, name: str, allowed: str, advice: str = "Correct the field.") -> None:
        if not is_valid:
            raise ValueError(f"{path}: {name} must be {allowed}; found {_shown(config.get(name))}. {advice}")

    merge = "Merge such an adapter into the base model with PEFT's merge_and_unload(), and read the result."
    require(config.get("peft_type") == "LORA", "peft_type", "'LORA'", "Other kinds of adapters cannot be read.")
    require(config.get("bias", "none") == "none", "bias", "'none'", merge)
    initializer = config.get("init_lora_weights")
    require(initializer in _PLAIN_INITIALIZERS, "init_lora_weights", "true, false or 'gaussian'", merge)
    for name, value in config.items():
        if name not in _HARMLESS | _READ and value:
            raise ValueError(f"{path}: {name} is not supported; found {_shown(value)}. {merge}")
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    is_rank = isinstance(rank, int) and not isinstance(rank, bool) and rank >= 1
    require(is_rank, "r", "an integer of at least 1")
    require(_is_number(alpha) and 0 < alpha <= _MAX_ALPHA, "lora_alpha", f"a number above 0, at most {_MAX_ALPHA:g}")
    dropout: Any = 0.0 if config.get("lora_dropout") is None else config["lora_dropout"]
    require(_is_number(dropout) and 0 <= dropout < 1, "lora_dropout", "a number in [0, 1)")
    require(config.get("use_rslora") in (None, True, False), "use_rslora", "true or false")
    for name in ("target_modules", "modules_to_save"):
        value = config.get(name)
        is_names = isinstance(value, list) and all(isinstance(item, str) for item in value)
        is_pattern = name == "target_modules" and isinstance(value, str)
        require(is_names or is_pattern or value is None, name, "a list of names")
    # rsLoRA (arXiv 2312.03732) divides by the root of the rank.
    if config.get("use_rslora"):
        require(rank <= _MAX_ALPHA, "r", f"an integer of at most {_MAX_ALPHA:g}")
        return rank, float(alpha) * math.sqrt(rank), float(dropout)
    return rank, alpha, float(dropout)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _map_model(
    kind: EncoderKind, arguments: Mapping[str, Any], paths: Collection[str], names: Collection[str]
) -> VariableMap:
    """Maps the model's variables of the given paths to the names of Hugging Face's library; `names` as `map_bert`."""
    variables = map_encoder_kind(kind, arguments, names)
    for head in CLASSIFIER_HEADS.values():
        if f"{head}/kernel" in paths:
            variables |= map_classifier(head)
    variables |= SPANS
    variables |= map_hugging_face_pretraining_heads(("cls.predictions.bias", "cls.seq_relationship.bias"))
    return {path: stored for path, stored in variables.items() if path in paths}


def _map_modules(variables: VariableMap) -> dict[str, _Module]:
    """Returns the encoder's dense layers by PEFT's name of the module."""
    by_layer = {place: target for target, place in TARGETS.items()}
    modules = {}
    for path, stored in variables.items():
        match = _KERNEL.fullmatch(path) if path.startswith("encoder/") else None
        layer = match and (match["layer"] or match["pooler"])
        for part, name in enumerate(stored.names):
            target = by_layer.get((layer, part)) if layer else None
            if target is not None:
                modules[name.removesuffix(".weight")] = _Module(target, path, part)
    return modules


def _adapted_modules(
    config: Mapping[str, Any],
    path: Path,
    tensors: TensorFile,
    modules: Mapping[str, _Module],
) -> dict[str, _Module]:
    """Returns the modules that the folder adapts: by its configuration, or by its tensors if that has a pattern."""
    in_file = {name for name in modules if any(_tensor_name(name, matrix) in tensors.entries for matrix in "AB")}
    targets = config.get("target_modules")
    if isinstance(targets, list):
        ends = set(targets)
        adapted = {name for name in modules if not ends.isdisjoint(_ends(name))}
        surplus = sorted(in_file - adapted)
        if surplus:
            raise ValueError(
                f"{tensors.path}: has adapters of {_listed(surplus)}, which target_modules {_shown(targets)} in {path} "
                "does not name. The two files do not belong together: fetch them again."
            )
    else:
        adapted = in_file
    if not adapted:
        raise ValueError(
            f"{path}: target_modules {_shown(targets)} names no dense layer of this model that has an adapter in "
            f"{tensors.path}; the layers are {', '.join(TARGETS)}. Is it an adapter of another kind of model?"
        )
    found = {modules[name].target for name in adapted}
    missing = sorted(name for name, module in modules.items() if module.target in found and name not in adapted)
    if missing:
        raise ValueError(
            f"{path}: adapts some layers, but not {_listed(missing)}; only adapters of all layers can be read. Merge "
            "it into the base model with PEFT's merge_and_unload(), and read the result."
        )
    return {name: module for name, module in modules.items() if name in adapted}


def _check_modules_to_save(
    config: Mapping[str, Any], path: Path, tensors: TensorFile, variables: VariableMap, head_paths: Collection[str]
) -> None:
    saved = set(config.get("modules_to_save") or ())
    for variable, stored in variables.items():
        for name in stored.names:
            # A module that contains the tensor, at any depth.
            module = name.rpartition(".")[0]
            parents = [module, *(module[: match.start()] for match in re.finditer(r"\.", module))]
            named = next((end for parent in parents for end in _ends(parent) if end in saved), None)
            if named is None or _PREFIX + name in tensors.entries:
                continue
            if variable not in head_paths:
                raise ValueError(
                    f"{path}: modules_to_save must be modules of the head; found {named!r}, which has weights of the "
                    "encoder. Merge the adapter into the base model with PEFT's merge_and_unload(), and read that."
                )
            raise ValueError(
                f"{tensors.path}: modules_to_save in {path} has {named!r}, but there is no tensor {_PREFIX + name!r}. "
                "Fetch the files again."
            )


def _ends(module: str) -> Iterator[str]:
    """Yields the ends of a module's name at its dots: PEFT selects modules by them."""
    yield module
    for match in re.finditer(r"\.", module):
        yield module[match.end() :]


def _tensor_name(module: str, matrix: str) -> str:
    return f"{_PREFIX}{module}.lora_{matrix}.weight"


def _prefixed(stored: StoredVariable) -> StoredVariable:
    return replace(stored, names=tuple(_PREFIX + name for name in stored.names))


def _join_parts(
    arrays: Mapping[str, np.ndarray], adapted: Mapping[str, _Module]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Joins the matrices of each kernel's parts, which `adapted` has in order."""
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for name, module in adapted.items():
        pairs.setdefault(module.kernel, []).append((arrays[f"{name}.lora_A"], arrays[f"{name}.lora_B"]))
    return {
        kernel: (np.concatenate([a for a, _ in parts], axis=1), np.concatenate([b for _, b in parts], axis=1))
        for kernel, parts in pairs.items()
    }


def _parts_of(kernel: str) -> dict[int, str]:
    """Returns the targets of a kernel's parts."""
    match = _KERNEL.fullmatch(kernel)
    assert match is not None
    layer = match["layer"] or match["pooler"]
    return {part: target for target, (path, part) in TARGETS.items() if path == layer}


def _num_parts(kernel: str) -> int:
    return len(_parts_of(kernel))


def _num_adapted(kernel: str, targets: Collection[str]) -> int:
    return sum(target in targets for target in _parts_of(kernel).values())


def _position(module: _Module, targets: Collection[str]) -> int:
    """Returns the number of adapted parts before a module's."""
    return sum(target in targets for part, target in _parts_of(module.kernel).items() if part < module.part)


def _target_modules(targets: Collection[str]) -> list[str] | str:
    if _OUTPUT in targets and _ATTENTION_OUTPUT not in targets:
        return rf".*\.(?:{'|'.join(_PATTERNS[target] for target in targets)})"
    return list(targets)


def _head_modules(head: VariableMap) -> list[str]:
    names = (name for stored in head.values() for name in stored.names)
    return list(dict.fromkeys(name.removesuffix(".weight") for name in names if name.endswith(".weight")))


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:_MAX_NAMES_LISTED])
    return shown + (f" and {len(names) - _MAX_NAMES_LISTED} more" if len(names) > _MAX_NAMES_LISTED else "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
