"""Reads the JSON configuration of a BERT, and checks the vocabulary against it."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.io.untrusted_files import parse_json

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
MAX_JSON_BYTES = 2**24
_MAX_VALUES = 2_000_000  # each takes up to about 60 bytes, whatever its length in the file
_MAX_DEPTH = 32
_MAX_DIGITS = 40
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Reads a JSON object; FileNotFoundError or ValueError if there is none, or if the file is unsafe to read.

    Refused are files over `max_bytes` or of more than two million values, duplicate keys, NaN and infinities, integers
    of more than 40 digits, values nested more than 32 deep and text that is not Unicode.
    """
    value = read_json_value(path, max_bytes)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}. Fetch the file again.")
    return value


def read_json_value(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Reads a JSON value of any type, with the limits of `read_json`."""
    if not path.is_file():
        held = sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []
        raise FileNotFoundError(
            f"{path}: there is no such file; the folder contains {shorten(held)}. The weights need it: copy the "
            f"{path.name} of the model (for a fine-tuned one: of the model that it started from) into the folder."
        )
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(f"{path}: has {size} bytes; at most {max_bytes} are read. Check that it is the right file.")
    with open(path, "rb") as file:
        data = file.read(size)
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > _MAX_VALUES:
        raise ValueError(f"{path}: has more than {_MAX_VALUES} values. Check that it is the right file.")
    try:
        value = parse_json(
            data,
            _MAX_DEPTH,
            object_pairs_hook=_unique_object,
            parse_int=_parse_integer,
            parse_float=_parse_float,
            parse_constant=_refuse_number,
        )
        if _SURROGATE_ESCAPE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError as error:  # invalid JSON, undecodable bytes, or over a limit
        raise ValueError(f"{path}: not JSON ({error}); the file has {len(data)} bytes. Fetch it again.") from error
    return value


def shorten(value: Any, max_characters: int = 200) -> str:
    """Returns the `repr` of a value from a file, cut for an error message.

    >>> shorten("a" * 9, max_characters=5)
    "'aaaa..."
    """
    text = repr(value)
    return text if len(text) <= max_characters else f"{text[:max_characters]}..."


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"the key {shorten(twice)} occurs twice in an object")
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} characters; at most {_MAX_DIGITS} are read")
    return int(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse_number(digits)


def _refuse_number(text: str) -> Any:
    raise ValueError(f"the number {shorten(text, 40)} is not finite")


def parse_encoder_arguments(config: Mapping[str, Any], path: Path, activations: Mapping[str, str]) -> dict[str, Any]:
    """Checks a configuration and converts it to the encoder's constructor arguments.

    `path` is its file, for error messages; `activations` maps the file's `hidden_act` to ours.
    """
    missing = [name for name in (*SIZE_NAMES, "hidden_act") if name not in config]
    if missing:
        raise ValueError(
            f"{path}: the fields {missing} are missing; found {shorten(sorted(config))}. Pass the configuration of a "
            "BERT."
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
            f"{path}: hidden_act must be one of {sorted(activations)}; found {shorten(activation)}. A model with "
            "another activation cannot be read."
        )
    arguments["hidden_act"] = activations[activation]
    return arguments | {name: read_rate(config, name, path, default) for name, default in _RATES.items()}


def read_rate(config: Mapping[str, Any], name: str, path: Path, default: float) -> float:
    """Returns a number in [0, 1) from a configuration; the default where it is omitted or null."""
    value = config.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 <= value < 1):
        raise ValueError(f"{path}: {name} must be a number in [0, 1); found {shorten(value)}. Correct the field.")
    return float(value)


def find_vocabulary(folder: Path, vocab_size: int | None, config_path: Path, name: str = "vocab.txt") -> Path | None:
    """Returns the folder's vocabulary if there is one; ValueError if it does not have `vocab_size` lines, if given."""
    path = folder / name
    if not path.is_file():
        return None
    data = path.read_bytes()
    # Only "\n" ends a line: a vocabulary may contain U+2028.
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if vocab_size is not None and lines != vocab_size:
        raise ValueError(
            f"{path}: expected {vocab_size} lines, the vocab_size of {config_path}; found {lines}. "
            "Put the vocabulary that belongs to these weights into the folder."
        )
    return path


def _read_size(value: Any, name: str, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{path}: {name} must be an integer of at least 1; found {shorten(value)}. Correct the field.")
    return value
