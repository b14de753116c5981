"""The heads that are exported, with requests to each and the answers that its model gives by its own methods."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.models.feature_extractor import BertFeatureExtractor
from keras_bert.models.labels import MULTI_LABEL, REGRESSION
from keras_bert.models.multiple_choice import BertMultipleChoice, choice_ids
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from keras_bert.text.words import split_text
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_preprocessor

# Wide enough that the weights, and not the names beside them, make the size of the variables file.
SIZE = {"hidden_size": 64, "num_hidden_layers": 1}
TEXTS = ["a good film", "the plot was dull , and the film awful .", "Lovely!", "bad [MASK] [MASK]", "[MASK]"]
CONTEXTS = ["A good film was lovely.", "the plot, and the film\nwas dull " * 6, "a", "goodly plot", "bad . fine"]
HOSTILE = [
    b"",
    b" \t\r\n ",
    b"\xff\xfegood\xc3 film",
    b"\x00bad\x00 film",
    b"\x00",
    # 100 kB: hundreds of words, no two windows of them alike, and one word that never ends.
    " ".join(np.random.default_rng(0).choice(VOCABULARY[5:-1], 500)).encode() + b" " + b"goodly" * 15000,
    b"[CLS] [SEP] good [MASK] [PAD] [UNK]",
    "\U0001f469\u200d\U0001f4bb good \U0001f1eb\U0001f1ee e\u0301\u200d".encode(),
    "\u202egood\u202c שלום bad مرحبا".encode(),
    b"...",
    b"[MASK] \x00 \xff[ MASK ]",
]
# How the other process loads an export: by TensorFlow 1's session, or by `tf.saved_model.load` after saving it again.
WAYS = ("session", "resaved")


@dataclass(frozen=True)
class Head:
    """A head as `test_exports.py` takes it.

    Attributes:
        model: function that makes a small one.
        columns: dict of the name of each text input to a list of five texts, or of lists of them.
        hostile: the same, of whatever bytes a client may send.
        ids: function of the model and such a dict that gives the dict of ids of the signature `tokens`.
        answers: function of the model, with such a dict, that gives `{output name: rows}`, where rows may be shorter
            than others; with the model's own methods for users.
        answers_to_ids: function of the model and a dict of ids that does; or None where `answers` of the same columns
            are the answers.
        arguments: dict, of `export`.
        words: str or None: the text input that the further signature `words` takes by that name.
        joined: int, most rows that a server is told to join.
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
    """dict of name to `Head`."""
    text = {"columns": {"text": TEXTS}, "hostile": {"text": HOSTILE}}
    classifier = {"ids": preprocessed, "answers": classified}
    tags = {"ids": word_ids, "answers": tagged, "answers_to_ids": tag_logits, "words": "text"}
    return {
        "classifier": Head(classifier_of_a_lost_file, **text, **classifier),
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
            question_ids,
            answered,
            span_logits,
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
        "features": Head(feature_extractor, **text, ids=preprocessed, answers=embedded),
        "parts_of_speech": Head(lambda: token_classifier(["NOUN", "VERB"]), **text, **tags, in_session=False),
    }


def classifier_of_a_lost_file():
    """A classifier whose vocabulary came from a file that is gone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(VOCABULARY) + "\n")
        preprocessor = BertPreprocessor(BertTokenizer(file, lower_case=True), sequence_length=16)
    return toy_classifier(preprocessor=preprocessor, encoder_arguments=SIZE)


def pretrainer():
    """A pretrainer that reads [MASK] in texts."""
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    return BertPretrainer(toy_encoder(**SIZE), preprocessor=BertPreprocessor(tokenizer, 16), seed=1)


def span_labeler():
    """A span labeler that reads contexts in windows of a few words."""
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(with_pooler=False, **SIZE), preprocessor, seed=1)


def token_classifier(labels):
    """A token classifier that reads texts in windows of a few words."""
    preprocessor = BertWordPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), sequence_length=16)
    return BertTokenClassifier(toy_encoder(with_pooler=False, **SIZE), labels, preprocessor, seed=1)


def feature_extractor():
    """A feature extractor with more layers than one."""
    return BertFeatureExtractor(toy_encoder(**SIZE), toy_preprocessor(), layers=(-1, 0))


def embedded(model, columns):
    """The vectors of texts."""
    return {"embedding": model.embed(columns["text"])}


def preprocessed(model, columns):
    """The ids of the model's preprocessor."""
    return model.preprocessor({name: tf.constant(texts, tf.string) for name, texts in columns.items()})


def question_ids(model, columns):
    """The ids of every window of the contexts."""
    return model.preprocessor(columns["question"], columns["context"]).inputs


def word_ids(model, columns):
    """The ids of every window of the texts."""
    return model.preprocessor(split_text(columns["text"])[0]).inputs


