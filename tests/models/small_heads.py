"""Every kind of head on a tiny encoder, with data to train it on."""

import keras
import numpy as np

import keras_bert
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor, toy_reviews

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "num_hidden_layers": 1}
HEADS = (
    "single_label",
    "multi_label",
    "regression",
    "pairs",
    "windows",
    "multiple_choice",
    "span_labeler",
    "token_classifier",
    "pretrainer",
)
CLASSIFIERS = HEADS[:5]


def make_head(kind):
    """The head with random weights, the same at every call."""
    encoder = toy_encoder(**DROPOUT)
    tokenizer = keras_bert.BertTokenizer(VOCABULARY, lower_case=True)
    if kind == "multi_label":
        return keras_bert.BertClassifier(
            encoder, ["positive", "long"], toy_preprocessor(), "multi_label_classification", seed=1
        )
    if kind == "regression":
        return keras_bert.BertClassifier(encoder, None, toy_preprocessor(), "regression", seed=1)
    if kind == "windows":
        preprocessor = toy_preprocessor(sequence_length=6, long_texts="windows")
        return keras_bert.BertClassifier(encoder, ["negative", "positive"], preprocessor, seed=1)
    if kind in CLASSIFIERS:
        return keras_bert.BertClassifier(encoder, ["negative", "positive"], toy_preprocessor(), seed=1)
    if kind == "multiple_choice":
        return keras_bert.BertMultipleChoice(encoder, toy_preprocessor(), seed=1)
    if kind == "span_labeler":
        return keras_bert.BertSpanLabeler(encoder, keras_bert.BertQuestionPreprocessor(tokenizer, 16, 4, 4), seed=1)
    if kind == "token_classifier":
        return keras_bert.BertTokenClassifier(
            encoder, ["O", "GOOD"], keras_bert.BertWordPreprocessor(tokenizer, 8), seed=1
        )
    with_masks = keras_bert.BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    preprocessor = keras_bert.BertPreprocessor(with_masks, 16)
    return keras_bert.BertPretrainer(encoder, preprocessor=preprocessor, seed=1)


def make_data(kind, number=30):
    """Texts and labels for the head."""
    texts, labels = toy_reviews(number, seed=3)
    if kind in ("single_label", "windows"):
        return texts, labels
    if kind == "multi_label":
        return texts, [
            [
                name
                for name, holds in zip(("positive", "long"), (label == "positive", len(text.split()) > 5), strict=True)
                if holds
            ]
            for text, label in zip(texts, labels, strict=True)
        ]
    if kind == "regression":
        return texts, [len(text.split()) / 5 for text in texts]
    if kind == "pairs":
        return (texts, texts[::-1]), labels
    if kind == "multiple_choice":
        choices = [[text, "good film"] for text in texts[::-1]]
        return {"prompt": texts, "choices": choices}, [number % 2 for number in range(number)]
    if kind == "span_labeler":
        spans = [(0, len(text.split()[0])) for text in texts]
        return {"question": ["the film"] * number, "context": texts}, spans
    if kind == "token_classifier":
        sentences = [text.split() for text in texts]
        return sentences, [["GOOD" if word in ("good", "great") else "O" for word in words] for words in sentences]
    head = make_head(kind)  # as ids, whose masks do not depend on the epoch
    pairs = head.tokenize((texts, texts[::-1]), [number % 2 for number in range(number)])
    return keras.tree.map_structure(lambda tensor: tensor.numpy(), head.training_examples(pairs).batch(range(number)))


def train_by_trainer(head, examples, epochs, batch_size, optimizer, strategy=None, seed=1):
    """Trains as the Trainer does, with the plan of `fit`."""
    from keras_bert.data.batching import BUCKET_STEP, BatchPlan, training_batches
    from keras_bert.training.loss import mean_loss_weights
    from keras_bert.training.step import TrainStep

    bucket_step = BUCKET_STEP if head.batches_by_length else None
    plan = BatchPlan(examples.lengths, batch_size, bucket_step=bucket_step, seed=seed)
    weights = mean_loss_weights(head, examples, plan)
    step = TrainStep(head, optimizer, strategy, seed=seed, mean_loss_weights=weights)
    step.run(iter(training_batches(examples, plan)), 0, epochs * plan.batches_per_epoch)
    return trained_weights(head)


def trained_weights(head):
    """All trainable weights as one array."""
    return np.concatenate([np.array(weight).ravel() for weight in head.trainable_weights])
