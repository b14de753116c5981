"""The encoder of BERT."""

from collections.abc import Mapping
from numbers import Integral

import keras
from keras import ops

from keras_bert.layers.attention_mask import ATTENTION_DIRECTIONS, BIDIRECTIONAL, LEFT_TO_RIGHT, make_attention_mask
from keras_bert.layers.embeddings import Embeddings
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON
from keras_bert.layers.pooler import Pooler, last_positions
from keras_bert.layers.seeds import derive_seed
from keras_bert.layers.transformer_block import TransformerBlock
from keras_bert.models.pretrained import assign_arrays, read_bert, relative_variables, write_checkpoint
from keras_bert.weights.encoder_kinds import ONE_BERT, EncoderKind

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


def require_ids(inputs):
    """Raises unless a model is called on ids.

    Keras would convert texts to string tensors, and fail somewhere in the first layer.

    Args:
        inputs: what the model is called on.

    Raises:
        ValueError: if it is not a dict with integer `token_ids`.

    Example:

    >>> require_ids({"token_ids": np.array([[2, 3]])})
    """
    if not isinstance(inputs, Mapping) or "token_ids" not in inputs:
        received = f"a dict with {sorted(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
    elif _is_text_dtype(getattr(inputs["token_ids"], "dtype", None)):
        received = "token_ids that are strings"
    else:
        return
    raise ValueError(
        f"a model is called on ids, a dict with token_ids and, where needed, {', '.join(_INPUT_NAMES[1:])}; "
        f"got {received}. Texts become such a dict through a BertPreprocessor; `fit`, `evaluate` and `predict` of a "
        "head take them as they are."
    )


