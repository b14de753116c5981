import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl import flags

from tests.pretraining.stories import ALL_SENTENCES, CHINESE, CHINESE_SENTENCES, PARAGRAPHS, spaced, wrapped
from tools import prepare_corpus

ROOT = Path(__file__).parents[2]
STORY = "".join(sentence + "\n" for sentence in ALL_SENTENCES)


def prepare(*arguments):
    values = flags.FlagValues()
    prepare_corpus.define_flags(values)
    values(["prepare_corpus", *map(str, arguments)])
    prepare_corpus.run(values)


def contents(folder):
    return {path.name: path.read_text("utf-8") for path in sorted(folder.iterdir())}


@pytest.fixture
def stories(tmp_path):
    folder = tmp_path / "stories"
    folder.mkdir()
    for name, lines in {"a": wrapped(), "b": spaced(), "c": PARAGRAPHS}.items():
        (folder / f"{name}.txt").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    return folder


def test_one_sentence_a_line_and_a_blank_line_between_documents(tmp_path, stories, capsys):
    (stories / "d.txt").write_bytes(b" \n")
    prepare(f"--input={stories}/*.txt", f"--output={tmp_path}/new/corpus")
    assert contents(tmp_path / "new" / "corpus") == {"corpus-00000.txt": "\n".join([STORY] * 3)}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["corpus"]
    said = capsys.readouterr().err
    size = sum(path.stat().st_size for path in stories.iterdir())
    written = len("\n".join([STORY] * 3).encode())
    assert f"4 files, 3 documents, {3 * len(PARAGRAPHS)} paragraphs, {3 * len(ALL_SENTENCES)} sentences: " in said
    assert f"{size} bytes read, {written} written to 1 shard in {tmp_path}/new/corpus" in said
    assert "1 file without text" in said


def test_shards_end_between_documents(tmp_path, stories):
    (stories / "d.txt").write_text("One.")
    prepare(f"--input={stories}/*.txt", f"--output={tmp_path}/small", "--shard_megabytes=0.0001")
    assert contents(tmp_path / "small") == {
        "corpus-00000.txt": STORY,
        "corpus-00001.txt": STORY,
        "corpus-00002.txt": STORY,
        "corpus-00003.txt": "One.\n",
    }
    size = len(STORY.encode())
    prepare(f"--input={stories}/*.txt", f"--output={tmp_path}/pairs", f"--shard_megabytes={(size + 2) / 1e6}")
    assert contents(tmp_path / "pairs") == {
        "corpus-00000.txt": STORY + "\n" + STORY,
        "corpus-00001.txt": STORY + "\nOne.\n",
    }


def test_json_lines_and_several_patterns(tmp_path):
    rows = [json.dumps({"body": "\n".join(CHINESE)}), json.dumps({"body": " "}), json.dumps({"id": 1})]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (tmp_path / "b.jsonl").write_text(rows[0])
    output = tmp_path / "corpus"
    arguments = [f"--input={tmp_path}/*.gz,{tmp_path}/b.jsonl", f"--output={output}", "--form=jsonl", "--language=zh"]
    prepare(*arguments, "--text_field=body", "--skip_bad_rows", "--progress=on")
    text = "".join(sentence + "\n" for sentence in CHINESE_SENTENCES)
    assert contents(output) == {"corpus-00000.txt": text + "\n" + text}


def test_skipped_rows_are_counted(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(b"One.\nTw\xff.\nThree.\n")
    prepare(f"--input={tmp_path}/a.txt", f"--output={tmp_path}/corpus", "--skip_bad_rows")
    assert contents(tmp_path / "corpus") == {"corpus-00000.txt": "One.\nThree.\n"}
    assert "1 bad row skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=DIR/*.md"], r"no file matches the pattern .*\*.md"),
        (["--input=DIR/a.txt", "--shard_megabytes=0"], "--shard_megabytes must be more than 0, got 0"),
        (["--input=DIR/a.txt", "--shard_megabytes=nan"], "--shard_megabytes must be more than 0, got nan"),
        (["--input=DIR/a.txt", "--language=English"], "language must be the code"),
        (["--input=DIR/a.txt", "--encoding=utf-16"], "lines cannot be told in the encoding 'utf-16'"),
        (["--input=DIR/blank.txt"], "there is no text in 1 file of --input; nothing is written"),
        (["--input=DIR/bad.txt"], r"bad.txt, line 2: is not UTF-8: byte 3 of the line and 8 of the file, 0xff"),
    ],
)
def test_errors_leave_nothing_behind(tmp_path, arguments, message):
    (tmp_path / "a.txt").write_text("One.")
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "bad.txt").write_bytes(b"One.\nTw\xff.\n")
    before = sorted(os.listdir(tmp_path))
    arguments = [argument.replace("DIR", str(tmp_path)) for argument in arguments]
    with pytest.raises((OSError, ValueError), match=message):
        prepare(*arguments, f"--output={tmp_path}/corpus")
    assert sorted(os.listdir(tmp_path)) == before


def test_nothing_is_overwritten(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("One.")
    output = tmp_path / "corpus"
    output.mkdir()
    prepare(f"--input={source}", f"--output={output}")
    with pytest.raises(FileExistsError, match=r"corpus is not empty, it holds corpus-00000.txt; nothing is over"):
        prepare(f"--input={source}", f"--output={output}")
    for name in (source, source / "corpus"):
        with pytest.raises(NotADirectoryError, match=r"cannot be made: .*a.txt is a file"):
            prepare(f"--input={source}", f"--output={name}")
    assert contents(output) == {"corpus-00000.txt": "One.\n"}
    assert source.read_text() == "One."


def test_the_same_input_gives_the_same_output(tmp_path, stories):
    for name in ("first", "second"):
        prepare(f"--input={stories}/*.txt", f"--output={tmp_path / name}", "--shard_megabytes=0.001")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def start(*arguments):
    command = [sys.executable, "-m", "tools.prepare_corpus", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help():
    before = processor_seconds()
    answer, _ = start("--help").communicate()
    assert "python -m tools.prepare_corpus --input=" in answer
    assert "--[no]skip_bad_rows" in answer
    assert processor_seconds() - before < 1


def test_errors_are_said_in_one_line(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    program = start("--input=a.txt", f"--output={tmp_path}/full")
    _, said = program.communicate()
    assert program.returncode == 1
    assert said.startswith("tools.prepare_corpus: the output folder ")
    assert said.count("\n") == 1


@pytest.mark.slow
def test_a_killed_run_can_be_started_again(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(f"This is sentence {number}." for number in range(100_000)))
    os.mkfifo(tmp_path / "b.txt")
    arguments = [f"--input={source},{tmp_path}/b.txt", f"--output={tmp_path}/corpus", "--shard_megabytes=0.01"]
    program = start(*arguments)
    # The first shard is there, and the program waits for the second file.
    while not list(tmp_path.glob(".corpus.unfinished-*/corpus-00000.txt")):
        assert program.poll() is None, program.communicate()
        time.sleep(0.05)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert not (tmp_path / "corpus").exists()
    (tmp_path / "b.txt").unlink()
    (tmp_path / "b.txt").write_text("The end.")
    prepare(*arguments)
    assert contents(tmp_path / "corpus")["corpus-00001.txt"] == "The end.\n"
