"""Reads TF1 checkpoints of google-research/bert: `bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`."""

import re
from pathlib import Path
from typing import Any

from keras_bert.weights.bert_config import encoder_arguments, find_vocabulary, read_json
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
    expected_span_shapes,
)
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.variable_map import (
    Piece,
    encoder_pieces,
    pieces_of_head,
    pretraining_pieces,
    without_absent_pooler,
)

CONFIG_NAME = "bert_config.json"
STATE_NAME = "checkpoint"
_INDEX_SUFFIX = ".index"
_CLASSIFIER_DROPOUT = 0.1  # keep_prob=0.9 is written into run_classifier.py, create_model
_CLASSIFIER_PIECES = {
    f"{CLASSIFIER_HEAD}/kernel": Piece(("output_weights",), transposed=True),
    f"{CLASSIFIER_HEAD}/bias": Piece(("output_bias",)),
}
_SPAN_PIECES = {
    "spans/kernel": Piece(("cls/squad/output_weights",), transposed=True),
    "spans/bias": Piece(("cls/squad/output_bias",)),
}
# google-research/bert's "gelu" is the tanh form.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_COUNTERS = frozenset({"global_step", "beta1_power", "beta2_power"})
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the one tensor that every object-based checkpoint of TensorFlow 2 has


def find_google_bert_prefix(path: Path) -> Path | None:
    """Finds the TF1 checkpoint of a folder, prefix, `.index` or `checkpoint` file (google-research/bert README).

    In a folder the file `checkpoint` decides, as in TensorFlow; without one there must be a single `*.ckpt*.index`.

    Args:
        path: Path of any of these.

    Returns:
        The Path of the prefix, such as `.../bert_model.ckpt`; None if it is none of these.

    Raises:
        FileNotFoundError: if the file `checkpoint` names one that is not beside it.
        ValueError: if the folder holds several checkpoints and no file `checkpoint`.

    Example:

    >>> find_google_bert_prefix(Path("model.safetensors")) is None
    True
    """
    if path.is_dir():
        return _prefix_in_folder(path)
    if path.is_file() and path.name == STATE_NAME:
        return _prefix_of_state(path)
    prefix = path.with_name(path.name.removesuffix(_INDEX_SUFFIX))
    return prefix if _index_of(prefix).is_file() else None


def read_google_bert(prefix: Path) -> Checkpoint:
    """Reads a checkpoint that google-research/bert has written: pre-trained, or fine-tuned by its
    `run_classifier.py` or `run_squad.py`.

    The file's "gelu" becomes "gelu_new", the tanh form that `modeling.py` computes. Optimizer slots are only counted.

    Args:
        prefix: Path of the checkpoint without `.index`; `bert_config.json` lies beside it.

    Returns:
        A Checkpoint with `source` "google_bert"; its `lower_case` is None, since the files do not say.

    Raises:
        FileNotFoundError: if `bert_config.json` is missing.
        ValueError: if the configuration is not possible, the vocabulary has another size, or a tensor is missing,
            misshapen or cannot be read.

    Example:

    >>> read_google_bert(Path("no_such_folder/bert_model.ckpt"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: no_such_folder/bert_config.json: there is no such file; ...
    """
    config_path = prefix.with_name(CONFIG_NAME)
    arguments = read_bert_config(config_path)
    vocabulary_path = find_vocabulary(prefix.parent, arguments["vocab_size"], config_path)
    tensors = _open_checkpoint(prefix)
    pieces = encoder_pieces(arguments["num_hidden_layers"], lambda name: f"bert/{name}", kernels_transposed=False)
    shapes = expected_encoder_shapes(arguments)
    classifier = _classifier_arguments(tensors)
    if classifier:
        pieces |= _CLASSIFIER_PIECES
        shapes |= expected_classifier_shapes(arguments["hidden_size"], classifier["num_labels"])
    else:
        pieces = without_absent_pooler(pieces, tensors.entries.keys())
    pieces |= pretraining_pieces(lambda name: name, tensors.entries.keys(), kernels_transposed=False)
    pieces |= pieces_of_head(_SPAN_PIECES, tensors.entries.keys())
    shapes |= expected_pretraining_shapes(arguments) | expected_span_shapes(arguments["hidden_size"])
    arrays = tensors.assemble(pieces, shapes)
    slots = {name for name in tensors.entries if name in _COUNTERS or name.rpartition("/")[0] in tensors.entries}
    used = {name for piece in pieces.values() for name in piece.names}
    return Checkpoint(
        source="google_bert",
        path=prefix,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        tensor_names={path: piece.names for path, piece in pieces.items()},
        vocabulary_path=vocabulary_path,
        unused=tuple(sorted(tensors.entries.keys() - used - slots)),
        skipped_optimizer_slots=len(slots),
    )


