import numpy as np
import pytest

from keras_bert.models.head import BertHead
from keras_bert.models.span_labeler import BertSpanLabeler
from tests.models.test_multiple_choice import toy_model as multiple_choice
from tests.models.test_token_classifier import toy_model as token_classifier
from tests.toys import toy_encoder

LENGTHS = [9, 1, 8, 2]  # words


def questions():
    prompts = [" ".join(["film"] * length) for length in LENGTHS]
    return {"prompt": prompts, "choices": [["good", "bad"]] * len(LENGTHS)}, [0] * len(LENGTHS)


def sentences():
    return [["film"] * length for length in LENGTHS], [["O"] * length for length in LENGTHS]


def span_labeler():
    return BertSpanLabeler(toy_encoder())


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


@pytest.mark.parametrize(
    "make_model, examples, message",
    [
        (token_classifier, [["a", "film"]], r"got \[\['a', 'film'\]\]. Sentences are for `predict_tags`"),
        (span_labeler, {"question": ["a"], "context": ["b"]}, "are for `answer`"),
        (multiple_choice, ["a film"], "a dict with prompt and choices"),
    ],
)
def test_texts_are_predicted_by_other_methods(make_model, examples, message):
    model = make_model()
    for given in (examples, iter(examples)):
        with pytest.raises(ValueError, match=f"`predict` takes ids, .*{message}"):
            model.predict(given)


def test_generators_give_examples_or_batches_of_ids(monkeypatch):
    monkeypatch.setattr(BertHead, "fit", lambda _, batches, *__, **___: batches)
    monkeypatch.setattr(BertHead, "evaluate", lambda _, batches, *__, **___: batches)
    model = token_classifier()
    model.compile()
    ids, labels = {"token_ids": np.array([[2, 4, 3]])}, np.array([[-1, 0, -1]])
    for method in (model.fit, model.evaluate):
        assert list(method(batch for batch in [(ids, labels)] * 2)) == [(ids, labels)] * 2
        inputs, _ = next(iter(method((words for words in [["a", "film"]]), [["O", "O"]])))
        assert inputs["token_ids"].shape == (1, 4)
    prediction = model.predict(((ids,) for _ in range(2)), verbose=0)
    np.testing.assert_allclose(prediction, np.repeat(model(ids), 2, axis=0), atol=1e-6)
