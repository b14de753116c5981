"""Reads the JSON configuration of a BERT, and checks the vocabulary against it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZE_NAMES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# Defaults of omitted fields: BertConfig in google-research/bert modeling.py, and the epsilon of the
# tf.contrib.layers.layer_norm that it calls.
_RATES = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; FileNotFoundError or ValueError if there is none."""
    if not path.is_file():
        held = sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []
        raise FileNotFoundError(
            f"{path}: there is no such file; the folder contains {held}. The weights need it: copy the {path.name} of "
            "the model (for a fine-tuned one: of the model that it started from) into the folder."
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # invalid JSON or undecodable bytes
        size = path.stat().st_size
        raise ValueError(f"{path}: not JSON ({error}); the file has {size} bytes. Fetch it again.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}. Fetch the file again.")
    return value


def parse_encoder_arguments(config: Mapping[str, Any], path: Path, activations: Mapping[str, str]) -> dict[str, Any]:
    """Checks a configuration and converts it to the encoder's constructor arguments.

    `path` is its file, for error messages; `activations` maps the file's `hidden_act` to ours.
    """
    missing = [name for name in (*SIZE_NAMES, "hidden_act") if name not in config]
    if missing:
        raise ValueError(
            f"{path}: the fields {missing} are missing; found {sorted(config)}. Pass the configuration of a BERT."
        )
    arguments: dict[str, Any] = {name: _read_size(config[name], name, path) for name in SIZE_NAMES}
    if arguments["hidden_size"] % arguments["num_attention_heads"]:
        raise ValueError(
            f"{path}: hidden_size must be a multiple of num_attention_heads; found hidden_size "
            f"{arguments['hidden_size']} and num_attention_heads {arguments['num_attention_heads']}. Correct them."
        )
    activation = config["hidden_act"]
    if not isinstance(activation, str) or activation not in activations:
        raise ValueError(
            f"{path}: hidden_act must be one of {sorted(activations)}; found {activation!r}. A model with another "
            "activation cannot be read."
        )
    arguments["hidden_act"] = activations[activation]
    return arguments | {name: read_rate(config, name, path, default) for name, default in _RATES.items()}


def read_rate(config: Mapping[str, Any], name: str, path: Path, default: float) -> float:
    """Returns a number in [0, 1) from a configuration; the default where it is omitted or null."""
    value = config.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 <= value < 1):
        raise ValueError(f"{path}: {name} must be a number in [0, 1); found {value!r}. Correct the field.")
    return float(value)


def find_vocabulary(folder: Path, vocab_size: int, config_path: Path, name: str = "vocab.txt") -> Path | None:
    """Returns the folder's vocabulary if there is one; ValueError if it does not have `vocab_size` lines."""
    path = folder / name
    if not path.is_file():
        return None
    data = path.read_bytes()
    # Only "\n" ends a line: a vocabulary may contain U+2028.
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if lines != vocab_size:
        raise ValueError(
            f"{path}: expected {vocab_size} lines, the vocab_size of {config_path}; found {lines}. "
            "Put the vocabulary that belongs to these weights into the folder."
        )
    return path


def _read_size(value: Any, name: str, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{path}: {name} must be an integer of at least 1; found {value!r}. Correct the field.")
    return value
