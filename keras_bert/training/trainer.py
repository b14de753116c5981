"""The training loop: updates, log, evaluation, checkpoints, and where it left off."""

import math
import time
from dataclasses import dataclass, field

import keras
from absl import logging
from tqdm import tqdm

from keras_bert.training.run_log import RunLog, log_table
from keras_bert.training.step import TrainStep
from keras_bert.training.strategy import any_worker, broadcast_from_chief, describe_strategy, worker_barrier, worker_of
from keras_bert.training.training_checkpoints import CHECKPOINTS_NAME, TrainingCheckpoints

_FEWEST_UPDATES_BETWEEN_CHECKPOINTS = 200  # so that writing them is a small part of a short training


class TrainingInterrupted(Exception):
    """Training was asked to stop; a checkpoint was saved, from which the same call goes on."""


class TrainingDiverged(RuntimeError):
    """A loss or gradient is not finite; that update was not made, and nothing was saved after it."""


@dataclass
class TrainingResult:
    """What came of a training.

    Args:
        step: int. Updates made, those of an earlier process included.
        best_step: int or None. The update after which the score was best; None without evaluation.
        best_metrics: dict of name to float. What the evaluation gave there.
        seconds: float. Time of training and evaluations; that of an earlier process up to its last checkpoint.
        examples_per_second: float or None. Median over the log records of this process.
    """

    step: int
    best_step: int | None = None
    best_metrics: dict = field(default_factory=dict)
    seconds: float = 0.0
    examples_per_second: float | None = None


