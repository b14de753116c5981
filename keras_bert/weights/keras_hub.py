"""Reads KerasHub's preset folders of BERT: `config.json`, `model.weights.h5`, `task.json`, `assets/tokenizer`."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.bert_config import SIZE_NAMES, find_vocabulary, parse_encoder_arguments, read_json, read_rate
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.hdf5_file import open_hdf5
from keras_bert.weights.hugging_face_tokenizer import FolderTokenizer
from keras_bert.weights.layout import CLASSIFIER_HEAD, expected_classifier_shapes, expected_encoder_shapes
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.variable_map import VariableMap, map_dense, map_encoder

CONFIG_NAME, TASK_NAME, TOKENIZER_NAME = "config.json", "task.json", "tokenizer.json"
PREPROCESSOR_NAME, METADATA_NAME = "preprocessor.json", "metadata.json"
WEIGHTS_NAME, TASK_WEIGHTS_NAME = "model.weights.h5", "task.weights.h5"
VOCABULARY_NAME = "assets/tokenizer/vocabulary.txt"
BACKBONE, TOKENIZER, CLASSIFIER = "BertBackbone", "BertTokenizer", "BertTextClassifier"
_PACKAGES = ("keras_hub", "keras_nlp")  # the second is its name until 2024
_OLD_CLASSIFIER = "BertClassifier"  # its name there
# Fields of the backbone's configuration, by ours.
SIZES = dict(
    zip(
        SIZE_NAMES,
        (
            "vocabulary_size",
            "hidden_dim",
            "num_layers",
            "num_heads",
            "intermediate_dim",
            "max_sequence_length",
            "num_segments",
        ),
        strict=True,
    )
)
_OTHER_FIELDS = {"name", "trainable", "dtype", "dropout"}
# What their BERT computes, whatever the configuration: `gelu_approximate` and its epsilon, in bert_backbone.py.
FIXED_ARGUMENTS = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
# Their layers and variables, by the names of google-research/bert.
_ATTENTION = "_self_attention_layer/"
_LAYERS = {
    "attention/self/query": f"{_ATTENTION}query_dense",
    "attention/self/key": f"{_ATTENTION}key_dense",
    "attention/self/value": f"{_ATTENTION}value_dense",
    "attention/output/dense": f"{_ATTENTION}output_dense",
    "attention/output/LayerNorm": "_self_attention_layer_norm",
    "intermediate/dense": "_feedforward_intermediate_dense",
    "output/dense": "_feedforward_output_dense",
    "output/LayerNorm": "_feedforward_layer_norm",
    "embeddings/word_embeddings": "layers/reversible_embedding",
    "embeddings/token_type_embeddings": "layers/embedding",
    "embeddings/position_embeddings": "layers/position_embedding",
    "embeddings/LayerNorm": "layers/layer_normalization",
    "pooler/dense": "layers/dense",
}
_VARIABLES = {"kernel": "vars/0", "bias": "vars/1", "gamma": "vars/0", "beta": "vars/1"}
CLASSIFIER_VARIABLES = map_dense(
    CLASSIFIER_HEAD,
    [f"{TASK_WEIGHTS_NAME}/layers/dense/vars/0"],
    [f"{TASK_WEIGHTS_NAME}/layers/dense/vars/1"],
    transposed=False,
)
# The activation of their classifier, which we leave to the loss: the kind of labels that it is for.
_PROBLEM_TYPES = {
    None: None,
    "linear": None,
    "softmax": "single_label_classification",
    "sigmoid": "multi_label_classification",
}
# Settings of the tokenizer that must have these values: others change its output.
_TOKENIZER_SETTINGS = {
    "split": True,
    "suffix_indicator": "##",
    "oov_token": "[UNK]",
    "special_tokens_in_strings": False,
    "split_on_cjk": True,
}


def find(path: Path) -> Path | None:
    """Returns the backbone's weights of a preset folder, or of a file of weights in one; None if it is none."""
    if path.is_file() and path.name not in (WEIGHTS_NAME, TASK_WEIGHTS_NAME):
        return None
    folder = path.parent if path.is_file() else path
    if not (folder / WEIGHTS_NAME).is_file() or not (folder / CONFIG_NAME).is_file():
        return None
    is_keras_object = {"class_name", "registered_name"} & read_json(folder / CONFIG_NAME).keys()
    return folder / WEIGHTS_NAME if is_keras_object else None


