"""A SavedModel that takes raw texts: what it takes, and its answers as the columns of a table.

Needs TensorFlow and tensorflow-text, and nothing of the class that the model was exported from.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)

SIGNATURE = "serving_default"
# The sets of text inputs that a row of a file can be given to.
TEXT_INPUTS = (("text",), ("text_a", "text_b"))
# Outputs with a value for every label, and the names of the columns that they become.
_OUTPUTS_BY_LABEL = {"probabilities": "probability_{}", "values": "{}"}
_NAMES_PER_ROW = "labels"  # string [batch, labels]: the names of those that hold, else ""


class ServingSignature:
    """The signature `serving_default` of a SavedModel, as a function from texts to rows of a table.

    Args:
        folder: str or Path. The folder of the SavedModel.

    Attributes:
        inputs: tuple of str. The names of its texts: `text`, or `text_a` and `text_b`.
        columns: list of str. The names of the columns that its answers have.

    Raises:
        OSError: if the folder holds no SavedModel.
        ValueError: if the model lacks the signature, or takes or gives something else than texts and columns.
    """

    def __init__(self, folder):
        folder = Path(folder)
        self._model = tf.saved_model.load(str(folder))  # the signature does not keep the variables alive
        if SIGNATURE not in self._model.signatures:
            raise ValueError(
                f"{folder} has no signature {SIGNATURE!r}; it has {sorted(self._model.signatures)}. Export the model "
                "with a preprocessor: `classifier.export(path)`"
            )
        self._serve = self._model.signatures[SIGNATURE]
        self.inputs = _text_inputs(folder, self._serve.structured_input_signature[1])
        labels_file = folder / "assets" / "labels.txt"
        labels = labels_file.read_text(encoding="utf-8").rstrip("\n").split("\n") if labels_file.is_file() else None
        self._sources = answer_columns(self._serve.structured_outputs, labels)
        self.columns = list(self._sources)

    def __call__(self, texts):
        """The answers to one batch.

        Args:
            texts: dict of input name to list of str, all of one length.

        Returns:
            list with a list for every row: its value in every one of `columns`, a str, a float, an int, or a list of
            str.
        """
        inputs = {name: tf.constant(values, tf.string) for name, values in texts.items()}
        answers = self._serve(**inputs)
        arrays = {name: answers[name].numpy() for name, _ in self._sources.values()}
        columns = [
            _python_values(arrays[name] if index is None else arrays[name][:, index])
            for name, index in self._sources.values()
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def answer_columns(outputs, labels=None):
    """Where each column of the answers comes from, by the names of a signature's outputs.

    An output [batch] is a column with its own name, and so is `labels` [batch, labels], whose rows are lists of the
    names that hold. `probabilities` and `values` [batch, labels] become a column for each label; the outputs that hold
    each of these columns once more (`score_<label>`, whose names are changed to what TensorFlow allows) are left out.

    Args:
        outputs: dict of output name to tf.TensorSpec.
        labels: list of str, the names of the labels in order. None numbers them from 0.

    Returns:
        dict of column name to `(output name, index)`, in the order of a table; the index is that of the label, or None
        where the output is one column.

    Raises:
        ValueError: if an output cannot be a column of a table, or `labels` has another length than an output has
            columns.

    Example:

    >>> specs = {"probabilities": tf.TensorSpec([None, 2]), "label": tf.TensorSpec([None], tf.string)}
    >>> answer_columns(specs, ["bad", "very good"])
    {'label': ('label', None), 'probability_bad': ('probabilities', 0), 'probability_very good': ('probabilities', 1)}
    """
    by_label = [name for name in _OUTPUTS_BY_LABEL if name in outputs]
    columns = {}
    for name, spec in sorted(outputs.items()):
        if name in by_label or (by_label and spec.shape.rank == 1 and spec.dtype.is_floating):
            continue
        if spec.shape.rank != 1 and not (name == _NAMES_PER_ROW and spec.shape.rank == 2):
            raise ValueError(
                f"the signature's output {name!r} has the shape {spec.shape}, which is no column of a table; known are "
                f"outputs [batch], and {[_NAMES_PER_ROW, *_OUTPUTS_BY_LABEL]} [batch, labels]. Outputs: {list(outputs)}"
            )
        columns[name] = (name, None)
    for name in by_label:
        width = outputs[name].shape[-1] if outputs[name].shape.rank == 2 else None
        if width is None or (labels is not None and len(labels) != width):
            raise ValueError(
                f"the signature's output {name!r} has the shape {outputs[name].shape}; expected "
                f"[batch, {'labels' if labels is None else len(labels)}], a column for each of the labels {labels}"
            )
        for index, label in enumerate(labels or range(width)):
            columns[_OUTPUTS_BY_LABEL[name].format(label)] = (name, index)
    return columns


def _text_inputs(folder, specs):
    """The names of the texts that a signature takes, in order."""
    for names in TEXT_INPUTS:
        if set(specs) == set(names) and all(specs[name].dtype == tf.string for name in names):
            return names
    received = {name: f"{spec.dtype.name} {spec.shape}" for name, spec in specs.items()}
    raise ValueError(
        f"the signature {SIGNATURE!r} of {folder} takes {received}; it must take raw texts, string [batch]: "
        + " or ".join(" and ".join(names) for names in TEXT_INPUTS)
    )


def _python_values(array):
    """The rows of an output as what a table or JSON holds."""
    if array.ndim == 2:
        return [[name.decode() for name in row if name] for row in array]
    if array.dtype == object:
        return [value.decode() for value in array]
    if np.issubdtype(array.dtype, np.floating):
        # By way of the shortest decimal: 0.1, not 0.10000000149011612.
        return array.astype(str).astype(float).tolist()
    return array.tolist()
