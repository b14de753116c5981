"""Runs the text signature of any exported model without keras_bert; its outputs become table columns and lists."""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)

SIGNATURE = "serving_default"
# Outputs with one value per label, and the names of their columns.
_COLUMN_NAMES_BY_LABEL = {"probabilities": "probability_{}", "values": "{}"}
_LABEL_SETS = "labels"  # string [batch, labels]: the names of the predicted labels, else ""
# Outputs [batch] that come first in a table, in this order; others follow in alphabetical order.
_FIRST_COLUMNS = {
    "choice": "choice",
    "text": "text",
    "answer": "answer",
    "score": "score",
    "start_character": "start",
    "end_character": "end",
}
_COUNT_OF_TEXTS = "number of {}"  # added to the outputs: how many texts a row has of an input that takes several


class Column(NamedTuple):
    """One value per row: an output [batch], the label sets, or one label's column of an output [batch, labels]."""

    output: str
    label_index: int | None = None

    @property
    def outputs(self):
        return {self.output}

    def type(self, outputs):
        """Returns the type as `ServingSignature.types` has it, from {output name: spec}."""
        spec = outputs[self.output]
        return (0 if self.label_index is not None else spec.shape.rank - 1), spec.dtype.name

    def rows(self, arrays):
        """Returns a string, a number or a list of strings for each row, from {output name: array}."""
        array = arrays[self.output]
        if self.label_index is not None:
            return to_python(array[:, self.label_index])
        values = to_python(array)
        return [[name for name in row if name] for row in values] if array.ndim == 2 else values


class ItemList(NamedTuple):
    """A list per row."""

    source: str | dict  # the output that holds the items, or {key: output}, whose items become objects
    # The output [batch] with the number of items, or [batch, items] that is 0 after the last one, or the number of the
    # row's texts. None keeps all items.
    count: str | None = None
    rank: int | None = None  # number of axes of the sources, or None for any

    @property
    def sources(self):
        return [self.source] if isinstance(self.source, str) else list(self.source.values())

    @property
    def outputs(self):
        return {*self.sources, self.count} - {None}

    def matches(self, ranks):
        """Whether a signature with outputs of these ranks, {output name: int}, has this list."""
        return self.count in ranks and all(ranks.get(name) == self.rank for name in self.sources)

    def type(self, outputs):
        """Returns the type as `ServingSignature.types` has it, from {output name: spec}."""
        dtypes = [outputs[name].dtype.name for name in self.sources]
        element = dtypes[0] if isinstance(self.source, str) else dict(zip(self.source, dtypes, strict=True))
        return outputs[self.sources[0]].shape.rank - 1, element

    def rows(self, arrays):
        """Yields the list of each row, from {output name: array}."""
        sources = [arrays[name] for name in self.sources]
        counts = [None] * len(sources[0])
        if self.count is not None:
            count = arrays[self.count]
            counts = count if count.ndim == 1 else np.count_nonzero(count, axis=1)
        for row, count in enumerate(counts):
            values = [to_python(array[row][:count]) for array in sources]
            yield values[0] if isinstance(self.source, str) else _make_objects(list(self.source), values)


# The lists that the exports of keras_bert return, by their names in JSON.
_KNOWN_LISTS = {
    "n_best": ItemList(
        {
            "answer": "n_best_answers",
            "score": "n_best_scores",
            "start": "n_best_start_characters",
            "end": "n_best_end_characters",
        },
        count="n_best_end_characters",
        rank=2,
    ),
    "words": ItemList(
        {"text": "words", "tag": "tags", "score": "scores", "start": "start_characters", "end": "end_characters"},
        count="word_count",
        rank=2,
    ),
    "entities": ItemList(
        {
            "text": "entities",
            "type": "entity_types",
            "score": "entity_scores",
            "start": "entity_start_characters",
            "end": "entity_end_characters",
        },
        count="entity_count",
        rank=2,
    ),
    "masks": ItemList({"word": "words", "probability": "probabilities"}, count="masks", rank=3),
    "probabilities": ItemList("probabilities", count=_COUNT_OF_TEXTS.format("choices"), rank=2),
}


