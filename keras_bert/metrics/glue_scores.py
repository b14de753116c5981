"""Official scores of GLUE's tasks by name."""

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from keras_bert.metrics.classification import accuracy, f1, matthews_correlation
from keras_bert.metrics.correlation import pearson_correlation, spearman_correlation

# GLUE, arXiv 1804.07461, table 1.
METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
    "pearson_correlation": pearson_correlation,
    "spearman_correlation": spearman_correlation,
}


def glue_metrics(names: Sequence[str], labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Computes the named scores, in the order of the names."""
    if isinstance(names, str) or any(name not in METRICS for name in names):
        raise ValueError(f"names must be a list of some of {list(METRICS)}; got {names!r}")
    return {name: METRICS[name](labels, predictions) for name in names}
