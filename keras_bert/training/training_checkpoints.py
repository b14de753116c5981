"""Checkpoints of a run: everything needed to resume training as if it had not been interrupted."""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from keras_bert.io.atomic_write import replace_folder, sync_to_disk
from keras_bert.io.untrusted_files import MAX_JSON_BYTES, parse_json, read_json_file, read_regular_file
from keras_bert.typing import PathLike

CHECKPOINTS_NAME = "checkpoints"  # subfolder of the run directory
_STEP, _BEST = "step", "best"  # kinds of checkpoints
_UNFINISHED, _REPLACED = "unfinished_", "replaced_"  # prefixes of folders
_VARIABLES_NAME, _STATE_NAME, _MANIFEST_NAME = "variables", "state.json", "manifest.json"


class TrainingCheckpoints:
    """Saves and restores the model, the optimizer and the position in the data.

    Keeps the `keep` newest checkpoints, not counting damaged ones, and the weights of the best step. A checkpoint is a
    folder that gets its name once it is complete and on disk. Its `manifest.json` holds the size and SHA-256 of every
    other file, and nothing is restored from a folder that does not match it.

    Several workers may share one folder. All call the same methods at the same steps. Each saves and restores its own
    position in the data; the first one, the chief, writes everything else. `barrier` returns once all workers have
    called it. If a worker raises an error, the others keep waiting there: the caller must end them.
    """

    def __init__(
        self,
        path: PathLike,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        keep: int = 2,
        *,
        extra: Iterable[tf.Variable] = (),
        worker_index: int = 0,
        num_workers: int = 1,
        barrier: Callable[[], Any] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        if num_workers < 1 or not 0 <= worker_index < num_workers:
            raise ValueError(f"worker_index must be 0 to num_workers - 1, got {worker_index} of {num_workers}")
        if num_workers > 1 and barrier is None:
            raise ValueError(f"{num_workers} workers need a barrier, got None")
        self.path = Path(path)
        self.keep = keep
        self.worker_index = worker_index
        self.num_workers = num_workers
        self._is_chief = worker_index == 0
        self._barrier = barrier or (lambda: None)
        # By number: a variable's path depends on the names that Keras has used before in the process.
        self._weights = _number_variables(variable.value for variable in model.variables)
        self._everything = {
            "weights": self._weights,
            "slots": _number_variables(variable.value for variable in optimizer.variables),
            "extra": _number_variables(extra),
        }
        self._damaged: set[Path] = set()  # folders found damaged by `restore`

    def newest(self) -> int | None:
        """Returns the step of the newest checkpoint; compares file sizes only, unlike `restore`."""
        folders = self._find_folders(_STEP)
        return max((step for step, folder in folders.items() if self._seems_sound(folder)), default=None)

    def save(self, iterator: Iterator | None, state: Mapping[str, Any]) -> None:
        """Saves a checkpoint, and deletes old ones and best weights that no remaining checkpoint refers to.

        The iterator is this worker's, or None on all workers if the position in the data cannot be saved. The state is
        the chief's: values for JSON, with `step` and `best_step`, which may be None. If this raises an error (full
        disk, an iterator that cannot be saved), older checkpoints are unchanged.
        """
        name, state_text = _format_name(_STEP, state["step"]), json.dumps(state)
        if self._is_chief:
            self._create_unfinished(name)
        self._barrier()
        if iterator is not None:
            self._write_position(name, iterator)
        self._barrier()
        if self._is_chief:
            self._finish(name, state_text, self._everything)
            self._delete_superseded(state["step"])
        self._barrier()

    def restore(self, iterator: Iterator | None) -> dict[str, Any] | None:
        """Restores the newest undamaged checkpoint; returns its state, or None if there is no checkpoint.

        Sets the iterator, one of the same dataset, to its position; see `save` for None. Raises ValueError if all
        checkpoints are damaged, or if the model, optimizer, input or number of workers is not that of the checkpoint.
        """
        self._barrier()
        folder = self._find_newest_sound()
        state = None
        if folder is not None:
            self._check_positions(folder, iterator)
            _read(folder / _VARIABLES_NAME, "model and optimizer", self._everything)
            if iterator is not None:
                _read(folder / self._position_name(self.worker_index), "input", {"iterator": iterator})
            logging.info("restored %s", folder)
            state = _read_state(folder)
            best = self._find_folders(_BEST).get(state["best_step"])
            if best is not None and (damage := _find_damage(best)):
                message = "the best weights in %s are damaged, which is an error unless a better score follows: %s"
                logging.warning(message, best, damage)
        self._barrier()
        return state

    def save_best(self, state: Mapping[str, Any]) -> None:
        """Saves the weights as the best so far, without waiting; older ones stay until the next `save`."""
        if self._is_chief:
            name = _format_name(_BEST, state["step"])
            self._create_unfinished(name)
            self._finish(name, json.dumps(state), {"weights": self._weights})

    def restore_best(self, step: int) -> None:
        """Restores the best weights, saved at that step; raises ValueError if they are missing or damaged."""
        self._barrier()
        name = _format_name(_BEST, step)
        folder = self._find_folders(_BEST).get(step)
        damage = "there is no such folder" if folder is None else _find_damage(folder)
        if folder is None or damage:
            raise ValueError(
                f"cannot restore the best weights from {self.path / name}: {damage}. Restore the files from a copy, or "
                "start a new run in another directory"
            )
        _read(folder / _VARIABLES_NAME, "model", {"weights": self._weights})
        logging.info("restored %s", folder)
        self._barrier()  # the chief may delete the folder once training has ended

    def _position_name(self, worker_index: int) -> str:
        return f"position_{worker_index:05d}-of-{self.num_workers:05d}"

    def _find_folders(self, kind: str) -> dict[int, Path]:
        """Returns folders by step; one that a killed process was replacing counts only if there is no other."""
        files = sorted(self.path.glob(f"*{kind}_*"), key=lambda file: not file.name.startswith(_REPLACED))
        matches = [(re.fullmatch(rf"(?:{_REPLACED})?{kind}_(\d+)", file.name), file) for file in files]
        return {int(match.group(1)): file for match, file in matches if match}

    def _seems_sound(self, folder: Path) -> bool:
        return folder not in self._damaged and not _find_damage(folder, contents=(_STATE_NAME,))

    def _find_newest_sound(self) -> Path | None:
        damages = []
        for _, folder in sorted(self._find_folders(_STEP).items(), reverse=True):
            damage = _find_damage(folder)
            if not damage:
                return folder
            logging.warning("skipping the damaged checkpoint %s: %s", folder, damage)
            damages.append(f"{folder.name}: {damage}")
            self._damaged.add(folder)
        if damages:
            raise ValueError(
                f"every checkpoint in {self.path} is damaged ({'; '.join(damages)}). Restore the files from a copy, or "
                "start a new run in another directory"
            )
        return None

    def _check_positions(self, folder: Path, iterator: Iterator | None) -> None:
        manifest = _read_manifest(folder)
        if manifest["has_positions"] != (iterator is not None):
            saved, given = ("a", "no") if manifest["has_positions"] else ("no", "a")
            raise ValueError(
                f"the checkpoint {folder} has {saved} position in the data, but the input has {given} position that "
                "can be saved. Resume with the input that the run started with, or start a new run in another directory"
            )
        if manifest["has_positions"] and manifest["num_workers"] != self.num_workers:
            raise ValueError(
                f"the checkpoint {folder} was saved by {manifest['num_workers']} workers, each with its position in "
                f"the data, but there are {self.num_workers} now. Start {manifest['num_workers']} again, or start a "
                "new run in another directory"
            )

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """Yields the folder while it is unfinished; on an error, deletes it and says what to do."""
        unfinished = self.path / f"{_UNFINISHED}{name}"
        try:
            yield unfinished
        except BaseException as error:
            if self._is_chief:  # the others do not: another worker may still be writing
                shutil.rmtree(unfinished, ignore_errors=True)
            if not isinstance(error, (OSError, tf.errors.OpError)):
                raise
            newest = self.newest()
            remaining = "There is no other checkpoint" if newest is None else f"The newest is still of step {newest}"
            raise OSError(
                f"the checkpoint {self.path / name} could not be written: {_get_reason(error)}. {remaining}. Free "
                "space or fix the cause, and run the same command again to resume from the newest checkpoint"
            ) from error

    def _create_unfinished(self, name: str) -> None:
        """Creates an empty folder for a checkpoint; deletes leftovers of killed processes."""
        with self._writing(name) as unfinished:
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                sync_to_disk(self.path.parent)
            for folder in self.path.glob(f"{_REPLACED}*"):
                if (self.path / folder.name.removeprefix(_REPLACED)).exists():
                    shutil.rmtree(folder, ignore_errors=True)
            for folder in self.path.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(folder, ignore_errors=True)
            unfinished.mkdir()

    def _write_position(self, name: str, iterator: Iterator) -> None:
        position = self._position_name(self.worker_index)
        with self._writing(name) as unfinished:
            if not unfinished.is_dir():
                raise FileNotFoundError(
                    f"worker {self.worker_index} does not see {unfinished}, which the chief created: the directory "
                    "must be on storage that all workers share"
                )
            try:
                tf.train.Checkpoint(iterator=iterator).write(str(unfinished / position))
            except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
                raise ValueError(
                    f"the position in this input cannot be saved: {_get_reason(error)}. Use an input without Python "
                    "functions and generators, or set saves_data_position=False"
                ) from error
            for file in unfinished.glob(f"{position}*"):
                sync_to_disk(file)

    def _finish(self, name: str, state_text: str, parts: Mapping[str, Any]) -> None:
        """Writes what the workers have in common and the manifest, then gives the folder its name."""
        folder, replaced = self.path / name, self.path / f"{_REPLACED}{name}"
        with self._writing(name) as unfinished:
            tf.train.Checkpoint(**parts).write(str(unfinished / _VARIABLES_NAME))
            (unfinished / _STATE_NAME).write_text(state_text, encoding="utf-8")
            manifest = {
                "num_workers": self.num_workers,
                "has_positions": self._has_positions(unfinished),
                "files": {file.name: _describe_file(file) for file in sorted(unfinished.iterdir())},
            }
            (unfinished / _MANIFEST_NAME).write_text(_add_checksum(manifest), encoding="utf-8")
            # There is a folder already if the run was resumed from before this step.
            replace_folder(unfinished, folder, replaced)
        self._damaged.discard(folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _has_positions(self, unfinished: Path) -> bool:
        indices = range(self.num_workers)
        present = [index for index in indices if (unfinished / f"{self._position_name(index)}.index").is_file()]
        if len(present) not in (0, self.num_workers):
            raise ValueError(f"of {self.num_workers} workers, only {present} passed an iterator; all must, or none")
        return bool(present)

    def _delete_superseded(self, saved: int) -> None:
        steps, bests = self._find_folders(_STEP), self._find_folders(_BEST)
        # Damaged ones must not count: they would push out the last one that is sound.
        sound = sorted(step for step, folder in steps.items() if self._seems_sound(folder))
        kept = {saved, *sound[-self.keep :]}
        named = {_read_state(steps[step]).get("best_step") for step in kept}
        for folder in [*(steps[step] for step in steps.keys() - kept), *(bests[step] for step in bests.keys() - named)]:
            try:
                shutil.rmtree(folder)
            except OSError as error:
                logging.warning("%s is no longer needed, but could not be deleted: %s", folder, error)


def _format_name(kind: str, step: int) -> str:
    return f"{kind}_{step:08d}"


def _number_variables(variables: Iterable[tf.Variable]) -> dict[str, tf.Variable]:
    return {f"{i:05d}": variable for i, variable in enumerate(variables)}


def _read(prefix: Path, what: str, parts: Mapping[str, Any]) -> None:
    """Reads a TensorFlow checkpoint into variables or an iterator."""
    try:
        tf.train.Checkpoint(**parts).read(str(prefix)).assert_consumed()
    except (AssertionError, ValueError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"the checkpoint {prefix.parent} does not fit this {what}: {error}. Resume with the command that started "
            "the run, or start a new run in another directory"
        ) from error


def _read_state(folder: Path) -> dict[str, Any]:
    """Reads the state of a checkpoint; raises ValueError, which names the file, if it is not one."""
    try:
        state = read_json_file(folder / _STATE_NAME)
    except ValueError as error:
        raise ValueError(_describe_bad_state(folder, str(error))) from error
    if not isinstance(state, dict):
        raise ValueError(_describe_bad_state(folder, f"it holds a {type(state).__name__}"))
    for name in ("step", "best_step"):
        value = state.get(name)
        if not (type(value) is int and value >= 0) and not (name == "best_step" and value is None):
            raise ValueError(_describe_bad_state(folder, f"{name} is {value!r}"))
    return state


def _describe_bad_state(folder: Path, problem: str) -> str:
    return (
        f"{folder / _STATE_NAME} is damaged: it must hold the state of the training, as the run wrote it ({problem}). "
        "Delete the checkpoint's folder to resume from the one before it, or start a new run in another directory"
    )


def _describe_file(file: Path) -> dict[str, Any]:
    with open(file, "rb") as contents:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(contents, "sha256").hexdigest()}


def _add_checksum(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, indent=1)
    return json.dumps({**manifest, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=1)


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Reads a manifest; raises ValueError if it was changed after it was written."""
    text = read_regular_file(folder / _MANIFEST_NAME, MAX_JSON_BYTES).decode("utf-8")
    manifest = parse_json(text.encode())
    checksum = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
    if checksum is None or text != _add_checksum(manifest):
        raise ValueError("its contents changed after it was written")
    files = manifest.get("files")
    is_sound = isinstance(files, dict) and all(
        # A name with a path would have a file of somebody else read.
        name == Path(name).name and isinstance(file, dict) and type(file.get("bytes")) is int
        for name, file in files.items()
    )
    if not is_sound or not {"num_workers", "has_positions"} <= manifest.keys():
        raise ValueError("it is not a list of the checkpoint's own files")
    return manifest


def _find_damage(folder: Path, contents: Collection[str] | None = None) -> str:
    """Compares a folder with its manifest; returns what is damaged, or "" if nothing is.

    Of files not in `contents`, only the size is compared; None compares the contents of all.
    """
    try:
        manifest = _read_manifest(folder)
    except FileNotFoundError:
        return f"{_MANIFEST_NAME} is missing"
    except (OSError, ValueError) as error:
        return f"{_MANIFEST_NAME} cannot be used: {error}"
    damages = (
        _find_file_damage(folder / name, description, contents is None or name in contents)
        for name, description in manifest["files"].items()
    )
    return ", ".join(filter(None, damages))


def _find_file_damage(file: Path, description: Mapping[str, Any], compares_contents: bool) -> str | None:
    try:
        size = file.stat().st_size
        if size != description["bytes"]:
            return f"{file.name} has {size} bytes, but was written with {description['bytes']}"
        if compares_contents and _describe_file(file) != description:
            return f"{file.name} changed after it was written (SHA-256)"
    except FileNotFoundError:
        return f"{file.name} is missing"
    except OSError as error:
        return f"{file.name} cannot be read: {error}"
    return None


def _get_reason(error: Exception) -> str:
    """Returns an error's message without the names of TensorFlow's operations around it."""
    message = getattr(error, "message", None) or str(error)
    return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", message).strip(" .")
