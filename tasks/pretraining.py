"""Pre-training: phases of instances, from files or from text, under one optimizer and one schedule."""

import bisect
import dataclasses
import itertools
import math
from dataclasses import dataclass

import tensorflow as tf
from absl import logging

from keras_bert.data.pretraining.instance_maker import InstanceMaker
from keras_bert.data.pretraining.objectives import MASKED, inputs_and_labels
from keras_bert.data.pretraining.on_the_fly import text_batches
from keras_bert.data.pretraining.packing import packed
from keras_bert.data.pretraining.reader import check_shards, describe_shards, shard_batches
from keras_bert.data.pretraining.settings import InstanceSettings
from keras_bert.data.pretraining.shard_files import describe_vocabulary
from keras_bert.data.pretraining.shards import plan_shards
from keras_bert.layers.attention_mask import BIDIRECTIONAL
from keras_bert.metrics.figures import training_curve_figure
from keras_bert.metrics.pretraining import pretraining_metrics
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.masking import predictions_per_sequence
from keras_bert.training.cluster import watch_workers
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory, write_json
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.strategy import (
    cluster_of,
    is_chief,
    make_strategy,
    number_of_workers,
    worker_barrier,
    worker_of,
)
from keras_bert.training.trainer import Trainer
from tasks.interruption import stop_on_sigterm
from tasks.model_card import model_card
from tasks.saved_models import MODEL_FOLDER, RESULTS_NAME

# What may change when a run is resumed. (Other micro-batches draw other dropout.)
_MAY_CHANGE = ("checkpoint_every", "log_every", "steps_per_call", "progress", "micro_batches", "jit")
# Room for masked words in a packed row, beyond what the masking rate asks for, so that rows become full.
_ROOM_FOR_PREDICTIONS = 1.25
KERAS_MODEL = "model.keras"
_INSTANCES_AT_ONCE = 256  # that packing is given


@dataclass(frozen=True)
class Phase:
    """A part of a pre-training in which all rows have one length.

    Args:
        sequence_length: int. Tokens in a row.
        updates: int.
        batch_size: int. Rows in a batch, of all devices together.

    Raises:
        ValueError: if a number is below 1.
    """

    sequence_length: int
    updates: int
    batch_size: int

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"the {name} of a phase must be at least 1, got {value}")


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


class TextInstances:
    """Instances that are made from prepared text while the model trains, other ones in every epoch.

    Args:
        files: list of str, prepared text, one sentence a line and a blank line between documents.
        tokenizer: `BertTokenizer`.
        shard_bytes: int. Text of a shard, which is in memory.
        **settings: further arguments of `InstanceSettings`, for all phases.
    """

    def __init__(self, files, tokenizer, shard_bytes, **settings):
        self._plan = plan_shards(files, shard_bytes)
        self._tokenizer = tokenizer
        self._settings = settings
        size = sum(shard.size for shard in self._plan)
        self.description = f"{len(files)} files of text, {size:,} bytes, made while training"

    def check(self, phases, max_position_embeddings):
        """Raises ValueError if a phase's instances cannot be made, or the vocabulary lacks what they need."""
        for phase in phases:
            InstanceMaker(self._tokenizer, self._settings_of(phase))

    def configuration(self):
        """dict fit for JSON: what determines the instances."""
        text = [shard.pieces for shard in self._plan]
        return {**describe_vocabulary(self._tokenizer), **self._settings, "text": text}

    def batches(self, phase, number, batch_size, worker_index=0, num_workers=1, epochs=None):
        """Batches of a phase's instances for one worker; `number`, that of the phase, is not looked at."""
        return text_batches(
            self._plan, self._tokenizer, self._settings_of(phase), batch_size, worker_index, num_workers, epochs=epochs
        )

    def most_predictions(self, phase, number):
        """int. The most masked tokens of an instance."""
        return self._settings_of(phase).max_predictions

    def _settings_of(self, phase):
        rate = self._settings.get("masking_rate", InstanceSettings.masking_rate)
        predictions = predictions_per_sequence(phase.sequence_length, rate)
        return InstanceSettings(sequence_length=phase.sequence_length, max_predictions=predictions, **self._settings)


