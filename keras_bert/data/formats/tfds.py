"""Examples from data sets that tensorflow_datasets has prepared on this machine."""

import functools
import re

import numpy as np

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.glue_files import check_score, check_split, glue_task
from keras_bert.data.label_values import label_name, label_number
from keras_bert.io.row_errors import quotation

_VERSION = re.compile(r"\d+\.\d+\.\d+")

# The names that tensorflow_datasets gives to labels which GLUE's files write as 0 and 1 (its text/glue.py).
_GLUE_LABELS = {
    "cola": {"unacceptable": "0", "acceptable": "1"},
    "sst2": {"negative": "0", "positive": "1"},
    "mrpc": {"not_equivalent": "0", "equivalent": "1"},
    "qqp": {"not_duplicate": "0", "duplicate": "1"},
    "wnli": {"not_entailment": "0", "entailment": "1"},
}
# Its names of the texts: mostly those of the columns of GLUE's files.
_GLUE_TEXTS = {
    "mrpc": ("sentence1", "sentence2"),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
}


def read_tfds(name, split, text_columns, label_column=None, data_dir=None, index_column=None):
    """The examples of a data set that tensorflow_datasets has prepared before; nothing is ever downloaded.

    They come in the order of the prepared files, which tensorflow_datasets has shuffled.

    Args:
        name: str. `name`, `name/configuration`, or either with a version, `name:1.0.0`; without one, the latest of
            those that are there.
        split: str. A split, or a part of one, such as "train[:10%]".
        text_columns: str, the name of the feature of texts, or a pair of names.
        label_column: str, or None for examples without labels. Class labels become their names (other whole numbers
            their digits), several of them a list, and floats stay floats.
        data_dir: str or Path. The folder of tensorflow_datasets; None is its own default.
        index_column: str, the name of an integer feature that becomes `index`, or None.

    Returns:
        `ExampleStream`.

    Raises:
        ImportError: if tensorflow_datasets is not installed.
        FileNotFoundError: if the data set has not been prepared; the message says how to.
        ValueError: if it has no such split or feature, or a feature is of another kind; and, when it is read, on an
            example that has no label or is not UTF-8.

    Example:

    >>> read_tfds("my_reviews", "train", "text", data_dir=tempfile.mkdtemp())
    Traceback (most recent call last):
    FileNotFoundError: ...my_reviews... is not there...
    """
    names = [text_columns] if isinstance(text_columns, str) else list(text_columns)
    if len(names) not in (1, 2):
        raise ValueError(f"text_columns must be the name of a feature, or two names; got {text_columns!r}")
    tfds = _import_tfds()
    builder = tfds.builder_from_directory(_version_folder(tfds, name, data_dir))
    _check_split(name, split, builder.info.splits)
    _check_features(name, names, index_column, label_column, builder.info.features)
    read = functools.partial(_read, tfds, builder, split, names, label_column, index_column)
    return ExampleStream(read, f"{name}, {split}")


def read_glue_tfds(task, split, data_dir=None):
    """The examples of a split of a GLUE task, as tensorflow_datasets has prepared it before.

    They are those of `read_glue`, with the same labels, in another order.

    Args:
        task: str, or a `GlueTask`.
        split: str. One of the task's splits, by GLUE's name ("dev", not "validation").
        data_dir: str or Path. The folder of tensorflow_datasets; None is its own default.

    Returns:
        `ExampleStream`.

    Raises:
        ImportError: if tensorflow_datasets is not installed.
        FileNotFoundError: if the task has not been prepared.
        ValueError: if the task has no such split.

    Example:

    >>> read_glue_tfds("rte", "validation", data_dir=tempfile.mkdtemp())
    Traceback (most recent call last):
    ValueError: rte has no split 'validation'; its splits are ['train', 'dev', 'test']
    """
    task = glue_task(task)
    check_split(task, split)
    name, is_test = f"glue/{task.name}", split in task.test_splits
    texts = _GLUE_TEXTS.get(task.name, task.text_columns)
    examples = read_tfds(
        name,
        split.replace("dev", "validation"),
        texts[0] if len(texts) == 1 else texts,
        None if is_test else "label",
        data_dir,
        "idx" if is_test else None,
    )
    return ExampleStream(functools.partial(_with_glue_labels, task, examples), examples.name)


