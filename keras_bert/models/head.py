"""What all heads have in common: an encoder below, a preprocessor beside it, a loss of their own, and checkpoints."""

import keras
import numpy as np
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.encoder import require_ids
from keras_bert.models.freeze import FREEZE_NONE, freeze_layers
from keras_bert.models.pretrained import relative_variables

DEFAULT_BATCH_SIZE = 32  # paper, appendix A.3: 16 or 32
ACCURACY_NAMES = ("accuracy", "acc")  # Keras' names of it
PREDICTION_BATCH_SIZE = 64  # a little faster than 32 on a CPU, where each batch has a fixed cost


class BertHead(keras.Model):
    """A Keras model on top of an encoder, which may carry the preprocessor that makes its ids.

    A subclass says what its losses are (`loss_terms`), and how much each counts (`_weights`) unless there is one a row;
    Keras' loss is made from that.

    Args:
        encoder: a `BertEncoder`, a `BiLstmEncoder` or a `TwoDirectionEncoder`.
        preprocessor: what makes ids of texts for this head, or None for a model that takes ids only.
        freeze: what training leaves as it is: "none", "embeddings", "encoder", or a number k: the embeddings and the
            lowest k blocks. It is the encoder itself that is frozen, for whoever else uses it, too.
        seed: int or None. Seed of the new layers.
        name, dtype: as for every Keras model; the dtype is the encoder's unless given.

    Raises:
        ValueError: if the preprocessor's vocabulary or length does not fit the encoder, or on an unknown freeze.
    """

    def __init__(self, encoder, preprocessor=None, freeze=FREEZE_NONE, seed=None, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype or encoder.dtype_policy)
        if preprocessor is not None:
            check_preprocessor(preprocessor, encoder)
        self.encoder = encoder
        self.preprocessor = preprocessor
        self.freeze = freeze
        freeze_layers(encoder, freeze)
        self.seed = seed
        self._loss_is_own = True
        self._fits = 0

    def dropout_layer(self, rate):
        """The dropout before the layer of `output_layer`.

        Args:
            rate: float in [0, 1).

        Returns:
            A `Dropout`.
        """
        return Dropout(rate, derive_seed(self.seed, "dropout"), dtype=self.dtype_policy, name="dropout")

    def output_layer(self, units, name):
        """The layer that makes logits of the encoder's vectors.

        It is in float32, like the loss: a last bit less moves probabilities, and the order of answers, for no gain in
        speed.

        Args:
            units: int.
            name: str.

        Returns:
            A `Dense`.
        """
        seed = derive_seed(self.seed, name)
        return Dense(units, initializer_range=self.encoder.initializer_range, seed=seed, dtype="float32", name=name)

    def complete(self, trainable):
        """Ends a subclass's constructor, once it has its layers: creates their variables.

        Args:
            trainable: bool, as for every Keras model.
        """
        self.build()
        if not trainable:
            self.trainable = False  # once there are layers, to which Keras hands the value on

    def build(self, input_shape=None):
        """Creates the variables of the head's own layers; the encoder has its already."""
        for layer in self.layers:
            if not layer.built:
                layer.build((None, self.encoder.hidden_size))
        self.built = True

    def loss_terms(self, labels, outputs, sample_weight=None):
        """The losses of a batch as `{name: (sum, weight)}`."""
        raise NotImplementedError

    def loss_weights(self, labels, sample_weight=None):
        """The weights of `loss_terms`, which the labels alone determine.

        Args:
            labels, sample_weight: as for `loss_terms`.

        Returns:
            dict of the loss's name to its weight, a sum: `{"loss": weight}`, unless the model has several losses.
        """
        return {"loss": ops.sum(self._weights(labels, sample_weight))}

    def _weights(self, labels, sample_weight):
        """How much each of a batch's losses counts: float32 [rows], for a model with one loss a row."""
        if sample_weight is None:
            return ops.ones((ops.shape(labels)[0],), "float32")
        return ops.reshape(ops.cast(sample_weight, "float32"), (-1,))

    def accuracy_metric(self):
        """What "accuracy" means among metrics, a new Keras metric; None leaves it to Keras, which guesses by shapes."""
        return None

    def default_metrics(self):
        """The metrics that `compile(metrics="auto")` means: accuracy, if the head has one."""
        accuracy = self.accuracy_metric()
        return None if accuracy is None else [accuracy]

    def __call__(self, inputs, *args, **kwargs):
        """Runs the model on a batch, as `call` does, after checking that it is one of ids."""
        require_ids(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss that Keras differentiates: made from `loss_terms`, unless `compile` was given another."""
        if not self._loss_is_own:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        from keras_bert.training.loss import share_of_evaluation, total_loss

        loss = total_loss(self.loss_terms(y, y_pred, sample_weight))
        return loss if training else share_of_evaluation(loss, ops.shape(keras.tree.flatten(y_pred)[0])[0])

    def compile(self, optimizer="auto", loss=None, metrics="auto", **kwargs):
        """Sets optimizer and metrics for training; the loss is the model's own.

        Args:
            optimizer: a Keras optimizer or its name; "auto" is `BertAdamW(5e-5)`, without a schedule.
            loss: None for the model's own loss. A Keras loss object or function replaces it.
            metrics: as in Keras; "auto" takes those that fit the problem, and "accuracy" is that of the problem, too.
            **kwargs: as in Keras.

        Raises:
            ValueError: if the loss is a name: Keras would build it for probabilities, and this model gives logits; if
                the model has no such metrics.
        """
        if any(isinstance(part, str) for part in keras.tree.flatten(loss)):
            raise ValueError(
                f"loss={loss!r} would be computed as if the outputs were probabilities, but they are logits. "
                "Leave `loss` out: the model has its own. Or pass a loss object built with from_logits=True."
            )
        if isinstance(optimizer, str) and optimizer == "auto":
            if keras.backend.backend() != "tensorflow":
                raise ValueError('optimizer="auto" is BertAdamW, which needs TensorFlow; give a Keras optimizer')
            from keras_bert.training.optimizer import BertAdamW

            optimizer = BertAdamW(learning_rate=5e-5)
        if isinstance(metrics, str) and metrics == "auto":
            metrics = self.default_metrics()
        else:
            metrics = self._named_metrics(metrics)
        if kwargs.get("weighted_metrics") is not None:
            kwargs["weighted_metrics"] = self._named_metrics(kwargs["weighted_metrics"])
        self._loss_is_own = loss is None
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def _named_metrics(self, metrics):
        """Metrics with the head's own accuracy in the place of the name: Keras guesses it from shapes, takes several
        labels for one-hot rows, and counts what has no label."""
        if metrics is None or self.accuracy_metric() is None:
            return metrics
        metrics = metrics if isinstance(metrics, (list, tuple, dict)) else [metrics]
        return keras.tree.map_structure(
            lambda metric: self.accuracy_metric() if metric in ACCURACY_NAMES else metric, metrics
        )

    def compile_from_config(self, config):
        """Compiles a loaded model as the saved one was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force=False):
        """Keras' own, after the optimizer's variables are made: within the function, it would be traced twice."""
        if keras.backend.backend() == "tensorflow" and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def require_compiled(self, method):
        """Raises unless the model was compiled.

        Args:
            method: str, the name of what is to be called, for the message.

        Raises:
            ValueError: if it was not.
        """
        if not self.compiled:
            raise ValueError(
                f"compile the model before `{method}`, for example model.compile(keras_bert.BertAdamW(5e-5))"
            )

    def next_shuffle_seed(self):
        """A seed for each call of `fit`, or repeated calls would all visit the examples in one order: int."""
        self._fits += 1
        if self.seed is None:
            return int(np.random.randint(2**31))
        return derive_seed(self.seed, f"fit {self._fits}")

    def variables_by_path(self):
        """The weights by their path: the encoder's under `encoder/`, those of the head's own layers under their names.

        Returns:
            dict of str to Keras variable.
        """
        of_encoder = {id(weight) for weight in self.encoder.weights}
        own = {path: weight for path, weight in relative_variables(self).items() if id(weight) not in of_encoder}
        return {**self.encoder.variables_by_path("encoder/"), **own}

    def get_config(self):
        """The constructor's arguments."""
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "preprocessor": None if self.preprocessor is None else self.preprocessor.get_config(),
            "freeze": self.freeze,
            "seed": self.seed,
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config):
        """A model from `get_config`; the weights start anew."""
        config = {**config, "encoder": keras.saving.deserialize_keras_object(config["encoder"])}
        if config["preprocessor"] is not None:
            config["preprocessor"] = cls.preprocessor_class().from_config(config["preprocessor"])
        return cls(**config)

    @staticmethod
    def preprocessor_class():
        """The class of the preprocessor, which needs TensorFlow and is imported when it is needed."""
        from keras_bert.text.preprocessor import BertPreprocessor

        return BertPreprocessor

    def require_preprocessor(self):
        """Raises unless the model has a preprocessor.

        Raises:
            ValueError: if it has none; the message says how it gets one.
        """
        if self.preprocessor is None:
            raise ValueError(
                f"a {type(self).__name__} that reads texts needs a preprocessor, and this one was made without; give "
                f"preprocessor={self.preprocessor_class().__name__}(tokenizer), or read a checkpoint with a vocabulary"
            )

    @classmethod
    def from_checkpoint(cls, path, **kwargs):
        """A model on the weights of somebody's checkpoint."""
        raise NotImplementedError

    @classmethod
    def from_preset(cls, name, **kwargs):
        """A model by the name of a preset; `from_checkpoint` of the folder that the name stands for.

        Args:
            name: str. One of `keras_bert.weights.preset_names.PRESETS`.
            **kwargs: as for `from_checkpoint`.

        Returns:
            A model of this class.

        Raises:
            ValueError: if there is no such preset.
            FileNotFoundError: if its files are not installed; the message says how to get them.
        """
        from keras_bert.weights.preset_names import resolve_preset

        return cls.from_checkpoint(resolve_preset(name), **kwargs)

    def save_checkpoint(self, path, tokenizer=None, dtype="float32", **encoder_arguments):
        """Writes weights, labels and tokenizer as a Hugging Face folder, for `from_checkpoint` and, if the encoder is a
        single bidirectional BERT, their library. It does not hold the preprocessor's lengths, freeze, seed and dtype.

        Args:
            path: str or Path of the folder to write.
            tokenizer: a `BertTokenizer`, whose vocabulary is written, too; None is the preprocessor's, if there is one.
            dtype: str. The type that weights are stored in: "float32", or "bfloat16", which takes half the space.
            **encoder_arguments: arguments of the encoder that the folder states in place of its own, for example the
                `hidden_dropout_prob` that fine-tuning is to have where pre-training had none.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`.
            ValueError: if the vocabulary is not the encoder's, or on another dtype.
        """
        from keras_bert.models.pretrained import write_checkpoint

        if tokenizer is None and self.preprocessor is not None:
            tokenizer = self.preprocessor.tokenizer
        return write_checkpoint(
            path,
            self.encoder,
            self.variables_by_path(),
            tokenizer,
            self.classifier_arguments(),
            dtype,
            encoder_arguments,
        )

    def classifier_arguments(self):
        """What a checkpoint says of this head beside its weights: dict as in a
        `keras_bert.weights.checkpoint.Checkpoint`, or None."""
        return None


def check_preprocessor(preprocessor, encoder):
    """Refuses a preprocessor whose ids the encoder cannot take.

    Args:
        preprocessor: a `BertPreprocessor`.
        encoder: a `BertEncoder`.

    Raises:
        ValueError: if vocabulary or length do not fit.
    """
    words = preprocessor.tokenizer.vocab_size
    if words != encoder.vocab_size:
        raise ValueError(
            f"the tokenizer has {words} wordpieces and the encoder {encoder.vocab_size} embeddings (vocab_size); "
            "they must come from the same checkpoint"
        )
    if preprocessor.sequence_length > encoder.max_position_embeddings:
        raise ValueError(
            f"sequence_length={preprocessor.sequence_length} is beyond the encoder's {encoder.max_position_embeddings} "
            "positions (max_position_embeddings)"
        )
