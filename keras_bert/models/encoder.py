"""The encoder of BERT."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from keras import ops

from keras_bert.io.processor import warn_if_bfloat16_is_slow
from keras_bert.layers.attention_mask import ATTENTION_DIRECTIONS, BIDIRECTIONAL, LEFT_TO_RIGHT, make_attention_mask
from keras_bert.layers.base_layer import constructor_arguments, create_sublayer
from keras_bert.layers.embeddings import Embeddings
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON
from keras_bert.layers.pooler import Pooler, last_positions
from keras_bert.layers.transformer_block import TransformerBlock
from keras_bert.models.keras_archive import check_layers, check_parameters, checked_config
from keras_bert.models.pretrained import (
    FromPreset,
    assign_arrays,
    merged_arrays,
    read_bert,
    relative_variables,
    write_checkpoint,
)
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.assignment_report import AssignmentReport
from keras_bert.weights.bert_config import SIZE_NAMES
from keras_bert.weights.encoder_kinds import ONE_BERT, EncoderKind

if TYPE_CHECKING:
    from keras_bert.layers.tensorflow.packed_texts import PackedTexts
    from keras_bert.text.tokenizer import BertTokenizer

# base and large: paper, section 3. The smaller ones: google-research/bert, README.md, "24 smaller BERT models"
# (arXiv 1908.08962).
ENCODER_SIZES = {
    "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2},
    "mini": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4},
    "small": {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8},
    "medium": {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
    "large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16},
}

_INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask", "position_ids", "sequence_ids")


def require_ids(inputs: Any) -> None:
    """Raises ValueError unless a model is called on a dict of ids.

    Keras would convert texts to string tensors, and fail in the first layer.
    """
    if not isinstance(inputs, Mapping) or "token_ids" not in inputs:
        received = f"a dict with {sorted(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
    elif _is_text_dtype(getattr(inputs["token_ids"], "dtype", None)):
        received = "token_ids that are strings"
    else:
        return
    raise ValueError(
        f"a model is called on ids, a dict with token_ids and optionally {', '.join(_INPUT_NAMES[1:])}; got "
        f"{received}. A BertPreprocessor converts texts to such a dict; `fit`, `evaluate` and `predict` of a head take "
        "texts directly."
    )


def check_id_ranges(inputs: Mapping[str, Any], encoder: Any) -> None:
    """Raises ValueError if ids in memory are not ids of the encoder; those of a graph that is traced are not known.

    In a graph, a token id outside the vocabulary is an error of TensorFlow on a CPU; a GPU reads zeros. A segment id
    without an embedding adds nothing.
    """
    limits = {
        "token_ids": encoder.vocab_size,
        "segment_ids": encoder.type_vocab_size,
        "position_ids": encoder.max_position_embeddings,
        "padding_mask": 2,
    }
    for name in limits.keys() & inputs.keys():
        values, limit = inputs[name], limits[name]
        values = values if isinstance(values, np.ndarray) else _in_memory(values)
        if values is not None and values.size and not (values.min() >= 0 and values.max() < limit):
            raise ValueError(
                f"{name} must be from 0 to {limit - 1}; received values from {values.min()} to {values.max()}"
            )


def _in_memory(values: Any) -> np.ndarray | None:
    """Returns the array of a list or of TensorFlow's eager tensor; None for other tensors."""
    if isinstance(values, (list, tuple)):
        return np.asarray(values)
    return values.numpy() if keras.backend.backend() == "tensorflow" and hasattr(values, "numpy") else None


