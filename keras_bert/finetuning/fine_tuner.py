"""Fine-tuning of any task: trials, of which the best is evaluated, used for predictions, and exported."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.batching import BatchPlan
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.export.export_options import INT8
from keras_bert.finetuning.plots import draw_training_curve
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.run_cards import write_fine_tuning_card
from keras_bert.finetuning.run_models import (
    ADAPTER_FOLDER,
    MODEL_FOLDER,
    RESULTS_NAME,
    best_model,
    find_model,
    resolve_checkpoints,
    saved_configuration,
)
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.sweep import Trial, best_trial, run_trials, summarize_trials
from keras_bert.finetuning.task import FineTuningTask, skip_if_read_only
from keras_bert.finetuning.training_input import (
    check_training_input,
    describe_training_input,
    explain_service_errors,
    training_input,
)
from keras_bert.finetuning.workers import run_on_worker, stop_on_sigterm
from keras_bert.io.atomic_write import write_json
from keras_bert.models.freeze import reinitialize_top_blocks
from keras_bert.models.paper_encoders.encoder_loading import get_encoder_kind
from keras_bert.training.loss import mean_loss_weights
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import CONFIGURATION_NAME, RunDirectory, read_json_object
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.strategy import is_chief, needs_static_shapes
from keras_bert.training.trainer import Trainer
from keras_bert.typing import PathLike
from keras_bert.weights.assignment_report import AssignmentReport

MODES = ("train", "eval", "predict", "export")
# Below this size, Adam's bias correction stabilizes fine-tuning (arXiv 2006.05987, section 4.1: sets of up to 10k).
_SMALL_SET = 10_000


def fine_tune(
    task: FineTuningTask,
    recipe: FineTuningRecipe | None,
    run_dir: PathLike,
    strategy: tf.distribute.Strategy | None = None,
    runtime: FineTuningRuntime | None = None,
    modes: Collection[str] = ("train", "eval"),
) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports, as the fine-tuning programs do; all workers of the strategy call it.

    Everything is written to the folder of the run. The same call resumes an interrupted run, to the same weights.

    Args:
        task: what is learned, on which data: `keras_bert.finetuning.glue.GlueClassification`,
            `keras_bert.finetuning.text_classification.TextClassification`,
            `keras_bert.finetuning.question_answering_task.QuestionAnsweringTask`,
            `keras_bert.finetuning.multiple_choice_task.MultipleChoiceTask`,
            `keras_bert.finetuning.token_classification_task.TokenClassificationTask`, or your own `FineTuningTask`.
        recipe: what determines the result. Every learning rate is tried with every seed, and the best model on the
            first evaluation split is kept. None means the recipe of the run whose model is used, if "train" is not
            among the modes.
        run_dir: the folder of the run.
        strategy: a strategy from `keras_bert.training.make_strategy`; None means one device. With several workers, only
            the first one writes files, runs the final evaluation, predicts and exports.
        runtime: settings of speed and memory, which may differ when a run is resumed.
        modes: any of "train", "eval", "predict" and "export".

    Returns:
        After training, the contents of `results.json`; and `evaluation`, the metrics, if the modes have "eval";
        `model`, the folder of the weights; `predictions` and the export's format, by default `saved_model`, lists of
        the paths written.

    Raises:
        FileExistsError: if the folder belongs to another run.
        FileNotFoundError: if there are no initial weights, or no model to use.
        ValueError: if settings or data do not fit; before training where that can be known.
        WorkerLostError: if another worker is lost; the message names it.

    Example:

    >>> from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = ["it was good,yes", "it was bad,no"] * 8
    >>> _ = (folder / "train.csv").write_text("\\n".join(["text,label", *rows]))
    >>> files = (str(folder / "train.csv"),)
    >>> settings = TextClassificationSettings(train_file=files, dev_file=files)
    >>> task = TextClassification.from_settings(settings, modes=("train",))
    >>> recipe = keras_bert.FineTuningRecipe(init_checkpoint="bert_tiny_novels", max_seq_length=8, epochs=1)
    >>> runtime = keras_bert.FineTuningRuntime(progress=False)
    >>> results = keras_bert.fine_tune(task, recipe, folder / "run", runtime=runtime, modes=("train",))
    >>> results["score"], results["best"]["steps"]
    ('dev/accuracy', 1)
    """
    unknown = sorted(set(modes) - set(MODES))
    if unknown or not modes:
        raise ValueError(f"modes must be any of {', '.join(MODES)}, got {', '.join(unknown) or 'none'}")

    def work(strategy: tf.distribute.Strategy) -> dict[str, Any]:
        tuner = _FineTuner(task, Path(run_dir), strategy, runtime or FineTuningRuntime())
        return tuner.run(recipe, modes)

    return run_on_worker(work, strategy)


