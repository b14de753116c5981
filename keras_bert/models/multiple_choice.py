"""BERT that chooses among continuations of a text."""

import keras
import numpy as np
from keras import ops

from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, load_tokenizer
from keras_bert.weights.layout import CHOICE_HEAD

_WARMUP_QUESTIONS = (
    {"prompt": "Warm", "choices": ["up.", "down."]},
    {
        "prompt": "A second prompt, which is somewhat longer,",
        "choices": ["is chosen for.", "has a choice that is long."],
    },
)
_NEVER = -1e9  # replaces the logit of an empty choice


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMultipleChoice(BertHead):
    """BERT with one vector whose product with the pooled output of a prompt and a choice is the choice's score (paper,
    section 4.4).

    Differs from BERT: the score has a bias, as in Hugging Face's checkpoints; it is the same for all choices, so that
    no softmax sees it.

    Args:
        encoder: a `BertEncoder` with a pooler.
        preprocessor: a `BertPreprocessor`, or None for a model that takes ids only.
        dropout: float. Dropout on the pooled output.
        freeze: what training leaves as it is, as for `BertClassifier`.
        seed: int or None. Seed of the new layer, of its dropout, and of the order in which `fit` visits the questions.
        name, dtype, trainable: as for every Keras model; the dtype is the encoder's unless given.

    Inputs: the encoder's dict of ids, [questions, choices, length]; any number of choices, the same for all questions
        of a batch.

    Outputs: float32 logits [questions, choices].

    Raises:
        ValueError: if the preprocessor does not fit the encoder, or that has no pooler; on an unknown freeze.

    Example:

    >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "it", "rains", "pours"], True)
    >>> model = BertMultipleChoice(encoder, keras_bert.BertPreprocessor(tokenizer, sequence_length=8), seed=0)
    >>> model.compile(keras_bert.BertAdamW(1e-2))
    >>> questions = {"prompt": ["it", "it"] * 8, "choices": [["rains", "pours"], ["pours", "rains"]] * 8}
    >>> history = model.fit(questions, [1, 0] * 8, epochs=8, verbose=0)
    >>> model.choose({"prompt": ["it"], "choices": [["pours", "rains"]]})
    [0]
    """

    column_names = (("prompt", "choices"),)
    ids_rank = 3

    def __init__(
        self,
        encoder,
        preprocessor=None,
        dropout=0.1,  # as before the classifier's layer; the paper names no other
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        dtype=None,
        trainable=True,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, name, dtype)
        if not encoder.with_pooler:
            raise ValueError("choices are scored by the pooled output: the encoder must be made with with_pooler=True")
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(f"choices are truncated: the preprocessor has long_texts={preprocessor.long_texts!r}")
        self.dropout = self.dropout_layer(dropout)
        self.score = self.output_layer(1, CHOICE_HEAD)
        self.finish_init(trainable)

    def call(self, inputs, training=False):
        """Logits of the choices of a batch; see the class."""
        token_ids = inputs["token_ids"]
        if len(token_ids.shape) != 3:
            raise ValueError(f"ids of choices must be [questions, choices, length], got {tuple(token_ids.shape)}")
        questions, choices, length = ops.shape(token_ids)
        flat = {name: ops.reshape(values, (-1, length)) for name, values in inputs.items()}
        pooled = self.encoder(flat, training=training)["pooled_output"]  # [questions * choices, hidden]
        return ops.reshape(self.score(self.dropout(pooled, training=training)), (questions, choices))

    def loss_terms(self, labels, outputs, sample_weight=None):
        """The loss of a batch.

        Args:
            labels: int [questions], the number of the right choice.
            outputs: float32 logits [questions, choices].
            sample_weight: float [questions] or None.

        Returns:
            `{"loss": (sum, weight)}`: the cross-entropies over the choices times the weights, and the weights' sum.
        """
        labels = ops.reshape(labels, (-1,))
        weights = self._weights(labels, sample_weight)
        losses = ops.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
        return {"loss": (ops.sum(losses * weights), ops.sum(weights))}

    def accuracy_metric(self):
        """The share of questions whose best choice is the right one."""
        return keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def encode_labels(self, labels):
        """Numbers of choices, as they are; `tokenize_choices` checks them."""
        return labels

    def label_classes(self, examples=None):
        """The numbers of the choices."""
        return None if examples is None else [str(number) for number in range(examples.num_choices)]

    def tokenize_columns(self, columns, labels=None):
        """Tokenizes prompts and their choices, a row per pair of them."""
        from keras_bert.data.tokenized_examples import log_long_texts, tokenize_choices

        examples = tokenize_choices(columns["prompt"], columns["choices"], self.preprocessor, labels)
        log_long_texts(examples.token_counts, self.preprocessor)
        return examples

    def probabilities(self, logits):
        """The probabilities of the choices.

        Args:
            logits: float [questions, choices].

        Returns:
            float32 array [questions, choices].
        """
        return np.asarray(ops.softmax(logits))

    def choose(self, x, batch_size=None):
        """The number of the best choice of each question.

        Args:
            x, batch_size: as for `predict`.

        Returns:
            list of int.
        """
        return self.predict(x, batch_size).argmax(axis=-1).tolist()

    def export(self, path, dtype=None):
        """Writes a SavedModel that takes prompts and choices, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `prompt` string [batch] and `choices` string [batch, choices], one or more;
        where questions of one request have different numbers, "" fills up, and is never chosen unless all are
        empty. `examples` takes serialized tf.Examples [batch] with the features `prompt` and `choices`. `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, choices, length]. Each answers `choice` int32 [batch],
        the number of the best choice, and `probabilities` float32 [batch, choices]; the first two also `text`, the best
        choice itself.

        Args:
            path: str or Path. The folder to write, for example "models/choices/1".
            dtype: None for the dtype that the model has, or "float32" or "bfloat16" to store and compute in it.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`; a version is never overwritten.
            ValueError: if there is no preprocessor, or on an unknown dtype.
        """
        from keras_bert.models.serving import export_head

        return export_head(self, path, dtype, serving_signatures, serving_inputs(self.preprocessor), inputs_per_row=4)

    def classifier_arguments(self):
        """What a checkpoint says of this head beside its weights."""
        return {
            "num_labels": 1,
            "label_names": None,
            "problem_type": None,
            "classifier_dropout": self.dropout.rate,
        }

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "dropout": self.dropout.rate}

    @classmethod
    def from_checkpoint(
        cls,
        path,
        sequence_length=128,  # google-research/bert, run_classifier.py: max_seq_length
        lower_case=None,
        vocabulary=None,
        dropout=None,
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        **encoder_arguments,
    ):
        """A model on the weights of somebody's checkpoint, with the checkpoint's tokenizer.

        Args:
            path: str or Path, as for `BertEncoder.from_checkpoint`.
            sequence_length: int. The longest prompt and choice in tokens, with [CLS] and both [SEP].
            lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.
            vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
            dropout: float; None takes the checkpoint's, or 0.1.
            freeze, seed, name: as for the constructor. A layer that the checkpoint lacks starts at random.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `encoder` and `right_to_left`, as for
                `keras_bert.models.paper_encoders.encoder_loading.read_encoder`.

        Returns:
            A BertMultipleChoice. Its attribute `checkpoint_report` says what was read, what stayed random, and what was
            not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit; if
                `lower_case` contradicts the checkpoint.
        """
        from keras_bert.text.preprocessor import BertPreprocessor

        checkpoint, encoder = read_encoder(path, seed=seed, **encoder_arguments)
        head = checkpoint.head_arguments(CHOICE_HEAD)
        preprocessor = BertPreprocessor(load_tokenizer(checkpoint, vocabulary, lower_case), sequence_length)
        rate = head.get("classifier_dropout", 0.1) if dropout is None else dropout
        model = cls(encoder, preprocessor, rate, freeze, seed, name)
        model.checkpoint_report = assign_arrays(model.variables_by_path(), checkpoint)
        return model