def _is_text_dtype(dtype: Any) -> bool:
    # NumPy's dtypes have a kind, TensorFlow's and Keras' a name.
    return getattr(dtype, "kind", None) in ("U", "S", "O") or "string" in str(dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertEncoder(FromPreset, keras.Model):
    """BERT's encoder: embeddings, transformer blocks and a pooler.

    Source: paper, section 3; google-research/bert, modeling.py. Use it with a head, or directly for features. It is
    written in `keras.ops` and runs on every Keras backend. All variables exist as soon as the constructor returns.

    Args:
        vocab_size: number of word embeddings.
        hidden_size: size of the hidden states.
        num_hidden_layers: number of transformer blocks.
        num_attention_heads: number of attention heads; must divide `hidden_size`.
        intermediate_size: size of the feed-forward networks; None means four times `hidden_size`.
        hidden_act: "gelu_new" (tanh form, the original's), "gelu" (erf form), "relu", "tanh" or "linear".
        hidden_dropout_prob: dropout on the embeddings and on the output of each sublayer.
        attention_probs_dropout_prob: dropout on the attention probabilities.
        max_position_embeddings: maximum input length in tokens.
        type_vocab_size: number of segments; published checkpoints have 2.
        initializer_range: standard deviation of the truncated normal that initializes all matrices.
        layer_norm_eps: added to the variance in every layer norm.
        with_pooler: whether there is a `pooled_output`.
        attention_direction: "bidirectional" (BERT), "left_to_right" or "right_to_left".
        gradient_checkpointing: whether to recompute the activations of each block in the backward pass: slower, with a
            fraction of the memory and the same result. Needs TensorFlow, also for loading a model saved with it.
        seed: seed of initial weights and dropout; None draws one.
        trainable: False freezes all variables. (A saved model keeps this, but not layers frozen one by one.)
        dtype: a Keras dtype policy or its name, for example "mixed_bfloat16".

    Inputs: a dict of int32 tensors [batch, length]:
        token_ids: ids of the wordpieces.
        segment_ids: 0 for the first text, 1 for the second. All 0 by default.
        padding_mask: 1 for tokens, 0 for padding. All 1 by default.
        position_ids: 0, 1, 2, ... by default.
        sequence_ids: optional; the sequence that each token belongs to, if several are packed into a row. Attention is
            restricted to a sequence.

    Outputs: a dict of
        sequence_output: float [batch, length, hidden]; absent with `pooled_only=True`, which saves most of the highest
            block for a model that needs only the pooled output.
        pooled_output: float [batch, hidden], unless `with_pooler` is False: from the first token, [CLS], or with
            left-to-right attention, where [CLS] sees no other token, from the last token.
        hidden_states: with `return_hidden_states=True`, a list of `num_hidden_layers + 1` tensors, embeddings first.
        attention_scores: with `return_attention_scores=True`, a list of `num_hidden_layers` float32 probabilities
            [batch, heads, from, to].

    In mixed precision, matrix products run in the compute dtype; layer norm and softmax in float32. Padding has no
    influence on the output of tokens, and a row of padding only is finite.

    Raises:
        ValueError: if sizes do not match, a name is unknown, an input is longer than `max_position_embeddings`, or ids
            in memory are out of range (see `check_id_ranges`; in a graph, only an exported model checks all ids).

    Example:

    >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> outputs = encoder({"token_ids": np.array([[2, 45, 3]]), "padding_mask": np.array([[1, 1, 1]])})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((1, 3, 8), (1, 8))
    """

    checkpoint_report: AssignmentReport  # set by `from_checkpoint`
    built: bool

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int | None = None,
        hidden_act: str = "gelu_new",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,  # Differs from BERT: the code's default is 16, every published checkpoint has 2.
        initializer_range: float = 0.02,
        layer_norm_eps: float = LAYER_NORM_EPSILON,
        with_pooler: bool = True,
        attention_direction: str = BIDIRECTIONAL,
        gradient_checkpointing: bool = False,
        seed: int | None = None,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, name=name, **kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = 4 * hidden_size if intermediate_size is None else intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.with_pooler = with_pooler
        self.attention_direction = attention_direction
        self.gradient_checkpointing = gradient_checkpointing
        self.seed = seed
        self._check_sizes()
        self._create_layers()
        self.build()
        if self.dtype_policy.name == "mixed_bfloat16":
            warn_if_bfloat16_is_slow()
        # Only now: Keras passes it on to existing layers.
        self.trainable = trainable

    def _check_sizes(self) -> None:
        for name in SIZE_NAMES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
            setattr(self, name, int(value))
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got hidden_size={self.hidden_size} and num_attention_heads={self.num_attention_heads}"
            )
        if self.attention_direction not in ATTENTION_DIRECTIONS:
            raise ValueError(
                f"unknown attention_direction {self.attention_direction!r}; allowed are {ATTENTION_DIRECTIONS}"
            )
        if self.gradient_checkpointing and keras.backend.backend() != "tensorflow":
            raise ValueError(f"gradient_checkpointing needs TensorFlow; the Keras backend is {keras.backend.backend()}")

    def _create_layers(self) -> None:
        tables = (self.vocab_size, self.hidden_size, self.type_vocab_size, self.max_position_embeddings)
        common = (self.initializer_range, self.layer_norm_eps)
        self.embeddings = create_sublayer(self, Embeddings, "embeddings", *tables, self.hidden_dropout_prob, *common)
        sizes = (self.num_attention_heads, self.intermediate_size)
        rates = (self.hidden_dropout_prob, self.attention_probs_dropout_prob)
        for i in range(self.num_hidden_layers):
            # One attribute per block: tf.train.Checkpoint silently skips layers that are only in a Python list.
            name = f"transformer_block_{i}"
            block = create_sublayer(self, TransformerBlock, name, *sizes, self.hidden_act, *rates, *common)
            setattr(self, name, block)
        if self.with_pooler:
            self.pooler = create_sublayer(
                self, Pooler, "pooler", self.hidden_size, initializer_range=self.initializer_range
            )

    def build(self, input_shape: Any = None) -> None:
        """Creates all variables; their shapes do not depend on the input's."""
        if self.built:
            return
        self.embeddings.build()
        hidden_states_shape = (None, None, self.hidden_size)
        for block in self.transformer_blocks:
            block.build(hidden_states_shape)
        if self.with_pooler:
            self.pooler.build(hidden_states_shape)
        self.built = True

    def bert_encoders(self) -> list[BertEncoder]:
        """Returns the `BertEncoder`s that this encoder is built from: itself."""
        return [self]  # not a property: Keras follows properties when it saves, and would recurse endlessly

    def encoder_kind(self) -> EncoderKind:
        """Returns how the encoder is built, for its checkpoint."""
        return ONE_BERT

    @property
    def transformer_blocks(self) -> list[TransformerBlock]:
        """The transformer blocks, lowest first."""
        return [getattr(self, f"transformer_block_{i}") for i in range(self.num_hidden_layers)]

    def __call__(self, inputs: Inputs, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Encodes a batch of ids."""
        require_ids(inputs)
        check_id_ranges(inputs, self)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self,
        inputs: Inputs,
        training: bool = False,
        return_hidden_states: bool = False,
        return_attention_scores: bool = False,
        pooled_only: bool = False,
        packed_texts: PackedTexts | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch; see the class for inputs and outputs.

        With `packed_texts`, the inputs are its row and its position ids; there is no `pooled_output`, and attention
        scores cannot be returned.
        """
        is_left_to_right = self.attention_direction == LEFT_TO_RIGHT
        first_only = pooled_only and not is_left_to_right and not return_hidden_states
        inputs = self._add_defaults(inputs)
        attention_mask = packed_texts or make_attention_mask(
            inputs["padding_mask"], self.attention_direction, inputs.get("sequence_ids")
        )
        hidden = self.embeddings(
            inputs["token_ids"], inputs["segment_ids"], inputs.get("position_ids"), training=training
        )
        hidden_states, attention_scores = [hidden], []
        for number, block in enumerate(self.transformer_blocks, 1):
            options = {"attention_mask": attention_mask, "first_only": first_only and number == self.num_hidden_layers}
            if self.gradient_checkpointing and training and not return_attention_scores:
                from keras_bert.layers.tensorflow.gradient_checkpointing import recompute_in_gradient

                hidden = recompute_in_gradient(block, hidden, **options)
            else:
                options["return_attention_scores"] = return_attention_scores
                hidden = block(hidden, training=training, **options)
            if return_attention_scores:
                hidden, scores = hidden
                attention_scores.append(scores)
            hidden_states.append(hidden)

        outputs: dict[str, Any] = {} if pooled_only else {"sequence_output": hidden}
        if self.with_pooler and packed_texts is None:
            positions = last_positions(inputs["padding_mask"]) if is_left_to_right else None
            outputs["pooled_output"] = self.pooler(hidden, positions, training=training)
        if return_hidden_states:
            outputs["hidden_states"] = hidden_states
        if return_attention_scores:
            outputs["attention_scores"] = attention_scores
        return outputs

    def _add_defaults(self, inputs: Inputs) -> dict[str, Tensor]:
        unknown = sorted(set(inputs) - set(_INPUT_NAMES))
        if unknown:
            raise ValueError(f"unknown inputs {unknown}; the encoder takes {_INPUT_NAMES}")
        token_ids = inputs["token_ids"]
        if len(token_ids.shape) != 2:
            raise ValueError(f"token_ids must have the shape [batch, length], got {tuple(token_ids.shape)}")
        # Ids may be floats: to infer shapes, Keras' fit averages them over replicas.
        inputs = {name: ops.cast(values, "int32") for name, values in inputs.items() if values is not None}
        zeros = ops.zeros_like(inputs["token_ids"])
        return {"segment_ids": zeros, "padding_mask": zeros + 1, **inputs}

    @classmethod
    def from_size(cls, size: str, vocab_size: int = 30522, **kwargs: Any) -> Self:
        """Creates an encoder of a published size with random weights.

        Args:
            size: "tiny", "mini", "small", "medium", "base" or "large", as in `ENCODER_SIZES`.
            vocab_size: number of word embeddings; 30,522 is the uncased English vocabulary.
            **kwargs: further arguments of the constructor.

        Returns:
            A BertEncoder.

        Raises:
            ValueError: if the size is unknown.

        Example:

        >>> BertEncoder.from_size("tiny").count_params()
        4385920
        """
        if size not in ENCODER_SIZES:
            raise ValueError(f"unknown size {size!r}; allowed are {list(ENCODER_SIZES)}")
        return cls(vocab_size=vocab_size, **{**ENCODER_SIZES[size], **kwargs})

    @classmethod
    def from_checkpoint(cls, path: PathLike, allow_nonfinite: bool = False, **kwargs: Any) -> Self:
        """Creates an encoder with the weights of a checkpoint.

        Args:
            path: a Hugging Face folder (config.json, model.safetensors), or a TF1 checkpoint of google-research/bert
                (its folder or its `bert_model.ckpt` prefix).
            allow_nonfinite: whether weights may be NaN or infinite. By default they are refused: every output would be.
            **kwargs: constructor arguments that replace the checkpoint's, for example `hidden_dropout_prob` or `dtype`.

        Returns:
            A BertEncoder. Its attribute `checkpoint_report`, which is also logged, lists by name what was read, what
            stayed random (the pooler of a checkpoint without one), and what was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, corrupt, not a BERT, or does not fit.
        """
        checkpoint = read_bert(path, allow_nonfinite)
        encoder = cls(**{**checkpoint.encoder_arguments, **kwargs})
        encoder.checkpoint_report = assign_arrays(encoder.variables_by_path(prefix="encoder/"), checkpoint)
        return encoder

    def save_checkpoint(
        self,
        path: PathLike,
        tokenizer: BertTokenizer | None = None,
        dtype: str = "float32",
        format: str = "hugging_face",
    ) -> Path:
        """Writes the weights as a folder, by default in the format of Hugging Face.

        `from_checkpoint` reads it and, if the attention is bidirectional, the library that the format belongs to.
        Adapters of LoRA are added to the kernels.

        Args:
            path: folder to write.
            tokenizer: its vocabulary is written too.
            dtype: type of the stored weights: "float32", "bfloat16" (half the size), or "int8" (a quarter), which only
                keras_bert reads.
            format: format of the folder: "hugging_face", "google" for a TF1 checkpoint of google-research/bert, or
                "keras_hub" for a preset of KerasHub.

        Returns:
            The folder.

        Raises:
            FileExistsError: if `path` exists.
            ValueError: if the vocabulary is not the encoder's, if the format cannot hold this encoder, or if the dtype
                or the format is unknown.
        """
        arrays = merged_arrays(self, self.variables_by_path("encoder/"))
        return write_checkpoint(path, self, arrays, tokenizer, dtype=dtype, format=format)

    def variables_by_path(self, prefix: str = "") -> dict[str, keras.Variable]:
        """Returns the weights by path within this encoder, such as "embeddings/token_embeddings", without adapters.

        Args:
            prefix: prepended to every path.

        Example:

        >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> list(encoder.variables_by_path("encoder/"))[0]
        'encoder/embeddings/token_embeddings'
        """
        return relative_variables(self, prefix)

    def learning_rate_factors(self, decay: float) -> list[tuple[str, float]]:
        """Returns factors for layer-wise learning rate decay (arXiv 1801.06146, section 3.2; 2006.05987, section 5).

        Pooler and head use the full learning rate, the top block `decay` times that, each lower block `decay` times the
        rate of the block above, and the embeddings `decay` times that of the lowest block.

        Args:
            decay: factor in (0, 1].

        Returns:
            A list of (regular expression, factor) for `BertAdamW(learning_rate_factors=...)`.

        Raises:
            ValueError: if the decay is out of range.

        Example:

        >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> [factor for _, factor in encoder.learning_rate_factors(0.5)]
        [0.125, 0.25, 0.5]
        """
        if not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}")
        names = ["embeddings", *(block.name for block in self.transformer_blocks)]
        return [(rf"(^|/){name}/", decay ** (len(names) - depth)) for depth, name in enumerate(names)]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**constructor_arguments(self, BertEncoder.__init__), "dtype": dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Creates an encoder from `get_config`, with new weights.

        Raises:
            ValueError: if the configuration is not one, or asks for more weights than any BERT has.
        """
        with checked_config(cls.__name__):
            check_layers(config.get("num_hidden_layers"))
            sizes = [size for name in SIZE_NAMES if type(size := config.get(name)) is int]
            if len(sizes) == len(SIZE_NAMES):  # others are refused by the constructor
                check_parameters("an encoder", _count_parameters(*sizes), config.get("dtype"))
            return cls(**config)


def _count_parameters(vocab: int, hidden: int, layers: int, heads: int, inner: int, positions: int, types: int) -> int:
    """Counts the kernels and embeddings of an encoder with these sizes, in the order of `SIZE_NAMES`."""
    return (vocab + positions + types) * hidden + layers * (4 * hidden * hidden + 2 * hidden * inner)
