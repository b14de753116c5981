"""Writes a TF1 checkpoint with the names of google-research/bert, which its programs and our reader read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert.io.atomic_write import atomic_folder
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import SIZE_NAMES
from keras_bert.weights.encoder_kinds import ONE_BERT, EncoderKind
from keras_bert.weights.google_bert import ACTIVATIONS, CLASSIFIER, CLASSIFIER_DROPOUT, CONFIG_NAME, SPANS
from keras_bert.weights.hugging_face import is_one_bert
from keras_bert.weights.hugging_face_writer import TokenizerSettings, check_arrays, check_is_free, check_vocabulary
from keras_bert.weights.layout import (
    CHOICE_HEAD,
    CLASSIFIER_HEAD,
    POOLER,
    SPAN_HEAD,
    TOKEN_HEAD,
    Shapes,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
    is_pooler,
)
from keras_bert.weights.variable_map import VariableMap, map_encoder, map_pretraining_heads

PREFIX_NAME = "bert_model.ckpt"
_DTYPE = "float32"
_CONFIG_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_LAYER_NORM_EPSILON = 1e-12  # of the tf.contrib.layers.layer_norm that modeling.py calls
_SINGLE_LABEL = "single_label_classification"
_OTHER_FORMAT = "Save with format='hugging_face' instead."


def write_google_bert(
    path: PathLike,
    encoder_arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None = None,
    tokenizer: TokenizerSettings | None = None,
    dtype: str = _DTYPE,
    encoder_kind: EncoderKind = ONE_BERT,
) -> Path:
    """Writes a model as a folder of google-research/bert, completely or not at all.

    The folder contains `bert_model.ckpt.*`, a TF1 checkpoint; `bert_config.json`; and, with a tokenizer, `vocab.txt`.
    It can hold an encoder, and one with the heads of pre-training, of texts' labels (`run_classifier.py`) or of spans
    (`run_squad.py`). It does not state the names of the labels nor whether the tokenizer lower-cases, which their
    programs are told by flags.

    The arguments are those of `write_hugging_face`. Raises FileExistsError if `path` exists, and ValueError, before
    anything is written, if arguments, arrays and vocabulary do not match or the format cannot hold the model.
    """
    path = Path(path)
    check_is_free(path)
    _check_format(path, encoder_arguments, arrays, classifier_arguments, dtype, encoder_kind)
    configuration = {
        **{name: encoder_arguments[name] for name in SIZE_NAMES},
        "hidden_act": next(name for name, ours in ACTIVATIONS.items() if ours == encoder_arguments["hidden_act"]),
        **{name: encoder_arguments[name] for name in _CONFIG_RATES},
    }
    files = {CONFIG_NAME: json.dumps(configuration, indent=2, sort_keys=True) + "\n"}
    if tokenizer is not None:
        if tokenizer.strip_accents not in (None, tokenizer.lower_case):
            raise ValueError(
                f"{path}: google-research/bert strips accents if it lower-cases, and only then; this tokenizer has "
                f"lower_case={tokenizer.lower_case} and strip_accents={tokenizer.strip_accents}. {_OTHER_FORMAT}"
            )
        check_vocabulary(path, tokenizer.vocabulary, encoder_arguments["vocab_size"])
        files["vocab.txt"] = "".join(f"{token}\n" for token in tokenizer.vocabulary)
    tensors = _convert_to_tensors(path, encoder_arguments, arrays, classifier_arguments)
    with atomic_folder(path) as folder:
        for name, text in files.items():
            (folder / name).write_bytes(text.encode("utf-8"))  # text mode could change line ends
        _write_tensors(folder / PREFIX_NAME, tensors)
    logging.info("wrote %d tensors and %s to %s", len(tensors), sorted(files), path)
    return path


def _write_tensors(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    import tensorflow as tf  # not needed to write the other formats

    names = sorted(tensors)
    values = [tf.constant(np.ascontiguousarray(tensors[name], _DTYPE)) for name in names]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)


def _convert_to_tensors(
    path: Path,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None,
) -> dict[str, np.ndarray]:
    """Checks all arrays, and returns views in the layout of the file, by their names in it."""
    shapes: Shapes = expected_encoder_shapes(arguments)
    variables: VariableMap = map_encoder(arguments["num_hidden_layers"], "bert/{}".format, kernels_transposed=False)
    if classifier_arguments is None and not any(is_pooler(name) for name in arrays):
        shapes = {name: shape for name, shape in shapes.items() if not is_pooler(name)}
    if classifier_arguments is not None:
        shapes |= expected_classifier_shapes(arguments["hidden_size"], classifier_arguments["num_labels"])
        variables |= CLASSIFIER
    for head in ("masked_lm/", "next_sentence/"):
        if any(name.startswith(head) for name in arrays):
            head_shapes = expected_pretraining_shapes(arguments)
            shapes |= {name: shape for name, shape in head_shapes.items() if name.startswith(head)}
    names = ("cls/predictions/output_bias", "cls/seq_relationship/output_bias")
    variables |= map_pretraining_heads(str, names, kernels_transposed=False)
    if any(name in arrays for name in SPANS):
        shapes |= expected_classifier_shapes(arguments["hidden_size"], 2, SPAN_HEAD)
        variables |= SPANS
    check_arrays(path, arrays, shapes)
    return {
        name: tensor
        for variable in shapes
        for name, tensor in variables[variable].split(np.asarray(arrays[variable])).items()
    }


def _check_format(
    path: Path,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None,
    dtype: str,
    kind: EncoderKind,
) -> None:
    """Raises ValueError, with what to do, for what google-research/bert's files and programs cannot express."""
    if dtype != _DTYPE:
        raise ValueError(f"{path}: google-research/bert reads weights as {_DTYPE} only; got dtype={dtype!r}.")
    if not is_one_bert(kind, arguments):
        raise ValueError(
            f"{path}: google-research/bert has no encoder {kind.name(arguments)!r}, only a bidirectional BERT. "
            f"{_OTHER_FORMAT}"
        )
    for head in (TOKEN_HEAD, CHOICE_HEAD):
        if f"{head}/kernel" in arrays:
            raise ValueError(
                f"{path}: google-research/bert has no program for the head {head!r}; its heads are {CLASSIFIER_HEAD!r} "
                f"(run_classifier.py), {SPAN_HEAD!r} (run_squad.py) and those of pre-training. {_OTHER_FORMAT}"
            )
    activation = arguments["hidden_act"]
    if activation not in ACTIVATIONS.values():
        raise ValueError(
            f"{path}: hidden_act {activation!r} cannot be stated in a {CONFIG_NAME}, whose 'gelu' is the tanh form, "
            f"'gelu_new' here. {_OTHER_FORMAT} Or load the model with hidden_act='gelu_new', which changes its outputs "
            "by about 1e-3, evaluate it, and save that."
        )
    if arguments["layer_norm_eps"] != _LAYER_NORM_EPSILON:
        raise ValueError(
            f"{path}: layer_norm_eps is fixed at {_LAYER_NORM_EPSILON} in google-research/bert; this encoder has "
            f"{arguments['layer_norm_eps']}. {_OTHER_FORMAT}"
        )
    if classifier_arguments is None:
        return
    if classifier_arguments["problem_type"] not in (None, _SINGLE_LABEL):
        raise ValueError(
            f"{path}: run_classifier.py of google-research/bert has the problem type {_SINGLE_LABEL!r} only; got "
            f"{classifier_arguments['problem_type']!r}. {_OTHER_FORMAT}"
        )
    if classifier_arguments.get("pooling", POOLER) != POOLER:
        raise ValueError(
            f"{path}: run_classifier.py of google-research/bert classifies by the pooler only; got pooling="
            f"{classifier_arguments['pooling']!r}. {_OTHER_FORMAT}"
        )
    if classifier_arguments["label_names"]:
        logging.warning("%s does not hold the label names %s", path, classifier_arguments["label_names"])
    if classifier_arguments["classifier_dropout"] != CLASSIFIER_DROPOUT:
        logging.warning("%s does not hold classifier_dropout; it is %s there", path, CLASSIFIER_DROPOUT)
