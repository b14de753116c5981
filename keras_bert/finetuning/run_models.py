"""Which model is meant by the name of a checkpoint, a preset, or the folder of a run."""

import json
from pathlib import Path

from keras_bert.finetuning.sweep import trial_folder
from keras_bert.training.run_dir import read_configuration
from keras_bert.weights.preset_names import PRESETS, resolve_preset

# The folder of a run's weights, in the form that `from_checkpoint` reads.
MODEL_FOLDER = "model"
RESULTS_NAME = "results.json"


def resolve_checkpoint(name, flag="--init_checkpoint"):
    """The folder or file that a user means by the name of a checkpoint.

    Args:
        name: str or Path: a path, the folder of a finished run (its best model), or a preset's name.
        flag: str, what gave the name, for messages.

    Returns:
        Path, absolute.

    Raises:
        FileNotFoundError: if there is nothing of that name.
        ValueError: if there is no name.
    """
    if name is None:
        raise ValueError(f"training needs weights to begin with: give {flag}")
    path = Path(name)
    if (path / RESULTS_NAME).is_file():
        return best_model(path).resolve()
    if (path / MODEL_FOLDER / "config.json").is_file():  # one of several trials
        return (path / MODEL_FOLDER).resolve()
    if (path / "run.json").is_file():
        raise FileNotFoundError(f"{flag}: the run in {name} has not finished; its command goes on with it")
    if path.exists() or list(path.parent.glob(path.name + ".index")):  # a TF1 checkpoint is the beginning of file names
        return path.resolve()
    if str(name) in PRESETS:
        return resolve_preset(str(name))
    raise FileNotFoundError(
        f"{flag}: there is no {name}; give a checkpoint (folder or file), the folder of a finished run, or "
        f"one of the presets {sorted(PRESETS)}"
    )


def resolve_checkpoints(init_checkpoint, init_checkpoint_right_to_left=None):
    """The weights that a training begins with.

    Args:
        init_checkpoint: str or Path, as for `resolve_checkpoint`.
        init_checkpoint_right_to_left: the same, or None where there are not two.

    Returns:
        dict of both arguments' names to str or None, the paths.

    Raises:
        FileNotFoundError, ValueError: as `resolve_checkpoint`.
    """
    second, flag = init_checkpoint_right_to_left, "--init_checkpoint_right_to_left"
    return {
        "init_checkpoint": str(resolve_checkpoint(init_checkpoint)),
        "init_checkpoint_right_to_left": None if second is None else str(resolve_checkpoint(second, flag)),
    }


def find_model(task, run_dir, init_checkpoint):
    """The model that is used without training: the run's own, or the checkpoint given.

    Args:
        task: the task that it is used for.
        run_dir: Path.
        init_checkpoint: str, Path or None. A checkpoint or the folder of another run.

    Returns:
        A pair: Path of the model, and the configuration of the run that trained it (empty if that is not known).

    Raises:
        FileNotFoundError: if there is neither.
        ValueError: if both are there, or the run was for another task.
    """
    run = _find_run(run_dir, init_checkpoint)
    if run is None and init_checkpoint is None:
        raise FileNotFoundError(
            f"there is no trained model in {run_dir}: it has no {RESULTS_NAME}. Train first (--mode=train,...), or "
            "give a model by --init_checkpoint"
        )
    if run is None:
        return resolve_checkpoint(init_checkpoint), {}
    configuration = read_configuration(run)
    if run == run_dir and init_checkpoint is not None:
        start = str(resolve_checkpoint(init_checkpoint))
        if start not in (configuration.get("init_checkpoint"), str(best_model(run).resolve())):
            raise ValueError(
                f"{run_dir} has a model of its own, and --init_checkpoint={init_checkpoint} is another. Leave it out "
                "to use the run's model; to use the other one, give another --run_dir"
            )
    task.check_configuration(configuration)
    return best_model(run), configuration


def saved_configuration(run_dir, init_checkpoint):
    """The configuration of the run whose model is used without training; empty if there is none.

    Args:
        run_dir: str or Path.
        init_checkpoint: str, Path or None.

    Returns:
        dict.
    """
    run = _find_run(Path(run_dir), init_checkpoint)
    return {} if run is None else read_configuration(run)


def saved_results(run_dir, init_checkpoint):
    """What the run came to whose model is used; empty if there is none.

    Args:
        run_dir: str or Path.
        init_checkpoint: str, Path or None.

    Returns:
        dict, its `results.json`.
    """
    run = _find_run(Path(run_dir), init_checkpoint)
    return {} if run is None else json.loads((run / RESULTS_NAME).read_text(encoding="utf-8"))


def _find_run(run_dir, init_checkpoint):
    folders = [run_dir, *([Path(init_checkpoint)] if init_checkpoint else [])]
    return next((folder for folder in folders if (folder / RESULTS_NAME).is_file()), None)


def best_model(run_dir):
    """The folder of the weights in a run that has finished: the best trial's, or those of a pre-training.

    Args:
        run_dir: Path.

    Returns:
        Path.
    """
    results = json.loads((run_dir / RESULTS_NAME).read_text(encoding="utf-8"))
    trial = trial_folder(run_dir, results["best"]) if "best" in results else run_dir
    return trial / MODEL_FOLDER