def read(weights: Path) -> Checkpoint:
    """Reads a preset of BERT; `weights` is its `model.weights.h5`.

    A classifier is read if `task.json` is of a `BertTextClassifier`. Tensors of other tasks are listed as unused: the
    masked language model of KerasHub has an activation and an epsilon of its own. The configurations are read as data;
    no class that they name is looked up.
    """
    folder = weights.parent
    config_path = folder / CONFIG_NAME
    arguments = _parse_backbone(read_json(config_path), config_path)
    classifier = _read_task(folder / TASK_NAME, arguments)
    if classifier is not None:
        classifier |= _read_labels(folder / METADATA_NAME, classifier["num_labels"])
    tokenizer = read_tokenizer(folder, arguments["vocab_size"])
    with _open_weights(weights, arguments) as tensors:
        if arguments["num_hidden_layers"] > len(tensors.entries):
            raise ValueError(
                f"{config_path}: num_layers is {arguments['num_hidden_layers']}, but {weights} has "
                f"{len(tensors.entries)} tensors. Put the configuration of these weights there."
            )
        variables, shapes = map_backbone(arguments["num_hidden_layers"]), expected_encoder_shapes(arguments)
        if classifier is not None:
            variables |= CLASSIFIER_VARIABLES
            shapes |= expected_classifier_shapes(arguments["hidden_size"], classifier["num_labels"])
        arrays = tensors.read_variables(variables, shapes)
    slots = {name for name in tensors.entries if name.startswith(f"{TASK_WEIGHTS_NAME}/optimizer/")}
    return Checkpoint(
        source="keras_hub",
        path=weights,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        vocabulary=tokenizer.vocabulary,
        lower_case=tokenizer.lower_case,
        strip_accents=tokenizer.strip_accents,
        **tensors.account(variables, slots),
    )


def map_backbone(num_layers: int) -> VariableMap:
    """Maps the variables of a BERT, kernels [inputs, outputs], with the heads joined (see `split_shapes`).

    >>> map_backbone(2)["encoder/transformer_block_1/output/kernel"].names
    ('layers/transformer_encoder_1/_feedforward_output_dense/vars/0',)
    """
    return map_encoder(num_layers, _name_in_file, kernels_transposed=False)


