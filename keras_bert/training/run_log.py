"""The log of a run: one record every so many updates, for `log.jsonl`, TensorBoard and the progress bar."""

import time

import tensorflow as tf
from absl import logging


def log_table(run_info):
    """Writes run_info to the program's log, one a line.

    Args:
        run_info: dict of str to anything.
    """
    width = max(map(len, run_info)) + 2
    for name, value in run_info.items():
        logging.info("%-*s%s", width, name, value)


class RunLog:
    """Sums what the updates report, and turns it into records.

    A record has the means since the record before: `loss`; each of several terms as `loss/<name>`;
    `examples_per_second`, `tokens_per_second` (real tokens), `padding` (share of the places); and of the last update
    `learning_rate` and `gradient_norm`; with a loss scale `loss_scale`, and `skipped`, the updates that were passed
    over.

    Args:
        run_directory: a `RunDirectory`.

    Example:

    >>> from keras_bert.training.run_dir import RunDirectory
    >>> log = RunLog(RunDirectory(tempfile.mkdtemp() + "/run", {}))
    >>> counts = {"examples": 8, "tokens": 60, "places": 80, "steps": 2, "skipped": 0, "gradient_norm": 1.0}
    >>> log.add({**counts, "loss_terms": {"loss": 3.0}})
    >>> record = log.record(2, learning_rate=1e-4)
    >>> record["loss"], record["padding"]
    (1.5, 0.25)
    """

    def __init__(self, run_directory):
        self._run_directory = run_directory
        self._writer = tf.summary.create_noop_writer()
        if run_directory.writer:
            self._writer = tf.summary.create_file_writer(str(run_directory.path / "tensorboard"))
        self._speeds = []
        self._forget()
        self.restart_clock()

    @property
    def updates(self):
        """int, the updates since the last record."""
        return self._counts["steps"]

    def restart_clock(self):
        """Leaves the time since the last update out of the speed: it went into an evaluation or a checkpoint."""
        self._started = time.perf_counter()

    def add(self, report):
        """Adds what `TrainStep.run` gave for some updates.

        Args:
            report: dict of numbers or scalar tensors.
        """
        for name in self._counts:
            self._counts[name] += int(report[name])
        for name, value in report["loss_terms"].items():
            self._terms[name] = self._terms.get(name, 0.0) + float(value)
        self._gradient_norm = float(report["gradient_norm"])
        self._seconds += time.perf_counter() - self._started
        self.restart_clock()

    def record(self, step, learning_rate, loss_scale=None):
        """Writes the record of the updates since the last one.

        Args:
            step: int. The number of updates made.
            learning_rate: float.
            loss_scale: float or None.

        Returns:
            dict of name to float.
        """
        counts, seconds = self._counts, max(self._seconds, 1e-9)
        updates = max(counts["steps"] - counts["skipped"], 1)
        terms = {name: value / updates for name, value in self._terms.items()}
        record = {
            "loss": sum(terms.values()),
            **({f"loss/{name}": value for name, value in terms.items()} if len(terms) > 1 else {}),
            "learning_rate": learning_rate,
            "gradient_norm": self._gradient_norm,
            "examples_per_second": counts["examples"] / seconds,
            "tokens_per_second": counts["tokens"] / seconds,
            "padding": 1 - counts["tokens"] / counts["places"] if counts["places"] else 0.0,
            **({} if loss_scale is None else {"loss_scale": loss_scale, "skipped": counts["skipped"]}),
        }
        self._speeds.append(record["examples_per_second"])
        self.event("train", step, record, prefix="train/")
        self._forget()
        return record

    def event(self, kind, step, numbers=None, prefix=""):
        """Writes an event to `log.jsonl`, and its numbers to TensorBoard.

        Args:
            kind: str.
            step: int.
            numbers: dict of name to float, or None.
            prefix: str. What stands before the names in TensorBoard.
        """
        self._run_directory.log({"event": kind, "step": step, **(numbers or {})})
        with self._writer.as_default():
            for name, value in (numbers or {}).items():
                tf.summary.scalar(prefix + name, value, step=step)
        self._writer.flush()

    def median_speed(self):
        """Median of the examples a second over the records, or None."""
        return sorted(self._speeds)[len(self._speeds) // 2] if self._speeds else None

    def _forget(self):
        self._counts = dict.fromkeys(("examples", "tokens", "places", "steps", "skipped"), 0)
        self._terms = {}
        self._gradient_norm = 0.0
        self._seconds = 0.0
