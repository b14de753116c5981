"""Reads Hugging Face folders: `config.json`, weights in one of several formats, and the files of the tokenizer."""

import functools
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from keras_bert.weights.bert_config import parse_encoder_arguments, read_json, read_rate, shorten
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.encoder_kinds import BERT, BILSTM, ONE_BERT, EncoderKind, read_encoder_kind, replace_prefix
from keras_bert.weights.hugging_face_tokenizer import read_tokenizer
from keras_bert.weights.layout import (
    BIDIRECTIONAL,
    CHOICE_HEAD,
    CLASSIFIER_HEAD,
    LEFT_TO_RIGHT,
    POOLER,
    POOLINGS,
    RIGHT_TO_LEFT,
    SPAN_HEAD,
    TOKEN_HEAD,
    expected_classifier_shapes,
    expected_pretraining_shapes,
    is_pooler,
)
from keras_bert.weights.pytorch_file import open_pytorch
from keras_bert.weights.safetensors_file import open_safetensors
from keras_bert.weights.sentence_transformers import MODULES_NAME
from keras_bert.weights.tensor_file import TensorFile
from keras_bert.weights.tensorflow_h5_file import H5_NAME, open_tensorflow_h5
from keras_bert.weights.variable_map import (
    StoredVariable,
    VariableMap,
    check_num_layers,
    drop_absent_pooler,
    map_dense,
    map_encoder,
    map_pretraining_heads,
    select_head,
)

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
# What opens which file of weights; the first one that a folder contains is read.
OPENERS: Mapping[str, Callable[[Path], AbstractContextManager[TensorFile]]] = {
    WEIGHTS_NAME: open_safetensors,
    INDEX_NAME: open_safetensors,
    "pytorch_model.bin": open_pytorch,
    "pytorch_model.bin.index.json": open_pytorch,
    H5_NAME: open_tensorflow_h5,
}
# For files with names of their own.
_OPENERS_BY_SUFFIX = {".safetensors": open_safetensors, ".bin": open_pytorch}
CONFIG_NAME = "config.json"
MODEL_TYPE = "bert"
# For encoders other than a single bidirectional BERT, which their library has no class for. It refuses the unknown
# type; under "bert" it would load the weights as such a BERT's. (A BertModel loaded explicitly warns and finds no
# tensor that it knows: the encoder's names begin with its direction.)
OWN_MODEL_TYPE = "keras_bert"
POOLING_KEY = "classifier_pooling"  # as in the configuration of their ModernBERT
# Their models with a layer `classifier`, and our name of the head.
CLASSIFIER_HEADS = {
    "BertForSequenceClassification": CLASSIFIER_HEAD,
    "BertForTokenClassification": TOKEN_HEAD,
    "BertForMultipleChoice": CHOICE_HEAD,
}
SPAN_ARCHITECTURE = "BertForQuestionAnswering"
SPANS = map_dense(SPAN_HEAD, ["qa_outputs.weight"], ["qa_outputs.bias"])
# Their "gelu" is the erf form; the tanh form, "gelu" in google-research/bert, has several names.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_LAYER_POOLING: VariableMap = {
    f"encoder/layer_pooling/{weight}": StoredVariable((f"layer_pooling.{weight}",))
    for weight in ("layer_weights", "scale")
}
_BILSTM_POOLER = map_dense("encoder/bilstm_pooler", ["bilstm.pooler.weight"], ["bilstm.pooler.bias"])
_PROBLEM_TYPES = (None, "single_label_classification", "multi_label_classification", "regression")
_DEFAULT_NUM_LABELS = 2  # default of their configurations


def find(path: Path) -> Path | None:
    """Returns the file of weights, or the index of the shards, of a folder or weight file; None if it has none."""
    if path.is_file():
        return path if path.name in OPENERS or path.suffix in _OPENERS_BY_SUFFIX else None
    return next((path / name for name in OPENERS if (path / name).is_file()), None)


