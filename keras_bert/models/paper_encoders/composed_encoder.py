"""What encoders that are made of `BertEncoder`s have in common."""

import keras

from keras_bert.models.encoder import BertEncoder, require_ids
from keras_bert.models.variable_assignment import relative_variables


class ComposedEncoder(keras.Model):
    """An encoder made of others, which heads, training and export take as they take a `BertEncoder`.

    A subclass has one attribute for each of the others, names them in `PARTS`, and sets `hidden_size` and
    `with_pooler`.

    Args:
        encoders: dict of attribute to `BertEncoder`. The first gives the whole its sizes and its dtype.
        name: as for every Keras model.

    Raises:
        ValueError: if one of them is something else.
    """

    PARTS = ()

    def __init__(self, encoders, name=None):
        for part, encoder in encoders.items():
            if not isinstance(encoder, BertEncoder):
                raise ValueError(f"{part} must be a BertEncoder, got {encoder!r}")
        super().__init__(dtype=encoders[self.PARTS[0]].dtype_policy, name=name)
        for part, encoder in encoders.items():
            setattr(self, part, encoder)

    def bert_encoders(self):
        """list of the `BertEncoder`s that it is made of."""
        return [getattr(self, name) for name in self.PARTS]

    @property
    def vocab_size(self):
        """Rows of the word table."""
        return self.bert_encoders()[0].vocab_size

    @property
    def type_vocab_size(self):
        """Number of segments."""
        return self.bert_encoders()[0].type_vocab_size

    @property
    def max_position_embeddings(self):
        """The longest possible input, in tokens."""
        return self.bert_encoders()[0].max_position_embeddings

    @property
    def initializer_range(self):
        """Standard deviation that matrices start from, those of a head, too."""
        return self.bert_encoders()[0].initializer_range

    def __call__(self, inputs, *args, **kwargs):
        """Encodes a batch, as `call` does, after checking that it is one of ids."""
        require_ids(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def variables_by_path(self, prefix=""):
        """The weights by their path within this encoder, as `BertEncoder.variables_by_path`: those of a single part
        under the paths that they have in it, those of several each under its name.

        Args:
            prefix: str. Put in front of every path.

        Returns:
            dict of str to Keras variable.
        """
        of_parts = {}
        for name in self.PARTS:
            folder = f"{name}/" if len(self.PARTS) > 1 else ""
            of_parts |= getattr(self, name).variables_by_path(prefix + folder)
        known = {id(weight) for weight in of_parts.values()}
        own = relative_variables(self, prefix)
        return of_parts | {path: weight for path, weight in own.items() if id(weight) not in known}

    def learning_rate_factors(self, decay):
        """Layer-wise decay of the learning rate, as `BertEncoder.learning_rate_factors`; what was added to the blocks
        learns at the full rate."""
        return self.bert_encoders()[0].learning_rate_factors(decay)  # blocks of one depth have one name

    def get_config(self):
        """The constructor's arguments, and the dtype, which is that of the parts."""
        parts = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.PARTS}
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**parts, "name": self.name, "trainable": self.trainable, "dtype": dtype}

    @classmethod
    def from_config(cls, config):
        """An encoder from `get_config`, its parts in the dtype that the config says; the weights start anew."""
        arguments = {name: value for name, value in config.items() if name != "dtype"}
        for name in cls.PARTS:
            part = {**config[name], "config": {**config[name]["config"], "dtype": config["dtype"]}}
            arguments[name] = keras.saving.deserialize_keras_object(part)
        return cls(**arguments)