class ServingSignature:
    """The signature `serving_default` of a SavedModel as a function from texts to rows of predictions.

    Attributes:
        inputs: {input name: bool}, whether a row has several texts of that input.
        columns: Names of the predictions with one value per row.
        lists: Names of the predictions with a list per row.
        types: {name of a prediction: (depth, element)}: how many lists are nested, and the name of the dtype in them,
            or {key: name of its dtype} for objects.
    """

    def __init__(self, folder):
        self._model = tf.saved_model.load(str(folder))  # the signature does not keep the variables alive
        if SIGNATURE not in self._model.signatures:
            raise ValueError(
                f"{folder} has no signature {SIGNATURE!r}; it has {sorted(self._model.signatures)}. Export the model "
                "with a preprocessor: `model.export(path)`"
            )
        self._serve = self._model.signatures[SIGNATURE]
        self.inputs = _find_text_inputs(folder, self._serve.structured_input_signature[1])
        columns, lists = map_outputs(self._serve.structured_outputs, self.inputs, read_labels(folder))
        self._predictions = {**columns, **lists}
        self.columns, self.lists = list(columns), list(lists)
        outputs = self._serve.structured_outputs
        self.types = {name: prediction.type(outputs) for name, prediction in self._predictions.items()}

    def run(self, inputs):
        """Returns {output name: array} for {input name: string tensor}."""
        return {name: output.numpy() for name, output in self._serve(**inputs).items()}

    def __call__(self, texts, names):
        """Predicts for one batch."""
        inputs, counts = {}, {}
        for name, rows in texts.items():
            if self.inputs[name]:
                counts[_COUNT_OF_TEXTS.format(name)] = np.array([len(row) for row in rows])
                rows = _pad(rows)
            inputs[name] = tf.constant(rows, tf.string)
        outputs, predictions = self.run(inputs), [self._predictions[name] for name in names]
        wanted = set().union(*(prediction.outputs for prediction in predictions))
        arrays = {name: array for name, array in outputs.items() if name in wanted}
        for name, array in arrays.items():
            if len(array) != len(rows):
                raise ValueError(f"the signature's output {name!r} has {len(array)} rows for {len(rows)} rows of texts")
        return [list(row) for row in zip(*(item.rows(arrays | counts) for item in predictions), strict=True)]


def read_labels(folder):
    """Returns the labels of an exported model, in the order of its outputs, or None."""
    path = os.path.join(folder, "assets", "labels.txt")  # may be remote
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8").rstrip("\n").split("\n")


def map_outputs(outputs, inputs, labels=None):
    """Maps the outputs of a signature to predictions, by names and shapes."""
    for name, spec in outputs.items():
        if not spec.shape.rank or spec.shape[0] is not None:
            raise ValueError(
                f"the signature's output {name!r} has shape {spec.shape}; its first axis must be the batch, of unknown "
                "size"
            )
    ranks = {name: spec.shape.rank for name, spec in outputs.items()}
    counts = {_COUNT_OF_TEXTS.format(name): 1 for name, has_several in inputs.items() if has_several}
    lists = {name: items for name, items in _KNOWN_LISTS.items() if items.matches(ranks | counts)}
    used = set().union(*(items.outputs for items in lists.values()))
    used |= {name for name in outputs if "byte" in name and name.replace("byte", "character") in outputs}
    by_label = _map_label_columns({name: spec for name, spec in outputs.items() if name not in used}, labels)
    used |= {column.output for column in by_label.values()}
    if by_label:  # `score_<label>` repeats the columns of the labels
        used |= {name for name, spec in outputs.items() if spec.shape.rank == 1 and spec.dtype.is_floating}

    columns, rest = {}, outputs.keys() - used
    for name in [name for name in _FIRST_COLUMNS if name in rest] + sorted(rest - _FIRST_COLUMNS.keys()):
        if ranks[name] == 1:
            column = _FIRST_COLUMNS.get(name, name)
            columns[name if column in outputs else column] = Column(name)
        elif ranks[name] == 2 and name == _LABEL_SETS and outputs[name].dtype == tf.string:
            columns[name] = Column(name)
        else:
            lists[name] = ItemList(name)
    return {**columns, **by_label}, lists


def _map_label_columns(outputs, labels):
    columns = {}
    for name, column in _COLUMN_NAMES_BY_LABEL.items():
        shape = outputs[name].shape if name in outputs else tf.TensorShape(None)
        if shape.rank != 2 or (shape[1] is None and labels is None):
            continue
        if labels is not None and len(labels) != shape[1]:
            raise ValueError(
                f"the signature's output {name!r} has shape {shape}; expected [batch, {len(labels)}], one column for "
                f"each of the labels {labels}"
            )
        columns |= {column.format(label): Column(name, index) for index, label in enumerate(labels or range(shape[1]))}
    return columns


def _find_text_inputs(folder, specs):
    """Returns {input name: whether a row has several texts of it}."""
    allowed = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string))
    if specs and all(tf.TensorSpec(spec.shape, spec.dtype) in allowed for spec in specs.values()):
        return {name: spec.shape.rank == 2 for name, spec in specs.items()}
    received = {name: f"{spec.dtype.name} {spec.shape}" for name, spec in specs.items()}
    raise ValueError(
        f"the signature {SIGNATURE!r} of {folder} takes {received}; it must take raw texts, string [batch] or [batch, "
        "texts]"
    )


def _pad(rows):
    """Pads tuples of texts to one length with empty texts."""
    longest = max(map(len, rows))
    return [[*row, *[""] * (longest - len(row))] for row in rows]


def _make_objects(keys, values):
    """Makes a dict of each item, from one list of items per key, which may be nested."""
    if any(isinstance(value, list) for value in values[0]):
        return [_make_objects(keys, nested) for nested in zip(*values, strict=True)]
    return [dict(zip(keys, item, strict=True)) for item in zip(*values, strict=True)]


def to_python(array):
    """Converts an array to nested lists of strings and numbers."""
    if array.dtype == object:
        return _decode(array.tolist())
    if np.issubdtype(array.dtype, np.floating):
        # Through the shortest decimal: 0.1, not 0.10000000149011612.
        return array.astype(str).astype(float).tolist()
    return array.tolist()


def _decode(value):
    return [_decode(each) for each in value] if isinstance(value, list) else value.decode("utf-8", "replace")
