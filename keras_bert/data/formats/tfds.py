"""Examples from datasets that tensorflow_datasets has prepared on this machine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from keras_bert.data.example_files import text_dict
from keras_bert.data.example_stream import Example, ExampleStream
from keras_bert.data.formats.glue_files import GlueTask, check_score, check_split, glue_task
from keras_bert.data.label_values import label_name, label_number
from keras_bert.io.row_errors import quotation
from keras_bert.typing import PathLike

_VERSION = re.compile(r"\d+\.\d+\.\d+")

# The names in tensorflow_datasets of labels that GLUE's files write as 0 and 1 (its text/glue.py).
_GLUE_LABELS = {
    "cola": {"unacceptable": "0", "acceptable": "1"},
    "sst2": {"negative": "0", "positive": "1"},
    "mrpc": {"not_equivalent": "0", "equivalent": "1"},
    "qqp": {"not_duplicate": "0", "duplicate": "1"},
    "wnli": {"not_entailment": "0", "entailment": "1"},
}
# Its names of the texts, where they differ from the columns of GLUE's files.
_GLUE_TEXTS = {"mrpc": ("sentence1", "sentence2"), "mnli": ("premise", "hypothesis"), "ax": ("premise", "hypothesis")}


def read_tfds(
    name: str,
    split: str,
    text_columns: str | Sequence[str],
    label_column: str | None = None,
    data_dir: PathLike | None = None,
    index_column: str | None = None,
) -> ExampleStream[Example]:
    """Reads the examples of a dataset that tensorflow_datasets has prepared before; nothing is ever downloaded.

    Examples come in the order of the prepared files, which tensorflow_datasets has shuffled.

    `name` is `name`, `name/configuration`, or either with a version, `name:1.0.0`; without one, the latest is read.
    `split` may be a part of a split, such as "train[:10%]". Class labels become their names, other integers their
    digits, several labels a list, and floats stay floats. The integers of `index_column` become `index`.
    `data_dir=None` is the default folder of tensorflow_datasets.

    Raises FileNotFoundError if the dataset has not been prepared, and ValueError for a missing split or feature, a
    feature of another type, and, when it is read, an example that has no label or is not UTF-8.
    """
    names = [text_columns] if isinstance(text_columns, str) else list(text_columns)
    if len(names) not in (1, 2):
        raise ValueError(f"text_columns must be the name of a feature, or two names; got {text_columns!r}")
    tfds = _import_tfds()
    builder = tfds.builder_from_directory(_version_folder(tfds, name, data_dir))
    _check_split(name, split, builder.info.splits)
    _check_features(name, names, index_column, label_column, builder.info.features)
    read = partial(_read, tfds, builder, split, names, label_column, index_column)
    return ExampleStream(read, f"{name}, {split}")


def read_glue_tfds(task: str | GlueTask, split: str, data_dir: PathLike | None = None) -> ExampleStream[Example]:
    """Reads a split of a GLUE task that tensorflow_datasets has prepared: `read_glue`, in another order.

    `split` has GLUE's name ("dev", not "validation").
    """
    task = glue_task(task)
    check_split(task, split)
    is_test = split in task.test_splits
    examples = read_tfds(
        f"glue/{task.name}",
        split.replace("dev", "validation"),
        _GLUE_TEXTS.get(task.name, task.text_columns),
        None if is_test else "label",
        data_dir,
        "idx" if is_test else None,
    )
    return ExampleStream(partial(_convert_glue_labels, task, examples), examples.name)


def _import_tfds() -> ModuleType:
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            "reading prepared datasets needs tensorflow_datasets: pip install tensorflow-datasets importlib_resources"
        ) from error
    return tensorflow_datasets


def _version_folder(tfds: ModuleType, name: str, data_dir: PathLike | None) -> Any:
    """Finds the folder of a prepared version without the catalog of tensorflow_datasets, which uses the network."""
    root = tfds.core.Path(tfds.core.constants.DATA_DIR if data_dir is None else data_dir).expanduser()
    name, _, version = name.partition(":")
    folder = root / name
    versions = _prepared_versions(folder)
    if version in versions or (versions and not version):
        return folder / (version or max(versions, key=lambda text: [int(part) for part in text.split(".")]))
    if versions:
        raise FileNotFoundError(f"{folder} has no version {version!r}; there are {versions}")
    configurations = [path.name for path in folder.iterdir() if _prepared_versions(path)] if folder.is_dir() else []
    if configurations:
        raise FileNotFoundError(f"{folder} has configurations; give one of {sorted(configurations)}, as {name}/...")
    raise FileNotFoundError(
        f"the dataset {name!r} is missing, or not prepared: looked for {folder}/<version>. Prepare it once, on a "
        f"machine with network access: tensorflow_datasets.load({name!r}, data_dir={str(root)!r}, download=True)"
    )


def _prepared_versions(folder: Any) -> list[str]:
    if not folder.is_dir():
        return []
    prepared = [path.name for path in folder.iterdir() if (path / "features.json").exists()]
    return sorted(name for name in prepared if _VERSION.fullmatch(name))


def _check_split(name: str, split: str, splits: Mapping[str, Any]) -> None:
    if re.split(r"[\[+]", split)[0] not in splits:
        raise ValueError(f"{name} has no split {split!r}; its splits are {sorted(splits)}")
    if not splits[split].num_examples:
        raise ValueError(f"the split {split!r} of {name} has no examples")


def _check_features(
    name: str, texts: Sequence[str], index: str | None, label: str | None, features: Mapping[str, Any]
) -> None:
    expected: dict[str, tuple[str, str, tuple[tuple[int | None, ...], ...]]] = dict.fromkeys(
        texts, ("texts", "O", ((),))
    )
    if index is not None:
        expected[index] = ("integers", "iu", ((),))
    if label is not None:
        expected[label] = ("labels: names, numbers or lists of names", "Oiufb", ((), (None,)))
    for column, (description, kinds, shapes) in expected.items():
        if column not in features:
            raise ValueError(f"{name} has no feature {column!r}; its features are {sorted(features)}")
        feature = features[column]
        if feature.shape not in shapes or np.dtype(feature.np_dtype).kind not in kinds:
            raise ValueError(f"the feature {column!r} of {name} must be {description}; it is {feature}")


def _read(
    tfds: ModuleType,
    builder: Any,
    split: str,
    text_columns: Sequence[str],
    label_column: str | None,
    index_column: str | None,
) -> Iterator[Example]:
    # Not cached: tensorflow_datasets would keep a small dataset in memory.
    dataset = builder.as_dataset(split=split, read_config=tfds.ReadConfig(try_autocache=False), shuffle_files=False)
    class_names = getattr(builder.info.features[label_column], "names", None) if label_column is not None else None
    for number, features in enumerate(tfds.as_numpy(dataset), 1):
        try:
            example: Example = dict(text_dict([features[column].decode("utf-8") for column in text_columns]))
            if label_column is not None:
                example["label"] = _parse_label(features[label_column], class_names)
        except ValueError as error:
            raise ValueError(f"{builder.info.full_name}, {split}, example {number}: {error}") from error
        if index_column is not None:
            example["index"] = int(features[index_column])
        yield example


def _parse_label(value: Any, class_names: Sequence[str] | None) -> Any:
    if np.ndim(value):
        return [_parse_label(item, class_names) for item in value]
    if isinstance(value, bytes):
        return label_name(value.decode("utf-8"))
    if class_names is not None:
        if not 0 <= value < len(class_names):
            raise ValueError(f"has no label: {value} is not the index of a class")
        return label_name(class_names[value])
    value = value.item()
    return label_number(value) if isinstance(value, float) else label_name(value)


def _convert_glue_labels(task: GlueTask, examples: ExampleStream[Example]) -> Iterator[Example]:
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
