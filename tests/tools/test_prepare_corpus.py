import gzip
import json
import os

import pytest
from absl import flags

from tests.pretraining.stories import ALL_SENTENCES, CHINESE, CHINESE_SENTENCES, PARAGRAPHS, spaced, wrapped
from tests.tools.program_flags import parse_flags
from tools import prepare_corpus

STORY = "".join(sentence + "\n" for sentence in ALL_SENTENCES)


def prepare(*arguments):
    prepare_corpus.run(parse_flags(prepare_corpus, *arguments))


def contents(folder):
    return {path.name: path.read_text("utf-8") for path in sorted(folder.iterdir())}


@pytest.fixture
def stories(tmp_path):
    folder = tmp_path / "stories"
    folder.mkdir()
    for name, lines in {"a": wrapped(), "b": spaced(), "c": PARAGRAPHS}.items():
        (folder / f"{name}.txt").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    return folder


def test_writes_one_sentence_per_line_and_a_blank_line_between_documents(tmp_path, stories, capsys):
    (stories / "d.txt").write_bytes(b" \n")
    prepare(f"--input={stories}/*.txt", f"--output={tmp_path}/new/corpus")
    assert contents(tmp_path / "new" / "corpus") == {"corpus-00000.txt": "\n".join([STORY] * 3)}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["corpus"]
    report = capsys.readouterr().err
    size = sum(path.stat().st_size for path in stories.iterdir())
    written = len("\n".join([STORY] * 3).encode())
    assert f"4 files, 3 documents, {3 * len(PARAGRAPHS)} paragraphs, {3 * len(ALL_SENTENCES)} sentences: " in report
    assert f"{size} bytes read, {written} written to 1 file in {tmp_path}/new/corpus" in report
    assert "1 file without text" in report


def test_files_end_between_documents(tmp_path, stories):
    (stories / "d.txt").write_text("One.")
    for name in ("small", "again"):
        prepare(f"--input={stories}/*.txt", f"--output={tmp_path / name}", "--shard_megabytes=0.0001")
        found = contents(tmp_path / name)
        assert [*found] == [f"corpus-0000{number}.txt" for number in range(4)]
        assert [*found.values()] == [STORY, STORY, STORY, "One.\n"]
    megabytes = (len(STORY.encode()) + 2) / 1e6
    prepare(f"--input={stories}/*.txt", f"--output={tmp_path}/pairs", f"--shard_megabytes={megabytes}")
    assert [*contents(tmp_path / "pairs").values()] == [STORY + "\n" + STORY, STORY + "\nOne.\n"]


def test_reads_json_lines_from_several_patterns(tmp_path, capsys):
    rows = [json.dumps({"body": "\n".join(CHINESE)}), json.dumps({"body": " "}), json.dumps({"id": 1})]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (tmp_path / "b.jsonl").write_text(rows[0])
    output = tmp_path / "corpus"
    inputs = f"--input={tmp_path}/*.gz,{tmp_path}/b.jsonl"
    options = ["--file_format=jsonl", "--language=zh", "--text_field=body", "--skip_bad_rows"]
    prepare(inputs, f"--output={output}", *options)
    text = "".join(sentence + "\n" for sentence in CHINESE_SENTENCES)
    assert contents(output) == {"corpus-00000.txt": text + "\n" + text}
    report = capsys.readouterr().err
    assert "1 row without text" in report and "1 bad row skipped" in report


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=DIR/*.md"], r"no file matches the pattern .*\*.md"),
        (["--input=DIR/a.txt", "--shard_megabytes=0"], "--shard_megabytes must be more than 0, got 0"),
        (["--input=DIR/a.txt", "--shard_megabytes=nan"], "--shard_megabytes must be more than 0, got nan"),
        (["--input=DIR/a.txt", "--language=English"], "language must be a language code"),
        (["--input=DIR/blank.txt"], "1 file of --input contain no text; nothing is written"),
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


def test_existing_files_are_not_overwritten(tmp_path, monkeypatch):
    source = tmp_path / "a.txt"
    source.write_text("One.")
    output = tmp_path / "corpus"
    output.mkdir()  # an empty folder is used
    prepare(f"--input={source}", f"--output={output}")
    monkeypatch.setattr(flags, "FLAGS", parse_flags(prepare_corpus, input=source, output=output))
    with pytest.raises(SystemExit, match=r"^tools.prepare_corpus: [^\n]*corpus is not empty, it contains corpus-0"):
        prepare_corpus.main(["prepare_corpus"])
    for name in (source, source / "corpus"):
        with pytest.raises(NotADirectoryError, match=r"cannot be created: .*a.txt is a file"):
            prepare(f"--input={source}", f"--output={name}")
    assert contents(output) == {"corpus-00000.txt": "One.\n"}
    assert source.read_text() == "One."


def test_a_killed_run_can_be_restarted(tmp_path):
    (tmp_path / "a.txt").write_text("One.")
    (tmp_path / ".corpus.unfinished-1").mkdir()
    (tmp_path / ".corpus.unfinished-1" / "corpus-00000.txt").write_text("half")
    prepare(f"--input={tmp_path}/a.txt", f"--output={tmp_path}/corpus")
    assert contents(tmp_path / "corpus") == {"corpus-00000.txt": "One.\n"}
