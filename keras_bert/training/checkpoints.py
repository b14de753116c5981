"""A run's own checkpoints: everything that training needs to go on as if it had not stopped."""

import json
import re
import shutil
from pathlib import Path

import tensorflow as tf
from absl import logging

_STATE_NAME = "state.json"
CHECKPOINTS_NAME = "checkpoints"  # the folder in that of a run
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
        """Saves where training stands; deletes checkpoints that are too old, and bests that none of the others names.

        Args:
            iterator: the iterator of a tf.data.Dataset that training reads.
            state: dict fit for JSON, with `step` and `best_step` (None if there is no best).
        """
        self._write(_RESUME, state, weights=self._weights, slots=self._slots, iterator=iterator)
        for step in self._steps(_RESUME)[: -self.keep]:
            shutil.rmtree(self._folder(_RESUME, step))
        named = {self._state(_RESUME, step).get("best_step") for step in self._steps(_RESUME)}
        for step in set(self._steps(_BEST)) - named:
            shutil.rmtree(self._folder(_BEST, step))

    def restore(self, iterator):
        """Restores the newest checkpoint.

        Args:
            iterator: an iterator of the same dataset, which is set to its place.

        Returns:
            The state that was saved with it, or None if there is no checkpoint.

        Raises:
            ValueError: if the checkpoint is of another model or optimizer, or damaged.
        """
        step = self.newest()
        if step is None:
            return None
        self._read(_RESUME, step, weights=self._weights, slots=self._slots, iterator=iterator)
        return self._state(_RESUME, step)

    def save_best(self, state):
        """Saves the weights as the best so far; an earlier best stays until `save` knows of this one.

        Args:
            state: dict fit for JSON, with `step`.
        """
        self._write(_BEST, state, weights=self._weights)

    def restore_best(self, step):
        """Restores the best weights.

        Args:
            step: int. The step at which they were saved.

        Raises:
            ValueError: if they are not there, or as `restore`.
        """
        self._read(_BEST, step, weights=self._weights)

    def _folder(self, kind, step):
        return self.path / f"{kind}_{step:08d}"

    def _steps(self, kind):
        matches = [re.fullmatch(rf"{kind}_(\d+)", file.name) for file in self.path.glob(f"{kind}_*")]
        return sorted(int(match.group(1)) for match in matches if match)

    def _state(self, kind, step):
        return json.loads((self._folder(kind, step) / _STATE_NAME).read_text(encoding="utf-8"))

    def _write(self, kind, state, **parts):
        folder = self._folder(kind, state["step"])
        unfinished = self.path / f"unfinished_{folder.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        tf.train.Checkpoint(**parts).write(str(unfinished / "variables"))
        (unfinished / _STATE_NAME).write_text(json.dumps(state), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # of the same step, from before the run was resumed
        unfinished.rename(folder)

    def _read(self, kind, step, **parts):
        folder = self._folder(kind, step)
        try:
            tf.train.Checkpoint(**parts).read(str(folder / "variables")).assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"the checkpoint {folder} does not fit this model and optimizer, or is damaged: {error}. "
                "Resume with the command that began the run, or start a new run in another folder."
            ) from error
        logging.info("restored %s", folder)