def read_bert_config(path: Path) -> dict[str, Any]:
    """Reads a `bert_config.json` (google-research/bert `modeling.py`, `BertConfig`).

    Args:
        path: Path of the file. Its "gelu" becomes "gelu_new", the tanh form that `modeling.py` computes.

    Returns:
        dict, constructor arguments of the encoder.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the configuration is not possible.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "bert_config.json"
    >>> _ = path.write_text('''{"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    ...     "intermediate_size": 16, "max_position_embeddings": 8, "type_vocab_size": 2, "hidden_act": "gelu"}''')
    >>> read_bert_config(path)["hidden_act"]
    'gelu_new'
    """
    return encoder_arguments(read_json(path), path, _ACTIVATIONS)


def _index_of(prefix):
    return prefix.with_name(prefix.name + _INDEX_SUFFIX)


def _prefix_in_folder(folder):
    state = folder / STATE_NAME
    if state.is_file():
        return _prefix_of_state(state)
    found = sorted(file.name.removesuffix(_INDEX_SUFFIX) for file in folder.glob(f"*.ckpt*{_INDEX_SUFFIX}"))
    if len(found) > 1:
        raise ValueError(
            f"{folder}: holds several checkpoints, {found}, and no file {STATE_NAME!r}. Pass the path of one."
        )
    return folder / found[0] if found else None


def _prefix_of_state(state):
    match = re.search(r'^model_checkpoint_path:\s*"(.+)"', state.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ValueError(
            f'{state}: expected a line model_checkpoint_path: "...", found none. Pass the path of a checkpoint.'
        )
    # The file often keeps the absolute path of the machine that trained the model: the name alone still holds here.
    prefix = state.with_name(Path(match[1]).name)
    if not _index_of(prefix).is_file():
        raise FileNotFoundError(
            f"{state}: names {match[1]!r}, but {_index_of(prefix)} is not there. Pass the path of a checkpoint that is."
        )
    return prefix


def _classifier_arguments(tensors):
    """The head's arguments, or None where the file has nothing of a head of run_classifier.py."""
    shapes = [tensors.entries[name].shape for name in ("output_bias", "output_weights") if name in tensors.entries]
    if not shapes:
        return None
    return {
        "num_labels": shapes[0][0] if shapes[0] else 1,
        "label_names": None,
        "problem_type": None,
        "classifier_dropout": _CLASSIFIER_DROPOUT,
    }


def _open_checkpoint(prefix):
    # Imported here: the rest of this room works where TensorFlow is not installed.
    import tensorflow as tf

    def sizes():
        return {file.name: file.stat().st_size for file in sorted(prefix.parent.glob(prefix.name + ".*"))}

    def guarded(action, *arguments):
        try:
            return action(*arguments)
        except (
            tf.errors.OpError,
            IndexError,
        ) as error:  # IndexError is how TensorFlow reports a data file that ends early
            raise ValueError(
                f"{prefix}: cannot be read ({error}); its files and their sizes in bytes are {sizes()}. It needs the "
                ".index and every .data file, whole: fetch them again."
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
            "such as 'bert/embeddings/word_embeddings'. Take the TF1 or the Hugging Face form of the model."
        )
    return TensorFile(prefix, entries, lambda name: guarded(reader.get_tensor, name))
