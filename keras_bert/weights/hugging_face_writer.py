"""Writes a folder that Hugging Face's library and our reader read: weights, configuration, tokenizer.

What their classes do not compute is written in the same form for our reader alone, and its `model_type` makes their
library refuse the folder: encoders other than a single bidirectional BERT, and classifiers without the pooler.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy
import numpy as np
from absl import logging
from safetensors.numpy import save_file

from keras_bert.io.atomic_write import atomic_folder
from keras_bert.io.special_tokens import PADDING_TOKEN
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import parse_encoder_arguments
from keras_bert.weights.encoder_kinds import ONE_BERT, TWO_DIRECTIONS, EncoderKind, write_encoder_kind
from keras_bert.weights.hugging_face import (
    ACTIVATIONS,
    CLASSIFIER_HEADS,
    CONFIG_NAME,
    MODEL_TYPE,
    OWN_MODEL_TYPE,
    POOLING_KEY,
    SPAN_ARCHITECTURE,
    SPANS,
    WEIGHTS_NAME,
    is_one_bert,
    map_classifier,
    map_encoder_kind,
    map_hugging_face_pretraining_heads,
    read_direction,
)
from keras_bert.weights.hugging_face_tokenizer import TokenizerSettings, to_json, tokenizer_files
from keras_bert.weights.int8_tensors import quantize_matrices
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    POOLER,
    PROJECTION,
    SPAN_HEAD,
    Shapes,
    expected_classifier_shapes,
    expected_pretraining_shapes,
    is_pooler,
)
from keras_bert.weights.sentence_transformers import EmbeddingSettings, embedding_files, projection_tensors

FLOAT_STORED_TYPES = ("float32", "bfloat16")
STORED_TYPES = (*FLOAT_STORED_TYPES, "int8")
_ENCODER_ARCHITECTURE = "BertModel"
_PRETRAINING_HEADS = ("masked_lm/", "next_sentence/")
# By whether there is a head for masked words, and one for next sentences.
_PRETRAINING_ARCHITECTURES = {
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
}
_FLOAT_TYPES = ("float64", "float32", "float16", "bfloat16")
_MAX_PROBLEMS_LISTED = 5


def write_hugging_face(
    path: PathLike,
    encoder_arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None = None,
    tokenizer: TokenizerSettings | None = None,
    dtype: str = "float32",
    encoder_kind: EncoderKind = ONE_BERT,
    embedding: EmbeddingSettings | None = None,
) -> Path:
    """Writes a model as a Hugging Face folder, the inverse of `read_checkpoint`, completely or not at all.

    The folder contains `config.json` and `model.safetensors`; with a tokenizer `vocab.txt`, `tokenizer.json` and
    `tokenizer_config.json`; and with `embedding`, for an encoder without a head, what sentence-transformers needs.
    transformers, sentence-transformers and text-embeddings-inference open it. Their tokenizer differs from ours in what
    docs/checkpoints.md lists, such as `[SEP]` in a text, which is a special token there. They refuse weights of the
    dtype "int8", whose `model_type` is ours.

    `arrays` are our variables by path: the encoder's, without a pooler unless a head needs it, and those of one head.
    `classifier_arguments` are those of a `Checkpoint`; labels without names are called `LABEL_0`, `LABEL_1`, ...
    Raises FileExistsError if `path` exists, and ValueError, before anything is written, if arguments, arrays and
    vocabulary do not match.
    """
    path = Path(path)
    check_is_free(path)
    if dtype not in STORED_TYPES:
        raise ValueError(f"weights are stored as one of {STORED_TYPES}; got dtype={dtype!r}")
    float_type = "float32" if dtype == "int8" else dtype
    arguments = parse_encoder_arguments(encoder_arguments, path / CONFIG_NAME, ACTIVATIONS)
    if encoder_kind.family != TWO_DIRECTIONS:
        arguments |= read_direction(encoder_arguments, path / CONFIG_NAME)
    files: dict[str, str] = {}
    projection = {} if embedding is None else projection_tensors(arrays)
    arrays = {name: array for name, array in arrays.items() if not (projection and name.startswith(f"{PROJECTION}/"))}
    architecture = _architecture(arrays, classifier_arguments)
    is_theirs = is_one_bert(encoder_kind, arguments) and _uses_pooler(classifier_arguments)
    tensors = _convert_to_tensors(path, encoder_kind, arguments, arrays, architecture, classifier_arguments)
    configuration = {
        "architectures": [architecture],
        "model_type": MODEL_TYPE if is_theirs and dtype != "int8" else OWN_MODEL_TYPE,
        "position_embedding_type": "absolute",
        "torch_dtype": float_type,
        **arguments,
        **write_encoder_kind(encoder_kind),
        **_classifier_configuration(classifier_arguments),
    }
    if tokenizer is not None:
        check_vocabulary(path, tokenizer.vocabulary, arguments["vocab_size"])
        if PADDING_TOKEN in tokenizer.vocabulary:
            configuration["pad_token_id"] = list(tokenizer.vocabulary).index(PADDING_TOKEN)
        longest = arguments["max_position_embeddings"]
        files |= tokenizer_files(tokenizer, min((embedding and embedding.max_length) or longest, longest))
    if embedding is not None and is_theirs:
        files |= embedding_files(embedding, arguments["hidden_size"])
    files[CONFIG_NAME] = to_json(configuration)
    with atomic_folder(path) as folder:
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(text.encode("utf-8"))  # text mode could change line ends
        for name, contents in {WEIGHTS_NAME: tensors, **projection}.items():
            stored = {tensor: np.asarray(array, np.dtype(float_type), order="C") for tensor, array in contents.items()}
            if dtype == "int8" and name == WEIGHTS_NAME:  # sentence-transformers reads a projection as float only
                stored = quantize_matrices(stored)
            save_file(stored, folder / name, metadata={"format": "pt"})  # their library requires a format
            # safetensors creates a file that only its owner can read; a server often runs as another user.
            shutil.copymode(folder / CONFIG_NAME, folder / name)
    logging.info("wrote %d tensors and %s to %s", len(tensors), sorted(files), path)
    return path


def _convert_to_tensors(
    path: Path,
    kind: EncoderKind,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    architecture: str,
    classifier_arguments: Mapping[str, Any] | None,
) -> dict[str, np.ndarray]:
    """Checks all arrays, and returns views in the layout of the file, by their names in it."""
    shapes, width = kind.shapes(arguments), kind.head_width(arguments["hidden_size"])
    # Their encoder alone has no prefix; in a model with a head it is called `bert`.
    prefix = () if architecture == _ENCODER_ARCHITECTURE else ("bert.",)
    variables = map_encoder_kind(kind, arguments, names=prefix)
    head = CLASSIFIER_HEADS.get(architecture)
    if not (head == CLASSIFIER_HEAD and _uses_pooler(classifier_arguments)) and not any(
        is_pooler(name) for name in arrays
    ):
        shapes = {name: shape for name, shape in shapes.items() if not is_pooler(name)}
    if head is not None and classifier_arguments is not None:
        shapes |= expected_classifier_shapes(width, classifier_arguments["num_labels"], head)
        variables |= map_classifier(head)
    for head in _find_pretraining_heads(arrays):
        head_shapes = expected_pretraining_shapes(arguments)
        shapes |= {name: shape for name, shape in head_shapes.items() if name.startswith(head)}
    if architecture == SPAN_ARCHITECTURE:
        shapes |= expected_classifier_shapes(width, 2, SPAN_HEAD)
        variables |= SPANS
    variables |= map_hugging_face_pretraining_heads(("cls.predictions.bias", "cls.seq_relationship.bias"))
    check_arrays(path, arrays, shapes)
    return {
        name: tensor
        for variable in shapes
        for name, tensor in variables[variable].split(np.asarray(arrays[variable])).items()
    }


def check_is_free(path: Path) -> None:
    """Raises FileExistsError if a folder that is to be written exists, before its contents are made."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists and is not overwritten; write to another folder, or remove it first")


