"""Texts or ids in memory with labels and weights, as tokenized examples to train and evaluate on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.data.columns import to_mapping
from keras_bert.models.labels import class_weight_list
from keras_bert.models.text_model import TextModel, is_examples, is_ids, is_stream, padded_examples

if TYPE_CHECKING:
    from keras_bert.data.batching import Examples


class LabelledTextModel(TextModel):
    """A `TextModel` whose examples have labels: it encodes them, and weights classes and examples."""

    has_token_labels = False

    def encode_labels(self, labels: Any) -> Any:
        """Encodes labels as the numbers that the loss takes."""
        return np.asarray(labels)

    def label_classes(self, examples: Any = None) -> list[str] | None:
        """Returns the names of the classes that `class_weight` in `fit` refers to; None if labels are not classes."""
        return None

    def training_examples(self, examples: Any) -> Any:
        """Converts tokenized examples to training examples."""
        return examples

    def tokenize(self, x: Any, y: Any = None, sample_weight: Any = None) -> Examples:
        """Tokenizes texts and encodes their labels.

        Args:
            x, y, sample_weight: texts as for `fit`; without labels if `y` is None.

        Returns:
            `keras_bert.data.tokenized_examples.TokenizedExamples`, which `fit`, `evaluate` and `predict` take as well.

        Raises:
            ValueError, TypeError: on texts or labels that do not fit the model, or without a preprocessor.
        """
        return self._labelled_examples(*self._in_memory(x, y), sample_weight)

    def _examples(self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None) -> Any:
        """Converts texts or ids in memory to training examples with labels."""
        examples = self.training_examples(self._labelled_examples(x, y, sample_weight, class_weight))
        if examples.labels is None:
            raise ValueError("there are no labels: y is None")
        return examples

    def _labelled_examples(self, x: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> Any:
        if is_examples(x):
            if y is not None or sample_weight is not None or class_weight is not None:
                raise ValueError("tokenized examples bring their own labels and weights: leave y and the weights out")
            return x
        labels = None if y is None else self.encode_labels(to_mapping(y))
        if is_ids(x):
            ids = self._checked_ids(to_mapping(x))
            _check_lengths(len(ids["token_ids"]), y=y, sample_weight=sample_weight)
            examples = padded_examples(ids, labels, self.has_token_labels)
        else:
            columns = self._columns(x)
            num_texts = len(next(iter(columns.values())))
            _check_lengths(num_texts, y=y, sample_weight=sample_weight)
            if not num_texts:
                raise ValueError("there are no texts")
            examples = self.tokenize_columns(columns, labels)
        self._set_weights(examples, sample_weight, self._class_weights(class_weight, examples))
        return examples

    def _set_weights(self, examples: Any, sample_weight: Any, class_weights: np.ndarray | None) -> None:
        """Sets the weights of examples: products of sample weights and class weights."""
        if sample_weight is not None:
            sample_weight = np.asarray(to_mapping(sample_weight), "float32")
            if sample_weight.ndim != 1:
                raise ValueError(f"sample_weight must have the shape [examples], got {sample_weight.shape}")
            if len(wrong := np.flatnonzero(~(np.isfinite(sample_weight) & (sample_weight >= 0)))):
                number = wrong[0]
                raise ValueError(
                    f"sample_weight must be finite and at least 0, got {sample_weight[number]} for example {number}; "
                    "give examples to ignore the weight 0"
                )
            sample_weight = self.example_weights(examples, sample_weight)
        if class_weights is not None:
            weights = class_weights[np.maximum(examples.labels, 0)]
            if sample_weight is not None:
                if weights.shape != sample_weight.shape:  # weights of rows, and of the classes of tokens
                    sample_weight = np.repeat(sample_weight, examples.row_lengths)
                weights = weights * sample_weight
            sample_weight = weights
        if sample_weight is not None:
            examples.set_labels(examples.labels, sample_weight)

    def example_weights(self, examples: Any, sample_weight: np.ndarray) -> np.ndarray:
        """Converts weights of texts to weights of tokenized examples; they differ if a text has several rows."""
        return sample_weight

    def _class_weights(self, class_weight: Any, examples: Any = None) -> np.ndarray | None:
        """Converts `fit`'s class_weight to an array [classes]."""
        if class_weight is None:
            return None
        classes = self.label_classes(examples)
        if classes is None:
            raise ValueError(
                f"class_weight needs labels that are classes, which those of this {type(self).__name__} are not; use "
                "sample_weight"
            )
        return np.asarray(class_weight_list(class_weight, classes), "float32")

    def _single_batch(self, x: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> tuple[Any, Any, Any]:
        batch = self._whole(self._examples(*self._in_memory(x, y), sample_weight, class_weight))
        return (*batch, None)[:3]

    def _split(self, x: Any, y: Any, sample_weight: Any, fraction: float) -> tuple[list[Any], ...]:
        """Splits data for training and validation; the last examples are for validation, as in Keras."""
        if is_stream(x) or is_examples(x):
            raise ValueError("validation_split needs texts or ids in memory; for other data pass validation_data")
        columns = {name: to_mapping(values) for name, values in (x if is_ids(x) else self._columns(x)).items()}
        y, sample_weight = to_mapping(y), to_mapping(sample_weight)
        number = len(next(iter(columns.values())))
        _check_lengths(number, y=y, sample_weight=sample_weight)
        cut = int(number * (1 - fraction))
        if not 0 < cut < number:
            raise ValueError(f"validation_split={fraction} of {number} examples leaves one of the two parts empty")
        parts = (slice(cut), slice(cut, None))
        return tuple([_rows(values, part) for values in (columns, y, sample_weight)] for part in parts)


def _rows(data: Any, rows: slice) -> Any:
    if data is None:
        return None
    return {name: values[rows] for name, values in data.items()} if isinstance(data, Mapping) else data[rows]


def _check_lengths(num_examples: int, **parts: Any) -> None:
    for name, values in parts.items():
        if values is not None and not isinstance(values, Mapping) and len(values) != num_examples:
            raise ValueError(f"there are {num_examples} examples, but {name} has {len(values)}")