def read(weights: Path) -> Checkpoint:
    """Reads a BERT written by Hugging Face's library or by our writer; `config.json` is in the same folder.

    A classifier is read if `config.json` names an architecture of `CLASSIFIER_HEADS`; the heads for pre-training and
    spans if their tensors exist. Tensors of other heads are listed as unused. The pooler may be missing.
    """
    folder = weights.parent
    config_path = folder / CONFIG_NAME
    config = read_json(config_path)
    _check_is_bert_encoder(config, config_path)
    arguments, kind = parse_encoder_arguments(config, config_path, ACTIVATIONS), ONE_BERT
    if config["model_type"] == OWN_MODEL_TYPE:
        arguments |= read_direction(config, config_path)
        kind = read_encoder_kind(config, config_path)
    architectures = _read_architectures(config, config_path)
    tokenizer = read_tokenizer(folder, arguments["vocab_size"], config_path)
    open_file = OPENERS.get(weights.name) or _OPENERS_BY_SUFFIX[weights.suffix]
    with open_file(weights) as tensors:
        names = tensors.entries.keys()
        check_num_layers(arguments["num_hidden_layers"], names, config_path, weights)
        if kind.family == BILSTM and kind.bilstm_layers > len(names):
            raise ValueError(
                f"{config_path}: bilstm_layers is {kind.bilstm_layers}, but {weights} has {len(names)} tensors. Put "
                "the configuration of these weights there."
            )
        variables = map_encoder_kind(kind, arguments, names)
        shapes, width = kind.shapes(arguments), kind.head_width(arguments["hidden_size"])
        classifier = None
        head = next((CLASSIFIER_HEADS[name] for name in architectures if name in CLASSIFIER_HEADS), None)
        pooling = _read_pooling(config, config_path) if head == CLASSIFIER_HEAD else None
        if pooling != POOLER:
            variables = drop_absent_pooler(variables, names)
            if (pooling is not None or (folder / MODULES_NAME).is_file()) and not any(map(is_pooler, variables)):
                arguments["with_pooler"] = False  # never trained
        if head is not None:
            classifier = _classifier_arguments(config, config_path, tensors)
            if pooling not in (None, POOLER):
                classifier["pooling"] = pooling
            classifier["classifier_dropout"] = read_rate(
                config, "classifier_dropout", config_path, default=arguments["hidden_dropout_prob"]
            )
            variables |= map_classifier(head)
            shapes |= expected_classifier_shapes(width, classifier["num_labels"], head)
        variables |= map_hugging_face_pretraining_heads(names) | select_head(SPANS, names)
        shapes |= expected_pretraining_shapes(arguments) | expected_classifier_shapes(width, 2, SPAN_HEAD)
        arrays = tensors.read_variables(variables, shapes)
    return Checkpoint(
        source="hugging_face",
        path=weights,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        vocabulary=tokenizer.vocabulary,
        lower_case=tokenizer.lower_case,
        strip_accents=tokenizer.strip_accents,
        max_characters_per_word=tokenizer.max_characters_per_word,
        encoder_kind=kind,
        **tensors.account(variables),
    )


def is_one_bert(kind: EncoderKind, arguments: Mapping[str, Any]) -> bool:
    """Returns whether an encoder is a single bidirectional BERT, the only one that Hugging Face's library reads."""
    return kind.family == BERT and arguments.get("attention_direction", BIDIRECTIONAL) == BIDIRECTIONAL


def map_encoder_kind(kind: EncoderKind, arguments: Mapping[str, Any], names: Collection[str]) -> VariableMap:
    """Maps the variables of an encoder of any kind; `names` as for `map_bert`.

    >>> left_to_right = {"num_hidden_layers": 1, "attention_direction": "left_to_right"}
    >>> map_encoder_kind(ONE_BERT, left_to_right, names=())["encoder/pooler/bias"].names
    ('left_to_right.pooler.dense.bias',)
    """
    layers = arguments["num_hidden_layers"]
    if is_one_bert(kind, arguments):
        return map_bert(layers, names)
    variables: VariableMap = {}
    for direction, prefix in kind.prefixes(arguments).items():
        part = map_bert(layers, names, prefix=f"{direction}.")
        variables |= {replace_prefix(path, prefix): stored for path, stored in part.items()}
    if kind.family == BILSTM:
        variables = {path: stored for path, stored in variables.items() if not is_pooler(path)}
        for layer in range(kind.bilstm_layers):
            for lstm in ("forward", "backward"):
                for weight in ("kernel", "recurrent_kernel", "bias"):
                    path = f"encoder/bilstm_{layer}/{lstm}/lstm_cell/{weight}"
                    variables[path] = StoredVariable((f"bilstm.{layer}.{lstm}.{weight}",))
        variables |= _BILSTM_POOLER
        variables |= _LAYER_POOLING if kind.has_weighted_sum else {}
    return variables


def map_bert(num_hidden_layers: int, names: Collection[str], prefix: str | None = None) -> VariableMap:
    """Maps the variables of a BERT.

    The file's `names` select the prefix, `bert.` or none, unless it is given, and between old names of the layer norm
    (`gamma`, `beta`) and new ones.

    >>> map_bert(1, names=())["encoder/embeddings/layer_norm/gamma"].names
    ('embeddings.LayerNorm.weight',)
    """
    if prefix is None:
        prefix = "bert." if any(name.startswith("bert.") for name in names) else ""
    return map_encoder(num_hidden_layers, functools.partial(_name_in_file, prefix, names), kernels_transposed=True)


