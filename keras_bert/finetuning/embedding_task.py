"""Training of text embedders on a user's own files of pairs and triplets."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from absl import logging

from keras_bert.data.columns import text_column
from keras_bert.data.example_files import FILE_FORMATS, read_examples
from keras_bert.data.formats.text_lines import read_text_lines
from keras_bert.data.label_values import REGRESSION
from keras_bert.data.tokenized_examples import TokenizedExamples, log_long_texts, tokenize_examples
from keras_bert.data.vector_search import search
from keras_bert.export.export_options import ExportArguments
from keras_bert.finetuning.task import DataSettings, FineTuningTask, Metrics, TaskData, by_split
from keras_bert.io.row_errors import BadRows
from keras_bert.layers.text_pooling import scale_to_unit_length
from keras_bert.metrics.correlation import pearson_correlation, spearman_correlation
from keras_bert.metrics.retrieval import mean_average_precision, mean_reciprocal_rank, ndcg, rank_documents, recall
from keras_bert.models.embedding_objectives import SCORED, EmbeddingObjective, number_texts
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.settings import file_setting, files_setting, setting
from keras_bert.weights.layout import POOLINGS, PROJECTION

SIMILARITY, RETRIEVAL, RERANKING = "similarity", "retrieval", "reranking"
# The metric that selects the best model, by evaluation.
_SCORES = {SIMILARITY: "spearman_correlation", RETRIEVAL: "ndcg_at_10", RERANKING: "mean_average_precision"}
_RANKS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingTaskSettings(EmbeddingObjective, DataSettings):
    """Settings of a text embedder: files, columns, evaluation, and what `BertTextEmbedder` and its objective take."""

    train_file: tuple[str, ...] = files_setting(
        "File to train on, or a pattern; repeat the flag for several. TSV, CSV or JSON Lines.", "train", "eval"
    )
    dev_file: tuple[str, ...] = files_setting("File to evaluate on and to choose the best model by.", "train", "eval")
    text_columns: tuple[str, ...] = setting(
        ("text_a", "text_b"), "Columns of the two texts of a pair, or of anchor, positive and negative."
    )
    score_column: str | None = setting(
        None, "Column of the scores of pairs; for the objectives cosine and cosent, and to evaluate similarity."
    )
    score_range: tuple[float, ...] = setting(
        (0.0, 1.0), "Lowest and highest score, which become 0 and 1; for example 1,5.", modes=("train", "eval")
    )
    min_score: float | None = setting(
        None, "Train only on pairs whose score, before it is scaled, is at least this.", modes=("train",)
    )
    evaluation: str = setting(
        RETRIEVAL,
        "similarity: correlations of cosines with scores. retrieval: each first text of dev_file searches all its "
        "second texts. reranking: each first text ranks its own second texts, of which those with a score above 0 "
        "are relevant.",
        choices=tuple(_SCORES),
    )
    pooling: str | None = setting(None, "Default: that of a sentence-transformers folder, or mean.", choices=POOLINGS)
    normalize: bool | None = setting(
        None, "Scale vectors to length 1; default: as in a sentence-transformers folder, or true."
    )
    projection: int | None = setting(None, "Size of a new dense layer on the vectors; default: no layer.", lower=1)
    corpus_file: str | None = file_setting(
        "Texts, one per line, in which the SavedModel's signature `search` searches.", "export"
    )
    file_format: str | None = setting(None, "Default: inferred from the file names.", choices=FILE_FORMATS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text_columns) not in (2, 3):
            raise ValueError(f"text_columns must name two or three columns, got {self.text_columns}")
        if len(self.score_range) != 2 or not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range must be two numbers, the lower first; got {self.score_range}")
        needs_scores = {"objective": self.objective in SCORED, "evaluation": self.evaluation in (SIMILARITY, RERANKING)}
        for name, needs in needs_scores.items():
            if needs and self.score_column is None:
                raise ValueError(f"{name}={getattr(self, name)} compares scores; give score_column")
        if self.score_column is not None and len(self.text_columns) == 3:
            raise ValueError("triplets have no scores; leave score_column out, or name two text_columns")

    def without_effect(self) -> dict[str, str]:
        reasons = super().without_effect()
        if self.score_column is None:
            reasons |= dict.fromkeys(("score_range", "min_score"), "without score_column")
        return reasons

    def embedding_objective(self) -> EmbeddingObjective:
        """Returns the settings of the loss."""
        names = [field.name for field in dataclasses.fields(EmbeddingObjective)]
        return EmbeddingObjective(**{name: getattr(self, name) for name in names})


class _Pairs(NamedTuple):
    """An evaluation split: its different texts, and pairs of them."""

    texts: TokenizedExamples
    numbers: np.ndarray  # int32 [pairs, 2]: the texts of a pair, as indices into `texts`
    scores: np.ndarray | None  # float [pairs]


class EmbeddingTask(FineTuningTask):
    """Training of a `BertTextEmbedder` on a user's files; `from_settings` reads them."""

    head = PROJECTION
    unit = "texts"
    has_dropout = False
    settings_class = EmbeddingTaskSettings

    def __init__(self, settings: EmbeddingTaskSettings, data: TaskData, corpus: list[str] | None = None) -> None:
        super().__init__("embed", _SCORES[settings.evaluation], data)
        self.settings = settings
        self.corpus = corpus  # the texts that an export searches in

    @classmethod
    def from_settings(cls, settings: EmbeddingTaskSettings, modes: Collection[str], seed: int = 1) -> EmbeddingTask:
        bad_rows = BadRows(skip=settings.skip_bad_rows)

        def read(paths: Collection[str], columns: tuple[str, ...], score_column: str | None) -> Any:
            return read_examples(
                list(paths),
                list(columns),
                score_column,
                REGRESSION,
                file_format=settings.file_format,
                bad_rows=bad_rows,
            )

        columns, score_column = settings.text_columns, settings.score_column
        needs_scores = settings.objective in SCORED or settings.min_score is not None
        evaluation = {}
        if settings.dev_file and {"train", "eval"} & set(modes):
            scores_of_dev = None if settings.evaluation == RETRIEVAL else score_column
            evaluation = {"dev": read(settings.dev_file, columns[:2], scores_of_dev)}
        train = None
        if settings.train_file and "train" in modes:
            train = read(settings.train_file, columns, score_column if needs_scores else None)
        corpus = None
        if settings.corpus_file is not None and "export" in modes:
            corpus = list(read_text_lines(settings.corpus_file, bad_rows))
        return cls(settings, TaskData(train, evaluation, bad_rows=bad_rows), corpus)

    def check(self, modes: Collection[str]) -> None:
        if "predict" in modes:
            raise ValueError(
                "an embedder has no predictions; write the vectors of a file with tools.extract_features --unit=text"
            )
        super().check(modes)

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertTextEmbedder:
        names = ("pooling", "normalize", "projection")
        own = {name: value for name in names if (value := getattr(self.settings, name)) is not None}
        objective = self.settings.embedding_objective()
        return BertTextEmbedder.from_checkpoint(checkpoint, objective=objective, **own, **arguments)

    def describe_head(self, model: BertTextEmbedder) -> str:
        return "projection"

    def training_examples(self, model: BertTextEmbedder) -> TokenizedExamples:
        def tokenize() -> TokenizedExamples:
            assert self.data.train is not None
            rows = list(self.data.train)
            if self.settings.min_score is not None:
                rows = [row for row in rows if row["label"] >= self.settings.min_score]
            if not rows:
                raise ValueError(f"no pair has a score of at least min_score={self.settings.min_score}")
            scores = None
            if self.settings.objective in SCORED:
                scores = model.encode_labels(self._scaled([row["label"] for row in rows]))
            columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("label", "line")}
            tokenized = model.tokenize_columns(columns, scores)
            logging.info("train: %d examples of %d texts", len(tokenized), len(columns))
            return tokenized

        return self.tokenized_once("train", tokenize)

    def tokenize_split(self, split: str, examples: Iterable[Any], model: BertTextEmbedder) -> TokenizedExamples:
        return self._pairs(split, examples, model).texts

    def configuration(self, model: BertTextEmbedder) -> dict[str, Any]:
        configuration = super().configuration(model)
        for split, examples in self.data.evaluation.items():
            pairs = self._pairs(split, examples, model)
            self._metrics(pairs, np.ones([len(pairs.texts), 1], "float32"))  # finds rows that cannot be evaluated
            checksum = zlib.crc32(pairs.numbers.tobytes() + (b"" if pairs.scores is None else pairs.scores.tobytes()))
            configuration["data"][split] += f" in {len(pairs.numbers)} pairs, {checksum:08x}"
        return configuration

    def split_metrics(self, model: BertTextEmbedder, split: str, batch_size: int | None) -> Metrics:
        pairs = self._pairs(split, self.data.evaluation[split], model)
        return self._metrics(pairs, model.encode(pairs.texts, batch_size))

    def report(self, model: BertTextEmbedder, run_dir: Path, batch_size: int | None) -> tuple[Metrics, dict[str, Any]]:
        metrics = {split: self.split_metrics(model, split, batch_size) for split in self.data.evaluation}
        return by_split(metrics), {split: dict(values) for split, values in metrics.items()}

    def export(self, model: BertTextEmbedder, folder: Path, **options: Unpack[ExportArguments]) -> Path:
        return model.export(folder, corpus=self.corpus, **options)

    def export_settings(self) -> dict[str, Any]:
        return {"corpus": None if self.corpus is None else f"{zlib.crc32(chr(10).join(self.corpus).encode()):08x}"}

    def _scaled(self, scores: Iterable[float]) -> np.ndarray:
        lowest, highest = self.settings.score_range
        return (np.array(list(scores), "float32") - lowest) / (highest - lowest)

    def _pairs(self, split: str, examples: Iterable[Any], model: BertTextEmbedder) -> _Pairs:
        def tokenize() -> _Pairs:
            rows = list(examples)
            columns = [text_column([row[name] for row in rows], name) for name in ("text_a", "text_b")]
            texts = dict.fromkeys(itertools.chain.from_iterable(zip(*columns, strict=True)))
            tokenized = tokenize_examples(({"text": text} for text in texts), model.preprocessor)
            log_long_texts(tokenized.token_counts, model.preprocessor)
            scores = self._scaled(row["label"] for row in rows) if "label" in rows[0] else None
            logging.info("%s: %d pairs of %d different texts", split, len(rows), len(tokenized))
            return _Pairs(tokenized, number_texts(*columns), scores)

        return self.tokenized_once(split, tokenize)

    def _metrics(self, pairs: _Pairs, vectors: np.ndarray) -> Metrics:
        vectors = np.asarray(scale_to_unit_length(vectors))
        first, second = pairs.numbers.T
        if self.settings.evaluation == RETRIEVAL:
            queries, documents = np.unique(first), np.unique(second)
            relevance: list[dict[int, float]] = [{} for _ in queries]
            pairs_of_rows = zip(np.searchsorted(queries, first), np.searchsorted(documents, second), strict=True)
            for query, document in pairs_of_rows:
                relevance[query][int(document)] = 1.0
            _, ranked = search(vectors[queries], vectors[documents], _RANKS)
            return retrieval_metrics(ranked, relevance)
        cosines = np.sum(vectors[first] * vectors[second], axis=1)
        assert pairs.scores is not None
        if self.settings.evaluation == SIMILARITY:
            return {
                "spearman_correlation": spearman_correlation(pairs.scores, cosines),
                "pearson_correlation": pearson_correlation(pairs.scores, cosines),
            }
        return reranking_metrics(cosines, first, pairs.scores > 0)


