"""Reads Hugging Face folders: `config.json`, `model.safetensors` (or shards), `vocab.txt`, `tokenizer_config.json`."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  gives NumPy the type "bfloat16", which safetensors asks it for
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_bert.weights.bert_config import encoder_arguments, find_vocabulary, read_json, read_rate
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.encoder_kinds import BERT, BILSTM, ONE_BERT, Composition, moved, read_composition
from keras_bert.weights.layout import (
    BIDIRECTIONAL,
    CHOICE_HEAD,
    CLASSIFIER_HEAD,
    LEFT_TO_RIGHT,
    RIGHT_TO_LEFT,
    TOKEN_HEAD,
    expected_classifier_shapes,
    expected_pretraining_shapes,
    expected_span_shapes,
    is_pooler,
)
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.variable_map import (
    Piece,
    encoder_pieces,
    pieces_of_head,
    pretraining_pieces,
    without_absent_pooler,
)

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
MODEL_TYPE = "bert"
# Of a folder whose encoder their library has no class for: not one bidirectional BERT. It does not know the name, and
# refuses such a folder; under "bert" it would take the weights for such a BERT's. (Asked for its BERT by name, it warns
# and goes on, and finds no tensor that it knows: the names of the encoder's begin with its direction.)
OWN_MODEL_TYPE = "keras_bert"
# Their models with a layer `classifier`, and the head that it is here.
CLASSIFIER_HEADS = {
    "BertForSequenceClassification": CLASSIFIER_HEAD,
    "BertForTokenClassification": TOKEN_HEAD,
    "BertForMultipleChoice": CHOICE_HEAD,
}
SPAN_ARCHITECTURE = "BertForQuestionAnswering"
SPAN_PIECES = {
    "spans/kernel": Piece(("qa_outputs.weight",), transposed=True),
    "spans/bias": Piece(("qa_outputs.bias",)),
}
MIX_PIECES = {f"encoder/layer_mix/{weight}": Piece((f"layer_mix.{weight}",)) for weight in ("layer_weights", "scale")}
BILSTM_POOLER_PIECES = {
    "encoder/bilstm_pooler/kernel": Piece(("bilstm.pooler.weight",), transposed=True),
    "encoder/bilstm_pooler/bias": Piece(("bilstm.pooler.bias",)),
}
# Their "gelu" is the erf form; the tanh form, which google-research/bert calls "gelu", has several names there.
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
_DEFAULT_NUM_LABELS = 2  # of their configurations


def find_hugging_face_weights(path: Path) -> Path | None:
    """Finds the weights if the path is a Hugging Face folder or one of its weight files (paper: arXiv 1810.04805).

    Args:
        path: Path of a folder, of a `.safetensors` file or of a `model.safetensors.index.json`.

    Returns:
        The Path of the safetensors file or of the index of the shards; None if it is neither.

    Example:

    >>> find_hugging_face_weights(Path("bert_model.ckpt")) is None
    True
    """
    if path.is_file():
        return path if path.suffix == ".safetensors" or path.name == INDEX_NAME else None
    return next((path / name for name in (WEIGHTS_NAME, INDEX_NAME) if (path / name).is_file()), None)


def read_hugging_face(weights: Path) -> Checkpoint:
    """Reads a BERT that Hugging Face's library or our writer has written (the model of arXiv 1810.04805).

    The head of a classifier is read where `config.json` names an architecture of `CLASSIFIER_HEADS`, those of
    pre-training and of spans where there are tensors of them; the tensors of other heads are listed in `unused`. Models
    without a pooler (for tokens, for question answering) are read without it.

    Args:
        weights: Path of a safetensors file or of the index of the shards; `config.json` lies beside it.

    Returns:
        A Checkpoint with `source` "hugging_face".

    Raises:
        FileNotFoundError: if `config.json` or a shard is missing.
        ValueError: if the configuration is not of a BERT encoder, the vocabulary has another size, or a tensor is
            missing, misshapen or cannot be read.

    Example:

    >>> read_hugging_face(Path("no_such_folder/model.safetensors"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: no_such_folder/config.json: there is no such file; ...
    """
    folder = weights.parent
    config_path = folder / CONFIG_NAME
    config = read_json(config_path)
    _check_is_bert_encoder(config, config_path)
    arguments, composition = encoder_arguments(config, config_path, ACTIVATIONS), ONE_BERT
    if config["model_type"] == OWN_MODEL_TYPE:
        arguments |= read_direction(config, config_path)
        composition = read_composition(config, config_path)
    vocabulary_path = find_vocabulary(folder, arguments["vocab_size"], config_path)
    lower_case, strip_accents = _tokenizer_settings(folder)
    with _open_weights(weights) as tensors:
        pieces = pieces_of_composition(composition, arguments, tensors.entries.keys())
        shapes, width = composition.shapes(arguments), composition.head_width(arguments["hidden_size"])
        classifier = None
        head = next(
            (CLASSIFIER_HEADS[name] for name in config.get("architectures") or [] if name in CLASSIFIER_HEADS), None
        )
        if head != CLASSIFIER_HEAD:
            pieces = without_absent_pooler(pieces, tensors.entries.keys())
        if head is not None:
            classifier = _classifier_arguments(config, config_path, tensors)
            classifier["classifier_dropout"] = read_rate(
                config, "classifier_dropout", config_path, default=arguments["hidden_dropout_prob"]
            )
            pieces |= classifier_pieces(head)
            shapes |= expected_classifier_shapes(width, classifier["num_labels"], head)
        pieces |= hugging_face_pretraining_pieces(tensors.entries.keys())
        pieces |= pieces_of_head(SPAN_PIECES, tensors.entries.keys())
        shapes |= expected_pretraining_shapes(arguments) | expected_span_shapes(width)
        arrays = tensors.assemble(pieces, shapes)
    used = {name for piece in pieces.values() for name in piece.names}
    return Checkpoint(
        source="hugging_face",
        path=weights,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        tensor_names={path: piece.names for path, piece in pieces.items()},
        vocabulary_path=vocabulary_path,
        lower_case=lower_case,
        strip_accents=strip_accents,
        unused=tuple(sorted(tensors.entries.keys() - used)),
        composition=composition,
    )


def pieces_of_composition(
    composition: Composition, arguments: Mapping[str, Any], names: Collection[str]
) -> dict[str, Piece]:
    """Where the variables of an encoder stand in a safetensors file, whatever it is made of (source: none in BERT).

    Args:
        composition: Composition of the encoder.
        arguments: mapping of a BERT's constructor arguments, `num_hidden_layers` and `attention_direction` among them.
        names: collection of str, the names that the file holds, as for `hugging_face_pieces`.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> left_to_right = {"num_hidden_layers": 1, "attention_direction": "left_to_right"}
    >>> pieces_of_composition(ONE_BERT, left_to_right, names=())["encoder/pooler/bias"].names
    ('left_to_right.pooler.dense.bias',)
    """
    layers = arguments["num_hidden_layers"]
    if is_one_bert(composition, arguments):
        return hugging_face_pieces(layers, names)
    pieces = {}
    for direction, folder in composition.folders(arguments).items():
        of_part = hugging_face_pieces(layers, names, prefix=f"{direction}.")
        pieces |= {moved(path, folder): piece for path, piece in of_part.items()}
    if composition.kind == BILSTM:
        pieces = {path: piece for path, piece in pieces.items() if not is_pooler(path)}
        pieces |= _bilstm_pieces(composition.bilstm_layers) | BILSTM_POOLER_PIECES
        pieces |= MIX_PIECES if composition.has_weighted_sum else {}
    return pieces


def _bilstm_pieces(layers):
    return {
        f"encoder/bilstm_{layer}/{lstm}/lstm_cell/{weight}": Piece((f"bilstm.{layer}.{lstm}.{weight}",))
        for layer in range(layers)
        for lstm in ("forward", "backward")
        for weight in ("kernel", "recurrent_kernel", "bias")
    }


def is_one_bert(composition: Composition, arguments: Mapping[str, Any]) -> bool:
    """Whether an encoder is one bidirectional BERT, the only one that Hugging Face's library knows.

    Source: none in BERT.

    Args:
        composition: Composition of the encoder.
        arguments: mapping of a BERT's constructor arguments, of which `attention_direction` is looked at.

    Returns:
        bool.

    Example:

    >>> is_one_bert(ONE_BERT, {"attention_direction": "left_to_right"})
    False
    """
    return composition.kind == BERT and arguments.get("attention_direction", BIDIRECTIONAL) == BIDIRECTIONAL


def hugging_face_pieces(num_hidden_layers: int, names: Collection[str], prefix: str | None = None) -> dict[str, Piece]:
    """Where a BERT's variables stand in a safetensors file (google-research/bert `modeling.py`, renamed).

    Args:
        num_hidden_layers: int, number of transformer blocks.
        names: collection of str, the names that the file holds; they decide about old files' names of the layer norm
            (`gamma`, `beta`), and about the prefix.
        prefix: str, what stands before the names; None is `bert.` if any name begins so, else nothing.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> hugging_face_pieces(1, names=())["encoder/embeddings/layer_norm/gamma"].names
    ('embeddings.LayerNorm.weight',)
    """
    if prefix is None:
        prefix = "bert." if any(name.startswith("bert.") for name in names) else ""
    return encoder_pieces(
        num_hidden_layers, lambda original: _name_in_file(prefix, original, names), kernels_transposed=True
    )


def read_direction(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The encoder's argument `attention_direction`, checked (paper section 5.1 has an encoder from left to right).

    Args:
        config: mapping of the encoder's constructor arguments, or as read from a file.
        path: Path of that file, for the message.

    Returns:
        A dict {"attention_direction": str}, or an empty one where it is bidirectional or absent.

    Raises:
        ValueError: if there is no such direction.

    Example:

    >>> read_direction({"attention_direction": "left_to_right"}, Path("config.json"))
    {'attention_direction': 'left_to_right'}
    """
    direction, allowed = config.get("attention_direction", BIDIRECTIONAL), (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)
    if direction not in allowed:
        raise ValueError(
            f"{path}: attention_direction must be one of {allowed}; found {direction!r}. Correct the field."
        )
    return {} if direction == BIDIRECTIONAL else {"attention_direction": direction}


def classifier_pieces(head: str) -> dict[str, Piece]:
    """Where the variables of a classifier's head stand in a safetensors file.

    Args:
        head: str, its name here, one of `CLASSIFIER_HEADS`.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> classifier_pieces("token_logits")["token_logits/bias"].names
    ('classifier.bias',)
    """
    return {
        f"{head}/kernel": Piece(("classifier.weight",), transposed=True),
        f"{head}/bias": Piece(("classifier.bias",)),
    }


def hugging_face_pretraining_pieces(names: Collection[str]) -> dict[str, Piece]:
    """Where the variables of the heads of pre-training stand in a safetensors file.

    Args:
        names: collection of str, the names that the file holds. A head of which it has nothing is left out.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> hugging_face_pretraining_pieces({"cls.predictions.bias"})["masked_lm/transform/kernel"].names
    ('cls.predictions.transform.dense.weight',)
    """

    def name_in_file(original):
        renamed = original.replace("/output_weights", "/kernel").replace("/output_bias", "/bias")
        return _name_in_file("", renamed, names)

    return pretraining_pieces(name_in_file, names, kernels_transposed=True)


def _name_in_file(prefix, original, names):
    legacy = prefix + original.replace("/layer_", "/layer/").replace("/", ".")
    if "LayerNorm" in original and legacy in names:
        return legacy
    module, _, leaf = legacy.rpartition(".")
    if leaf.endswith("_embeddings"):
        return f"{legacy}.weight"
    return f"{module}.{'weight' if leaf in ('kernel', 'gamma') else 'bias'}"


def _check_is_bert_encoder(config, path):
    model_type = config.get("model_type")
    if model_type not in (MODEL_TYPE, OWN_MODEL_TYPE):
        raise ValueError(
            f"{path}: model_type must be 'bert'; found {model_type!r} (architectures {config.get('architectures')!r}). "
            "Only BERT itself can be read; if it is one whose old configuration lacks the field, add it."
        )
    positions = config.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise ValueError(f"{path}: position_embedding_type must be 'absolute'; found {positions!r}. Use another model.")
    for name in ("is_decoder", "add_cross_attention"):
        if config.get(name):
            raise ValueError(f"{path}: {name} must be false; found {config[name]!r}. Only BERT encoders can be read.")


def _classifier_arguments(config, path, tensors):
    labels = config.get("id2label")
    if labels is not None:
        names = _label_names(labels, path)
        num_labels = len(names)
        if names == [f"LABEL_{index}" for index in range(num_labels)]:
            names = None
    else:
        # Their library writes no id2label for the default labels: the tensor itself knows their number.
        names = None
        entry = tensors.entries.get("classifier.bias")
        num_labels = entry.shape[0] if entry and entry.shape else _DEFAULT_NUM_LABELS
    # Their model with a single output and no stated problem is trained and used as a regression.
    problem_type = config.get("problem_type") or ("regression" if num_labels == 1 else None)
    return {"num_labels": num_labels, "label_names": names, "problem_type": problem_type}


def _label_names(labels, path):
    expected = [str(index) for index in range(len(labels))] if isinstance(labels, dict) else []
    if not expected or set(labels) != set(expected):
        raise ValueError(
            f'{path}: id2label must have the keys "0", "1", ... without a gap; found {labels!r}. Correct the field.'
        )
    return [str(labels[index]) for index in expected]


def _tokenizer_settings(folder):
    """(lower_case, strip_accents), each None where the folder does not say."""
    lower_case = strip_accents = None
    path = folder / TOKENIZER_CONFIG_NAME
    if path.is_file():
        settings = read_json(path)
        lower_case = _boolean_or_none(settings, "do_lower_case", path)
        strip_accents = _boolean_or_none(settings, "strip_accents", path)
    path = folder / "tokenizer.json"
    if lower_case is None and path.is_file():
        normalizer = read_json(path).get("normalizer")
        lower_case = _boolean_or_none(normalizer or {}, "lowercase", path)
    return lower_case, strip_accents


def _boolean_or_none(settings, name, path):
    value = settings.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{path}: {name} must be true or false; found {value!r}. Correct the field.")
    return value


@contextlib.contextmanager
def _open_weights(weights: Path) -> Iterator[TensorFile]:
    """Opens a safetensors file, or all shards of an index; nothing but the tables of contents is read yet."""
    with contextlib.ExitStack() as stack:
        handles, entries = {}, {}
        for file in _shards(weights):
            handle = stack.enter_context(_open_safetensors(file))
            for name in handle.keys():  # noqa: SIM118  the handle is no mapping
                piece = handle.get_slice(name)
                handles[name] = handle
                entries[name] = TensorEntry(tuple(piece.get_shape()), str(piece.get_dtype()), file)

        def read(name) -> np.ndarray:
            return handles[name].get_tensor(name)

        yield TensorFile(weights, entries, read)


def _shards(weights):
    if weights.name != INDEX_NAME:
        return [weights]
    weight_map = read_json(weights).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{weights}: expected an object weight_map {{tensor: shard}}; found {weight_map!r}. Fetch it again."
        )
    shards = [weights.parent / str(name) for name in sorted(set(map(str, weight_map.values())))]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{weights}: names the shards {missing}, which are not in {weights.parent}. Fetch them too."
        )
    return shards


def _open_safetensors(file):
    try:
        return safe_open(file, framework="numpy")
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a whole safetensors file ({error}); it has {file.stat().st_size} bytes. The download is "
            "incomplete or the file is only a Git LFS pointer: fetch it again and compare its size with the source's."
        ) from error