class Trainer:
    """Trains a model in the folder of a run, on the devices of a strategy; the same call resumes it there.

    Log records go to `log.jsonl` and to TensorBoard; `RunLog` says what is in them. Under several workers (processes)
    each calls the same with its own part of the data; the run's folder must be shared by all, and only the first
    worker, the chief, writes there (but for each worker's place in its data).

    Args:
        model: a built Keras model with `loss_terms` and `loss_weights`, such as `BertClassifier`, made in the
            strategy's scope.
        optimizer: a `BertAdamW`, made there, too.
        run_directory: a `RunDirectory`.
        num_train_steps: int. Updates in the whole training.
        strategy: tf.distribute.Strategy; None is the one in force, on one device unless in a scope.
        steps_per_execution: int. Most updates between two returns to Python. It does not change the result.
        log_every: int or None. Number of updates between two log records; None logs every 100 updates, and more often
            in runs of fewer than 5,000 updates, so that at least 50 records make up the loss curve.
        evaluate: function without arguments that gives a dict of name to float, or None.
        evaluate_every: int or None. Updates between two evaluations; None evaluates at the end only.
        score: str or None. The number of `evaluate` of which more is better; the weights that have most are kept. None
            keeps the last.
        patience: int or None. Evaluations in a row without a better score, after which training ends early.
        checkpoint_every: int or None. Updates between two checkpoints; None is a tenth of the training, and at least
            200. There is one at the end, too.
        keep_checkpoints: int. How many of the newest stay.
        saves_data_position: bool. Whether checkpoints hold the place in the data. Without, a resumed training begins a
        new
            pass, as it must where the input's iterator cannot be saved (tf.data service).
        should_stop: function without arguments that says whether to save and stop, asked between two calls, or None.
        run_info: dict of str to anything, further lines for the table that begins the log.
        progress: bool. Whether to show a progress bar on standard error.
        **step_arguments: further ones of `TrainStep`: gradient_accumulation_steps, seed, jit_compile, loss_scale,
        mean_loss_weights.

    Raises:
        ValueError: on numbers below 1, a score without evaluation, patience without a score, or as `TrainStep`.
        TypeError: as `TrainStep`.

    Example:

    >>> from keras_bert.training.run_dir import RunDirectory
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> classifier = keras_bert.BertClassifier(encoder, labels=2)
    >>> batch = {"token_ids": tf.constant([[2, 7, 3], [2, 8, 3]])}, tf.constant([0, 1])
    >>> run = RunDirectory(tempfile.mkdtemp() + "/run", {"epochs": 1})
    >>> trainer = Trainer(classifier, keras_bert.BertAdamW(1e-2), run, num_train_steps=4)
    >>> trainer.train(tf.data.Dataset.from_tensors(batch).repeat()).step
    4
    """

    def __init__(
        self,
        model,
        optimizer,
        run_directory,
        num_train_steps,
        strategy=None,
        steps_per_execution=20,
        log_every=None,
        evaluate=None,
        evaluate_every=None,
        score=None,
        patience=None,
        checkpoint_every=None,
        keep_checkpoints=2,
        saves_data_position=True,
        should_stop=None,
        run_info=None,
        progress=False,
        **step_arguments,
    ):
        if checkpoint_every is None:
            checkpoint_every = max(num_train_steps // 10, _FEWEST_UPDATES_BETWEEN_CHECKPOINTS)
        if log_every is None:
            log_every = min(100, max(num_train_steps // 50, 1))
        for name, value in {
            "num_train_steps": num_train_steps,
            "steps_per_execution": steps_per_execution,
            "log_every": log_every,
            "evaluate_every": evaluate_every,
            "checkpoint_every": checkpoint_every,
            "patience": patience,
        }.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if evaluate is None and (score is not None or evaluate_every is not None):
            raise ValueError("score and evaluate_every need a function `evaluate`")
        if patience is not None and score is None:
            raise ValueError("patience needs a score that can become better")
        self.model = model
        self.optimizer = optimizer
        self.run_directory = run_directory
        self.num_train_steps = num_train_steps
        self.steps_per_execution = steps_per_execution
        self.log_every = log_every
        self.evaluate = evaluate
        self.evaluate_every = evaluate_every or num_train_steps
        self.score = score
        self.patience = patience
        self.checkpoint_every = checkpoint_every
        self.saves_data_position = saves_data_position
        self.should_stop = should_stop
        self.run_info = run_info or {}
        self.progress = progress
        self._step = TrainStep(model, optimizer, strategy, **step_arguments)
        self.strategy = self._step.strategy
        worker_index, num_workers = worker_of(self.strategy)
        self._is_chief = worker_index == 0
        self.checkpoints = TrainingCheckpoints(
            run_directory.path / CHECKPOINTS_NAME,
            model,
            optimizer,
            keep_checkpoints,
            worker_index=worker_index,
            num_workers=num_workers,
            barrier=worker_barrier(self.strategy) if num_workers > 1 else None,
            extra=self._step.variables,
        )

    def train(self, dataset):
        """Trains to the last update, from the run's newest checkpoint if it has one.

        Args:
            dataset: tf.data.Dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`, as a rule without end;
                training ends with it if it has one. Its iterator must be one that can be checkpointed, unless
                `saves_data_position` is False.

        Returns:
            `TrainingResult`. The model then has the best weights, or without a score the last.

        Raises:
            KeyError: if the evaluation gives no number called `score`.
            TrainingDiverged: if a loss or gradient is not finite.
            TrainingInterrupted: if `should_stop` said so.
        """
        iterator = iter(dataset)
        state = {"step": 0, "best_step": None, "best_metrics": {}, "without_better": 0, "seconds": 0.0}
        restored = self.checkpoints.restore(iterator if self.saves_data_position else None)
        state |= restored or {}
        self._refuse_another_place(state["step"])
        log = RunLog(self.run_directory)
        self._log_beginning(state["step"] if restored else None, log)
        with tqdm(
            total=self.num_train_steps,
            initial=state["step"],
            unit="step",
            disable=not (self.progress and self._is_chief),
        ) as bar:
            goes_on = state["step"] < self.num_train_steps and not self._has_lost_patience(state)
            while goes_on:
                goes_on = self._train_to_next_event(iterator, state, log, bar)
        if self.score is not None:
            self.checkpoints.restore_best(state["best_step"])
        del state["without_better"]
        return TrainingResult(**state, examples_per_second=log.median_speed())

    def _refuse_another_place(self, step):
        (of_chief,) = broadcast_from_chief(self.strategy, [step])
        if step != of_chief:
            raise OSError(
                f"this worker restored update {step}, and the chief update {of_chief:.0f}: they do not see the same "
                f"files in {self.checkpoints.path}. Start the job again once they do"
            )

    def _log_beginning(self, resumed_at, log):
        beginning = "nothing, there is no checkpoint; the weights are those that the model was made with"
        if resumed_at is not None or self.run_directory.existed:
            log.event("resumed", resumed_at or 0)
        if resumed_at is not None:
            beginning = f"model, optimizer and place in the data, of update {resumed_at} of {self.num_train_steps}"
            if not self.saves_data_position:
                beginning = (
                    f"model and optimizer, of update {resumed_at} of {self.num_train_steps}; this input's place "
                    "cannot be saved: a new pass over the data begins"
                )
        seeds = f"dropout, by seed {self._step.seed}, update, micro-batch, replica and layer"
        log_table(
            {**self.run_info, **describe_strategy(self.strategy), "restored from the run": beginning, "random": seeds}
        )

    def _train_to_next_event(self, iterator, state, log, bar):
        """Trains up to the next log record, evaluation or checkpoint; says whether there is more to do."""
        started = time.perf_counter()
        step = state["step"]
        every = (self.steps_per_execution, self.log_every, self.evaluate_every, self.checkpoint_every)
        steps = min(self.num_train_steps - step, *(interval - step % interval for interval in every))
        report = self._step.run(iterator, step, steps)
        made = int(report["steps"])
        state["step"] = step = step + made
        failed, data_ended = bool(report["failed"]), made < steps and not report["failed"]
        last = data_ended or step == self.num_train_steps
        if made:
            log.add(report)
            bar.update(made)
        if log.updates and (step % self.log_every == 0 or last or failed):
            bar.set_postfix(self._record(log, step))
        if failed:
            log.event("diverged", step + 1)
            raise TrainingDiverged(self._what_is_not_finite(report, step + 1))
        if data_ended:
            logging.warning("the data ended at update %d of %d, and training with it", step, self.num_train_steps)
        if self.evaluate is not None and (step % self.evaluate_every == 0 or last):
            self._evaluate(state, log)
            last = last or self._has_lost_patience(state)
            log.restart_clock()
        state["seconds"] += time.perf_counter() - started
        is_to_stop = any_worker(self.strategy, self.should_stop is not None and self.should_stop())
        if step % self.checkpoint_every == 0 or last or is_to_stop:
            self.checkpoints.save(iterator if self.saves_data_position else None, state)
            log.restart_clock()
        if is_to_stop and not last:
            raise TrainingInterrupted(
                f"stopped after update {step} of {self.num_train_steps}; the checkpoint in {self.checkpoints.path} is "
                "of this update. The same command goes on from there"
            )
        return not last

    def _what_is_not_finite(self, report, step):
        number = int(report["bad_variable"])
        variable = self.model.trainable_variables[number].path if number >= 0 else None
        what = "the loss is not finite" if variable is None else f"the gradient of {variable} is not finite"
        terms = ", ".join(f"{name} {float(value):g}" for name, value in report["last_loss_terms"].items())
        newest = self.checkpoints.newest()
        saved = "There is no checkpoint yet."
        if newest is not None:
            saved = f"The newest checkpoint in {self.checkpoints.path} is of update {newest}."
        return (
            f"training stopped at update {step}: {what} (loss terms: {terms}). The update was not made, and nothing "
            f"was saved after it. {saved} Look for a NaN or infinity in the inputs, lower the learning rate, or "
            "compute in float32 or bfloat16."
        )

    def _record(self, log, step):
        """Writes a log record, and gives what the progress bar shows."""
        learning_rate = float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))
        scale = None if self._step.loss_scale is None else float(self._step.loss_scale.factor)
        record = log.record(step, learning_rate, scale)
        return {
            "loss": f"{record['loss']:.4f}",
            "rate": f"{learning_rate:.2e}",
            "examples/s": f"{record['examples_per_second']:.0f}",
            "tokens/s": f"{record['tokens_per_second']:.0f}",
        }

    def _evaluate(self, state, log):
        metrics = {name: float(value) for name, value in self.evaluate().items()}
        # Of what follows depends what all workers do: rounding must not make them differ.
        metrics = dict(zip(metrics, broadcast_from_chief(self.strategy, list(metrics.values())), strict=True))
        step = state["step"]
        logging.info("update %d: %s", step, ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        log.event("evaluation", step, metrics)
        if self.score is None:
            state.update(best_step=step, best_metrics=metrics)
            return
        if self.score not in metrics:
            raise KeyError(f"the evaluation gives no {self.score!r}; it gives {sorted(metrics)}")
        state["without_better"] += 1
        if state["best_step"] is None or _is_better(metrics[self.score], state["best_metrics"][self.score]):
            state.update(best_step=step, best_metrics=metrics, without_better=0)
            self.checkpoints.save_best(state)
        elif self._has_lost_patience(state):
            logging.info("no better %s in %d evaluations: training ends early", self.score, self.patience)

    def _has_lost_patience(self, state):
        return self.patience is not None and state["without_better"] >= self.patience


def _is_better(score, best):
    return score > best or (math.isnan(best) and not math.isnan(score))
