"""BERT that marks the span of a context that answers a question."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import text_column
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import ACCURACY_NAMES, BertHead
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, load_tokenizer

_SPANS = "spans"
_OUTPUTS = ("start_logits", "end_logits")  # in the order of the labels
# What padding gets in the place of its logits: no start and no end, in float32 and through a softmax.
_NEVER = -1e9
_WARMUP_TEXTS = (
    {"question": "What?", "context": "A warm-up."},
    {"question": "What is the second text?", "context": "A second text, which is somewhat longer than the first one."},
)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertSpanLabeler(BertHead):
    """BERT with a layer that says of every token how well an answer begins, and ends, with it (paper, section 4.2;
    google-research/bert, run_squad.py).

    Differs from BERT: padding takes no part in the softmax, so that a window's loss does not hang on the length that it
    is padded to.

    Args:
        encoder: a `BertEncoder`; its pooler, if there is one, is not used.
        preprocessor: a `BertQuestionPreprocessor`, or None for a model that takes ids only.
        freeze: what training leaves as it is, as for `BertClassifier`.
        seed: int or None. Seed of the new layer.
        name, dtype, trainable: as for every Keras model; the dtype is the encoder's unless given.

    Inputs: the encoder's dict of ids [windows, length].

    Outputs: a dict of float32 [windows, length]: `start_logits` and `end_logits`, -1e9 for padding.

    Raises:
        ValueError: if the preprocessor's vocabulary or length does not fit the encoder, or on an unknown freeze.

    Example:

    >>> encoder = keras_bert.BertEncoder(9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> outputs = BertSpanLabeler(encoder, seed=0)({"token_ids": np.array([[2, 4, 3, 5, 3]])})
    >>> {name: tuple(logits.shape) for name, logits in outputs.items()}
    {'start_logits': (1, 5), 'end_logits': (1, 5)}
    """

    column_names = (("question", "context"), ("squad_questions",))
    label_column = "answer"
    output_padding = _NEVER

    def __init__(
        self, encoder, preprocessor=None, freeze=FREEZE_NONE, seed=None, name=None, dtype=None, trainable=True
    ):
        super().__init__(encoder, preprocessor, freeze, seed, name, dtype)
        self.spans = self.output_layer(2, _SPANS)
        self.finish_init(trainable)

    def call(self, inputs, training=False):
        """Logits of the starts and ends of a batch; see the class."""
        logits = self.spans(self.encoder(inputs, training=training)["sequence_output"])  # [windows, length, 2]
        mask = inputs.get("padding_mask")
        if mask is not None:
            logits = ops.where(ops.cast(mask, "bool")[:, :, None], logits, _NEVER)
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}

    def loss_terms(self, labels, outputs, sample_weight=None):
        """The loss of a batch.

        Args:
            labels: int [windows, 2], the first and last place of the answer in the row; 0 and 0 for none.
            outputs: dict of logits, as `call` gives.
            sample_weight: float [windows] or None.

        Returns:
            `{"loss": (sum, weight)}`: the mean of the cross-entropies of start and end, times the weights, and the sum
            of the weights.
        """
        starts = ops.sparse_categorical_crossentropy(labels[:, 0], outputs["start_logits"], from_logits=True)
        ends = ops.sparse_categorical_crossentropy(labels[:, 1], outputs["end_logits"], from_logits=True)
        weights = self._weights(labels, sample_weight)
        return {"loss": (ops.sum((starts + ends) / 2 * weights), ops.sum(weights))}

    def _named_metrics(self, metrics):
        """Metrics of both outputs, of which Keras takes a dict: there is an accuracy of starts, and one of ends."""
        if metrics is None or isinstance(metrics, dict):
            return metrics
        names = metrics if isinstance(metrics, (list, tuple)) else [metrics]
        if not all(name in ACCURACY_NAMES for name in names):
            raise ValueError(
                f"the metrics are those of two outputs: give a dict with a list for each of {list(_OUTPUTS)}, or "
                f'["accuracy"], which is meant for both; got {metrics!r}. Answers as texts are scored by '
                "keras_bert.metrics.squad_scores"
            )
        return {
            output: [keras.metrics.SparseCategoricalAccuracy(name="accuracy") for _ in names] for output in _OUTPUTS
        }

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Keras' `compute_metrics`, in which each output has the labels that are its own."""
        return super().compute_metrics(x, dict(zip(_OUTPUTS, (y[:, 0], y[:, 1]), strict=True)), y_pred, sample_weight)

    def _columns(self, x):
        if not isinstance(x, Mapping) and not hasattr(x, "columns"):
            from keras_bert.data.formats.squad_files import SquadQuestion

            x = list(x)
            if x and all(isinstance(question, SquadQuestion) for question in x):
                self.require_preprocessor()
                return {"squad_questions": x}
        return super()._columns(x)

    def encode_labels(self, labels):
        """Spans of characters, as they are: they become positions of tokens with their contexts."""
        return list(labels)

    def tokenize_columns(self, columns, labels=None):
        """Tokenizes questions and contexts as windows, a row per window."""
        from keras_bert.data.formats.squad_files import question_of_span
        from keras_bert.data.tokenized_questions import tokenize_questions

        if "squad_questions" in columns:
            questions = columns["squad_questions"]
            if labels is not None:
                raise ValueError("`SquadQuestion`s bring their answers: leave y out, or pass a dict of texts")
            has_answers = all(q.is_impossible or q.first_word is not None for q in questions)
        else:
            texts, contexts = (text_column(columns[name], name) for name in ("question", "context"))
            if not len(texts) == len(contexts):
                raise ValueError(
                    f"there are {len(texts)} questions and {len(contexts)} contexts; give one per question"
                )
            has_answers = labels is not None
            spans = labels if has_answers else [None] * len(texts)
            questions = [
                question_of_span(str(number), question, context, span)
                for number, (question, context, span) in enumerate(zip(texts, contexts, spans, strict=True))
            ]
        tokenized = tokenize_questions(questions, self.preprocessor, to_train=has_answers)
        tokenized.windows.caller_rows = tokenized.rows
        return tokenized.windows

    def example_weights(self, examples, sample_weight):
        """The weight of each window is that of its question."""
        return sample_weight[examples.caller_rows]

    def predict_logits(self, windows, batch_size=None, verbose=0):
        """The logits of tokenized windows.

        Args:
            windows: `TokenizedExamples`, as `TokenizedQuestions` has them.
            batch_size: int. Windows in a batch; 64 if None.
            verbose: as in Keras' `predict`.

        Returns:
            A pair of float32 arrays [windows, longest], of the starts and the ends; -1e9 behind a window's own tokens.
        """
        outputs = self.predict(windows, batch_size, verbose)
        return tuple(outputs[name][:, : int(windows.lengths.max())] for name in _OUTPUTS)

    def answer(self, questions, contexts, n_best=1, max_answer_length=30, null_threshold=None):
        """Answers questions from their contexts.

        Args:
            questions: list of str, or of bytes.
            contexts: the same, one for each question; what is longer than the model is read in windows.
            n_best: int. How many answers each question gets.
            max_answer_length: int, most tokens of an answer.
            null_threshold: float, or None where every question has an answer. Otherwise the null answer, "", whose
                place is 0, 0, stands before all others where its score is better than theirs by more than this.

        Returns:
            list, for each question a list of at most `n_best` dicts, the best first: `text`, `score` (the sum of both
            logits), `start` and `end` (characters of the context). An empty list where the context has no words.

        Raises:
            ValueError: if there is no preprocessor, unequal numbers of questions and contexts, or a single text stands
                where a list is meant; if `n_best` or `max_answer_length` is no whole number of at least 1, or
                `null_threshold` no number.
            TypeError: if a question or a context is not a string.

        Example:

        >>> from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], True)
        >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
        >>> labeler = BertSpanLabeler(encoder, BertQuestionPreprocessor(tokenizer, 16, 4, 4), seed=0)
        >>> [len(answers) for answers in labeler.answer(["Where?", "In?"], ["In Paris", ""], n_best=2)]
        [2, 0]
        """
        import tensorflow as tf

        from keras_bert.text.answer_spans import N_BEST

        self.require_preprocessor()
        _check_numbers(n_best, max_answer_length, null_threshold)
        questions, contexts = text_column(questions, "questions"), text_column(contexts, "contexts")
        if len(questions) != len(contexts):
            raise ValueError(
                f"there must be one context for each question; got {len(questions)} questions and {len(contexts)} "
                "contexts. Repeat a context that has several questions."
            )
        found = answer_in_graph(
            self,
            tf.constant(questions, tf.string),
            tf.constant(contexts, tf.string),
            max(n_best, N_BEST),
            max_answer_length,
            null_threshold,
        )
        found = {name: values.numpy().tolist() for name, values in found.items()}
        names = ("answers", "scores", "start_characters", "end_characters")
        columns = zip(*(found[f"n_best_{name}"] for name in names), strict=True)
        answered = []
        for row, of_question in enumerate(columns):
            null = []
            if null_threshold is not None and found["null_score"][row] - found["score"][row] > null_threshold:
                null = [{"text": "", "score": found["null_score"][row], "start": 0, "end": 0}]
            answers = [
                {"text": text.decode("utf-8", "replace"), "score": score, "start": start, "end": end}
                for text, score, start, end in zip(*of_question, strict=True)
                if end > start
            ]
            answered.append((null + answers)[:n_best])
        return answered

    def export(self, path, dtype=None, n_best=20, max_answer_length=30, null_threshold=None):
        """Writes a SavedModel that takes questions and contexts, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `question` and `context`, strings [batch]; `examples` takes serialized
        tf.Examples [batch] with features of the same names. Both answer `answer` string [batch], `score` and
        `null_score` float32 [batch], `start_byte`, `end_byte`, `start_character`, `end_character` int32 [batch], and
        the best answers [batch, n_best]: `n_best_answers`, `n_best_scores`, `n_best_start_bytes` and so on. `tokens`
        takes `token_ids`, `segment_ids`, `padding_mask`, int32 [windows, length], and answers `start_logits` and
        `end_logits`.
        Contexts that are longer than the model are read in windows.

        Args:
            path: str or Path. The folder to write, for example "models/answers/1".
            dtype: None for the dtype that the model has, or "float32" or "bfloat16" to store and compute in it.
            n_best: int. How many starts and ends of a window are looked at, and how many answers are given.
            max_answer_length: int, most tokens of an answer.
            null_threshold: float, or None where every question has an answer. The answer is "", its place 0, where the
                null score is greater than the score by more than this.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`; a version is never overwritten.
            ValueError: if there is no preprocessor, on an unknown dtype, or if `n_best` or `max_answer_length` is no
                whole number of at least 1, or `null_threshold` no number.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        _check_numbers(n_best, max_answer_length, null_threshold)
        inputs = TextInputs(
            ("question", "context"),
            lambda texts: self.preprocessor(texts["question"], texts["context"]).inputs,
            _WARMUP_TEXTS,
        )

        def signatures(served):
            def from_texts(texts):
                return answer_in_graph(
                    served, texts["question"], texts["context"], n_best, max_answer_length, null_threshold
                )

            return text_signatures(served, inputs, lambda ids: served(ids, training=False), from_texts)

        return export_head(self, path, dtype, signatures, inputs, inputs_per_row=4)  # windows per context

    @staticmethod
    def preprocessor_class():
        """`BertQuestionPreprocessor`."""
        from keras_bert.text.question_preprocessor import BertQuestionPreprocessor

        return BertQuestionPreprocessor

    @classmethod
    def from_checkpoint(
        cls,
        path,
        sequence_length=384,  # google-research/bert, run_squad.py: max_seq_length, doc_stride, max_query_length
        stride=128,
        max_query_length=64,
        lower_case=None,
        vocabulary=None,
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        **encoder_arguments,
    ):
        """A span labeler on the weights of somebody's checkpoint, with the checkpoint's tokenizer.

        Args:
            path: str or Path, as for `BertEncoder.from_checkpoint`.
            sequence_length, stride, max_query_length: as for `BertQuestionPreprocessor`.
            lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.
            vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
            freeze, seed, name: as for the constructor. A layer that the checkpoint lacks starts at random.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `encoder` and `right_to_left`, as for
                `keras_bert.models.paper_encoders.encoder_loading.read_encoder`.

        Returns:
            A BertSpanLabeler. Its attribute `checkpoint_report` says what was read, what stayed random, and what was
            not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit; if
                `lower_case` contradicts the checkpoint.
        """
        from keras_bert.text.question_preprocessor import BertQuestionPreprocessor

        # Without a pooler, which spans do not need: it would be weights that are stored and never trained.
        checkpoint, encoder = read_encoder(path, seed=seed, **{"with_pooler": False, **encoder_arguments})
        tokenizer = load_tokenizer(checkpoint, vocabulary, lower_case)
        preprocessor = BertQuestionPreprocessor(tokenizer, sequence_length, stride, max_query_length)
        labeler = cls(encoder, preprocessor, freeze, seed, name)
        labeler.checkpoint_report = assign_arrays(labeler.variables_by_path(), checkpoint)
        return labeler


def _check_numbers(n_best, max_answer_length, null_threshold):
    for name, number in (("n_best", n_best), ("max_answer_length", max_answer_length)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {number!r}")
    if null_threshold is None:
        return
    is_number = isinstance(null_threshold, (int, float, np.number)) and not isinstance(null_threshold, bool)
    if not is_number or np.isnan(null_threshold):
        raise ValueError(f"null_threshold must be a number or None, got {null_threshold!r}")


def answer_in_graph(labeler, questions, contexts, n_best, max_answer_length, null_threshold):
    """Answers questions [batch] from their contexts [batch], in the graph.

    Arguments and outputs are described at `BertSpanLabeler.export`; `n_best` is at least 1.
    """
    import tensorflow as tf

    from keras_bert.text.answer_spans import find_answers

    prepared = labeler.preprocessor(questions, contexts)
    logits = labeler(prepared.inputs, training=False)
    found = find_answers(
        prepared, contexts, logits["start_logits"], logits["end_logits"], n_best, max_answer_length
    )._asdict()
    null_scores = found.pop("null_scores")
    found = {"answers": found.pop("texts"), **found}
    best = {name.removesuffix("s"): values[:, 0] for name, values in found.items()}
    if null_threshold is not None:
        is_null = null_scores - best["score"] > null_threshold
        score = best["score"]
        best = {name: tf.where(is_null, tf.zeros_like(values), values) for name, values in best.items()}
        best["score"] = score
    return {**best, "null_score": null_scores, **{f"n_best_{name}": values for name, values in found.items()}}
