"""Reading and checking of WordPiece vocabularies."""

from collections.abc import Sequence
from pathlib import Path

from keras_bert.io.special_tokens import CLASSIFICATION_TOKEN, PADDING_TOKEN, SEPARATOR_TOKEN, UNKNOWN_TOKEN
from keras_bert.typing import PathLike

# [MASK] may be missing: only masked language modelling needs it.
REQUIRED_TOKENS = (UNKNOWN_TOKEN, CLASSIFICATION_TOKEN, SEPARATOR_TOKEN, PADDING_TOKEN)


def load_vocabulary(path: PathLike) -> list[str]:
    """Reads a `vocab.txt` (UTF-8, one wordpiece per line) and returns its entries in the order of their ids.

    Lines end at the line feed only. Source: `load_vocab` in google-research/bert `tokenization.py`.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"The vocabulary file {path} {what}. Pass the path of a vocab.txt with one wordpiece per line."
        )
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The vocabulary file {path} is not UTF-8: byte {error.start} cannot be decoded. "
            "Pass a vocab.txt in UTF-8 (not a checkpoint or a compressed file)."
        ) from error
    lines = text.removesuffix("\n").split("\n") if text else []
    try:
        return check_vocabulary([line.strip() for line in lines])
    except ValueError as error:
        raise ValueError(f"The vocabulary file {path} cannot be used. {error}") from error


def check_vocabulary(vocabulary: Sequence[str]) -> list[str]:
    """Checks that a vocabulary is a list of strings with all required tokens, and returns a copy."""
    if isinstance(vocabulary, str) or not isinstance(vocabulary, Sequence):
        raise TypeError(
            f"A vocabulary must be a list of strings. Received: {type(vocabulary).__name__}. "
            "To read a vocab.txt, use load_vocabulary(path)."
        )
    for index, token in enumerate(vocabulary):
        if not isinstance(token, str):
            raise TypeError(
                f"A vocabulary must hold strings only. Received at index {index}: {token!r} "
                f"({type(token).__name__}). Decode or convert the entries to str."
            )
    if not vocabulary:
        raise ValueError("The vocabulary is empty: it must hold at least " + ", ".join(REQUIRED_TOKENS) + ".")
    missing = [token for token in REQUIRED_TOKENS if token not in vocabulary]
    if missing:
        raise ValueError(
            f"The vocabulary of {len(vocabulary)} entries lacks {', '.join(missing)}. BERT needs "
            f"{', '.join(REQUIRED_TOKENS)}, spelled exactly so. Add them, or pass the vocab.txt of a BERT checkpoint."
        )
    return list(vocabulary)


def is_lower_case_vocabulary(vocabulary: Sequence[str]) -> bool:
    """Infers from the absence of the entry "A" whether a vocabulary was made from lower-cased text."""
    return "A" not in vocabulary
