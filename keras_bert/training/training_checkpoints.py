"""A run's own checkpoints: everything that training needs to go on as if it had not stopped."""

import contextlib
import hashlib
import json
import re
import shutil
from pathlib import Path

import tensorflow as tf
from absl import logging

from keras_bert.io.atomic_write import replace_folder, sync_to_disk

CHECKPOINTS_NAME = "checkpoints"  # the folder in that of a run
_RESUME, _BEST = "step", "best"
_UNFINISHED, _REPLACED = "unfinished_", "replaced_"
_VARIABLES_NAME, _STATE_NAME, _MANIFEST_NAME = "variables", "state.json", "manifest.json"


class TrainingCheckpoints:
    """Saves model, optimizer and place in the data, and restores them; keeps the newest, and the weights of the best.

    A checkpoint is a folder that gets its name only once all of it is written and on the disk. Its `manifest.json` says
    size and SHA-256 of every other file, and nothing is restored from a folder that does not agree with it.

    Several processes ("workers") may share one folder. They call the same methods at the same steps; each saves and
    restores its own place in the data, and the first of them, the chief, writes everything else. A worker that raises
    leaves the others waiting at the barrier: it is the caller's business to end them.

    Args:
        path: str or Path. The folder of the checkpoints.
        model: a built Keras model.
        optimizer: a Keras optimizer that is built.
        keep: int. How many of the newest stay; damaged ones do not count.
        extra: sequence of tf.Variable that are saved and restored with the others.
        worker_index: int. Which of the workers this is; the chief is 0.
        num_workers: int. How many there are.
        barrier: function without arguments that returns once all workers have called it. A single worker needs none.

    Raises:
        ValueError: if `keep` or `num_workers` is below 1, `worker_index` is none of theirs, or several workers have no
            barrier.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> optimizer = keras.optimizers.SGD()
    >>> optimizer.build(model.trainable_variables)
    >>> iterator = iter(tf.data.Dataset.range(9))
    >>> checkpoints = TrainingCheckpoints(tempfile.mkdtemp(), model, optimizer)
    >>> int(next(iterator))
    0
    >>> checkpoints.save(iterator, {"step": 1, "best_step": None})
    >>> iterator = iter(tf.data.Dataset.range(9))
    >>> checkpoints.restore(iterator)
    {'step': 1, 'best_step': None}
    >>> int(next(iterator))
    1
    """

    def __init__(self, path, model, optimizer, keep=2, *, extra=(), worker_index=0, num_workers=1, barrier=None):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        if num_workers < 1 or not 0 <= worker_index < num_workers:
            raise ValueError(f"worker_index must be one of 0 to num_workers - 1, got {worker_index} of {num_workers}")
        if num_workers > 1 and barrier is None:
            raise ValueError(f"{num_workers} workers need a barrier, got None")
        self.path = Path(path)
        self.keep = keep
        self.worker_index = worker_index
        self.num_workers = num_workers
        self._barrier = barrier or (lambda: None)
        # By number: Keras counts up names, so that a variable's path depends on what the process made before.
        self._weights = _numbered(variable.value for variable in model.variables)
        self._everything = {
            "weights": self._weights,
            "slots": _numbered(variable.value for variable in optimizer.variables),
            "extra": _numbered(extra),
        }
        self._damaged = set()  # folders whose files do not have the contents that their manifest says

    def newest(self):
        """The step of the newest checkpoint, or None.

        Of its files the sizes are checked here, and their contents when it is restored; a checkpoint that was then
        found damaged no longer counts.

        Returns:
            int or None.
        """
        steps = self._folders(_RESUME)
        return next((step for step in sorted(steps, reverse=True) if self._seems_sound(steps[step])), None)

    def save(self, iterator, state):
        """Saves where training stands; deletes checkpoints that are too old, and bests that none of the others names.

        All workers call it. The chief makes a folder; each worker writes its place; the chief writes the rest, and
        gives the folder its name; before each of these and at the end, all wait for all.

        Args:
            iterator: this worker's iterator of the tf.data.Dataset that training reads; None if its place cannot be
                saved, which all workers then say.
            state: dict fit for JSON, with `step` and `best_step` (None if there is no best). The chief's is saved.

        Raises:
            OSError: if it cannot be written, as on a full disk. Older checkpoints are as they were.
            ValueError: if the place in the data cannot be saved, or only some workers gave one.
        """
        name, state_text = _folder_name(_RESUME, state["step"]), json.dumps(state)
        if self._is_chief:
            self._begin(name)
        self._barrier()
        if iterator is not None:
            self._write_place(name, iterator)
        self._barrier()
        if self._is_chief:
            self._finish(name, state_text, self._everything)
            self._remove_superseded(state["step"])
        self._barrier()

    def restore(self, iterator):
        """Restores the newest checkpoint that is sound; one that is damaged is passed over with a warning.

        All workers call it, and wait for each other before and after.

        Args:
            iterator: an iterator of the same dataset, which is set to its place; None as in `save`.

        Returns:
            The state that was saved with it, or None if there is no checkpoint.

        Raises:
            ValueError: if all are damaged, or the newest sound one is of another model, optimizer, number of workers
                or input.
        """
        self._barrier()
        folder, manifest = self._newest_sound()
        state = None
        if folder is not None:
            self._check_places(folder, manifest, iterator)
            self._read(folder / _VARIABLES_NAME, "model and optimizer", self._everything)
            if iterator is not None:
                self._read(folder / self._place_name(self.worker_index), "input", {"iterator": iterator})
            logging.info("restored %s", folder)
            state = _state(folder)
            self._warn_of_damaged_best(state)
        self._barrier()
        return state

    def save_best(self, state):
        """Saves the weights as the best so far; an earlier best stays until `save` knows of this one.

        Only the chief writes, and nobody waits.

        Args:
            state: dict fit for JSON, with `step`.

        Raises:
            OSError: as `save`.
        """
        name, state_text = _folder_name(_BEST, state["step"]), json.dumps(state)
        if self._is_chief:
            self._begin(name)
            self._finish(name, state_text, {"weights": self._weights})

    def restore_best(self, step):
        """Restores the best weights. All workers call it, and wait for each other before and after.

        Args:
            step: int. The step at which they were saved.

        Raises:
            ValueError: if they are not there, damaged or of another model.
        """
        self._barrier()
        folder = self._folders(_BEST).get(step)
        if folder is None:
            raise ValueError(
                f"there are no best weights of step {step} in {self.path}. Restore the folder "
                f"{_folder_name(_BEST, step)} from a copy, or start a new run in another folder."
            )
        try:
            _check_files(folder)
        except _DamageError as damage:
            raise ValueError(
                f"the best weights in {folder} are damaged: {damage}. Restore the files from a copy, or start a new "
                "run in another folder."
            ) from damage
        self._read(folder / _VARIABLES_NAME, "model", {"weights": self._weights})
        logging.info("restored %s", folder)
        self._barrier()  # the chief may delete the folder once training has ended

    @property
    def _is_chief(self):
        return self.worker_index == 0

    def _place_name(self, worker_index):
        return f"place_{worker_index:05d}-of-{self.num_workers:05d}"

    def _folders(self, kind):
        """The folders by step; where one was about to be replaced when the process was killed, that one."""
        files = sorted(self.path.glob(f"*{kind}_*"), key=lambda file: not file.name.startswith(_REPLACED))
        matches = [(re.fullmatch(rf"(?:{_REPLACED})?{kind}_(\d+)", file.name), file) for file in files]
        return {int(match.group(1)): file for match, file in matches if match}

    def _seems_sound(self, folder):
        if folder in self._damaged:
            return False
        try:
            _check_files(folder, contents=(_STATE_NAME,))
        except _DamageError:
            return False
        return True

    def _newest_sound(self):
        damages = []
        for _, folder in sorted(self._folders(_RESUME).items(), reverse=True):
            try:
                return folder, _check_files(folder)
            except _DamageError as damage:
                logging.warning("the checkpoint %s is damaged and passed over: %s", folder, damage)
                damages.append(f"{folder.name}: {damage}")
                self._damaged.add(folder)
        if damages:
            raise ValueError(
                f"every checkpoint in {self.path} is damaged ({'; '.join(damages)}). Restore the files from a copy, or "
                "start a new run in another folder."
            )
        return None, None

    def _check_places(self, folder, manifest, iterator):
        if manifest["places"] != (iterator is not None):
            saved, now = ("a", "no") if manifest["places"] else ("no", "a")
            raise ValueError(
                f"the checkpoint {folder} has {saved} place in the data, and the input has now {now} place that can be "
                "saved. Resume with the input with which the run began, or start a new run in another folder."
            )
        if manifest["places"] and manifest["num_workers"] != self.num_workers:
            raise ValueError(
                f"the checkpoint {folder} was saved with {manifest['num_workers']} workers, each with its place in the "
                f"data, and now there are {self.num_workers}. Start with {manifest['num_workers']} again, or start a "
                "new run in another folder."
            )

    def _warn_of_damaged_best(self, state):
        folder = self._folders(_BEST).get(state.get("best_step"))
        if folder is not None:
            try:
                _check_files(folder)
            except _DamageError as damage:
                logging.warning(
                    "the best weights in %s are damaged, which will be an error if none better come: %s", folder, damage
                )

    @staticmethod
    def _read(prefix, what, parts):
        try:
            tf.train.Checkpoint(**parts).read(str(prefix)).assert_consumed()
        except (AssertionError, ValueError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f"the checkpoint {prefix.parent} does not fit this {what}: {error}. Resume with the command that began "
                "the run, or start a new run in another folder."
            ) from error

    @contextlib.contextmanager
    def _writing(self, name):
        """Gives the folder's name while it is unfinished; on an error deletes it and says what to do."""
        unfinished = self.path / f"{_UNFINISHED}{name}"
        try:
            yield unfinished
        except BaseException as error:
            if self._is_chief:  # the others leave theirs to the next `save`: somebody may still be writing beside them
                shutil.rmtree(unfinished, ignore_errors=True)
            if not isinstance(error, (OSError, tf.errors.OpError)):
                raise
            newest = self.newest()
            remains = "There is no other checkpoint" if newest is None else f"The newest is still that of step {newest}"
            raise OSError(
                f"the checkpoint {self.path / name} could not be written: {_reason(error)}. {remains}. Free space "
                "there, or mend what the reason says, and give the same command again to go on from the newest."
            ) from error

    def _begin(self, name):
        """Makes an empty folder for a checkpoint; deletes what processes that were killed left."""
        with self._writing(name) as unfinished:
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                sync_to_disk(self.path.parent)
            replaced = [
                file
                for file in self.path.glob(f"{_REPLACED}*")
                if (self.path / file.name.removeprefix(_REPLACED)).exists()
            ]
            for leftover in [*self.path.glob(f"{_UNFINISHED}*"), *replaced]:
                shutil.rmtree(leftover, ignore_errors=True)
            unfinished.mkdir()

    def _write_place(self, name, iterator):
        place = self._place_name(self.worker_index)
        with self._writing(name) as unfinished:
            if not unfinished.is_dir():
                raise FileNotFoundError(
                    f"worker {self.worker_index} does not see {unfinished}, which the chief has made: the folder must "
                    "lie on storage that all workers share"
                )
            try:
                tf.train.Checkpoint(iterator=iterator).write(str(unfinished / place))
            except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
                raise ValueError(
                    f"the place in this input cannot be saved: {_reason(error)}. Use an input without Python functions "
                    "and generators, or save None for its iterator."
                ) from error
            for file in unfinished.glob(f"{place}*"):
                sync_to_disk(file)

    def _finish(self, name, state_text, parts):
        """Writes what all workers have in common, and the manifest; then the folder gets its name."""
        folder, replaced = self.path / name, self.path / f"{_REPLACED}{name}"
        with self._writing(name) as unfinished:
            tf.train.Checkpoint(**parts).write(str(unfinished / _VARIABLES_NAME))
            (unfinished / _STATE_NAME).write_text(state_text, encoding="utf-8")
            manifest = {
                "num_workers": self.num_workers,
                "places": self._has_places(unfinished),
                "files": {file.name: _description(file) for file in sorted(unfinished.iterdir())},
            }
            (unfinished / _MANIFEST_NAME).write_text(_with_checksum(manifest), encoding="utf-8")
            # There is a folder already if the run was resumed from before this step.
            replace_folder(unfinished, folder, replaced)
        self._damaged.discard(folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _has_places(self, unfinished):
        present = [i for i in range(self.num_workers) if (unfinished / f"{self._place_name(i)}.index").is_file()]
        if len(present) not in (0, self.num_workers):
            raise ValueError(
                f"of {self.num_workers} workers only {present} gave an iterator to save; all must, or none"
            )
        return bool(present)

    def _remove_superseded(self, saved):
        steps, bests = self._folders(_RESUME), self._folders(_BEST)
        # A damaged one must not count: it would push out the last that is sound.
        sound = sorted(step for step, folder in steps.items() if self._seems_sound(folder))
        kept = {saved, *sound[-self.keep :]}
        named = {_state(steps[step]).get("best_step") for step in kept}
        for folder in [*(steps[step] for step in steps.keys() - kept), *(bests[step] for step in bests.keys() - named)]:
            try:
                shutil.rmtree(folder)
            except OSError as error:
                logging.warning("%s is no longer needed, but could not be deleted: %s", folder, error)


class _DamageError(Exception):
    """A folder is not as it was written; the message says which file and in which way."""


def _folder_name(kind, step):
    return f"{kind}_{step:08d}"


def _numbered(variables):
    return {f"{i:05d}": variable for i, variable in enumerate(variables)}


def _state(folder):
    return json.loads((folder / _STATE_NAME).read_text(encoding="utf-8"))


def _description(file):
    with open(file, "rb") as contents:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(contents, "sha256").hexdigest()}