def _import_tfds():
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            "reading prepared data sets needs tensorflow_datasets: pip install tensorflow-datasets importlib_resources"
        ) from error
    return tensorflow_datasets


def _version_folder(tfds, name, data_dir):
    """The folder of a prepared version, looked for without tensorflow_datasets' catalogue and its network access."""
    root = tfds.core.Path(tfds.core.constants.DATA_DIR if data_dir is None else data_dir).expanduser()
    name, _, version = name.partition(":")
    folder = root / name
    versions = _versions(folder)
    if version in versions or (versions and not version):
        return folder / (version or max(versions, key=lambda text: [int(part) for part in text.split(".")]))
    if versions:
        raise FileNotFoundError(f"{folder} has no version {version!r}; there are {versions}")
    configurations = [path.name for path in folder.iterdir() if _versions(path)] if folder.is_dir() else []
    if configurations:
        raise FileNotFoundError(f"{folder} holds configurations; give one of {sorted(configurations)}, as {name}/...")
    raise FileNotFoundError(
        f"the data set {name!r} is not there, or not prepared: looked for {folder}/<version>. Prepare it once, where "
        f"there is a network: tensorflow_datasets.load({name!r}, data_dir={str(root)!r}, download=True)"
    )


def _versions(folder):
    if not folder.is_dir():
        return []
    prepared = [path.name for path in folder.iterdir() if (path / "features.json").exists()]
    return sorted(name for name in prepared if _VERSION.fullmatch(name))


def _check_split(name, split, splits):
    whole = re.split(r"[\[+]", split)[0]
    if whole not in splits:
        raise ValueError(f"{name} has no split {split!r}; its splits are {sorted(splits)}")
    if not splits[split].num_examples:
        raise ValueError(f"the split {split!r} of {name} has no examples")


def _check_features(name, texts, index, label, features):
    wanted = dict.fromkeys(texts, ("texts", "O", ((),)))
    if index is not None:
        wanted[index] = ("whole numbers", "iu", ((),))
    if label is not None:
        wanted[label] = ("labels: names, numbers or lists of names", "Oiufb", ((), (None,)))
    for column, (what, kinds, shapes) in wanted.items():
        if column not in features:
            raise ValueError(f"{name} has no feature {column!r}; its features are {sorted(features)}")
        feature = features[column]
        if feature.shape not in shapes or np.dtype(feature.np_dtype).kind not in kinds:
            raise ValueError(f"the feature {column!r} of {name} must be {what}; it is {feature}")


def _read(tfds, builder, split, text_columns, label_column, index_column):
    # Not cached: tensorflow_datasets would keep a small data set in memory.
    dataset = builder.as_dataset(split=split, read_config=tfds.ReadConfig(try_autocache=False), shuffle_files=False)
    class_names = getattr(builder.info.features[label_column], "names", None) if label_column is not None else None
    for number, features in enumerate(tfds.as_numpy(dataset), 1):
        try:
            texts = [features[column].decode("utf-8") for column in text_columns]
            example = dict(zip(TEXT_COLUMNS if len(texts) == 1 else PAIR_COLUMNS, texts, strict=True))
            if label_column is not None:
                example["label"] = _label(features[label_column], class_names)
        except ValueError as error:
            raise ValueError(f"{builder.info.full_name}, {split}, example {number}: {error}") from error
        if index_column is not None:
            example["index"] = int(features[index_column])
        yield example


def _label(value, class_names):
    if np.ndim(value):
        return [_label(item, class_names) for item in value]
    if isinstance(value, bytes):
        return label_name(value.decode("utf-8"))
    if class_names is not None:
        if not 0 <= value < len(class_names):
            raise ValueError(f"has no label: {value} is none of the classes' numbers")
        return label_name(class_names[value])
    value = value.item()
    return label_number(value) if isinstance(value, float) else label_name(value)


def _with_glue_labels(task, examples):
    names = _GLUE_LABELS.get(task.name) or {label: label for label in task.labels or ()}
    for example in examples:
        if "label" in example:
            label = example["label"]
            if task.is_regression:
                check_score(label)
            elif label not in names:
                raise ValueError(f"{examples.name}: the label must be one of {list(names)}, got {quotation(label)}")
            else:
                example["label"] = names[label]
        yield example
