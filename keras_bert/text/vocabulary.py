"""Reading and checking of WordPiece vocabularies."""

from collections.abc import Sequence
from pathlib import Path

from keras_bert.io.special_tokens import CLASSIFICATION_TOKEN, PADDING_TOKEN, SEPARATOR_TOKEN, UNKNOWN_TOKEN
from keras_bert.typing import PathLike

# [MASK] may be missing: only masked language modelling needs it.
REQUIRED_TOKENS = (UNKNOWN_TOKEN, CLASSIFICATION_TOKEN, SEPARATOR_TOKEN, PADDING_TOKEN)

# Far beyond every published vocabulary (LaBSE's, the largest, has 501,153 entries in 5 MB).
MAX_VOCABULARY_BYTES = 1 << 26
MAX_VOCABULARY_SIZE = 1 << 21
_MAX_ENTRY_LENGTH = 1000  # characters; no longer word is looked up


def load_vocabulary(path: PathLike) -> list[str]:
    """Reads a `vocab.txt` (UTF-8, one wordpiece per line) and returns its entries in the order of their ids.

    Lines end at the line feed only. An entry that is repeated is accepted, as in the original: the last id is its own.
    Raises FileNotFoundError if there is no file, and ValueError if it is not such a vocabulary.

    Source: `load_vocab` in google-research/bert `tokenization.py`.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"The vocabulary file {path} {what}. Pass the path of a vocab.txt with one wordpiece per line."
        )
    with open(path, "rb") as file:
        content = file.read(MAX_VOCABULARY_BYTES + 1)
    problem = _find_problem(content)
    if problem is not None:
        raise ValueError(
            f"The vocabulary file {path} {problem}. Pass a vocab.txt with one wordpiece per line (not a checkpoint or "
            "a compressed file)."
        )
    try:
        text = content.decode("utf-8")
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


def _find_problem(content: bytes) -> str | None:
    """Returns why the bytes of a file are not those of a vocabulary, before anything is made of them."""
    if len(content) > MAX_VOCABULARY_BYTES:
        return f"has more than {MAX_VOCABULARY_BYTES} bytes"
    if b"\0" in content:
        return f"is not a text: byte {content.index(0)} is NUL"
    lines = content.count(b"\n")
    if lines > MAX_VOCABULARY_SIZE:
        return f"has {lines} lines, and at most {MAX_VOCABULARY_SIZE} are read"
    return None


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
        if len(token) > _MAX_ENTRY_LENGTH:
            raise ValueError(
                f"The entry at index {index} has {len(token)} characters, and no wordpiece has more than "
                f"{_MAX_ENTRY_LENGTH}: {token[:20]!r}... Pass the vocab.txt of a BERT checkpoint."
            )
    if len(vocabulary) > MAX_VOCABULARY_SIZE:
        raise ValueError(f"The vocabulary has {len(vocabulary)} entries, and at most {MAX_VOCABULARY_SIZE} are read.")
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
