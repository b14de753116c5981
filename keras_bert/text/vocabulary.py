"""The WordPiece vocabulary: read from its file, and checked."""

from collections.abc import Sequence
from pathlib import Path

UNKNOWN_TOKEN = "[UNK]"
CLASSIFICATION_TOKEN = "[CLS]"
SEPARATOR_TOKEN = "[SEP]"
PADDING_TOKEN = "[PAD]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (UNKNOWN_TOKEN, CLASSIFICATION_TOKEN, SEPARATOR_TOKEN, PADDING_TOKEN, MASK_TOKEN)

# [MASK] may be missing: only masked language modelling needs it.
REQUIRED_TOKENS = (UNKNOWN_TOKEN, CLASSIFICATION_TOKEN, SEPARATOR_TOKEN, PADDING_TOKEN)


def load_vocabulary(path: str | Path) -> list[str]:
    """Reads a `vocab.txt`: one wordpiece a line, whose id is the number of its line, from 0.

    Source: `load_vocab` in google-research/bert `tokenization.py`. Lines end at the line feed only (a Unicode-aware
    splitter would shift the ids of the multilingual and Chinese vocabularies), and each is stripped of white space.
    Where an entry stands on several lines, its id is that of the last one.

    Args:
        path: path of a UTF-8 text file.

    Returns:
        The entries, in the order of their ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, is not UTF-8, or lacks one of `[UNK]`, `[CLS]`, `[SEP]` and `[PAD]`.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "vocab.txt")
        ...     _ = path.write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\nplay\\n##ing\\n", encoding="utf-8")
        ...     load_vocabulary(path)
        ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'play', '##ing']
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"The vocabulary file {path} {what}. Give the path of a vocab.txt with one wordpiece a line."
        )
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The vocabulary file {path} is not UTF-8: byte {error.start} cannot be decoded. "
            "Give a vocab.txt in UTF-8 (not a checkpoint or a compressed file)."
        ) from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # what follows the last line feed is not a line
    try:
        return check_vocabulary([line.strip() for line in lines])
    except ValueError as error:
        raise ValueError(f"The vocabulary file {path} cannot be used. {error}") from error


def check_vocabulary(vocabulary: Sequence[str]) -> list[str]:
    """Checks that a list of wordpieces can serve as BERT's vocabulary.

    Source: the special tokens that google-research/bert `run_classifier.py` and `tokenization.py` look up.

    Args:
        vocabulary: sequence of str, the wordpieces in the order of their ids.

    Returns:
        The vocabulary as a list.

    Raises:
        TypeError: it is not a sequence of strings.
        ValueError: it is empty or lacks one of `[UNK]`, `[CLS]`, `[SEP]` and `[PAD]`.

    Example:
        >>> check_vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "play"))
        ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'play']
    """
    if isinstance(vocabulary, str | bytes) or not isinstance(vocabulary, Sequence):
        raise TypeError(
            f"A vocabulary must be a list of strings. Received: {type(vocabulary).__name__}. "
            "To read a vocab.txt, use load_vocabulary(path)."
        )
    for index, token in enumerate(vocabulary):
        if not isinstance(token, str):
            raise TypeError(
                f"A vocabulary must hold strings only. Received at position {index}: {token!r} "
                f"({type(token).__name__}). Decode or convert the entries to str."
            )
    if not vocabulary:
        raise ValueError("The vocabulary is empty: it must hold at least " + ", ".join(REQUIRED_TOKENS) + ".")
    missing = [token for token in REQUIRED_TOKENS if token not in vocabulary]
    if missing:
        raise ValueError(
            f"The vocabulary of {len(vocabulary)} entries lacks {', '.join(missing)}. BERT needs "
            f"{', '.join(REQUIRED_TOKENS)}, spelled so. Add them, or give the vocab.txt of a BERT checkpoint."
        )
    return list(vocabulary)


def is_lower_case_vocabulary(vocabulary: Sequence[str]) -> bool:
    """Says whether a vocabulary was made from lower-cased text, by looking for the entry "A".

    Stands in for `validate_case_matches_checkpoint` in google-research/bert `tokenization.py`, which looks at the
    name of the checkpoint. Right for all released checkpoints; a small vocabulary of your own may lack "A" by chance.

    Args:
        vocabulary: sequence of str, the wordpieces.

    Returns:
        True where the vocabulary has no entry "A".

    Example:
        >>> is_lower_case_vocabulary(["[UNK]", "a", "play"])
        True
        >>> is_lower_case_vocabulary(["[UNK]", "A", "a", "play"])
        False
    """
    return "A" not in vocabulary
