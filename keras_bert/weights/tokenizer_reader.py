"""Reads the tokenizer of a folder of weights, without its weights."""

from dataclasses import dataclass
from pathlib import Path

from keras_bert.typing import PathLike
from keras_bert.weights import hugging_face
from keras_bert.weights.preset_names import resolve_preset

VOCABULARY_NAME = "vocab.txt"


@dataclass(frozen=True)
class StoredTokenizer:
    """The tokenizer of a folder; None for what its files do not state."""

    folder: Path
    vocabulary: Path | tuple[str, ...]  # a file with one wordpiece per line, or the wordpieces
    lower_case: bool | None = None
    strip_accents: bool | None = None


def read_preset_tokenizer(name: PathLike) -> StoredTokenizer:
    """Reads the tokenizer of a preset, a model on the hub or a folder; only its files are downloaded.

    Raises the errors of `keras_bert.weights.preset_names.resolve_preset`, and FileNotFoundError if there is no
    vocabulary.

    >>> read_preset_tokenizer("bert_tiny_novels").lower_case
    True
    """
    return read_tokenizer(resolve_preset(name, tokenizer_only=True))


def read_tokenizer(path: PathLike) -> StoredTokenizer:
    """Reads the tokenizer of a folder, or of the folder that a file of weights is in."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    vocabulary = folder / VOCABULARY_NAME
    if not vocabulary.is_file():
        held = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        raise FileNotFoundError(
            f"{folder} has no {VOCABULARY_NAME}; it contains {held}. Put the vocabulary that belongs to the weights "
            "into the folder, or pass another folder."
        )
    return StoredTokenizer(folder, vocabulary, *hugging_face.read_tokenizer_settings(folder))
