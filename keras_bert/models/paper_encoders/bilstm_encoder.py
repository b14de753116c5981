"""BiLSTMs on top of an encoder."""

import keras

from keras_bert.layers.bilstm import BiLstm
from keras_bert.layers.layer_pooling import LayerPooling
from keras_bert.layers.pooler import Pooler
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.paper_encoders.composed_encoder import ComposedEncoder


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstmEncoder(ComposedEncoder):
    """An encoder with randomly initialised BiLSTMs on top of it: one BiLSTM lets an encoder that reads from left to
    right look at both sides after all (paper, section 5.1, "LTR & No NSP + BiLSTM"); two of them learn from what a
    BERT knows without changing it (paper, section 5.3, the feature-based approach).

    The paper does not say how wide the first is; here its output has the encoder's width unless told otherwise.
    Freezing the encoder, or blocks of it, leaves the BiLSTMs to learn.

    Args:
        encoder: a `BertEncoder` without a pooler, in whatever direction it reads.
        units: int. Width of each of the two LSTMs of a BiLSTM; None is half the encoder's `hidden_size`.
        num_layers: int. How many BiLSTMs there are, each reading the one below.
        features: str or None. None is the encoder's output, which learns with the rest. One of
            `keras_bert.layers.layer_pooling.LAYER_POOLINGS` is that mix of its layers: then it is frozen, for whoever
            else uses it,
            too, and has no dropout in training.
        with_pooler: bool. Whether there is a `pooled_output`.
        seed: int or None. Seed of the new weights.
        name, trainable: as for every Keras model.

    Inputs: the encoder's dict of ids, but for `sequence_ids`.

    Outputs: a dict of
        sequence_output: float [batch, length, 2 * units].
        pooled_output: float [batch, 2 * units], a dense layer with tanh on the final states of the highest BiLSTM,
            unless `with_pooler` is False.
        hidden_states: with `return_hidden_states=True`, the encoder's, and behind them each BiLSTM's output.

    Raises:
        ValueError: if the encoder is no `BertEncoder`, or has a pooler, which nothing would use; if `units` or
            `num_layers` is no positive number; if there are no such features, or the encoder has too few blocks.

    Example:

    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, with_pooler=False,
    ...     attention_direction="left_to_right")
    >>> outputs = BiLstmEncoder(encoder, seed=1)({"token_ids": np.array([[2, 4, 3]])})
    >>> {name: tuple(output.shape) for name, output in outputs.items()}
    {'sequence_output': (1, 3, 8), 'pooled_output': (1, 8)}
    """

    PARTS = ("encoder",)

    def __init__(
        self,
        encoder,
        units=None,
        num_layers=1,
        features=None,
        with_pooler=True,
        seed=None,
        name=None,
        trainable=True,
    ):
        super().__init__({"encoder": encoder}, name)
        if encoder.with_pooler:
            raise ValueError("the BiLSTM has a pooler of its own: make the encoder below it with with_pooler=False")
        self.units = encoder.hidden_size // 2 if units is None else units
        self.num_layers = num_layers
        for argument in ("units", "num_layers"):
            value = getattr(self, argument)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{argument} must be a positive whole number, got {value!r}")
        self.hidden_size = 2 * self.units
        self.features = features
        self.with_pooler = with_pooler
        self.seed = seed
        if features is not None:
            encoder.trainable = False
            self.layer_mix = LayerPooling(features, dtype=self.dtype_policy, name="layer_mix")
        for layer in range(num_layers):
            name = f"bilstm_{layer}"  # an attribute each, as TensorFlow's checkpoints do not look into lists
            setattr(self, name, BiLstm(self.units, derive_seed(seed, name), dtype=self.dtype_policy, name=name))
        if with_pooler:
            self.bilstm_pooler = Pooler(
                self.hidden_size,
                initializer_range=encoder.initializer_range,
                seed=derive_seed(seed, "bilstm_pooler"),
                dtype=self.dtype_policy,
                name="bilstm_pooler",
            )
        self.build()
        if not trainable:
            self.trainable = False  # once there are layers, to which Keras hands the value on

    @property
    def bilstms(self):
        """list of the BiLSTMs, the lowest first."""
        return [getattr(self, f"bilstm_{layer}") for layer in range(self.num_layers)]

    def build(self, input_shape=None):
        """Creates the new variables; the encoder has its own already."""
        if self.built:
            return
        shape = (None, None, self.encoder.hidden_size)
        if self.features is not None:
            hidden_states = [shape] * (self.encoder.num_hidden_layers + 1)
            self.layer_mix.build(hidden_states)
            shape = self.layer_mix.compute_output_shape(hidden_states)
        for bilstm in self.bilstms:
            bilstm.build(shape)
            shape = (None, None, self.hidden_size)
        if self.with_pooler:
            self.bilstm_pooler.build(shape)
        self.built = True

    def call(self, inputs, training=False, return_hidden_states=False):
        """Encodes a batch; see the class for inputs and outputs."""
        if inputs.get("sequence_ids") is not None:
            raise ValueError("a BiLSTM reads over the ends of packed sequences: give each a row, without sequence_ids")
        has_features = self.features is not None
        outputs = self.encoder(
            inputs, training=training and not has_features, return_hidden_states=return_hidden_states or has_features
        )
        hidden_states = outputs.pop("hidden_states", [])
        sequence_output = self.layer_mix(hidden_states) if has_features else outputs["sequence_output"]
        for bilstm in self.bilstms:
            sequence_output, final_states = bilstm(sequence_output, inputs.get("padding_mask"))
            hidden_states.append(sequence_output)
        outputs["sequence_output"] = sequence_output
        if self.with_pooler:
            outputs["pooled_output"] = self.bilstm_pooler(final_states[:, None], training=training)
        return {**outputs, "hidden_states": hidden_states} if return_hidden_states else outputs

    def get_config(self):
        """The constructor's arguments."""
        names = ("units", "num_layers", "features", "with_pooler", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
