"""The log of a run: regular records in `log.jsonl`, TensorBoard and the progress bar."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.training.run_dir import RunDirectory


def log_table(lines: Mapping[str, Any]) -> None:
    """Writes names and values to the program's log, one pair per line."""
    width = max(map(len, lines)) + 2
    for name, value in lines.items():
        logging.info("%-*s%s", width, name, value)


class RunLog:
    """Accumulates the reports of training steps, and writes records and events.

    A record holds the means since the previous record: `loss`; if there are several loss terms, `loss/<name>` of each;
    `examples_per_second`, `tokens_per_second` (without padding) and `padding` (fraction of the positions). Of the last
    step it holds `learning_rate` and `gradient_norm`, and with a loss scale `loss_scale` and `skipped`, the number of
    skipped steps.

    >>> log = RunLog(RunDirectory(tempfile.mkdtemp() + "/run", {}))
    >>> counts = {"examples": 8, "tokens": 60, "padded_tokens": 80, "steps": 2, "skipped": 0, "gradient_norm": 1.0}
    >>> log.add({**counts, "loss_terms": {"loss": 3.0}})
    >>> record = log.record(2, learning_rate=1e-4)
    >>> record["loss"], record["padding"]
    (1.5, 0.25)
    """

    def __init__(self, run_directory: RunDirectory) -> None:
        self._run_directory = run_directory
        self._writer = tf.summary.create_noop_writer()
        if run_directory.writer:
            self._writer = tf.summary.create_file_writer(str(run_directory.path / "tensorboard"))
        self._speeds: list[float] = []
        self._reset()
        self.restart_clock()

    @property
    def steps(self) -> int:
        """Number of steps since the last record."""
        return self._counts["steps"]

    def restart_clock(self) -> None:
        """Excludes the time since the last step, spent on an evaluation or a checkpoint, from the speed."""
        self._started = time.perf_counter()

    def add(self, report: Mapping[str, Any]) -> None:
        """Adds a report of `TrainStep.run`: numbers or scalar tensors."""
        for name in self._counts:
            self._counts[name] += int(report[name])
        for name, value in report["loss_terms"].items():
            self._terms[name] = self._terms.get(name, 0.0) + float(value)
        self._gradient_norm = float(report["gradient_norm"])
        self._seconds += time.perf_counter() - self._started
        self.restart_clock()

    def record(self, step: int, learning_rate: float, loss_scale: float | None = None) -> dict[str, float]:
        """Writes and returns the record of the steps since the last one."""
        counts, seconds = self._counts, max(self._seconds, 1e-9)
        applied = max(counts["steps"] - counts["skipped"], 1)
        terms = {name: value / applied for name, value in self._terms.items()}
        record = {
            "loss": sum(terms.values()),
            **({f"loss/{name}": value for name, value in terms.items()} if len(terms) > 1 else {}),
            "learning_rate": learning_rate,
            "gradient_norm": self._gradient_norm,
            "examples_per_second": counts["examples"] / seconds,
            "tokens_per_second": counts["tokens"] / seconds,
            "padding": 1 - counts["tokens"] / counts["padded_tokens"] if counts["padded_tokens"] else 0.0,
            **({} if loss_scale is None else {"loss_scale": loss_scale, "skipped": counts["skipped"]}),
        }
        self._speeds.append(record["examples_per_second"])
        self.event("train", step, record, prefix="train/")
        self._reset()
        return record

    def event(self, kind: str, step: int, numbers: Mapping[str, float] | None = None, prefix: str = "") -> None:
        """Writes an event to `log.jsonl`, and its numbers to TensorBoard, where the prefix precedes their names."""
        self._run_directory.log({"event": kind, "step": step, **(numbers or {})})
        with self._writer.as_default():
            for name, value in (numbers or {}).items():
                tf.summary.scalar(prefix + name, value, step=step)
        self._writer.flush()

    def median_speed(self) -> float | None:
        """Returns the median over the records of the examples per second; None without records."""
        return statistics.median_high(self._speeds) if self._speeds else None

    def _reset(self) -> None:
        self._counts = dict.fromkeys(("examples", "tokens", "padded_tokens", "steps", "skipped"), 0)
        self._terms: dict[str, float] = {}
        self._gradient_norm = 0.0
        self._seconds = 0.0
