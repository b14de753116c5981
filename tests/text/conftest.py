"""Vocabularies, tokenizers and golden texts for the tests of text."""

import gzip
import json

import pytest

from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary

VOCABULARY_FILES = {
    "uncased": "bert-base-uncased-vocab.txt",
    "cased": "bert-base-cased-vocab.txt",
    "multi_cased": "bert-base-multilingual-cased-vocab.txt",
    "chinese": "bert-base-chinese-vocab.txt",
}
LOWER_CASED = ("uncased", "chinese")

TOY_VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "!", "cafe", "i", "[", "]", "mask"]


@pytest.fixture(scope="session")
def vocabularies(shared):
    """The four released vocabularies by name."""
    return {name: load_vocabulary(shared / "data" / "vocab" / file) for name, file in VOCABULARY_FILES.items()}


@pytest.fixture(scope="session")
def tokenizers(vocabularies):
    """A tokenizer for each of them, with the case setting of its checkpoint."""
    return {name: BertTokenizer(vocabulary, name in LOWER_CASED) for name, vocabulary in vocabularies.items()}


@pytest.fixture(scope="session")
def toy():
    """A lower-casing tokenizer with a few entries."""
    return BertTokenizer(TOY_VOCABULARY, lower_case=True)


@pytest.fixture(scope="session")
def golden_rows(shared):
    """Function that reads all golden rows of a vocabulary: dicts of text, tokens and ids."""

    def rows(name):
        result = []
        for kind in ("handmade", "fuzz", "real"):
            path = shared / "golden" / "tokenizer" / f"{name}_{kind}.jsonl"
            result += [json.loads(line) for line in path.read_bytes().decode("utf-8").split("\n") if line]
        return result

    return rows


@pytest.fixture(scope="session")
def code_point_rows(shared):
    """Function that reads a file of code points: (code point, general category, tokens joined by spaces)."""

    def rows(name):
        content = gzip.decompress((shared / "golden" / "tokenizer" / f"codepoints_{name}.tsv.gz").read_bytes())
        lines = content.decode("utf-8").split("\n")[1:-1]
        return [(int(line[0], 16), line[1], line[2]) for line in (line.split("\t") for line in lines)]

    return rows
