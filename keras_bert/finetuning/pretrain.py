"""Pre-training: phases of instances, from files or from text, under one optimizer and one schedule."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.finetuning.plots import draw_training_curve
from keras_bert.finetuning.pretraining_data import Instances, PretrainingData, evaluation_batches, pretraining_batches
from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.finetuning.run_cards import write_pretraining_card
from keras_bert.finetuning.run_models import MODEL_FOLDER, RESULTS_NAME, resolve_checkpoint
from keras_bert.finetuning.runtime import RuntimeSettings
from keras_bert.finetuning.workers import run_on_worker, stop_on_sigterm
from keras_bert.io.atomic_write import write_json
from keras_bert.layers.attention_mask import BIDIRECTIONAL
from keras_bert.metrics.pretraining_scores import pretraining_metrics
from keras_bert.models.encoder import ENCODER_SIZES, BertEncoder
from keras_bert.models.pretrained import read_bert
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.objectives import MASKED
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.strategy import get_num_workers, get_worker, is_chief
from keras_bert.training.trainer import Trainer
from keras_bert.typing import PathLike
from keras_bert.weights.google_bert import read_bert_config

_DROPOUT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def pretrain(
    data: PretrainingData,
    recipe: PretrainingRecipe,
    run_dir: PathLike,
    strategy: tf.distribute.Strategy | None = None,
    runtime: RuntimeSettings | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Pre-trains a model, as `tasks.pretrain` does; all workers of the strategy call it.

    The folder of the run gets `model/` (weights, vocabulary and a model card, `README.md`), `training_curve.png`,
    `results.json` and `log.jsonl`. The same call resumes an interrupted run, in whatever phase.

    Args:
        data: vocabulary, text or instances.
        recipe: what determines the result.
        run_dir: the folder of the run.
        strategy: a strategy from `keras_bert.training.make_strategy`; None means one device.
        runtime: settings of speed and memory, which may differ when a run is resumed.
        command: the command line, for the model card.

    Returns:
        The contents of `results.json`: `metrics`, `updates`, `seconds`, `configuration`, the last `loss` and others;
        and `model`, the folder of the weights.

    Raises:
        FileExistsError: if the folder belongs to another run.
        FileNotFoundError: if a file is missing.
        ValueError: if settings or data do not fit; before training where that can be known.
        WorkerLostError: if another worker is lost; the message names it.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    >>> _ = (folder / "vocab.txt").write_text("\\n".join(words))
    >>> _ = (folder / "text.txt").write_text("good film\\nbad film\\nbad bad film\\n\\ngood good\\nfilm film\\n" * 9)
    >>> data = keras_bert.PretrainingData(vocab_file=folder / "vocab.txt", text_files=(str(folder / "text.txt"),))
    >>> recipe = keras_bert.PretrainingRecipe(size="tiny", phase=("16:2:4",))
    >>> runtime = keras_bert.RuntimeSettings(progress=False)
    >>> keras_bert.pretrain(data, recipe, folder / "run", runtime=runtime)["updates"]
    2
    """

    def work(strategy: tf.distribute.Strategy) -> dict[str, Any]:
        return _Pretraining(data, recipe, strategy, runtime or RuntimeSettings()).run(Path(run_dir), command)

    return run_on_worker(work, strategy)


