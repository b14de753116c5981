"""Every kind of head on a tiny encoder, with data to train it on."""

import numpy as np

import keras_bert
from keras_bert.data.batching import BUCKET_STEP, BatchPlan, training_batches
from keras_bert.data.label_values import MULTI_LABEL, REGRESSION
from keras_bert.training.loss import mean_loss_weights
from keras_bert.training.step import TrainStep
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_preprocessor, toy_reviews

CLASSIFIERS = {
    "single_label": {},
    "multi_label": {"labels": ["positive", "long"], "problem_type": MULTI_LABEL},
    "regression": {"labels": None, "problem_type": REGRESSION},
    "pairs": {},
    "windows": {},
    "lora": {"lora_rank": 2, "lora_alpha": 4, "lora_dropout": 0.1},
}
HEADS = (*CLASSIFIERS, "multiple_choice", "span_labeler", "token_classifier", "embedder", "pretrainer")


def make_head(kind):
    """Returns the head with random weights, the same at every call."""
    if kind == "windows":
        return toy_classifier(preprocessor=toy_preprocessor(sequence_length=6, long_texts="windows"))
    if kind in CLASSIFIERS:
        return toy_classifier(**CLASSIFIERS[kind])
    encoder = toy_encoder(num_hidden_layers=1)
    if kind == "multiple_choice":
        return keras_bert.BertMultipleChoice(encoder, toy_preprocessor(), seed=1)
    if kind == "embedder":
        return keras_bert.BertTextEmbedder(encoder, toy_preprocessor(), seed=1)
    tokenizer = keras_bert.BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=kind == "pretrainer")
    if kind == "span_labeler":
        return keras_bert.BertSpanLabeler(encoder, keras_bert.BertQuestionPreprocessor(tokenizer, 16, 4, 4), seed=1)
    if kind == "token_classifier":
        preprocessor = keras_bert.BertWordPreprocessor(tokenizer, 8)
        return keras_bert.BertTokenClassifier(encoder, ["O", "GOOD"], preprocessor, seed=1)
    return keras_bert.BertPretrainer(encoder, preprocessor=keras_bert.BertPreprocessor(tokenizer, 16), seed=1)


def make_data(kind, number=30):
    """Returns texts and labels for the head."""
    texts, labels = toy_reviews(number, seed=3)
    if kind in ("single_label", "windows", "lora"):
        return texts, labels
    if kind == "multi_label":
        return texts, [
            ["positive"] * (label == "positive") + ["long"] * (len(text.split()) > 5)
            for text, label in zip(texts, labels, strict=True)
        ]
    if kind == "regression":
        return texts, [len(text.split()) / 5 for text in texts]
    if kind == "pairs":
        return (texts, texts[::-1]), labels
    alternating = [number % 2 for number in range(number)]
    if kind == "multiple_choice":
        return {"prompt": texts, "choices": [[text, "good film"] for text in texts[::-1]]}, alternating
    if kind == "embedder":
        return (texts, texts[::-1]), None
    if kind == "span_labeler":
        spans = [(0, len(text.split()[0])) for text in texts]
        return {"question": ["the film"] * number, "context": texts}, spans
    if kind == "token_classifier":
        sentences = [text.split() for text in texts]
        return sentences, [["GOOD" if word in ("good", "great") else "O" for word in words] for words in sentences]
    return (texts, texts[::-1]), alternating


def train_by_trainer(head, x, y, epochs, batch_size, optimizer, strategy=None, first_epoch=0):
    """Trains as the Trainer does, with the batches of `fit`; returns the weights."""
    examples = head.training_examples(head.tokenize(x, y))
    plan = BatchPlan(examples.lengths, batch_size, bucket_step=BUCKET_STEP if head.batches_by_length else None, seed=1)
    weights = mean_loss_weights(head, examples, plan)
    step = TrainStep(head, optimizer, strategy, seed=1, mean_loss_weights=weights)
    batches = training_batches(examples, plan).skip(first_epoch * plan.batches_per_epoch)
    step.run(iter(batches), int(optimizer.iterations.numpy()), epochs * plan.batches_per_epoch)
    return trained_weights(head)


def trained_weights(head):
    """Returns all trainable weights as one array."""
    return np.concatenate([np.array(weight).ravel() for weight in head.trainable_weights])
