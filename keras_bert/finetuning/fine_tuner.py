"""Fine-tuning, whatever the task: trials, the best of them evaluated, used for predictions, and exported."""

import functools
import json
import math
from pathlib import Path

from absl import logging

from keras_bert.data.batching import BatchPlan
from keras_bert.finetuning.interruption import stop_on_sigterm
from keras_bert.finetuning.run_models import MODEL_FOLDER, RESULTS_NAME, best_model, find_model, resolve_checkpoints
from keras_bert.finetuning.sweep import best_trial, run_trials, summarize_trials
from keras_bert.finetuning.training_input import (
    check_training_input,
    describe_training_input,
    errors_of_service,
    training_input,
)
from keras_bert.finetuning.workers import MAY_CHANGE, run_on_worker
from keras_bert.io.atomic_write import write_json
from keras_bert.models.paper_encoders.encoder_loading import get_encoder_kind
from keras_bert.models.reinitialize import reinitialize_top_blocks
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.strategy import broadcast_from_chief, is_chief
from keras_bert.training.trainer import Trainer
from keras_bert.training.trainer_settings import TrainerSettings

# What of a run's configuration is asked for again when its model is only used: by the command line, or the run itself.
_OF_THE_MODEL = ("max_seq_length", "precision")
# Below so many examples Adam's bias correction steadies fine-tuning (arXiv 2006.05987, section 4.1: sets of up to 10k).
_SMALL_SET = 10_000


def fine_tune(task, modes, run_dir, init_checkpoint, strategy=None, **arguments):
    """Does what the modes ask for, in the folder of a run; all workers of the strategy call it.

    Args:
        task, modes, run_dir, init_checkpoint, **arguments: as for `fine_tune_on_worker`.
        strategy: tf.distribute.Strategy; None is one device.

    Returns:
        dict: after training what is in `results.json`; `evaluation`, if the modes hold "eval".

    Raises:
        WorkerLostError: if another worker is lost; the message names it.
        FileExistsError, FileNotFoundError, ValueError: as `fine_tune_on_worker`.
    """

    def work(strategy):
        return fine_tune_on_worker(task, modes, run_dir, init_checkpoint, strategy, **arguments)

    return run_on_worker(work, strategy)


def fine_tune_on_worker(
    task,
    modes,
    run_dir,
    init_checkpoint,
    strategy,
    learning_rates,
    seeds,
    max_seq_length,
    freeze,
    dropout,
    precision,
    eval_batch_size,
    export_dtype,
    encoder=None,
    init_checkpoint_right_to_left=None,
    gradient_checkpointing=False,
    reinitialize_blocks=None,
    given=frozenset(),
    **training,
):
    """One worker's part of `fine_tune`.

    Args:
        task: what is learned, such as `keras_bert.finetuning.classification_task.Classification`.
        modes: collection of "train", "eval", "predict" and "export".
        run_dir: str or Path. A run that was interrupted goes on with the same arguments.
        init_checkpoint: str or Path, the weights to begin with: a checkpoint, another run's folder, or the name of a
            preset. Without training it is the model itself, unless the run has one.
        strategy: tf.distribute.Strategy that training runs on. Of several workers only the first writes, evaluates in
            the end, predicts and exports.
        learning_rates, seeds: lists; every rate is tried with every seed, and the best on dev is taken.
        max_seq_length: int. Most tokens in an input.
        freeze, dropout: as for `BertClassifier`.
        precision: str. The dtype policy.
        eval_batch_size: int.
        export_dtype: str or None.
        encoder: str or None, as for `paper_encoders.encoder_loading.read_encoder`. Without training it must be that of
            the model, if it is given.
        init_checkpoint_right_to_left: str, Path or None. As `init_checkpoint`, for the second of two directions.
        gradient_checkpointing: bool, as for `BertEncoder`.
        reinitialize_blocks: int or None, how many of the highest blocks begin anew, with the pooler.
        given: names of the arguments that the user gave; without training the others are those of the run.
        **training: further arguments of `train`.

    Returns:
        dict: after training what is in `results.json`; `evaluation`, if the modes hold "eval".

    Raises:
        FileExistsError: if the folder belongs to another run.
        FileNotFoundError: if there is no model to begin with, or to use.
        ValueError: if something does not fit; before any training where that can be known.
    """
    run_dir = Path(run_dir)
    task.check(modes)
    writes = is_chief(strategy)
    model_arguments = {"max_seq_length": max_seq_length, "precision": precision}
    results = {}
    if "train" in modes:
        beginning = {
            **resolve_checkpoints(init_checkpoint, init_checkpoint_right_to_left),
            **model_arguments,
            "encoder": encoder,
            "freeze": freeze,
            "dropout": dropout,
            "reinitialize_blocks": reinitialize_blocks,
        }
        make_model = functools.partial(begin_model, task, gradient_checkpointing=gradient_checkpointing, **beginning)
        results = train_trials(
            task, run_dir, make_model, beginning, strategy, learning_rates, seeds, eval_batch_size, **training
        )
        if writes:
            write_json(run_dir / RESULTS_NAME, results, overwrite=True)
    if {"eval", "predict", "export"} & set(modes) and writes:
        results |= use_trained(
            task, modes, run_dir, init_checkpoint, eval_batch_size, export_dtype, encoder, given, **model_arguments
        )
    return results