class _Pretraining:
    """One worker's part of `pretrain`."""

    def __init__(
        self,
        data: PretrainingData,
        recipe: PretrainingRecipe,
        strategy: tf.distribute.Strategy,
        runtime: RuntimeSettings,
    ) -> None:
        if recipe.init_checkpoint is not None:
            path = str(resolve_checkpoint(recipe.init_checkpoint))
            recipe = dataclasses.replace(recipe, init_checkpoint=path)
        self.data = data
        self.recipe = recipe
        self.strategy = strategy
        self.runtime = runtime
        self.tokenizer = data.tokenizer()

    def run(self, run_dir: Path, command: str | None) -> dict[str, Any]:
        recipe, strategy, runtime = self.recipe, self.strategy, self.runtime
        own_arguments = encoder_arguments(recipe, self.data, self.tokenizer.vocab_size)
        arguments = dict(own_arguments)
        if recipe.dropout is not None:
            arguments |= dict.fromkeys(_DROPOUT_RATES, recipe.dropout)
        with strategy.scope():
            model = make_model(recipe, {**arguments, "gradient_checkpointing": runtime.gradient_checkpointing})
        instances = self.data.instances(recipe, self.tokenizer)
        assert instances is not None
        positions = model.encoder.max_position_embeddings
        check_phases(recipe, positions, get_num_workers(strategy))
        instances.check(recipe.phases, positions, fills_rows=not recipe.pack)
        steps = sum(phase.steps for phase in recipe.phases)
        num_warmup_steps = min(recipe.num_warmup_steps, steps)
        schedule = WarmupSchedule(recipe.learning_rate, steps, num_warmup_steps, decay=recipe.schedule)
        with strategy.scope():
            optimizer = BertAdamW(schedule, weight_decay=recipe.weight_decay, clip_norm=recipe.clip_norm)
        evaluate = None
        held_out = self.data.instances(recipe, self.tokenizer, evaluation=True)
        if held_out is not None:
            held_out.check(recipe.phases, positions, fills_rows=False)
            evaluate = _Evaluation(model, optimizer, held_out, recipe, self.data.eval_instances)
        configuration = {**recipe.configuration(), "encoder": arguments, "data": instances.configuration()}
        run = RunDirectory(run_dir, configuration, writer=is_chief(strategy))
        settings = runtime.trainer_settings(schedule.num_train_steps, recipe.seed)
        if evaluate is not None:
            settings = dataclasses.replace(settings, evaluate_every=self.data.evaluate_every)
        with stop_on_sigterm() as should_stop:
            trainer = Trainer(
                model,
                optimizer,
                run,
                settings,
                strategy,
                evaluate=evaluate,
                should_stop=should_stop,
                run_info=self.describe(model, instances, schedule),
            )
            result = trainer.train(pretraining_batches(instances, recipe, get_worker(strategy)))
        metrics = result.best_metrics
        if evaluate is not None and not metrics:  # the run ended before it had text to evaluate on
            metrics = evaluate()
        records = run.read_log()
        results = {
            "metrics": metrics,
            "loss": next((record.get("loss") for record in reversed(records) if record.get("event") == "train"), None),
            "updates": result.step,
            "seconds": result.seconds,
            "examples_per_second": result.examples_per_second,
            "num_warmup_steps": schedule.num_warmup_steps,
            "configuration": configuration,
        }
        folder = run.path / MODEL_FOLDER
        if is_chief(strategy):
            if not folder.exists():
                own_rates = {name: own_arguments[name] for name in _DROPOUT_RATES if name in own_arguments}
                model.save_checkpoint(folder, self.tokenizer, recipe.checkpoint_dtype, **own_rates)
            write_pretraining_card(folder, model, recipe, results, command)
            draw_training_curve(run.path / "training_curve.png", records)
            write_json(run.path / RESULTS_NAME, results, overwrite=True)
        return {**results, "model": str(folder)}

    def describe(self, model: BertPretrainer, instances: Instances, schedule: WarmupSchedule) -> dict[str, str]:
        """Describes data, model and phases, for the log."""
        trainable = sum(int(variable.shape.num_elements()) for variable in model.trainable_variables)
        run_info = {
            "data": instances.description,
            "learning rate": f"{schedule.peak_learning_rate:g}, warmup {schedule.num_warmup_steps} steps, "
            f"decay {schedule.decay!r}",
            "precision": model.dtype_policy.name,
            "trainable parameters": f"{trainable:,}",
        }
        for number, phase in enumerate(self.recipe.phases, 1):
            rows = f"{phase.batch_size} rows of {phase.sequence_length} tokens"
            run_info[f"phase {number}"] = f"{phase.steps:,} steps of {rows}{', packed' if self.recipe.pack else ''}"
        return run_info


