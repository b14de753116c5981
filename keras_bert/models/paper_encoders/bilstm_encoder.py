"""BiLSTMs on top of an encoder."""

from typing import Any, Self

import keras

from keras_bert.layers.base_layer import create_sublayer
from keras_bert.layers.bilstm import BiLstm
from keras_bert.layers.layer_pooling import LayerPooling
from keras_bert.layers.pooler import Pooler
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.keras_archive import check_layers, check_parameters
from keras_bert.models.paper_encoders.composed_encoder import ComposedEncoder
from keras_bert.typing import Inputs, Tensor
from keras_bert.weights.encoder_kinds import BILSTM, EncoderKind


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstmEncoder(ComposedEncoder):
    """An encoder with randomly initialized BiLSTMs on top.

    One BiLSTM gives a left-to-right encoder context from both sides (paper, section 5.1, "LTR & No NSP + BiLSTM"). Two
    BiLSTMs on the features of a frozen BERT are the feature-based approach (paper, section 5.3).

    Args:
        encoder: a `BertEncoder` without a pooler, of any attention direction.
        units: width of each of the two LSTMs of a BiLSTM. None means half the encoder's `hidden_size`; the paper does
            not state the width of section 5.1.
        num_layers: number of BiLSTMs.
        features: None means the encoder's output, and the encoder is trained. One of
            `keras_bert.layers.layer_pooling.LAYER_POOLINGS` is that layer pooling; the encoder is then frozen, also for
            other models that share it, and runs without dropout.
        with_pooler: whether there is a `pooled_output`.
        seed: seed of the new weights; None draws one.
        name, trainable: as for every Keras model.

    Inputs: the encoder's dict of ids, without `sequence_ids`.

    Outputs: a dict of
        sequence_output: float [batch, length, 2 * units].
        pooled_output: float [batch, 2 * units], a dense layer with tanh on the final states of the top BiLSTM, unless
            `with_pooler` is False.
        hidden_states: with `return_hidden_states=True`, the encoder's, followed by the output of each BiLSTM.

    Raises:
        ValueError: if the encoder is not a `BertEncoder` or has a pooler, `units` or `num_layers` is not a positive
            integer, `features` is unknown, or the encoder has too few layers for it.

    Example:

    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, with_pooler=False,
    ...     attention_direction="left_to_right")
    >>> outputs = BiLstmEncoder(encoder, seed=1)({"token_ids": np.array([[2, 4, 3]])})
    >>> {name: tuple(output.shape) for name, output in outputs.items()}
    {'sequence_output': (1, 3, 8), 'pooled_output': (1, 8)}
    """

    PARTS = ("encoder",)
    built: bool

    def __init__(
        self,
        encoder: BertEncoder,
        units: int | None = None,
        num_layers: int = 1,
        features: str | None = None,
        with_pooler: bool = True,
        seed: int | None = None,
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__({"encoder": encoder}, name)
        if encoder.with_pooler:
            raise ValueError("the BiLSTM has its own pooler: create the encoder below it with with_pooler=False")
        self.units = encoder.hidden_size // 2 if units is None else units
        self.num_layers = num_layers
        for argument in ("units", "num_layers"):
            value = getattr(self, argument)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{argument} must be a positive integer, got {value!r}")
        self.hidden_size = 2 * self.units
        self.features = features
        self.with_pooler = with_pooler
        self.seed = seed
        if features is not None:
            encoder.trainable = False
            self.layer_pooling = LayerPooling(features, dtype=self.dtype_policy, name="layer_pooling")
        for layer in range(num_layers):
            name = f"bilstm_{layer}"  # one attribute each: tf.train.Checkpoint skips layers in a list
            setattr(self, name, create_sublayer(self, BiLstm, name, self.units))
        if with_pooler:
            self.bilstm_pooler = create_sublayer(
                self, Pooler, "bilstm_pooler", self.hidden_size, initializer_range=encoder.initializer_range
            )
        self.build()
        if not trainable:
            self.trainable = False  # only now: Keras passes it on to existing layers

    @property
    def bilstms(self) -> list[BiLstm]:
        """The BiLSTMs, lowest first."""
        return [getattr(self, f"bilstm_{layer}") for layer in range(self.num_layers)]

    def encoder_kind(self) -> EncoderKind:
        return EncoderKind(BILSTM, self.units, self.num_layers, self.features)

    def build(self, input_shape: Any = None) -> None:
        """Creates the new variables; the encoder is already built."""
        if self.built:
            return
        shape: tuple[int | None, ...] = (None, None, self.encoder.hidden_size)
        if self.features is not None:
            hidden_states = [shape] * (self.encoder.num_hidden_layers + 1)
            self.layer_pooling.build(hidden_states)
            shape = self.layer_pooling.compute_output_shape(hidden_states)
        for bilstm in self.bilstms:
            bilstm.build(shape)
            shape = (None, None, self.hidden_size)
        if self.with_pooler:
            self.bilstm_pooler.build(shape)
        self.built = True

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, pooled_only: bool = False
    ) -> dict[str, Tensor]:
        """Encodes a batch; see the class for inputs and outputs. `pooled_only` saves nothing here."""
        if inputs.get("sequence_ids") is not None:
            raise ValueError(
                "a BiLSTM cannot separate packed sequences: pass one sequence per row, without sequence_ids"
            )
        has_features = self.features is not None
        outputs = self.encoder(
            inputs, training=training and not has_features, return_hidden_states=return_hidden_states or has_features
        )
        hidden_states = outputs.pop("hidden_states", [])
        sequence_output = self.layer_pooling(hidden_states) if has_features else outputs["sequence_output"]
        for bilstm in self.bilstms:
            sequence_output, final_states = bilstm(sequence_output, inputs.get("padding_mask"))
            hidden_states.append(sequence_output)
        outputs["sequence_output"] = sequence_output
        if self.with_pooler:
            outputs["pooled_output"] = self.bilstm_pooler(final_states[:, None], training=training)
        return {**outputs, "hidden_states": hidden_states} if return_hidden_states else outputs

    def get_config(self) -> dict[str, Any]:
        names = ("units", "num_layers", "features", "with_pooler", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates an encoder from `get_config`, with new weights; ValueError if it asks for too many."""
        units, layers = config.get("units"), config.get("num_layers")
        check_layers(layers)
        if type(units) is int and type(layers) is int:  # others are refused by the constructor
            # Four gates in two directions: the recurrent kernels, and the kernels above the first layer.
            check_parameters("BiLSTMs", 8 * units * (units * layers + 2 * units * max(layers - 1, 0)))
        return super().from_config(config)
