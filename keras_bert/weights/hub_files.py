"""Which files of a repository on the Hugging Face Hub are needed to load its model."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from keras_bert.weights import keras_hub
from keras_bert.weights.hugging_face import CONFIG_NAME, MODEL_TYPE, OPENERS, OWN_MODEL_TYPE
from keras_bert.weights.hugging_face_tokenizer import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, VOCABULARY_NAME
from keras_bert.weights.sentence_transformers import LIBRARY_CONFIG_NAME, MODULES_NAME, SETTINGS_NAME
from keras_bert.weights.weight_shards import INDEX_SUFFIX

# The files of weights in the order of preference: the first that a repository has is downloaded.
WEIGHT_NAMES = tuple(OPENERS)
_VOCABULARY_NAMES = (VOCABULARY_NAME, TOKENIZER_NAME, keras_hub.VOCABULARY_NAME)
_TOKENIZER_NAMES = (TOKENIZER_CONFIG_NAME, *_VOCABULARY_NAMES)
# How a sentence encoder makes a vector of the vectors of the tokens.
_POOLING_NAMES = (
    MODULES_NAME,
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    SETTINGS_NAME,
    LIBRARY_CONFIG_NAME,
)
# The files of a preset of keras-hub. The vocabulary and `tokenizer.json` are among `_VOCABULARY_NAMES`.
_KERAS_HUB_NAMES = (
    keras_hub.METADATA_NAME,
    keras_hub.PREPROCESSOR_NAME,
    keras_hub.TASK_NAME,
    keras_hub.TASK_WEIGHTS_NAME,
    keras_hub.WEIGHTS_NAME,
)
_SHARD = re.compile(r"[\w-][\w.-]*", re.ASCII)  # directly in the repository
_MAX_LISTED = 10


def select_files(
    names: Collection[str], read: Callable[[str], Mapping[str, Any]], source: str, tokenizer_only: bool = False
) -> list[str]:
    """Selects the files of a repository that are needed, the large ones last.

    `names` are all its files, `read` returns the contents of a JSON file, and `source` names the repository in errors:
    FileNotFoundError if something is missing, and ValueError if the model is not a BERT.

    >>> names = ["config.json", "flax_model.msgpack", "model.safetensors", "pytorch_model.bin", "vocab.txt"]
    >>> select_files(names, lambda name: {"model_type": "bert"}, "hf://owner/name")
    ['config.json', 'vocab.txt', 'model.safetensors']
    """
    tokenizer = [name for name in _TOKENIZER_NAMES if name in names]
    listed = f"its files are {_shorten(names)}"
    if tokenizer_only:
        if not set(_VOCABULARY_NAMES) & set(names):
            raise FileNotFoundError(
                f"{source} has no vocabulary ({' or '.join(_VOCABULARY_NAMES)}); {listed}. Pass the name of the model "
                "that its vocabulary is from."
            )
        return tokenizer
    if CONFIG_NAME not in names:
        raise FileNotFoundError(
            f"{source} has no {CONFIG_NAME}, so it is not a model that can be loaded by name; {listed}. Download it, "
            "and pass the folder to from_checkpoint."
        )
    needed, weights = list(_KERAS_HUB_NAMES), list(_KERAS_HUB_NAMES[-1:])
    if not _is_keras_hub_bert(read(CONFIG_NAME), source):
        needed, weights = [*_POOLING_NAMES, *_find_weights(names, read, source)], list(WEIGHT_NAMES)
    if not set(weights) & set(names):
        raise FileNotFoundError(f"{source} has none of the weights {weights}; {listed}. Pass another model.")
    return [CONFIG_NAME, *tokenizer, *(name for name in needed if name in names)]


def _is_keras_hub_bert(config: Mapping[str, Any], source: str) -> bool:
    """Returns whether a configuration is of keras-hub's BERT, or else of Hugging Face's; ValueError if of neither."""
    if config.get("class_name") == keras_hub.BACKBONE:
        return True
    if config.get("model_type") in (MODEL_TYPE, OWN_MODEL_TYPE):
        return False
    stated = config.get("model_type") or config.get("class_name")
    raise ValueError(
        f"{source} is not a BERT: model_type in its {CONFIG_NAME} must be {MODEL_TYPE!r}; found {str(stated)[:80]!r}. "
        "Nothing but this file was downloaded. Pass a BERT: keras_bert.list_presets() names some."
    )


def _find_weights(names: Collection[str], read: Callable[[str], Mapping[str, Any]], source: str) -> list[str]:
    first = next((name for name in WEIGHT_NAMES if name in names), None)
    if first is None or not first.endswith(INDEX_SUFFIX):
        return [] if first is None else [first]
    shards = read(first).get("weight_map")
    stated = set(shards.values()) if isinstance(shards, dict) and all(map(_is_text, shards.values())) else set()
    missing = sorted(stated.difference(names) | {name for name in stated if not _SHARD.fullmatch(name)})
    if not stated or missing:
        raise FileNotFoundError(
            f"{source}: {first} names {f'{_shorten(missing)}, which are missing' if missing else 'no shards'}; "
            f"its files are {_shorten(names)}. Tell its author, or pass another revision."
        )
    return [first, *sorted(stated)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _shorten(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{names[:_MAX_LISTED]}{more}"