class _FineTuner:
    """One worker's part of `fine_tune`."""

    def __init__(
        self, task: FineTuningTask, run_dir: Path, strategy: tf.distribute.Strategy, runtime: FineTuningRuntime
    ) -> None:
        self.task = task
        self.run_dir = run_dir
        self.strategy = strategy
        self.runtime = runtime
        self._first_model: tuple[FineTuningRecipe, Any] | None = None

    def run(self, recipe: FineTuningRecipe | None, modes: Collection[str]) -> dict[str, Any]:
        self.task.check(modes)
        if "export" in modes and self.runtime.export_quantize == INT8 and "train" not in modes:
            raise ValueError(
                f"export_quantize={INT8!r} is calibrated on training examples, and the modes are {', '.join(modes)}: "
                "export together with the training (--mode=train,export; a finished one is not repeated)"
            )
        results: dict[str, Any] = {}
        if "train" in modes:
            if recipe is None:
                raise ValueError("training needs a recipe")
            results = self.train_trials(recipe)
            if is_chief(self.strategy):
                write_json(self.run_dir / RESULTS_NAME, results, overwrite=True)
                write_fine_tuning_card(best_model(self.run_dir), results, self.task.hub_datasets)
                results["model"] = str(best_model(self.run_dir))
        if {"eval", "predict", "export"} & set(modes) and is_chief(self.strategy):
            results |= self.use_trained(recipe, modes)
        return {"predictions": [], "saved_model": [], **results}

    def train_trials(self, recipe: FineTuningRecipe) -> dict[str, Any]:
        """Trains with every learning rate and seed, after validating settings and data; returns `results.json`."""
        if recipe.static_shapes is None:
            recipe = dataclasses.replace(recipe, static_shapes=needs_static_shapes(self.strategy))
        recipe = resolve_checkpoints(recipe)
        check_training_input(self.strategy, recipe, self.runtime.data_service)
        # Creates a first model and reads all data, so that errors are found before the folder belongs to this run.
        first = recipe.trials()[0]
        model = self.new_model(first)
        self._first_model = first, model
        configuration = self.task.configuration(model)
        for trial in recipe.trials():
            make_plan(self.task.training_examples(model), trial)
        # The result depends on whether a service provides the input, but not on its address.
        configuration["data_service"] = None if self.runtime.data_service is None else True
        del model
        with hide_weight_tables():  # the first model's was logged
            trials = run_trials(self.run_dir, configuration, recipe, self.train_trial, self.strategy)
        self._first_model = None
        return {
            "task": self.task.name,
            "score": self.task.score,
            "best": best_trial(trials),
            "by_learning_rate": summarize_trials(trials),
            "trials": trials,
            "configuration": {**configuration, **recipe.configuration()},
        }

    def new_model(self, recipe: FineTuningRecipe) -> Any:
        """Creates the initial model of a trial, in the strategy's scope."""
        with self.strategy.scope():
            model = self.task.new_model(recipe, self.runtime)
            if recipe.reinitialize_top_layers is not None:
                reinitialize_top_blocks(model.encoder, recipe.reinitialize_top_layers, recipe.seed)
        return model

    def train_trial(self, run: RunDirectory, recipe: FineTuningRecipe) -> Trial:
        """Trains once, and writes the best weights and the training curve to the folder of the run."""
        task, runtime = self.task, self.runtime
        first, self._first_model = self._first_model, None
        model = first[1] if first is not None and first[0] == recipe else self.new_model(recipe)
        del first
        task.prepare_training(model)
        examples = task.training_examples(model)
        plan, schedule = make_plan(examples, recipe)
        with self.strategy.scope():
            optimizer = make_optimizer(model, schedule, len(examples), recipe)
        settings = dataclasses.replace(
            runtime.trainer_settings(schedule.num_train_steps, recipe.seed),
            evaluate_every=recipe.evaluate_every or plan.batches_per_epoch,
            score=task.score,
            patience=recipe.patience,
            saves_data_position=runtime.data_service is None,
            mean_loss_weights=mean_loss_weights(model, examples, plan),
        )
        with stop_on_sigterm() as should_stop:
            trainer = Trainer(
                model,
                optimizer,
                run,
                settings,
                self.strategy,
                evaluate=lambda: task.evaluate(model, runtime.eval_batch_size),
                should_stop=should_stop,
                run_info={
                    **describe_start(model, recipe),
                    **self.describe_plan(model, examples, plan, recipe),
                    **describe_optimizer(optimizer, schedule),
                    **describe_training_input(recipe, runtime.data_service),
                },
            )
            resumed_at = trainer.checkpoints.newest()
            batches = training_input(examples, plan, self.strategy, resumed_at, recipe, runtime)
            with explain_service_errors(runtime.data_service):
                result = trainer.train(batches)
        if is_chief(self.strategy):
            if not (run.path / MODEL_FOLDER).exists():
                task.finished_model(model).save_checkpoint(run.path / MODEL_FOLDER)
            if recipe.lora_rank is not None and not (run.path / ADAPTER_FOLDER).exists():
                model.save_adapter(run.path / ADAPTER_FOLDER, recipe.init_checkpoint)
            draw_training_curve(run.path / "training_curve.png", run.read_log())
        assert task.score is not None
        return {
            "score": result.best_metrics[task.score],
            "metrics": result.best_metrics,
            "best_step": result.best_step,
            "steps": result.step,
            "seconds": result.seconds,
            "examples_per_second": result.examples_per_second,
            "trainable_parameters": num_trainable(model),
            "peak_host_memory": peak_host_memory(),
        }

    def describe_plan(
        self, model: Any, examples: TokenizedExamples, plan: BatchPlan, recipe: FineTuningRecipe
    ) -> dict[str, str]:
        """Describes data, batches and model of a trial, for the log."""
        replicas, parts = self.strategy.num_replicas_in_sync, self.runtime.gradient_accumulation_steps

        def size(parts: int) -> str:
            sizes = ((recipe.batch_size, "examples"), (recipe.token_budget, "tokens"))
            bound = "at most" if parts == 1 else "about"  # a batch is split by its rows
            return f"{bound} " + " and ".join(f"{math.ceil(number / parts)} {unit}" for number, unit in sizes if number)

        return {
            "examples": f"{len(examples)}, {examples.lengths.mean():.1f} tokens on average",
            "steps per epoch": str(plan.batches_per_epoch),
            "batch": size(1),
            "batch per replica": size(replicas),
            "micro-batch": f"{size(replicas * parts)} ({parts} per replica)",
            "precision": model.dtype_policy.name,
            "trainable parameters": f"{num_trainable(model):,}",
            "data order": f"by seed {plan.seed} and epoch",
        }

    def use_trained(self, recipe: FineTuningRecipe | None, modes: Collection[str]) -> dict[str, Any]:
        """Evaluates, predicts and exports with the model of the run or of a checkpoint."""
        init_checkpoint = None if recipe is None else recipe.init_checkpoint
        is_trained = "train" in modes
        if is_trained:
            folder = best_model(self.run_dir)
        else:
            folder, configuration = find_model(self.run_dir, init_checkpoint)
            if configuration:
                self.task.check_configuration(configuration)
        if recipe is None:
            recipe = saved_recipe(self.run_dir, None)
        with hide_weight_tables() if is_trained else contextlib.nullcontext():
            model = self.task.trained_model(folder, recipe)
        kind = get_encoder_kind(model.encoder)
        if recipe.encoder not in (None, kind):
            raise ValueError(
                f"{folder} has the encoder {kind!r}, and encoder={recipe.encoder!r} is another: a model is used with "
                "the encoder that it was trained with. Leave encoder out"
            )
        self.task.use_model_of(self.run_dir, init_checkpoint)
        with skip_if_read_only(self.run_dir):
            self.run_dir.mkdir(parents=True, exist_ok=True)
        results: dict[str, Any] = {"model": str(folder)}
        batch_size = self.runtime.eval_batch_size
        if "eval" in modes:
            results["evaluation"], report = self.task.report(model, self.run_dir, batch_size)
            with skip_if_read_only(self.run_dir / "evaluation.json"):
                write_json(self.run_dir / "evaluation.json", report, overwrite=True)
        if "predict" in modes:
            files = self.task.write_predictions(model, self.run_dir / "predictions", batch_size)
            results["predictions"] = [str(file) for file in files]
        if "export" in modes:
            results[self.runtime.export_format] = [str(self.export(model, folder))]
        return results

    def export(self, model: Any, folder: Path) -> Path:
        """Exports as the next version, unless the newest one has the same model and settings."""
        runtime = self.runtime
        exports = self.run_dir / runtime.export_format
        exports.mkdir(parents=True, exist_ok=True)
        versions = sorted(int(path.name) for path in exports.iterdir() if path.name.isdigit())
        exported = {
            "model": str(folder),
            "modified": (folder / "config.json").stat().st_mtime,
            "dtype": runtime.export_dtype or model.dtype_policy.name,
            "quantize": runtime.export_quantize,
            "sequence_length": model.preprocessor.sequence_length,
            **self.task.export_settings(),
        }
        record = self.run_dir / f"exported_{runtime.export_format}.json"
        if versions and record.is_file() and read_json_object(record) == exported:
            return exports / str(versions[-1])
        path = self.task.export(
            model,
            exports / str(max(versions, default=0) + 1),
            dtype=runtime.export_dtype,
            format=runtime.export_format,
            quantize=runtime.export_quantize,
            calibration_texts=self.task.training_examples(model) if runtime.export_quantize == INT8 else None,
        )
        write_json(record, exported, overwrite=True)
        return path