def split_shapes(arguments: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the shapes of attention tensors in the file, which have an axis for the heads, and with it joined.

    Keys are the ends of the tensors' names.

    >>> split_shapes({"hidden_size": 6, "num_attention_heads": 2})["query_dense/vars/0"]
    ((6, 2, 3), (6, 6))
    """
    hidden, heads = arguments["hidden_size"], arguments["num_attention_heads"]
    size = hidden // heads
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    shapes["output_dense/vars/0"] = ((heads, size, hidden), (hidden, hidden))
    for part in ("query", "key", "value"):
        shapes[f"{part}_dense/vars/0"] = ((hidden, heads, size), (hidden, hidden))
        shapes[f"{part}_dense/vars/1"] = ((heads, size), (hidden,))
    return shapes


def attention_suffix(name: str) -> str | None:
    """Returns the key of `split_shapes` for a tensor's name; None if it is not of an attention layer."""
    return name.rpartition(_ATTENTION)[2] if _ATTENTION in name else None


def _name_in_file(original: str) -> str:
    layer, _, leaf = original.rpartition("/")
    if leaf.endswith("_embeddings"):
        return f"{_LAYERS[original]}/vars/0"
    prefix = ""
    if layer.startswith("encoder/layer_"):
        number, _, layer = layer.removeprefix("encoder/layer_").partition("/")
        prefix = "layers/transformer_encoder" + (f"_{number}/" if number != "0" else "/")
    return f"{prefix}{_LAYERS[layer]}/{_VARIABLES[leaf]}"


@contextlib.contextmanager
def _open_weights(weights: Path, arguments: Mapping[str, Any]) -> Iterator[TensorFile]:
    """Opens both files of weights, with the heads joined; names in the task's file begin with that of the file."""
    with contextlib.ExitStack() as stack:
        opened: dict[str, tuple[TensorFile, str]] = {}
        entries: dict[str, TensorEntry] = {}
        for file, prefix in ((weights, ""), (weights.with_name(TASK_WEIGHTS_NAME), f"{TASK_WEIGHTS_NAME}/")):
            if prefix and not file.is_file():
                continue
            tensors = stack.enter_context(open_hdf5(file))
            opened |= {prefix + name: (tensors, name) for name in tensors.entries}
            entries |= {prefix + name: entry for name, entry in tensors.entries.items()}
        joined = split_shapes(arguments)
        for name, entry in entries.items():
            stored, flat = joined.get(attention_suffix(name) or "", (None, None))
            if flat is not None and entry.shape == stored:
                entries[name] = dataclasses.replace(entry, shape=flat)

        def read(name: str) -> np.ndarray:
            tensors, own_name = opened[name]
            return tensors.read(own_name).reshape(entries[name].shape)

        yield TensorFile(weights, entries, read)


def _parse_object(value: Any, path: Path, classes: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Returns class and configuration of a serialized object of KerasHub; ValueError for other classes."""
    fields = value if isinstance(value, dict) else {}
    registered, config = fields.get("registered_name") or fields.get("class_name"), fields.get("config")
    package, _, name = registered.rpartition(">") if isinstance(registered, str) else ("", "", "")
    if name not in classes or package not in ("", *_PACKAGES):
        allowed = [f"{_PACKAGES[0]}>{name}" for name in sorted(classes)]
        raise ValueError(
            f"{path}: expected KerasHub's class {' or '.join(allowed)}; found {str(registered)[:80]!r}. Only presets "
            "of BERT can be read."
        )
    if not isinstance(config, dict):
        raise ValueError(
            f"{path}: expected an object config for {name}; found {type(config).__name__}. Fetch it again."
        )
    return name, config


def _parse_backbone(value: Any, path: Path) -> dict[str, Any]:
    """Returns the encoder's arguments of a serialized BertBackbone."""
    _, config = _parse_object(value, path, [BACKBONE])
    missing = [name for name in SIZES.values() if name not in config]
    unknown = sorted(config.keys() - set(SIZES.values()) - _OTHER_FIELDS)
    if missing or unknown:
        raise ValueError(
            f"{path}: the fields {missing} of {BACKBONE} are missing, and {str(unknown)[:200]} are unknown. Use a "
            "preset of KerasHub 0.32 or older."
        )
    dropout = read_rate(config, "dropout", path, default=0.1)
    fields = {ours: config[theirs] for ours, theirs in SIZES.items()}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return parse_encoder_arguments({**fields, **rates, **FIXED_ARGUMENTS}, path, {"gelu_new": "gelu_new"})


def _read_task(path: Path, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the arguments of a classifier; None for another task of BERT, or none."""
    if not path.is_file():
        return None
    tasks = (CLASSIFIER, _OLD_CLASSIFIER, "BertMaskedLM", "BertTextEmbedder")
    name, config = _parse_object(read_json(path), path, tasks)
    if "backbone" in config and _parse_backbone(config["backbone"], path) != arguments:
        raise ValueError(
            f"{path}: its backbone differs from that of {path.with_name(CONFIG_NAME)}. Save the preset again."
        )
    if name not in (CLASSIFIER, _OLD_CLASSIFIER):
        return None
    num_labels, activation = config.get("num_classes"), config.get("activation")
    if isinstance(num_labels, bool) or not isinstance(num_labels, int) or num_labels < 1:
        raise ValueError(
            f"{path}: num_classes must be an integer of at least 1; found {str(num_labels)[:80]!r}. Correct the field."
        )
    if not isinstance(activation, str | None) or activation not in _PROBLEM_TYPES:
        raise ValueError(
            f"{path}: activation must be one of {list(_PROBLEM_TYPES)}; found {str(activation)[:80]!r}. A classifier "
            "with another activation cannot be read."
        )
    return {
        "num_labels": num_labels,
        "label_names": None,
        "problem_type": _PROBLEM_TYPES[activation] or ("regression" if num_labels == 1 else None),
        "classifier_dropout": read_rate(config, "dropout", path, default=0.1),
    }


def _read_labels(path: Path, num_labels: int) -> dict[str, Any]:
    """Returns the names and the kind of the labels, which our writer adds to `metadata.json`; KerasHub has none."""
    if not path.is_file():
        return {}
    metadata = read_json(path)
    names, kind = metadata.get("label_names"), metadata.get("problem_type")
    if names is not None and not (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) == num_labels
    ):
        raise ValueError(
            f"{path}: label_names must be {num_labels} distinct strings; found {str(names)[:80]}. Correct the field."
        )
    if kind not in (None, "regression", *_PROBLEM_TYPES.values()):
        raise ValueError(f"{path}: problem_type is unknown: {str(kind)[:80]!r}. Correct the field.")
    return {"label_names": names} | ({"problem_type": kind} if kind else {})


def read_tokenizer(folder: Path, vocab_size: int | None = None) -> FolderTokenizer:
    """Reads the tokenizer of a preset folder; `vocab_size` is the size of its embedding table.

    Raises ValueError if it is not BERT's, or the vocabulary does not fit.
    """
    vocabulary = find_vocabulary(folder, vocab_size, folder / CONFIG_NAME, VOCABULARY_NAME)
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        return FolderTokenizer(vocabulary)
    _, config = _parse_object(read_json(path), path, [TOKENIZER])
    for name, value in _TOKENIZER_SETTINGS.items():
        if config.get(name, value) is not value and config.get(name, value) != value:
            raise ValueError(
                f"{path}: {name} must be {value!r}; found {str(config[name])[:80]!r}. Such a tokenizer cannot be read."
            )
    flags = {name: config.get(name, False) for name in ("lowercase", "strip_accents")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{path}: {name} must be true or false; found {str(value)[:80]!r}. Correct the field.")
    lower_case, strip_accents = flags.values()
    return FolderTokenizer(vocabulary, lower_case, None if strip_accents == lower_case else strip_accents)
