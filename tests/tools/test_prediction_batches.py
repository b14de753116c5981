import random
import time

import pytest

from tools import prediction_batches
from tools.prediction_batches import Batching, predict_rows
from tools.prediction_files import Row


@pytest.mark.parametrize(
    "batching", [Batching(1, 1, 1), Batching(7, 3, 2), Batching(64, 8, 4), Batching(1000, 32, 2), Batching(5, 9, 2)]
)
def test_keeps_the_order_of_the_rows(batching):
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(50), str(i)), ()) for i in range(200)]
    sizes = []

    def join(texts):
        sizes.append(len(texts))
        time.sleep(generator.random() / 1000)
        return [text + number for text, number in texts]

    found = list(predict_rows(iter(rows), join, batching))
    assert found == [(row, "".join(row.texts)) for row in rows]
    assert max(sizes) <= batching.batch_size


def predicted_batches(rows, chunk_size=1000):
    """Returns the texts of all batches, whose predictions are the texts themselves."""
    batches, batching = [], Batching(chunk_size, batch_size=32, num_threads=1)
    found = predict_rows(iter(rows), lambda texts: batches.append(texts) or texts, batching)
    assert list(found) == [(row, row.texts) for row in rows]
    return batches


def test_sorting_in_chunks_reduces_padding():
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(1, 100),), ()) for i in range(1024)]

    def count_padded(chunk_size):
        batches = predicted_batches(rows, chunk_size)
        return sum(len(texts) * max(len(text) for (text,) in texts) for texts in batches)

    characters = sum(len(row.texts[0]) for row in rows)
    assert count_padded(chunk_size=32) > 1.8 * characters
    assert count_padded(chunk_size=1024) < 1.1 * characters


def test_reads_at_most_two_chunks_ahead():
    read = 0

    def rows():
        nonlocal read
        for read in range(1, 10_000):
            yield Row(read, ("a text",), ())

    ahead = [read - row.line for row, _ in predict_rows(rows(), lambda texts: texts, Batching(100, 10, 2))]
    assert len(ahead) == 9_999
    assert max(ahead) < 200


def test_batch_bound_includes_padding(monkeypatch):
    monkeypatch.setattr(prediction_batches, "_MAX_BATCH_CHARACTERS", 300)
    rows = [Row(i, ("x" * length,), ()) for i, length in enumerate([1000, *[5] * 40, 100, 100])]
    lengths = [[len(text) for (text,) in batch] for batch in predicted_batches(rows)]
    assert lengths == [[5] * 32, [5] * 8, [100, 100], [1000]]


def test_groups_rows_by_number_of_choices(monkeypatch):
    monkeypatch.setattr(prediction_batches, "_MAX_BATCH_CHARACTERS", 120)
    generator = random.Random(0)
    rows = [Row(i, ("x" * 9, ("y",) * generator.choice([2, 4])), ()) for i in range(60)]
    numbers = [[len(choices) for _, choices in batch] for batch in predicted_batches(rows)]
    assert [number for batch in numbers for number in batch] == sorted(len(row.texts[1]) for row in rows)
    assert {(len(batch), batch[0]) for batch in numbers if batch[0] == batch[-1]} >= {(6, 2), (3, 4)}
    assert all(len(batch) * max(batch) * 10 <= 120 for batch in numbers)
