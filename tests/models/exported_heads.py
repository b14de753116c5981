"""The exported heads, with requests to each and the answers of its model's own methods."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.models.labels import MULTI_LABEL, REGRESSION
from keras_bert.models.multiple_choice import BertMultipleChoice, choice_ids
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from keras_bert.text.words import split_text
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_preprocessor

# Wide enough that the weights, and not their names, determine the size of the variables file.
SIZE = {"hidden_size": 64, "num_hidden_layers": 1}
TEXTS = ["a good film", "the plot was dull , and the film awful .", "Lovely!", "bad [MASK] [MASK]", "[MASK]"]
CONTEXTS = ["A good film was lovely.", "the plot, and the film\nwas dull " * 6, "a", "goodly plot", "bad . fine"]
HOSTILE = [
    b"",
    b" \t\r\n ",
    b"\xff\xfegood\xc3 film",
    b"\x00bad\x00 film",
    b"\x00",
    # 100 kB: hundreds of words, no two windows of them alike, and one very long word.
    " ".join(np.random.default_rng(0).choice(VOCABULARY[5:-1], 500)).encode() + b" " + b"goodly" * 15000,
    b"[CLS] [SEP] good [MASK] [PAD] [UNK]",
    "\U0001f469\u200d\U0001f4bb good \U0001f1eb\U0001f1ee e\u0301\u200d".encode(),
    "\u202egood\u202c שלום bad مرحبا".encode(),
    b"...",
    b"[MASK] \x00 \xff[ MASK ]",
]


@dataclass(frozen=True)
class Head:
    """An exported head.

    Attributes:
        model: function that makes a small one.
        columns: dict of the name of each text input to a list of five texts, or of lists of them.
        hostile: the same, with any bytes that a client may send.
        ids: function of the model and such a dict that returns the dict of ids of the signature `tokens`.
        answers: function of the model and such a dict that returns `{output name: rows}` by the model's own methods;
            rows may have different lengths.
        answers_to_ids: the same for a dict of ids; None if the answers are those to `columns`.
        arguments: arguments of `export`.
        words: name of the text input that the additional signature `words` takes, or None.
        joined: maximum number of rows that a server joins.
        in_session: whether the other process runs it; False for a head that differs from another only in its outputs.
    """

    model: Callable
    columns: dict[str, list]
    hostile: dict[str, list]
    ids: Callable
    answers: Callable
    answers_to_ids: Callable | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    words: str | None = None
    joined: int = 32
    in_session: bool = True


def heads():
    """Returns each `Head` by its name."""
    text = {"columns": {"text": TEXTS}, "hostile": {"text": HOSTILE}}
    classifier = {"ids": preprocessed, "answers": classified}
    tags = {"ids": word_ids, "answers": tagged, "answers_to_ids": tag_logits, "words": "text"}
    return {
        "classifier": Head(classifier_of_a_deleted_file, **text, **classifier),
        "pairs": Head(
            lambda: toy_classifier(["sad", "short", "old"], SIZE, problem_type=MULTI_LABEL),
            {"text_a": TEXTS, "text_b": CONTEXTS},
            {"text_a": HOSTILE, "text_b": HOSTILE[::-1]},
            **classifier,
            arguments={"pairs": True},
            in_session=False,
        ),
        "regression": Head(
            lambda: toy_classifier(["stars", "words"], SIZE, problem_type=REGRESSION),
            **text,
            **classifier,
            in_session=False,
        ),
        "pretrainer": Head(pretrainer, **text, ids=preprocessed, answers=filled, arguments={"top": 3}),
        "span_labeler": Head(
            span_labeler,
            {"question": TEXTS, "context": CONTEXTS},
            {"question": HOSTILE, "context": HOSTILE[::-1]},
            lambda model, columns: model.preprocessor(columns["question"], columns["context"]).inputs,
            answered,
            lambda model, ids: {name: logits.numpy() for name, logits in model(ids).items()},
            arguments={"max_answer_length": 5},
            joined=8,
        ),
        "multiple_choice": Head(
            lambda: BertMultipleChoice(toy_encoder(**SIZE), toy_preprocessor(), seed=1),
            {"prompt": TEXTS, "choices": [[text, "good", "a plot"] for text in CONTEXTS]},
            {"prompt": HOSTILE, "choices": [[text, b"good"] for text in HOSTILE]},
            lambda model, columns: choice_ids(model.preprocessor, columns["prompt"], columns["choices"]),
            chosen,
            chosen_by_ids,
            joined=8,
        ),
        "token_classifier": Head(lambda: token_classifier(["O", "B-good", "I-good", "B-bad", "I-bad"]), **text, **tags),
        "embedder": Head(
            lambda: BertTextEmbedder(toy_encoder(with_pooler=False, **SIZE), toy_preprocessor(), projection=32, seed=1),
            **text,
            ids=preprocessed,
            answers=lambda model, columns: {"embedding": model.encode(columns["text"])},
        ),
        "parts_of_speech": Head(lambda: token_classifier(["NOUN", "VERB"]), **text, **tags, in_session=False),
    }


def classifier_of_a_deleted_file():
    """Returns a classifier whose vocabulary file no longer exists."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(VOCABULARY) + "\n")
        preprocessor = BertPreprocessor(BertTokenizer(file, lower_case=True), sequence_length=16)
    return toy_classifier(preprocessor=preprocessor, encoder_arguments=SIZE)


