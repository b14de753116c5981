import pytest

from keras_bert.data.holdout import hold_out

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
