"""Vocabularies, tokenizers and golden texts for the tests of text."""

import gzip
import json

import pytest

from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary

VOCABULARY_FILES = {
    "uncased": "bert-base-uncased-vocab.txt",
    "cased": "bert-base-cased-vocab.txt",
    "multi_cased": "bert-base-multilingual-cased-vocab.txt",
    "chinese": "bert-base-chinese-vocab.txt",
}
LOWER_CASED = ("uncased", "chinese")

CONTEXTS = ["In Páris, in the year 1066.", "", "the  the the the the the the the the the the"]
QUESTIONS = ["Where?", "What?", "The the the the the"]
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
def question_preprocessor(tokenizers):
    """A preprocessor with short windows, for `QUESTIONS` and `CONTEXTS`."""
    return BertQuestionPreprocessor(tokenizers["uncased"], sequence_length=12, stride=3, max_query_length=4)


def golden_rows(shared, name):
    """Reads all golden rows of a vocabulary: dicts of text, tokens and ids."""
    files = [shared / "golden" / "tokenizer" / f"{name}_{kind}.jsonl" for kind in ("handmade", "fuzz", "real")]
    return [json.loads(line) for file in files for line in file.read_bytes().decode("utf-8").split("\n") if line]


def code_point_rows(shared, name):
    """Reads a file of code points: (code point, tokens joined by spaces)."""
    content = gzip.decompress((shared / "golden" / "tokenizer" / f"codepoints_{name}.tsv.gz").read_bytes())
    rows = (line.split("\t") for line in content.decode("utf-8").split("\n")[1:-1])
    return [(int(code_point, 16), tokens) for code_point, _, tokens in rows]
