"""Where each of our variables stands in a file that keeps google-research/bert's tensors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keras_bert.weights.layout import fuse_query_key_value, is_pooler, split_query_key_value

_EMBEDDINGS = {
    "encoder/embeddings/token_embeddings": "embeddings/word_embeddings",
    "encoder/embeddings/segment_embeddings": "embeddings/token_type_embeddings",
    "encoder/embeddings/position_embeddings": "embeddings/position_embeddings",
    "encoder/embeddings/layer_norm/gamma": "embeddings/LayerNorm/gamma",
    "encoder/embeddings/layer_norm/beta": "embeddings/LayerNorm/beta",
}
_BLOCK_DENSE = {
    "self_attention/query_key_value": ("attention/self/query", "attention/self/key", "attention/self/value"),
    "self_attention/output": ("attention/output/dense",),
    "intermediate": ("intermediate/dense",),
    "output": ("output/dense",),
}
_BLOCK_LAYER_NORM = {
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "output_layer_norm": "output/LayerNorm",
}


@dataclass(frozen=True)
class Piece:
    """The tensors of a file that make one variable of ours (names as in google-research/bert `modeling.py`).

    Args:
        names: tuple of str, the file's own names: one, or three for query, key and value.
        transposed: bool, whether the file stores a kernel [out, in]. Defaults to False.

    Example:

    >>> Piece(("output_weights",), transposed=True).file_shapes((4, 3))
    {'output_weights': (3, 4)}
    """

    names: tuple[str, ...]
    transposed: bool = False

    def file_shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shapes that the file's tensors must have.

        Args:
            shape: sequence of ints, the shape of our variable.

        Returns:
            A dict {the file's name: shape in the file}.
        """
        part = tuple(shape) if len(self.names) == 1 else (*shape[:-1], shape[-1] // len(self.names))
        return {name: part[::-1] if self.transposed else part for name in self.names}

    def join(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
        """Makes our variable from the file's tensors.

        Args:
            tensors: sequence of arrays, one for each of `names`, in the file's layout.

        Returns:
            The array in our layout; a view where nothing has to be fused.
        """
        parts = [tensor.T if self.transposed else tensor for tensor in tensors]
        return fuse_query_key_value(*parts) if len(parts) == 3 else parts[0]

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Makes the file's tensors from our variable: undoes `join`.

        Args:
            array: array in our layout.

        Returns:
            A dict {the file's name: view in the file's layout}.
        """
        parts = split_query_key_value(array) if len(self.names) == 3 else (array,)
        return {name: part.T if self.transposed else part for name, part in zip(self.names, parts, strict=True)}


def encoder_pieces(
    num_hidden_layers: int, name_in_file: Callable[[str], str], kernels_transposed: bool
) -> dict[str, Piece]:
    """Where every variable of an encoder stands in a file (names of google-research/bert `modeling.py`).

    Args:
        num_hidden_layers: int, number of transformer blocks.
        name_in_file: function from the original's name of a tensor, without its leading `bert/`, to the file's.
        kernels_transposed: bool, whether the file stores kernels [out, in].

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> pieces = encoder_pieces(1, lambda name: "bert/" + name, kernels_transposed=False)
    >>> pieces["encoder/transformer_block_0/output/kernel"].names
    ('bert/encoder/layer_0/output/dense/kernel',)
    """

    def dense(path, modules):
        yield f"{path}/kernel", Piece(tuple(name_in_file(f"{name}/kernel") for name in modules), kernels_transposed)
        yield f"{path}/bias", Piece(tuple(name_in_file(f"{name}/bias") for name in modules))

    pieces = {path: Piece((name_in_file(name),)) for path, name in _EMBEDDINGS.items()}
    for index in range(num_hidden_layers):
        ours, theirs = f"encoder/transformer_block_{index}", f"encoder/layer_{index}"
        for path, modules in _BLOCK_DENSE.items():
            pieces.update(dense(f"{ours}/{path}", [f"{theirs}/{module}" for module in modules]))
        for path, module in _BLOCK_LAYER_NORM.items():
            for leaf in ("gamma", "beta"):
                pieces[f"{ours}/{path}/{leaf}"] = Piece((name_in_file(f"{theirs}/{module}/{leaf}"),))
    pieces.update(dense("encoder/pooler", ["pooler/dense"]))
    return pieces


def pretraining_pieces(
    name_in_file: Callable[[str], str], names: Collection[str], kernels_transposed: bool
) -> dict[str, Piece]:
    """Where the variables of the heads of pre-training stand in a file (names of google-research/bert
    `run_pretraining.py`).

    Args:
        name_in_file: function from the original's name of a tensor to the file's.
        names: collection of str, the names that the file holds. A head of which it has nothing is left out.
        kernels_transposed: bool, whether the file stores kernels [out, in]. The original stores that of the next
            sentence so, too.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> list(pretraining_pieces(lambda name: name, {"cls/seq_relationship/output_bias"}, kernels_transposed=False))
    ['next_sentence/kernel', 'next_sentence/bias']
    """
    transform = "cls/predictions/transform"
    heads = (
        {
            "masked_lm/transform/kernel": Piece((name_in_file(f"{transform}/dense/kernel"),), kernels_transposed),
            "masked_lm/transform/bias": Piece((name_in_file(f"{transform}/dense/bias"),)),
            "masked_lm/layer_norm/gamma": Piece((name_in_file(f"{transform}/LayerNorm/gamma"),)),
            "masked_lm/layer_norm/beta": Piece((name_in_file(f"{transform}/LayerNorm/beta"),)),
            "masked_lm/bias": Piece((name_in_file("cls/predictions/output_bias"),)),
        },
        {
            "next_sentence/kernel": Piece((name_in_file("cls/seq_relationship/output_weights"),), transposed=True),
            "next_sentence/bias": Piece((name_in_file("cls/seq_relationship/output_bias"),)),
        },
    )
    return {path: piece for head in heads for path, piece in pieces_of_head(head, names).items()}


def pieces_of_head(pieces: Mapping[str, Piece], names: Collection[str]) -> dict[str, Piece]:
    """The variables of a head, or nothing where a file has nothing of it.

    Source: none in BERT.

    Args:
        pieces: dict {our variable path: Piece} of one head.
        names: collection of str, the names that the file holds.

    Returns:
        A dict {our variable path: Piece}; all of the head's, so that a part that is missing is noticed.

    Example:

    >>> pieces_of_head({"spans/bias": Piece(("qa_outputs.bias",))}, {"classifier.bias"})
    {}
    """
    return dict(pieces) if any(name in names for piece in pieces.values() for name in piece.names) else {}


def without_absent_pooler(pieces: Mapping[str, Piece], names: Collection[str]) -> dict[str, Piece]:
    """Leaves the pooler out if a file has nothing of it: models for tokens and spans (paper section 4.2) have none.

    Args:
        pieces: dict {our variable path: Piece} of an encoder.
        names: collection of str, the names that the file holds.

    Returns:
        A dict {our variable path: Piece}.

    Example:

    >>> pieces = {"encoder/pooler/kernel": Piece(("pooler.weight",)), "encoder/pooler/bias": Piece(("pooler.bias",))}
    >>> without_absent_pooler(pieces, {"qa_outputs.bias"})
    {}
    """
    if any(name in names for path, piece in pieces.items() if is_pooler(path) for name in piece.names):
        return dict(pieces)
    return {path: piece for path, piece in pieces.items() if not is_pooler(path)}
