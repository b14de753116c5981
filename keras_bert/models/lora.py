"""Low-rank adapters of an encoder's dense layers (LoRA, arXiv 2106.09685), and their files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import keras
from absl import logging
from keras import ops

from keras_bert.layers.dense import Dense, check_lora
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.pretrained import merged_arrays
from keras_bert.weights.peft_adapter import TARGETS, Adapter, ordered_targets, target_parts

# All dense layers of the transformer blocks.
DEFAULT_TARGETS = tuple(name for name in TARGETS if name != "pooler.dense")


class LoraArguments(TypedDict, total=False):
    """Arguments of a head for LoRA; see `BertHead`."""

    lora_rank: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_targets: Sequence[str] | None


LORA_ARGUMENTS = tuple(LoraArguments.__annotations__)


def check_lora_arguments(
    rank: int | None, alpha: float | None, dropout: float, targets: Collection[str] | None
) -> tuple[str, ...] | None:
    """Returns the targets in order, the default ones for None; ValueError unless the arguments fit together."""
    if rank is None:
        given = {"lora_alpha": alpha, "lora_dropout": dropout or None, "lora_targets": targets}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name}={value!r} has no effect without lora_rank; give the rank, or leave it out")
        return None
    check_lora(rank, alpha)
    if not 0 <= dropout < 1:
        raise ValueError(f"lora_dropout must be at least 0 and below 1, got {dropout}")
    return DEFAULT_TARGETS if targets is None else ordered_targets(targets)


def enable_lora(
    encoder: Any,
    rank: int,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: Collection[str] = DEFAULT_TARGETS,
    seed: int | None = None,
) -> None:
    """Freezes every `BertEncoder` of an encoder, and enables LoRA on its dense layers, also for models that share it.

    Query, key and value are adapted separately, as PEFT does. `targets` are names of
    `keras_bert.weights.peft_adapter.TARGETS`; the other arguments are those of `Dense.enable_lora`. Raises ValueError
    if the encoder is frozen already, has adapters, or lacks the pooler that is to be adapted.

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> enable_lora(encoder, rank=2, targets=["query", "value"])
    >>> [tuple(weight.shape) for weight in encoder.trainable_weights]
    [(8, 4), (2, 16)]
    """
    parts = target_parts(targets)
    berts = encoder.bert_encoders()
    for bert in berts:
        if not (encoder.trainable and bert.trainable):
            raise ValueError("LoRA needs an encoder that is trained, but this one is frozen (trainable=False)")
        if "pooler" in parts and not bert.with_pooler:
            raise ValueError("the target pooler.dense needs an encoder with with_pooler=True")
        if any(isinstance(layer, Dense) and layer.lora_enabled for layer in bert._flatten_layers()):
            raise ValueError("the encoder has adapters of LoRA already; use a new encoder, from the same checkpoint")
    for number, bert in enumerate(berts):
        # One by one: layers that are frozen as a whole cannot have trainable adapters.
        for variable in bert.weights:
            variable.trainable = False
        for path, layer in _dense_layers(bert):
            name = path.rpartition("/")[2] if path == "pooler" else path.partition("/")[2]
            if name in parts:
                own_seed = derive_seed(seed, f"lora {number} {path}")
                # PEFT's initializer: uniform within 1 / sqrt(input size), whatever the activation.
                initializer = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed=own_seed)
                layer.enable_lora(rank, alpha, initializer, "zeros", dropout, parts[name])


def _dense_layers(bert: Any) -> Iterator[tuple[str, Dense]]:
    """Yields the dense layers of a `BertEncoder` with their paths in it."""
    for block in bert.transformer_blocks:
        yield f"{block.name}/self_attention/query_key_value", block.self_attention.query_key_value
        yield f"{block.name}/self_attention/output", block.self_attention.output_projection
        yield f"{block.name}/intermediate", block.intermediate
        yield f"{block.name}/output", block.output_projection
    if bert.with_pooler:
        yield "pooler", bert.pooler


def copy_merged(model: Any, dtype: str | None = None) -> Any:
    """Returns a copy of a model without adapters, whose kernels contain them; `dtype` None keeps the model's own."""
    encoder_config = model.encoder.get_config()
    config = {**model.get_config(), "preprocessor": model.preprocessor}
    if dtype is not None:
        encoder_config["dtype"] = dtype
        if "dtype" in config:
            config["dtype"] = dtype
    config["encoder"] = type(model.encoder).from_config(encoder_config)
    copy = type(model)(**{name: value for name, value in config.items() if name not in LORA_ARGUMENTS})
    arrays = merged_arrays(model, model.variables_by_path())
    for path, variable in copy.variables_by_path().items():
        variable.assign(ops.cast(arrays[path], variable.dtype))
    return copy


def get_adapter(model: Any) -> Adapter:
    """Returns the adapter of a model with LoRA, and the weights that are trained with it."""
    layers, head = _adapted_layers(model), head_variables(model)
    return Adapter(
        rank=model.lora_rank,
        alpha=model.lora_alpha,
        dropout=model.lora_dropout,
        targets=model.lora_targets,
        matrices={
            path: (ops.convert_to_numpy(layer.lora_kernel_a), ops.convert_to_numpy(layer.lora_kernel_b))
            for path, layer in layers.items()
        },
        head={path: ops.convert_to_numpy(ops.cast(weight, "float32")) for path, weight in head.items()},
    )


def head_variables(model: Any) -> dict[str, keras.Variable]:
    """Returns the variables of a model that are not part of a BERT, which LoRA freezes, by path."""
    frozen = {id(weight) for bert in model.encoder.bert_encoders() for weight in bert.weights}
    return {path: weight for path, weight in model.variables_by_path().items() if id(weight) not in frozen}


def set_adapter(model: Any, adapter: Adapter) -> None:
    """Assigns an adapter's weights to a model with LoRA of the same rank and targets."""
    for path, layer in _adapted_layers(model).items():
        a, b = adapter.matrices[path]
        layer.lora_kernel_a.assign(a)
        layer.lora_kernel_b.assign(b)
    variables = model.variables_by_path()
    for path, array in adapter.head.items():
        variables[path].assign(array)
    if not adapter.head:
        logging.warning("the adapter has no weights of a head; those of %s stay as they are", model.name)


def _adapted_layers(model: Any) -> dict[str, Dense]:
    """Returns the adapted layers of the encoder by the path of their kernel."""
    layers: Mapping[int, Dense] = {
        id(layer.kernel): layer for bert in model.encoder.bert_encoders() for _, layer in _dense_layers(bert)
    }
    found = ((path, layers.get(id(variable))) for path, variable in model.variables_by_path().items())
    return {path: layer for path, layer in found if layer is not None and layer.lora_enabled}
