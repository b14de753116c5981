"""The JSON configuration beside the weights, and the vocabulary that has to fit it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# What files may leave out: the defaults of BertConfig in google-research/bert modeling.py, and the epsilon of the
# tf.contrib.layers.layer_norm that it calls.
_RATES = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object, such as google-research/bert's `bert_config.json`.

    Args:
        path: Path of the file.

    Returns:
        The object as a dict.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not a JSON object in UTF-8.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "bert_config.json"
    >>> _ = path.write_text('{"hidden_size": 4}')
    >>> read_json(path)
    {'hidden_size': 4}
    """
    if not path.is_file():
        held = sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []
        raise FileNotFoundError(
            f"{path}: there is no such file; the folder holds {held}. The weights need it beside them: copy the "
            f"{path.name} of the model (for a fine-tuned one: of the model that it started from) into the folder."
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # both a JSON mistake and undecodable bytes
        size = path.stat().st_size
        raise ValueError(f"{path}: not JSON ({error}); the file has {size} bytes. Fetch it again.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}. Fetch the file again.")
    return value


def encoder_arguments(config: Mapping[str, Any], path: Path, activations: Mapping[str, str]) -> dict[str, Any]:
    """Checks a configuration and turns it into the encoder's constructor arguments (google-research/bert `BertConfig`).

    Args:
        config: dict as read from the file.
        path: Path of that file, for messages.
        activations: dict {`hidden_act` of the file: our name of it}.

    Returns:
        A dict of the twelve arguments, sizes as ints and rates as floats. Where the file leaves them out: both dropouts
        0.1, `initializer_range` 0.02, `layer_norm_eps` 1e-12.

    Raises:
        ValueError: if a field is missing or its value is not possible.

    Example:

    >>> config = dict(vocab_size=7, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    ...               max_position_embeddings=8, type_vocab_size=2, hidden_act="relu")
    >>> encoder_arguments(config, Path("bert_config.json"), {"relu": "relu"})["layer_norm_eps"]
    1e-12
    """
    missing = [name for name in (*_SIZES, "hidden_act") if name not in config]
    if missing:
        raise ValueError(
            f"{path}: the fields {missing} are missing; found {sorted(config)}. Pass the configuration of a BERT."
        )
    arguments = {name: _size(config[name], name, path) for name in _SIZES}
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
    arguments |= {name: read_rate(config, name, path, default) for name, default in _RATES.items()}
    return arguments


def read_rate(config: Mapping[str, Any], name: str, path: Path, default: float) -> float:
    """A number between 0 and 1 from a configuration (`BertConfig` of google-research/bert `modeling.py`).

    Args:
        config: dict as read from the file.
        name: str, the field.
        path: Path of the file, for messages.
        default: float, taken where the field is left out or null.

    Returns:
        A float in [0, 1).

    Raises:
        ValueError: if the value is not such a number.

    Example:

    >>> read_rate({"hidden_dropout_prob": 0.2}, "hidden_dropout_prob", Path("config.json"), 0.1)
    0.2
    """
    value = config.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 <= value < 1):
        raise ValueError(f"{path}: {name} must be a number in [0, 1); found {value!r}. Correct the field.")
    return float(value)


def find_vocabulary(folder: Path, vocab_size: int, config_path: Path) -> Path | None:
    """Finds `vocab.txt` and checks its number of lines (`load_vocab` of google-research/bert `tokenization.py`).

    Args:
        folder: Path where the weights lie.
        vocab_size: int, rows of the embedding table.
        config_path: Path of the configuration that says so, for messages.

    Returns:
        The Path of `vocab.txt`, or None if the folder has none.

    Raises:
        ValueError: if the number of lines is not `vocab_size`.

    Example:

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\nhello")
    >>> find_vocabulary(folder, 3, folder / "bert_config.json").name
    'vocab.txt'
    """
    path = folder / "vocab.txt"
    if not path.is_file():
        return None
    data = path.read_bytes()
    # Lines end at "\n" and nowhere else: a vocabulary may hold U+2028 as an entry.
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if lines != vocab_size:
        raise ValueError(
            f"{path}: expected {vocab_size} lines, the vocab_size of {config_path}; found {lines}. "
            "Put the vocabulary that belongs to these weights into the folder."
        )
    return path


def _size(value, name, path):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{path}: {name} must be a whole number of at least 1; found {value!r}. Correct the field.")
    return value
