"""Writes preset folders that KerasHub and our reader read: weights, configuration, tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
from absl import logging

from keras_bert.io.atomic_write import atomic_folder
from keras_bert.io.special_tokens import SPECIAL_TOKENS
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import parse_encoder_arguments
from keras_bert.weights.encoder_kinds import ONE_BERT, EncoderKind
from keras_bert.weights.hugging_face import ACTIVATIONS, is_one_bert
from keras_bert.weights.hugging_face_writer import (
    FLOAT_STORED_TYPES,
    TokenizerSettings,
    check_arrays,
    check_vocabulary,
)
from keras_bert.weights.keras_hub import (
    BACKBONE,
    CLASSIFIER,
    CLASSIFIER_VARIABLES,
    CONFIG_NAME,
    FIXED_ARGUMENTS,
    METADATA_NAME,
    PREPROCESSOR_NAME,
    SIZES,
    TASK_NAME,
    TASK_WEIGHTS_NAME,
    TOKENIZER,
    TOKENIZER_NAME,
    VOCABULARY_NAME,
    WEIGHTS_NAME,
    attention_suffix,
    map_backbone,
    split_shapes,
)
from keras_bert.weights.layout import CLASSIFIER_HEAD, expected_classifier_shapes, expected_encoder_shapes

_VERSION = "0.32.0"  # the version of KerasHub whose layout this is
_PREPROCESSOR = "BertTextClassifierPreprocessor"
_MODULES = {
    BACKBONE: "bert_backbone",
    CLASSIFIER: "bert_text_classifier",
    TOKENIZER: "bert_tokenizer",
    _PREPROCESSOR: "bert_text_classifier_preprocessor",
}


def write_keras_hub(
    path: PathLike,
    encoder_arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None = None,
    tokenizer: TokenizerSettings | None = None,
    dtype: str = "float32",
    encoder_kind: EncoderKind = ONE_BERT,
) -> Path:
    """Writes an encoder or a text classifier as a preset folder of KerasHub, completely or not at all.

    Arguments are those of `write_hugging_face`. `keras_hub.models.BertBackbone.from_preset(path)` and
    `BertTextClassifier.from_preset(path)` open the folder. Their tokenizer treats words of more than 100 bytes as
    unknown, and splits texts at control characters, which the original removes. The names and the kind of the labels
    are written to `metadata.json`, where our reader finds them; KerasHub has no place for them. Not stored:
    `initializer_range`.

    Raises FileExistsError if `path` exists, and ValueError, before anything is written, if KerasHub's BERT cannot
    compute what this one does (another activation or epsilon, no pooler, other encoders, other heads) or if arguments,
    arrays and vocabulary do not match.
    """
    path = Path(path)
    if dtype not in FLOAT_STORED_TYPES:
        raise ValueError(f"weights are stored as one of {FLOAT_STORED_TYPES}; got dtype={dtype!r}")
    arguments = parse_encoder_arguments(encoder_arguments, path / CONFIG_NAME, ACTIVATIONS)
    _check_encoder(path, encoder_kind, encoder_arguments, arguments)
    num_labels = None if classifier_arguments is None else classifier_arguments["num_labels"]
    _check_heads(path, arrays, num_labels)
    shapes, variables = expected_encoder_shapes(arguments), map_backbone(arguments["num_hidden_layers"])
    if num_labels is not None:
        shapes |= expected_classifier_shapes(arguments["hidden_size"], num_labels)
        variables |= CLASSIFIER_VARIABLES
    check_arrays(path, arrays, shapes)
    files = _describe(arguments, classifier_arguments, tokenizer is not None, arrays)
    if tokenizer is not None:
        check_vocabulary(path, tokenizer.vocabulary, arguments["vocab_size"])
        missing = [token for token in SPECIAL_TOKENS if token not in tokenizer.vocabulary]
        if missing:
            raise ValueError(f"the vocabulary for {path} lacks {missing}, which KerasHub's BertTokenizer needs")
        files[TOKENIZER_NAME] = _describe_tokenizer(tokenizer)
        if num_labels is not None:
            files[PREPROCESSOR_NAME] = _describe_preprocessor(tokenizer, arguments)
            files[TASK_NAME]["config"]["preprocessor"] = files[PREPROCESSOR_NAME]
    stored = {
        name: np.asarray(tensor, np.dtype(dtype), order="C")
        for variable in shapes
        for name, tensor in variables[variable].split(np.asarray(arrays[variable])).items()
    }
    with atomic_folder(path) as folder:
        for name, value in files.items():
            (folder / name).write_bytes((json.dumps(value, ensure_ascii=False, indent=4) + "\n").encode("utf-8"))
        if tokenizer is not None:
            (folder / VOCABULARY_NAME).parent.mkdir(parents=True)
            text = "".join(f"{token}\n" for token in tokenizer.vocabulary)
            (folder / VOCABULARY_NAME).write_bytes(text.encode("utf-8"))
        _write_tensors(folder, stored, arguments)
    logging.info("wrote %d tensors and %s to %s", len(stored), sorted(files), path)
    return path


def _check_encoder(path: Path, kind: EncoderKind, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises ValueError for an encoder that is not KerasHub's BERT."""
    if not is_one_bert(kind, given):
        raise ValueError(
            f"the encoder for {path} is {kind.name(given)!r}, and KerasHub's format holds a single bidirectional BERT; "
            'use format="hugging_face"'
        )
    for name, value in FIXED_ARGUMENTS.items():
        if arguments[name] != value:
            raise ValueError(
                f"the encoder for {path} has {name}={arguments[name]!r}, and KerasHub's BERT always computes with "
                f"{value!r}, so that its outputs would differ. To accept that, write a model that was made with "
                f'{name}={value!r}; to keep the outputs, use format="hugging_face"'
            )
    rates = [arguments[f"{place}_dropout_prob"] for place in ("hidden", "attention_probs")]
    if rates[0] != rates[1]:
        raise ValueError(
            f"the encoder for {path} has hidden_dropout_prob={rates[0]} and attention_probs_dropout_prob={rates[1]}, "
            'and KerasHub\'s BERT has one rate for both: make them equal, or use format="hugging_face"'
        )


