import itertools
import random
from pathlib import Path

import pytest

from keras_bert.pretraining import shards as module
from keras_bert.pretraining.shards import plan_shards, read_lines, read_range


def write(folder, *contents):
    paths = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.txt"
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def random_content(generator):
    """Lines and blank lines of all sorts, with documents short and long."""
    parts = []
    for _ in range(generator.choice([0, 1, 5, 30])):
        for _ in range(generator.choice([1, 3, 40])):
            parts.append(b"x" * generator.randint(1, 30) + generator.choice([b"\n", b"\r\n", b"  \n"]))
        blank = generator.choice([b"\n", b"\r\n", b" \t\n", b"\n\n \n", b"\x0b\n"])
        parts.append(blank * generator.randint(1, 3))
    if parts and generator.random() < 0.5:
        parts.append(b"the end")
    return b"".join(parts)


def documents_of(lines):
    groups = itertools.groupby(lines, key=lambda line: bool(line.strip()))
    return [list(document) for has_text, document in groups if has_text]


def test_every_byte_is_in_one_shard_and_documents_are_whole(tmp_path, warnings, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_SIZE", 16)  # so that blank lines extend over several blocks
    for seed in range(30):
        generator = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        paths = write(folder, *(random_content(generator) for _ in range(generator.choice([1, 2, 12]))), b"end\n")
        contents = {path: Path(path).read_bytes() for path in paths}
        shard_bytes = generator.choice([64, 300, 2000, 10**6])
        warnings.clear()
        plan = plan_shards(paths, shard_bytes)
        assert [shard.number for shard in plan] == list(range(len(plan)))
        assert all(shard_bytes <= shard.size <= 2 * shard_bytes for shard in plan[:-1])
        assert 1 <= plan[-1].size <= 2 * shard_bytes
        ranges = [byte_range for shard in plan for byte_range in shard.ranges]
        found = {path: b"" for path in paths}
        for path, start, end in ranges:
            assert start == len(found[path]) < end  # each range starts at the end of the one before
            found[path] += contents[path][start:end]
        assert found == contents
        cut = []
        for path, _, end in ranges:
            before = contents[path][:end]
            assert end == len(contents[path]) or before.endswith(b"\n")
            if end < len(contents[path]) and before.split(b"\n")[-2].strip():
                cut.append(end)
        assert bool(warnings) == bool(cut)
        if not cut:
            whole = [document for path in paths for document in documents_of(contents[path].decode().split("\n"))]
            assert documents_of(line for shard in plan for line in read_lines(shard)) == whole


def test_the_plan_does_not_depend_on_the_size_of_a_block(tmp_path, monkeypatch):
    generator = random.Random(1)
    paths = write(tmp_path, *(random_content(generator) for _ in range(9)), b"end\n")
    plans = []
    for block in (1, 2, 7, 1 << 16):
        monkeypatch.setattr(module, "_BLOCK_SIZE", block)
        plans.append(plan_shards(paths, 500))
    assert all(plan == plans[0] for plan in plans)
    assert len(plan_shards(paths, 250)) > len(plans[0]) > 3


def test_a_long_document_is_cut_after_a_line_with_a_warning(tmp_path, warnings):
    content = b"a line\n" * 100 + b"\nnext\n"
    (path,) = write(tmp_path, content)
    plan = plan_shards([path], 100)
    assert len(plan) == 5
    assert all(set(read_lines(shard)) <= {"a line", "next", ""} for shard in plan)
    assert warnings == [
        f"documents longer than 100 bytes are cut at 3 positions, such as {path} at byte "
        f"{plan[0].ranges[0][2]}. Larger shards keep them whole, but need more memory"
    ]


def test_a_plan_reads_only_a_few_kilobytes_per_shard(tmp_path, monkeypatch):
    (path,) = write(tmp_path, b"a short line\n\n" * 100_000)
    read = []

    class Watched(module.tf.io.gfile.GFile):
        def read(self, n=-1):
            read.append(n)
            return super().read(n)

    monkeypatch.setattr(module.tf.io.gfile, "GFile", Watched)
    plan = plan_shards([path], 140_000)
    assert len(plan) == 10
    assert 0 < sum(read) <= 10 * (1 << 16)


@pytest.mark.parametrize(
    "names, error, message",
    [
        ([], ValueError, "no files are given"),
        (["empty.txt", "none.txt"], ValueError, "all 2 files of the corpus are empty, such as DIR/empty.txt"),
        (["missing.txt"], FileNotFoundError, "DIR/missing.txt does not exist or is a folder"),
        (["."], FileNotFoundError, "DIR/. does not exist or is a folder"),
        (["a.txt.gz"], ValueError, r"a\.txt\.gz is compressed.*decompress it first"),
        (["little_endian.txt"], ValueError, "DIR/little_endian.txt is UTF-16; convert it to UTF-8"),
        (["big_endian.txt"], ValueError, "DIR/big_endian.txt is UTF-16; convert it to UTF-8"),
        (["a.txt", "a.txt"], ValueError, "is given twice"),
        (["a.txt", "./a.txt"], ValueError, "is given twice"),
        (["a.txt", "link.txt"], ValueError, "is given twice"),
        (["long.txt"], ValueError, "DIR/long.txt: there is no line end within 100 bytes.* after byte 100"),
    ],
)
def test_unusable_files_are_refused(tmp_path, names, error, message):
    files = {"a.txt": b"text\n", "a.txt.gz": b"text\n", "empty.txt": b"", "none.txt": b""}
    files["long.txt"] = b"short\n" + b"x" * 1000 + b"\nshort\n"
    files |= {f"{end}_endian.txt": "\ufeffa text\n".encode(f"utf-16-{end[0]}e") for end in ("little", "big")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(error, match=message.replace("DIR", str(tmp_path))):
        plan_shards([f"{tmp_path}/{name}" for name in names], 100)


def test_shard_bytes_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="shard_bytes must be at least 1, got 0"):
        plan_shards(write(tmp_path, b"text\n"), 0)


def test_invalid_utf_8_is_reported_with_file_and_byte(tmp_path):
    content = b"good\n\n" * 20 + "caf\u00e9\n".encode("latin-1") + b"\ngood\n"
    (path,) = write(tmp_path, content)
    plan = plan_shards([path], 50)
    assert len(plan) > 2
    with pytest.raises(ValueError, match=f"{path} is not UTF-8: byte 123 cannot be decoded. Convert it"):
        for shard in plan:
            list(read_lines(shard))


def test_a_truncated_file_is_refused(tmp_path):
    (path,) = write(tmp_path, b"text\n" * 10)
    (shard,) = plan_shards([path])
    (tmp_path / "0.txt").write_bytes(b"text\n")
    with pytest.raises(ValueError, match=f"{path} has changed: it ends before byte 50"):
        list(read_lines(shard))


def test_lines_are_split_at_line_feeds_only(tmp_path):
    (path,) = write(tmp_path, "\ufeffone\r\ntwo\u2028three\x0b\n\n last".encode())
    assert read_range(path, 0, 27) == ["\ufeffone\r", "two\u2028three\x0b", "", " last"]
    assert read_range(path, 8, 22) == ["two\u2028three\x0b", ""]
