"""Maps each of our variables to the tensors of a file with the names of google-research/bert (`modeling.py`)."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
# The number of a layer in the name of a tensor: of Hugging Face and of google-research/bert.
_LAYER_NUMBER = re.compile(r"encoder(?:\.layer\.|/layer_)([0-9]+)[./]")
_BLOCK_LAYER_NORM = {"self_attention_layer_norm": "attention/output/LayerNorm", "output_layer_norm": "output/LayerNorm"}


@dataclass(frozen=True)
class StoredVariable:
    """Storage of one of our variables in a file: as one tensor, or as three for query, key and value.

    >>> StoredVariable(("output_weights",), transposed=True).file_shapes((4, 3))
    {'output_weights': (3, 4)}
    """

    names: tuple[str, ...]  # names of the tensors in the file
    transposed: bool = False  # whether the file stores a kernel as [out, in]

    def file_shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the file's tensors for a variable of the given shape."""
        part = tuple(shape) if len(self.names) == 1 else (*shape[:-1], shape[-1] // len(self.names))
        return {name: part[::-1] if self.transposed else part for name in self.names}

    def join(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
        """Converts the file's tensors to our variable; a view unless three tensors are fused."""
        parts = [tensor.T if self.transposed else tensor for tensor in tensors]
        return fuse_query_key_value(*parts) if len(parts) == 3 else parts[0]

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Converts our variable to views in the layout of the file, by name; the inverse of `join`."""
        parts = split_query_key_value(array) if len(self.names) == 3 else (array,)
        return {name: part.T if self.transposed else part for name, part in zip(self.names, parts, strict=True)}


VariableMap = dict[str, StoredVariable]  # keyed by our variable path


def check_num_layers(num_layers: int, names: Iterable[str], config_path: Path, weights: Path) -> None:
    """Raises ValueError if a configuration has more layers than the file's tensors, before anything is built for them.

    >>> check_num_layers(1, ["bert/encoder/layer_0/output/dense/bias"], Path("bert_config.json"), Path("bert_model"))
    """
    held = len({match[1] for match in map(_LAYER_NUMBER.search, names) if match})
    if num_layers > held:
        raise ValueError(
            f"{config_path}: num_hidden_layers is {num_layers}, but {weights} has the tensors of {held} layers. Put "
            "the configuration of these weights there, or fetch all of them."
        )


def map_dense(path: str, kernels: Sequence[str], biases: Sequence[str], transposed: bool = True) -> VariableMap:
    """Maps the variables of a dense layer; `transposed` as in `StoredVariable`."""
    kernel, bias = StoredVariable(tuple(kernels), transposed), StoredVariable(tuple(biases))
    return {f"{path}/kernel": kernel, f"{path}/bias": bias}


def map_encoder(num_hidden_layers: int, name_in_file: Callable[[str], str], kernels_transposed: bool) -> VariableMap:
    """Maps the variables of an encoder.

    `name_in_file` maps the original's name of a tensor, without its leading `bert/`, to the file's.

    >>> variables = map_encoder(1, lambda name: "bert/" + name, kernels_transposed=False)
    >>> variables["encoder/transformer_block_0/output/kernel"].names
    ('bert/encoder/layer_0/output/dense/kernel',)
    """

    def dense(path: str, modules: Sequence[str]) -> VariableMap:
        kernels, biases = ([name_in_file(f"{name}/{leaf}") for name in modules] for leaf in ("kernel", "bias"))
        return map_dense(path, kernels, biases, kernels_transposed)

    variables = {path: StoredVariable((name_in_file(name),)) for path, name in _EMBEDDINGS.items()}
    for index in range(num_hidden_layers):
        ours, theirs = f"encoder/transformer_block_{index}", f"encoder/layer_{index}"
        for path, modules in _BLOCK_DENSE.items():
            variables.update(dense(f"{ours}/{path}", [f"{theirs}/{module}" for module in modules]))
        for path, module in _BLOCK_LAYER_NORM.items():
            for leaf in ("gamma", "beta"):
                variables[f"{ours}/{path}/{leaf}"] = StoredVariable((name_in_file(f"{theirs}/{module}/{leaf}"),))
    variables.update(dense("encoder/pooler", ["pooler/dense"]))
    return variables


def map_pretraining_heads(
    name_in_file: Callable[[str], str], names: Collection[str], kernels_transposed: bool
) -> VariableMap:
    """Maps the variables of the pre-training heads (`run_pretraining.py`) that are among the file's `names`.

    >>> list(map_pretraining_heads(lambda name: name, {"cls/seq_relationship/output_bias"}, kernels_transposed=False))
    ['next_sentence/kernel', 'next_sentence/bias']
    """
    transform = "cls/predictions/transform"
    masked_lm = {
        "masked_lm/transform/kernel": StoredVariable((name_in_file(f"{transform}/dense/kernel"),), kernels_transposed),
        "masked_lm/transform/bias": StoredVariable((name_in_file(f"{transform}/dense/bias"),)),
        "masked_lm/layer_norm/gamma": StoredVariable((name_in_file(f"{transform}/LayerNorm/gamma"),)),
        "masked_lm/layer_norm/beta": StoredVariable((name_in_file(f"{transform}/LayerNorm/beta"),)),
        "masked_lm/bias": StoredVariable((name_in_file("cls/predictions/output_bias"),)),
    }
    kernel, bias = (name_in_file(f"cls/seq_relationship/output_{leaf}") for leaf in ("weights", "bias"))
    next_sentence = map_dense("next_sentence", [kernel], [bias])  # [out, in] in the original, too
    return select_head(masked_lm, names) | select_head(next_sentence, names)


def select_head(head: Mapping[str, StoredVariable], names: Collection[str]) -> VariableMap:
    """Returns all variables of a head if any of them is among the file's `names`, so that a missing one is noticed."""
    return dict(head) if any(name in names for stored in head.values() for name in stored.names) else {}


def drop_absent_pooler(variables: VariableMap, names: Collection[str]) -> VariableMap:
    """Removes the pooler if the file has none, as models for tokens and spans."""
    if any(name in names for path, stored in variables.items() if is_pooler(path) for name in stored.names):
        return variables
    return {path: stored for path, stored in variables.items() if not is_pooler(path)}