def saved_recipe(run_dir: PathLike, init_checkpoint: PathLike | None, **changes: Any) -> FineTuningRecipe:
    """Returns the recipe of the run in `run_dir` or `init_checkpoint`, or the defaults, with some settings changed."""
    saved = FineTuningRecipe.recorded(saved_configuration(run_dir, init_checkpoint))
    try:
        FineTuningRecipe(**saved)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the {CONFIGURATION_NAME} of the run in {run_dir} or {init_checkpoint} is damaged: {error}. Restore the "
            "file, or start a new run in another folder"
        ) from error
    start = None if init_checkpoint is None else str(init_checkpoint)
    return FineTuningRecipe(**{**saved, "init_checkpoint": start, **changes})


def make_plan(examples: TokenizedExamples, recipe: FineTuningRecipe) -> tuple[BatchPlan, WarmupSchedule]:
    """Returns the batches of a trial, and the learning rate over its steps.

    Differs from BERT: an epoch has every example, so its last batch may be smaller than the others.
    """
    plan = BatchPlan(examples.lengths, recipe.batch_size, recipe.token_budget, recipe.bucket_step or None, recipe.seed)
    steps = max(int(plan.batches_per_epoch * recipe.epochs), 1)
    (rate,) = recipe.learning_rates
    return plan, WarmupSchedule(rate, steps, warmup_proportion=recipe.warmup_proportion, decay=recipe.schedule)