def encoder_arguments(recipe: PretrainingRecipe, data: PretrainingData, vocab_size: int) -> dict[str, Any]:
    """Returns constructor arguments of the encoder; raises ValueError if the model has another vocabulary."""
    source = recipe.init_checkpoint or recipe.bert_config_file
    if recipe.init_checkpoint:
        arguments = dict(read_bert(recipe.init_checkpoint).encoder_arguments)
        arguments.pop("attention_direction", None)  # set by the objective
    elif recipe.bert_config_file:
        arguments = read_bert_config(Path(recipe.bert_config_file))
    else:
        rates = dict.fromkeys(_DROPOUT_RATES, 0.1)  # paper, appendix A.2
        arguments = {**ENCODER_SIZES[recipe.size or "base"], "vocab_size": vocab_size, **rates}
    if arguments["vocab_size"] != vocab_size:
        raise ValueError(
            f"{source} has a vocabulary of {arguments['vocab_size']} wordpieces, and {data.vocab_file} has {vocab_size}"
        )
    return {**arguments, "dtype": recipe.precision}


def make_model(recipe: PretrainingRecipe, arguments: dict[str, Any]) -> BertPretrainer:
    """Creates the initial model; called in the strategy's scope."""
    has_next_sentence = recipe.next_sentence != "none"
    arguments = {
        **arguments,
        "with_pooler": has_next_sentence,  # nothing else would train the pooler
        "attention_direction": BIDIRECTIONAL if recipe.objective == MASKED else recipe.objective,
    }
    if recipe.init_checkpoint is not None:
        return BertPretrainer.from_checkpoint(recipe.init_checkpoint, has_next_sentence, seed=recipe.seed, **arguments)
    return BertPretrainer(BertEncoder(**arguments, seed=recipe.seed), has_next_sentence, seed=recipe.seed)


def check_phases(recipe: PretrainingRecipe, positions: int, num_workers: int) -> None:
    """Raises ValueError if the model has too few positions for a phase, or its batch does not divide by the workers."""
    for phase in recipe.phases:
        if phase.sequence_length > positions:
            raise ValueError(
                f"a phase has rows of {phase.sequence_length} tokens, and the model has {positions} positions "
                "(max_position_embeddings)"
            )
        if phase.batch_size % num_workers:
            raise ValueError(
                f"a batch of {phase.batch_size} rows does not divide by {num_workers} workers; give a multiple of "
                f"{num_workers}"
            )


class _Evaluation:
    """The scores on held-out instances of the current phase, as "eval/metric"."""

    def __init__(
        self,
        model: BertPretrainer,
        optimizer: BertAdamW,
        instances: Instances,
        recipe: PretrainingRecipe,
        max_instances: int,
    ) -> None:
        self._optimizer = optimizer
        self._ends = list(itertools.accumulate(phase.steps for phase in recipe.phases))
        # Made once and reused, so that every evaluation uses the same instances.
        self._batches = [
            evaluation_batches(instances, phase, number, recipe.objective, max_instances)
            for number, phase in enumerate(recipe.phases)
        ]
        self._sums = tf.function(
            lambda inputs, labels: model.metric_sums(labels, model(inputs, training=False)),
            reduce_retracing=True,
            autograph=False,
        )

    def __call__(self) -> dict[str, float]:
        step = int(self._optimizer.iterations.numpy())
        totals: dict[str, float] = {}
        for inputs, labels in self._batches[bisect.bisect_left(self._ends, step, hi=len(self._ends) - 1)]:
            for name, value in self._sums(inputs, labels).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        return {f"eval/{name}": value for name, value in pretraining_metrics(totals).items()}
