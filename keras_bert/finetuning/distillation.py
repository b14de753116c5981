"""Distillation by `fine_tune`: a student learns a teacher's logits for a task, or its states on raw text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.data.formats.text_lines import read_text_lines
from keras_bert.data.tokenized_examples import TokenizedExamples, log_long_texts, tokenize_examples
from keras_bert.finetuning.fine_tuner import fine_tune
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.run_models import resolve_checkpoint
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.task import FineTuningTask, Metrics, TaskData
from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings
from keras_bert.io.remote_paths import matching_files
from keras_bert.io.row_errors import BadRows
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.distilled_classifier import DistilledClassifier
from keras_bert.models.distiller import BertDistiller, StateObjective
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.labels import SINGLE_LABEL
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, load_tokenizer, read_bert
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.settings import REQUIRED, setting
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.typing import PathLike

_DROPOUT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_LOGIT_SETTINGS = ("temperature", "teacher_weight")
_TEXT_SETTINGS = ("max_texts", "replaced_words", "eval_texts")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings(TextClassificationSettings, StateObjective):
    """Settings of a distillation: the teacher, the data, and what is learned.

    With `train_file` the student learns a classifier's logits; with `text_files`, an encoder's states on raw text.

    Raises:
        TypeError, ValueError: if a setting has a value that is not allowed, or two contradict each other.

    Example:

    >>> settings = keras_bert.DistillationSettings(teacher="all_minilm_l6_v2", text_files=("corpus/*.txt",))
    >>> settings.hidden_weight, settings.vector_weight
    (1.0, 0.0)
    """

    teacher: str = setting(REQUIRED, "The teacher: a checkpoint, the folder of a run, or the name of a preset.")
    text_files: tuple[str, ...] = setting(
        (),
        "Raw text, one text per line, such as the output of tools.prepare_corpus: files or patterns, comma-separated.",
        modes=("train",),
        recorded=False,
    )
    max_texts: int | None = setting(
        None, "Number of raw texts to train on, drawn at random; default: all.", lower=1, modes=("train",)
    )
    replaced_words: float = setting(
        0.0,
        "Fraction of the words of raw texts that are replaced by random words of the teacher's vocabulary, so that the "
        "student learns words that the texts lack.",
        lower=0.0,
        upper=1.0,
        modes=("train",),
    )
    eval_texts: int = setting(1000, "Number of other raw texts to evaluate on.", lower=1, modes=("train",))
    temperature: float = setting(
        2.0, "Divisor of logits; above 1, small probabilities count more.", lower=1e-3, modes=("train",)
    )
    teacher_weight: float = setting(
        0.5,
        "Weight of the teacher's logits; the labels have the remaining weight, up to 1.",
        lower=0.0,
        upper=1.0,
        modes=("train",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_files and self.train_file:
            raise ValueError("train_file is for a task and text_files for raw text; give one of the two")
        if not self.text_files and self.problem_type != SINGLE_LABEL:
            raise ValueError(f"logits are learned for single labels only, not with problem_type={self.problem_type}")

    def without_effect(self) -> dict[str, str]:
        if self.text_files:
            names = [field.name for field in dataclasses.fields(TextClassificationSettings)]
            return dict.fromkeys([*names, *_LOGIT_SETTINGS], "with text_files")
        names = [field.name for field in dataclasses.fields(StateObjective)]
        return {**super().without_effect(), **dict.fromkeys([*names, *_TEXT_SETTINGS], "without text_files")}


def distill(
    settings: DistillationSettings,
    recipe: FineTuningRecipe,
    run_dir: PathLike,
    strategy: tf.distribute.Strategy | None = None,
    runtime: FineTuningRuntime | None = None,
    modes: Collection[str] = ("train",),
) -> dict[str, Any]:
    """Trains a student on a teacher's outputs, as `tasks.distill` does.

    The student is the recipe's `init_checkpoint`, for example one of `keras_bert.make_student`. For a task, it learns
    the teacher's logits and the labels. On raw text, without labels, it learns the teacher's hidden states, attention
    relations and text vectors, and is fine-tuned afterwards like any checkpoint. The teacher's logits and text vectors
    are computed once; its states, which take too much memory to keep, in every step.

    Args:
        settings: the teacher, the data, and what is learned.
        recipe, run_dir, strategy, runtime, modes: as for `keras_bert.fine_tune`. On raw text the modes are "train" and
            "export", and the student has no dropout unless the recipe sets it.

    Returns:
        As `keras_bert.fine_tune`.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: as `keras_bert.fine_tune`; ValueError also if the teacher has
            other labels, or student and teacher do not fit.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> student = keras_bert.make_student("bert_tiny_novels", folder / "student", layers=[1])
    >>> _ = (folder / "text.txt").write_text("It was a dark night.\\nThe sea was calm.\\n" * 8)
    >>> texts = (str(folder / "text.txt"),)
    >>> settings = keras_bert.DistillationSettings(teacher="bert_tiny_novels", text_files=texts, eval_texts=4)
    >>> recipe = keras_bert.FineTuningRecipe(init_checkpoint=student, max_seq_length=16, epochs=1)
    >>> runtime = keras_bert.FineTuningRuntime(progress=False)
    >>> keras_bert.distill(settings, recipe, folder / "run", runtime=runtime)["best"]["steps"]
    1
    """
    return fine_tune(distillation_task(settings, modes, recipe.seed), recipe, run_dir, strategy, runtime, modes)


def distillation_task(settings: DistillationSettings, modes: Collection[str], seed: int = 1) -> FineTuningTask:
    """Reads the data of a distillation: a task for `fine_tune`."""
    if settings.text_files:
        return StateDistillation.from_settings(settings, modes, seed)
    return LogitDistillation.from_settings(settings, modes, seed)


class LogitDistillation(TextClassification):
    """Classification of a user's files by a student that learns a teacher's logits too."""

    settings: DistillationSettings
    settings_class = DistillationSettings

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> DistilledClassifier:
        model = DistilledClassifier.from_checkpoint(
            checkpoint, labels=self.labels, problem_type=self.problem_type, **arguments
        )
        model.temperature, model.teacher_weight = self.settings.temperature, self.settings.teacher_weight
        return model

    def configuration(self, model: BertClassifier) -> dict[str, Any]:
        return {**super().configuration(model), "teacher": str(_teacher_path(self.settings))}

    def prepare_training(self, model: BertClassifier) -> None:
        examples = self.training_examples(model)
        assert examples.labels is not None and self.data.train is not None
        if examples.labels.ndim == 2:
            return
        length, dtype = model.preprocessor.sequence_length, model.dtype_policy.name
        teacher = BertClassifier.from_checkpoint(_teacher_path(self.settings), sequence_length=length, dtype=dtype)
        if teacher.labels != model.labels:
            raise ValueError(f"the teacher {self.settings.teacher} has the labels {teacher.labels}, not {model.labels}")
        logging.info("computing the teacher's logits of %d examples", len(examples))
        logits = teacher.predict(tokenize_examples(self.data.train, teacher.preprocessor), verbose=0)
        examples.set_labels(np.concatenate([examples.labels[:, None], logits], axis=1).astype("float32"))


class StateDistillation(FineTuningTask):
    """Task-agnostic distillation on raw text."""

    settings: DistillationSettings
    settings_class = DistillationSettings
    unit = "texts"

    def __init__(self, settings: DistillationSettings, data: TaskData) -> None:
        super().__init__("distill", "negative_loss", data)
        self.settings = settings
        self._has_vectors = False

    @classmethod
    def from_settings(cls, settings: DistillationSettings, modes: Collection[str], seed: int = 1) -> StateDistillation:
        if "train" not in modes:
            return cls(settings, TaskData())
        bad_rows = BadRows(skip=settings.skip_bad_rows)
        lines = (
            line.strip() for path in matching_files(settings.text_files) for line in read_text_lines(path, bad_rows)
        )
        texts = [line for line in lines if line]
        if len(texts) <= settings.eval_texts:
            raise ValueError(
                f"text_files have {len(texts)} texts, and eval_texts={settings.eval_texts} of them are held out"
            )
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(texts))
        held_out, trained = np.split(order, [settings.eval_texts])
        train, dev = ([texts[index] for index in part] for part in (trained[: settings.max_texts], held_out))
        if settings.replaced_words:
            vocabulary = load_tokenizer(read_bert(_teacher_path(settings))).vocabulary
            words = [word for word in vocabulary if _WORD.fullmatch(word)]
            train = [_replace_words(text, words, settings.replaced_words, generator) for text in train]
        return cls(settings, TaskData(train=train, evaluation={"dev": dev}, bad_rows=bad_rows))

    def check(self, modes: Collection[str]) -> None:
        unused = sorted({"eval", "predict"} & set(modes))
        if unused:
            raise ValueError(
                f"--mode has {unused[0]!r}, but a distillation on raw text has only the scores of its training "
                "(results.json); fine-tune the student, or use it in a BertTextEmbedder"
            )
        super().check(modes)

    def new_model(self, recipe: FineTuningRecipe, runtime: FineTuningRuntime) -> BertDistiller:
        if recipe.lora_rank is not None or recipe.encoder is not None or recipe.freeze != FREEZE_NONE:
            raise ValueError("on raw text the whole student is trained: leave encoder, freeze and lora_rank out")
        assert recipe.init_checkpoint is not None
        arguments: dict[str, Any] = dict.fromkeys(_DROPOUT_RATES, recipe.dropout or 0.0)
        arguments |= {"dtype": recipe.precision, "gradient_checkpointing": runtime.gradient_checkpointing}
        checkpoint, encoder = read_encoder(recipe.init_checkpoint, seed=recipe.seed, **arguments)
        if not isinstance(encoder, BertEncoder):
            raise ValueError(f"{recipe.init_checkpoint} is not a single BERT, which the student must be")
        teacher = _teacher_path(self.settings)
        model = BertDistiller(
            encoder,
            BertEncoder.from_checkpoint(teacher, dtype=recipe.precision, trainable=False),
            BertPreprocessor(load_tokenizer(checkpoint), recipe.max_seq_length),
            load_tokenizer(read_bert(teacher)).vocabulary,
            self.settings,
            {name: checkpoint.encoder_arguments[name] for name in _DROPOUT_RATES},
            recipe.seed,
        )
        model.checkpoint_report = assign_arrays(model.variables_by_path(), checkpoint)
        return model

    def trained_model(self, checkpoint: Path, recipe: FineTuningRecipe) -> BertTextEmbedder:
        return BertTextEmbedder.from_checkpoint(
            checkpoint, sequence_length=recipe.max_seq_length, dtype=recipe.precision
        )

    def configuration(self, model: BertDistiller) -> dict[str, Any]:
        return {**super().configuration(model), "teacher": str(_teacher_path(self.settings))}

    def tokenize_split(self, split: str, examples: Iterable[str], model: BertDistiller) -> TokenizedExamples:
        def tokenize() -> TokenizedExamples:
            tokenized = tokenize_examples(({"text": text} for text in examples), model.preprocessor)
            tokenized.set_labels(np.zeros(len(tokenized), "int8"))
            logging.info("%s: %d texts", split, len(tokenized))
            log_long_texts(tokenized.token_counts, model.preprocessor)
            return tokenized

        return self.tokenized_once(split, tokenize)

    def prepare_training(self, model: BertDistiller) -> None:
        splits = {"train": self.data.train, **self.data.evaluation}
        tokenized = {split: self.tokenize_split(split, texts or (), model) for split, texts in splits.items()}
        if not self.settings.vector_weight or self._has_vectors:
            return
        length, dtype = model.preprocessor.sequence_length, model.dtype_policy.name
        path = _teacher_path(self.settings)
        teacher = BertTextEmbedder.from_checkpoint(path, pooling="mean", sequence_length=length, dtype=dtype)
        for split, examples in tokenized.items():
            logging.info("%s: computing the teacher's vectors of %d texts", split, len(examples))
            examples.set_labels(teacher.encode(list(splits[split] or ())).astype("float16"))
        self._has_vectors = True

    def split_metrics(self, model: BertDistiller, split: str, batch_size: int | None) -> Metrics:
        examples = self.tokenize_split(split, self.data.evaluation[split], model)
        assert examples.labels is not None
        losses = model.mean_losses(model.predict(examples, batch_size, verbose=0), examples.labels)
        return {"negative_loss": -sum(model.factors[name] * loss for name, loss in losses.items()), **losses}


def _teacher_path(settings: DistillationSettings) -> Path:
    return resolve_checkpoint(settings.teacher, "teacher")


def _replace_words(text: str, words: Sequence[str], fraction: float, generator: np.random.Generator) -> str:
    """Replaces some words of a text, drawn one by one, by random ones."""
    parts = text.split()
    for index in np.flatnonzero(generator.random(len(parts)) < fraction):
        parts[index] = words[int(generator.integers(len(words)))]
    return " ".join(parts)
