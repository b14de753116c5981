"""Small corpora, and checks of files and batches of instances."""

import json
import random

import numpy as np
import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer

WORDS = ["river", "stone", "light", "walked", "bright", "early", "often", "night", "garden", "slow", "##ly", "##s"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def tokenizer():
    """Returns a tokenizer of `VOCABULARY`."""
    return BertTokenizer(VOCABULARY, lower_case=True)


def random_text(seed, documents=20, sentences=8, words=9):
    """Returns prepared text with one sentence per line."""
    generator = random.Random(seed)
    parts = []
    for _ in range(documents):
        for _ in range(generator.randint(1, sentences)):
            chosen = (generator.choice(WORDS[:-2]) + generator.choice(["", "ly", "s"]) for _ in range(words))
            parts.append(" ".join(chosen) + "\n")
        parts.append("\n")
    return "".join(parts)


def write_corpus(folder, files=2, **sizes):
    """Writes files of random text to a new folder; returns their paths."""
    folder.mkdir()
    paths = [folder / f"{number}.txt" for number in range(files)]
    for number, path in enumerate(paths):
        path.write_text(random_text(number, **sizes))
    return [str(path) for path in paths]


def write_vocabulary(path, vocabulary=VOCABULARY):
    """Writes a vocabulary; returns its path."""
    path.write_text("\n".join(vocabulary) + "\n")
    return str(path)


def records(path, compression=None):
    """Returns the records of a file, as bytes."""
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path), compression)]


def features(record):
    """Returns the features of a record by name, as lists."""
    found = tf.train.Example.FromString(record).features.feature
    return {name: list(value.int64_list.value or value.float_list.value) for name, value in found.items()}


def contents(folder):
    """Returns the contents of all files of a folder by name, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def sidecars(folder):
    """Returns the sidecars of a folder, in the order of their files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("pretraining-*.json"))]


def rows(batches):
    """Returns each instance as bytes."""
    found = []
    for batch in batches:
        columns = [np.asarray(batch[name]).reshape([len(batch["token_ids"]), -1]) for name in sorted(batch)]
        found += [b"".join(column[row].tobytes() for column in columns) for row in range(len(columns[0]))]
    return found


def assert_is_batch(batch, batch_size, length, predictions):
    """Checks the shapes and types of a batch of instances, or of its specification."""
    assert {name: tuple(each.shape) for name, each in batch.items()} == {
        **dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), (batch_size, length)),
        **dict.fromkeys(("masked_positions", "masked_labels", "masked_weights"), (batch_size, predictions)),
        "next_sentence_labels": (batch_size,),
    }
    assert all(each.dtype == ("float32" if name == "masked_weights" else "int32") for name, each in batch.items())


def restored(dataset, position, path, restored_dataset=None):
    """Returns an iterator restored from one saved after `position` elements, of the same dataset or an equal one."""
    iterator = iter(dataset)
    for _ in range(position):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(path))
    iterator = iter(restored_dataset or dataset)
    tf.train.Checkpoint(iterator=iterator).read(saved)
    return iterator