def begin_model(task, init_checkpoint, init_checkpoint_right_to_left, reinitialize_blocks, seed, **model_arguments):
    """A model as training begins with it.

    Args:
        task, reinitialize_blocks: as for `fine_tune_on_worker`.
        init_checkpoint, init_checkpoint_right_to_left: as `resolve_checkpoints` gives them.
        seed: int. Of dropout and of the weights that begin anew.
        **model_arguments: further arguments of `task.make_model`.

    Returns:
        The task's model.

    Raises:
        ValueError: if it has not that many blocks.
    """
    model_arguments |= {"seed": seed, "right_to_left": init_checkpoint_right_to_left}
    model = task.make_model(init_checkpoint, **model_arguments)
    if reinitialize_blocks is not None:
        reinitialize_top_blocks(model.encoder, reinitialize_blocks, seed)
    return model


def train_trials(
    task, run_dir, make_model, configuration, strategy, learning_rates, seeds, eval_batch_size, **training
):
    """Trains with every rate and seed, after checking that all of it fits.

    Args:
        task, run_dir, strategy, learning_rates, seeds, eval_batch_size: as for `fine_tune_on_worker`.
        make_model: function of a seed that gives the model to begin with, as `begin_model`.
        configuration: dict, what determines that model.
        **training: further arguments of `train`.

    Returns:
        dict, as `summarize` gives.
    """
    configuration = {
        # A first model and all data, so that what does not fit is known before the folder belongs to this run.
        **check_training(task, make_model(seed=seeds[0]), learning_rates, strategy, **training),
        **configuration,
        **{name: value for name, value in training.items() if name not in MAY_CHANGE},
        # Whether the input is a service's matters to the result, and not where that runs.
        "data_service": None if training.get("data_service") is None else True,
    }

    def train_trial(run, learning_rate, seed):
        with strategy.scope():
            model = make_model(seed=seed)
        return train(task, model, run, learning_rate, seed, eval_batch_size, strategy, **training)

    def broadcast(value):
        return broadcast_from_chief(strategy, [value])[0]

    trials = run_trials(run_dir, configuration, learning_rates, seeds, train_trial, is_chief(strategy), broadcast)
    return summarize(task, configuration, trials)


