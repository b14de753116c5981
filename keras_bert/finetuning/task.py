"""Base class of fine-tuning tasks: their data, tokenized once, their model, and metrics by split."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, Unpack

from absl import logging

from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.export.export_options import ExportArguments
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.io.row_errors import BadRows
from keras_bert.models.head import BertHead
from keras_bert.models.lora import LORA_ARGUMENTS
from keras_bert.settings import Settings, setting

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_DROPOUT = 0.1  # google-research/bert, run_classifier.py: keep_prob=0.9

Metrics = dict[str, float]
Tokenized = TypeVar("Tokenized")


@dataclass(frozen=True)
class TaskData:
    """The examples of a task: iterables that can be read again, for evaluation and prediction by split.

    The first evaluation split decides which model is best. `bad_rows` is what the readers report malformed rows to.
    """

    train: Iterable[Any] | None = None
    evaluation: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    prediction: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    bad_rows: BadRows | None = None


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """Base class of the settings of a fine-tuning task's data."""

    skip_bad_rows: bool = setting(
        False,
        "Count and skip malformed rows instead of stopping at the first.",
        modes=("train", "eval", "predict"),
        recorded=False,
    )


class FineTuningTask:
    """Base class of the tasks that `keras_bert.fine_tune` takes, with their data.

    A subclass loads the model (`load_model`), tokenizes (`tokenize_split`), computes metrics (`split_metrics`), and
    reports, predicts and exports (`configuration`, `report`, `write_predictions`, `export`). `score` is the metric that
    selects the best model; higher is better. `models_of` names the tasks whose trained models this task can use, by
    default only itself.
    """

    settings_class: type[Settings]  # settings that `from_settings` takes
    settings: Any = Settings()  # an instance of `settings_class`; recorded values are part of a run's configuration
    unit = "windows"  # what `tokenize_split` returns
    head: str  # prefix of the paths of the head's variables
    hub_datasets: ClassVar[tuple[str, ...]] = ()  # the data's names on the Hugging Face Hub, for the model card
    has_dropout = True  # whether there is dropout before the head
    # The setting that names the data of each mode.
    sources: ClassVar[dict[str, str]] = {"train": "train_file", "eval": "dev_file", "predict": "predict_file"}

    def __init__(self, name: str, score: str, data: TaskData, models_of: Collection[str] = ()) -> None:
        self.name = name
        self.data = data
        self._models_of = models_of or (name,)
        self._tokenized: dict[str, Any] = {}
        first = next(iter(data.evaluation), None)
        self.score = None if first is None else f"{first}/{score}"

    @classmethod
    def from_settings(cls, settings: Any, modes: Collection[str], seed: int = 1) -> FineTuningTask:
        """Reads the data that the modes need; labels default to those of the training file.

        `settings` is an instance of `settings_class`; `seed`, the recipe's, draws held-out examples. Raises
        FileNotFoundError if a file is missing, and ValueError if settings, files, columns or labels do not fit.
        """
        raise NotImplementedError

    def check(self, modes: Collection[str]) -> None:
        """Raises ValueError if a mode has no data."""
        for mode, data, source, what in (
            ("train", self.data.train, "train", "examples to train on"),
            ("train", self.data.evaluation, "eval", "labelled examples to choose the best model by"),
            ("eval", self.data.evaluation, "eval", "labelled examples to evaluate on"),
            ("predict", self.data.prediction, "predict", "examples to predict"),
        ):
            if mode in modes and not data:
                advice = f"; give --{self.sources[source]}" if source in self.sources else ""
                raise ValueError(f"--mode has {mode!r}, but {self.name} has no {what}{advice}")

    def check_configuration(self, configuration: Mapping[str, Any]) -> None:
        """Raises ValueError if the run with this configuration trained a model for another task."""
        if configuration.get("task") not in self._models_of:
            raise ValueError(
                f"the model is of a run for the task {configuration.get('task')!r}, and this is {self.name!r}; "
                "give the folder of a run for this task"
            )

    def new_model(self, recipe: FineTuningRecipe, runtime: FineTuningRuntime) -> Any:
        """Creates a model to train, with the weights of the recipe's checkpoint."""
        arguments: dict[str, Any] = {
            "freeze": recipe.freeze,
            "seed": recipe.seed,
            "encoder": recipe.encoder,
            "right_to_left": recipe.init_checkpoint_right_to_left,
            "gradient_checkpointing": runtime.gradient_checkpointing,
        }
        if recipe.lora_rank is not None:
            arguments |= {name: getattr(recipe, name) for name in LORA_ARGUMENTS}
        if self.has_dropout:
            arguments["dropout"] = _DROPOUT if recipe.dropout is None else recipe.dropout
        elif recipe.dropout is not None:
            raise ValueError(f"the head of {self.name} has no dropout before it; got dropout={recipe.dropout}")
        assert recipe.init_checkpoint is not None
        return self.load_initial_model(recipe.init_checkpoint, {**_common_arguments(recipe), **arguments})

    def load_initial_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertHead:
        """Loads the model to train, if it is of another class than that of `load_model`."""
        return self.load_model(checkpoint, arguments)

    def finished_model(self, model: Any) -> Any:
        """Returns the model to save after a training, if it is another than the trained one."""
        return model

    def trained_model(self, checkpoint: Path, recipe: FineTuningRecipe) -> Any:
        """Loads the model of a checkpoint that was trained for this task; raises ValueError if its head was not."""
        model = self.load_model(checkpoint, _common_arguments(recipe))
        if any(name.startswith(f"{self.head}/") for name in model.checkpoint_report.random):
            raise ValueError(
                f"{checkpoint} has no trained {self.describe_head(model)}; train one (--mode=train), or give the model "
                "of a run that has"
            )
        return model

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertHead:
        """Loads the task's head from a checkpoint; `arguments` are those of its `from_checkpoint`."""
        raise NotImplementedError

    def describe_head(self, model: Any) -> str:
        """Names the head that a checkpoint needs for this task, for an error message."""
        raise NotImplementedError

    def configuration(self, model: Any) -> dict[str, Any]:
        """Returns what identifies the task and its data in a run's configuration, as values for JSON.

        Reads all data that the modes need, so that errors in them are found before training.
        """
        data = {"train": self.training_examples(model)}
        data |= {split: self.tokenize_split(split, examples, model) for split, examples in self.data.evaluation.items()}
        for _ in itertools.chain.from_iterable(self.data.prediction.values()):
            pass
        described = {split: f"{len(part)} {self.unit}, {part.fingerprint()}" for split, part in data.items()}
        return {"task": self.name, **self.settings.configuration(), "data": described}

    def training_examples(self, model: Any) -> TokenizedExamples:
        """Returns the examples to train on."""
        assert self.data.train is not None
        return self.tokenize_split("train", self.data.train, model)

    def prepare_training(self, model: Any) -> None:
        """Hook, called before each training; what it adds to the examples is no part of the configuration."""

    def tokenize_split(self, split: str, examples: Iterable[Any], model: Any) -> TokenizedExamples:
        """Tokenizes the training examples, or those of an evaluation split."""
        raise NotImplementedError

    def split_metrics(self, model: Any, split: str, batch_size: int | None) -> Metrics:
        """Computes the metrics of an evaluation split."""
        raise NotImplementedError

    def evaluate(self, model: Any, batch_size: int | None) -> Metrics:
        """Computes the metrics of all evaluation splits as "split/metric"."""
        return by_split({split: self.split_metrics(model, split, batch_size) for split in self.data.evaluation})

    def report(self, model: Any, run_dir: Path, batch_size: int | None) -> tuple[Metrics, dict[str, Any]]:
        """Returns the metrics of `evaluate` and a detailed report by split; writes its files to the run's folder."""
        raise NotImplementedError

    def write_predictions(self, model: Any, folder: Path, batch_size: int | None) -> list[Path]:
        """Predicts all prediction splits, and returns the files written."""
        raise NotImplementedError

    def export(self, model: Any, folder: Path, **options: Unpack[ExportArguments]) -> Path:
        """Writes the model for serving."""
        return model.export(folder, **options)

    def export_settings(self) -> dict[str, Any]:
        """Returns what an export depends on besides the model, as values for JSON."""
        return {}

    def use_model_of(self, run_dir: Path, init_checkpoint: str | None) -> None:
        """Hook, called before a trained model is used, with the folders that may hold the results of its training."""

    def tokenized_once(self, split: str, tokenize: Callable[[], Tokenized]) -> Tokenized:
        """Returns the tokenized split, made once for all trials: they share data, vocabulary and length."""
        if split not in self._tokenized:
            self._tokenized[split] = tokenize()
            if self.data.bad_rows is not None:
                self.data.bad_rows.log_total()
        return self._tokenized[split]


def _common_arguments(recipe: FineTuningRecipe) -> dict[str, Any]:
    return {"sequence_length": recipe.max_seq_length, "dtype": recipe.precision}


def by_split(metrics: Mapping[str, Metrics]) -> Metrics:
    """Merges the metrics of several splits into one dict, as "split/metric"."""
    return {f"{split}/{name}": value for split, named in metrics.items() for name, value in named.items()}


@contextlib.contextmanager
def skip_if_read_only(path: Path) -> Iterator[None]:
    """Turns the error of a file that cannot be written because its folder is read-only into a warning."""
    try:
        yield
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        logging.warning("%s is not written: %s", path, error.strerror)
