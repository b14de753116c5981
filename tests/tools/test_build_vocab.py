import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary
from tests.tools.program_flags import parse_flags
from tools import build_vocab

ROOT = Path(__file__).parents[2]


@pytest.fixture
def corpus(tmp_path):
    """A folder with three files of random words of real letters."""
    generator = random.Random(3)
    words = ["".join(generator.choices("etaoinshrdlu", k=generator.randint(1, 8))) for _ in range(500)]
    for name in ("a.txt", "b.txt", "c.txt"):
        lines = [" ".join(generator.choices(words, k=12)) + "." for _ in range(200)]
        (tmp_path / name).write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    return tmp_path


def run(*files, output, **options):
    options = {"input": ",".join(map(str, files)), "vocab_size": 300, "output": output, **options}
    build_vocab.run(parse_flags(build_vocab, **options))
    return load_vocabulary(output)


def test_the_file_has_one_entry_per_line(corpus, capsys):
    vocabulary = run(corpus / "*.txt", output=corpus / "new folder" / "vocab", lower_case=True)
    assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(set(vocabulary)) == 300
    assert (corpus / "new folder" / "vocab").read_bytes() == "".join(f"{entry}\n" for entry in vocabulary).encode()
    assert [path.name for path in (corpus / "new folder").iterdir()] == ["vocab"]
    report = capsys.readouterr().err
    assert "7,800 words counted, " in report
    assert "300 entries written" in report
    assert "0.0000% of the words unknown" in report


def test_the_report_agrees_with_the_tokenizer(corpus, capsys):
    with open(corpus / "a.txt", "a") as file:
        file.write(" " + "x" * 201)  # counts as unknown
    vocabulary = run(corpus / "a.txt", output=corpus / "vocab", lower_case=True, limit_alphabet=8)
    ids = BertTokenizer(vocabulary, lower_case=True).tokenize((corpus / "a.txt").read_text("utf-8-sig").split("\n"))
    num_wordpieces, unknown = ids.values.shape[0], (ids.values.numpy() == 1).sum()
    assert unknown > 100
    report = capsys.readouterr().err
    assert f"{num_wordpieces / 2601:.4f} wordpieces per word, {unknown / 2601:.4%} of the words unknown" in report
    assert "2,601 words counted, " in report


def test_the_order_of_files_and_their_compression_do_not_matter(corpus):
    expected = run(corpus / "*.txt", output=corpus / "first")
    (corpus / "b.txt.gz").write_bytes(gzip.compress((corpus / "b.txt").read_bytes()))
    assert run(corpus / "c.txt", corpus / "b.txt.gz", corpus / "a.txt", output=corpus / "second") == expected


def test_flags_change_the_words_and_the_learner(tmp_path):
    (tmp_path / "text").write_text("Élan élan Elan elan\n" * 5, encoding="utf-8")
    text, output = tmp_path / "text", tmp_path / "vocab"
    assert run(text, output=output)[-2:] == ["Élan", "élan"]
    assert run(text, output=output, overwrite=True, lower_case=True)[-1] == "elan"
    assert run(text, output=output, overwrite=True, lower_case=True, strip_accents=False)[-1] == "élan"
    assert run(text, output=output, overwrite=True, num_unused=2)[:4] == ["[PAD]", "[unused0]", "[unused1]", "[UNK]"]
    assert "elan" not in run(text, output=output, overwrite=True, min_frequency=20)


def test_lines_are_read_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(build_vocab, "_CHARACTERS_PER_BATCH", 100)
    monkeypatch.setattr(build_vocab, "_LINES_PER_BATCH", 7)
    lines = ["x" * (number % 40) for number in range(500)]
    (tmp_path / "a").write_text("\n".join(lines[:200]))
    (tmp_path / "b").write_text("\n".join(lines[200:]))
    sizes = []
    batches = list(build_vocab.read_batches([tmp_path / "a", tmp_path / "b"], sizes.append))
    assert [line for batch in batches for line in batch] == lines
    assert max(sum(map(len, batch)) for batch in batches) < 100 + 40
    assert max(map(len, batches)) == 7
    assert sum(sizes) == sum(map(len, lines)) + 498


@pytest.mark.parametrize(
    "options, message",
    [
        ({"input": "FOLDER/*.md"}, r"no file matches the pattern .*\*\.md"),
        ({"input": "FOLDER/novel"}, "there is no file .*novel"),
        ({"input": "FOLDER/blank?"}, "no words in .*blank1, .*blank2, .*blank3 and 2 more"),
        ({"input": "FOLDER/latin_1"}, "latin_1, line 2: is not UTF-8: byte 3 of the line and 8 of the file, 0xef"),
        ({"input": "FOLDER/utf_16"}, "utf_16 is UTF-16"),
        ({"vocab_size": 29}, "vocab_size must be at least 30 for this text"),
        ({"output": "FOLDER/b.txt"}, "is one of the files of --input"),
        ({"output": "FOLDER"}, "is a folder"),
        ({"output": "FOLDER/a.txt/vocab"}, r"a\.txt is a file, not a folder"),
    ],
)
def test_errors_leave_nothing_behind(corpus, options, message):
    for number in range(1, 6):
        (corpus / f"blank{number}").write_bytes(b"\xef\xbb\xbf" + b"\r\n \n" * 3)
    for encoding in ("latin_1", "utf_16"):
        (corpus / encoding).write_text("good\nna\xefve\n", encoding)
    before = {path: path.read_bytes() for path in corpus.iterdir()}
    options = {"input": "FOLDER/*.txt", "output": "FOLDER/vocab", "vocab_size": 300, "overwrite": True, **options}
    options = {name: str(value).replace("FOLDER", str(corpus)) for name, value in options.items()}
    with pytest.raises((OSError, ValueError), match=message):
        build_vocab.run(parse_flags(build_vocab, **options))
    assert {path: path.read_bytes() for path in corpus.iterdir()} == before


def test_a_too_small_vocabulary_is_refused_at_once(corpus, monkeypatch):
    monkeypatch.setattr(build_vocab, "count_words", lambda *_: pytest.fail("nothing may be read"))
    with pytest.raises(ValueError, match="more than 15, the number of special tokens"):
        run(corpus / "*.txt", output=corpus / "vocab", vocab_size=15, num_unused=10)


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(corpus):
    run(corpus / "*.txt", output=corpus / "vocab", vocab_size=1000)
    files = ",".join(str(corpus / name) for name in ("b.txt", "c.txt", "a.txt"))
    arguments = [f"--input={files}", f"--output={corpus}/other", "--vocab_size=1000"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-m", "tools.build_vocab", *arguments], cwd=ROOT, env=environment, check=True)
    assert (corpus / "other").read_bytes() == (corpus / "vocab").read_bytes()