def _check_heads(path: Path, arrays: Mapping[str, np.ndarray], num_labels: int | None) -> None:
    """Raises ValueError for heads that KerasHub does not have."""
    allowed = ("encoder/", f"{CLASSIFIER_HEAD}/") if num_labels is not None else ("encoder/",)
    others = sorted({name.partition("/")[0] for name in arrays if not name.startswith(allowed)})
    if others:
        raise ValueError(
            f"the model for {path} has the head {others}, and KerasHub's format holds a text classifier's only (its "
            "masked language model computes another function: GELU's erf form and the epsilon 1e-5). Save "
            '`model.encoder` instead, or use format="hugging_face"'
        )
    if "encoder/pooler/kernel" not in arrays:
        raise ValueError(f'the encoder for {path} has no pooler, which KerasHub\'s BERT has; use format="hugging_face"')


def _describe(
    arguments: Mapping[str, Any],
    classifier_arguments: Mapping[str, Any] | None,
    has_tokenizer: bool,
    arrays: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Returns the configurations of the model by file."""
    sizes = {theirs: arguments[ours] for ours, theirs in SIZES.items()}
    backbone = _serialize(BACKBONE, {**sizes, "dropout": arguments["hidden_dropout_prob"]})
    num_parameters = sum(array.size for name, array in arrays.items() if name.startswith("encoder/"))
    metadata = {"keras_hub_version": _VERSION, "parameter_count": num_parameters}
    if classifier_arguments is None:
        return {CONFIG_NAME: backbone, METADATA_NAME: metadata}
    task = {
        "backbone": backbone,
        "preprocessor": None,
        "name": "bert_text_classifier",
        "num_classes": classifier_arguments["num_labels"],
        "activation": "linear",
        "dropout": classifier_arguments["classifier_dropout"],
    }
    labels = {name: classifier_arguments[name] for name in ("label_names", "problem_type")}
    return {
        CONFIG_NAME: backbone,
        METADATA_NAME: metadata | labels,
        TASK_NAME: {**_serialize(CLASSIFIER, {}), "config": task},
    }


def _describe_tokenizer(tokenizer: TokenizerSettings) -> dict[str, Any]:
    strip_accents = tokenizer.lower_case if tokenizer.strip_accents is None else tokenizer.strip_accents
    settings = {
        "config_file": TOKENIZER_NAME,
        "vocabulary": None,  # in the folder `assets`
        "sequence_length": None,
        "lowercase": tokenizer.lower_case,
        "strip_accents": strip_accents,
        "split": True,
        "suffix_indicator": "##",
        "oov_token": "[UNK]",
        "special_tokens": None,
        "special_tokens_in_strings": False,
    }
    return _serialize(TOKENIZER, settings, "int32")


def _describe_preprocessor(tokenizer: TokenizerSettings, arguments: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "tokenizer": _describe_tokenizer(tokenizer),
        "config_file": PREPROCESSOR_NAME,
        "sequence_length": arguments["max_position_embeddings"],
        "truncate": "round_robin",
    }
    return _serialize(_PREPROCESSOR, settings)


def _serialize(name: str, config: Mapping[str, Any], dtype: str = "float32") -> dict[str, Any]:
    """Returns an object of KerasHub as `keras.saving.serialize_keras_object` describes it."""
    policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": dtype}, "registered_name": None}
    return {
        "module": f"keras_hub.src.models.bert.{_MODULES[name]}",
        "class_name": name,
        "config": {"name": _MODULES[name], "trainable": True, "dtype": policy, **config},
        "registered_name": f"keras_hub>{name}",
    }


def _write_tensors(folder: Path, tensors: Mapping[str, np.ndarray], arguments: Mapping[str, Any]) -> None:
    """Writes both files of weights, attention tensors with an axis for the heads."""
    split = split_shapes(arguments)
    of_task = {name for name in tensors if name.startswith(f"{TASK_WEIGHTS_NAME}/")}
    for file_name, names in ((WEIGHTS_NAME, tensors.keys() - of_task), (TASK_WEIGHTS_NAME, of_task)):
        if not names:
            continue
        with h5py.File(folder / file_name, "w") as file:
            for name in sorted(names):
                tensor = tensors[name]
                if (suffix := attention_suffix(name)) in split:
                    tensor = tensor.reshape(split[suffix][0])
                is_bfloat16 = tensor.dtype == ml_dtypes.bfloat16
                # HDF5 has no such type: Keras stores the bytes, and the type in an attribute.
                data = tensor.view("V2") if is_bfloat16 else tensor
                dataset = file.create_dataset(name.removeprefix(f"{TASK_WEIGHTS_NAME}/"), data=data)
                if is_bfloat16:
                    dataset.attrs["dtype"] = "bfloat16"
