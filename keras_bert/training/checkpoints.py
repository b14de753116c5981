"""A run's own checkpoints: everything that training needs to go on as if it had not stopped."""

import json
import re
import shutil
from pathlib import Path

import tensorflow as tf
from absl import logging

_STATE_NAME = "state.json"
_RESUME, _BEST = "step", "best"


class TrainingCheckpoints:
    """Saves model, optimizer and place in the data, and restores them; keeps the newest, and the weights of the best.

    A checkpoint is a folder that gets its name only once all of it is written.

    Args:
        path: str or Path. The folder of the checkpoints.
        model: a built Keras model.
        optimizer: a Keras optimizer that is built.
        keep: int. How many of the newest stay.

    Raises:
        ValueError: if `keep` is below 1.
    """

    def __init__(self, path, model, optimizer, keep=2):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.path = Path(path)
        self.keep = keep
        # By number: Keras counts up names, so that a variable's path depends on what the process made before.
        self._weights = {f"{i:05d}": variable.value for i, variable in enumerate(model.variables)}
        self._slots = {f"{i:05d}": variable.value for i, variable in enumerate(optimizer.variables)}

    def newest(self):
        """The step of the newest checkpoint, or None."""
        return max(self._steps(_RESUME), default=None)

    def save(self, iterator, state):
        """Saves where training stands, and deletes checkpoints that are too old.

        Args:
            iterator: the iterator of a tf.data.Dataset that training reads.
            state: dict fit for JSON, with `step`.
        """
        self._write(_RESUME, state, self.keep, weights=self._weights, slots=self._slots, iterator=iterator)

    def restore(self, iterator):
        """Restores the newest checkpoint.

        Args:
            iterator: an iterator of the same dataset, which is set to its place.

        Returns:
            The state that was saved with it, or None if there is no checkpoint.

        Raises:
            ValueError: if the checkpoint is of another model or optimizer, or damaged.
        """
        return self._read(_RESUME, weights=self._weights, slots=self._slots, iterator=iterator)

    def save_best(self, state):
        """Saves the weights as the best so far, in the place of an earlier best.

        Args:
            state: dict fit for JSON, with `step`.
        """
        self._write(_BEST, state, 1, weights=self._weights)

    def restore_best(self):
        """Restores the best weights.

        Returns:
            The state that was saved with them, or None if there are none.

        Raises:
            ValueError: as `restore`.
        """
        return self._read(_BEST, weights=self._weights)

    def _folder(self, kind, step):
        return self.path / f"{kind}_{step:08d}"

    def _steps(self, kind):
        matches = [re.fullmatch(rf"{kind}_(\d+)", file.name) for file in self.path.glob(f"{kind}_*")]
        return sorted(int(match.group(1)) for match in matches if match)

    def _write(self, kind, state, keep, **parts):
        folder = self._folder(kind, state["step"])
        unfinished = self.path / f"unfinished_{folder.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        tf.train.Checkpoint(**parts).write(str(unfinished / "variables"))
        (unfinished / _STATE_NAME).write_text(json.dumps(state), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # of the same step, from before the run was resumed
        unfinished.rename(folder)
        for step in self._steps(kind)[:-keep]:
            shutil.rmtree(self._folder(kind, step))

    def _read(self, kind, **parts):
        steps = self._steps(kind)
        if not steps:
            return None
        folder = self._folder(kind, steps[-1])
        try:
            tf.train.Checkpoint(**parts).read(str(folder / "variables")).assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"the checkpoint {folder} does not fit this model and optimizer, or is damaged: {error}. "
                "Resume with the command that began the run, or start a new run in another folder."
            ) from error
        logging.info("restored %s", folder)
        return json.loads((folder / _STATE_NAME).read_text(encoding="utf-8"))
