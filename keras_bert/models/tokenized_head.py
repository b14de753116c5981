"""Heads whose examples are tokenized before training begins: Keras' own `fit` and `evaluate` on what a user writes."""

import itertools
from collections.abc import Iterator

import keras

from keras_bert.io.row_errors import quotation
from keras_bert.models.head import DEFAULT_BATCH_SIZE, BertHead
from keras_bert.models.inference import Predictor


class TokenizedHead(BertHead):
    """A head that makes `TokenizedExamples` of what a user writes, and trains on batches of them.

    A subclass says how (`tokenize`), and which examples come together (`sorts_by_length`) and what
    reads texts where Keras' `predict` does not (`text_hint`). Ids in memory, datasets and generators of ids and numbers
    are handed to Keras as they are.

    Args:
        encoder, preprocessor, freeze, name, dtype: as for `BertHead`.
        seed: int or None. Seed of the new layers, and of the order in which `fit` visits the examples.

    Raises:
        ValueError: as `BertHead`.
    """

    # Whether `fit` and `evaluate` put examples of like length together. Each batch has its own mean loss, so that heads
    # whose examples weigh the more, the longer they are, must take them as they come.
    sorts_by_length = True
    # For a message: what to do with texts, which `predict` does not take.
    text_hint = ""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._predictor = Predictor(self.predicted)

    def tokenize(self, x, y=None):
        """Examples as a user writes them, as `TokenizedExamples`; with labels, if they are given."""
        raise NotImplementedError

    @staticmethod
    def predicted(model, batch):
        """The outputs of a batch of ids as one tensor, rows first, for `outputs`."""
        return model(batch, training=False)

    def fit(self, x=None, y=None, batch_size=None, epochs=1, verbose="auto", shuffle=True, **kwargs):
        """Trains on examples; Keras' `fit` with the same arguments.

        Args:
            x, y: examples and their labels, as `tokenize` takes them; or ids, or a dataset or generator of batches of
                ids and labels, as Keras does.
            batch_size: int. Examples in a batch, of like length if the model `sorts_by_length`; 32 if None.
            epochs, verbose, shuffle: as in Keras.
            **kwargs: as in Keras; `validation_data` may be a pair of examples and labels.

        Returns:
            A Keras History.

        Raises:
            ValueError, TypeError: on examples or labels that do not fit the model.
        """
        self.require_compiled("fit")
        x = _listed(x)
        validation = kwargs.get("validation_data")
        if isinstance(validation, (tuple, list)) and len(validation) == 2 and not _is_for_keras(validation[0]):
            size = kwargs.pop("validation_batch_size", None) or batch_size
            kwargs["validation_data"] = self._evaluation_batches(*validation, size)
        if _is_for_keras(x):
            return super().fit(x, y, batch_size, epochs, verbose, shuffle=shuffle, **kwargs)
        from keras_bert.data.batching import training_batches

        examples = self._labelled(x, y)
        plan = self._plan(examples, batch_size, self.next_shuffle_seed() if shuffle else None)
        kwargs.setdefault("steps_per_epoch", plan.batches_per_epoch)
        return super().fit(training_batches(examples, plan), epochs=epochs, verbose=verbose, shuffle=False, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", **kwargs):
        """The loss, and metrics if `compile` was given some; Keras' `evaluate` with the same arguments.

        Args:
            x, y, batch_size: as for `fit`.
            verbose, **kwargs: as in Keras.

        Returns:
            What Keras returns: a list of numbers, or a dict with `return_dict=True`.
        """
        self.require_compiled("evaluate")
        x = _listed(x)
        if _is_for_keras(x):
            return super().evaluate(x, y, batch_size, verbose, **kwargs)
        return super().evaluate(self._evaluation_batches(x, y, batch_size), verbose=verbose, **kwargs)

    def predict(self, x, batch_size=None, verbose="auto", **kwargs):
        """What the model gives for ids; Keras' `predict` with the same arguments.

        Args:
            x: ids, or a dataset or generator of them, as Keras takes them.
            batch_size, verbose, **kwargs: as in Keras.

        Returns:
            What `call` gives, as NumPy arrays.

        Raises:
            ValueError: on anything else, such as texts.
        """
        x = _listed(x)
        if not _is_for_keras(x):
            raise ValueError(
                f"`predict` takes ids, a dict with token_ids, or a dataset or generator of them; got {quotation(x)}. "
                f"{self.text_hint}"
            )
        return super().predict(x, batch_size, verbose, **kwargs)

    def outputs(self, examples, batch_size=None, verbose=0):
        """What `predicted` gives for examples; those of like length come together.

        Args:
            examples: `TokenizedExamples`; labels are not looked at.
            batch_size: int. Examples in a batch; 64 if None.
            verbose: as in Keras' `predict`.

        Returns:
            list, for each batch a pair: int array, the numbers of its examples, and their outputs, an array with one
            row for each.
        """
        return self._predictor.outputs_of_examples(self, examples, batch_size, verbose)

    def _labelled(self, x, y):
        from keras_bert.data.tokenized_examples import TokenizedExamples

        examples = x if isinstance(x, TokenizedExamples) else self.tokenize(x, y)
        if examples.labels is None:
            raise ValueError("there are no labels: y is None")
        return examples

    def _plan(self, examples, batch_size, seed=None):
        from keras_bert.data.batching import BUCKET_STEP, BatchPlan

        bucket_step = BUCKET_STEP if self.sorts_by_length else None
        batch_size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        return BatchPlan(examples.lengths, batch_size, bucket_step=bucket_step, seed=seed)

    def _evaluation_batches(self, x, y, batch_size):
        examples = self._labelled(x, y)
        plan = self._plan(examples, batch_size)
        return plan.epoch(0).map(examples.batch, num_parallel_calls=1).prefetch(2)


def _listed(x):
    """What a generator gives, as a list, unless it gives batches of ids; anything else as it is."""
    if not isinstance(x, Iterator):
        return x
    begin = list(itertools.islice(x, 1))
    gives_batches = any(_is_ids(item[0] if isinstance(item, tuple) else item) for item in begin)
    items = itertools.chain(begin, x)
    return (item for item in items) if gives_batches else list(items)  # Keras takes no iterators but generators


def _is_for_keras(x):
    is_batches = hasattr(x, "element_spec") or hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset)
    return _is_ids(x) or is_batches


def _is_ids(x):
    return isinstance(x, dict) and "token_ids" in x
