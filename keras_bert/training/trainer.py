"""The training loop: steps, log, evaluation, checkpoints and resume."""

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.run_log import RunLog, log_table
from keras_bert.training.step import TrainStep
from keras_bert.training.strategy import any_worker, broadcast_from_chief, describe_strategy, get_worker, worker_barrier
from keras_bert.training.trainer_settings import TrainerSettings
from keras_bert.training.training_checkpoints import CHECKPOINTS_NAME, TrainingCheckpoints


class TrainingInterrupted(Exception):
    """Training was asked to stop. A checkpoint was saved, from which the same call resumes."""


class TrainingDiverged(RuntimeError):
    """A loss or gradient is not finite. The step was not applied, and nothing was saved after it."""


@dataclass
class TrainingResult:
    """Outcome of a training run.

    Args:
        step: Number of steps taken, those of earlier processes included.
        best_step: The step with the best score; None without evaluation.
        best_metrics: The metrics of the evaluation at that step.
        seconds: Time spent on training and evaluation; of earlier processes, up to their last checkpoint.
        examples_per_second: Median over this process' log records; None without any.
    """

    step: int
    best_step: int | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    examples_per_second: float | None = None


class Trainer:
    """Trains a model in a run directory, on the devices of a strategy; the same call resumes an interrupted run.

    Log records are written to `log.jsonl` and TensorBoard; `RunLog` describes them. With several workers (processes),
    every worker makes the same calls with its own part of the data. They must share the run directory, in which only
    the first worker, the chief, writes (apart from each worker's position in its data).

    Args:
        model: A built Keras model with `loss_terms` and `loss_weights`, such as `BertClassifier`, created in the scope
            of the strategy.
        optimizer: A `BertAdamW`, created in the same scope.
        run_directory: Where checkpoints and logs are written.
        settings: See `TrainerSettings`.
        strategy: A `tf.distribute.Strategy`. The default None means the current one: a single device unless inside a
            scope.
        evaluate: Returns metrics by name. Called without arguments every `evaluate_every` steps and at the end.
        should_stop: Called without arguments after every call into TensorFlow; returns whether to save and stop.
        run_info: Additional lines for the table at the start of the log.

    Raises:
        ValueError: If `score` or `evaluate_every` is set without `evaluate`, or as `TrainStep`.
        TypeError: As `TrainStep`.

    Example:

    >>> from keras_bert.training import RunDirectory, TrainerSettings
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> classifier = keras_bert.BertClassifier(encoder, labels=2)
    >>> batch = {"token_ids": tf.constant([[2, 7, 3], [2, 8, 3]])}, tf.constant([0, 1])
    >>> run = RunDirectory(tempfile.mkdtemp() + "/run", {"epochs": 1})
    >>> trainer = Trainer(classifier, keras_bert.BertAdamW(1e-2), run, TrainerSettings(num_train_steps=4))
    >>> trainer.train(tf.data.Dataset.from_tensors(batch).repeat()).step
    4
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: BertAdamW,
        run_directory: RunDirectory,
        settings: TrainerSettings,
        strategy: tf.distribute.Strategy | None = None,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        should_stop: Callable[[], bool] | None = None,
        run_info: Mapping[str, Any] | None = None,
    ) -> None:
        if evaluate is None and (settings.score is not None or settings.evaluate_every is not None):
            raise ValueError("the settings `score` and `evaluate_every` need the argument `evaluate`")
        self.model = model
        self.optimizer = optimizer
        self.run_directory = run_directory
        self.settings = settings
        self.evaluate = evaluate
        self.should_stop = should_stop
        self.run_info = dict(run_info or {})
        names = ("gradient_accumulation_steps", "seed", "jit_compile", "loss_scale", "mean_loss_weights")
        self._step = TrainStep(model, optimizer, strategy, **{name: getattr(settings, name) for name in names})
        self.strategy = self._step.strategy
        worker_index, num_workers = get_worker(self.strategy)
        self._is_chief = worker_index == 0
        self.checkpoints = TrainingCheckpoints(
            run_directory.path / CHECKPOINTS_NAME,
            model,
            optimizer,
            settings.keep_checkpoints,
            worker_index=worker_index,
            num_workers=num_workers,
            barrier=functools.partial(worker_barrier, self.strategy) if num_workers > 1 else None,
            extra=self._step.variables,
        )

    def train(self, dataset: tf.data.Dataset) -> TrainingResult:
        """Trains to the last step, starting from the run's newest checkpoint if there is one.

        Args:
            dataset: Batches of `(inputs, labels)` or `(inputs, labels, sample_weight)`, usually endless; training stops
                if it ends. Its iterator must be one that can be checkpointed, unless `saves_data_position` is False.

        Returns:
            The outcome. The model then has the weights with the best score, or the last ones without a score.

        Raises:
            KeyError: If the metrics of the evaluation do not include `score`.
            TrainingDiverged: If a loss or gradient is not finite.
            TrainingInterrupted: If `should_stop` returned True.
        """
        settings = self.settings
        iterator = iter(dataset)
        state: dict[str, Any] = {"step": 0, "best_step": None, "best_metrics": {}, "without_better": 0, "seconds": 0.0}
        restored = self.checkpoints.restore(iterator if settings.saves_data_position else None)
        state |= restored or {}
        self._check_step_of_chief(state["step"])
        log = RunLog(self.run_directory)
        self._log_start(state["step"] if restored else None, log)
        is_hidden = not (settings.progress and self._is_chief)
        with tqdm(total=settings.num_train_steps, initial=state["step"], unit="step", disable=is_hidden) as bar:
            has_more = state["step"] < settings.num_train_steps and not self._has_lost_patience(state)
            while has_more:
                has_more = self._train_to_next_event(iterator, state, log, bar)
        if settings.score is not None:
            self.checkpoints.restore_best(state["best_step"])
        del state["without_better"]
        return TrainingResult(**state, examples_per_second=log.median_speed())

    def _check_step_of_chief(self, step: int) -> None:
        (chief_step,) = broadcast_from_chief(self.strategy, [step])
        if step != chief_step:
            raise OSError(
                f"this worker restored step {step}, and the chief step {chief_step:.0f}: they do not see the same "
                f"files in {self.checkpoints.path}. Make it the same shared folder on all workers, then start the job "
                "again"
            )

    def _log_start(self, resumed_at: int | None, log: RunLog) -> None:
        if resumed_at is not None or self.run_directory.existed:
            log.event("resumed", resumed_at or 0)
        restored = "nothing; no checkpoint found, training starts from the initial weights"
        if resumed_at is not None:
            at = f"at step {resumed_at} of {self.settings.num_train_steps}"
            restored = f"model, optimizer and position in the data {at}"
            if not self.settings.saves_data_position:
                restored = f"model and optimizer {at}; a new pass over the data starts"
        randomness = f"dropout, from seed {self.settings.seed}, step, micro-batch, replica and layer"
        log_table({**self.run_info, **describe_strategy(self.strategy), "restored": restored, "random": randomness})

    def _train_to_next_event(self, iterator: Iterator, state: dict[str, Any], log: RunLog, bar: tqdm) -> bool:
        """Trains up to the next log record, evaluation or checkpoint; returns whether there are more steps."""
        started = time.perf_counter()
        settings = self.settings
        step = state["step"]
        intervals = (
            settings.steps_per_execution,
            settings.log_interval,
            settings.evaluation_interval,
            settings.checkpoint_interval,
        )
        steps = min(settings.num_train_steps - step, *(interval - step % interval for interval in intervals))
        report = self._step.run(iterator, step, steps)
        made = int(report["steps"])
        state["step"] = step = step + made
        has_failed = bool(report["failed"])
        has_data_ended = made < steps and not has_failed
        is_last = has_data_ended or step == settings.num_train_steps
        if made:
            log.add(report)
            bar.update(made)
        if log.steps and (step % settings.log_interval == 0 or is_last or has_failed):
            bar.set_postfix(self._record(log, step))
        if has_failed:
            log.event("diverged", step + 1)
            raise TrainingDiverged(self._describe_divergence(report, step + 1))
        if has_data_ended:
            logging.warning("training stops: the data ended at step %d of %d", step, settings.num_train_steps)
        if self.evaluate is not None and (step % settings.evaluation_interval == 0 or is_last):
            self._evaluate(state, log)
            is_last = is_last or self._has_lost_patience(state)
            log.restart_clock()
        state["seconds"] += time.perf_counter() - started
        is_stopped = any_worker(self.strategy, self.should_stop is not None and self.should_stop())
        if step % settings.checkpoint_interval == 0 or is_last or is_stopped:
            self.checkpoints.save(iterator if settings.saves_data_position else None, state)
            log.restart_clock()
        if is_stopped and not is_last:
            raise TrainingInterrupted(
                f"stopped at step {step} of {settings.num_train_steps}. A checkpoint of this step was saved to "
                f"{self.checkpoints.path}; run the same command again to resume"
            )
        return not is_last

    def _describe_divergence(self, report: Mapping[str, Any], step: int) -> str:
        index = int(report["bad_variable"])
        variable = self.model.trainable_variables[index].path if index >= 0 else None
        what = "the loss is not finite" if variable is None else f"the gradient of {variable} is not finite"
        terms = ", ".join(f"{name} {float(value):g}" for name, value in report["last_loss_terms"].items())
        newest = self.checkpoints.newest()
        saved = "There is no checkpoint yet."
        if newest is not None:
            saved = f"The newest checkpoint in {self.checkpoints.path} is of step {newest}."
        return (
            f"training stopped at step {step}: {what} (loss terms: {terms}). The step was not applied, and nothing "
            f"was saved after it. {saved} Look for a NaN or infinity in the inputs, lower the learning rate, or "
            "compute in float32 or bfloat16."
        )

    def _record(self, log: RunLog, step: int) -> dict[str, str]:
        """Writes a log record, and returns what the progress bar shows."""
        learning_rate = float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))
        scale = None if self._step.loss_scale is None else float(self._step.loss_scale.factor)
        record = log.record(step, learning_rate, scale)
        return {
            "loss": f"{record['loss']:.4f}",
            "rate": f"{learning_rate:.2e}",
            "examples/s": f"{record['examples_per_second']:.0f}",
            "tokens/s": f"{record['tokens_per_second']:.0f}",
        }

    def _evaluate(self, state: dict[str, Any], log: RunLog) -> None:
        assert self.evaluate is not None
        metrics = {name: float(value) for name, value in self.evaluate().items()}
        # All workers must take the same decisions below: rounding must not make them differ.
        metrics = dict(zip(metrics, broadcast_from_chief(self.strategy, list(metrics.values())), strict=True))
        step, score = state["step"], self.settings.score
        logging.info("step %d: %s", step, ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        log.event("evaluation", step, metrics)
        if score is None:
            state.update(best_step=step, best_metrics=metrics)
            return
        if score not in metrics:
            raise KeyError(f"the evaluation does not return the score {score!r}; it returns {sorted(metrics)}")
        state["without_better"] += 1
        if state["best_step"] is None or _is_better(metrics[score], state["best_metrics"][score]):
            state.update(best_step=step, best_metrics=metrics, without_better=0)
            self.checkpoints.save_best(state)
        elif self._has_lost_patience(state):
            logging.info("training stops: no better %s in %d evaluations", score, self.settings.patience)

    def _has_lost_patience(self, state: Mapping[str, Any]) -> bool:
        return self.settings.patience is not None and state["without_better"] >= self.settings.patience


def _is_better(score: float, best: float) -> bool:
    return score > best or (math.isnan(best) and not math.isnan(score))
