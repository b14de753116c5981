"""Finds the model that a checkpoint, a preset or the folder of a run refers to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.training.run_dir import CONFIGURATION_NAME, read_configuration, read_json_object
from keras_bert.typing import PathLike
from keras_bert.weights.preset_names import is_preset_name, resolve_preset

# The folder of a run's weights, in the form that `from_checkpoint` reads.
MODEL_FOLDER = "model"
# The folder of its adapters of LoRA, in the form of PEFT.
ADAPTER_FOLDER = "adapter"
RESULTS_NAME = "results.json"
_SCORE = (int, float, type(None))  # what is not a number is null in JSON
_TRIAL_TYPES: dict[str, Any] = {"folder": str, "learning_rate": float, "seed": int, "score": _SCORE, "metrics": dict}


def resolve_checkpoint(name: PathLike | None, setting: str = "init_checkpoint") -> Path:
    """Returns the absolute path of a checkpoint, of a finished run's best model, or of a preset's weights."""
    if name is None:
        raise ValueError(f"training needs initial weights: give {setting}")
    path = Path(name)
    if (path / RESULTS_NAME).is_file():
        return best_model(path).resolve()
    if (path / MODEL_FOLDER / "config.json").is_file():  # one of several trials
        return (path / MODEL_FOLDER).resolve()
    if (path / CONFIGURATION_NAME).is_file():
        raise FileNotFoundError(f"{setting}: the run in {name} has not finished; re-run its command to resume it")
    if path.exists() or list(path.parent.glob(path.name + ".index")):  # a TF1 checkpoint is a prefix of file names
        return path.resolve()
    if is_preset_name(name):
        return resolve_preset(str(name))
    raise FileNotFoundError(
        f"{setting}: there is no {name}; give a checkpoint (folder or file), the folder of a finished run, the "
        "name of a preset (keras_bert.list_presets()), or hf://owner/name for a model on the Hugging Face Hub"
    )


def resolve_checkpoints(recipe: FineTuningRecipe) -> FineTuningRecipe:
    """Returns the recipe with the absolute paths of its checkpoints."""
    second = recipe.init_checkpoint_right_to_left
    if second is not None:
        second = str(resolve_checkpoint(second, "init_checkpoint_right_to_left"))
    first = str(resolve_checkpoint(recipe.init_checkpoint))
    return dataclasses.replace(recipe, init_checkpoint=first, init_checkpoint_right_to_left=second)


def find_model(run_dir: Path, init_checkpoint: str | None) -> tuple[Path, Mapping[str, Any]]:
    """Returns the model to use without training, and the configuration of the run that trained it ({} if unknown)."""
    run = _find_run(run_dir, init_checkpoint)
    if run is None and init_checkpoint is None:
        raise FileNotFoundError(
            f"there is no trained model in {run_dir}: it has no {RESULTS_NAME}. Train first (--mode=train,...), or "
            "give a model by init_checkpoint"
        )
    if run is None:
        return resolve_checkpoint(init_checkpoint), {}
    configuration = read_configuration(run)
    if run == run_dir and init_checkpoint is not None:
        start = str(resolve_checkpoint(init_checkpoint))
        if start not in (configuration.get("init_checkpoint"), str(best_model(run).resolve())):
            raise ValueError(
                f"{run_dir} has a model of its own, and init_checkpoint={init_checkpoint} is another. Leave it out "
                "to use the run's model; to use the other one, give another run_dir"
            )
    return best_model(run), configuration


def saved_configuration(run_dir: PathLike, init_checkpoint: PathLike | None) -> dict[str, Any]:
    """Returns the configuration of the run whose model is used without training; {} if there is none."""
    run = _find_run(Path(run_dir), init_checkpoint)
    return {} if run is None else read_configuration(run)


def saved_results(run_dir: PathLike, init_checkpoint: PathLike | None) -> dict[str, Any]:
    """Returns the `results.json` of the run whose model is used; {} if there is none."""
    run = _find_run(Path(run_dir), init_checkpoint)
    return {} if run is None else _read_results(run)


def _find_run(run_dir: Path, init_checkpoint: PathLike | None) -> Path | None:
    folders = [run_dir, *([Path(init_checkpoint)] if init_checkpoint else [])]
    return next((folder for folder in folders if (folder / RESULTS_NAME).is_file()), None)


def best_model(run_dir: Path) -> Path:
    """Returns the folder of the weights of a finished run: the best trial's, or those of a pre-training."""
    folder = Path(_read_results(run_dir).get("best", {}).get("folder", "."))
    if folder.is_absolute() or ".." in folder.parts:
        raise ValueError(
            f"{run_dir / RESULTS_NAME} is damaged: the best model must be in a folder of the run, not {str(folder)!r}. "
            "Restore the file, or start a new run in another folder"
        )
    return run_dir / folder / MODEL_FOLDER


def _read_results(run: Path) -> dict[str, Any]:
    return read_json_object(run / RESULTS_NAME, lambda results: find_trial_problem(results.get("best", {})))


def find_trial_problem(trial: Any) -> str | None:
    """Returns which value of a trial, read from JSON, has another type than the one that was written."""
    if not isinstance(trial, dict):
        return f"best is {trial!r}"
    values = [(name, trial[name], kind) for name, kind in _TRIAL_TYPES.items() if name in trial]
    if isinstance(trial.get("metrics"), dict):
        values += [(name, value, _SCORE) for name, value in trial["metrics"].items()]
    return next((f"{name} is {value!r}" for name, value, kind in values if not isinstance(value, kind)), None)
