import pytest

from keras_bert.models.head import BertHead
from tests.models.test_multiple_choice import toy_model as multiple_choice
from tests.models.test_token_classifier import toy_model as token_classifier

LENGTHS = [9, 1, 8, 2]  # words


def questions():
    prompts = [" ".join(["film"] * length) for length in LENGTHS]
    return {"prompt": prompts, "choices": [["good", "bad"]] * len(LENGTHS)}, [0] * len(LENGTHS)


def sentences():
    return [["film"] * length for length in LENGTHS], [["O"] * length for length in LENGTHS]


@pytest.mark.parametrize(
    "make_model, make_examples, added, expected",
    # A row of choices has the word of the choice and three special tokens besides, one of a sentence two of them.
    [(multiple_choice, questions, 4, [[1, 2], [8, 9]]), (token_classifier, sentences, 2, [[1, 9], [2, 8]])],
)
def test_like_lengths_come_together_unless_long_examples_weigh_more(
    make_model, make_examples, added, expected, monkeypatch
):
    monkeypatch.setattr(BertHead, "fit", lambda _, batches, steps_per_epoch, **__: batches.take(steps_per_epoch))
    monkeypatch.setattr(BertHead, "evaluate", lambda _, batches, **__: batches)
    model = make_model()
    model.compile()
    for method, arguments in ((model.fit, {"shuffle": False}), (model.evaluate, {})):
        masks = [inputs["padding_mask"].numpy() for inputs, _ in method(*make_examples(), batch_size=2, **arguments)]
        lengths = [mask.sum(axis=-1).reshape(2, -1).max(axis=1) - added for mask in masks]
        assert sorted(sorted(of_batch.tolist()) for of_batch in lengths) == expected
