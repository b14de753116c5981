"""The training loop: updates, log, evaluation, checkpoints, and where it left off."""

import math
import time
from dataclasses import dataclass, field

import keras
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from keras_bert.training.checkpoints import CHECKPOINTS_NAME, TrainingCheckpoints
from keras_bert.training.step import TrainStep

_FEWEST_UPDATES_BETWEEN_CHECKPOINTS = 200  # so that writing them is a small part of a short training


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
    """Trains a model in the folder of a run; the same call resumes it there.

    Log records go to `log.jsonl` and to TensorBoard: loss and its terms (means since the record before), learning rate,
    gradient norm, examples and real tokens a second, the share of padding; and what the evaluations give.

    Args:
        model: a built Keras model with `loss_terms` and `loss_weights`, such as `BertClassifier`.
        optimizer: a `BertAdamW`, or any Keras optimizer.
        run_directory: a `RunDirectory`.
        num_train_steps: int. Updates in the whole training.
        micro_batches: int. Parts that each batch is cut into, to save memory; the result stays the same.
        steps_per_call: int. Most updates between two returns to Python. It does not change the result.
        log_every: int. Updates between two log records.
        evaluate: function without arguments that gives a dict of name to float, or None.
        evaluate_every: int or None. Updates between two evaluations; None evaluates at the end only.
        score: str or None. The number of `evaluate` of which more is better; the weights that have most are kept. None
            keeps the last.
        checkpoint_every: int or None. Updates between two checkpoints; None is a tenth of the training, and at least
            200. There is one at the end, too.
        keep_checkpoints: int. How many of the newest stay.
        progress: bool. Whether to show a progress bar on standard error.

    Raises:
        ValueError: on numbers below 1, or a score without evaluation.
        TypeError: if the model says no loss terms.

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
        micro_batches=1,
        steps_per_call=20,
        log_every=100,
        evaluate=None,
        evaluate_every=None,
        score=None,
        checkpoint_every=None,
        keep_checkpoints=2,
        progress=False,
    ):
        checkpoint_every = checkpoint_every or max(num_train_steps // 10, _FEWEST_UPDATES_BETWEEN_CHECKPOINTS)
        for name, value in {
            "num_train_steps": num_train_steps,
            "steps_per_call": steps_per_call,
            "log_every": log_every,
            "evaluate_every": evaluate_every,
            "checkpoint_every": checkpoint_every,
        }.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if evaluate is None and (score is not None or evaluate_every is not None):
            raise ValueError("score and evaluate_every need a function `evaluate`")
        self.model = model
        self.optimizer = optimizer
        self.run_directory = run_directory
        self.num_train_steps = num_train_steps
        self.steps_per_call = steps_per_call
        self.log_every = log_every
        self.evaluate = evaluate
        self.evaluate_every = evaluate_every or num_train_steps
        self.score = score
        self.checkpoint_every = checkpoint_every
        self.progress = progress
        self._step = TrainStep(model, optimizer, micro_batches)
        self.checkpoints = TrainingCheckpoints(
            run_directory.path / CHECKPOINTS_NAME, model, optimizer, keep_checkpoints
        )

    def train(self, dataset):
        """Trains to the last update, from the run's newest checkpoint if it has one.

        Args:
            dataset: tf.data.Dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`, without end, whose
                iterator can be checkpointed.

        Returns:
            `TrainingResult`. The model then has the best weights, or without a score the last.

        Raises:
            KeyError: if the evaluation gives no number called `score`.
            RuntimeError: if a gradient is not finite; the message says the update.
        """
        iterator = iter(dataset)
        state = self.checkpoints.restore(iterator) or {
            "step": 0,
            "best_step": None,
            "best_metrics": {},
            "seconds": 0.0,
        }
        if state["step"]:
            logging.info("resumed at update %d of %d", state["step"], self.num_train_steps)
            self.run_directory.log({"event": "resumed", "step": state["step"]})
        writer = tf.summary.create_file_writer(str(self.run_directory.path / "tensorboard"))
        recorder = _Recorder(self, writer)
        with (
            writer.as_default(),
            tqdm(total=self.num_train_steps, initial=state["step"], unit="step", disable=not self.progress) as bar,
        ):
            while state["step"] < self.num_train_steps:
                self._train_to_next_event(iterator, state, recorder, bar)
        if self.score is not None:
            self.checkpoints.restore_best(state["best_step"])
        return TrainingResult(**state, examples_per_second=recorder.median_speed())

    def _train_to_next_event(self, iterator, state, recorder, bar):
        started = time.perf_counter()
        step = state["step"]
        every = (self.steps_per_call, self.log_every, self.evaluate_every, self.checkpoint_every)
        steps = min(self.num_train_steps - step, *(interval - step % interval for interval in every))
        try:
            recorder.add(self._step.run(iterator, tf.constant(steps)), steps)
        except tf.errors.InvalidArgumentError as error:
            raise RuntimeError(
                f"training stopped between update {step} and {step + steps}: {_reason(error)}. "
                f"The newest checkpoint in {self.checkpoints.path} is of update {self.checkpoints.newest()}."
            ) from error
        state["step"] = step = step + steps
        bar.update(steps)
        last = step == self.num_train_steps
        if step % self.log_every == 0 or last:
            bar.set_postfix(recorder.record(step))
        if self.evaluate is not None and (step % self.evaluate_every == 0 or last):
            self._evaluate(state)
            recorder.restart_clock()
        state["seconds"] += time.perf_counter() - started
        if step % self.checkpoint_every == 0 or last:
            self.checkpoints.save(iterator, state)
            recorder.restart_clock()

    def _evaluate(self, state):
        metrics = {name: float(value) for name, value in self.evaluate().items()}
        step = state["step"]
        logging.info("update %d: %s", step, ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        self.run_directory.log({"event": "evaluation", "step": step, **metrics})
        for name, value in metrics.items():
            tf.summary.scalar(name, value, step=step)
        if self.score is None:
            state.update(best_step=step, best_metrics=metrics)
            return
        if self.score not in metrics:
            raise KeyError(f"the evaluation gives no {self.score!r}; it gives {sorted(metrics)}")
        if state["best_step"] is None or _is_better(metrics[self.score], state["best_metrics"][self.score]):
            state.update(best_step=step, best_metrics=metrics)
            self.checkpoints.save_best(state)


def _reason(error):
    """The message of an error in a graph without the Python stack that TensorFlow puts before it."""
    lines = [line for line in error.message.splitlines() if line.strip()]
    noise = ("  File ", "Graph execution error", "Detected at node", "\t [[")
    return " ".join(line for line in lines if not line.startswith(noise))


def _is_better(score, best):
    return score > best or (math.isnan(best) and not math.isnan(score))


class _Recorder:
    """Sums what the updates report, and turns it into log records."""

    def __init__(self, trainer, writer):
        self._trainer = trainer
        self._writer = writer
        self._speeds = []
        self._totals, self._steps = {}, 0
        self._seconds = 0.0
        self.restart_clock()

    def restart_clock(self):
        """Leaves the time since the last update out of the speed: it went into an evaluation or a checkpoint."""
        self._started = time.perf_counter()

    def add(self, report, steps):
        """Adds what `TrainStep.run` gave for some updates."""
        for name, value in report.items():
            value = float(value)
            self._totals[name] = value if name == "gradient_norm" else self._totals.get(name, 0.0) + value
        self._steps += steps
        self._seconds += time.perf_counter() - self._started
        self.restart_clock()

    def record(self, step):
        """Writes the record of the updates since the last one, and gives what the progress bar shows."""
        totals, seconds = self._totals, max(self._seconds, 1e-9)
        counts = {name: totals.pop(name) for name in ("examples", "tokens", "places", "gradient_norm")}
        terms = {name: value / self._steps for name, value in totals.items()}
        learning_rate = float(keras.ops.convert_to_numpy(self._trainer.optimizer.learning_rate))
        record = {
            "loss": sum(terms.values()),
            **({f"loss/{name}": value for name, value in terms.items()} if len(terms) > 1 else {}),
            "learning_rate": learning_rate,
            "gradient_norm": counts["gradient_norm"],
            "examples_per_second": counts["examples"] / seconds,
            "tokens_per_second": counts["tokens"] / seconds,
            "padding": 1 - counts["tokens"] / counts["places"] if counts["places"] else 0.0,
        }
        self._trainer.run_directory.log({"event": "train", "step": step, **record})
        for name, value in record.items():
            tf.summary.scalar(f"train/{name}", value, step=step)
        self._writer.flush()
        self._speeds.append(record["examples_per_second"])
        self._totals, self._steps, self._seconds = {}, 0, 0.0
        return {
            "loss": f"{record['loss']:.4f}",
            "rate": f"{learning_rate:.2e}",
            "examples/s": f"{record['examples_per_second']:.0f}",
            "tokens/s": f"{record['tokens_per_second']:.0f}",
        }

    def median_speed(self):
        """Median of the examples a second over the records, or None."""
        return sorted(self._speeds)[len(self._speeds) // 2] if self._speeds else None
