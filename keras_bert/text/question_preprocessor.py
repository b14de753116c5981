"""From questions and contexts to the encoder's inputs, and from its logits back to the words of the contexts."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.answer_spans import MAX_ANSWER_LENGTH, N_BEST, find_answer_spans
from keras_bert.text.inputs import text_tensor
from keras_bert.text.pack import ADDED_TO_TWO_SEGMENTS
from keras_bert.text.packing_preprocessor import PackingPreprocessor
from keras_bert.text.questions import QuestionWindows, split_questions
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.words import WORD_SEPARATORS, tokenize_words

# Defaults of google-research/bert run_squad.py.
SEQUENCE_LENGTH = 384
STRIDE = 128
MAX_QUERY_LENGTH = 64


class QuestionInputs(NamedTuple):
    """Windows of questions as the encoder takes them, and what finds their tokens in the contexts again.

    Source: `InputFeatures` of google-research/bert `run_squad.py`.

    Args:
        inputs: dict of int32 tensors [windows, length]: `token_ids`, `segment_ids`, `padding_mask`.
        rows: int32 tensor [windows], ascending, the question that each window is of.
        context_starts: int32 tensor [windows], the place in its row at which the context begins.
        may_start: bool tensor [windows, length], whether an answer may begin with the token.
        may_end: bool tensor [windows, length], whether an answer may end with the token.
        start_bytes: int32 `RaggedTensor` [windows, (tokens)], where each token of the context begins in it.
        end_bytes: int32 `RaggedTensor` [windows, (tokens)], where it ends.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], lower_case=True)
        >>> prepared = BertQuestionPreprocessor(tokenizer)(["Where"], ["In Paris"])
        >>> prepared.inputs["token_ids"].numpy().tolist(), prepared.end_bytes.to_list()
        ([[2, 4, 3, 5, 6, 3]], [[2, 8]])
    """

    inputs: dict[str, tf.Tensor]
    rows: tf.Tensor
    context_starts: tf.Tensor
    may_start: tf.Tensor
    may_end: tf.Tensor
    start_bytes: tf.RaggedTensor
    end_bytes: tf.RaggedTensor


class AnswersInContexts(NamedTuple):
    """The best answers to questions, where they stand in their contexts.

    Source: none in BERT, which looks for the words of an answer; see `keras_bert.text.final_text`.

    Args:
        texts: string tensor [questions, n_best], the best first; "" where there are fewer.
        scores: float32 tensor [questions, n_best], the sum of both logits; 0 where there are fewer.
        start_bytes: int32 tensor [questions, n_best], the first byte of the answer in its context.
        end_bytes: int32 tensor [questions, n_best], one past its last byte; 0 where there is no answer.
        start_characters: int32 tensor [questions, n_best], the same in characters.
        end_characters: int32 tensor [questions, n_best].
        null_scores: float32 tensor [questions], the least sum of both logits of [CLS] in the windows of each: how much
            speaks for there being no answer.

    Example:
        >>> AnswersInContexts._fields[:2]
        ('texts', 'scores')
    """

    texts: tf.Tensor
    scores: tf.Tensor
    start_bytes: tf.Tensor
    end_bytes: tf.Tensor
    start_characters: tf.Tensor
    end_characters: tf.Tensor
    null_scores: tf.Tensor


class BertQuestionPreprocessor(PackingPreprocessor):
    """Turns questions and contexts into the packed windows that `BertEncoder` takes.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`. It works on tensors in `tf.function`
    and inside an exported SavedModel.

    Args:
        tokenizer: `BertTokenizer`.
        sequence_length: int, most ids of a window with its question and the special tokens.
        stride: int, tokens from one window's beginning to the next one's.
        max_query_length: int, most tokens of a question; what is longer is cut off.

    Raises:
        TypeError: `tokenizer` is no `BertTokenizer`, or a number no int.
        ValueError: a number below 1, or a `sequence_length` that leaves no room beside the longest question.

    Example: as for `QuestionInputs`.
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        sequence_length: int = SEQUENCE_LENGTH,
        stride: int = STRIDE,
        max_query_length: int = MAX_QUERY_LENGTH,
    ):
        super().__init__(tokenizer, sequence_length)
        numbers = {"sequence_length": sequence_length, "stride": stride, "max_query_length": max_query_length}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int. Received: {value!r}.")
            if value < 1:
                raise ValueError(f"{name} must be at least 1. Received: {value}.")
        if sequence_length <= max_query_length + ADDED_TO_TWO_SEGMENTS:
            raise ValueError(
                f"sequence_length={sequence_length} leaves no room for a context beside a question of "
                f"max_query_length={max_query_length} tokens and {ADDED_TO_TWO_SEGMENTS} special ones. "
                f"Give at least {max_query_length + ADDED_TO_TWO_SEGMENTS + 1}, or shorten the questions."
            )
        self.stride = stride
        self.max_query_length = max_query_length

    def __call__(self, questions: Any, contexts: Any) -> QuestionInputs:
        """Tokenizes and packs a batch.

        Args:
            questions: string tensor, list or array [batch].
            contexts: string tensor, list or array [batch].

        Returns:
            `QuestionInputs`, each window padded to the longest.

        Raises:
            TypeError: something other than text.
            tf.errors.InvalidArgumentError: unequal numbers of questions and contexts.
        """
        questions, contexts = text_tensor(questions, "questions"), text_tensor(contexts, "contexts")
        tf.debugging.assert_equal(
            tf.size(questions), tf.size(contexts), "There must be one context for each question; repeat it for several."
        )
        tokens = tokenize_words(self.tokenizer, contexts)
        # The tokens travel by their numbers, so that whatever is known of them can be looked up behind the windows.
        numbers = tokens.token_ids.with_values(tf.range(tf.size(tokens.token_ids.values)))
        queries = self.tokenizer.tokenize(questions)
        windows = self.split(queries, numbers)

        def of_windows(ragged):
            return windows.contexts.with_values(tf.gather(ragged.values, windows.contexts.values))

        inputs = self.pack(windows.questions, of_windows(tokens.token_ids))
        context_starts = tf.cast(windows.questions.row_lengths(), tf.int32) + ADDED_TO_TWO_SEGMENTS - 1
        shape = tf.shape(inputs["token_ids"])
        may_start, may_end = (
            _at_places(marks, context_starts, shape)
            for marks in (windows.is_max_context, tf.ones_like(windows.contexts, tf.bool))
        )
        starts, ends = of_windows(tokens.start_bytes), of_windows(tokens.end_bytes)
        return QuestionInputs(inputs, windows.rows, context_starts, may_start, may_end, starts, ends)

    def split(self, questions: tf.RaggedTensor, contexts: tf.RaggedTensor) -> QuestionWindows:
        """Cuts contexts into windows, as `split_questions` does, of this preprocessor's lengths.

        Args:
            questions: integer `RaggedTensor` [batch, (tokens)].
            contexts: integer `RaggedTensor` [batch, (tokens)].

        Returns:
            `QuestionWindows`.
        """
        return split_questions(questions, contexts, self.sequence_length, self.stride, self.max_query_length)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, fit for JSON: dict with the tokenizer's config under "tokenizer"."""
        return {**super().get_config(), "stride": self.stride, "max_query_length": self.max_query_length}


def _at_places(marks, context_starts, shape):
    """Marks of the contexts' tokens [windows, (tokens)] at their places in the rows, bool [windows, length]."""
    window = marks.value_rowids()
    within = tf.range(tf.size(window)) - tf.cast(tf.gather(marks.row_starts(), window), tf.int32)
    places = tf.stack([tf.cast(window, tf.int32), tf.gather(context_starts, window) + within], axis=1)
    return tf.scatter_nd(places, tf.cast(marks.values, tf.int32), shape) > 0


def find_answers(
    prepared: QuestionInputs,
    contexts: tf.Tensor,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> AnswersInContexts:
    """Finds the best answers, all of different wording, in the contexts as they were written, but that white space
    becomes a single space.

    Source: `write_predictions` in google-research/bert `run_squad.py`, but that an answer reaches from the first to the
    last character of its tokens.

    Args:
        prepared: `QuestionInputs`.
        contexts: string tensor [questions].
        start_logits: float tensor [windows, length].
        end_logits: float tensor [windows, length].
        n_best: int, how many starts and ends of a window are looked at, and how many answers are kept.
        max_answer_length: int, tokens.

    Returns:
        `AnswersInContexts`.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], lower_case=True)
        >>> prepared, logits = BertQuestionPreprocessor(tokenizer)(["Where"], ["In Paris"]), [[0.0, 0, 0, 1, 5, 0]]
        >>> answers = find_answers(prepared, tf.constant(["In Paris"]), tf.constant(logits), tf.constant(logits), 2)
        >>> answers.texts.numpy().tolist(), answers.scores.numpy().tolist()
        ([[b'Paris', b'In Paris']], [[10.0, 6.0]])
    """
    spans = find_answer_spans(
        start_logits, end_logits, prepared.may_start, prepared.may_end, prepared.rows, n_best, max_answer_length
    )
    # The number of a place's token among those of all windows.
    offsets = tf.cast(prepared.start_bytes.row_starts(), tf.int32) - prepared.context_starts
    offset = tf.gather(offsets, spans.windows)
    starts = tf.gather(prepared.start_bytes.values, offset + spans.starts)
    ends = tf.gather(prepared.end_bytes.values, offset + spans.ends)
    texts = tf.strings.substr(tf.gather(contexts, spans.rows), starts, ends - starts)
    # As the original, which puts the words of an answer together again with a space between them.
    texts = tf.strings.regex_replace(texts, f"[{WORD_SEPARATORS}]+", " ")

    number = tf.size(contexts)
    kept = _first_of_each_wording(spans.rows, texts, number, n_best)
    rows, starts, ends = (tf.gather(values, kept) for values in (spans.rows, starts, ends))
    whole = tf.gather(contexts, rows)

    def by_question(values):
        ragged = tf.RaggedTensor.from_value_rowids(values, tf.cast(rows, tf.int64), tf.cast(number, tf.int64))
        return ragged.to_tensor(shape=[None, n_best])

    def characters(places):
        return tf.strings.length(tf.strings.substr(whole, tf.zeros_like(places), places), unit="UTF8_CHAR")

    null_scores = tf.cast(start_logits[:, 0] + end_logits[:, 0], tf.float32)
    return AnswersInContexts(
        by_question(tf.gather(texts, kept)),
        by_question(tf.cast(tf.gather(spans.start_logits + spans.end_logits, kept), tf.float32)),
        by_question(starts),
        by_question(ends),
        by_question(characters(starts)),
        by_question(characters(ends)),
        tf.math.unsorted_segment_min(null_scores, prepared.rows, number),
    )


def _first_of_each_wording(rows, texts, number, n_best):
    """The spans [kept] that are the best of their wording and among the first `n_best` of their question."""
    _, wording = tf.unique(tf.strings.join([tf.strings.as_string(rows), texts], separator=":"))
    position = tf.range(tf.size(rows))
    first = tf.math.unsorted_segment_min(position, wording, tf.size(rows))
    is_first = tf.equal(tf.gather(first, wording), position)
    counted = tf.cumsum(tf.cast(is_first, tf.int32))
    before = tf.math.unsorted_segment_min(counted, rows, number)  # what is counted with a question's first span
    return tf.where(is_first & (counted - tf.gather(before, rows) < n_best))[:, 0]
