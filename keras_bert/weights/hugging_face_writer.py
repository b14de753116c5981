"""Writes a folder that Hugging Face's library reads, and our own reader: weights, configuration, tokenizer.

An encoder that is no single bidirectional BERT is written in the same form, for our reader alone: their library has no
such model, and refuses the folder by its `model_type` rather than take the weights for those of its BERT.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  gives NumPy the type "bfloat16", which models may compute in
import numpy as np
from absl import logging
from safetensors.numpy import save_file

from keras_bert.io.atomic_write import atomic_folder
from keras_bert.weights.bert_config import encoder_arguments as checked_encoder_arguments
from keras_bert.weights.encoder_kinds import BERT, BILSTM, ONE_BERT, TWO_DIRECTIONS, Composition
from keras_bert.weights.hugging_face import (
    ACTIVATIONS,
    CLASSIFIER_HEADS,
    CONFIG_NAME,
    MODEL_TYPE,
    OWN_MODEL_TYPE,
    SPAN_ARCHITECTURE,
    SPAN_PIECES,
    TOKENIZER_CONFIG_NAME,
    WEIGHTS_NAME,
    classifier_pieces,
    hugging_face_pretraining_pieces,
    is_one_bert,
    pieces_of_composition,
    read_direction,
)
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    expected_classifier_shapes,
    expected_pretraining_shapes,
    expected_span_shapes,
    is_pooler,
)

_ENCODER_ARCHITECTURE = "BertModel"
_PRETRAINING_HEADS = ("masked_lm/", "next_sentence/")
# By the heads of pre-training that there are: masked words, next sentences.
_PRETRAINING_ARCHITECTURES = {
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
}
_PADDING_TOKEN = "[PAD]"
_FLOAT_TYPES = ("float64", "float32", "float16", "bfloat16")
STORED_TYPES = ("float32", "bfloat16")


def write_hugging_face(
    path: str | Path,
    encoder_arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    classifier_arguments: Mapping[str, Any] | None = None,
    vocabulary: Sequence[str] | None = None,
    lower_case: bool | None = None,
    strip_accents: bool | None = None,
    dtype: str = "float32",
    composition: Composition = ONE_BERT,
) -> Path:
    """Writes a BERT (arXiv 1810.04805) as Hugging Face's library stores it: `read_checkpoint` the other way round.

    The folder holds `config.json` and `model.safetensors` and, where there is a vocabulary, `vocab.txt` and
    `tokenizer_config.json`. It is written under a temporary name and renamed.

    Their tokenizer differs from the original's in a few texts: it makes `[UNK]` of words of more than 100 characters
    rather than 200, and takes `[SEP]` and the like in a text for the special tokens.

    Args:
        path: str or Path of the folder to write.
        encoder_arguments: dict, constructor arguments of the encoder, as in a `Checkpoint`; others are not looked at.
        arrays: dict {our variable path: float array}: the encoder's, which may lack the pooler where no head needs it,
            and those of the head of a classifier (of texts, tokens or choices), of the one for spans, or of the heads
            of pre-training.
        classifier_arguments: dict as in a `Checkpoint`, all four of them, or None for an encoder alone. Where
            `label_names` is None, the folder calls the labels `LABEL_0`, `LABEL_1`, ..., as their library does.
        vocabulary: list of str, the wordpieces in the order of their ids, or None.
        lower_case: bool; must be given with a vocabulary.
        strip_accents: bool, or None: as `lower_case`.
        dtype: str. The type that weights are stored in, whatever the arrays are: "float32", or "bfloat16", which takes
            half the space and keeps 8 bits of precision.
        composition: Composition, what the encoder is made of.

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if there is something at `path`.
        ValueError: if arguments, arrays and vocabulary do not fit each other, or cannot be written so that they come
            back the same; nothing is written then.

    Example:

    >>> from keras_bert.weights.layout import expected_encoder_shapes
    >>> from keras_bert.weights.checkpoint_reader import read_checkpoint
    >>> arguments = dict(vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...                  max_position_embeddings=6, type_vocab_size=2, hidden_act="gelu_new")
    >>> arrays = {path: np.ones(shape, np.float32) for path, shape in expected_encoder_shapes(arguments).items()}
    >>> folder = write_hugging_face(Path(tempfile.mkdtemp()) / "bert", arguments, arrays, lower_case=True,
    ...                             vocabulary=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello"])
    >>> sorted(file.name for file in folder.iterdir())
    ['config.json', 'model.safetensors', 'tokenizer_config.json', 'vocab.txt']
    >>> read_checkpoint(folder).encoder_arguments["hidden_act"]
    'gelu_new'
    """
    path = Path(path)
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists and is not overwritten; write to another folder, or remove it first")
    if dtype not in STORED_TYPES:
        raise ValueError(f"weights are stored as one of {STORED_TYPES}; got dtype={dtype!r}")
    arguments = _checked(encoder_arguments, composition, path / CONFIG_NAME)
    architecture = _architecture(arrays, classifier_arguments)
    tensors = _tensors(path, composition, arguments, arrays, architecture, classifier_arguments, dtype)
    configuration = _configuration(composition, arguments, architecture, classifier_arguments, vocabulary, dtype)
    files = {CONFIG_NAME: _json(configuration)}
    if vocabulary is not None:
        _check_vocabulary(path, vocabulary, arguments["vocab_size"], lower_case)
        files["vocab.txt"] = "".join(f"{token}\n" for token in vocabulary)
        files[TOKENIZER_CONFIG_NAME] = _json(
            _tokenizer_configuration(lower_case, strip_accents, arguments["max_position_embeddings"])
        )
    with atomic_folder(path) as folder:
        for name, text in files.items():
            # As bytes: text mode could change the ends of lines.
            (folder / name).write_bytes(text.encode("utf-8"))
        save_file(tensors, folder / WEIGHTS_NAME, metadata={"format": "pt"})  # their library asks for a format
        # safetensors makes a file that only its owner may read; a server often runs as another user.
        shutil.copymode(folder / CONFIG_NAME, folder / WEIGHTS_NAME)
    logging.info("wrote %d tensors and %s to %s", len(tensors), sorted(files), path)
    return path


def _checked(arguments, composition, path):
    checked = checked_encoder_arguments(arguments, path, ACTIVATIONS)
    return checked if composition.kind == TWO_DIRECTIONS else checked | read_direction(arguments, path)


def _tensors(path, composition, arguments, arrays, architecture, classifier_arguments, dtype):
    """{name in the file: contiguous array}, after all arrays have been checked."""
    shapes, width = composition.shapes(arguments), composition.head_width(arguments["hidden_size"])
    # Their encoder alone has no prefix; in a model with a head it is called `bert`.
    prefix = () if architecture == _ENCODER_ARCHITECTURE else ("bert.",)
    pieces = pieces_of_composition(composition, arguments, names=prefix)
    head = CLASSIFIER_HEADS.get(architecture)
    if head != CLASSIFIER_HEAD and not any(is_pooler(name) for name in arrays):
        shapes = {name: shape for name, shape in shapes.items() if not is_pooler(name)}
    if head is not None:
        shapes |= expected_classifier_shapes(width, classifier_arguments["num_labels"], head)
        pieces |= classifier_pieces(head)
    for head in _heads_of_pretraining(arrays):
        shapes |= {
            name: shape for name, shape in expected_pretraining_shapes(arguments).items() if name.startswith(head)
        }
    if architecture == SPAN_ARCHITECTURE:
        shapes |= expected_span_shapes(width)
        pieces |= SPAN_PIECES
    pieces |= hugging_face_pretraining_pieces(("cls.predictions.bias", "cls.seq_relationship.bias"))
    problems = [f"{name} is missing" for name in shapes if name not in arrays]
    problems += [f"{name} is not a variable of such a model" for name in arrays if name not in shapes]
    for name, array in arrays.items():
        if name in shapes and tuple(array.shape) != shapes[name]:
            problems.append(f"{name} must have the shape {list(shapes[name])}, but has {list(array.shape)}")
        if array.dtype.name not in _FLOAT_TYPES:
            problems.append(f"{name} must be of one of the types {_FLOAT_TYPES}, but is {array.dtype}")
    if problems:
        raise ValueError(
            f"the arrays for {path} do not fit the arguments: {'; '.join(problems[:5])}"
            + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
            + ". Pass all variables of the model by their paths, and its own constructor arguments."
        )
    return {
        name: np.asarray(tensor, np.dtype(dtype), order="C")
        for variable in shapes
        for name, tensor in pieces[variable].split(np.asarray(arrays[variable])).items()
    }


def _architecture(arrays, classifier_arguments):
    if classifier_arguments is not None:
        of_arrays = (name for name, head in CLASSIFIER_HEADS.items() if f"{head}/kernel" in arrays)
        return next(of_arrays, next(iter(CLASSIFIER_HEADS)))
    if any(name in arrays for name in SPAN_PIECES):
        return SPAN_ARCHITECTURE
    heads = _heads_of_pretraining(arrays)
    return _PRETRAINING_ARCHITECTURES.get(tuple(head in heads for head in _PRETRAINING_HEADS), _ENCODER_ARCHITECTURE)


def _heads_of_pretraining(arrays):
    return [head for head in _PRETRAINING_HEADS if any(name.startswith(head) for name in arrays)]


def _configuration(composition, arguments, architecture, classifier_arguments, vocabulary, dtype):
    configuration = {
        "architectures": [architecture],
        "model_type": MODEL_TYPE if is_one_bert(composition, arguments) else OWN_MODEL_TYPE,
        "position_embedding_type": "absolute",
        "torch_dtype": dtype,
        **arguments,
    }
    if composition.kind != BERT:
        configuration["composition"] = composition.kind
    if composition.kind == BILSTM:
        names = ("bilstm_units", "bilstm_layers", "features")
        configuration |= {name: getattr(composition, name) for name in names}
    if vocabulary is not None and _PADDING_TOKEN in vocabulary:
        configuration["pad_token_id"] = list(vocabulary).index(_PADDING_TOKEN)
    if classifier_arguments is not None:
        number = classifier_arguments["num_labels"]
        names = classifier_arguments["label_names"] or [f"LABEL_{index}" for index in range(number)]
        if len(set(names)) != number:
            raise ValueError(f"there must be {number} distinct label_names; got {list(names)}")
        configuration |= {
            "id2label": {str(index): name for index, name in enumerate(names)},
            "label2id": {name: index for index, name in enumerate(names)},
            "classifier_dropout": classifier_arguments["classifier_dropout"],
        }
        if classifier_arguments["problem_type"] is not None:
            configuration["problem_type"] = classifier_arguments["problem_type"]
    return configuration


def _tokenizer_configuration(lower_case, strip_accents, longest):
    configuration = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lower_case,
        "tokenize_chinese_chars": True,
        "model_max_length": longest,
    }
    if strip_accents is not None and strip_accents != lower_case:
        configuration["strip_accents"] = strip_accents
    return configuration


def _check_vocabulary(path, vocabulary, vocab_size, lower_case):
    if lower_case is None:
        raise ValueError(f"a vocabulary for {path} says nothing without lower_case; give lower_case=True or False")
    if len(vocabulary) != vocab_size:
        raise ValueError(f"the vocabulary for {path} has {len(vocabulary)} entries, but vocab_size is {vocab_size}")
    # Readers strip every line, as the original does.
    broken = [token for token in vocabulary if token != token.strip() or "\n" in token]
    if broken:
        raise ValueError(
            f"these entries of the vocabulary would come back changed from a vocab.txt, because of their white space: "
            f"{broken[:5]}; correct them"
        )


def _json(value):
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
