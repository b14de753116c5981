"""Models and texts small enough for any test."""

import numpy as np

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.tokenizer import BertTokenizer

GOOD_WORDS, BAD_WORDS = ["good", "fine", "lovely", "great"], ["bad", "poor", "awful", "dull"]
OTHER_WORDS = ["a", "the", "film", "plot", "was", "and", ",", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD_WORDS, *BAD_WORDS, *OTHER_WORDS, "##ly"]


def toy_encoder(**arguments):
    """A two-layer encoder of width 16, whose longest sums have 64 terms, for `VOCABULARY`."""
    defaults = {"vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    defaults |= {"max_position_embeddings": 32, "initializer_range": 0.2, "seed": 1}
    return BertEncoder(**{**defaults, **arguments})


def toy_preprocessor(**arguments):
    """A preprocessor for `VOCABULARY`."""
    return BertPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), **{"sequence_length": 16, **arguments})


def toy_classifier(labels=("negative", "positive"), encoder_arguments=None, **arguments):
    """A classifier on a one-layer `toy_encoder`, with random weights."""
    defaults = {"preprocessor": toy_preprocessor(), "seed": 1}
    labels = list(labels) if isinstance(labels, tuple) else labels
    encoder = toy_encoder(**{"num_hidden_layers": 1, **(encoder_arguments or {})})
    return BertClassifier(encoder, labels, **{**defaults, **arguments})


def toy_reviews(count, seed=0):
    """Returns texts of various lengths with one good or bad word each, and their label names."""
    generator = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        positive = bool(generator.integers(2))
        words = list(generator.choice(OTHER_WORDS, generator.integers(1, 9)))
        words.insert(generator.integers(len(words) + 1), str(generator.choice(GOOD_WORDS if positive else BAD_WORDS)))
        texts.append(" ".join(words))
        labels.append("positive" if positive else "negative")
    return texts, labels


def toy_questions(count, seed=0):
    """Returns questions with three choices, one of which ends in a good word, and the index of that choice."""
    generator = np.random.default_rng(seed)
    prompts, choices, labels = [], [], []
    for _ in range(count):
        label = int(generator.integers(3))
        prompts.append(" ".join(generator.choice(OTHER_WORDS, generator.integers(1, 4))))
        words = [list(generator.choice(OTHER_WORDS, generator.integers(1, 4))) for _ in range(3)]
        words[label].append(str(generator.choice(GOOD_WORDS)))
        choices.append([" ".join(choice) for choice in words])
        labels.append(label)
    return {"prompt": prompts, "choices": choices}, labels


def toy_sentences(count, seed=0):
    """Returns sentences in which runs of good and of bad words are entities, and their IOB2 tags."""
    generator = np.random.default_rng(seed)
    sentences, tags = [], []
    for _ in range(count):
        words, word_tags = [], []
        for _ in range(int(generator.integers(1, 5))):
            kind, vocabulary = [("good", GOOD_WORDS), ("bad", BAD_WORDS), (None, OTHER_WORDS)][generator.integers(3)]
            run = generator.choice(vocabulary, generator.integers(1, 4)).tolist()
            if kind is not None:
                words.append("the")
                word_tags.append("O")
            words += run
            word_tags += ["O" if kind is None else f"{'I' if index else 'B'}-{kind}" for index in range(len(run))]
        sentences.append(words)
        tags.append(word_tags)
    return sentences, tags
