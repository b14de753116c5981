"""A vocabulary is built from files of any size, always the same, completely or not at all."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from keras_bert.io.row_errors import BadRowError
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary
from tests.forked import run as run_forked
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


def run(*files, output, **options):
    values = flags.FlagValues()
    build_vocab.define_flags(values)
    arguments = {"input": ",".join(map(str, files)), "output": output, "vocab_size": 300, "progress": "off", **options}
    values(["build_vocab", *(f"--{name}={value}" for name, value in arguments.items())])
    build_vocab.run(values)
    return load_vocabulary(output)


PROGRAM = [sys.executable, "-m", "tools.build_vocab"]


def run_alone(command, cwd=ROOT, env=None):
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def start(*arguments):
    return run_alone([*PROGRAM, *arguments])


def test_the_file_holds_the_vocabulary_line_by_line(corpus, capsys):
    vocabulary = run(corpus / "*.txt", output=corpus / "new folder" / "vocab", lower_case=True)
    assert vocabulary[:5] == SPECIAL
    assert len(set(vocabulary)) == 300
    assert (corpus / "new folder" / "vocab").read_bytes() == "".join(f"{entry}\n" for entry in vocabulary).encode()
    assert [path.name for path in (corpus / "new folder").iterdir()] == ["vocab"]
    report = capsys.readouterr().err
    assert "7,800 words counted, " in report
    assert "300 entries written" in report
    assert "0.0000% of the words unknown" in report


def test_the_report_is_of_the_tokenizer(corpus, capsys):
    vocabulary = run(corpus / "a.txt", output=corpus / "vocab", lower_case=True, limit_alphabet=8)
    ids = BertTokenizer(vocabulary, lower_case=True).tokenize((corpus / "a.txt").read_text("utf-8-sig").split("\n"))
    pieces, unknown = ids.values.shape[0], (ids.values.numpy() == 1).sum()
    assert unknown > 100
    assert (
        f"{pieces / 2600:.4f} pieces a word, {100 * unknown / 2600:.4f}% of the words unknown"
        in capsys.readouterr().err
    )


def test_the_order_of_files_and_their_compression_do_not_matter(corpus):
    expected = run(corpus / "*.txt", output=corpus / "first")
    (corpus / "b.txt.gz").write_bytes(gzip.compress((corpus / "b.txt").read_bytes()))
    assert run(corpus / "c.txt", corpus / "b.txt.gz", corpus / "a.txt", output=corpus / "second") == expected


def test_flags_reach_the_words_and_the_learner(tmp_path):
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


def test_few_lines_are_in_memory_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(build_vocab, "_CHARACTERS_IN_BATCH", 100)
    monkeypatch.setattr(build_vocab, "_LINES_IN_BATCH", 7)
    lines = ["x" * (number % 40) for number in range(500)]
    (tmp_path / "a").write_text("\n".join(lines[:200]))
    (tmp_path / "b").write_text("\n".join(lines[200:]))
    sizes = []
    batches = list(build_vocab.read_batches([tmp_path / "a", tmp_path / "b"], sizes.append))
    assert [line for batch in batches for line in batch] == lines
    assert max(sum(map(len, batch)) for batch in batches) < 100 + 40
    assert max(map(len, batches)) == 7
    assert sum(sizes) == sum(map(len, lines)) + 498


# What is refused.


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*\*\.txt"):
        run(tmp_path / "*.txt", output=tmp_path / "vocab")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*novel"):
        run(tmp_path / "novel", output=tmp_path / "vocab")


def test_empty_files_are_named(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_bytes(b"\xef\xbb\xbf" + b"\r\n \n" * 3)
    with pytest.raises(ValueError, match=r"no words in .*a.txt, .*b.txt, .*c.txt and 2 more"):
        run(tmp_path / "*.txt", output=tmp_path / "vocab")
    assert not (tmp_path / "vocab").exists()


def test_a_bad_encoding_is_named_with_file_line_and_byte(corpus):
    (corpus / "b.txt").write_bytes(b"good\nna\xefve\n")
    with pytest.raises(BadRowError, match=r"b\.txt, line 2: is not UTF-8: byte 3 of the line and 8 of the file, 0xef"):
        run(corpus / "*.txt", output=corpus / "vocab")
    (corpus / "b.txt").write_text("text", encoding="utf-16")
    with pytest.raises(ValueError, match=r"b\.txt is UTF-16"):
        run(corpus / "*.txt", output=corpus / "vocab")
    assert sorted(path.name for path in corpus.iterdir()) == ["a.txt", "b.txt", "c.txt"]


def test_a_size_too_small_is_refused_before_reading_where_it_can_be(corpus, monkeypatch):
    with pytest.raises(ValueError, match="vocab_size must be at least 30 for this text"):
        run(corpus / "*.txt", output=corpus / "vocab", vocab_size=29)
    assert len(run(corpus / "*.txt", output=corpus / "vocab", vocab_size=30)) == 30
    monkeypatch.setattr(build_vocab, "count_words", lambda *_: pytest.fail("nothing may be read"))
    with pytest.raises(ValueError, match="more than 15, the number of special tokens"):
        run(corpus / "*.txt", output=corpus / "other", vocab_size=15, num_unused=10)


def test_nothing_is_overwritten_unless_told_to(corpus):
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


# As a program.


def test_help_needs_no_heavy_import():
    command = "import sys, tools.build_vocab; print({'tensorflow', 'tokenizers', 'numpy'} & set(sys.modules))"
    answer = run_alone([sys.executable, "-c", command])
    assert answer.stdout == "set()\n"
    assert "--limit_alphabet" in start("--help").stdout


@pytest.mark.slow
def test_every_process_writes_the_same_bytes(corpus):
    files = [str(corpus / name) for name in ("a.txt", "b.txt", "c.txt")]
    written = set()
    # A program that begins as a copy has the hashes of what it copies, and one that begins by itself those of its seed.
    for number, (begin, threads) in enumerate(((run_forked, "1"), (run_forked, "2"), (run_alone, "2"))):
        output = corpus / f"vocab{number}"
        arguments = [f"--input={','.join(files[number:] + files[:number])}", f"--output={output}", "--vocab_size=1000"]
        environment = {**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": threads}
        answer = begin([*PROGRAM, *arguments], cwd=ROOT, env=environment)
        assert answer.returncode == 0, answer.stderr[-2000:]
        written.add(output.read_bytes())
    assert len(written) == 1


@pytest.mark.slow
def test_what_is_wrong_is_said_in_one_line(corpus):
    answer = start(f"--input={corpus}/*.txt", f"--output={corpus}/a.txt")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("tools.build_vocab: --output=")
    assert "Traceback" not in answer.stderr
    answer = start(f"--input={corpus}/a.txt", f"{corpus}/b.txt", f"--output={corpus}/vocab")
    assert "unexpected arguments" in answer.stdout + answer.stderr