def use_trained(
    task, modes, run_dir, init_checkpoint, eval_batch_size, export_dtype, encoder, given, **model_arguments
):
    """Evaluates, predicts and exports with the model of a run, or a checkpoint; arguments as for `fine_tune`.

    Returns:
        dict, as `use_model` gives.

    Raises:
        ValueError: if the model has another encoder than the one asked for.
    """
    if "train" in modes:
        folder = best_model(run_dir)
    else:
        folder, saved = find_model(task, run_dir, init_checkpoint)
        model_arguments |= {name: saved[name] for name in _OF_THE_MODEL if name in saved and name not in given}
    model = task.make_model(folder, trained=True, **model_arguments)
    if encoder not in (None, get_encoder_kind(model.encoder)):
        raise ValueError(
            f"{folder} has the encoder {get_encoder_kind(model.encoder)!r}, and {encoder!r} is another: a model "
            "is used with the encoder that it was trained with. Leave the flag out"
        )
    return use_model(task, model, folder, modes, run_dir, eval_batch_size, export_dtype)


def summarize(task, configuration, trials):
    """What a run came to: dict fit for JSON, with the best trial, all trials, and their spread by learning rate."""
    return {
        "task": task.name,
        "score": task.score,
        "best": best_trial(trials),
        "by_learning_rate": summarize_trials(trials),
        "trials": trials,
        "configuration": configuration,
    }


def check_training(
    task, model, learning_rates, strategy, batch_size, token_budget, static_shapes, data_service=None, **training
):
    """Refuses data, rates and sizes that training would stumble over later.

    Args:
        task, model: the task and a model of it.
        learning_rates: list of float.
        strategy, batch_size, token_budget, static_shapes, data_service, **training: as for `train`.

    Returns:
        dict, the task's part of the run's configuration.

    Raises:
        ConnectionError: if the tf.data service does not answer.
        ValueError: if something does not fit.
    """
    check_training_input(strategy, data_service, batch_size, token_budget, static_shapes)
    configuration = task.configuration(model)
    for rate in learning_rates:
        make_plan(task.training_examples(model), rate, 0, batch_size=batch_size, token_budget=token_budget, **training)
    return configuration


def make_plan(
    examples, learning_rate, seed, epochs, batch_size, token_budget, bucket_step, schedule, warmup_proportion, **_
):
    """The batches of a training, and the learning rate over its updates.

    Differs from BERT: the original makes `int(examples / batch_size * epochs)` updates on full batches; here the last
    batch of an epoch may be smaller, and an epoch has every example.

    Args:
        examples: `TokenizedExamples`.
        learning_rate: float. The peak.
        seed: int. Of the order of the data.
        epochs: float.
        batch_size, token_budget, bucket_step: as for `BatchPlan`.
        schedule: str. The decay of `WarmupSchedule`.
        warmup_proportion: float.

    Returns:
        A pair: `BatchPlan` and `WarmupSchedule`.
    """
    plan = BatchPlan(examples.lengths, batch_size, token_budget, bucket_step, seed)
    steps = max(int(plan.batches_per_epoch * epochs), 1)
    return plan, WarmupSchedule(learning_rate, steps, warmup_proportion=warmup_proportion, decay=schedule)