def _is_text_dtype(dtype):
    # NumPy's dtypes have a kind; TensorFlow's and Keras' have a name.
    return getattr(dtype, "kind", None) in ("U", "S", "O") or "string" in str(dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertEncoder(keras.Model):
    """BERT's encoder: embeddings, a stack of transformer blocks, a pooler (paper, section 3; google-research/bert,
    modeling.py).

    Use it below a head of your own, or as it is for features. It is written in `keras.ops` and runs on any Keras
    backend. All variables exist as soon as the constructor returns.

    Args:
        vocab_size: int. Rows of the word table.
        hidden_size: int. Width of every position's vector.
        num_hidden_layers: int. Number of transformer blocks.
        num_attention_heads: int. Must divide `hidden_size`.
        intermediate_size: int or None. Width of the feed-forward networks; None is four times `hidden_size`.
        hidden_act: str. "gelu_new" (tanh form, the original's), "gelu" (erf form), "relu", "tanh" or "linear".
        hidden_dropout_prob: float. Dropout on embeddings and on what each block adds.
        attention_probs_dropout_prob: float. Dropout on attention probabilities.
        max_position_embeddings: int. The longest possible input, in tokens.
        type_vocab_size: int. Number of segments; published checkpoints have 2.
        initializer_range: float. Standard deviation of the truncated normal that all matrices start from.
        layer_norm_eps: float. Added to the variance in every normalisation.
        with_pooler: bool. Whether there is a `pooled_output`.
        attention_direction: str. "bidirectional" (BERT), "left_to_right" or "right_to_left".
        gradient_checkpointing: bool. Whether training keeps only what enters each block, and computes the rest anew
        for the
            gradient: slower, in a fraction of the memory. It does not change the result. It needs TensorFlow, and so
            does a saved model that has it.
        seed: int or None. Seed of initial weights and dropout; None draws them at random.
        trainable: bool. False freezes all variables. (A saved model remembers this; freezing single layers by hand it
            does not.)
        dtype: a Keras dtype policy or its name, for example "mixed_bfloat16".

    Inputs: a dict of int32 tensors [batch, length]:
        token_ids: ids of the wordpieces.
        segment_ids: 0 for the first text, 1 for the second. All 0 if absent.
        padding_mask: 1 where there is a token, 0 where there is padding. All 1 if absent.
        position_ids: optional; 0, 1, 2, ... if absent.
        sequence_ids: optional; which of several sequences packed into one row a token belongs to. Attention stays
            inside one.

    Outputs: a dict of
        sequence_output: float [batch, length, hidden].
        pooled_output: float [batch, hidden], unless `with_pooler` is False; made of the first token, [CLS], or, where
            attention goes from left to right and that one sees nothing, of the last that is no padding.
        hidden_states: with `return_hidden_states=True`, a list of `num_hidden_layers + 1` tensors, embeddings first.
        attention_scores: with `return_attention_scores=True`, a list of `num_hidden_layers` float32 probabilities
            [batch, heads, from, to].

    In mixed precision, matrix products run in the compute dtype; normalisation and softmax stay in float32. Padding has
    no influence on a token's output, and a row that is all padding is finite.

    Raises:
        ValueError: on sizes that do not fit together, unknown names, or an input longer than `max_position_embeddings`.

    Example:

    >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> outputs = encoder({"token_ids": np.array([[2, 45, 3]]), "padding_mask": np.array([[1, 1, 1]])})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((1, 3, 8), (1, 8))
    """

    def __init__(
        self,
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=None,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        type_vocab_size=2,  # Differs from BERT: the code's default is 16, every published checkpoint has 2.
        initializer_range=0.02,
        layer_norm_eps=LAYER_NORM_EPSILON,
        with_pooler=True,
        attention_direction=BIDIRECTIONAL,
        gradient_checkpointing=False,
        seed=None,
        dtype=None,
        name=None,
        trainable=True,
        **kwargs,
    ):
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
        # Only now that there are layers: Keras hands the value on to those that exist.
        self.trainable = trainable

    def _check_sizes(self):
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, got {value!r}")
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

    def _create_layers(self):
        self.embeddings = Embeddings(
            self.vocab_size,
            self.hidden_size,
            self.type_vocab_size,
            self.max_position_embeddings,
            self.hidden_dropout_prob,
            self.initializer_range,
            self.layer_norm_eps,
            seed=derive_seed(self.seed, "embeddings"),
            dtype=self.dtype_policy,
            name="embeddings",
        )
        for i in range(self.num_hidden_layers):
            # One attribute a block: tf.train.Checkpoint silently leaves out layers that are held only in a Python list.
            name = f"transformer_block_{i}"
            block = TransformerBlock(
                self.num_attention_heads,
                self.intermediate_size,
                self.hidden_act,
                self.hidden_dropout_prob,
                self.attention_probs_dropout_prob,
                self.initializer_range,
                self.layer_norm_eps,
                seed=derive_seed(self.seed, name),
                dtype=self.dtype_policy,
                name=name,
            )
            setattr(self, name, block)
        if self.with_pooler:
            self.pooler = Pooler(
                self.hidden_size,
                initializer_range=self.initializer_range,
                seed=derive_seed(self.seed, "pooler"),
                dtype=self.dtype_policy,
                name="pooler",
            )

    def build(self, input_shape=None):
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

    def bert_encoders(self):
        """list of the encoder itself: others are made of several."""
        return [self]  # no property: Keras looks into those when it saves, and would come back here without end

    def encoder_kind(self) -> EncoderKind:
        """Returns how the encoder is built, for its checkpoint."""
        return ONE_BERT

    @property
    def transformer_blocks(self):
        """The transformer blocks, lowest first."""
        return [getattr(self, f"transformer_block_{i}") for i in range(self.num_hidden_layers)]

    def __call__(self, inputs, *args, **kwargs):
        """Encodes a batch, as `call` does, after checking that it is one of ids."""
        require_ids(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=False, return_hidden_states=False, return_attention_scores=False):
        """Encodes a batch; see the class for inputs and outputs."""
        inputs = self._complete(inputs)
        attention_mask = make_attention_mask(
            inputs["padding_mask"], self.attention_direction, inputs.get("sequence_ids")
        )
        hidden = self.embeddings(
            inputs["token_ids"], inputs["segment_ids"], inputs.get("position_ids"), training=training
        )
        hidden_states, attention_scores = [hidden], []
        for block in self.transformer_blocks:
            if self.gradient_checkpointing and training and not return_attention_scores:
                from keras_bert.layers.tensorflow.gradient_checkpointing import recompute_in_gradient

                hidden = recompute_in_gradient(block, hidden, attention_mask)
            else:
                hidden = block(
                    hidden, attention_mask, training=training, return_attention_scores=return_attention_scores
                )
            if return_attention_scores:
                hidden, scores = hidden
                attention_scores.append(scores)
            hidden_states.append(hidden)

        outputs = {"sequence_output": hidden}
        if self.with_pooler:
            of_last = self.attention_direction == LEFT_TO_RIGHT
            positions = last_positions(inputs["padding_mask"]) if of_last else None
            outputs["pooled_output"] = self.pooler(hidden, positions, training=training)
        if return_hidden_states:
            outputs["hidden_states"] = hidden_states
        if return_attention_scores:
            outputs["attention_scores"] = attention_scores
        return outputs

    def _complete(self, inputs):
        unknown = sorted(set(inputs) - set(_INPUT_NAMES))
        if unknown:
            raise ValueError(f"the encoder does not know the inputs {unknown}; it takes {_INPUT_NAMES}")
        token_ids = inputs["token_ids"]
        if len(token_ids.shape) != 2:
            raise ValueError(f"token_ids must have the shape [batch, length], got {tuple(token_ids.shape)}")
        # Ids may arrive as floats: Keras' fit averages them over replicas, only to see their shape, before it starts.
        inputs = {name: ops.cast(values, "int32") for name, values in inputs.items() if values is not None}
        nothing = ops.zeros_like(inputs["token_ids"])
        return {"segment_ids": nothing, "padding_mask": nothing + 1, **inputs}

    @classmethod
    def from_size(cls, size, vocab_size=30522, **kwargs):
        """An encoder of a published size, with random weights.

        Args:
            size: str. "tiny", "mini", "small", "medium", "base" or "large"; `ENCODER_SIZES` is the table.
            vocab_size: int. Rows of the word table; 30,522 is the uncased English vocabulary.
            **kwargs: further arguments of the constructor.

        Returns:
            A BertEncoder.

        Raises:
            ValueError: if the size is not in the table.

        Example:

        >>> BertEncoder.from_size("tiny").count_params()
        4385920
        """
        if size not in ENCODER_SIZES:
            raise ValueError(f"unknown size {size!r}; allowed are {list(ENCODER_SIZES)}")
        return cls(vocab_size=vocab_size, **{**ENCODER_SIZES[size], **kwargs})

    @classmethod
    def from_checkpoint(cls, path, **kwargs):
        """An encoder with the weights of somebody's checkpoint.

        Args:
            path: str or Path. A Hugging Face folder (config.json, model.safetensors), or a TF1 checkpoint of
                google-research/bert (its folder or its `bert_model.ckpt` prefix).
            **kwargs: constructor arguments that replace the checkpoint's, for example `hidden_dropout_prob` or `dtype`.

        Returns:
            A BertEncoder. Its attribute `checkpoint_report` says name by name what was read, what stayed random (the
            pooler of a checkpoint without one), and what in the file was not used; the log says it too.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit.
        """
        checkpoint = read_bert(path)
        encoder = cls(**{**checkpoint.encoder_arguments, **kwargs})
        encoder.checkpoint_report = assign_arrays(encoder.variables_by_path(prefix="encoder/"), checkpoint)
        return encoder

    @classmethod
    def from_preset(cls, name, **kwargs):
        """An encoder by the name of a preset; `from_checkpoint` of the folder that the name stands for.

        Args:
            name: str. One of `keras_bert.weights.preset_names.PRESETS`.
            **kwargs: as for `from_checkpoint`.

        Returns:
            A BertEncoder.

        Raises:
            ValueError: if there is no such preset.
            FileNotFoundError: if its files are not installed; the message says how to get them.
        """
        from keras_bert.weights.preset_names import resolve_preset

        return cls.from_checkpoint(resolve_preset(name), **kwargs)

    def save_checkpoint(self, path, tokenizer=None, dtype="float32"):
        """Writes the weights as a Hugging Face folder, which `from_checkpoint` and their library read; the latter only
        if the attention is bidirectional.

        Args:
            path: str or Path of the folder to write.
            tokenizer: a `BertTokenizer`, whose vocabulary is written, too; or None.
            dtype: str. The type that weights are stored in: "float32", or "bfloat16", which takes half the space.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`.
            ValueError: if the vocabulary is not the encoder's, or on another dtype.
        """
        return write_checkpoint(path, self, self.variables_by_path("encoder/"), tokenizer, dtype=dtype)

    def variables_by_path(self, prefix=""):
        """The weights by their path within this encoder, whatever its own name.

        Args:
            prefix: str. Put in front of every path.

        Returns:
            dict of str to Keras variable, for example "embeddings/token_embeddings".

        Example:

        >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> list(encoder.variables_by_path("encoder/"))[0]
        'encoder/embeddings/token_embeddings'
        """
        return relative_variables(self, prefix)

    def learning_rate_factors(self, decay):
        """Layer-wise decay of the learning rate: the lower a block, the smaller its steps (arXiv 1801.06146, section
        3.2; arXiv 2006.05987, section 5).

        The pooler and what a head adds learn at the full rate, the highest block at `decay` times it, each further one
        at `decay` times that of the block above, and the embeddings at `decay` times that of the lowest block.

        Args:
            decay: float in (0, 1].

        Returns:
            list of (regular expression, factor), as `BertAdamW(learning_rate_factors=...)` takes them.

        Raises:
            ValueError: if the decay is out of its range.

        Example:

        >>> encoder = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> [factor for _, factor in encoder.learning_rate_factors(0.5)]
        [0.125, 0.25, 0.5]
        """
        if not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}")
        names = ["embeddings", *(block.name for block in self.transformer_blocks)]
        return [(rf"(^|/){name}/", decay ** (len(names) - depth)) for depth, name in enumerate(names)]

    def get_config(self):
        """The constructor's arguments."""
        return {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": self.intermediate_size,
            "hidden_act": self.hidden_act,
            "hidden_dropout_prob": self.hidden_dropout_prob,
            "attention_probs_dropout_prob": self.attention_probs_dropout_prob,
            "max_position_embeddings": self.max_position_embeddings,
            "type_vocab_size": self.type_vocab_size,
            "initializer_range": self.initializer_range,
            "layer_norm_eps": self.layer_norm_eps,
            "with_pooler": self.with_pooler,
            "attention_direction": self.attention_direction,
            "gradient_checkpointing": self.gradient_checkpointing,
            "seed": self.seed,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
        }
