"""A small data set that ships with the project: messages to the support desk of an online shop, with their intents.

All messages were written for this project, under its license. `train.tsv` and `dev.tsv` have the header
`label<TAB>text`.
"""

from pathlib import Path
from typing import NamedTuple


class SupportMessages(NamedTuple):
    """Texts and their labels, in the same order."""

    texts: list[str]
    labels: list[str]


def read_support_messages(split):
    """Reads the split "train" or "dev"."""
    lines = (Path(__file__).parent / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    labels, texts = zip(*(line.split("\t") for line in lines[1:]), strict=True)
    return SupportMessages(list(texts), list(labels))
