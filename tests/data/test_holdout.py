import pytest

from keras_bert.data.holdout import cross_validation_fold, hold_out

EXAMPLES = [{"text": str(number)} for number in range(2000)]


def test_every_example_is_on_one_side_and_the_same_one_each_time():
    rest, held_out = hold_out(EXAMPLES, 0.1, seed=1)
    assert sorted(int(example["text"]) for example in [*rest, *held_out]) == list(range(2000))
    assert list(held_out) == list(held_out)
    assert 150 < len(list(held_out)) < 250


def test_the_seed_decides():
    assert list(hold_out(EXAMPLES, 0.1, seed=1)[1]) != list(hold_out(EXAMPLES, 0.1, seed=2)[1])


@pytest.mark.parametrize("share", [0, 1, -0.5])
def test_shares_that_are_none(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        hold_out(EXAMPLES, share, seed=1)


def test_an_empty_side_is_an_error():
    with pytest.raises(ValueError, match="leaves one of the two parts of 3 examples empty"):
        hold_out(EXAMPLES[:3], 1e-9, seed=1)


@pytest.mark.parametrize(("number", "folds"), [(2000, 5), (2776, 5), (7, 3), (5, 5)])
def test_every_example_is_tested_in_one_fold(number, folds):
    examples = [{"text": str(place)} for place in range(number)]
    tested, sizes = [], set()
    parts_of_folds = [cross_validation_fold(examples, fold, 1, folds) for fold in range(folds)]
    for fold, parts in enumerate(parts_of_folds):
        numbers = [[int(example["text"]) for example in part] for part in parts]
        assert sorted([*numbers[0], *numbers[1], *numbers[2]]) == list(range(number))
        assert all(part == sorted(part) for part in numbers)
        assert [list(part) for part in parts] == [list(part) for part in parts]
        assert list(parts[1]) == list(parts_of_folds[(fold + 1) % folds][2])
        tested += numbers[2]
        sizes.update(map(len, numbers[1:]))
    assert sorted(tested) == list(range(number))
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_decides_on_folds():
    tests = [list(cross_validation_fold(EXAMPLES, 0, seed)[2]) for seed in (1, 1, 2)]
    assert tests[0] == tests[1] != tests[2]
    # Shuffled: not the first fifth.
    assert 300 < sum(int(example["text"]) >= 400 for example in tests[0]) < 340


@pytest.mark.parametrize(
    ("fold", "folds", "message"),
    [
        (5, 5, "fold must be from 0 to 4, got 5"),
        (-1, 5, "fold must be from 0 to 4"),
        (0, 2, "at least 3"),
        (0, 2001, "2000 examples cannot be cut into 2001 parts"),
    ],
)
def test_folds_that_cannot_be(fold, folds, message):
    with pytest.raises(ValueError, match=message):
        cross_validation_fold(EXAMPLES, fold, 1, folds)