def map_classifier(head: str) -> VariableMap:
    """Maps the variables of a classification layer, named as in `CLASSIFIER_HEADS`."""
    return map_dense(head, ["classifier.weight"], ["classifier.bias"])


def map_hugging_face_pretraining_heads(names: Collection[str]) -> VariableMap:
    """Maps the variables of the pre-training heads that are among the file's `names`."""

    def name_in_file(original: str) -> str:
        renamed = original.replace("/output_weights", "/kernel").replace("/output_bias", "/bias")
        return _name_in_file("", names, renamed)

    return map_pretraining_heads(name_in_file, names, kernels_transposed=True)


def _name_in_file(prefix: str, names: Collection[str], original: str) -> str:
    legacy = prefix + original.replace("/layer_", "/layer/").replace("/", ".")
    if "LayerNorm" in original and legacy in names:
        return legacy
    module, _, leaf = legacy.rpartition(".")
    if leaf.endswith("_embeddings"):
        return f"{legacy}.weight"
    return f"{module}.{'weight' if leaf in ('kernel', 'gamma') else 'bias'}"


def read_direction(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Returns the encoder argument `attention_direction` of a configuration; an empty dict if bidirectional."""
    direction, allowed = config.get("attention_direction", BIDIRECTIONAL), (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)
    if direction not in allowed:
        raise ValueError(
            f"{path}: attention_direction must be one of {allowed}; found {shorten(direction)}. Correct the field."
        )
    return {} if direction == BIDIRECTIONAL else {"attention_direction": direction}


def _check_is_bert_encoder(config: Mapping[str, Any], path: Path) -> None:
    model_type = config.get("model_type")
    if model_type not in (MODEL_TYPE, OWN_MODEL_TYPE):
        raise ValueError(
            f"{path}: model_type must be 'bert'; found {shorten(model_type)} (architectures "
            f"{shorten(config.get('architectures'))}). Only BERT itself can be read; if it is one whose old "
            "configuration lacks the field, add it."
        )
    positions = config.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise ValueError(
            f"{path}: position_embedding_type must be 'absolute'; found {shorten(positions)}. Use another model."
        )
    for name in ("is_decoder", "add_cross_attention"):
        if config.get(name):
            raise ValueError(
                f"{path}: {name} must be false; found {shorten(config[name])}. Only BERT encoders can be read."
            )


def _read_architectures(config: Mapping[str, Any], path: Path) -> list[str]:
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f'{path}: architectures must be a list of names, such as ["BertModel"]; found {shorten(names)}. Correct '
            "the field."
        )
    return names


def _classifier_arguments(config: Mapping[str, Any], path: Path, tensors: TensorFile) -> dict[str, Any]:
    labels = config.get("id2label")
    if labels is not None:
        names: list[str] | None = _label_names(labels, path)
        num_labels = len(labels)
        if names == [f"LABEL_{index}" for index in range(num_labels)]:
            names = None
    else:
        # Their library omits id2label for the default labels: their number equals that of the biases.
        names = None
        entry = tensors.entries.get("classifier.bias")
        num_labels = entry.shape[0] if entry and entry.shape else _DEFAULT_NUM_LABELS
    # Their library trains a model with a single output and no problem_type as a regression.
    problem_type = config.get("problem_type") or ("regression" if num_labels == 1 else None)
    if problem_type not in _PROBLEM_TYPES:
        raise ValueError(
            f"{path}: problem_type must be one of {_PROBLEM_TYPES}; found {shorten(problem_type)}. Correct the field."
        )
    return {"num_labels": num_labels, "label_names": names, "problem_type": problem_type}


def _read_pooling(config: Mapping[str, Any], path: Path) -> str:
    # Their class for BERT has the pooler, whatever else its configuration states.
    pooling = config.get(POOLING_KEY, POOLER) if config["model_type"] == OWN_MODEL_TYPE else POOLER
    if pooling not in (POOLER, *POOLINGS):
        raise ValueError(
            f"{path}: {POOLING_KEY} must be one of {(POOLER, *POOLINGS)}; found {shorten(pooling)}. Correct the field."
        )
    return pooling


def _label_names(labels: Any, path: Path) -> list[str]:
    expected = [str(index) for index in range(len(labels))] if isinstance(labels, dict) else []
    if not expected or set(labels) != set(expected):
        raise ValueError(
            f'{path}: id2label must have consecutive keys "0", "1", ...; found {shorten(labels)}. Correct the field.'
        )
    if any(isinstance(label, (dict, list, type(None))) for label in labels.values()):
        raise ValueError(f"{path}: the labels of id2label must be strings; found {shorten(labels)}. Correct the field.")
    return [str(labels[index]) for index in expected]