def pretrainer():
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    return BertPretrainer(toy_encoder(**SIZE), preprocessor=BertPreprocessor(tokenizer, 16), seed=1)


def span_labeler():
    """Returns a span labeler with windows of a few words."""
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(with_pooler=False, **SIZE), preprocessor, seed=1)


def token_classifier(labels):
    """Returns a token classifier with windows of a few words."""
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True)
    preprocessor = BertWordPreprocessor(tokenizer, sequence_length=16, max_windows=100)
    return BertTokenClassifier(toy_encoder(with_pooler=False, **SIZE), labels, preprocessor, seed=1)


def preprocessed(model, columns):
    return model.preprocessor({name: tf.constant(texts, tf.string) for name, texts in columns.items()})


def word_ids(model, columns):
    return model.preprocessor(split_text(columns["text"])[0]).inputs


def classified(model, columns):
    probabilities = model.predict_probabilities(columns)
    by_label = dict(zip(model.labels, probabilities.T, strict=True))
    if model.problem_type == REGRESSION:
        return {"values": probabilities, **by_label}
    answers = {f"score_{label}": column for label, column in by_label.items()}
    answers |= {"probabilities": probabilities, "label": [model.labels[i] for i in probabilities.argmax(axis=1)]}
    if model.problem_type == MULTI_LABEL:
        predicted = model.predict_labels(columns)
        answers["labels"] = [[label if label in row else "" for label in model.labels] for row in predicted]
    return answers


def filled(model, columns):
    texts = model.fill_masks(columns["text"], top=3)
    return {
        "words": [[[word for word, _ in mask] for mask in masks] for masks in texts],
        "word_ids": [[[VOCABULARY.index(word) for word, _ in mask] for mask in masks] for masks in texts],
        "probabilities": [[[probability for _, probability in mask] for mask in masks] for masks in texts],
        "masks": [len(masks) for masks in texts],
    }


def answered(model, columns):
    questions, contexts = columns["question"], [as_bytes(context) for context in columns["context"]]
    found = model.answer(questions, contexts, n_best=20, max_answer_length=5)
    # With so low a threshold, the null answer is first, with its score.
    null = model.answer(questions, contexts, null_threshold=-1e30)
    names = {"answers": "text", "scores": "score", "start_characters": "start", "end_characters": "end"}
    several = {name: [[answer[key] for answer in answers] for answers in found] for name, key in names.items()}
    for key in ("start", "end"):
        several[f"{key}_bytes"] = list(map(byte_offsets, contexts, several[f"{key}_characters"]))
    best = {
        name.removesuffix("s"): [row[0] if row else "" if name == "answers" else 0 for row in rows]
        for name, rows in several.items()
    }
    prepared = model.preprocessor(questions, contexts)
    windows = np.bincount(prepared.rows, minlength=len(contexts))
    best |= {"num_windows": windows, "truncated": prepared.is_cut.numpy()}
    null_scores = [answers[0]["score"] for answers in null]
    return {**best, "null_score": null_scores, **{f"n_best_{name}": rows for name, rows in several.items()}}


def chosen(model, columns):
    logits = model.predict(columns)
    empty = np.array([[as_bytes(choice) == b"" for choice in choices] for choices in columns["choices"]])
    logits[empty & ~empty.all(axis=1, keepdims=True)] = -np.inf
    choices = logits.argmax(axis=1).tolist()
    texts = [as_bytes(row[i]).decode("utf-8", "replace") for row, i in zip(columns["choices"], choices, strict=True)]
    return {"probabilities": softmax(logits), "choice": choices, "text": texts}


def chosen_by_ids(model, ids):
    """Returns the choices by ids, which do not tell which choices are empty."""
    logits = model(ids).numpy()
    return {"probabilities": softmax(logits), "choice": logits.argmax(axis=1)}


def tagged(model, columns):
    texts = [as_bytes(text) for text in columns["text"]]
    described = model.tag(texts)
    answers = columns_of(texts, [text["words"] for text in described], "", {"words": "text", "tags": "tag"})
    answers["word_count"] = [len(text["words"]) for text in described]
    answers["num_windows"] = model.preprocessor(split_text(columns["text"])[0]).num_windows.numpy()
    answers["truncated"] = [False] * len(texts)  # there are not that many windows
    if "entities" in described[0]:
        names = {"entities": "text", "entity_types": "type"}
        answers |= columns_of(texts, [text["entities"] for text in described], "entity_", names)
        answers["entity_count"] = [len(text["entities"]) for text in described]
    return answers


def columns_of(texts, items, prefix, names):
    """Returns the columns of words or of entities, with their offsets."""
    keys = {**names, f"{prefix}scores": "score", **{f"{prefix}{key}_characters": key for key in ("start", "end")}}
    columns = {name: [[item[key] for item in row] for row in items] for name, key in keys.items()}
    for key in ("start", "end"):
        columns[f"{prefix}{key}_bytes"] = list(map(byte_offsets, texts, columns[f"{prefix}{key}_characters"]))
    return columns


def tag_logits(model, ids):
    logits = model(ids).numpy()
    return {"probabilities": softmax(logits), "tags": np.array(model.labels, object)[logits.argmax(axis=-1)]}


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def byte_offsets(text, characters):
    """Converts offsets in characters to offsets in bytes of UTF-8."""
    offsets = [*(offset for offset, byte in enumerate(text) if byte & 0xC0 != 0x80), len(text)]
    return [offsets[character] for character in characters]


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()