def retrieval_metrics(ranked: np.ndarray, relevance: Sequence[Mapping[int, float]]) -> Metrics:
    """Computes the metrics of rankings; see `keras_bert.metrics.retrieval`."""
    return {
        "ndcg_at_10": ndcg(ranked, relevance, _RANKS),
        "mrr_at_10": mean_reciprocal_rank(ranked, relevance, _RANKS),
        "recall_at_1": recall(ranked, relevance, 1),
        "recall_at_10": recall(ranked, relevance, _RANKS),
    }


def reranking_metrics(cosines: np.ndarray, first: np.ndarray, is_relevant: np.ndarray) -> Metrics:
    """Computes the metrics of queries that rank their own candidates; those without a relevant one are left out.

    Row by row, `cosines` are the scores of candidates, and `first` the numbers of their queries.
    """
    queries = np.unique(first[is_relevant])
    if not len(queries):
        raise ValueError("no row of dev_file has a score above 0, which marks relevant texts")
    rows = [np.flatnonzero(first == query) for query in queries]
    scores = np.full([len(queries), max(map(len, rows))], -np.inf)
    for number, own in enumerate(rows):
        scores[number, : len(own)] = cosines[own]
    relevance = [{int(place): 1.0 for place in np.flatnonzero(is_relevant[own])} for own in rows]
    ranked = rank_documents(scores)
    return {
        "mean_average_precision": mean_average_precision(ranked, relevance),
        "mean_reciprocal_rank": mean_reciprocal_rank(ranked, relevance),
    }