def _with_checksum(manifest):
    text = json.dumps(manifest, indent=1)
    return json.dumps({**manifest, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=1)


def _check_files(folder, contents=None):
    """Compares a folder with its manifest, and gives the manifest.

    Args:
        folder: Path.
        contents: names of the files of which more than the size is compared; None is all.

    Raises:
        _DamageError: if they differ, or there is no manifest that can be trusted.
    """
    manifest = _read_manifest(folder)
    damages = []
    for name, description in manifest["files"].items():
        try:
            size = (folder / name).stat().st_size
            if size != description["bytes"]:
                damages.append(f"{name} has {size} bytes and was written with {description['bytes']}")
            elif (contents is None or name in contents) and _description(folder / name) != description:
                damages.append(f"{name} has not the contents that were written (SHA-256)")
        except FileNotFoundError:
            damages.append(f"{name} is missing")
        except OSError as error:
            damages.append(f"{name} cannot be read: {error}")
    if damages:
        raise _DamageError(", ".join(damages))
    return manifest


def _read_manifest(folder):
    try:
        text = (folder / _MANIFEST_NAME).read_bytes().decode("utf-8")
        manifest = json.loads(text)
    except FileNotFoundError as error:
        raise _DamageError(f"{_MANIFEST_NAME} is missing") from error
    except (OSError, ValueError) as error:
        raise _DamageError(f"{_MANIFEST_NAME} cannot be read: {error}") from error
    checksum = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
    if checksum is None or text != _with_checksum(manifest):
        raise _DamageError(f"{_MANIFEST_NAME} has not the contents that were written")
    return manifest


def _reason(error):
    """The message of an error without the names of TensorFlow's operations around it."""
    message = getattr(error, "message", None) or str(error)
    return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", message).strip(" .")
