"""BERT that tags the words of a text."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import TEXT_COLUMNS, text_column, to_mapping
from keras_bert.io.row_errors import quotation
from keras_bert.metrics.keras_metrics import TokenAccuracy
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead
from keras_bert.models.labels import SINGLE_LABEL, encode_labels, label_names
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, drop_head, is_same_head, load_tokenizer
from keras_bert.weights.layout import TOKEN_HEAD

_PLACES = ("start_bytes", "end_bytes", "start_characters", "end_characters")


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTokenClassifier(BertHead):
    """BERT with a classification layer on every token: named entities, parts of speech (paper, section 5.3).

    A word is tagged at its first piece. The tags of a sequence are not tied to each other, as in the paper, which has
    no CRF.

    Args:
        encoder: a `BertEncoder`; its pooler, if there is one, is not used.
        labels: list of tags, such as "O", "B-person", "I-person", or their number.
        preprocessor: a `BertWordPreprocessor`, or None for a model that takes ids only.
        dropout: float. Dropout on the tokens' vectors.
        freeze: what training leaves as it is, as for `BertClassifier`.
        seed: int or None. Seed of the new layer, of its dropout, and of the order in which `fit` visits the sentences.
        name, dtype, trainable: as for every Keras model; the dtype is the encoder's unless given.

    Inputs: the encoder's dict of ids [rows, length].

    Outputs: float32 logits [rows, length, labels].

    Raises:
        ValueError: on labels or a freeze that make no sense, or a preprocessor that does not fit the encoder.

    Example:

    >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "in", "paris", "##ian"], True)
    >>> model = BertTokenClassifier(encoder, ["O", "B-place"], keras_bert.BertWordPreprocessor(tokenizer, 8), seed=0)
    >>> model.compile(keras_bert.BertAdamW(1e-2))
    >>> sentences, tags = [["in", "Paris"], ["Paris", "in", "in"]], [["O", "B-place"], ["B-place", "O", "O"]]
    >>> history = model.fit(sentences * 8, tags * 8, epochs=8, verbose=0)
    >>> model.predict_tags([["in", "Paris"]])
    [['O', 'B-place']]
    >>> [entity["text"] for entity in model.tag(["in, in Paris"])[0]["entities"]][-1]
    'Paris'
    """

    column_names = (("words",),)
    label_column = "tags"
    has_token_labels = True
    # In batches of similar length a word of a short sentence would count more than one of a long sentence.
    batches_by_length = False

    def __init__(
        self,
        encoder,
        labels,
        preprocessor=None,
        dropout=0.1,  # as before the classifier's layer
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        dtype=None,
        trainable=True,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, name, dtype)
        self.labels = label_names(labels, SINGLE_LABEL)
        self.dropout = self.dropout_layer(dropout)
        self.logits = self.output_layer(len(self.labels), TOKEN_HEAD)
        self.finish_init(trainable)

    def call(self, inputs, training=False):
        """Logits of the tokens of a batch; see the class."""
        tokens = self.encoder(inputs, training=training)["sequence_output"]
        return self.logits(self.dropout(tokens, training=training))

    def loss_terms(self, labels, outputs, sample_weight=None):
        """The loss of a batch.

        Args:
            labels: int [rows, length], -1 for tokens without a label.
            outputs: float32 logits [rows, length, labels].
            sample_weight: float [rows] or None.

        Returns:
            `{"loss": (sum, weight)}`: the cross-entropies of the labelled tokens times the weights of their rows, and
            the sum of the weights of these tokens.
        """
        weights = self._weights(labels, sample_weight)
        losses = ops.sparse_categorical_crossentropy(ops.maximum(labels, 0), outputs, from_logits=True)
        return {"loss": (ops.sum(losses * weights), ops.sum(weights))}

    def _weights(self, labels, sample_weight):
        """float32 [rows, length]: how much each of the losses counts, 0 where a token has no label."""
        weights = ops.cast(labels >= 0, "float32")
        if sample_weight is None:
            return weights
        sample_weight = ops.cast(sample_weight, "float32")
        return weights * (sample_weight if len(sample_weight.shape) == 2 else ops.reshape(sample_weight, (-1, 1)))

    def accuracy_metric(self):
        """The share of words, of which every token with a label is one, whose best tag is the right one."""
        return TokenAccuracy(name="accuracy")

    def _columns(self, x):
        if isinstance(x, Mapping) or hasattr(x, "columns"):
            return super()._columns(x)
        self.require_preprocessor()
        return {"words": to_mapping(x)}

    def encode_labels(self, labels):
        """Tags of words as they are: `tokenize_sentences` encodes them. Numbers of ids in memory are arrays."""
        return labels if isinstance(labels, np.ndarray) else list(labels)

    def label_classes(self, examples=None):
        """The tags."""
        return self.labels

    def tokenize_columns(self, columns, labels=None):
        """Tokenizes the words of sentences, a row per window."""
        tokenized = self.tokenize_sentences(columns["words"], labels)
        sentences = np.repeat(np.arange(len(tokenized.lengths)), tokenized.lengths)
        tokenized.windows.caller_rows = np.zeros(len(tokenized.windows), "int64")
        tokenized.windows.caller_rows[tokenized.word_windows] = sentences
        return tokenized.windows

    def example_weights(self, examples, sample_weight):
        """The weight of each window is that of its sentence."""
        return sample_weight[examples.caller_rows]

    def tokenize_sentences(self, sentences, tags=None, documents=None):
        """Sentences as windows of ids, with the places at which their words are read.

        Args:
            sentences, tags: as `x` and `y` of `tokenize`.
            documents: list of int, as for `keras_bert.data.tokenized_sentences.tokenize_sentences`.

        Returns:
            `keras_bert.data.tokenized_sentences.TokenizedSentences`.

        Raises:
            ValueError, TypeError: as `tokenize`.
        """
        from keras_bert.data.tokenized_sentences import tokenize_sentences

        self.require_preprocessor()
        sentences = _lists(sentences, "sentences are lists of words; `tag` takes texts as they are")
        sentences = [text_column(words, f"sentences[{number}]").tolist() for number, words in enumerate(sentences)]
        labels = None
        if tags is not None:
            tags = _lists(tags, "tags are lists of str, one for each sentence")
            lengths = [len(of_sentence) for of_sentence in tags]
            flat = encode_labels([tag for of_sentence in tags for tag in of_sentence], self.labels, SINGLE_LABEL)
            labels = np.split(flat, np.cumsum(lengths)[:-1])
        return tokenize_sentences(sentences, self.preprocessor, labels, documents)

    def predict_logits(self, tokenized, batch_size=None, verbose=0):
        """The logits of words.

        Args:
            tokenized: `TokenizedSentences`.
            batch_size: int. Windows in a batch; 64 if None.
            verbose: as in Keras' `predict`.

        Returns:
            float32 array [words of all sentences, labels].
        """
        logits = np.empty([len(tokenized.word_windows), len(self.labels)], "float32")
        by_window = np.argsort(tokenized.word_windows, kind="stable")
        ends = np.cumsum(np.bincount(tokenized.word_windows, minlength=len(tokenized.windows)))
        for windows, output in self._predictor.outputs_by_example(self, tokenized.windows, batch_size, verbose):
            for window, of_window in zip(windows, output, strict=True):
                words = by_window[ends[window - 1] if window else 0 : ends[window]]
                logits[words] = of_window[tokenized.word_positions[words]]
        return logits

    def predict_tags(self, sentences, documents=None, batch_size=None):
        """The tags of the words of sentences.

        Args:
            sentences: list of lists of str, the words of each.
            documents: list of int, which document each sentence is of, to read them with the text around them; or None.
            batch_size: int. Windows in a batch; 64 if None.

        Returns:
            list of lists of str.
        """
        tokenized = self.tokenize_sentences(sentences, documents=documents)
        numbers = self.predict_logits(tokenized, batch_size).argmax(axis=1)
        return [[self.labels[number] for number in of_sentence] for of_sentence in tokenized.split_by_sentence(numbers)]

    def tag(self, texts):
        """Tags texts as they are written, as an exported model does.

        Args:
            texts: list of str, parted into words by `keras_bert.text.words.split_text`.

        Returns:
            list, for each text a dict: `words`, a list of dicts of `text`, `tag`, `score` (the tag's probability),
            `start` and `end` (characters of the text); and, where the labels spell entities, `entities`, a list of
            dicts of `text`, `type`, `score` (the mean of its words'), `start` and `end`.

        Raises:
            ValueError: if there is no preprocessor, or `texts` is a single text.
            TypeError: if one is not a string.
        """
        import tensorflow as tf

        self.require_preprocessor()
        return described_texts(tag_texts(self, tf.constant(text_column(texts, "texts"), tf.string)))

    def export(self, path, dtype=None):
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text`, strings [batch], of any length; `examples` takes serialized
        tf.Examples [batch] with the feature `text`; `words` takes `words`, strings [batch] of words with spaces between
        them, for texts that are parted into words already. All three answer `word_count` int32 [batch] and, for each
        word, [batch, words], those behind a text's last word "" and 0: `words`, `tags`, `scores` (probabilities),
        `start_bytes`, `end_bytes`, `start_characters`, `end_characters`. Where the labels spell entities they also
        answer `entity_count` and, [batch, entities], `entities`, `entity_types`, `entity_scores` (the mean of the
        words'), `entity_start_bytes` and so on. `tokens` takes `token_ids`, `segment_ids`, `padding_mask`, int32
        [batch, length], and answers `probabilities` float32 [batch, length, labels] and `tags` string [batch, length].

        Args:
            path: str or Path. The folder to write, for example "models/entities/1".
            dtype: None for the dtype that the model has, or "float32" or "bfloat16" to store and compute in it.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`; a version is never overwritten.
            ValueError: if there is no preprocessor, or on an unknown dtype.
        """
        import tensorflow as tf

        from keras_bert.models.serving import TextInputs, export_head, text_signatures
        from keras_bert.text.words import split_text, split_words

        inputs = TextInputs(TEXT_COLUMNS, lambda texts: self.preprocessor(split_text(texts["text"])[0]).inputs)

        def signatures(served):
            def from_ids(ids):
                logits = served(ids, training=False)
                tags = tf.gather(tf.constant(served.labels), tf.argmax(logits, axis=-1))
                return {"probabilities": tf.nn.softmax(logits), "tags": tags}

            def from_words(words):
                return tag_texts(served, words["words"], split_words)

            standard = text_signatures(served, inputs, from_ids, lambda texts: tag_texts(served, texts["text"]))
            return {**standard, "words": (from_words, {"words": tf.TensorSpec([None], tf.string)})}

        return export_head(
            self,
            path,
            dtype,
            signatures,
            inputs,
            assets={"labels.txt": "\n".join(self.labels) + "\n"},
        )

    @staticmethod
    def preprocessor_class():
        """`BertWordPreprocessor`."""
        from keras_bert.text.word_preprocessor import BertWordPreprocessor

        return BertWordPreprocessor

    def classifier_arguments(self):
        """What a checkpoint says of this head beside its weights."""
        return {
            "num_labels": len(self.labels),
            "label_names": self.labels,
            "problem_type": None,
            "classifier_dropout": self.dropout.rate,
        }

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "labels": self.labels, "dropout": self.dropout.rate}

    @classmethod
    def from_checkpoint(
        cls,
        path,
        labels=None,
        sequence_length=128,  # google-research/bert, run_classifier.py: max_seq_length
        stride=None,
        lower_case=None,
        vocabulary=None,
        dropout=None,
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        **encoder_arguments,
    ):
        """A token classifier on the weights of somebody's checkpoint, with the checkpoint's tokenizer.

        Args:
            path: str or Path, as for `BertEncoder.from_checkpoint`.
            labels: list of tags or their number; None takes those of the checkpoint's own token classifier. Its layer
                is used when the labels agree; else the layer starts at random, as the report says.
            sequence_length, stride: as for `BertWordPreprocessor`.
            lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.
            vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
            dropout: float; None takes the checkpoint's, or 0.1.
            freeze, seed, name: as for the constructor.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `encoder` and `right_to_left`, as for
                `keras_bert.models.paper_encoders.encoder_loading.read_encoder`.

        Returns:
            A BertTokenClassifier. Its attribute `checkpoint_report` says what was read, what stayed random, and what
            was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit; if no
                labels are known; if `lower_case` contradicts the checkpoint.
        """
        from keras_bert.text.word_preprocessor import BertWordPreprocessor

        # Without a pooler, which tags do not need: it would be weights that are stored and never trained.
        checkpoint, encoder = read_encoder(path, seed=seed, **{"with_pooler": False, **encoder_arguments})
        head = checkpoint.head_arguments(TOKEN_HEAD)
        labels = labels or head.get("label_names") or head.get("num_labels")
        if labels is None:
            raise ValueError(
                f"{path} has no token classifier, so its labels are not known; give labels=[...], a list of tags"
            )
        preprocessor = BertWordPreprocessor(load_tokenizer(checkpoint, vocabulary, lower_case), sequence_length, stride)
        rate = head.get("classifier_dropout", 0.1) if dropout is None else dropout
        model = cls(encoder, labels, preprocessor, rate, freeze, seed, name)
        if not is_same_head(model.labels, head.get("problem_type"), head):
            checkpoint = drop_head(checkpoint, TOKEN_HEAD)
        model.checkpoint_report = assign_arrays(model.variables_by_path(), checkpoint)
        return model


def _lists(values, rule):
    """The lists in `values`, after checking that none is a text, which would be parted into letters."""
    values = [values] if isinstance(values, (str, bytes)) else list(values)
    for number, of_sentence in enumerate(values):
        if isinstance(of_sentence, (str, bytes)):
            raise ValueError(f"{rule}. Number {number} is a text: {quotation(of_sentence)}")
    return values


def tag_texts(model, texts, split=None):
    """Tags texts [batch] and finds their entities, in the graph.

    `split` returns the words of texts and the bytes at which they start, as `split_text`, the default, does. The
    outputs are described at `BertTokenClassifier.export`.
    """
    import tensorflow as tf

    from keras_bert.text.entity_spans import are_entity_tags
    from keras_bert.text.words import split_text

    split = split or split_text
    words, starts = split(texts)
    prepared = model.preprocessor(words)
    logits = model(prepared.inputs, training=False)
    of_words = tf.gather_nd(logits, tf.stack([prepared.windows, prepared.positions], axis=1))  # [words, labels]
    numbers = tf.argmax(of_words, axis=1, output_type=tf.int32)
    scores = words.with_values(tf.reduce_max(tf.nn.softmax(of_words), axis=1))
    ends = starts + words.with_values(tf.strings.length(words.values))
    answers = {
        "words": words,
        "tags": words.with_values(tf.gather(tf.constant(model.labels), numbers)),
        "scores": scores,
        **_places(texts, starts, ends),
    }
    answers = {"word_count": tf.cast(words.row_lengths(), tf.int32), **_dense(answers)}
    if not are_entity_tags(model.labels):
        return answers
    return {**answers, **_entities(texts, words.with_values(numbers), model.labels, scores, starts, ends)}


def _entities(texts, numbers, labels, scores, starts, ends):
    import tensorflow as tf

    from keras_bert.text.entity_spans import find_entities

    spans = find_entities(numbers, labels)
    offset = tf.gather(tf.cast(numbers.row_starts(), tf.int32), spans.types.value_rowids())
    entity_starts = spans.types.with_values(tf.gather(starts.values, offset + spans.first_words.values))
    entity_ends = spans.types.with_values(tf.gather(ends.values, offset + spans.last_words.values))
    size = tf.size(spans.types.values)
    of_entity = tf.math.unsorted_segment_mean(scores.values, spans.entity_ids.values, size)
    cut = tf.strings.substr(
        tf.gather(texts, spans.types.value_rowids()), entity_starts.values, entity_ends.values - entity_starts.values
    )
    answers = {
        "entities": spans.types.with_values(cut),
        "entity_types": spans.types,
        "entity_scores": spans.types.with_values(of_entity),
        **{f"entity_{name}": values for name, values in _places(texts, entity_starts, entity_ends).items()},
    }
    return {"entity_count": tf.cast(spans.types.row_lengths(), tf.int32), **_dense(answers)}


def _places(texts, starts, ends):
    """Byte offsets, and the character offsets that they correspond to."""
    import tensorflow as tf

    whole = tf.gather(texts, starts.value_rowids())

    def characters(places):
        before = tf.strings.substr(whole, tf.zeros_like(places.values), places.values)
        return places.with_values(tf.strings.length(before, unit="UTF8_CHAR"))

    return dict(zip(_PLACES, (starts, ends, characters(starts), characters(ends)), strict=True))


def _dense(answers):
    return {name: values.to_tensor() for name, values in answers.items()}


def described_texts(answers):
    """Converts the outputs of `tag_texts` to a list of one dict per text, as `BertTokenClassifier.tag` returns it."""
    values = {name: tensor.numpy().tolist() for name, tensor in answers.items()}

    def described(row, kinds, count):
        columns = {key: values[name][row][:count] for key, name in kinds.items()}
        for place in range(count):
            item = {key: column[place] for key, column in columns.items()}
            yield {
                key: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                for key, value in item.items()
            }

    places = {"start": "start_characters", "end": "end_characters"}
    of_words = {"text": "words", "tag": "tags", "score": "scores", **places}
    of_entities = {"text": "entities", "type": "entity_types", "score": "entity_scores"}
    of_entities |= {key: f"entity_{name}" for key, name in places.items()}
    texts = []
    for row, count in enumerate(values["word_count"]):
        texts.append({"words": list(described(row, of_words, count))})
        if "entity_count" in values:
            texts[-1]["entities"] = list(described(row, of_entities, values["entity_count"][row]))
    return texts
