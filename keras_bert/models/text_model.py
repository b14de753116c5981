"""What every head that reads text has in common: texts in, Keras' own `fit`, results in the caller's order."""

import keras
import numpy as np

from keras_bert.data.columns import text_columns
from keras_bert.models.head import DEFAULT_BATCH_SIZE, PREDICTION_BATCH_SIZE, BertHead
from keras_bert.models.inference import Predictor


class TextModel(BertHead):
    """A head that carries its preprocessor, so that `fit`, `evaluate` and `predict` take texts as well as ids.

    Texts are a list or array of strings, a tuple of two of them for pairs, a dict (`text`, or `text_a` and `text_b`),
    or a batched tf.data.Dataset of these. Ids are a dict of int arrays [examples, length], or a batched dataset of such
    dicts.

    A subclass has an `encoder`, says how its labels become numbers (`encode_labels`) and what its losses are
    (`loss_terms`); Keras' loss is made from the latter.

    Args:
        encoder, preprocessor, freeze, name, dtype: as for `BertHead`.
        seed: int or None. Seed of the new layers, and of the order in which `fit` visits the texts.

    Raises:
        ValueError: as `BertHead`.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._predictor = Predictor()

    def encode_labels(self, labels):
        """Labels as a user writes them, as numbers."""
        raise NotImplementedError

    def encode_labels_in_graph(self, labels):
        """Labels from a dataset, as numbers."""
        return labels

    def label_spec(self):
        """What `encode_labels` gives for a batch of unknown size, as a `keras.KerasTensor`."""
        raise NotImplementedError

    def class_weights_by_id(self, class_weight):
        """`fit`'s class_weight as a dict of label number to weight, or None."""
        if class_weight is None:
            return None
        raise ValueError("class_weight in `fit` needs single labels; this model has none")

    def fit(self, x=None, y=None, batch_size=None, epochs=1, verbose="auto", **kwargs):
        """Trains on texts or ids; Keras' `fit` with the same arguments.

        Args:
            x: texts or ids, as the class says; a dataset gives `(x, y)` or `(x, y, sample_weight)` and is already
                batched. A generator or `keras.utils.PyDataset` of ids and numbers is handed to Keras as it is.
            y: labels, as `encode_labels` takes them; None with a dataset.
            batch_size: int. Texts in a batch; 32 if None. A dataset has its own.
            epochs, verbose: as in Keras.
            **kwargs: as in Keras. `validation_data` may hold texts too; `class_weight` is a dict of label name or
                number to weight. With `sample_weight` the loss is the weighted mean, divided by the sum of the weights
                (Keras divides by the number of rows).

        Returns:
            A Keras History.

        Raises:
            ValueError, TypeError: on labels, texts or ids that do not fit the model.
        """
        self.require_compiled("fit")
        self._refuse_windows_on_replicas()
        sample_weight = kwargs.pop("sample_weight", None)
        validation_data = kwargs.pop("validation_data", None)
        validation_split = kwargs.pop("validation_split", 0.0)
        if validation_split:
            if validation_data is not None:
                raise ValueError("give either validation_split or validation_data, not both")
            (x, y, sample_weight), validation_data = _split(x, y, sample_weight, validation_split)
        if validation_data is not None:
            kwargs["validation_data"] = self._validation_data(
                validation_data, kwargs.get("validation_batch_size") or batch_size
            )
        shuffle, class_weight = kwargs.pop("shuffle", True), kwargs.pop("class_weight", None)
        inputs = self._training_inputs(x, _require_labels(x, y), sample_weight, batch_size, shuffle, class_weight)
        return super().fit(**inputs, epochs=epochs, verbose=verbose, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs):
        """Loss and metrics on texts or ids; Keras' `evaluate` with the same arguments.

        Args:
            x, y, batch_size, sample_weight: as for `fit`.
            verbose, **kwargs: as in Keras.

        Returns:
            What Keras returns: a list of numbers, or a dict with `return_dict=True`.
        """
        self.require_compiled("evaluate")
        self._refuse_windows_on_replicas()
        if "_use_cached_eval_dataset" in kwargs:  # called by Keras' fit, with data that is ready
            return super().evaluate(x, y, batch_size, verbose, sample_weight, **kwargs)
        inputs = self._training_inputs(x, _require_labels(x, y), sample_weight, batch_size, shuffle=False)
        inputs.pop("shuffle", None)
        return super().evaluate(**inputs, verbose=verbose, **kwargs)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """The model's outputs for texts or ids, in the order given; Keras' `predict` with the same arguments.

        What is in memory is sorted by length first, so that a batch holds little padding; the results are put back in
        order.

        Args:
            x: texts or ids, as for `fit`, without labels; or `TokenizedExamples`, all of which are taken.
            batch_size: int. Texts in a batch; 64 if None.
            verbose, steps, callbacks: as in Keras.

        Returns:
            NumPy array, one row an example.
        """
        self._refuse_windows_on_replicas()
        batch_size = _batch_size(PREDICTION_BATCH_SIZE if batch_size is None else batch_size)
        most = None if steps is None else steps * batch_size
        examples = self._tokenized(x, most)
        if examples is not None:
            from keras_bert.data.batching import sorted_batches
            from keras_bert.training.strategy import needs_static_shapes

            if is_static := needs_static_shapes(self.distribute_strategy):
                batch_size += -batch_size % _replicas(self)  # or the replicas' parts had none
            batches, order = sorted_batches(examples, batch_size, is_static)
        else:
            batches, order = self._sorted_ids(x, most, batch_size)
        if batches is None:
            inputs = self._training_inputs(x, None, None, batch_size, shuffle=False)
            return super().predict(inputs["x"], inputs.get("batch_size"), verbose, steps, callbacks)
        if callbacks or self.run_eagerly:
            outputs = super().predict(batches, verbose=verbose, callbacks=callbacks)
        else:
            outputs = self._predictor(self, batches, verbose)
        return outputs[np.argsort(order)]  # without rows of padding, which come last

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Under a distribution strategy Keras takes a first batch here, only to see its shapes, and then begins the data
        # anew: in another order, if it is shuffled, than on one device. The shapes are known without looking.
        strategy = self._distribute_strategy
        if strategy is None:
            return
        ids = {name: keras.KerasTensor([None, None], "int32") for name in ("token_ids", "segment_ids", "padding_mask")}
        with strategy.scope():
            self._symbolic_build(data_batch=(ids, self.label_spec()))

    def _tokenized(self, x, most):
        """The first `most` texts of `x` as `TokenizedExamples`, or None if `x` is something else."""
        columns = self._text_columns(x)
        if keras.backend.backend() != "tensorflow":
            return None
        from keras_bert.data.in_memory import log_long_texts, treatment_of_long_texts
        from keras_bert.data.tokenized_examples import TokenizedExamples, tokenize_examples

        if columns is None:
            return x if isinstance(x, TokenizedExamples) else None
        names = list(columns)
        rows = zip(*(values[:most] for values in columns.values()), strict=True)
        examples = tokenize_examples((dict(zip(names, row, strict=True)) for row in rows), self.preprocessor)
        treatment = treatment_of_long_texts(self.preprocessor)
        log_long_texts(examples.token_counts, self.preprocessor.sequence_length, treatment)
        return examples

    def _sorted_ids(self, x, most, batch_size):
        """Batches of the first `most` rows of ids in memory, and the order of the rows in them; two Nones if `x` is
        something else."""
        if not isinstance(x, dict) or "padding_mask" not in x or keras.backend.backend() != "tensorflow":
            return None, None
        from keras_bert.data.in_memory import text_batches, trim_padding

        ids = {name: values[:most] for name, values in self._checked_ids(x).items()}
        positions = np.arange(1, ids["padding_mask"].shape[1] + 1)
        lengths = (positions * (ids["padding_mask"] != 0)).max(axis=1, initial=1)
        order = np.argsort(lengths, kind="stable")
        return text_batches({name: values[order] for name, values in ids.items()}, trim_padding, batch_size), order

    def _training_inputs(self, x, y, sample_weight, batch_size, shuffle, class_weight=None):
        """The arguments that Keras' own `fit` and `evaluate` take for the caller's data."""
        batch_size = _batch_size(batch_size)
        weights = self.class_weights_by_id(class_weight)
        if hasattr(x, "element_spec"):  # a tf.data.Dataset
            if y is not None or sample_weight is not None:
                raise ValueError("a dataset brings its own labels and sample weights: leave y and sample_weight out")
            return {"x": self._prepared_dataset(x), "shuffle": False, **({"class_weight": weights} if weights else {})}
        if isinstance(x, keras.utils.PyDataset) or hasattr(x, "__next__"):
            return {"x": x, **({"class_weight": weights} if weights else {})}

        columns = self._text_columns(x)
        examples = columns if columns is not None else self._checked_ids(x)
        number = len(next(iter(examples.values())))
        if y is not None:
            y = self.encode_labels(y)
        if sample_weight is not None and np.ndim(sample_weight) != 1:
            raise ValueError(f"sample_weight must have the shape [examples], got {np.shape(sample_weight)}")
        if weights is not None:
            of_label = np.array([weights[label] for label in range(len(weights))], "float32")[y]
            sample_weight = of_label if sample_weight is None else of_label * np.asarray(sample_weight, "float32")
        for name, part in (("y", y), ("sample_weight", sample_weight)):
            if part is not None and len(part) != number:
                raise ValueError(f"there are {number} examples, but {name} has {len(part)}")
        if keras.backend.backend() != "tensorflow":
            return {"x": examples, "y": y, "sample_weight": sample_weight, "batch_size": batch_size, "shuffle": shuffle}
        from keras_bert.data.in_memory import text_batches

        preprocess = _as_they_are
        if columns is not None:
            self._count_tokens(columns)
            preprocess = self.preprocessor
        seed = self.next_shuffle_seed() if shuffle else None
        return {"x": text_batches(examples, preprocess, batch_size, y, sample_weight, seed), "shuffle": False}

    def _validation_data(self, data, batch_size):
        if hasattr(data, "element_spec"):
            return self._prepared_dataset(data)
        if not isinstance(data, tuple) or len(data) not in (2, 3):
            raise ValueError(
                f"validation_data must be (x, y), (x, y, sample_weight) or a dataset, got {type(data).__name__}"
            )
        x, y, sample_weight = data if len(data) == 3 else (*data, None)
        inputs = self._training_inputs(x, y, sample_weight, batch_size, shuffle=False)
        if "y" not in inputs:
            return inputs["x"]
        return (inputs["x"], inputs["y"], *(() if sample_weight is None else (inputs["sample_weight"],)))

    def _prepared_dataset(self, dataset):
        from keras_bert.data.in_memory import prepare_dataset

        return prepare_dataset(dataset, self.preprocessor, self.encode_labels_in_graph)

    def _text_columns(self, x):
        """The texts in `x` as columns, or None if it holds no texts."""
        columns = text_columns(x)
        if columns is not None and self.preprocessor is None:
            raise ValueError(
                "this model has no preprocessor and takes ids only, but got texts; "
                "give the constructor preprocessor=BertPreprocessor(tokenizer), "
                "or pass token_ids, segment_ids, padding_mask"
            )
        return columns

    def _count_tokens(self, columns):
        """Tokens of each text; says in the log how many texts are too long."""
        from keras_bert.data.in_memory import count_tokens, log_long_texts, treatment_of_long_texts

        counts = count_tokens(columns, self.preprocessor)
        log_long_texts(counts, self.preprocessor.sequence_length, treatment_of_long_texts(self.preprocessor))
        return counts

    def _checked_ids(self, x):
        """Ids in memory as arrays, after checking that the encoder can take them."""
        if not isinstance(x, dict) or "token_ids" not in x:
            raise ValueError(
                "expected texts (strings), or ids as a dict with token_ids, segment_ids and padding_mask; got "
                + (f"a dict with {sorted(x)}" if isinstance(x, dict) else f"{type(x).__name__}")
            )
        ids = {name: np.asarray(values) for name, values in x.items()}
        shape = ids["token_ids"].shape
        for name, values in ids.items():
            if values.ndim != 2 or values.shape != shape or values.dtype.kind not in "iub":
                raise ValueError(
                    f"ids must be whole numbers of one shape [examples, length]; "
                    f"{name} is {values.dtype} {values.shape}, token_ids is {shape}"
                )
        if not shape[0]:
            raise ValueError(f"there are no examples; the ids have the shape {shape}")
        if shape[1] > self.encoder.max_position_embeddings:
            raise ValueError(
                f"the ids are {shape[1]} tokens long; "
                f"the encoder has positions for {self.encoder.max_position_embeddings}"
            )
        limits = {
            "token_ids": self.encoder.vocab_size,
            "segment_ids": self.encoder.type_vocab_size,
            "position_ids": self.encoder.max_position_embeddings,
        }
        for name, limit in limits.items():
            values = ids.get(name)
            if values is not None and values.size and not (values.min() >= 0 and values.max() < limit):
                raise ValueError(
                    f"{name} must be from 0 to {limit - 1}; they reach from {values.min()} to {values.max()}"
                )
        return {name: values.astype("int32", copy=False) for name, values in ids.items()}

    def _refuse_windows_on_replicas(self):
        replicas = _replicas(self)
        if replicas > 1 and self.preprocessor is not None and self.preprocessor.long_texts == "windows":
            raise ValueError(
                f'long_texts="windows" cannot be shared out between {replicas} replicas, which would part the windows '
                'of a text; use long_texts="truncate", or a single device'
            )


