"""`BertQuestionPreprocessor`: questions and contexts to the encoder's inputs."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.inputs import Texts, as_text_tensor
from keras_bert.text.pack import ADDED_TO_TWO_SEGMENTS, PackingPreprocessor, check_int, row_lengths
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.windows import MAX_WINDOWS, QuestionWindows, check_max_windows, split_questions
from keras_bert.text.words import tokenize_words

# Defaults of google-research/bert run_squad.py.
SEQUENCE_LENGTH = 384
STRIDE = 128
MAX_QUERY_LENGTH = 64


class QuestionInputs(NamedTuple):
    """The encoder's inputs for windows of questions, and the origin of their tokens in the contexts."""

    inputs: dict[str, tf.Tensor]  # int32 [windows, length]: token_ids, segment_ids, padding_mask
    rows: tf.Tensor  # int32 [windows], ascending: the question of each window
    context_starts: tf.Tensor  # int32 [windows]: position of the first context token in the row
    may_start: tf.Tensor  # bool [windows, length]: whether an answer may start with the token
    may_end: tf.Tensor  # bool [windows, length]: whether an answer may end with the token
    start_bytes: tf.RaggedTensor  # int32 [windows, (tokens)]: first byte of each context token in its context
    end_bytes: tf.RaggedTensor  # int32 [windows, (tokens)]: one past its last byte
    is_cut: tf.Tensor  # bool [batch]: whether the context has more than `max_windows`, so that its end was dropped


class BertQuestionPreprocessor(PackingPreprocessor):
    """Tokenizes questions and contexts and packs them into the windows that `BertEncoder` takes.

    A context that does not fit into a row together with its question is split into overlapping windows. Runs in the
    TensorFlow graph: in `tf.function` and inside an exported SavedModel.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`, with its defaults.

    Args:
        tokenizer: the tokenizer.
        sequence_length: maximum number of ids per window: question, context and three special tokens.
        stride: number of tokens between the beginnings of windows.
        max_query_length: maximum number of tokens of a question; longer questions are truncated.
        max_windows: maximum number of windows of a context; the tokens after them are dropped. It limits time and
            memory, which grow with the longest context. None is no limit: do not use it on untrusted texts.
            Differs from BERT, which has no limit; no context of SQuAD reaches the default.

    Inputs: `questions` and `contexts`, each a list, NumPy array, pandas Series or string tensor `[batch]`.

    Outputs: `QuestionInputs`, a named tuple whose `inputs` are int32 tensors `[windows, length]`, padded to the longest
        window: `token_ids`, `segment_ids`, `padding_mask`. Its `rows` `[windows]` are the questions of the windows;
        `context_starts`, `may_start`, `may_end`, `start_bytes` and `end_bytes` locate answers in the contexts, and
        `is_cut` `[batch]` is whether a context has more than `max_windows`.

    Raises:
        TypeError: `tokenizer` is not a BertTokenizer, a number is not an int, or an input is not text.
        ValueError: a number is below 1, or `sequence_length` leaves no room for a context after the longest question.
        tf.errors.InvalidArgumentError: the numbers of questions and contexts differ.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], lower_case=True)
        >>> prepared = BertQuestionPreprocessor(tokenizer)(["Where"], ["In Paris"])
        >>> prepared.inputs["token_ids"].numpy().tolist(), prepared.end_bytes.to_list()
        ([[2, 4, 3, 5, 6, 3]], [[2, 8]])
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        sequence_length: int = SEQUENCE_LENGTH,
        stride: int = STRIDE,
        max_query_length: int = MAX_QUERY_LENGTH,
        max_windows: int | None = MAX_WINDOWS,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        check_int("sequence_length", sequence_length, minimum=1)
        check_int("stride", stride, minimum=1)
        check_int("max_query_length", max_query_length, minimum=1)
        if sequence_length <= max_query_length + ADDED_TO_TWO_SEGMENTS:
            raise ValueError(
                f"sequence_length={sequence_length} leaves no room for a context after a question of "
                f"max_query_length={max_query_length} tokens and {ADDED_TO_TWO_SEGMENTS} special tokens. "
                f"Pass at least {max_query_length + ADDED_TO_TWO_SEGMENTS + 1}, or a smaller max_query_length."
            )
        check_max_windows(max_windows)
        self.stride = stride
        self.max_query_length = max_query_length
        self.max_windows = max_windows

    def __call__(self, questions: Texts, contexts: Texts) -> QuestionInputs:
        """Tokenizes and packs a batch; see the class for inputs, outputs and errors."""
        questions, contexts = as_text_tensor(questions, "questions"), as_text_tensor(contexts, "contexts")
        tf.debugging.assert_equal(
            tf.size(questions), tf.size(contexts), "There must be one context for each question; repeat it for several."
        )
        tokens = tokenize_words(self.tokenizer, contexts)
        # Windows hold token indices, by which all properties of a token are looked up afterwards.
        indices = tokens.token_ids.with_values(tf.range(tf.size(tokens.token_ids.values)))
        windows = self.split(self.tokenizer.tokenize(questions), indices)

        def gather_windows(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
            return windows.contexts.with_values(tf.gather(ragged.values, windows.contexts.values))

        inputs = self.pack(windows.questions, gather_windows(tokens.token_ids))
        context_starts = row_lengths(windows.questions) + ADDED_TO_TWO_SEGMENTS - 1
        shape = tf.shape(inputs["token_ids"])
        may_start, may_end = (
            _place_marks(marks, context_starts, shape)
            for marks in (windows.is_max_context, tf.ones_like(windows.contexts, tf.bool))
        )
        starts, ends = gather_windows(tokens.start_bytes), gather_windows(tokens.end_bytes)
        return QuestionInputs(inputs, windows.rows, context_starts, may_start, may_end, starts, ends, windows.is_cut)

    def split(self, questions: tf.RaggedTensor, contexts: tf.RaggedTensor) -> QuestionWindows:
        """Splits tokenized contexts into windows that fit into a row together with their questions.

        Args:
            questions: ragged ids `[batch, (tokens)]`.
            contexts: ragged ids `[batch, (tokens)]`.

        Returns:
            Named tuple of `questions` and `contexts` `[windows, (tokens)]`, `rows` `[windows]` (the question of each
            window), `first_tokens` `[windows]` (index of the window's first token in its context), `is_max_context`
            `[windows, (tokens)]`, which is True in exactly one window for each token, and `is_cut` `[batch]`, whether
            the context has more than `max_windows`.
        """
        return split_questions(
            questions, contexts, self.sequence_length, self.stride, self.max_query_length, self.max_windows
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in a form that JSON can hold, the tokenizer as its own config."""
        own = {"stride": self.stride, "max_query_length": self.max_query_length, "max_windows": self.max_windows}
        return {**super().get_config(), **own}


def _place_marks(marks: tf.RaggedTensor, context_starts: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Places bool marks of context tokens [windows, (tokens)] at their positions in the rows [windows, length]."""
    window = marks.value_rowids()
    index = tf.range(tf.size(window)) - tf.cast(tf.gather(marks.row_starts(), window), tf.int32)
    positions = tf.stack([tf.cast(window, tf.int32), tf.gather(context_starts, window) + index], axis=1)
    return tf.scatter_nd(positions, tf.cast(marks.values, tf.int32), shape) > 0
