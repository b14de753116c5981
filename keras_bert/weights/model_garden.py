"""Reads checkpoints of the TensorFlow Model Garden (tensorflow/models, `official/nlp`), which are object-based.

Their variables are found through the graph of objects in the checkpoint, by the attributes of
`official/nlp/modeling/networks/bert_encoder.py` and `layers/transformer_encoder_block.py`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.weights.bert_config import find_vocabulary
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.google_bert import CLASSIFIER_DROPOUT, CONFIG_NAME, read_bert_config
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    SPAN_HEAD,
    TOKEN_HEAD,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
)
from keras_bert.weights.object_graph import ObjectGraph, read_object_graph
from keras_bert.weights.tensor_bundle_file import OBJECT_GRAPH, find_prefix, is_object_based, open_tensor_bundle
from keras_bert.weights.tensor_file import TensorFile
from keras_bert.weights.variable_map import StoredVariable, VariableMap

# The layers of an encoder, by our name: their attributes in the functional model and in the layer of the same name.
_EMBEDDINGS = {
    "token_embeddings": ("_embedding_layer", "layer_with_weights-0"),
    "position_embeddings": ("_position_embedding_layer", "layer_with_weights-1"),
    "segment_embeddings": ("_type_embedding_layer", "layer_with_weights-2"),
}
_EMBEDDINGS_LAYER_NORM = ("_embedding_norm_layer", "layer_with_weights-3")
_FIRST_BLOCK = 4  # layer_with_weights-4
_ATTENTION = "_attention_layer"
_ATTENTION_PARTS = tuple(f"{_ATTENTION}/{name}" for name in ("_query_dense", "_key_dense", "_value_dense"))
_ATTENTION_OUTPUT = (f"{_ATTENTION}/_output_dense", "_attention_output_dense")
_LEAVES = {name: (name, f"_{name}") for name in ("kernel", "bias", "gamma", "beta", "embeddings")}
_OPTIMIZER = "optimizer"
_COUNTERS = ("save_counter", "global_step")
_MAX_NAMES_LISTED = 10


@dataclass(frozen=True)
class HeadsVariable(StoredVariable):
    """A variable of the attention, with the heads in an axis of their own in the file: [heads, head size]."""

    num_heads: int = 1
    heads_axis: int = 0

    def file_shapes(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the file's tensors for a variable of the given shape."""
        return {name: self._with_heads(part) for name, part in super().file_shapes(shape).items()}

    def join(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
        """Converts the file's tensors to our variable."""
        return super().join([self._without_heads(tensor) for tensor in tensors])

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Converts our variable to the layout of the file, by name; the inverse of `join`."""
        return {name: part.reshape(self._with_heads(part.shape)) for name, part in super().split(array).items()}

    def _with_heads(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        hidden, axis = shape[self.heads_axis], self.heads_axis
        return (*shape[:axis], self.num_heads, hidden // self.num_heads, *shape[axis + 1 :])

    def _without_heads(self, tensor: np.ndarray) -> np.ndarray:
        axis, shape = self.heads_axis, tensor.shape
        return tensor.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


@dataclass(frozen=True)
class EncoderObjects:
    """The objects of an encoder in a graph."""

    graph: ObjectGraph
    encoder: int
    blocks: tuple[int, ...]
    pooler: int | None

    def variables(self, num_heads: int) -> VariableMap:
        """Maps the variables of the encoder; a missing one to a name that tells where it was expected."""
        variables: VariableMap = {}
        for ours, layer in _EMBEDDINGS.items():
            variables[f"encoder/embeddings/{ours}"] = self._leaf(self.graph.child(self.encoder, *layer), "embeddings")
        layer_norm = self.graph.child(self.encoder, *_EMBEDDINGS_LAYER_NORM)
        variables |= self.layer_norm("encoder/embeddings/layer_norm", layer_norm)
        for index, block in enumerate(self.blocks):
            variables |= self._block(f"encoder/transformer_block_{index}", block, num_heads)
        return variables if self.pooler is None else variables | self.dense("encoder/pooler", self.pooler)

    def dense(self, path: str, layer: int | None) -> VariableMap:
        """Maps the variables of a dense layer."""
        return {f"{path}/{leaf}": self._leaf(layer, leaf) for leaf in ("kernel", "bias")}

    def layer_norm(self, path: str, layer: int | None) -> VariableMap:
        """Maps the variables of a layer normalization."""
        return {f"{path}/{leaf}": self._leaf(layer, leaf) for leaf in ("gamma", "beta")}

    def _block(self, path: str, block: int, num_heads: int) -> VariableMap:
        attention, child = f"{path}/self_attention", self.graph.child
        parts = [child(block, part) for part in _ATTENTION_PARTS]
        output = child(block, *_ATTENTION_OUTPUT)
        kernels, biases = ([self._name(part, leaf) for part in parts] for leaf in ("kernel", "bias"))
        return {
            f"{attention}/query_key_value/kernel": HeadsVariable(tuple(kernels), num_heads=num_heads, heads_axis=1),
            f"{attention}/query_key_value/bias": HeadsVariable(tuple(biases), num_heads=num_heads),
            f"{attention}/output/kernel": HeadsVariable((self._name(output, "kernel"),), num_heads=num_heads),
            f"{attention}/output/bias": self._leaf(output, "bias"),
            **self.layer_norm(f"{path}/self_attention_layer_norm", child(block, "_attention_layer_norm")),
            **self.dense(f"{path}/intermediate", child(block, "_intermediate_dense")),
            **self.dense(f"{path}/output", child(block, "_output_dense")),
            **self.layer_norm(f"{path}/output_layer_norm", child(block, "_output_layer_norm")),
        }

    def _leaf(self, layer: int | None, leaf: str) -> StoredVariable:
        return StoredVariable((self._name(layer, leaf),))

    def _name(self, layer: int | None, leaf: str) -> str:
        return self.graph.key(layer, *_LEAVES[leaf]) or f"(no attribute {leaf})"

    def query_shape(self, tensors: TensorFile) -> tuple[int, ...]:
        """Returns the shape of the first query's kernel, [hidden, heads, head size]; empty if it has none."""
        entry = tensors.entries.get(self._name(self.graph.child(self.blocks[0], _ATTENTION_PARTS[0]), "kernel"))
        return () if entry is None else entry.shape


def find(path: Path) -> Path | None:
    """Returns the prefix of the object-based checkpoint that `find_prefix` finds at a path; None if it finds none."""
    prefix = find_prefix(path)
    return prefix if prefix is not None and is_object_based(prefix) else None


def read(prefix: Path) -> Checkpoint:
    """Reads a BERT of the Model Garden: an encoder, or one with heads; `bert_config.json` is in the same folder.

    Heads are read for masked words, for a text's label (`BertClassifier`), for labels of tokens and for spans. The
    Garden trains its own pooler with some heads, for next sentences and for labels: that one is read where it is
    stored, and the encoder's, which stays untrained then, is listed as unused.
    """
    config_path = prefix.with_name(CONFIG_NAME)
    arguments = read_bert_config(config_path)
    vocabulary = find_vocabulary(prefix.parent, arguments["vocab_size"], config_path)
    tensors = open_tensor_bundle(prefix)
    objects = find_encoder(tensors)
    if len(objects.blocks) != arguments["num_hidden_layers"]:
        raise ValueError(
            f"{config_path}: num_hidden_layers is {arguments['num_hidden_layers']}, but {prefix} has the tensors of "
            f"{len(objects.blocks)} layers. Put the configuration of these weights there."
        )
    return read_objects(tensors, objects, arguments, source="model_garden", vocabulary=vocabulary)


def find_encoder(tensors: TensorFile) -> EncoderObjects:
    """Finds the only encoder among the objects of a checkpoint; ValueError if there is none, or several."""
    graph = read_object_graph(tensors)
    found = graph.find(lambda number: _is_encoder(graph, number))
    blocks = _find_blocks(graph, found[0]) if len(found) == 1 else []
    if not 0 < len(blocks) <= len(tensors.entries):
        names = sorted(tensors.entries)[:_MAX_NAMES_LISTED]
        raise ValueError(
            f"{tensors.path}: expected one encoder of the TensorFlow Model Garden, found {len(found)}; its tensors are "
            f"{names!s:.1000}, ... Pass a checkpoint of a BERT, such as one with "
            "'encoder/layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE'."
        )
    pooler = graph.child(found[0], "_pooler_layer", f"layer_with_weights-{_FIRST_BLOCK + len(blocks)}")
    pooler = pooler if graph.key(pooler, *_LEAVES["kernel"]) else None
    return EncoderObjects(graph, found[0], tuple(blocks), pooler)


def _is_encoder(graph: ObjectGraph, number: int) -> bool:
    embeddings = graph.child(number, *_EMBEDDINGS["token_embeddings"])
    return graph.key(embeddings, *_LEAVES["embeddings"]) is not None and _find_block(graph, number, 0) is not None


def _find_blocks(graph: ObjectGraph, encoder: int) -> list[int]:
    blocks: dict[int, None] = {}  # in order
    while (block := _find_block(graph, encoder, len(blocks))) is not None and block not in blocks:
        blocks[block] = None
    return list(blocks)


def _find_block(graph: ObjectGraph, encoder: int, index: int) -> int | None:
    block = graph.child(encoder, f"_transformer_layers/{index}", f"layer_with_weights-{_FIRST_BLOCK + index}")
    return None if graph.child(block, _ATTENTION) is None else block


def read_objects(
    tensors: TensorFile,
    objects: EncoderObjects,
    arguments: Mapping[str, Any],
    source: str,
    vocabulary: Path | tuple[str, ...] | None,
) -> Checkpoint:
    """Reads an encoder and its heads, given the encoder's constructor arguments."""
    graph, hidden = objects.graph, arguments["hidden_size"]
    variables = objects.variables(arguments["num_attention_heads"])
    _check_is_bert(tensors, objects, variables)
    shapes = expected_encoder_shapes(arguments) | expected_pretraining_shapes(arguments)
    classifier = None
    for pooler in graph.find(lambda number: "next_sentence.pooler_dense" in graph.objects[number].children)[:1]:
        variables |= objects.dense("encoder/pooler", graph.child(pooler, "next_sentence.pooler_dense"))
    for head in _find_heads(graph, "embedding_table", "dense", "layer_norm")[:1]:
        variables |= objects.dense("masked_lm/transform", graph.child(head, "dense"))
        variables |= objects.layer_norm("masked_lm/layer_norm", graph.child(head, "layer_norm"))
        bias = graph.key(head, "output_bias/bias", "bias") or "(no attribute bias)"
        variables["masked_lm/bias"] = StoredVariable((bias,))
    for model in _find_heads(graph, "classifier")[:1]:
        layer = graph.child(model, "classifier")
        if graph.child(layer, "dense") is not None:
            variables |= objects.dense("encoder/pooler", graph.child(layer, "dense"))
        name = TOKEN_HEAD if graph.child(layer, "out_proj") is None else CLASSIFIER_HEAD
        variables |= objects.dense(name, graph.child(layer, "out_proj") if name == CLASSIFIER_HEAD else layer)
        entry = tensors.entries.get(variables[f"{name}/bias"].names[0])
        num_labels = entry.shape[0] if entry is not None and entry.shape else 1
        shapes |= expected_classifier_shapes(hidden, num_labels, name)
        classifier = {
            "num_labels": num_labels,
            "label_names": None,
            "problem_type": None,
            "classifier_dropout": CLASSIFIER_DROPOUT,
        }
    for model in _find_heads(graph, "span_labeling")[:1]:
        layer = graph.child(model, "span_labeling/dense", "span_labeling/layer_with_weights-0")
        variables |= objects.dense(SPAN_HEAD, layer)
        shapes |= expected_classifier_shapes(hidden, 2, SPAN_HEAD)
    arrays = tensors.read_variables(variables, shapes)
    entries = {name: entry for name, entry in tensors.entries.items() if name != OBJECT_GRAPH}
    weights = dataclasses.replace(tensors, entries=entries)
    return Checkpoint(
        source=source,
        path=tensors.path,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        vocabulary=vocabulary,
        **weights.account(variables, {name for name in weights.entries if _is_slot(name, graph)}),
    )


def _find_heads(graph: ObjectGraph, *attributes: str) -> list[int]:
    return graph.find(lambda number: graph.objects[number].children.keys() >= set(attributes))


def _is_slot(name: str, graph: ObjectGraph) -> bool:
    parts = name.split("/")
    return name in graph.slots or _OPTIMIZER in parts or parts[0] in _COUNTERS


def _check_is_bert(tensors: TensorFile, objects: EncoderObjects, variables: VariableMap) -> None:
    """Raises ValueError if an encoder has variables that a BERT does not have, such as an ALBERT's projection."""
    known = {name for stored in variables.values() for name in stored.names}
    below = objects.graph.keys_below(objects.encoder) & tensors.entries.keys()
    others = sorted(name for name in below - known if not _is_slot(name, objects.graph))
    if others:
        raise ValueError(
            f"{tensors.path}: this is not a BERT: its encoder also has the variables "
            f"{others[:_MAX_NAMES_LISTED]!s:.1000}. Only BERT itself can be read."
        )
