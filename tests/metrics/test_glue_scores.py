import pytest

from keras_bert.metrics.classification import accuracy, f1
from keras_bert.metrics.correlation import spearman_correlation
from keras_bert.metrics.glue_scores import METRICS, glue_metrics


def test_scores_by_name_in_the_requested_order():
    assert all(function.__name__ == name for name, function in METRICS.items())
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 0, 1, 1]
    found = glue_metrics(["spearman_correlation", "f1", "accuracy"], labels, predictions)
    functions = (spearman_correlation, f1, accuracy)
    assert list(found.items()) == [(each.__name__, each(labels, predictions)) for each in functions]


@pytest.mark.parametrize("names", ["accuracy", ["acuracy"], ["f1", "auc"]])
def test_rejects_unknown_names(names):
    with pytest.raises(ValueError, match=r"some of \['accuracy', 'f1', 'matthews_correlation'"):
        glue_metrics(names, [0, 1], [0, 1])
