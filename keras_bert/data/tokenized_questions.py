"""Questions that were tokenized once, as windows of ids with all that is needed to answer them."""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.formats.squad_files import SquadQuestion
from keras_bert.data.tokenized_examples import TokenizedExamples, flatten_rows
from keras_bert.io.row_errors import quotation
from keras_bert.text.words import tokens_of_words

# Questions tokenized at once: enough to keep all cores busy, few enough that their text takes no memory to speak of.
_CHUNK_SIZE = 2048


class TokenizedQuestions(NamedTuple):
    """Windows of questions, and what says where they lie.

    Args:
        questions: list of `SquadQuestion`.
        windows: `TokenizedExamples` of `[CLS] question [SEP] window [SEP]`, one row each; its labels, where the
            questions are to be trained on, are int32 [windows, 2]: the first and last place of the answer in the row,
            or 0 and 0 where the window does not hold it.
        rows: int array [windows], ascending, the number of each window's question.
        context_starts: int array [windows], the place in its row at which the context begins.
        words: int array [tokens of all contexts], the word of each token of all windows' contexts, one window after
            another.
        is_max_context: bool array [tokens of all contexts], whether no other window has more around the token.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], True)
    >>> question = SquadQuestion("q1", "Where", "In Paris", ("Paris",), False, 1, 1)
    >>> preprocessor = keras_bert.BertQuestionPreprocessor(tokenizer, sequence_length=12, stride=4, max_query_length=4)
    >>> tokenized = tokenize_questions([question], preprocessor, to_train=True)
    >>> tokenized.windows.labels.tolist(), tokenized.words.tolist()
    ([[4, 4]], [0, 1])
    """

    questions: list
    windows: TokenizedExamples
    rows: np.ndarray
    context_starts: np.ndarray
    words: np.ndarray
    is_max_context: np.ndarray

    @property
    def context_lengths(self):
        """int array [windows]: the tokens of each window's context; [SEP] is behind them, unless there are none."""
        return np.maximum(self.windows.lengths - self.context_starts - 1, 0)


def tokenize_questions(questions, preprocessor, to_train=False):
    """Tokenizes questions and their contexts, and cuts them into windows.

    Source: `convert_examples_to_features` in google-research/bert run_squad.py.

    Args:
        questions: iterable of `SquadQuestion`; to train on them, with `first_word` and `last_word`.
        preprocessor: a `BertQuestionPreprocessor`.
        to_train: bool. Whether the answers' places are wanted.

    Returns:
        `TokenizedQuestions`.

    Raises:
        ValueError: if there are no questions, or one to train on lacks the place of its answer.
        TypeError: if one is no `SquadQuestion`.

    Example: as for `TokenizedQuestions`.
    """
    all_questions, parts = [], []
    questions = iter(questions)
    while chunk := list(itertools.islice(questions, _CHUNK_SIZE)):
        _check(chunk, to_train)
        parts.append(_tokenize(chunk, len(all_questions), preprocessor, to_train))
        all_questions += chunk
    if not parts:
        raise ValueError("there are no questions")
    ids, row_lengths, first_segments, rows, words, is_max_context, labels = (
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    )
    windows = TokenizedExamples(ids, row_lengths, first_segments, labels=labels, pad_id=preprocessor.tokenizer.pad_id)
    return TokenizedQuestions(all_questions, windows, rows, first_segments, words, is_max_context)


def _check(questions, to_train):
    for question in questions:
        if not isinstance(question, SquadQuestion):
            raise TypeError(f"a question must be a SquadQuestion, as read_squad gives them; got {quotation(question)}")
        if to_train and not question.is_impossible and None in (question.first_word, question.last_word):
            raise ValueError(
                f"question {question.id!r} has no first_word and last_word, the place of its answer, to train on; read "
                "the file with read_squad(path, to_train=True)"
            )


def _tokenize(questions, first_row, preprocessor, to_train):
    tokenizer = preprocessor.tokenizer
    numbers = {}  # of the contexts: each is tokenized once, and not for each of its questions
    of_question = [numbers.setdefault(question.context, len(numbers)) for question in questions]
    contexts, words = (tf.gather(ragged, of_question) for ragged in tokens_of_words(tokenizer, list(numbers)))
    windows = preprocessor.split(tokenizer.tokenize([question.question for question in questions]), contexts)
    packed = preprocessor.pack(windows.questions, windows.contexts)
    rows, first_tokens = windows.rows.numpy(), windows.first_tokens.numpy()
    lengths = windows.contexts.row_lengths().numpy()
    ids, row_lengths, first_segments = flatten_rows(packed, tokenizer.vocab_size)
    labels = None
    if to_train:
        answers = tokenizer.tokenize([next(iter(question.answers), "") for question in questions]).to_list()
        spans = [
            _answer_tokens(question, *of_row)
            for question, *of_row in zip(questions, _arrays(contexts), _arrays(words), answers, strict=True)
        ]
        labels = _places(np.array(spans, "int64")[rows], first_tokens, lengths, first_segments)
    # The words of the windows' tokens, by their places in the flat words of all contexts.
    begin = np.repeat(words.row_starts().numpy()[rows] + first_tokens, lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (
        ids,
        row_lengths,
        first_segments,
        rows + first_row,
        words.values.numpy()[begin + within],
        windows.is_max_context.values.numpy(),
        labels,
    )


def _arrays(ragged):
    """The rows of a ragged tensor, as arrays that share its memory."""
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


def _answer_tokens(question, context, words, answer):
    """The first and last token of the answer in its context; -1 and -1 for none."""
    if question.is_impossible:
        return -1, -1
    first, last = np.searchsorted(words, question.first_word), np.searchsorted(words, question.last_word, "right") - 1
    # `_improve_answer_span`: an answer that is a part of its words, such as a year in brackets, has fewer tokens.
    within = context[first : last + 1].tolist()
    for start in range(len(within) - len(answer) + 1):
        if answer and within[start : start + len(answer)] == answer:
            return first + start, first + start + len(answer) - 1
    return first, last


def _places(spans, first_tokens, lengths, context_starts):
    """The answers' places in the rows of their windows; 0, that of [CLS], where a window lacks a part of the answer."""
    first, last = spans.T
    inside = (first >= first_tokens) & (last < first_tokens + lengths) & (first >= 0)
    return np.where(inside[:, None], spans + (context_starts - first_tokens)[:, None], 0).astype("int32")
