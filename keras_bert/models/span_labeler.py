"""Question answering: labels the span of a context that answers a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import text_column
from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import ACCURACY_NAMES, BertHead, LossTerms
from keras_bert.models.inference import outputs_by_slice
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.layout import SPAN_HEAD

if TYPE_CHECKING:
    from keras_bert.data.tokenized_examples import TokenizedExamples
    from keras_bert.text.question_preprocessor import BertQuestionPreprocessor

_OUTPUTS = ("start_logits", "end_logits")  # in the order of the labels
# The logit of padding: so low that it is never a start or an end, in float32 and through a softmax.
_NEVER = -1e9
_WARMUP_TEXTS = (
    {"question": "What?", "context": "A warm-up."},
    {"question": "What is the second text?", "context": "A second text, which is somewhat longer than the first one."},
)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertSpanLabeler(BertHead):
    """BERT with a layer that scores every token as the start and as the end of an answer (paper, section 4.2;
    google-research/bert, run_squad.py).

    Takes texts (`question` and `context`, with an answer's first character and one past its last as label, or None) or
    ids. Contexts longer than the model are split into windows, one row each. `answer` returns answers.

    Differs from BERT: padding is excluded from the softmax, so a window's loss does not depend on the length that it is
    padded to.

    Args:
        encoder: any encoder; its pooler, if there is one, is not used.
        preprocessor: a `BertQuestionPreprocessor`; None for a model that takes ids only.
        freeze, seed: as for `BertHead`.
        **kwargs: name, dtype, trainable, as for every Keras model; the dtype defaults to the encoder's. And `lora_rank`
            and so on, as for `BertHead`.

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
    encoder_defaults: ClassVar[Mapping[str, Any]] = {"with_pooler": False}  # unused, and never trained

    def __init__(
        self,
        encoder: keras.Model,
        preprocessor: BertQuestionPreprocessor | None = None,
        freeze: str | int = FREEZE_NONE,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, **kwargs)
        self.spans = self.output_layer(2, SPAN_HEAD)
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> dict[str, Tensor]:
        """Computes the logits of starts and ends of a batch of ids."""
        logits = self.spans(self.encoder(inputs, training=training)["sequence_output"])  # [windows, length, 2]
        mask = inputs.get("padding_mask")
        if mask is not None:
            logits = ops.where(ops.cast(ops.expand_dims(mask, -1), "bool"), logits, _NEVER)
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch.

        Args:
            labels: int [windows, 2], the first and last position of the answer in the row; 0 and 0 for none.
            outputs: dict of logits, as returned by `call`.
            sample_weight: float [windows] or None.

        Returns:
            `{"loss": (sum, weight)}`: the mean of the cross-entropies of start and end, times the weights, and the sum
            of the weights.
        """
        starts = ops.sparse_categorical_crossentropy(labels[:, 0], outputs["start_logits"], from_logits=True)
        ends = ops.sparse_categorical_crossentropy(labels[:, 1], outputs["end_logits"], from_logits=True)
        weights = self._weights(labels, sample_weight)
        return {"loss": (ops.sum((starts + ends) / 2 * weights), ops.sum(weights))}

    def _named_metrics(self, metrics: Any) -> Any:
        """Creates the metrics of both outputs, for which Keras takes a dict: the accuracy of starts, and of ends."""
        if metrics is None or isinstance(metrics, dict):
            return metrics
        names = metrics if isinstance(metrics, (list, tuple)) else [metrics]
        if not all(name in ACCURACY_NAMES for name in names):
            raise ValueError(
                f"there are two outputs: give a dict with a list for each of {list(_OUTPUTS)}, or "
                f'["accuracy"], which is meant for both; got {metrics!r}. Answers as texts are scored by '
                "keras_bert.metrics.squad_scores"
            )
        return {
            output: [keras.metrics.SparseCategoricalAccuracy(name="accuracy") for _ in names] for output in _OUTPUTS
        }

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor | None = None) -> dict[str, Any]:
        """Keras' `compute_metrics`, with the labels of each output."""
        return super().compute_metrics(x, dict(zip(_OUTPUTS, (y[:, 0], y[:, 1]), strict=True)), y_pred, sample_weight)

    def _columns(self, x: Any) -> dict[str, Any]:
        if not isinstance(x, Mapping) and not hasattr(x, "columns"):
            from keras_bert.data.formats.squad_files import SquadQuestion

            x = list(x)
            if x and all(isinstance(question, SquadQuestion) for question in x):
                self.require_preprocessor()
                return {"squad_questions": x}
        return super()._columns(x)

    def encode_labels(self, labels: Any) -> Any:
        """Returns spans of characters unchanged: with their contexts they become positions of tokens."""
        return list(labels)

    def tokenize_columns(self, columns: Mapping[str, Any], labels: Any = None) -> TokenizedExamples:
        """Tokenizes questions and contexts as windows, one row each."""
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

    def example_weights(self, examples: Any, sample_weight: np.ndarray) -> np.ndarray:
        """Gives each window the weight of its question."""
        return sample_weight[examples.caller_rows]

    def predict_logits(
        self, windows: TokenizedExamples, batch_size: int | None = None, verbose: int | str = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes the logits of starts and ends of tokenized windows: float32 [windows, longest], -1e9 for padding."""
        outputs = self.predict(windows, batch_size, verbose)
        starts, ends = (outputs[name][:, : int(windows.lengths.max())] for name in _OUTPUTS)
        return starts, ends

    def answer(
        self,
        questions: Sequence[str] | np.ndarray,
        contexts: Sequence[str] | np.ndarray,
        n_best: int = 1,
        max_answer_length: int = 30,  # google-research/bert, run_squad.py
        null_threshold: float | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Answers questions from their contexts.

        Args:
            questions: strings, or UTF-8 bytes.
            contexts: the same, one per question; contexts longer than the model are read in windows, up to the
                preprocessor's `max_windows` of them, with a warning if there are more.
            n_best: maximum number of answers per question.
            max_answer_length: maximum number of tokens in an answer.
            null_threshold: None if every question has an answer. Otherwise the null answer, "" at 0, 0, is ranked first
                if its score is better than the others' by more than this.

        Returns:
            Per question at most `n_best` dicts, best first: `text`, `score` (the sum of both logits), `start` and `end`
            (characters of the context). An empty list if the context has no words.

        Raises:
            ValueError: if there is no preprocessor, the numbers of questions and contexts differ, a single text is
                given, or a number is out of range.
            TypeError: if a question or a context is not a string.

        Example:

        >>> from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], True)
        >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
        >>> labeler = BertSpanLabeler(encoder, BertQuestionPreprocessor(tokenizer, 16, 4, 4), seed=0)
        >>> [len(answers) for answers in labeler.answer(["Where?", "In?"], ["In Paris", ""], n_best=2)]
        [2, 0]
        """
        self.require_preprocessor()
        from keras_bert.text.answer_spans import N_BEST

        _check_numbers(n_best, max_answer_length, null_threshold)
        questions, contexts = text_column(questions, "questions"), text_column(contexts, "contexts")
        if len(questions) != len(contexts):
            raise ValueError(
                f"there must be one context per question; got {len(questions)} questions and {len(contexts)} contexts. "
                "Repeat a context that has several questions"
            )

        def find(questions: Any, contexts: Any) -> dict[str, Any]:
            return answer_in_graph(self, questions, contexts, max(n_best, N_BEST), max_answer_length, null_threshold)

        names = ("answers", "scores", "start_characters", "end_characters")
        answered = []
        for found in outputs_by_slice(find, self.preprocessor, questions, contexts):
            columns = zip(*(found[f"n_best_{name}"] for name in names), strict=True)
            for row, candidates in enumerate(columns):
                null: list[dict[str, Any]] = []
                if null_threshold is not None and found["null_score"][row] - found["score"][row] > null_threshold:
                    null = [{"text": "", "score": found["null_score"][row], "start": 0, "end": 0}]
                answers = [
                    {"text": text.decode("utf-8", "replace"), "score": score, "start": start, "end": end}
                    for text, score, start, end in zip(*candidates, strict=True)
                    if end > start
                ]
                answered.append((null + answers)[:n_best])
        return answered

    def export(
        self,
        path: PathLike,
        *,
        n_best: int = 20,
        max_answer_length: int = 30,
        null_threshold: float | None = None,
        **options: Unpack[ExportArguments],
    ) -> Path:
        """Writes a SavedModel that takes questions and contexts, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `question` and `context`, strings [batch]; `examples` takes serialized
        tf.Examples [batch] with features of the same names. Both return `answer` string [batch], `score` and
        `null_score` float32 [batch], `start_byte`, `end_byte`, `start_character`, `end_character` int32 [batch], and
        the best answers [batch, n_best]: `n_best_answers`, `n_best_scores`, `n_best_start_bytes` and so on.
        Contexts longer than the model are read in windows: `num_windows` int32 [batch] is how many were read, and
        `truncated` bool [batch] whether there are more than the preprocessor's `max_windows`. `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [windows, length], and returns `start_logits`, `end_logits`.

        Args:
            path, options: see `BertClassifier.export`, also for the result.
            n_best: number of starts and ends considered per window, and of answers returned.
            max_answer_length: maximum number of tokens in an answer.
            null_threshold: None if every question has an answer. Otherwise the answer is "", at position 0, if the null
                score is greater than the score by more than this.

        Raises:
            FileExistsError, ValueError: as `BertClassifier.export`, or if a number is out of range.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        _check_numbers(n_best, max_answer_length, null_threshold)

        def to_ids(texts: Any) -> Any:
            return self.preprocessor(texts["question"], texts["context"]).inputs

        inputs = TextInputs(("question", "context"), to_ids, _WARMUP_TEXTS, truncation="only_second")

        def signatures(served: Any) -> Any:
            def from_texts(texts: Any) -> Any:
                return answer_in_graph(
                    served, texts["question"], texts["context"], n_best, max_answer_length, null_threshold
                )

            return text_signatures(served, inputs, lambda ids: served(ids, training=False), from_texts)

        # Four windows per context.
        return export_head(self, path, ExportOptions(**options), signatures, inputs, inputs_per_row=4)

    @staticmethod
    def preprocessor_class() -> Any:
        from keras_bert.text.question_preprocessor import BertQuestionPreprocessor

        return BertQuestionPreprocessor

    @classmethod
    def shortened_preprocessing(cls, longest: int) -> dict[str, int]:
        """Reserves a quarter of the positions for the question, and lets windows overlap by half."""
        max_query_length = longest // 4
        stride = max((longest - max_query_length - 3) // 2, 1)
        return {"sequence_length": longest, "stride": stride, "max_query_length": max_query_length}


def _check_numbers(n_best: int, max_answer_length: int, null_threshold: float | None) -> None:
    for name, number in (("n_best", n_best), ("max_answer_length", max_answer_length)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {number!r}")
    if null_threshold is None:
        return
    is_number = isinstance(null_threshold, (int, float, np.number)) and not isinstance(null_threshold, bool)
    if not is_number or np.isnan(null_threshold):
        raise ValueError(f"null_threshold must be a number or None, got {null_threshold!r}")


def answer_in_graph(
    labeler: Any, questions: Any, contexts: Any, n_best: int, max_answer_length: int, null_threshold: float | None
) -> dict[str, Any]:
    """Answers questions [batch] from their contexts [batch], in the graph.

    Arguments and outputs are described at `BertSpanLabeler.export`; `n_best` is at least 1.
    """
    import tensorflow as tf

    from keras_bert.text.answer_spans import find_answers
    from keras_bert.text.windows import count_by_row

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
    best |= {
        "null_score": null_scores,
        "num_windows": count_by_row(prepared.rows, tf.size(contexts)),
        "truncated": prepared.is_cut,
    }
    return {**best, **{f"n_best_{name}": values for name, values in found.items()}}
