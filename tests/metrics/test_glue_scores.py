import pytest

from keras_bert.metrics.classification import accuracy, f1
from keras_bert.metrics.correlation import pearson_correlation, spearman_correlation
from keras_bert.metrics.glue_scores import METRICS, glue_metrics


def test_scores_by_name_in_the_requested_order():
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 0, 1, 1]
    found = glue_metrics(["f1", "accuracy"], labels, predictions)
    assert list(found.items()) == [("f1", f1(labels, predictions)), ("accuracy", accuracy(labels, predictions))]
    values = ([0.0, 2.5, 5.0, 1.0], [0.5, 2.0, 3.0, 2.5])
    assert glue_metrics(["pearson_correlation", "spearman_correlation"], *values) == {
        "pearson_correlation": pearson_correlation(*values),
        "spearman_correlation": spearman_correlation(*values),
    }
    assert all(function.__name__ == name for name, function in METRICS.items())


@pytest.mark.parametrize("names", ["accuracy", ["acuracy"], ["f1", "auc"]])
def test_unknown_names_are_refused(names):
    with pytest.raises(ValueError, match=r"some of \['accuracy', 'f1', 'matthews_correlation'"):
        glue_metrics(names, [0, 1], [0, 1])