def _replicas(model):
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else strategy.num_replicas_in_sync


def _as_they_are(ids):
    return ids


def _batch_size(given):
    if given is None:
        return DEFAULT_BATCH_SIZE
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {given!r}")
    return int(given)


def _require_labels(x, y):
    brings_labels = hasattr(x, "element_spec") or hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset)
    if y is None and not brings_labels:
        raise ValueError("there are no labels: y is None; only a dataset brings its own")
    return y


def _split(x, y, sample_weight, fraction):
    """Training and validation parts; the last examples are for validation, as in Keras."""
    columns = text_columns(x) or (dict(x) if isinstance(x, dict) else None)
    if columns is None:
        raise ValueError("validation_split needs texts or ids in memory; for a dataset give validation_data")
    number = len(next(iter(columns.values())))
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is not None and len(values) != number:
            raise ValueError(f"there are {number} examples, but {name} has {len(values)}")
    cut = int(number * (1 - fraction))
    if not 0 < cut < number:
        raise ValueError(f"validation_split={fraction} of {number} examples leaves one of the two parts empty")

    def part(rows):
        return (
            {name: values[rows] for name, values in columns.items()},
            None if y is None else y[rows],
            None if sample_weight is None else sample_weight[rows],
        )

    return part(slice(cut)), part(slice(cut, None))
