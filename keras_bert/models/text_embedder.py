"""Embeddings of texts: one vector per text, for search, similarity and clustering."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS, TRIPLET_COLUMNS, text_column
from keras_bert.data.vector_search import search
from keras_bert.export.export_options import SAVED_MODEL, ExportArguments, ExportOptions
from keras_bert.layers.dense import Dense
from keras_bert.layers.seeds import derive_seed
from keras_bert.layers.text_pooling import pool_tokens, scale_to_unit_length
from keras_bert.models.embedding_objectives import SCORED, TRIPLET, EmbeddingObjective, number_texts
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.head import BertHead, LossTerms
from keras_bert.models.text_model import is_ids
from keras_bert.training.loss import gather_over_replicas
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.layout import POOLINGS, PROJECTION
from keras_bert.weights.sentence_transformers import EmbeddingSettings, read_embedding_settings, read_projection

if TYPE_CHECKING:
    from keras_bert.data.tokenized_examples import TokenizedExamples
    from keras_bert.text.preprocessor import BertPreprocessor


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTextEmbedder(BertHead):
    """BERT that returns one vector per text, a sentence encoder (arXiv 1908.10084).

    `encode` returns vectors, `similarity` cosines, `search` the nearest texts. `fit` trains on pairs of texts that
    belong together, on triplets, or on pairs with a score; see `EmbeddingObjective`.

    Args:
        encoder: encoder; its pooler is not used.
        preprocessor: a `BertPreprocessor` that truncates; None for a model that takes ids only.
        pooling: how tokens become the vector of a text: "mean", "cls", "max" or "weighted"; see
            `keras_bert.layers.text_pooling.pool_tokens`.
        normalize: whether vectors are scaled to length 1, so that their dot products are cosines.
        projection: size of a dense layer on the pooled vectors; None for no layer.
        projection_activation: activation of that layer, "tanh" or "linear".
        dimensions: size that vectors are truncated to before they are scaled, which loses little after training with
            `EmbeddingObjective(matryoshka=...)`; None keeps all numbers.
        objective: an `EmbeddingObjective`, or the name of one.
        **kwargs: freeze, seed, name, dtype, trainable, and `lora_rank` and so on, as for `BertHead`.

    Inputs: the encoder's dict of ids, [texts, length], or [examples, texts, length] in training.

    Outputs:
        float32 [texts, size], or [examples, texts, size]. A row of padding only is 0.

    Raises:
        ValueError: on an unknown pooling or objective, sizes that do not fit, or a preprocessor that does not fit the
            encoder or splits texts into windows.

    Example:

    >>> encoder = keras_bert.BertEncoder(6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "game"], lower_case=True)
    >>> embedder = BertTextEmbedder(encoder, keras_bert.BertPreprocessor(tokenizer, sequence_length=8), seed=0)
    >>> embedder.encode(["Play", "game play"]).shape
    (2, 8)
    >>> embedder.compile(keras_bert.BertAdamW(1e-2))
    >>> history = embedder.fit({"anchor": ["play", "game"], "positive": ["Play play", "game game"]}, verbose=0)
    """

    column_names = (TEXT_COLUMNS, PAIR_COLUMNS, TRIPLET_COLUMNS[:2], TRIPLET_COLUMNS)
    encoder_defaults: ClassVar[Mapping[str, Any]] = {"with_pooler": False}
    ids_ranks = (2, 3)
    trains_on_text_datasets = False
    batches_by_length = False  # texts of similar length are other negatives: MAP on TREC QA was 0.26 points lower
    loss_spans_batch = True  # see `keras_bert.training.replica_gradients.ReplicaGradients`

    def __init__(
        self,
        encoder: keras.Model,
        preprocessor: BertPreprocessor | None = None,
        pooling: str = "mean",
        normalize: bool = True,
        projection: int | None = None,
        projection_activation: str = "tanh",  # sentence-transformers, Dense
        dimensions: int | None = None,
        objective: EmbeddingObjective | Mapping[str, Any] | str = "multiple_negatives",
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, **kwargs)
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(f"texts are truncated: the preprocessor has long_texts={preprocessor.long_texts!r}")
        if pooling not in POOLINGS:
            raise ValueError(f"unknown pooling {pooling!r}; allowed are {POOLINGS}")
        if isinstance(objective, str):
            objective = {"objective": objective}
        self.objective = EmbeddingObjective(**objective) if isinstance(objective, Mapping) else objective
        self.pooling = pooling
        self.normalize = normalize
        self.projection: Dense | None = None
        if projection is not None:
            seed = derive_seed(self.seed, PROJECTION)
            self.projection = Dense(projection, projection_activation, seed=seed, dtype="float32", name=PROJECTION)
        size = encoder.hidden_size if projection is None else projection
        for name, value in (("dimensions", dimensions), ("matryoshka", max(self.objective.matryoshka, default=None))):
            if value is not None and not 1 <= value <= size:
                raise ValueError(f"{name} must be from 1 to the size of the vectors, {size}; got {value}")
        self.dimensions = dimensions
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Computes the vectors of a batch of ids."""
        texts = inputs["token_ids"]
        if len(texts.shape) == 2:
            return self._vectors(inputs, training)
        rows = {name: ops.reshape(ids, (-1, ops.shape(ids)[2])) for name, ids in inputs.items()}
        vectors = (self._packed_vectors if self._can_pack(rows) else self._vectors)(rows, training)
        return ops.reshape(vectors, (-1, texts.shape[1], self.size))

    @property
    def size(self) -> int:
        """Size of a vector."""
        if self.dimensions is not None:
            return self.dimensions
        return self.encoder.hidden_size if self.projection is None else self.projection.units

    def _can_pack(self, inputs: Inputs) -> bool:
        """Whether padding can be left out, which makes shapes depend on the texts."""
        mask = inputs.get("padding_mask")
        is_dynamic = keras.backend.backend() == "tensorflow" and mask is not None and mask.shape[1] is None
        return is_dynamic and isinstance(self.encoder, BertEncoder) and "sequence_ids" not in inputs

    def _packed_vectors(self, inputs: Inputs, training: bool) -> Tensor:
        """Returns the vectors of texts, computed without their padding."""
        from keras_bert.layers.tensorflow.packed_texts import PackedTexts

        packed = PackedTexts(ops.cast(inputs["padding_mask"], "int32"), self.encoder.attention_direction)
        row = {name: packed.pack(ids) for name, ids in inputs.items() if name != "padding_mask"}
        row = {"position_ids": packed.position_ids, **row}
        outputs = self.encoder(row, training=training, packed_texts=packed)
        groups = zip(packed.split(outputs["sequence_output"]), packed.padding_masks, strict=True)
        return packed.in_order([self._pool(*group) for group in groups])

    def _vectors(self, inputs: Inputs, training: bool) -> Tensor:
        return self._pool(self.encoder(inputs, training=training)["sequence_output"], inputs.get("padding_mask"))

    def _pool(self, tokens: Tensor, padding_mask: Tensor | None) -> Tensor:
        vectors = pool_tokens(ops.cast(tokens, "float32"), padding_mask, self.pooling)
        if self.projection is not None:
            vectors = self.projection(vectors)
        if self.dimensions is not None:
            vectors = vectors[:, : self.dimensions]
        return scale_to_unit_length(vectors) if self.normalize else vectors

    def compile(self, *args: Any, gradient_accumulation_steps: int = 1, **kwargs: Any) -> None:
        """Configures training, as `BertHead.compile` does.

        Args:
            *args, **kwargs: as for `BertHead.compile`.
            gradient_accumulation_steps: number of parts that a batch is split into, to save memory. They are computed
                twice, and the loss still covers the whole batch (GradCache, arXiv 2101.06983).

        Raises:
            ValueError: if the number of parts is below 1, XLA is to compile the training, or as `BertHead.compile`.
        """
        if gradient_accumulation_steps < 1:
            raise ValueError(f"gradient_accumulation_steps must be at least 1, got {gradient_accumulation_steps}")
        self._fit.accumulation_steps = gradient_accumulation_steps
        super().compile(*args, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, for saving."""
        config = super().get_compile_config()
        return {**config, "gradient_accumulation_steps": self._fit.accumulation_steps} if self.compiled else config

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch over the examples of all replicas; each has an equal part of it.

        Args:
            labels: float32 [examples] scores, or int32 [examples, texts] numbers of texts; see
                `EmbeddingObjective.loss`.
            outputs: float32 [examples, texts, size].
            sample_weight: float [examples] or None.

        Returns:
            `{"loss": (sum, weight)}`.
        """
        weights = self._weights(labels, sample_weight)
        parts = [outputs, ops.cast(labels, "float32"), weights]  # numbers of texts are exact up to 2^24
        sizes = [math.prod(part.shape[1:]) for part in parts]
        rows = ops.concatenate([ops.reshape(part, (-1, size)) for part, size in zip(parts, sizes, strict=True)], axis=1)
        rows, num_replicas = gather_over_replicas(rows)
        vectors, labels, all_weights = ops.split(rows, [sizes[0], sizes[0] + sizes[1]], axis=1)
        vectors = ops.reshape(vectors, (-1, *outputs.shape[1:]))
        loss = self.objective.loss(vectors, labels, all_weights[:, 0])
        return {"loss": (loss / num_replicas, ops.sum(weights))}

    def encode_labels(self, labels: Any) -> np.ndarray:
        """Converts the scores of pairs to float32 [pairs].

        For other objectives, labels are numbers of texts, int [examples, texts], the same for equal texts.
        """
        values = np.asarray(labels)
        if self.objective.objective in SCORED:
            if values.ndim == 1 and values.dtype.kind in "iuf" and np.isfinite(values).all():
                return values.astype("float32")
            raise ValueError(f"labels must be finite numbers, one score per pair; got {values.dtype} {values.shape}")
        if values.ndim == 2 and values.dtype.kind in "iu":
            return values.astype("int32")
        raise ValueError(
            f"objective={self.objective.objective!r} has no labels; leave them out, or make the embedder with "
            f"objective= one of {SCORED}, which take scores of pairs"
        )

    def _labelled_examples(self, x: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> Any:
        if y is None and is_ids(x) and np.ndim(x["token_ids"]) == 3 and self.objective.objective not in SCORED:
            columns = np.asarray(x["token_ids"]).swapaxes(0, 1)
            y = number_texts(*([tuple(row) for row in column.tolist()] for column in columns))
        return super()._labelled_examples(x, y, sample_weight, class_weight)

    def tokenize_columns(self, columns: Mapping[str, Sequence[Any]], labels: Any = None) -> TokenizedExamples:
        """Tokenizes texts, or the texts of pairs and triplets, each alone."""
        from keras_bert.data.tokenized_examples import log_long_texts, tokenize_groups

        if "text" in columns:
            return super().tokenize_columns(columns, labels)
        texts = [text_column(columns[name], name) for name in columns]
        needed = 3 if self.objective.objective == TRIPLET else 2
        if len(texts) < needed or (len(texts) > 2 and self.objective.objective in SCORED):
            raise ValueError(
                f"objective={self.objective.objective!r} takes {needed} texts per example; got {', '.join(columns)}"
            )
        if labels is None and self.objective.objective not in SCORED:
            labels = number_texts(*texts)
        examples = tokenize_groups(texts, self.preprocessor, labels)
        log_long_texts(examples.token_counts, self.preprocessor)
        return examples

    def encode(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> np.ndarray:
        """Returns the vectors of texts in the given order; texts are computed in batches of similar length.

        `keras_bert.data.vector_search.quantize_vectors` converts them to int8 or to bits.

        Args:
            x: texts, or the encoder's dict of ids. Texts that are too long are truncated and counted in the log. Texts
                need TensorFlow; ids work on every Keras backend.
            batch_size: texts per batch; None as for `predict`.
            verbose: as in Keras' `predict`.

        Returns:
            float32 array [texts, size].

        Raises:
            ValueError, TypeError: if `x` is neither texts nor ids, or there is no preprocessor for texts.
        """
        return np.asarray(self.predict(x, batch_size, verbose))

    def similarity(self, a: Any, b: Any, batch_size: int | None = None) -> np.ndarray:
        """Returns the cosine similarity of each text of one list with each of another.

        Args:
            a, b: texts or ids, as for `encode`, or vectors, float array [texts, size].
            batch_size: texts per batch; None as for `predict`.

        Returns:
            float32 array [texts of a, texts of b], from -1 to 1.

        Raises:
            ValueError, TypeError: as `encode`.
        """
        rows, columns = (np.asarray(scale_to_unit_length(self._as_vectors(x, batch_size))) for x in (a, b))
        return rows @ columns.T

    def search(
        self, queries: Any, corpus: Any, top_k: int = 10, batch_size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the texts of a corpus that are most similar to each query, by cosine, best first.

        Encode a corpus that is searched again only once, and pass its vectors. Those of int8 or bits are searched by
        `keras_bert.data.vector_search.search`.

        Args:
            queries, corpus: texts or ids, as for `encode`, or vectors, float array [texts, size].
            top_k: number of texts per query; fewer if the corpus has fewer.
            batch_size: texts per batch; None as for `predict`.

        Returns:
            Scores, float32 array [queries, top_k], and the numbers of the texts in the corpus, int64 array
            [queries, top_k].

        Raises:
            ValueError, TypeError: as `encode`, or if `top_k` is below 1.
        """
        found, searched = (np.asarray(scale_to_unit_length(self._as_vectors(x, batch_size))) for x in (queries, corpus))
        return search(found, searched, top_k)

    def _as_vectors(self, x: Any, batch_size: int | None = None) -> np.ndarray:
        if getattr(x, "dtype", None) is not None and np.asarray(x).dtype.kind == "f":
            return np.asarray(x)
        return self.encode(x, batch_size)

    def export(
        self,
        path: PathLike,
        *,
        corpus: Sequence[str] | None = None,
        top_k: int = 10,
        **options: Unpack[ExportArguments],
    ) -> Path:
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text`, strings [batch]; `tokens` takes `token_ids`, `segment_ids`,
        `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples [batch] with the feature `text`.
        Each returns `embedding`, float32 [batch, size]. With a corpus, `search` takes `text` and returns the texts of
        the corpus that are most similar, best first: `texts`, `indices` int32 and `scores` float32, the cosines, each
        [batch, top_k].

        Args:
            corpus: texts to search in, which are stored in the SavedModel with their vectors.
            top_k: number of texts that `search` returns; fewer if the corpus has fewer.
            path, options: see `BertClassifier.export`, also for the result and the errors.

        Raises:
            ValueError: if the corpus is empty or the format is not "saved_model", or `top_k` is below 1.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        inputs, settings = TextInputs(TEXT_COLUMNS), ExportOptions(**options)
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if corpus is not None and (not len(corpus) or settings.format != SAVED_MODEL):
            raise ValueError(
                f"a corpus is stored in a SavedModel only, and has at least one text; got {len(corpus)} texts and "
                f"format={settings.format!r}"
            )
        stored = [] if corpus is None else self._stored_corpus(corpus)

        def signatures(served: Any) -> Any:
            named = dict(text_signatures(served, inputs, lambda ids: {"embedding": served(ids)}))
            if stored:
                from_texts, specs = named["serving_default"]
                named["search"] = (functools.partial(_search, from_texts, stored, top_k), specs)
            return named

        return export_head(self, path, settings, signatures, inputs, variables=stored)

    def _stored_corpus(self, corpus: Sequence[str]) -> list[Any]:
        """Returns variables with the texts of a corpus and their vectors, scaled to length 1."""
        import tensorflow as tf

        texts = text_column(corpus, "corpus").tolist()
        vectors = np.asarray(scale_to_unit_length(self.encode(texts)))
        return [tf.Variable(values, trainable=False) for values in (texts, vectors)]

    def classifier_arguments(self) -> EmbeddingSettings | None:
        """Returns what a sentence-transformers folder states of this model; None if it cannot describe the model."""
        if self.dimensions is not None:
            return None
        length = self.encoder.max_position_embeddings
        if self.preprocessor is not None:
            length = self.preprocessor.sequence_length
        if self.projection is None:
            return EmbeddingSettings(self.pooling, self.normalize, length)
        return EmbeddingSettings(
            self.pooling, self.normalize, length, self.projection.units, self.projection.activation
        )

    @classmethod
    def read_settings(
        cls, checkpoint: Checkpoint, encoder: keras.Model, given: Collection[str]
    ) -> tuple[Checkpoint, dict[str, Any]]:
        """Reads the files of sentence-transformers, unless pooling, normalization and length are given."""
        if {"pooling", "normalize", "sequence_length"} <= set(given):
            return checkpoint, {}
        folder, longest = checkpoint.path.parent, encoder.max_position_embeddings
        settings = read_embedding_settings(folder, encoder.hidden_size)
        if settings is None:
            return checkpoint, {}
        stated = {"pooling": settings.pooling, "normalize": settings.normalize}
        stated["sequence_length"] = min(settings.max_length or longest, longest)
        if settings.projection is not None and "projection" not in given:
            arrays = read_projection(folder, settings, encoder.hidden_size)
            names = {path: (path,) for path in arrays}
            checkpoint = replace(
                checkpoint,
                arrays={**checkpoint.arrays, **arrays},
                tensor_names={**checkpoint.tensor_names, **names},
            )
            stated |= {"projection": settings.projection, "projection_activation": settings.projection_activation}
        return checkpoint, stated

    def get_config(self) -> dict[str, Any]:
        projection = self.projection
        own = {name: getattr(self, name) for name in ("pooling", "normalize", "dimensions")}
        if projection is not None:
            own |= {"projection": projection.units, "projection_activation": projection.activation}
        return {**super().get_config(), **own, "objective": asdict(self.objective)}


def _search(from_texts: Any, corpus: Sequence[Any], top_k: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the most similar texts of a corpus of texts and vectors, in the graph."""
    import tensorflow as tf

    texts, vectors = corpus
    queries = scale_to_unit_length(from_texts(inputs)["embedding"])
    scores, indices = tf.math.top_k(tf.matmul(queries, vectors, transpose_b=True), min(top_k, vectors.shape[0]))
    return {"texts": tf.gather(texts, indices), "indices": indices, "scores": scores}
