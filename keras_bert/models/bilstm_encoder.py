"""A BiLSTM on top of an encoder."""

import keras

from keras_bert.layers.bilstm import BiLstm
from keras_bert.layers.pooler import Pooler
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.composed_encoder import ComposedEncoder


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstmEncoder(ComposedEncoder):
    """An encoder with a randomly initialised BiLSTM on top of it, which lets one that reads from left to right look at
    both sides after all (paper, section 5.1, "LTR & No NSP + BiLSTM").

    The paper does not say how wide its BiLSTM is; here its output has the encoder's width unless told otherwise.
    Freezing the encoder, or blocks of it, leaves the BiLSTM to learn.

    Args:
        encoder: a `BertEncoder` without a pooler, in whatever direction it reads.
        units: int. Width of each of the two LSTMs; None is half the encoder's `hidden_size`.
        with_pooler: bool. Whether there is a `pooled_output`.
        seed: int or None. Seed of the new weights.
        name, trainable: as for every Keras model.

    Inputs: the encoder's dict of ids, but for `sequence_ids`.

    Outputs: a dict of
        sequence_output: float [batch, length, 2 * units].
        pooled_output: float [batch, 2 * units], a dense layer with tanh on the final states of both LSTMs, unless
            `with_pooler` is False.
        hidden_states: with `return_hidden_states=True`, the encoder's, and behind them the BiLSTM's output.

    Raises:
        ValueError: if the encoder is no `BertEncoder`, or has a pooler, which nothing would use; or if `units` is no
            positive number.

    Example:

    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, with_pooler=False,
    ...     attention_direction="left_to_right")
    >>> outputs = BiLstmEncoder(encoder, seed=1)({"token_ids": np.array([[2, 4, 3]])})
    >>> {name: tuple(output.shape) for name, output in outputs.items()}
    {'sequence_output': (1, 3, 8), 'pooled_output': (1, 8)}
    """

    PARTS = ("encoder",)

    def __init__(self, encoder, units=None, with_pooler=True, seed=None, name=None, trainable=True):
        super().__init__({"encoder": encoder}, name)
        if encoder.with_pooler:
            raise ValueError("the BiLSTM has a pooler of its own: make the encoder below it with with_pooler=False")
        self.units = encoder.hidden_size // 2 if units is None else units
        if isinstance(self.units, bool) or not isinstance(self.units, int) or self.units < 1:
            raise ValueError(f"units must be a positive whole number, got {units!r}")
        self.hidden_size = 2 * self.units
        self.with_pooler = with_pooler
        self.seed = seed
        self.bilstm = BiLstm(self.units, derive_seed(seed, "bilstm"), dtype=self.dtype_policy, name="bilstm")
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

    def build(self, input_shape=None):
        """Creates the new variables; the encoder has its own already."""
        if self.built:
            return
        self.bilstm.build((None, None, self.encoder.hidden_size))
        if self.with_pooler:
            self.bilstm_pooler.build((None, None, self.hidden_size))
        self.built = True

    def call(self, inputs, training=False, return_hidden_states=False):
        """Encodes a batch; see the class for inputs and outputs."""
        if inputs.get("sequence_ids") is not None:
            raise ValueError("a BiLSTM reads over the ends of packed sequences: give each a row, without sequence_ids")
        outputs = self.encoder(inputs, training=training, return_hidden_states=return_hidden_states)
        sequence_output, final_states = self.bilstm(outputs["sequence_output"], inputs.get("padding_mask"))
        if return_hidden_states:
            outputs["hidden_states"].append(sequence_output)
        outputs["sequence_output"] = sequence_output
        if self.with_pooler:
            outputs["pooled_output"] = self.bilstm_pooler(final_states[:, None], training=training)
        return outputs

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units, "with_pooler": self.with_pooler, "seed": self.seed}
