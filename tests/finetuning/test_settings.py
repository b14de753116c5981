import dataclasses
import json
import math
from pathlib import Path

import pytest

from keras_bert.finetuning.pretraining_data import PretrainingData
from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime


def test_values_have_the_declared_types_and_are_frozen():
    recipe = FineTuningRecipe(init_checkpoint=Path("bert"), epochs=2, learning_rate=[1e-3, 1e-4], num_seeds=2)
    assert recipe.init_checkpoint == "bert"
    assert isinstance(recipe.epochs, float)
    assert recipe.learning_rate == (1e-3, 1e-4)
    trials = [(trial.learning_rate, trial.seeds) for trial in recipe.trials()]
    assert trials == [(1e-3, (1,)), (1e-3, (2,)), (1e-4, (1,)), (1e-4, (2,))]
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.epochs = 5


def test_recipe_is_equal_to_what_a_run_recorded():
    recipe = FineTuningRecipe(learning_rate=(1e-3, 1e-4), freeze=2, token_budget=100)
    adapters = FineTuningRecipe(lora_rank=2, lora_targets=["query", "value"])
    assert FineTuningRecipe(**json.loads(json.dumps(adapters.configuration()))) == adapters
    assert recipe.batch_size is None
    saved = json.loads(json.dumps({**recipe.configuration(), "task": "rte"}))
    assert FineTuningRecipe(**FineTuningRecipe.recorded(saved)) == recipe


def test_files_are_not_recorded():
    data = PretrainingData(vocab_file="vocab.txt", text_files=("a.txt",))
    assert data.configuration() == {}
    assert "size" not in PretrainingRecipe(size="tiny").configuration()


DATA = {"vocab_file": "v"}
TEXT = {**DATA, "text_files": ("a",)}
INSTANCES = {**DATA, "instance_files": ("a",)}
MASKING = "mask_token_rate has no effect without text_files"
EVALUATION = "evaluate_every has no effect without eval_text_files or eval_instance_files"


@pytest.mark.parametrize(
    ("settings", "values", "error", "message"),
    [
        (FineTuningRecipe, {"epochs": "3"}, TypeError, "epochs must be float, got '3'"),
        (FineTuningRecipe, {"batch_size": True}, TypeError, "batch_size must be int, got True"),
        (FineTuningRecipe, {"weight_decay": math.nan}, ValueError, "weight_decay must be a finite number, got nan"),
        (FineTuningRecipe, {"weight_decay": math.inf}, ValueError, "weight_decay must be a finite number, got inf"),
        (FineTuningRecipe, {"learning_rate": (1e-5, math.inf)}, ValueError, "learning_rate must be a finite number"),
        (FineTuningRecipe, {"warmup_proportion": 1.5}, ValueError, "must be at most 1.0, got 1.5"),
        (FineTuningRecipe, {"encoder": "right_to_left"}, ValueError, "encoder must be one of left_to_right, "),
        (FineTuningRecipe, {"learning_rate": ()}, ValueError, "one or several different numbers"),
        (FineTuningRecipe, {"dropout": 2.0}, ValueError, "dropout must be at most 0.999"),
        (FineTuningRecipe, {"lora_rank": 0}, ValueError, "lora_rank must be at least 1"),
        (FineTuningRecipe, {"lora_alpha": 8}, ValueError, "lora_alpha=8.0 has no effect without lora_rank"),
        (FineTuningRecipe, {"lora_rank": 2, "lora_alpha": 0}, ValueError, "lora_alpha must be a positive number"),
        (FineTuningRecipe, {"lora_rank": 2, "lora_targets": ("q",)}, ValueError, "lora_targets must be one of query, "),
        (FineTuningRecipe, {"lora_rank": 2, "freeze": 1}, ValueError, "freeze=1 has no effect with lora_rank"),
        (FineTuningRecipe, {"lora_rank": 2, "reinitialize_top_layers": 1}, ValueError, "would not be trained"),
        (FineTuningRuntime, {"data_service": "localhost"}, ValueError, "grpc://host:port"),
        (PretrainingRecipe, {"phase": ("128:0:8",)}, ValueError, "must be LENGTH:STEPS:ROWS"),
        (PretrainingRecipe, {"phase": ()}, ValueError, "at least one"),
        (PretrainingRecipe, {"size": "tiny", "init_checkpoint": "x"}, ValueError, "both give the size of the model"),
        (PretrainingData, DATA, ValueError, "text_files or instance_files must be given"),
        (PretrainingData, {**INSTANCES, "mask_token_rate": 0.5}, ValueError, MASKING),
        (PretrainingData, {**TEXT, "evaluate_every": 5}, ValueError, EVALUATION),
    ],
)
def test_rejects_wrong_values_by_name(settings, values, error, message):
    with pytest.raises(error) as raised:
        settings(**values)
    assert message in str(raised.value)
