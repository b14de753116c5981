"""Fine-tuning, whatever the task: trials, the best of them evaluated, used for predictions, and exported."""

import json
import shutil
import time
from pathlib import Path

from absl import logging

from keras_bert.checkpoints.presets import PRESETS, resolve_preset
from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.training.experiment import best_trial, run_trials, summarize_trials, trial_folder
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import read_configuration, write_json
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.trainer import Trainer

# The folder of a run's weights, in the form that `from_checkpoint` reads.
MODEL_FOLDER = "model"
_RESULTS_NAME = "results.json"
# What of a run's configuration is asked for again when its model is only used: by the command line, or the run itself.
_OF_THE_MODEL = ("max_seq_length", "precision")
# What may change when a run is resumed.
_WITHOUT_INFLUENCE = ("checkpoint_every", "log_every", "steps_per_call", "progress", "micro_batches")


def fine_tune(
    task,
    modes,
    run_dir,
    init_checkpoint,
    learning_rates,
    seeds,
    max_seq_length,
    freeze,
    dropout,
    precision,
    eval_batch_size,
    export_dtype,
    given=frozenset(),
    **training,
):
    """Does what the modes ask for, in the folder of a run.

    Args:
        task: what is learned, such as `tasks.classification.Classification`.
        modes: collection of "train", "eval", "predict" and "export".
        run_dir: str or Path. A run that was interrupted goes on with the same arguments.
        init_checkpoint: str or Path, the weights to begin with: a checkpoint, another run's folder, or the name of a
            preset. Without training it is the model itself, unless the run has one.
        learning_rates, seeds: lists; every rate is tried with every seed, and the best on dev is taken.
        max_seq_length: int. Most tokens in an input.
        freeze, dropout: as for `BertClassifier`.
        precision: str. The dtype policy.
        eval_batch_size: int.
        export_dtype: str or None.
        given: names of the arguments that the user gave; without training the others are those of the run.
        **training: further arguments of `train`.

    Returns:
        dict, what is in `results.json`.

    Raises:
        FileExistsError: if the folder belongs to another run.
        FileNotFoundError: if there is no model to begin with, or to use.
        ValueError: if something does not fit; before any training where that can be known.
    """
    run_dir = Path(run_dir)
    task.check(modes)
    model_arguments = {"max_seq_length": max_seq_length, "precision": precision}
    results = {}
    if "train" in modes:
        start = resolve_checkpoint(init_checkpoint)
        configuration = {
            **task.configuration(),
            "init_checkpoint": str(start),
            **model_arguments,
            "freeze": freeze,
            "dropout": dropout,
            **{name: value for name, value in training.items() if name not in _WITHOUT_INFLUENCE},
        }

        def train_trial(run, learning_rate, seed):
            model = task.make_model(start, seed=seed, freeze=freeze, dropout=dropout, **model_arguments)
            return train(task, model, run, learning_rate, seed, eval_batch_size, **training)

        trials = run_trials(run_dir, configuration, learning_rates, seeds, train_trial)
        best = best_trial(trials)
        results = {
            "task": task.name,
            "score": task.score,
            "best": best,
            "by_learning_rate": summarize_trials(trials),
            "trials": trials,
            "configuration": configuration,
        }
        write_json(run_dir / _RESULTS_NAME, results)
        _remove_checkpoints(run_dir, trials)
        folder = trial_folder(run_dir, best) / MODEL_FOLDER
    else:
        folder, saved = find_model(run_dir, init_checkpoint)
        model_arguments |= {name: saved[name] for name in _OF_THE_MODEL if name in saved and name not in given}
    if {"eval", "predict", "export"} & set(modes):
        model = task.make_model(folder, trained=True, **model_arguments)
        results |= use_model(task, model, modes, run_dir, eval_batch_size, export_dtype)
    return results