def make_optimizer(model: Any, schedule: WarmupSchedule, num_examples: int, recipe: FineTuningRecipe) -> BertAdamW:
    """Creates the optimizer of a trial; called in the strategy's scope."""
    factors = model.encoder.learning_rate_factors(recipe.layer_decay) if recipe.layer_decay != 1 else ()
    return BertAdamW(
        schedule,
        weight_decay=recipe.weight_decay,
        clip_norm=recipe.clip_norm,
        bias_correction=num_examples < _SMALL_SET if recipe.bias_correction is None else recipe.bias_correction,
        learning_rate_factors=factors,
    )


def num_trainable(model: Any) -> int:
    """Returns the number of trainable parameters of a model."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def peak_host_memory() -> int | None:
    """Returns the largest number of bytes that the process has had in memory so far; None where it is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def describe_start(model: Any, recipe: FineTuningRecipe) -> dict[str, str]:
    """Describes the initial weights of a trial, and which of them are random, for the log."""
    new = list(model.checkpoint_report.random)
    if recipe.reinitialize_top_layers is not None:
        new.append(f"the pooler and the top {recipe.reinitialize_top_layers} layers")
    if recipe.lora_rank is not None:
        new.append(f"adapters of rank {recipe.lora_rank}")
    starts = (recipe.init_checkpoint, recipe.init_checkpoint_right_to_left)
    return {
        "encoder": get_encoder_kind(model.encoder),
        "init_checkpoint": f"weights only, from {' and '.join(filter(None, starts))}",
        "new weights": f"{', '.join(new)}; by seed {recipe.seed}" if new else "none",
    }


def describe_optimizer(optimizer: BertAdamW, schedule: WarmupSchedule) -> Mapping[str, str]:
    """Describes steps, learning rate and optimizer of a trial, for the log."""
    return {
        "training steps": str(schedule.num_train_steps),
        "learning rate": f"{schedule.peak_learning_rate:g}, warmup {schedule.num_warmup_steps} steps, "
        f"decay {schedule.decay!r}",
        "bias correction": f"{optimizer.bias_correction} (default: with fewer than {_SMALL_SET:,} examples)",
    }


@contextlib.contextmanager
def hide_weight_tables() -> Iterator[None]:
    """Hides the table of the weights that were read: it has been logged before."""

    def is_new(record: Any) -> bool:
        return not (isinstance(record.args, tuple) and any(isinstance(item, AssignmentReport) for item in record.args))

    logger = logging.get_absl_logger()
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
