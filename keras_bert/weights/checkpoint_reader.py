"""Selects the reader for a folder or file of weights."""

from pathlib import Path

import numpy as np

from keras_bert.typing import PathLike
from keras_bert.weights import google_bert, hugging_face, keras_hub, model_garden, tensor_bundle_file, tf_hub
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.preset_names import is_preset_name

# The readers of formats, in the order in which they look at a folder. Each finds its weights at a path, or None, and
# reads what it found.
_FORMATS = (hugging_face, keras_hub, google_bert, model_garden, tf_hub)
_MAX_ENTRIES_LISTED = 20
_MAX_TENSORS_LISTED = 5


def read_checkpoint(path: PathLike, allow_nonfinite: bool = False) -> Checkpoint:
    """Reads the weights of a BERT from the files of Hugging Face, KerasHub, google-research/bert or TensorFlow.

    `path` is a folder with `config.json` and one of the files of weights in `hugging_face.OPENERS`, or such a file; a
    preset folder of KerasHub; a folder with `bert_config.json` and a checkpoint of google-research/bert (TF1) or of the
    TensorFlow Model Garden (TF2); its prefix, `.index` file or `checkpoint` file; or a SavedModel of TensorFlow Hub, as
    a folder or `.tar.gz`. A folder with several is read as the first of these. Raises FileNotFoundError if a file is
    missing, and ValueError if the files are corrupt, do not match each other or are not of a BERT, or if weights are
    NaN or infinite and `allow_nonfinite` is False.
    """
    path = Path(path)
    for file_format in _FORMATS:
        weights = file_format.find(path)
        if weights is not None:
            checkpoint = file_format.read(weights)
            if not allow_nonfinite:
                _check_is_finite(checkpoint)
            return checkpoint
    raise FileNotFoundError(_describe_missing_weights(path))


def _check_is_finite(checkpoint: Checkpoint) -> None:
    """Raises ValueError, which names the tensors, if an array has a NaN or an infinity."""
    names = []
    for path, array in checkpoint.arrays.items():
        number = array.size - np.count_nonzero(np.isfinite(array))
        if number:
            names.append(f"{', '.join(checkpoint.tensor_names[path])} (our {path!r}): {number} of {array.size} numbers")
    if names:
        rest = len(names) - _MAX_TENSORS_LISTED
        shown = "; ".join([*names[:_MAX_TENSORS_LISTED], *([f"and {rest} more"] if rest > 0 else [])])
        raise ValueError(
            f"{checkpoint.path}: {len(names)} of {len(checkpoint.arrays)} weights are NaN or infinite: "
            f"{shown}. A training diverged, or the file is damaged: use another checkpoint. To look at the weights, "
            "pass allow_nonfinite=True."
        )


def _describe_missing_weights(path: Path) -> str:
    if is_preset_name(path):
        return f"{path} is the name of a preset, not a file or folder: pass it to `from_preset`."
    folder = path if path.is_dir() else path.parent
    looked_for = (
        f"Looked for {' or '.join(hugging_face.OPENERS)} (Hugging Face, with {hugging_face.CONFIG_NAME}), for "
        f"{keras_hub.WEIGHTS_NAME} (KerasHub, with {keras_hub.CONFIG_NAME}), for *ckpt*.index or "
        f"{tensor_bundle_file.STATE_NAME} (TensorFlow, with {google_bert.CONFIG_NAME}), and for {tf_hub.MODEL_NAME} "
        "(TensorFlow Hub)."
    )
    if not folder.is_dir():
        return f"{path}: there is no such file or folder. {looked_for} Pass the folder that contains them."
    names = sorted(entry.name for entry in folder.iterdir())
    shown = names[:_MAX_ENTRIES_LISTED]
    held = f"{folder} contains {shown}" + (f" and {len(names) - len(shown)} more." if len(names) > len(shown) else ".")
    return f"{path}: no weights found. {looked_for} {held} Pass the folder that contains them."
