"""Feeds mutated files to every reader; see `tests/mutations.py`."""

import random

import pytest

from tests.mutations import FORMATS, MISBEHAVING, Worker, assert_reads_mutations, mutate_folder, run_mutations


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {MISBEHAVING}))
def test_readers_refuse_or_accept_mutated_files(name, worker):
    assert_reads_mutations(worker, name)


def test_mutations_are_seeded_and_change_the_folder(tmp_path):
    changes = []
    for attempt in range(2):
        for number in range(50):
            folder = tmp_path / f"{attempt}_{number}"
            folder.mkdir()
            (folder / "file.json").write_text('{"a": [1, {"b": "c"}], "d": 5}')
            changes.append(mutate_folder(folder, random.Random(number), tmp_path))
            file = folder / "file.json"
            is_regular = file.is_file() and not file.is_symlink()
            changes.append(file.read_bytes() if is_regular else b"")
    assert [str(change).replace("1_", "0_") for change in changes[100:]] == [str(change) for change in changes[:100]]
    assert len(set(changes[1:100:2])) > 35


@pytest.mark.slow
def test_the_runner_reports_every_kind_of_problem(worker):
    results = run_mutations([worker], MISBEHAVING, 40)
    assert [result["number"] for result in results] == list(range(40))
    problems = " ".join(str(result["problem"]) for result in results)
    for problem in (
        "ended the process with -6",
        "raised TypeError",
        "raised ValueError without the name of the file",
        "wrote outside the folder",
        "MiB for files of",
        "None",
    ):
        assert problem in problems
    with pytest.raises(AssertionError, match="of 40 mutations of misbehaving"):
        assert_reads_mutations(worker, MISBEHAVING, 40)