def train(
    task,
    model,
    run,
    learning_rate,
    seed,
    eval_batch_size,
    strategy,
    weight_decay,
    clip_norm,
    bias_correction,
    layer_decay,
    patience,
    evaluate_every,
    gradient_accumulation_steps,
    jit_compile,
    checkpoint_every,
    log_every,
    steps_per_execution,
    progress,
    data_service=None,
    **plan_arguments,
):
    """Trains a model once, and writes its best weights to the folder of the run.

    Args:
        task, model: the task and its model, made in the strategy's scope.
        run: a `RunDirectory`.
        learning_rate: float. The peak.
        seed: int. Of the order of the data and of dropout.
        eval_batch_size: int.
        strategy: tf.distribute.Strategy.
        weight_decay, clip_norm, layer_decay: as for `BertAdamW` and `BertEncoder.learning_rate_factors`.
        bias_correction: bool, as for `BertAdamW`; None is on sets of fewer than 10,000 examples.
        evaluate_every: int or None, updates; None is once an epoch.
        patience, gradient_accumulation_steps, jit_compile, checkpoint_every, log_every, steps_per_execution, progress:
        as for `TrainerSettings`.
        data_service: str or None. grpc://host:port of a tf.data service that makes the batches; its place in the data
            cannot be saved.
        **plan_arguments: further ones of `make_plan`, and `static_shapes`, as for `training_input`.

    Returns:
        dict: `score` (on dev), `metrics`, `best_step`, `steps`, `seconds`, `examples_per_second`.
    """
    examples = task.training_examples(model)
    plan, rate = make_plan(examples, learning_rate, seed, **plan_arguments)
    with strategy.scope():
        optimizer = make_optimizer(model, rate, examples, weight_decay, clip_norm, bias_correction, layer_decay)
    with stop_on_sigterm() as should_stop:
        trainer = Trainer(
            model,
            optimizer,
            run,
            TrainerSettings(
                rate.num_train_steps,
                gradient_accumulation_steps=gradient_accumulation_steps,
                steps_per_execution=steps_per_execution,
                jit_compile=jit_compile,
                seed=seed,
                log_every=log_every,
                evaluate_every=evaluate_every or plan.batches_per_epoch,
                score=task.score,
                patience=patience,
                checkpoint_every=checkpoint_every,
                saves_data_position=data_service is None,
                mean_loss_weights=mean_loss_weights(task, examples, plan),
                progress=progress,
            ),
            strategy,
            evaluate=lambda: task.evaluate(model, eval_batch_size),
            should_stop=should_stop,
            run_info={
                **describe_start(model, run.configuration),
                **describe_plan(
                    model, examples, plan, rate, optimizer, strategy, gradient_accumulation_steps, **plan_arguments
                ),
                **describe_training_input(data_service, **plan_arguments),
            },
        )
        resumed_at = trainer.checkpoints.newest()
        batches = training_input(
            examples, plan, strategy, resumed_at, data_service, gradient_accumulation_steps, **plan_arguments
        )
        with errors_of_service(data_service):
            result = trainer.train(batches)
    if is_chief(strategy):
        write_trained(task, model, run)
    return trial_record(result, task.score)


def mean_loss_weights(task, examples, plan):
    """What the loss of a batch is divided by, as for `TrainStep`.

    Batches of like length differ in how many tokens they have, and with a budget of tokens in how many examples: what
    is learned has the same say in each. Of batches as they come, which hardly differ, each has its own mean (BERT).

    Args:
        task: the task.
        examples: `TokenizedExamples` to train on.
        plan: their `BatchPlan`.

    Returns:
        dict of loss term to float, or None without length buckets.
    """
    if plan.bucket_step is None:
        return None
    return {"loss": task.loss_weight(examples) / plan.batches_per_epoch}


def trial_record(result, score):
    """A `TrainingResult` as a dict fit for JSON, with the number called `score` by itself."""
    return {
        "score": result.best_metrics[score],
        "metrics": result.best_metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "seconds": result.seconds,
        "examples_per_second": result.examples_per_second,
    }


def write_trained(task, model, run):
    """Writes the weights of a trained model and its training curve to the folder of its run."""
    if not (run.path / MODEL_FOLDER).exists():
        model.save_checkpoint(run.path / MODEL_FOLDER)
    task.draw_training_curve(run.path, run.read_log())


def make_optimizer(model, rate, examples, weight_decay, clip_norm, bias_correction, layer_decay):
    """The optimizer of a training; to be called in the strategy's scope, arguments as for `train`.

    Returns:
        `BertAdamW` at the schedule `rate`. Where `bias_correction` is None it has that on a small set of examples.
    """
    return BertAdamW(
        rate,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        bias_correction=len(examples) < _SMALL_SET if bias_correction is None else bias_correction,
        learning_rate_factors=model.encoder.learning_rate_factors(layer_decay) if layer_decay != 1 else (),
    )