def classified(model, columns):
    """What a classifier says of texts, or of pairs of them."""
    probabilities = model.predict_probabilities(columns)
    if model.problem_type == REGRESSION:
        return {"values": probabilities, **dict(zip(model.labels, probabilities.T, strict=True))}
    answers = {f"score_{label}": column for label, column in zip(model.labels, probabilities.T, strict=True)}
    answers |= {"probabilities": probabilities, "label": [model.labels[i] for i in probabilities.argmax(axis=1)]}
    if model.problem_type == MULTI_LABEL:
        held = model.predict_labels(columns)
        answers["labels"] = [[label if label in row else "" for label in model.labels] for row in held]
    return answers


def filled(model, columns):
    """The words of a pretrainer for each mask."""
    texts = model.fill_masks(columns["text"], top=3)
    return {
        "words": [[[word for word, _ in mask] for mask in masks] for masks in texts],
        "probabilities": [[[probability for _, probability in mask] for mask in masks] for masks in texts],
        "masks": [len(masks) for masks in texts],
    }


def answered(model, columns):
    """The answers of a span labeler."""
    questions, contexts = columns["question"], [as_bytes(context) for context in columns["context"]]
    found = model.answer(questions, contexts, n_best=20, max_answer_length=5)
    # The null answer stands first, with its score, where the threshold is low enough.
    null = model.answer(questions, contexts, null_threshold=-1e30)
    several = {
        "answers": [[answer["text"] for answer in answers] for answers in found],
        "scores": [[answer["score"] for answer in answers] for answers in found],
    }
    for place in ("start", "end"):
        characters = several[f"{place}_characters"] = [[answer[place] for answer in answers] for answers in found]
        several[f"{place}_bytes"] = list(map(bytes_of, contexts, characters))
    best = {
        name.removesuffix("s"): [row[0] if row else "" if name == "answers" else 0 for row in rows]
        for name, rows in several.items()
    }
    null_scores = [answers[0]["score"] for answers in null]
    return {**best, "null_score": null_scores, **{f"n_best_{name}": rows for name, rows in several.items()}}


def span_logits(model, ids):
    """The logits of a span labeler."""
    return {name: logits.numpy() for name, logits in model(ids).items()}


def chosen(model, columns):
    """The choices of a model of multiple choice."""
    logits = model.predict(columns)
    empty = np.array([[as_bytes(choice) == b"" for choice in choices] for choices in columns["choices"]])
    logits[empty & ~empty.all(axis=1, keepdims=True)] = -np.inf
    choices = logits.argmax(axis=1).tolist()
    texts = [
        as_bytes(row[choice]).decode("utf-8", "replace")
        for row, choice in zip(columns["choices"], choices, strict=True)
    ]
    return {"probabilities": softmax(logits), "choice": choices, "text": texts}


def chosen_by_ids(model, ids):
    """The choices by ids, which do not say what was empty."""
    logits = model(ids).numpy()
    return {"probabilities": softmax(logits), "choice": logits.argmax(axis=1)}


def tagged(model, columns):
    """The tags of a token classifier, and its entities where it has some."""
    texts = [as_bytes(text) for text in columns["text"]]
    described = model.tag(texts)
    answers = items_of(texts, [text["words"] for text in described], "", {"words": "text", "tags": "tag"})
    answers["word_count"] = [len(text["words"]) for text in described]
    if "entities" in described[0]:
        names = {"entities": "text", "entity_types": "type"}
        answers |= items_of(texts, [text["entities"] for text in described], "entity_", names)
        answers["entity_count"] = [len(text["entities"]) for text in described]
    return answers


def items_of(texts, items, prefix, names):
    """The columns of words or of entities, with their places."""
    keys = {**names, f"{prefix}scores": "score", **{f"{prefix}{key}_characters": key for key in ("start", "end")}}
    columns = {name: [[item[key] for item in row] for row in items] for name, key in keys.items()}
    for place in ("start", "end"):
        columns[f"{prefix}{place}_bytes"] = list(map(bytes_of, texts, columns[f"{prefix}{place}_characters"]))
    return columns


def tag_logits(model, ids):
    """The tags of a token classifier for each token."""
    logits = model(ids).numpy()
    return {"probabilities": softmax(logits), "tags": np.array(model.labels, object)[logits.argmax(axis=-1)]}


def softmax(logits):
    """The shares of the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def bytes_of(text, characters):
    """The bytes at which characters of UTF-8 begin, or end."""
    begins = [*(place for place, byte in enumerate(text) if byte & 0xC0 != 0x80), len(text)]
    return [begins[character] for character in characters]


def as_bytes(text):
    """A text as a client sends it."""
    return text if isinstance(text, bytes) else text.encode()
