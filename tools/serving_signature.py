"""A SavedModel that takes raw texts: what it takes, and its answers as the columns of a table and as lists for JSON.

Needs TensorFlow and tensorflow-text, and nothing of the class that the model was exported from: what an answer means is
told by the names and shapes of the signature's inputs and outputs.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)

SIGNATURE = "serving_default"
# Outputs with a value for every label, and the names of the columns that they become.
_OUTPUTS_BY_LABEL = {"probabilities": "probability_{}", "values": "{}"}
_NAMES_PER_ROW = "labels"  # string [batch, labels]: the names of those that hold, else ""
# Outputs [batch] that are the first columns of a table, in this order; others follow by their own names.
_FIRST_COLUMNS = {
    "choice": "choice",
    "text": "text",
    "answer": "answer",
    "score": "score",
    "start_character": "start",
    "end_character": "end",
}
# How many texts each row has of an input that takes several; it stands among the outputs.
_NUMBER_OF = "number of {}"


class Column(NamedTuple):
    """An answer of one value for every row.

    Args:
        output: str. The output [batch] that it is, or `labels`, or one [batch, labels].
        label: int or None. Of which label it is, where the output has one value for each.
    """

    output: str
    label: int | None = None

    @property
    def outputs(self):
        """set of str. The outputs that it is made of."""
        return {self.output}

    def rows(self, arrays):
        """The values of a batch.

        Args:
            arrays: dict of output name to array.

        Returns:
            list with a str, a number, or a list of str for every row.
        """
        array = arrays[self.output]
        if self.label is not None:
            return _python_values(array[:, self.label])
        values = _python_values(array)
        return [[name for name in row if name] for row in values] if array.ndim == 2 else values


class Items(NamedTuple):
    """An answer of a list for every row.

    Args:
        source: str, the output that holds the items; or a dict of str to str, several outputs of one shape whose items
            become objects with these keys.
        count: str or None. What says how many of the items are a row's own, the others being padding: an output [batch]
            with their number, or one [batch, items] that is 0 behind the last; or the number of the row's texts of an
            input. None takes all.
        rank: int or None. The axes of the source; None is any number.
    """

    source: str | dict
    count: str | None = None
    rank: int | None = None

    @property
    def sources(self):
        """list of str. The outputs that hold the items."""
        return [self.source] if isinstance(self.source, str) else list(self.source.values())

    @property
    def outputs(self):
        """set of str. The outputs that it is made of."""
        return {*self.sources, self.count} - {None}

    def fits(self, ranks):
        """Whether a signature has these outputs.

        Args:
            ranks: dict of output name to int.

        Returns:
            bool.
        """
        return self.count in ranks and all(ranks.get(name) == self.rank for name in self.sources)

    def rows(self, arrays):
        """The lists of a batch.

        Args:
            arrays: dict of output name to array.

        Returns:
            Iterator of lists, which may hold further ones.
        """
        batch = [arrays[name] for name in self.sources]
        numbers = [None] * len(batch[0])
        if self.count is not None:
            count = arrays[self.count]
            numbers = count if count.ndim == 1 else np.count_nonzero(count, axis=1)
        for row, number in enumerate(numbers):
            values = [_python_values(array[row][:number]) for array in batch]
            yield values[0] if isinstance(self.source, str) else _objects(list(self.source), values)


# What is known of the lists that exported models answer, by the names that they get.
_KNOWN_LISTS = {
    "n_best": Items(
        {
            "answer": "n_best_answers",
            "score": "n_best_scores",
            "start": "n_best_start_characters",
            "end": "n_best_end_characters",
        },
        count="n_best_end_characters",
        rank=2,
    ),
    "words": Items(
        {"text": "words", "tag": "tags", "score": "scores", "start": "start_characters", "end": "end_characters"},
        count="word_count",
        rank=2,
    ),
    "entities": Items(
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
    "masks": Items({"word": "words", "probability": "probabilities"}, count="masks", rank=3),
    "probabilities": Items("probabilities", count=_NUMBER_OF.format("choices"), rank=2),
}


class ServingSignature:
    """The signature `serving_default` of a SavedModel, as a function from texts to rows of answers.

    Args:
        folder: str or Path. The folder of the SavedModel.

    Attributes:
        inputs: dict of str to bool. The names of its texts, and whether a row has several of them.
        columns: list of str. The names of the answers that are one value for each row, as the columns of a table.
        lists: list of str. The names of the answers that are a list for each row, as JSON has them.

    Raises:
        OSError: if the folder holds no SavedModel.
        ValueError: if the model lacks the signature, takes something else than texts, or does not answer row by row.
    """

    def __init__(self, folder):
        folder = Path(folder)
        self._model = tf.saved_model.load(str(folder))  # the signature does not keep the variables alive
        if SIGNATURE not in self._model.signatures:
            raise ValueError(
                f"{folder} has no signature {SIGNATURE!r}; it has {sorted(self._model.signatures)}. Export the model "
                "with a preprocessor: `model.export(path)`"
            )
        self._serve = self._model.signatures[SIGNATURE]
        self.inputs = _text_inputs(folder, self._serve.structured_input_signature[1])
        labels_file = folder / "assets" / "labels.txt"
        labels = labels_file.read_text(encoding="utf-8").rstrip("\n").split("\n") if labels_file.is_file() else None
        columns, lists = answer_sources(self._serve.structured_outputs, self.inputs, labels)
        self._sources = {**columns, **lists}
        self.columns, self.lists = list(columns), list(lists)

    def __call__(self, texts, names):
        """The answers to one batch.

        Args:
            texts: dict of input name to list of str, or of tuples of str where a row has several; all of one length.
            names: list of str, the answers wanted, of `columns` and `lists`.

        Returns:
            list with a list for every row: its value of every one of `names`, as JSON can hold it.

        Raises:
            ValueError: if the signature does not answer each row.
        """
        inputs, numbers = {}, {}
        for name, of_rows in texts.items():
            if self.inputs[name]:
                numbers[_NUMBER_OF.format(name)] = np.array([len(of_row) for of_row in of_rows])
                of_rows = _filled_up(of_rows)
            inputs[name] = tf.constant(of_rows, tf.string)
        answers, sources = self._serve(**inputs), [self._sources[name] for name in names]
        wanted = set().union(*(source.outputs for source in sources))
        arrays = {name: answer.numpy() for name, answer in answers.items() if name in wanted}
        for name, array in arrays.items():
            if len(array) != len(of_rows):
                raise ValueError(
                    f"the signature's output {name!r} has {len(array)} rows, for {len(of_rows)} rows of texts"
                )
        return [list(row) for row in zip(*(source.rows(arrays | numbers) for source in sources), strict=True)]


def answer_sources(outputs, inputs, labels=None):
    """What each answer is made of, by the names and shapes of a signature's inputs and outputs.

    An output [batch] is a column with its own name, and so is `labels` [batch, labels], whose rows are lists of the
    names that hold. `probabilities` and `values` [batch, labels] become a column for each label; the outputs that hold
    each of these columns once more (`score_<label>`, whose names are changed to what TensorFlow allows) are left out,
    and so are places in bytes that are also given in characters. What else has more axes is a list for each row: of
    objects and without padding where keras_bert's models are known to answer so, else as it is.

    Args:
        outputs: dict of output name to tf.TensorSpec.
        inputs: dict of input name to bool, whether a row has several texts of it.
        labels: list of str, the names of the labels in order. None numbers them from 0.

    Returns:
        A pair of dicts, of column name to `Column` in the order of a table, and of list name to `Items`.

    Raises:
        ValueError: if an output has not the batch as its first axis, or `labels` has another length than an output has
            columns.

    Example:

    >>> specs = {"probabilities": tf.TensorSpec([None, 2]), "label": tf.TensorSpec([None], tf.string)}
    >>> columns, lists = answer_sources(specs, {"text": False}, ["bad", "very good"])
    >>> list(columns), list(lists)
    (['label', 'probability_bad', 'probability_very good'], [])
    """
    for name, spec in outputs.items():
        if not spec.shape.rank or spec.shape[0] is not None:
            raise ValueError(
                f"the signature's output {name!r} has the shape {spec.shape}, which is no answer for each row of a "
                "batch; it must begin with an axis of unknown size"
            )
    ranks = {name: spec.shape.rank for name, spec in outputs.items()}
    numbers = {_NUMBER_OF.format(name): 1 for name, several in inputs.items() if several}
    lists = {name: items for name, items in _KNOWN_LISTS.items() if items.fits(ranks | numbers)}
    used = set().union(*(items.outputs for items in lists.values()))
    used |= {name for name in outputs if "byte" in name and name.replace("byte", "character") in outputs}
    by_label = _columns_by_label({name: spec for name, spec in outputs.items() if name not in used}, labels)
    used |= {column.output for column in by_label.values()}
    if by_label:
        used |= {name for name, spec in outputs.items() if spec.shape.rank == 1 and spec.dtype.is_floating}

    columns = {}
    for name in sorted(outputs.keys() - used, key=_place):
        if ranks[name] == 1:
            column = _FIRST_COLUMNS.get(name, name)
            columns[name if column in outputs else column] = Column(name)
        elif ranks[name] == 2 and name == _NAMES_PER_ROW and outputs[name].dtype == tf.string:
            columns[name] = Column(name)
        else:
            lists[name] = Items(name)
    return {**columns, **by_label}, lists


def _columns_by_label(outputs, labels):
    columns = {}
    for name, column in _OUTPUTS_BY_LABEL.items():
        shape = outputs[name].shape if name in outputs else tf.TensorShape(None)
        if shape.rank != 2 or (shape[1] is None and labels is None):
            continue
        if labels is not None and len(labels) != shape[1]:
            raise ValueError(
                f"the signature's output {name!r} has the shape {shape}; expected [batch, {len(labels)}], a column for "
                f"each of the labels {labels}"
            )
        columns |= {column.format(label): Column(name, index) for index, label in enumerate(labels or range(shape[1]))}
    return columns


def _place(name):
    """Where an output stands in the order of a table."""
    first = list(_FIRST_COLUMNS)
    return first.index(name) if name in first else len(first), name


def _text_inputs(folder, specs):
    """The names of the texts that a signature takes, and whether a row has several of each."""
    allowed = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string))
    if specs and all(tf.TensorSpec(spec.shape, spec.dtype) in allowed for spec in specs.values()):
        return {name: spec.shape.rank == 2 for name, spec in specs.items()}
    received = {name: f"{spec.dtype.name} {spec.shape}" for name, spec in specs.items()}
    raise ValueError(
        f"the signature {SIGNATURE!r} of {folder} takes {received}; it must take raw texts, string [batch], or [batch, "
        "texts] where a row has several"
    )


def _filled_up(rows):
    """Tuples of texts as lists of one length, by empty texts."""
    longest = max(map(len, rows))
    return [[*row, *[""] * (longest - len(row))] for row in rows]


def _objects(keys, columns):
    """Items as dicts, from lists of what stands under each key, which may be lists of lists."""
    if any(isinstance(value, list) for value in columns[0]):
        return [_objects(keys, of_item) for of_item in zip(*columns, strict=True)]
    return [dict(zip(keys, item, strict=True)) for item in zip(*columns, strict=True)]


def _python_values(array):
    """An array as what a table or JSON holds: a list, of lists if it has several axes."""
    if array.dtype == object:
        return _decoded(array.tolist())
    if np.issubdtype(array.dtype, np.floating):
        # By way of the shortest decimal: 0.1, not 0.10000000149011612.
        return array.astype(str).astype(float).tolist()
    return array.tolist()


def _decoded(value):
    return [_decoded(each) for each in value] if isinstance(value, list) else value.decode("utf-8", "replace")