def train(
    task,
    model,
    run,
    learning_rate,
    seed,
    eval_batch_size,
    epochs,
    batch_size,
    token_budget,
    bucket_step,
    schedule,
    warmup_proportion,
    weight_decay,
    clip_norm,
    bias_correction,
    evaluate_every,
    micro_batches,
    checkpoint_every,
    log_every,
    steps_per_call,
    progress,
):
    """Trains a model once, and writes its best weights to the folder of the run.

    Args:
        task, model: the task and its model.
        run: a `RunDirectory`.
        learning_rate: float. The peak.
        seed: int. Of the order of the data.
        eval_batch_size: int.
        epochs: float.
        batch_size, token_budget, bucket_step: as for `BatchPlan`.
        schedule: str. The decay of `WarmupSchedule`.
        warmup_proportion: float.
        weight_decay, clip_norm, bias_correction: as for `BertAdamW`.
        evaluate_every: int or None, updates; None is once an epoch.
        micro_batches, checkpoint_every, log_every, steps_per_call, progress: as for `Trainer`.

    Returns:
        dict: `score` (on dev), `metrics`, `best_step`, `steps`, `seconds`, `examples_per_second`.
    """
    started = time.perf_counter()
    examples = task.training_examples(model)
    plan = BatchPlan(examples.lengths, batch_size, token_budget, bucket_step, seed)
    steps = max(round(plan.batches_per_epoch * epochs), 1)
    rate = WarmupSchedule(learning_rate, steps, warmup_proportion=warmup_proportion, decay=schedule)
    optimizer = BertAdamW(rate, weight_decay=weight_decay, clip_norm=clip_norm, bias_correction=bias_correction)
    trainable = sum(int(variable.shape.num_elements()) for variable in model.trainable_variables)
    for name, value in {
        "examples": len(examples),
        "tokens an example": f"{examples.lengths.mean():.1f}",
        "updates": f"{steps} ({plan.batches_per_epoch} an epoch)",
        "batch": " and ".join(
            f"{number} {unit}" for number, unit in ((batch_size, "examples"), (token_budget, "tokens")) if number
        ),
        "micro-batches": micro_batches,
        "learning rate": f"{learning_rate:g}, {rate.num_warmup_steps} updates of warm-up, decay {schedule!r}",
        "precision": model.dtype_policy.name,
        "trainable parameters": f"{trainable:,}",
    }.items():
        logging.info("%-22s%s", name, value)
    result = Trainer(
        model,
        optimizer,
        run,
        steps,
        micro_batches=micro_batches,
        steps_per_call=steps_per_call,
        log_every=log_every,
        evaluate=lambda: task.evaluate(model, eval_batch_size),
        evaluate_every=evaluate_every or plan.batches_per_epoch,
        score=task.score,
        checkpoint_every=checkpoint_every,
        progress=progress,
    ).train(training_batches(examples, plan))
    if not (run.path / MODEL_FOLDER).exists():
        model.save_checkpoint(run.path / MODEL_FOLDER)
    task.draw_training_curve(run.path, run.read_log())
    return {
        "score": result.best_metrics[task.score],
        "metrics": result.best_metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "seconds": time.perf_counter() - started,
        "examples_per_second": result.examples_per_second,
    }


def use_model(task, model, modes, run_dir, eval_batch_size, export_dtype):
    """Evaluates a trained model, writes its predictions, and exports it, as the modes ask.

    Returns:
        dict: `evaluation`, the metrics, if the modes hold "eval".
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    results = {}
    if "eval" in modes:
        results["evaluation"] = task.evaluate(model, eval_batch_size)
        for name, value in results["evaluation"].items():
            logging.info("%-32s%.4f", name, value)
        write_json(run_dir / "evaluation.json", task.report(model, run_dir, eval_batch_size))
    if "predict" in modes:
        for file in task.write_predictions(model, run_dir / "predictions", eval_batch_size):
            logging.info("wrote %s", file)
    if "export" in modes:
        folder = run_dir / "saved_model" / "1"
        if folder.exists():
            logging.info("%s is there already and stays as it is", folder)
        else:
            logging.info("exported %s", task.export(model, folder, export_dtype))
    return results


def resolve_checkpoint(name):
    """The folder or file that a user means by the name of a checkpoint.

    Args:
        name: str or Path: a path, the folder of a finished run (its best model), or a preset's name.

    Returns:
        Path, absolute.

    Raises:
        FileNotFoundError: if there is nothing of that name.
        ValueError: if there is no name.
    """
    if name is None:
        raise ValueError("training needs weights to begin with: give --init_checkpoint")
    path = Path(name)
    if (path / _RESULTS_NAME).is_file():
        return _best_model(path).resolve()
    if path.exists() or list(path.parent.glob(path.name + ".index")):  # a TF1 checkpoint is the beginning of file names
        return path.resolve()
    if str(name) in PRESETS:
        return resolve_preset(str(name))
    raise FileNotFoundError(
        f"--init_checkpoint: there is no {name}; give a checkpoint (folder or file), the folder of a finished run, or "
        f"one of the presets {sorted(PRESETS)}"
    )


def find_model(run_dir, init_checkpoint):
    """The model that is used without training: the run's own, or the checkpoint given.

    Args:
        run_dir: Path.
        init_checkpoint: str, Path or None. A checkpoint or the folder of another run.

    Returns:
        A pair: Path of the model, and the configuration of the run that trained it (empty if that is not known).

    Raises:
        FileNotFoundError: if there is neither.
    """
    for folder in (run_dir, *([Path(init_checkpoint)] if init_checkpoint else [])):
        if (folder / _RESULTS_NAME).is_file():
            return _best_model(folder), read_configuration(folder)
    if init_checkpoint is None:
        raise FileNotFoundError(
            f"there is no trained model in {run_dir}: it has no {_RESULTS_NAME}. Train first (--mode=train,...), or "
            "give a model by --init_checkpoint"
        )
    return resolve_checkpoint(init_checkpoint), {}


def _best_model(run_dir):
    results = json.loads((run_dir / _RESULTS_NAME).read_text(encoding="utf-8"))
    return trial_folder(run_dir, results["best"]) / MODEL_FOLDER


def _remove_checkpoints(run_dir, trials):
    """Several trials would fill the disk with checkpoints that nobody resumes: each has its model."""
    if len(trials) > 1:
        for trial in trials:
            shutil.rmtree(trial_folder(run_dir, trial) / "checkpoints", ignore_errors=True)