def check_arrays(path: Path, arrays: Mapping[str, np.ndarray], shapes: Shapes) -> None:
    """Raises ValueError unless the arrays are the variables of these shapes, all of a float type."""
    problems = [f"{name} is missing" for name in shapes if name not in arrays]
    problems += [f"{name} is not a variable of such a model" for name in arrays if name not in shapes]
    for name, array in arrays.items():
        if name in shapes and tuple(array.shape) != shapes[name]:
            problems.append(f"{name} must have the shape {list(shapes[name])}, but has {list(array.shape)}")
        if array.dtype.name not in _FLOAT_TYPES:
            problems.append(f"{name} must be of one of the types {_FLOAT_TYPES}, but is {array.dtype}")
    if problems:
        raise ValueError(
            f"the arrays for {path} do not match the arguments: {'; '.join(problems[:_MAX_PROBLEMS_LISTED])}"
            + (f"; and {len(problems) - _MAX_PROBLEMS_LISTED} more" if len(problems) > _MAX_PROBLEMS_LISTED else "")
            + ". Pass all variables of the model by path, and its own constructor arguments."
        )


def _architecture(arrays: Mapping[str, np.ndarray], classifier_arguments: Mapping[str, Any] | None) -> str:
    if classifier_arguments is not None:
        found = (name for name, head in CLASSIFIER_HEADS.items() if f"{head}/kernel" in arrays)
        return next(found, next(iter(CLASSIFIER_HEADS)))
    if any(name in arrays for name in SPANS):
        return SPAN_ARCHITECTURE
    heads = _find_pretraining_heads(arrays)
    has_masked_lm, has_next_sentence = (head in heads for head in _PRETRAINING_HEADS)
    return _PRETRAINING_ARCHITECTURES.get((has_masked_lm, has_next_sentence), _ENCODER_ARCHITECTURE)


