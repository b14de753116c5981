"""Picks the reader for a folder or file of weights."""

from pathlib import Path

from keras_bert.weights import google_bert, hugging_face
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.preset_names import PRESETS

_PICKLE_NAME = "pytorch_model"
_ENTRIES_LISTED = 20


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Reads the weights of a BERT from a Hugging Face folder or a TF1 checkpoint of google-research/bert.

    A folder that holds both is read as Hugging Face's.

    Args:
        path: str or Path of a folder with `config.json` and `model.safetensors` (or its shards and their index); of
            such a `.safetensors` file; of a folder with `bert_config.json` and a TF1 checkpoint; or of a TF1 prefix,
            `.index` file or `checkpoint` file.

    Returns:
        A Checkpoint: constructor arguments, float32 arrays by our variable paths, vocabulary, and what was not used.

    Raises:
        FileNotFoundError: if there are no weights of these forms, or a file beside them is missing.
        ValueError: if the files are broken, do not fit each other or are not of a BERT.

    Example:

    >>> import json, tempfile
    >>> import numpy as np
    >>> from safetensors.numpy import save_file
    >>> from keras_bert.weights.hugging_face import hugging_face_pieces
    >>> from keras_bert.weights.layout import expected_encoder_shapes
    >>> folder = Path(tempfile.mkdtemp())
    >>> sizes = dict(vocab_size=3, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...              max_position_embeddings=6, type_vocab_size=2)
    >>> _ = (folder / "config.json").write_text(json.dumps({**sizes, "model_type": "bert", "hidden_act": "gelu"}))
    >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\nhello\\n")
    >>> pieces, tensors = hugging_face_pieces(1, names=()), {}
    >>> for variable, piece in pieces.items():
    ...     for name, shape in piece.file_shapes(expected_encoder_shapes(sizes)[variable]).items():
    ...         tensors[name] = np.zeros(shape, np.float32)
    >>> save_file(tensors, folder / "model.safetensors")
    >>> checkpoint = read_checkpoint(folder)
    >>> checkpoint.source, checkpoint.arrays["encoder/transformer_block_0/self_attention/query_key_value/kernel"].shape
    ('hugging_face', (4, 12))
    """
    path = Path(path)
    weights = hugging_face.find_hugging_face_weights(path)
    if weights is not None:
        return hugging_face.read_hugging_face(weights)
    prefix = google_bert.find_google_bert_prefix(path)
    if prefix is not None:
        return google_bert.read_google_bert(prefix)
    raise FileNotFoundError(_nothing_found(path))


def _nothing_found(path):
    if str(path) in PRESETS:
        return f"{path} is no file or folder here, but the name of a preset, which `from_preset` reads."
    folder = path if path.is_dir() else path.parent
    looked_for = (
        f"Looked for {hugging_face.WEIGHTS_NAME} or {hugging_face.INDEX_NAME} (Hugging Face, with "
        f"{hugging_face.CONFIG_NAME}) and for *.ckpt.index or "
        f"{google_bert.STATE_NAME} (TF1, with {google_bert.CONFIG_NAME})."
    )
    if not folder.is_dir():
        return f"{path}: there is no such file or folder. {looked_for} Pass the folder that holds them."
    names = sorted(entry.name for entry in folder.iterdir())
    shown = names[:_ENTRIES_LISTED]
    held = f"{folder} holds {shown}" + (f" and {len(names) - len(shown)} more." if len(names) > len(shown) else ".")
    if any(name.startswith(_PICKLE_NAME) for name in names):
        advice = (
            "Pickled PyTorch weights are not read here, since unpickling can run any code. Where transformers and "
            "torch are installed, convert them: `import transformers; transformers.BertForSequenceClassification"
            ".from_pretrained(folder).save_pretrained(new_folder)` (or the class that "
            f"{hugging_face.CONFIG_NAME} names under architectures), copy vocab.txt there and pass new_folder."
        )
    else:
        advice = "Pass the folder that holds them."
    return f"{path}: no weights found. {looked_for} {held} {advice}"