def serving_inputs(preprocessor):
    """The text inputs of an exported model."""
    from keras_bert.models.serving import TextInputs

    return TextInputs(
        ("prompt", "choices"),
        lambda texts: choice_ids(preprocessor, texts["prompt"], texts["choices"]),
        _WARMUP_QUESTIONS,
        list_names=("choices",),
    )


def serving_signatures(model):
    """The signatures of an exported model; see `BertMultipleChoice.export`."""
    from keras_bert.models.serving import text_signatures

    return text_signatures(
        model,
        serving_inputs(model.preprocessor),
        lambda ids: _answer_ids(model, ids),
        lambda texts: _answer_texts(model, texts),
    )


def choice_ids(preprocessor, prompts, choices):
    """Tokenizes prompts [batch] with each of their choices [batch, choices] in the graph.

    Returns a dict of int32 tensors [batch, choices, length].
    """
    import tensorflow as tf

    choices = tf.convert_to_tensor(choices, tf.string)
    number = tf.shape(choices)[1]
    pairs = {"text_a": tf.repeat(tf.convert_to_tensor(prompts, tf.string), number), "text_b": tf.reshape(choices, [-1])}
    ids = preprocessor(pairs)
    length = tf.shape(ids["token_ids"])[1]  # a request may be empty, so that no size can be left to be inferred
    shape = tf.concat([tf.shape(choices), [length]], axis=0)
    return {name: tf.reshape(values, shape) for name, values in ids.items()}


def _answer_ids(model, ids):
    """Named outputs for a batch of ids [batch, choices, length], in the graph."""
    return _answers(model({**ids, "token_ids": _with_choices(ids["token_ids"])}, training=False))


def _answer_texts(model, texts):
    """Named outputs for a dict of `prompt` [batch] and `choices` [batch, choices], in the graph."""
    import tensorflow as tf

    prompts, choices = texts["prompt"], _with_choices(texts["choices"])
    logits = model(choice_ids(model.preprocessor, prompts, choices), training=False)
    is_empty = tf.equal(choices, "")
    is_none = tf.logical_and(is_empty, tf.logical_not(tf.reduce_all(is_empty, axis=1, keepdims=True)))
    answers = _answers(tf.where(is_none, _NEVER, logits))
    return {**answers, "text": tf.gather(choices, answers["choice"], batch_dims=1)}


def _with_choices(choices):
    """Returns the choices [batch, choices, ...] unchanged, after asserting that there is at least one per question."""
    import tensorflow as tf

    questions, number = tf.unstack(tf.shape(choices)[:2])
    message = "each question needs a choice, and there is none; the shape is"
    with tf.control_dependencies([tf.debugging.Assert((questions == 0) | (number > 0), [message, tf.shape(choices)])]):
        return tf.identity(choices)


def _answers(logits):
    import tensorflow as tf

    # Padded with a choice that never wins: serialized examples of no questions have no choices, and argmax of nothing
    # is an error.
    best = tf.argmax(tf.pad(logits, [[0, 0], [0, 1]], constant_values=-np.inf), axis=1, output_type=tf.int32)
    return {"choice": best, "probabilities": tf.nn.softmax(logits)}
