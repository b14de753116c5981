"""Base class of models that read texts: an encoder and a preprocessor, `predict` on texts or ids, and checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import text_columns, to_mapping
from keras_bert.io.row_errors import quotation
from keras_bert.models.encoder import BertEncoder, check_id_ranges, require_ids
from keras_bert.models.inference import DEFAULT_BATCH_SIZE, Predictor
from keras_bert.models.keras_archive import check_parameters, checked_config, load_part
from keras_bert.models.paper_encoders.composed_encoder import ComposedEncoder
from keras_bert.models.pretrained import FromPreset, merged_arrays, relative_variables, write_checkpoint
from keras_bert.typing import PathLike
from keras_bert.weights.sentence_transformers import EmbeddingSettings

if TYPE_CHECKING:
    from keras_bert.data.tokenized_examples import TokenizedExamples
    from keras_bert.text.tokenizer import BertTokenizer


_ID_SHAPES = {2: "[examples, length]", 3: "[examples, choices, length]"}


class TextModel(FromPreset, keras.Model):
    """A Keras model on top of an encoder that predicts from raw texts as well as from ids.

    A subclass names its columns of texts and tokenizes them (`tokenize_columns`).

    Args:
        encoder: `BertEncoder`, `BiLstmEncoder` or `TwoDirectionEncoder`.
        preprocessor: converts texts to ids; None for a model that takes ids only.
        name, dtype: as for every Keras model; the dtype defaults to the encoder's.

    Raises:
        ValueError: if the preprocessor's vocabulary or length does not fit the encoder.
    """

    # The alternative sets of text columns that the model takes, and the column of labels in dicts and DataFrames.
    column_names: tuple[tuple[str, ...], ...] = (("text",), ("text_a", "text_b"))
    label_column = "label"
    # The ranks of ids: 2 for [examples, length], and 3 for [examples, choices, length] or [examples, texts, length].
    ids_ranks: tuple[int, ...] = (2,)
    # Padding of outputs with a value per token.
    output_padding = 0.0
    trains_on_text_datasets = True  # if it takes a column `text` at all

    def __init__(self, encoder: keras.Model, preprocessor: Any = None, name: str | None = None, dtype: Any = None):
        super().__init__(name=name, dtype=dtype or encoder.dtype_policy)
        if preprocessor is not None:
            check_preprocessor(preprocessor, encoder)
        self.encoder = encoder
        self.preprocessor = preprocessor
        self._predictor = Predictor()

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables of the head's own layers; the encoder has its own already."""
        for layer in self.layers:
            if not layer.built:
                layer.build((None, self.encoder.hidden_size))
        self.built = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on a batch of ids, as `call` does."""
        require_ids(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Predicts outputs for texts or ids, in the order given; Keras' `predict` with the same arguments.

        What is in memory is sorted by length first, so that a batch holds little padding.

        Args:
            x: as for `fit`, without labels.
            batch_size: examples per batch; None is at most 64, of at most 2,048 tokens together.
            verbose, steps, callbacks: as in Keras.

        Returns:
            NumPy arrays as `call` returns tensors, one row per example, or per window where long texts have several.
        """
        self.check_distribution()
        x, _ = separate_labels(as_list(x), None, self.label_column)
        if is_stream(x):
            return super().predict(self._prepare_stream(x, to_predict=True), batch_size, verbose, steps, callbacks)
        batch_size = None if batch_size is None else checked_batch_size(batch_size)
        columns = None if is_ids(x) or is_examples(x) else self._columns(x)
        if columns is not None and not any(map(len, columns.values())):
            ids = np.ones((1,) * (self.ids_ranks[0] - 1) + (2,), "int32")
            outputs = self({name: ids for name in ("token_ids", "padding_mask")}, training=False)
            return keras.tree.map_structure(lambda tensor: ops.convert_to_numpy(tensor)[:0], outputs)
        examples = self.unlabelled_examples(x if columns is None else columns)
        if keras.backend.backend() != "tensorflow":
            return super().predict(arrays_of(examples)["x"], batch_size, verbose, steps, callbacks)
        if callbacks or self.run_eagerly or steps is not None:
            import tensorflow as tf

            longest = int(np.max(examples.lengths))  # one length for all batches, which Keras concatenates
            numbers = tf.data.Dataset.range(len(examples)).batch(batch_size or DEFAULT_BATCH_SIZE)
            batches = numbers.map(lambda rows: _inputs(examples.batch(rows, longest)))
            return super().predict(batches, verbose=verbose, steps=steps, callbacks=callbacks)
        return self._predictor.outputs_of_examples(self, examples, batch_size, verbose, self.output_padding)

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts outputs for a single batch of texts or ids; Keras' `predict_on_batch`."""
        if self._num_replicas() > 1:  # each of which would predict the whole batch
            examples = self.unlabelled_examples(x)
            return self.predict(examples, len(examples), verbose=0)
        return super().predict_on_batch(x if is_ids(x) else _inputs(self._whole(self.unlabelled_examples(x))))

    def _in_memory(self, x: Any, y: Any = None) -> tuple[Any, Any]:
        """Separates texts or ids in memory from their labels; ValueError for batches of them."""
        x, y = separate_labels(as_list(x), y, self.label_column)
        if is_stream(x):
            raise ValueError(
                f"texts or ids in memory are needed, but got a {type(x).__name__}, which gives batches; pass one of "
                "them, or use `fit`, `evaluate` or `predict`"
            )
        return x, y

    def unlabelled_examples(self, x: Any) -> Any:
        """Converts texts or ids in memory, without labels, to examples; examples are returned as they are."""
        x, _ = self._in_memory(x)
        if is_examples(x):
            return x
        if is_ids(x):
            return padded_examples(self._checked_ids(to_mapping(x)), None, False)
        columns = self._columns(x)
        if not len(next(iter(columns.values()))):
            raise ValueError("there are no texts")
        return self.tokenize_columns(columns)

    def tokenize_columns(self, columns: Mapping[str, Sequence[Any]], labels: Any = None) -> TokenizedExamples:
        """Tokenizes columns of texts (those of `column_names`), with encoded labels if there are any."""
        from keras_bert.data.tokenized_examples import log_long_texts, tokenize_examples

        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        examples = tokenize_examples(rows, self.preprocessor)
        log_long_texts(examples.token_counts, self.preprocessor)
        examples.set_labels(labels)
        return examples

    def _columns(self, x: Any) -> dict[str, Any]:
        """Converts texts to columns."""
        columns = text_columns(x) if ("text",) in self.column_names else None
        x = to_mapping(x)
        if columns is None and isinstance(x, Mapping):
            columns = {name: x[name] for names in self.column_names if set(names) == set(x) for name in names} or None
        if columns is None:
            what = f"a dict with {sorted(map(str, x))}" if isinstance(x, Mapping) else quotation(x)
            raise ValueError(
                f"{type(self).__name__} takes texts ({self._text_forms()}), or ids (a dict with token_ids, segment_ids "
                f"and padding_mask); got {what}"
            )
        self.require_preprocessor()
        return columns

    def _text_forms(self) -> str:
        """Describes the forms of texts in memory that the model takes, for messages."""
        names = " or ".join(" and ".join(names) for names in self.column_names)
        lists = "a list of texts or of pairs, a tuple of two lists, " if ("text",) in self.column_names else ""
        return f"{lists}a dict or DataFrame with {names}"

    def _checked_ids(self, x: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Converts ids in memory to arrays, after checking that the encoder can take them."""
        ids = {name: np.asarray(values) for name, values in x.items()}
        shape = ids["token_ids"].shape
        for name, values in ids.items():
            is_per_token = name in ("token_ids", "segment_ids", "padding_mask", "position_ids")
            is_misshapen = is_per_token and (values.ndim not in self.ids_ranks or values.shape != shape)
            if values.dtype.kind not in "iub" or is_misshapen:
                expected = " or ".join(_ID_SHAPES[rank] for rank in self.ids_ranks)
                raise ValueError(
                    f"ids must be whole numbers of one shape {expected}; {name} is {values.dtype} {values.shape}, "
                    f"token_ids is {shape}"
                )
        if not shape[0]:
            raise ValueError(f"there are no examples; the ids have the shape {shape}")
        longest = self.encoder.max_position_embeddings
        if shape[-1] > longest:
            raise ValueError(f"the ids are {shape[-1]} tokens long; the encoder has positions for {longest}")
        check_id_ranges(ids, self.encoder)
        return {name: values.astype("int32", copy=False) for name, values in ids.items()}

    def _whole(self, examples: Any) -> Any:
        """Returns all examples as one batch."""
        if keras.backend.backend() != "tensorflow":
            arrays = arrays_of(examples)
            return (arrays["x"], arrays["y"], arrays["sample_weight"])
        import tensorflow as tf

        return examples.batch(tf.range(len(examples)))

    def _prepare_stream(self, x: Any, to_predict: bool = False) -> Any:
        """Converts a dataset or generator to batches of ids and numbers."""
        if not hasattr(x, "element_spec"):
            return x
        from keras_bert.data.text_datasets import holds_texts, prepare_dataset

        takes_texts = ("text",) in self.column_names and (to_predict or self.trains_on_text_datasets)
        if not takes_texts and holds_texts(x):
            raise ValueError(
                f"{type(self).__name__} cannot {'predict' if to_predict else 'be trained or evaluated'} from a "
                f"tf.data.Dataset of texts, only of ids; pass the texts in memory ({self._text_forms()})"
            )
        return prepare_dataset(x, self.preprocessor, self.encode_labels_in_graph)

    def encode_labels_in_graph(self, labels: Any) -> Any:
        """Encodes the labels of a batch of a dataset."""
        return labels

    def check_distribution(self) -> None:
        """Raises ValueError if the texts cannot be split across the replicas of the model's strategy."""
        num_replicas = self._num_replicas()
        if num_replicas > 1 and getattr(self.preprocessor, "long_texts", None) == "windows":
            raise ValueError(
                f'long_texts="windows" cannot be split across {num_replicas} replicas, which would separate the '
                'windows of a text; use long_texts="truncate", or a single device'
            )

    def _num_replicas(self) -> int:
        strategy = getattr(self, "distribute_strategy", None)
        return 1 if strategy is None else strategy.num_replicas_in_sync

    def variables_by_path(self) -> dict[str, keras.Variable]:
        """Returns the weights by path: the encoder's under `encoder/`, those of other layers under their names.

        Adapters of LoRA are not among them.
        """
        encoder_weights = {id(weight) for weight in self.encoder.weights}
        own = {path: weight for path, weight in relative_variables(self).items() if id(weight) not in encoder_weights}
        return {**self.encoder.variables_by_path("encoder/"), **own}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "preprocessor": None if self.preprocessor is None else self.preprocessor.get_config(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a model from `get_config`, with new weights."""
        with checked_config(cls.__name__):
            encoder = load_part(config["encoder"], (BertEncoder, ComposedEncoder))
            config = {**config, "encoder": encoder}
            if config["preprocessor"] is not None:
                config["preprocessor"] = cls.preprocessor_class().from_config(config["preprocessor"])
            labels = config.get("labels")
            if labels is not None:  # a number of labels is not written, and may ask for any amount of memory
                if not isinstance(labels, list):
                    raise ValueError(f"labels in a saved model are a list of names; found {labels!r}")
                check_parameters("a layer of labels", len(labels) * encoder.hidden_size)
            return cls(**config)

    @staticmethod
    def preprocessor_class() -> Any:
        """Returns the class of the preprocessor."""
        from keras_bert.text.preprocessor import BertPreprocessor

        return BertPreprocessor

    def require_preprocessor(self) -> None:
        """Raises ValueError unless the model has a preprocessor, and Keras runs on TensorFlow, which tokenizes."""
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"texts are tokenized by TensorFlow, and the Keras backend is {keras.backend.backend()}: set "
                "KERAS_BACKEND=tensorflow, or pass ids, a dict with token_ids, segment_ids and padding_mask"
            )
        if self.preprocessor is None:
            raise ValueError(
                f"this {type(self).__name__} has no preprocessor and takes ids only, but got texts; make it with "
                f"preprocessor={self.preprocessor_class().__name__}(tokenizer), or from a checkpoint with a vocabulary"
            )

    def save_checkpoint(
        self,
        path: PathLike,
        tokenizer: BertTokenizer | None = None,
        dtype: str = "float32",
        format: str = "hugging_face",
        **encoder_arguments: Any,
    ) -> Path:
        """Writes weights, labels and tokenizer as a folder, by default in the format of Hugging Face.

        Adapters of LoRA are added to the kernels.

        `from_checkpoint` reads it, and so does `transformers` if the encoder is a single bidirectional BERT. It does
        not hold the preprocessor's lengths, freeze, seed and dtype. The folder of a `BertTextEmbedder` also
        states pooling, normalization and maximum length, and sentence-transformers opens it.

        Args:
            path: folder to write.
            tokenizer: tokenizer whose vocabulary is written; None means the preprocessor's, if there is one.
            dtype: type of the stored weights: "float32", "bfloat16" (half the size), or "int8" (a quarter), which only
                keras_bert reads.
            format: format of the folder: "hugging_face", "google" for a TF1 checkpoint of google-research/bert, or
                "keras_hub" for a preset of KerasHub.
            **encoder_arguments: encoder arguments that the folder states instead of the model's own, for example the
                `hidden_dropout_prob` for fine-tuning where pre-training had none.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if `path` exists.
            ValueError: if the vocabulary is not the encoder's, if the format cannot hold this model, or on another
                dtype or format.
        """
        if tokenizer is None and self.preprocessor is not None:
            tokenizer = self.preprocessor.tokenizer
        head, arrays = self.classifier_arguments(), merged_arrays(self, self.variables_by_path())
        return write_checkpoint(path, self.encoder, arrays, tokenizer, head, dtype, encoder_arguments, format)

    def classifier_arguments(self) -> dict[str, Any] | EmbeddingSettings | None:
        """Returns what a checkpoint stores of this model besides its weights."""
        return None


def check_preprocessor(preprocessor: Any, encoder: keras.Model) -> None:
    """Raises ValueError if the encoder cannot take the preprocessor's ids."""
    vocab_size = preprocessor.tokenizer.vocab_size
    if vocab_size != encoder.vocab_size:
        raise ValueError(
            f"the tokenizer has {vocab_size} wordpieces and the encoder {encoder.vocab_size} embeddings (vocab_size); "
            "they must come from the same checkpoint"
        )
    if preprocessor.sequence_length > encoder.max_position_embeddings:
        raise ValueError(
            f"sequence_length={preprocessor.sequence_length} is beyond the encoder's {encoder.max_position_embeddings} "
            "positions (max_position_embeddings)"
        )


class _ArrayExamples:
    """Ids in memory on backends other than TensorFlow."""

    def __init__(self, inputs: dict[str, np.ndarray], labels: Any):
        self.inputs = inputs
        self.set_labels(labels)

    def set_labels(self, labels: Any, sample_weight: np.ndarray | None = None) -> None:
        self.labels = labels
        self.sample_weight = sample_weight


def padded_examples(ids: dict[str, np.ndarray], labels: Any, has_token_labels: bool) -> Any:
    """Returns ids in memory as examples."""
    if keras.backend.backend() != "tensorflow":
        return _ArrayExamples(ids, labels)
    from keras_bert.data.padded_examples import PaddedExamples

    return PaddedExamples(ids, labels, has_token_labels=has_token_labels)


def arrays_of(examples: Any) -> dict[str, Any]:
    """Returns ids, labels and weights as arrays for Keras, on backends other than TensorFlow."""
    return {"x": examples.inputs, "y": examples.labels, "sample_weight": examples.sample_weight}


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def is_ids(x: Any) -> bool:
    """Returns whether `x` holds ids in memory."""
    return (isinstance(x, Mapping) or hasattr(x, "columns")) and "token_ids" in x


def is_examples(x: Any) -> bool:
    """Returns whether `x` is tokenized already."""
    return hasattr(x, "batch") and hasattr(x, "lengths")


def is_stream(x: Any) -> bool:
    """Returns whether `x` is a dataset or a generator of batches, which Keras iterates itself."""
    return hasattr(x, "element_spec") or hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset)


def as_list(x: Any) -> Any:
    """Converts a generator of texts to a list; a generator of batches of ids stays one."""
    if not isinstance(x, Iterator) or hasattr(x, "element_spec"):
        return x
    first = list(itertools.islice(x, 1))
    items = itertools.chain(first, x)
    if any(is_ids(item[0] if isinstance(item, tuple) else item) for item in first):
        return (item for item in items)  # Keras takes no iterators but generators
    return list(items)


def separate_labels(x: Any, y: Any, label_column: str) -> tuple[Any, Any]:
    """Splits the column of labels off a dict or DataFrame; `y` replaces it if given."""
    if (isinstance(x, Mapping) or (hasattr(x, "columns") and hasattr(x, "iloc"))) and not is_ids(x):
        columns = to_mapping(x)
        if label_column in columns:
            texts = {name: values for name, values in columns.items() if name != label_column}
            return texts, columns[label_column] if y is None else y
        return columns, y
    return x, y


def checked_batch_size(batch_size: int) -> int:
    """Returns the batch size; ValueError if it is not a positive whole number."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    return int(batch_size)
