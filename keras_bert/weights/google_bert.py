"""Reads TF1 checkpoints of google-research/bert: `bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from keras_bert.weights.bert_config import find_vocabulary, parse_encoder_arguments, read_json
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    SPAN_HEAD,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
)
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.variable_map import (
    drop_absent_pooler,
    map_dense,
    map_encoder,
    map_pretraining_heads,
    select_head,
)

T = TypeVar("T")

CONFIG_NAME = "bert_config.json"
STATE_NAME = "checkpoint"
_INDEX_SUFFIX = ".index"
_CLASSIFIER_DROPOUT = 0.1  # keep_prob=0.9 is hard-coded in run_classifier.py, create_model
_CLASSIFIER = map_dense(CLASSIFIER_HEAD, ["output_weights"], ["output_bias"])
_SPANS = map_dense(SPAN_HEAD, ["cls/squad/output_weights"], ["cls/squad/output_bias"])
# google-research/bert's "gelu" is the tanh form.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_COUNTERS = frozenset({"global_step", "beta1_power", "beta2_power"})
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # in every object-based checkpoint of TensorFlow 2


def find(path: Path) -> Path | None:
    """Returns the prefix of the TF1 checkpoint at a folder, prefix, `.index` or `checkpoint` file; None if none.

    In a folder the file `checkpoint` decides, as in TensorFlow; without one there must be a single `*.ckpt*.index`.
    """
    if path.is_dir():
        return _prefix_in_folder(path)
    if path.is_file() and path.name == STATE_NAME:
        return _read_state(path)
    prefix = path.with_name(path.name.removesuffix(_INDEX_SUFFIX))
    return prefix if _index_file(prefix).is_file() else None


def read(prefix: Path) -> Checkpoint:
    """Reads a checkpoint of google-research/bert: pre-trained, or fine-tuned by `run_classifier.py` or `run_squad.py`.

    `prefix` is its path without `.index`; `bert_config.json` is in the same folder. Optimizer slots are only counted.
    """
    config_path = prefix.with_name(CONFIG_NAME)
    arguments = read_bert_config(config_path)
    vocabulary = find_vocabulary(prefix.parent, arguments["vocab_size"], config_path)
    tensors = _open_checkpoint(prefix)
    variables = map_encoder(arguments["num_hidden_layers"], lambda name: f"bert/{name}", kernels_transposed=False)
    shapes = expected_encoder_shapes(arguments)
    classifier = _classifier_arguments(tensors)
    if classifier:
        variables |= _CLASSIFIER
        shapes |= expected_classifier_shapes(arguments["hidden_size"], classifier["num_labels"])
    else:
        variables = drop_absent_pooler(variables, tensors.entries.keys())
    variables |= map_pretraining_heads(lambda name: name, tensors.entries.keys(), kernels_transposed=False)
    variables |= select_head(_SPANS, tensors.entries.keys())
    shapes |= expected_pretraining_shapes(arguments)
    shapes |= expected_classifier_shapes(arguments["hidden_size"], 2, SPAN_HEAD)
    arrays = tensors.read_variables(variables, shapes)
    slots = {name for name in tensors.entries if name in _COUNTERS or name.rpartition("/")[0] in tensors.entries}
    used = {name for stored in variables.values() for name in stored.names}
    return Checkpoint(
        source="google_bert",
        path=prefix,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        tensor_names={path: stored.names for path, stored in variables.items()},
        vocabulary=vocabulary,
        unused=tuple(sorted(tensors.entries.keys() - used - slots)),
        skipped_optimizer_slots=len(slots),
    )


def read_bert_config(path: Path) -> dict[str, Any]:
    """Reads a `bert_config.json` (google-research/bert, `modeling.py`, `BertConfig`) as arguments of `BertEncoder`."""
    return parse_encoder_arguments(read_json(path), path, _ACTIVATIONS)


def _index_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + _INDEX_SUFFIX)


def _prefix_in_folder(folder: Path) -> Path | None:
    state = folder / STATE_NAME
    if state.is_file():
        return _read_state(state)
    found = sorted(file.name.removesuffix(_INDEX_SUFFIX) for file in folder.glob(f"*.ckpt*{_INDEX_SUFFIX}"))
    if len(found) > 1:
        raise ValueError(
            f"{folder}: contains several checkpoints, {found}, and no file {STATE_NAME!r}. Pass the path of one."
        )
    return folder / found[0] if found else None


def _read_state(state: Path) -> Path:
    match = re.search(r'^model_checkpoint_path:\s*"(.+)"', state.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ValueError(
            f'{state}: expected a line model_checkpoint_path: "...", found none. Pass the path of a checkpoint.'
        )
    # Only the name: the file often contains an absolute path on the machine that trained the model.
    prefix = state.with_name(Path(match[1]).name)
    if not _index_file(prefix).is_file():
        raise FileNotFoundError(
            f"{state}: names {match[1]!r}, but {_index_file(prefix)} does not exist. Pass the path of one that does."
        )
    return prefix


def _classifier_arguments(tensors: TensorFile) -> dict[str, Any] | None:
    """Returns the arguments of the head of run_classifier.py, or None if the file has none."""
    shapes = [tensors.entries[name].shape for name in ("output_bias", "output_weights") if name in tensors.entries]
    if not shapes:
        return None
    num_labels, dropout = shapes[0][0] if shapes[0] else 1, _CLASSIFIER_DROPOUT
    return {"num_labels": num_labels, "label_names": None, "problem_type": None, "classifier_dropout": dropout}


def _open_checkpoint(prefix: Path) -> TensorFile:
    import tensorflow as tf  # the other formats are read without TensorFlow

    def sizes() -> dict[str, int]:
        return {file.name: file.stat().st_size for file in sorted(prefix.parent.glob(prefix.name + ".*"))}

    def guarded(action: Callable[..., T], *arguments: str) -> T:
        try:
            return action(*arguments)
        except (tf.errors.OpError, IndexError) as error:  # IndexError: a data file ends early
            raise ValueError(
                f"{prefix}: cannot be read ({error}); its files and their sizes in bytes are {sizes()}. Fetch the "
                ".index and every .data file again."
            ) from error

    reader = guarded(tf.train.load_checkpoint, str(prefix))
    types = reader.get_variable_to_dtype_map()
    entries = {
        name: TensorEntry(tuple(shape), types[name].name, prefix)
        for name, shape in reader.get_variable_to_shape_map().items()
    }
    if _OBJECT_GRAPH in entries:
        raise ValueError(
            f"{prefix}: this is an object-based checkpoint of TensorFlow 2; expected a TF1 checkpoint, with tensors "
            "such as 'bert/embeddings/word_embeddings'. Use the TF1 or the Hugging Face form of the model."
        )
    return TensorFile(prefix, entries, lambda name: guarded(reader.get_tensor, name))