class StoredInstances:
    """Instances from files, those of `tools.create_pretraining_data` or of google-research/bert.

    Args:
        paths: list of lists of str, the files of each phase.
        tokenizer: `BertTokenizer` of the model.
        seed: int. Of their order.
    """

    def __init__(self, paths, tokenizer, seed):
        self._paths = paths
        self._tokenizer = tokenizer
        self._seed = seed
        self._descriptions = [describe_shards(of_phase) for of_phase in paths]
        numbers = [description["instances"] for description in self._descriptions]
        self.description = ", then ".join(
            f"{len(of_phase)} files of {'an unknown number of' if number is None else f'{number:,}'} instances"
            for of_phase, number in zip(paths, numbers, strict=True)
        )

    def check(self, phases, max_position_embeddings):
        """Raises ValueError if the files are not of the phases' lengths, or not for this model."""
        if len(phases) != len(self._paths):
            raise ValueError(f"there are {len(phases)} phases and files for {len(self._paths)}: each phase has its own")
        for phase, description in zip(phases, self._descriptions, strict=True):
            check_shards(description, self._tokenizer, max_position_embeddings)
            if description["sequence_length"] > phase.sequence_length:
                raise ValueError(
                    f"a phase has rows of {phase.sequence_length} tokens, and its files have instances of "
                    f"{description['sequence_length']}; give the phase that length, or make shorter instances"
                )

    def configuration(self):
        """dict fit for JSON: what determines the instances."""
        return {**describe_vocabulary(self._tokenizer), "instances": self._paths}

    def batches(self, phase, number, batch_size, worker_index=0, num_workers=1, epochs=None):
        """Batches of a phase's instances for one worker."""
        seed = None if epochs == 1 else self._seed
        return shard_batches(self._paths[number], batch_size, worker_index, num_workers, seed=seed, epochs=epochs)

    def most_predictions(self, phase, number):
        """int. The most masked tokens of an instance."""
        return self._descriptions[number]["max_predictions"]


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
    strategy = strategy or make_strategy("one_device")
    with watch_workers(cluster_of(strategy)):
        results = pretrain_on_worker(run_dir, strategy, **arguments)
        worker_barrier(strategy)()  # the end of one would look like a fault to those that are still there
    return results


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
        command: str or None, for the model card.
        **trainer_arguments: further arguments of `Trainer`.

    Returns:
        dict, what is in `results.json`.

    Raises:
        FileExistsError: if the folder belongs to another run.
        ValueError: if something does not fit; before any training where that can be known.
    """
    with strategy.scope():
        model = make_model(encoder_arguments, init_checkpoint, recipe)
    _check_phases(phases, model.encoder.max_position_embeddings, number_of_workers(strategy))
    for source in filter(None, (instances, evaluation)):
        source.check(phases, model.encoder.max_position_embeddings)
    rate = make_schedule(recipe, phases)
    with strategy.scope():
        optimizer = BertAdamW(rate, weight_decay=recipe.weight_decay, clip_norm=recipe.clip_norm)
    evaluate = None
    if evaluation is not None:
        evaluate = Evaluation(model, optimizer, evaluation, phases, recipe.objective, eval_instances)
    configuration = {
        **dataclasses.asdict(recipe),
        "encoder": encoder_arguments,
        "init_checkpoint": None if init_checkpoint is None else str(init_checkpoint),
        "phases": [dataclasses.asdict(phase) for phase in phases],
        "data": instances.configuration(),
        **{name: value for name, value in trainer_arguments.items() if name not in _MAY_CHANGE},
    }
    run = RunDirectory(run_dir, configuration, writer=is_chief(strategy))
    with stop_on_sigterm() as should_stop:
        trainer = Trainer(
            model,
            optimizer,
            run,
            rate.num_train_steps,
            strategy,
            evaluate=evaluate,
            evaluate_every=None if evaluate is None else evaluate_every,
            should_stop=should_stop,
            facts=_facts(model, instances, phases, rate, recipe),
            seed=recipe.seed,
            **trainer_arguments,
        )
        result = trainer.train(training_batches(instances, phases, recipe, *worker_of(strategy)))
    results = {
        "metrics": result.best_metrics,
        "updates": result.step,
        "seconds": result.seconds,
        "examples_per_second": result.examples_per_second,
        "configuration": configuration,
    }
    if is_chief(strategy):
        _write_results(run, model, tokenizer, results, command)
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
    arguments = {**encoder_arguments, "with_pooler": has_next_sentence}  # nothing else would train the pooler
    if recipe.objective != MASKED:
        arguments["attention_direction"] = recipe.objective
    if init_checkpoint is not None:
        return BertPretrainer.from_checkpoint(init_checkpoint, has_next_sentence, recipe.seed, **arguments)
    return BertPretrainer(BertEncoder(**arguments, seed=recipe.seed), has_next_sentence, recipe.seed)


def training_batches(instances, phases, recipe, worker_index=0, num_workers=1):
    """All batches of a worker, phase after phase.

    Args:
        instances, phases, recipe: as for `pretrain_on_worker`.
        worker_index, num_workers: int.

    Returns:
        tf.data.Dataset of pairs of dicts, inputs and labels; it has one element for every update, and its iterator can
        be checkpointed, in any phase.
    """
    whole = None
    for number, phase in enumerate(phases):
        rows = phase.batch_size // num_workers
        if recipe.pack:
            made = instances.batches(phase, number, _INSTANCES_AT_ONCE, worker_index, num_workers)
            batches = pack_rows(made, phase, instances.most_predictions(phase, number), recipe.seed)
            batches = batches.batch(rows, drop_remainder=True)
        else:
            batches = instances.batches(phase, number, rows, worker_index, num_workers)
        batches = batches.map(lambda batch: inputs_and_labels(batch, recipe.objective)).take(phase.updates)
        whole = batches if whole is None else whole.concatenate(batches)
    return whole.prefetch(2)


def pack_rows(made, phase, most_predictions, seed):
    """Rows of several instances.

    Args:
        made: tf.data.Dataset of batches of instances.
        phase: `Phase`.
        most_predictions: int, of an instance of the phase's length.
        seed: int or None. Of their order.

    Returns:
        tf.data.Dataset of single rows.
    """
    room = math.ceil(_ROOM_FOR_PREDICTIONS * most_predictions)
    return packed(made, phase.sequence_length, room, seed=seed)


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
            _held_out_batches(instances, phase, number, objective, most_instances)
            for number, phase in enumerate(phases)
        ]
        self._sums = tf.function(
            lambda inputs, labels: model.metric_sums(labels, model(inputs, training=False)), reduce_retracing=True
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


def _held_out_batches(instances, phase, number, objective, most_instances):
    rows = min(phase.batch_size, most_instances)
    made = instances.batches(phase, number, rows, epochs=1).take(max(most_instances // rows, 1))
    batches = [inputs_and_labels(batch, objective) for batch in made]
    if not batches:
        raise ValueError(
            f"what is there to evaluate on gives fewer than {rows} instances of {phase.sequence_length} tokens, a "
            "batch; give more of it, or a smaller --eval_instances"
        )
    return batches


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
    facts = {
        "data": instances.description,
        "learning rate": f"{rate.peak_learning_rate:g}, warm-up {rate.num_warmup_steps} updates, decay {rate.decay!r}",
        "precision": model.dtype_policy.name,
        "trainable parameters": f"{trainable:,}",
    }
    for number, phase in enumerate(phases):
        rows = f"{phase.batch_size} rows of {phase.sequence_length} tokens"
        facts[f"phase {number + 1}"] = f"{phase.updates:,} updates of {rows}{', packed' if recipe.pack else ''}"
    return facts


def _write_results(run, model, tokenizer, results, command):
    folder = run.path / MODEL_FOLDER
    if model.encoder.attention_direction != BIDIRECTIONAL:
        folder = run.path / KERAS_MODEL  # a checkpoint cannot say in which direction its attention goes
        model.save(folder)
    elif not folder.exists():
        model.save_checkpoint(folder, tokenizer)
    (run.path / "model_card.md").write_text(model_card(model, results, command), encoding="utf-8")
    training_curve_figure(run.path / "training_curve.png", run.read_log())
    write_json(run.path / RESULTS_NAME, results)
    logging.info("wrote %s", folder)