def _find_pretraining_heads(arrays: Mapping[str, np.ndarray]) -> list[str]:
    return [head for head in _PRETRAINING_HEADS if any(name.startswith(head) for name in arrays)]


def _classifier_configuration(classifier_arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    if classifier_arguments is None:
        return {}
    num_labels = classifier_arguments["num_labels"]
    names = classifier_arguments["label_names"] or [f"LABEL_{index}" for index in range(num_labels)]
    if len(set(names)) != num_labels:
        raise ValueError(f"there must be {num_labels} distinct label_names; got {list(names)}")
    problem_type = classifier_arguments["problem_type"]
    pooling = {} if _uses_pooler(classifier_arguments) else {POOLING_KEY: classifier_arguments["pooling"]}
    return {
        **pooling,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
        "classifier_dropout": classifier_arguments["classifier_dropout"],
        **({} if problem_type is None else {"problem_type": problem_type}),
    }


def _uses_pooler(classifier_arguments: Mapping[str, Any] | None) -> bool:
    return (classifier_arguments or {}).get("pooling", POOLER) == POOLER


def check_vocabulary(path: Path, vocabulary: Sequence[str], vocab_size: int) -> None:
    """Raises ValueError unless a text file can store the vocabulary, and its size is the encoder's."""
    if len(vocabulary) != vocab_size:
        raise ValueError(f"the vocabulary for {path} has {len(vocabulary)} entries, but vocab_size is {vocab_size}")
    # Readers strip every line, as the original does.
    changed = [token for token in vocabulary if token != token.strip() or "\n" in token]
    if changed:
        raise ValueError(
            f"a vocab.txt cannot store these vocabulary entries, because of their white space: {changed[:5]}; correct "
            "them"
        )