def describe_start(model, configuration):
    """Which weights a run begins with, and which of them are random, as run_info for the log: dict of str to str."""
    new, reinitialized = list(model.checkpoint_report.random), configuration["reinitialize_blocks"]
    if reinitialized is not None:
        new.append(f"the pooler and the {reinitialized} highest blocks")
    starts = [configuration["init_checkpoint"], configuration["init_checkpoint_right_to_left"]]
    return {
        "encoder": get_encoder_kind(model.encoder),
        "init_checkpoint": f"weights only, from {' and '.join(filter(None, starts))}",
        "new weights": f"{', '.join(new)}; by the run's seed" if new else "none",
    }


def describe_plan(
    model, examples, plan, rate, optimizer, strategy, gradient_accumulation_steps, batch_size, token_budget, **_
):
    """What is about to be trained, as run_info for the log: dict of str to str."""
    trainable = sum(int(variable.shape.num_elements()) for variable in model.trainable_variables)
    replicas = strategy.num_replicas_in_sync

    def size(parts):
        sizes = ((batch_size, "examples"), (token_budget, "tokens"))
        bound = "at most" if parts == 1 else "about"  # a batch is cut by its rows
        return f"{bound} " + " and ".join(f"{math.ceil(number / parts)} {unit}" for number, unit in sizes if number)

    return {
        "examples": f"{len(examples)} of {examples.lengths.mean():.1f} tokens",
        "updates": f"{rate.num_train_steps}, {plan.batches_per_epoch} an epoch",
        "batch": size(1),
        "batch of a replica": size(replicas),
        "micro-batch": f"{size(replicas * gradient_accumulation_steps)} ({gradient_accumulation_steps} per replica)",
        "learning rate": f"{rate.peak_learning_rate:g}, warm-up {rate.num_warmup_steps} updates, decay {rate.decay!r}",
        "bias correction": f"{optimizer.bias_correction} (by itself on sets of fewer than {_SMALL_SET:,} examples)",
        "precision": model.dtype_policy.name,
        "trainable parameters": f"{trainable:,}",
        "order of the data": f"by seed {plan.seed} and epoch",
    }


def use_model(task, model, folder, modes, run_dir, eval_batch_size, export_dtype):
    """Evaluates a trained model, writes its predictions, and exports it, as the modes ask.

    Returns:
        dict: `evaluation`, the metrics, if the modes hold "eval".
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    results = {}
    if "eval" in modes:
        results["evaluation"], report = task.report(model, run_dir, eval_batch_size)
        for name, value in results["evaluation"].items():
            logging.info("%-32s%.4f", name, value)
        write_json(run_dir / "evaluation.json", report, overwrite=True)
    if "predict" in modes:
        for file in task.write_predictions(model, run_dir / "predictions", eval_batch_size):
            logging.info("wrote %s", file)
    if "export" in modes:
        export_model(task, model, folder, run_dir / "saved_model", export_dtype)
    return results


def export_model(task, model, folder, exports, dtype):
    """Exports a model as the next version, unless the newest one is of the same model with the same settings.

    Args:
        task, model: the task and its model.
        folder: Path that the model was read from.
        exports: Path. The folder of the versions.
        dtype: str or None.

    Returns:
        Path of the version.
    """
    exports.mkdir(parents=True, exist_ok=True)
    versions = sorted(int(path.name) for path in exports.iterdir() if path.name.isdigit())
    exported = {
        "model": str(folder),
        "modified": (folder / "config.json").stat().st_mtime,
        "dtype": dtype or model.dtype_policy.name,
        "sequence_length": model.preprocessor.sequence_length,
        **task.export_settings(),
    }
    record = exports.parent / "exported.json"
    if versions and record.is_file() and json.loads(record.read_text(encoding="utf-8")) == exported:
        logging.info("%s holds this model already", exports / str(versions[-1]))
        return exports / str(versions[-1])
    path = task.export(model, exports / str(max(versions, default=0) + 1), dtype)
    write_json(record, exported, overwrite=True)
    logging.info("exported %s", path)
    return path
