"""Questions tokenized once: windows of ids, and what is needed to answer the questions from them."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.formats.squad_files import SquadQuestion
from keras_bert.data.tokenized_examples import TokenizedExamples, flatten_rows, warn_of_cut_texts
from keras_bert.io.row_errors import quotation
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.words import tokens_of_words

# Questions tokenized at once: enough to keep all cores busy, few enough that their text takes little memory.
_CHUNK_SIZE = 2048


class TokenizedQuestions(NamedTuple):
    """Windows of questions, and their positions in the contexts.

    The windows are rows `[CLS] question [SEP] window [SEP]`; their labels, for training, are int32 [windows, 2]: the
    first and last position of the answer in the row, or 0 and 0 if the window lacks it.
    """

    questions: list[SquadQuestion]
    windows: TokenizedExamples
    rows: np.ndarray  # int [windows], ascending: the index of each window's question
    context_starts: np.ndarray  # int [windows]: the position in its row at which the context starts
    words: np.ndarray  # int [tokens of all contexts]: the word of each token, one window after another
    is_max_context: np.ndarray  # bool [tokens of all contexts]: whether no other window has more context for the token

    @property
    def context_lengths(self) -> np.ndarray:
        """Int array [windows]: the tokens of each window's context, which [SEP] follows unless there are none."""
        return np.maximum(self.windows.lengths - self.context_starts - 1, 0)


def tokenize_questions(
    questions: Iterable[SquadQuestion], preprocessor: BertQuestionPreprocessor, to_train: bool = False
) -> TokenizedQuestions:
    """Tokenizes questions and contexts, and splits them into windows; with `to_train`, locates the answers.

    Source: `convert_examples_to_features` in google-research/bert run_squad.py. Raises ValueError if there are no
    questions, or a question to train on lacks the position of its answer.
    """
    all_questions: list[SquadQuestion] = []
    parts = []
    questions = iter(questions)
    while chunk := list(itertools.islice(questions, _CHUNK_SIZE)):
        _check(chunk, to_train)
        parts.append(_tokenize_chunk(chunk, len(all_questions), preprocessor, to_train))
        all_questions += chunk
    if not parts:
        raise ValueError("there are no questions")
    ids, row_lengths, first_segments, rows, words, is_max_context, *labels = map(
        np.concatenate, zip(*parts, strict=True)
    )
    windows = TokenizedExamples(
        ids, row_lengths, first_segments, labels=labels[0] if to_train else None, pad_id=preprocessor.tokenizer.pad_id
    )
    return TokenizedQuestions(all_questions, windows, rows, first_segments, words, is_max_context)


def _check(questions: Sequence[SquadQuestion], to_train: bool) -> None:
    for question in questions:
        if not isinstance(question, SquadQuestion):
            raise TypeError(f"a question must be a SquadQuestion, as read_squad yields; got {quotation(question)}")
        if to_train and not question.is_impossible and None in (question.first_word, question.last_word):
            raise ValueError(
                f"question {question.id!r} has no first_word and last_word, the position of its answer, to train on; "
                "read the file with read_squad(path, to_train=True)"
            )


def _tokenize_chunk(
    questions: Sequence[SquadQuestion], first_row: int, preprocessor: BertQuestionPreprocessor, to_train: bool
) -> tuple[np.ndarray, ...]:
    tokenizer = preprocessor.tokenizer
    distinct: dict[str, int] = {}  # each context is tokenized once, not for each of its questions
    indices = [distinct.setdefault(question.context, len(distinct)) for question in questions]
    contexts, words = (tf.gather(ragged, indices) for ragged in tokens_of_words(tokenizer, list(distinct)))
    windows = preprocessor.split(tokenizer.tokenize([question.question for question in questions]), contexts)
    warn_of_cut_texts(windows.is_cut, preprocessor)
    packed = preprocessor.pack(windows.questions, windows.contexts)
    rows, first_tokens = windows.rows.numpy(), windows.first_tokens.numpy()
    lengths = windows.contexts.row_lengths().numpy()
    ids, row_lengths, first_segments = flatten_rows(packed, tokenizer.vocab_size)
    labels: tuple[np.ndarray, ...] = ()
    if to_train:
        answers = tokenizer.tokenize([next(iter(question.answers), "") for question in questions]).to_list()
        spans = [
            _answer_tokens(question, *row)
            for question, *row in zip(questions, _split_rows(contexts), _split_rows(words), answers, strict=True)
        ]
        labels = (_answer_positions(np.array(spans, "int64")[rows], first_tokens, lengths, first_segments),)
    # The words of the windows' tokens, by their positions in the flat words of all contexts.
    begin = np.repeat(words.row_starts().numpy()[rows] + first_tokens, lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (
        ids,
        row_lengths,
        first_segments,
        rows + first_row,
        words.values.numpy()[begin + within],
        windows.is_max_context.values.numpy(),
        *labels,
    )


def _split_rows(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    """Returns the rows of a ragged tensor as arrays that share its memory."""
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


def _answer_tokens(
    question: SquadQuestion, context: np.ndarray, words: np.ndarray, answer: list[int]
) -> tuple[int, int]:
    """Returns the first and last token of the answer in its context; -1 and -1 for an impossible question."""
    if question.first_word is None or question.last_word is None or question.is_impossible:
        return -1, -1
    first = int(np.searchsorted(words, question.first_word))
    last = int(np.searchsorted(words, question.last_word, "right")) - 1
    # `_improve_answer_span`: an answer that is a part of its words, such as a year in brackets, has fewer tokens.
    tokens = context[first : last + 1].tolist()
    for start in range(len(tokens) - len(answer) + 1):
        if answer and tokens[start : start + len(answer)] == answer:
            return first + start, first + start + len(answer) - 1
    return first, last


def _answer_positions(
    spans: np.ndarray, first_tokens: np.ndarray, lengths: np.ndarray, context_starts: np.ndarray
) -> np.ndarray:
    """Returns the answers' positions in the rows of their windows; 0, that of [CLS], for windows that lack a part."""
    first, last = spans.T
    inside = (first >= first_tokens) & (last < first_tokens + lengths) & (first >= 0)
    return np.where(inside[:, None], spans + (context_starts - first_tokens)[:, None], 0).astype("int32")
