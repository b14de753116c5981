"""Students for distillation: some layers and some wordpieces of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrained import load_tokenizer, read_bert, write_checkpoint
from keras_bert.typing import PathLike
from keras_bert.weights.preset_names import resolve_preset
from keras_bert.weights.sentence_transformers import read_embedding_settings

_BLOCK = re.compile(r"encoder/transformer_block_([0-9]+)/(.*)")
_WORD_EMBEDDINGS = "encoder/embeddings/token_embeddings"


def make_student(
    teacher: PathLike,
    path: PathLike,
    layers: Sequence[int] | None = None,
    texts: Iterable[str] | None = None,
    vocab_size: int | None = None,
    min_count: int = 1,
    keep_first: int = 0,
    dtype: str = "float32",
) -> Path:
    """Writes a checkpoint with some layers of a teacher, all other weights of its encoder, and fewer wordpieces.

    A text whose wordpieces are all kept is tokenized as before and has the same embeddings. The student starts close to
    its teacher, and learns the rest by `keras_bert.distill`.

    Args:
        teacher: a preset, a checkpoint, or `hf://owner/name`, of a single BERT.
        path: folder to write, in the format of Hugging Face.
        layers: the teacher's transformer blocks to keep, ascending from 0; None keeps all.
        texts: texts whose most frequent wordpieces are kept; None keeps the vocabulary.
        vocab_size, min_count, keep_first: which wordpieces are kept; see
            `keras_bert.text.vocabulary_pruning.choose_wordpieces`.
        dtype: type of the stored weights: "float32", "bfloat16" or "int8".

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if `path` exists.
        ValueError: if the teacher does not have the layers, has no vocabulary, or is not a single BERT.

    Example:

    >>> folder = keras_bert.make_student("bert_tiny_novels", tempfile.mkdtemp() + "/student", [1], ["a night at sea"])
    >>> encoder = keras_bert.BertEncoder.from_checkpoint(folder)
    >>> encoder.num_hidden_layers, encoder.vocab_size < 10000
    (1, True)
    """
    checkpoint = read_bert(resolve_preset(teacher))
    arguments, arrays = dict(checkpoint.encoder_arguments), dict(checkpoint.arrays)
    arrays = {name: array for name, array in arrays.items() if name.startswith("encoder/")}
    tokenizer = None if texts is None and checkpoint.vocabulary is None else load_tokenizer(checkpoint)
    if layers is not None:
        arrays = _select_blocks(arrays, layers, arguments["num_hidden_layers"])
        arguments["num_hidden_layers"] = len(layers)
    if texts is not None:
        from keras_bert.text.tokenizer import BertTokenizer
        from keras_bert.text.vocabulary_pruning import choose_wordpieces

        assert tokenizer is not None
        kept = choose_wordpieces(tokenizer, texts, vocab_size, min_count, keep_first)
        vocabulary = [tokenizer.vocabulary[index] for index in kept]
        limit = tokenizer.max_characters_per_word
        tokenizer = BertTokenizer(
            vocabulary, tokenizer.lower_case, tokenizer.strip_accents, max_characters_per_word=limit
        )
        arrays[_WORD_EMBEDDINGS] = arrays[_WORD_EMBEDDINGS][kept]
        arguments["vocab_size"] = len(kept)
    elif (vocab_size, min_count, keep_first) != (None, 1, 0):
        raise ValueError("vocab_size, min_count and keep_first have no effect without texts")
    head = read_embedding_settings(checkpoint.path.parent, arguments["hidden_size"])
    return write_checkpoint(path, BertEncoder(**arguments), arrays, tokenizer, head, dtype)


def _select_blocks(arrays: dict, layers: Sequence[int], num_layers: int) -> dict:
    """Returns the arrays with the chosen blocks, renumbered."""
    if not layers or sorted(set(layers)) != list(layers) or layers[0] < 0 or layers[-1] >= num_layers:
        raise ValueError(f"layers must be ascending numbers from 0 to {num_layers - 1}, got {list(layers)}")
    selected = {}
    for name, array in arrays.items():
        block = _BLOCK.fullmatch(name)
        if block is None:
            selected[name] = array
        elif int(block[1]) in layers:
            selected[f"encoder/transformer_block_{list(layers).index(int(block[1]))}/{block[2]}"] = array
    return selected
