"""Pre-training: phases of instances, from files or from text, under one optimizer and one schedule."""

import bisect
import dataclasses
import itertools
from dataclasses import dataclass

import tensorflow as tf
from absl import logging

from keras_bert.finetuning.interruption import stop_on_sigterm
from keras_bert.finetuning.plots import draw_training_curve
from keras_bert.finetuning.run_models import MODEL_FOLDER, RESULTS_NAME
from keras_bert.finetuning.workers import MAY_CHANGE, run_on_worker
from keras_bert.io.atomic_write import write_json
from keras_bert.layers.attention_mask import BIDIRECTIONAL
from keras_bert.metrics.pretraining_scores import pretraining_metrics
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.objectives import MASKED
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.strategy import get_num_workers, is_chief, worker_of
from keras_bert.training.trainer import Trainer
from keras_bert.training.trainer_settings import TrainerSettings
from keras_bert.weights.hugging_face_writer import STORED_TYPES
from tasks.model_card import model_card
from tasks.pretraining_input import held_out_batches, training_batches

DROPOUT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is learned, and how. The numbers are the paper's (arXiv 1810.04805, appendix A.2).

    Args:
        objective: str, one of `OBJECTIVES`.
        next_sentence: str, "nsp", "sop" or "none".
        pack: bool. Whether several instances share a row.
        learning_rate: float. The peak.
        num_warmup_steps: int. Updates in the warm-up, if there are so many.
        schedule: str, the decay of `WarmupSchedule`, over all phases.
        weight_decay, clip_norm: float, as for `BertAdamW`.
        seed: int. Of new weights, dropout, and the order of the data.
    """

    objective: str = MASKED
    next_sentence: str = "nsp"
    pack: bool = False
    learning_rate: float = 1e-4
    num_warmup_steps: int = 10_000
    schedule: str = "linear"
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    seed: int = 1


def pretrain(run_dir, strategy=None, **arguments):
    """Pre-trains a model in the folder of a run; all workers of the strategy call it.

    Args:
        run_dir, **arguments: as for `pretrain_on_worker`.
        strategy: tf.distribute.Strategy; None is one device.

    Returns:
        dict, what is in `results.json`.

    Raises:
        WorkerLostError: if another worker is lost; the message names it.
        FileExistsError, FileNotFoundError, ValueError: as `pretrain_on_worker`.
    """
    return run_on_worker(lambda strategy: pretrain_on_worker(run_dir, strategy, **arguments), strategy)


def pretrain_on_worker(
    run_dir,
    strategy,
    tokenizer,
    instances,
    phases,
    encoder_arguments,
    recipe,
    init_checkpoint=None,
    evaluation=None,
    evaluate_every=None,
    eval_instances=2048,
    dropout=None,
    checkpoint_dtype="float32",
    command=None,
    **trainer_arguments,
):
    """One worker's part of `pretrain`.

    Args:
        run_dir: str or Path. A run that was interrupted goes on with the same arguments, in whatever phase it is.
        strategy: tf.distribute.Strategy.
        tokenizer: `BertTokenizer`.
        instances: `TextInstances` or `StoredInstances`, to train on.
        phases: list of `Phase`, one after the other.
        encoder_arguments: dict, of `BertEncoder`.
        recipe: `Recipe`.
        init_checkpoint: str, Path or None. Weights to begin with; None is random ones.
        evaluation: `TextInstances` or `StoredInstances` of other text, or None.
        evaluate_every: int or None. Updates between two evaluations; None is at the end only.
        eval_instances: int. How many instances an evaluation takes, at most.
        dropout: float or None. Of hidden states and attention while the model is pre-trained; None is what
            `encoder_arguments` say. What is written at the end has the rates that these say, for fine-tuning.
        checkpoint_dtype: str. How the weights of the model are stored, "float32" or "bfloat16".
        command: str or None, for the model card.
        **trainer_arguments: further arguments of `TrainerSettings`.

    Returns:
        dict, what is in `results.json`.

    Raises:
        FileExistsError: if the folder belongs to another run.
        ValueError: if something does not fit; before any training where that can be known.
    """
    own_rates = {name: encoder_arguments[name] for name in DROPOUT_RATES if name in encoder_arguments}
    if dropout is not None:
        encoder_arguments = {**encoder_arguments, **dict.fromkeys(DROPOUT_RATES, dropout)}
    with strategy.scope():
        model = make_model(encoder_arguments, init_checkpoint, recipe)
    if checkpoint_dtype not in STORED_TYPES:
        raise ValueError(f"checkpoint_dtype must be one of {STORED_TYPES}, got {checkpoint_dtype!r}")
    positions = model.encoder.max_position_embeddings
    _check_phases(phases, positions, get_num_workers(strategy))
    instances.check(phases, positions, fills_rows=not recipe.pack)
    rate = make_schedule(recipe, phases)
    with strategy.scope():
        optimizer = BertAdamW(rate, weight_decay=recipe.weight_decay, clip_norm=recipe.clip_norm)
    evaluate = None
    if evaluation is not None:
        evaluation.check(phases, positions, fills_rows=False)
        evaluate = Evaluation(model, optimizer, evaluation, phases, recipe.objective, eval_instances)
    configuration = {
        **_configuration(recipe, encoder_arguments, init_checkpoint, phases, instances),
        "checkpoint_dtype": checkpoint_dtype,
        **{name: value for name, value in trainer_arguments.items() if name not in MAY_CHANGE},
    }
    run = RunDirectory(run_dir, configuration, writer=is_chief(strategy))
    with stop_on_sigterm() as should_stop:
        trainer = Trainer(
            model,
            optimizer,
            run,
            TrainerSettings(
                rate.num_train_steps,
                evaluate_every=None if evaluate is None else evaluate_every,
                seed=recipe.seed,
                **trainer_arguments,
            ),
            strategy,
            evaluate=evaluate,
            should_stop=should_stop,
            run_info=_facts(model, instances, phases, rate, recipe),
        )
        batches = training_batches(instances, phases, recipe.objective, recipe.pack, recipe.seed, *worker_of(strategy))
        result = trainer.train(batches)
    metrics = result.best_metrics
    if evaluate is not None and not metrics:  # a run that ended before it was given text to evaluate on
        metrics = evaluate()
    results = {
        "metrics": metrics,
        "updates": result.step,
        "seconds": result.seconds,
        "examples_per_second": result.examples_per_second,
        "num_warmup_steps": rate.num_warmup_steps,
        "configuration": configuration,
    }
    if is_chief(strategy):
        _write_results(run, model, tokenizer, results, checkpoint_dtype, own_rates, command)
    return results


def make_schedule(recipe, phases):
    """The learning rate over all phases, with a warm-up that fits into them.

    Args:
        recipe: `Recipe`.
        phases: list of `Phase`.

    Returns:
        `WarmupSchedule`.
    """
    updates = sum(phase.updates for phase in phases)
    warmup = min(recipe.num_warmup_steps, updates)
    return WarmupSchedule(recipe.learning_rate, updates, warmup, decay=recipe.schedule)


def make_model(encoder_arguments, init_checkpoint, recipe):
    """The model as training begins with it; to be called in the strategy's scope.

    Args:
        encoder_arguments, init_checkpoint, recipe: as for `pretrain_on_worker`.

    Returns:
        `BertPretrainer`.

    Raises:
        ValueError: if the objective and the next sentence do not go together.
    """
    has_next_sentence = recipe.next_sentence != "none"
    arguments = {
        **encoder_arguments,
        "with_pooler": has_next_sentence,  # nothing else would train the pooler
        "attention_direction": BIDIRECTIONAL if recipe.objective == MASKED else recipe.objective,
    }
    if init_checkpoint is not None:
        return BertPretrainer.from_checkpoint(init_checkpoint, has_next_sentence, seed=recipe.seed, **arguments)
    return BertPretrainer(BertEncoder(**arguments, seed=recipe.seed), has_next_sentence, seed=recipe.seed)


class Evaluation:
    """The scores on held-out instances of the phase that training is in.

    Args:
        model: `BertPretrainer`.
        optimizer: `BertAdamW`, which knows the update.
        instances: `TextInstances` or `StoredInstances`.
        phases: list of `Phase`.
        objective: str.
        most_instances: int.

    Raises:
        ValueError: if they are fewer than a batch.
    """

    def __init__(self, model, optimizer, instances, phases, objective, most_instances):
        self._optimizer = optimizer
        self._ends = list(itertools.accumulate(phase.updates for phase in phases))
        # Made once and kept: the same instances each time.
        self._batches = [
            held_out_batches(instances, phase, number, objective, most_instances) for number, phase in enumerate(phases)
        ]
        self._sums = tf.function(
            lambda inputs, labels: model.metric_sums(labels, model(inputs, training=False)),
            reduce_retracing=True,
            autograph=False,
        )

    def __call__(self):
        """dict of "eval/metric" to float."""
        totals = {}
        for inputs, labels in self._batches[self._phase()]:
            for name, value in self._sums(inputs, labels).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        return {f"eval/{name}": value for name, value in pretraining_metrics(totals).items()}

    def _phase(self):
        """The number of the phase that the last update was in."""
        return bisect.bisect_left(self._ends, int(self._optimizer.iterations.numpy()), hi=len(self._ends) - 1)


def _configuration(recipe, encoder_arguments, init_checkpoint, phases, instances):
    """dict fit for JSON: what determines the model that comes out."""
    return {
        **dataclasses.asdict(recipe),
        "encoder": encoder_arguments,
        "init_checkpoint": None if init_checkpoint is None else str(init_checkpoint),
        "phases": [dataclasses.asdict(phase) for phase in phases],
        "data": instances.configuration(),
    }


def _check_phases(phases, positions, workers):
    for phase in phases:
        if phase.sequence_length > positions:
            raise ValueError(
                f"a phase has rows of {phase.sequence_length} tokens, and the model has {positions} positions "
                "(max_position_embeddings)"
            )
        if phase.batch_size % workers:
            raise ValueError(
                f"a batch of {phase.batch_size} rows does not divide by {workers} workers; give a multiple of {workers}"
            )


def _facts(model, instances, phases, rate, recipe):
    trainable = sum(int(variable.shape.num_elements()) for variable in model.trainable_variables)
    run_info = {
        "data": instances.description,
        "learning rate": f"{rate.peak_learning_rate:g}, warm-up {rate.num_warmup_steps} updates, decay {rate.decay!r}",
        "precision": model.dtype_policy.name,
        "trainable parameters": f"{trainable:,}",
    }
    for number, phase in enumerate(phases):
        rows = f"{phase.batch_size} rows of {phase.sequence_length} tokens"
        run_info[f"phase {number + 1}"] = f"{phase.updates:,} updates of {rows}{', packed' if recipe.pack else ''}"
    return run_info


def _write_results(run, model, tokenizer, results, checkpoint_dtype, own_rates, command):
    folder = run.path / MODEL_FOLDER
    if not folder.exists():
        model.save_checkpoint(folder, tokenizer, checkpoint_dtype, **own_rates)
    (run.path / "model_card.md").write_text(model_card(model, results, command), encoding="utf-8")
    draw_training_curve(run.path / "training_curve.png", run.read_log())
    write_json(run.path / RESULTS_NAME, results, overwrite=True)
    logging.info("wrote %s", folder)
