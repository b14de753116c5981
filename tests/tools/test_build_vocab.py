"""The same text gives the same vocabulary, which is written completely or not at all."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from absl import app, flags

from keras_bert.io.row_errors import BadRowError
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary
from tools import build_vocab

ROOT = Path(__file__).parents[2]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def corpus(tmp_path):
    """A folder with three files of random words of real letters."""
    generator = random.Random(3)
    words = ["".join(generator.choices("etaoinshrdlu", k=generator.randint(1, 8))) for _ in range(500)]
    for name in ("a.txt", "b.txt", "c.txt"):
        lines = [" ".join(generator.choices(words, k=12)) + "." for _ in range(200)]
        (tmp_path / name).write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    return tmp_path


def values_of(*files, **options):
    values = flags.FlagValues()
    build_vocab.define_flags(values)
    arguments = {"input": ",".join(map(str, files)), "vocab_size": 300, **options}
    values(["build_vocab", *(f"--{name}={value}" for name, value in arguments.items())])
    return values


def run(*files, output, **options):
    build_vocab.run(values_of(*files, output=output, **options))
    return load_vocabulary(output)


def test_the_file_has_one_entry_per_line(corpus, capsys):
    vocabulary = run(corpus / "*.txt", output=corpus / "new folder" / "vocab", lower_case=True)
    assert vocabulary[:5] == SPECIAL
    assert len(set(vocabulary)) == 300
    assert (corpus / "new folder" / "vocab").read_bytes() == "".join(f"{entry}\n" for entry in vocabulary).encode()
    assert [path.name for path in (corpus / "new folder").iterdir()] == ["vocab"]
    report = capsys.readouterr().err
    assert "7,800 words counted, " in report
    assert "300 entries written" in report
    assert "0.0000% of the words unknown" in report


def test_the_report_agrees_with_the_tokenizer(corpus, capsys):
    vocabulary = run(corpus / "a.txt", output=corpus / "vocab", lower_case=True, limit_alphabet=8)
    ids = BertTokenizer(vocabulary, lower_case=True).tokenize((corpus / "a.txt").read_text("utf-8-sig").split("\n"))
    num_wordpieces, unknown = ids.values.shape[0], (ids.values.numpy() == 1).sum()
    assert unknown > 100
    expected = f"{num_wordpieces / 2600:.4f} wordpieces per word, {unknown / 2600:.4%} of the words unknown"
    assert expected in capsys.readouterr().err


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


def test_long_words_count_as_unknown(tmp_path, capsys):
    (tmp_path / "text").write_text("word " * 3 + "x" * 201)
    run(tmp_path / "text", output=tmp_path / "vocab")
    assert "4 words counted, 1 of them distinct" in capsys.readouterr().err


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


# Errors.


def test_missing_files_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*\*\.txt"):
        run(tmp_path / "*.txt", output=tmp_path / "vocab")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*novel"):
        run(tmp_path / "novel", output=tmp_path / "vocab")


def test_files_without_words_are_refused(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_bytes(b"\xef\xbb\xbf" + b"\r\n \n" * 3)
    with pytest.raises(ValueError, match=r"no words in .*a.txt, .*b.txt, .*c.txt and 2 more"):
        run(tmp_path / "*.txt", output=tmp_path / "vocab")
    assert not (tmp_path / "vocab").exists()


def test_invalid_bytes_are_reported_with_file_and_line(corpus):
    (corpus / "b.txt").write_bytes(b"good\nna\xefve\n")
    with pytest.raises(BadRowError, match=r"b\.txt, line 2: is not UTF-8: byte 3 of the line and 8 of the file, 0xef"):
        run(corpus / "*.txt", output=corpus / "vocab")
    (corpus / "b.txt").write_text("text", encoding="utf-16")
    with pytest.raises(ValueError, match=r"b\.txt is UTF-16"):
        run(corpus / "*.txt", output=corpus / "vocab")
    assert sorted(path.name for path in corpus.iterdir()) == ["a.txt", "b.txt", "c.txt"]


def test_a_too_small_vocabulary_is_refused(corpus, monkeypatch):
    with pytest.raises(ValueError, match="vocab_size must be at least 30 for this text"):
        run(corpus / "*.txt", output=corpus / "vocab", vocab_size=29)
    assert len(run(corpus / "*.txt", output=corpus / "vocab", vocab_size=30)) == 30
    monkeypatch.setattr(build_vocab, "count_words", lambda *_: pytest.fail("nothing may be read"))
    with pytest.raises(ValueError, match="more than 15, the number of special tokens"):
        run(corpus / "*.txt", output=corpus / "other", vocab_size=15, num_unused=10)


def test_existing_files_are_only_replaced_on_request(corpus):
    (corpus / "vocab").write_text("mine")
    with pytest.raises(FileExistsError, match="vocab exists; give another name, or --overwrite"):
        run(corpus / "*.txt", output=corpus / "vocab")
    assert (corpus / "vocab").read_text() == "mine"
    assert len(run(corpus / "*.txt", output=corpus / "vocab", overwrite=True)) == 300
    with pytest.raises(ValueError, match="is one of the files of --input"):
        run(corpus / "*.txt", output=corpus / "b.txt", overwrite=True)
    with pytest.raises(ValueError, match="is a folder"):
        run(corpus / "*.txt", output=corpus, overwrite=True)
    with pytest.raises(ValueError, match=r"a\.txt is a file, not a folder"):
        run(corpus / "*.txt", output=corpus / "a.txt" / "vocab")


# Processes.


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(corpus):
    run(corpus / "*.txt", output=corpus / "vocab", vocab_size=1000)
    files = ",".join(str(corpus / name) for name in ("b.txt", "c.txt", "a.txt"))
    arguments = [f"--input={files}", f"--output={corpus}/other", "--vocab_size=1000"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-m", "tools.build_vocab", *arguments], cwd=ROOT, env=environment, check=True)
    assert (corpus / "other").read_bytes() == (corpus / "vocab").read_bytes()


def test_errors_are_printed_in_one_line(corpus, monkeypatch):
    monkeypatch.setattr(flags, "FLAGS", values_of(corpus / "*.txt", output=corpus / "a.txt"))
    with pytest.raises(SystemExit, match=r"^tools.build_vocab: --output=[^\n]*$"):
        build_vocab.main(["build_vocab"])
    with pytest.raises(app.UsageError, match="unexpected arguments"):
        build_vocab.main(["build_vocab", "b.txt"])
