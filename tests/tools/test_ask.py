import pytest
import tensorflow as tf
from absl import app

from tests.tolerances import assert_close
from tests.toys import toy_classifier
from tools import ask


@pytest.mark.slow
def test_classifies_messages(tmp_path):
    classifier, messages = toy_classifier(), ["good", "bad film", ""]
    found = ask.classify(classifier.export(tmp_path / "1"), messages)
    assert [label for label, _ in found] == classifier.predict_labels(messages)
    probabilities = classifier.predict_probabilities(messages).max(axis=1)
    assert_close([probability for _, probability in found], probabilities, num_terms=64)


def test_rejects_other_models(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in ("question", "context")])
    def answer(question, context):
        return {"answer": context, "score": tf.ones_like(tf.strings.length(question), tf.float32)}

    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=answer)
    message = "takes context, question and returns answer, score; use python -m tools.predict"
    with pytest.raises(ValueError, match=message):
        ask.classify(tmp_path, ["Who came?"])


def test_rejects_bad_input(tmp_path):
    with pytest.raises(ValueError, match=r"must be UTF-8, got b'caf\\xe9'"):
        ask.classify(tmp_path, ["caf\udce9"])
    with pytest.raises(ValueError, match=r"has no saved_model\.pb"):
        ask.classify(tmp_path, ["a message"])
    with pytest.raises(app.UsageError, match="no messages"):
        ask.main(["ask"])
