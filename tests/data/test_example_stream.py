import pytest

from keras_bert.data.example_stream import ExampleStream, cross_validation_fold, hold_out

EXAMPLES = [{"text": str(number)} for number in range(2000)]


def test_each_pass_reads_again():
    passes = []

    def read():
        passes.append(1)
        yield from "ab"

    stream = ExampleStream(read, "a source")
    assert not passes
    assert list(stream) == list(stream) == ["a", "b"]
    first, second = iter(stream), iter(stream)
    assert next(first) == next(second)
    assert len(passes) == 4
    assert repr(stream) == "ExampleStream(a source)"
    with pytest.raises(ValueError, match="a source has no usable row"):
        list(ExampleStream(lambda: iter([]), "a source"))


def test_hold_out_puts_each_example_in_one_of_two_sets():
    rest, held_out = hold_out(EXAMPLES, 0.1, seed=1)
    assert sorted(int(example["text"]) for example in [*rest, *held_out]) == list(range(2000))
    assert list(held_out) == list(held_out) != list(hold_out(EXAMPLES, 0.1, seed=2)[1])
    assert 150 < len(list(held_out)) < 250
    for fraction in (0, 1, -0.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            hold_out(EXAMPLES, fraction, seed=1)
    with pytest.raises(ValueError, match="of 3 examples with seed 1 leaves one of the two sets empty"):
        hold_out(EXAMPLES[:3], 1e-9, seed=1)


@pytest.mark.parametrize(("num_examples", "num_folds"), [(2776, 5), (7, 3), (5, 5)])
def test_each_example_is_tested_in_one_fold(num_examples, num_folds):
    examples = [{"text": str(number)} for number in range(num_examples)]
    tested, sizes = [], set()
    folds = [cross_validation_fold(examples, fold, 1, num_folds) for fold in range(num_folds)]
    for fold, parts in enumerate(folds):
        numbers = [[int(example["text"]) for example in part] for part in parts]
        assert sorted([*numbers[0], *numbers[1], *numbers[2]]) == list(range(num_examples))
        assert all(part == sorted(part) for part in numbers)
        assert list(parts[1]) == list(folds[(fold + 1) % num_folds][2])
        tested += numbers[2]
        sizes.update(map(len, numbers[1:]))
    assert sorted(tested) == list(range(num_examples))
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_determines_the_folds():
    tests = [list(cross_validation_fold(EXAMPLES, 0, seed)[2]) for seed in (1, 1, 2)]
    assert tests[0] == tests[1] != tests[2]
    # Shuffled: not the first fifth.
    assert 300 < sum(int(example["text"]) >= 400 for example in tests[0]) < 340


@pytest.mark.parametrize(
    ("fold", "num_folds", "message"),
    [
        (5, 5, "fold must be from 0 to 4, got 5"),
        (-1, 5, "fold must be from 0 to 4"),
        (0, 2, "at least 3"),
        (0, 2001, "2000 examples cannot be split into 2001"),
    ],
)
def test_refuses_impossible_folds(fold, num_folds, message):
    with pytest.raises(ValueError, match=message):
        cross_validation_fold(EXAMPLES, fold, 1, num_folds)
