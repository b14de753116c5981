"""Writes the model cards of runs: base model, data, recipe, and scores with their seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.objectives import MASKED
from keras_bert.weights.model_card import Score, write_model_card
from keras_bert.weights.preset_names import find_repository
from keras_bert.weights.preset_table import PRESETS

# Settings that say where files are, which is of no use to others.
_PATHS = ("init_checkpoint", "init_checkpoint_right_to_left")


def write_fine_tuning_card(model_folder: Path, results: Mapping[str, Any], datasets: Sequence[str] = ()) -> Path:
    """Writes the card of the best model of a fine-tuning run, from the run's `results.json`; keeps an existing one."""
    configuration, best = results["configuration"], results["best"]
    task = str(configuration["task"])
    recipe = {**FineTuningRecipe.recorded(configuration), "learning_rate": best["learning_rate"], "seed": best["seed"]}
    recipe = {name: value for name, value in recipe.items() if name not in _PATHS and value not in (None, "none", ())}
    recipe |= {"training steps": best["steps"], "step of the best score": best["best_step"]}
    trials = [
        {
            "learning rate": trial["learning_rate"],
            "seed": trial["seed"],
            "best step": trial["best_step"],
            results["score"]: trial["score"],
        }
        for trial in results["trials"]
    ]
    return write_model_card(
        model_folder,
        overwrite=False,
        title=f"BERT fine-tuned on {task}",
        base_model=_describe_start(configuration.get("init_checkpoint")),
        data=[f"{split}: {described}" for split, described in configuration["data"].items()],
        datasets=datasets,
        recipe=recipe,
        scores=_scores(best["metrics"], task, best["seed"]),
        trials=trials if len(trials) > 1 else (),
    )


def write_pretraining_card(
    model_folder: Path,
    model: BertPretrainer,
    recipe: PretrainingRecipe,
    results: Mapping[str, Any],
    command: str | None = None,
) -> Path:
    """Writes the card of a pre-trained model, from the run's `results.json` and the command that was run."""
    data = results["configuration"]["data"]
    settings: dict[str, Any] = {"objective": recipe.objective, "next sentence": recipe.next_sentence}
    for number, phase in enumerate(recipe.phases, 1):
        rows = f"{phase.steps:,} steps of {phase.batch_size:,} rows of {phase.sequence_length} tokens"
        settings[f"phase {number}"] = rows + (", several instances per row" if recipe.pack else "")
    settings |= {
        "learning rate": recipe.learning_rate,
        "warmup steps": results["num_warmup_steps"],
        "decay": recipe.schedule,
        "weight decay": recipe.weight_decay,
        "dropout": model.encoder.hidden_dropout_prob,
        "seed": recipe.seed,
        "computed in": model.encoder.dtype_policy.name,
        "stored in": recipe.checkpoint_dtype,
        "training steps": results["updates"],
        "minutes": round(results["seconds"] / 60),
    }
    return write_model_card(
        model_folder,
        title="BERT pre-trained by keras_bert",
        base_model=_describe_start(recipe.init_checkpoint),
        data=[_describe_data(data, recipe.objective), "lower-cased" if data["lower_case"] else "cased"],
        recipe=settings,
        command=command or "",
        scores=_scores(results["metrics"], "held-out text", recipe.seed),
    )


def _describe_start(checkpoint: str | None) -> str:
    """Returns the name of initial weights: on the hub, of a preset, or of their folder, without its path."""
    if not checkpoint:
        return ""
    path = Path(checkpoint)
    repository = find_repository(path)
    return repository or (path.parent.name if path.name == "model" and path.parent.name not in PRESETS else path.name)


def _scores(metrics: Mapping[str, float | None], dataset: str, seed: int) -> list[Score]:
    scores = []
    for name, value in metrics.items():
        split, _, metric = name.rpartition("/")
        if value is not None and math.isfinite(value):
            scores.append(Score(metric, value, dataset, split, seed))
    return scores


def _describe_data(data: Mapping[str, Any], objective: str) -> str:
    if "text" not in data:
        return f"{sum(map(len, data['instances'])):,} files of instances"
    pieces = [piece for shard in data["text"] for piece in shard]
    size = sum(end - start for _, start, end in pieces)
    files = len({path for path, *_ in pieces})
    masked = f", {data['masked_lm_prob']:.0%} of the tokens masked" if objective == MASKED else ""
    return f"{size:,} bytes of text in {files:,} files{masked}, with new masks in each pass"
