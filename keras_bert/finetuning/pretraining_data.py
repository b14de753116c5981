"""Data of a pre-training run: instances from text or from files, in phases of one length each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import tensorflow as tf

from keras_bert.finetuning.pretraining_recipe import Phase, PretrainingRecipe
from keras_bert.io.remote_paths import matching_files
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceOptions, InstanceSettings
from keras_bert.pretraining.objectives import inputs_and_labels
from keras_bert.pretraining.on_the_fly import text_batches
from keras_bert.pretraining.record_reader import check_shards, describe_shards, shard_batches
from keras_bert.pretraining.row_packing import pack_dataset, predictions_per_row
from keras_bert.pretraining.shard_files import describe_vocabulary, instance_files
from keras_bert.pretraining.shards import MEGABYTE, plan_shards
from keras_bert.settings import REQUIRED, files_setting, setting
from keras_bert.text.masking import predictions_per_sequence
from keras_bert.text.tokenizer import BertTokenizer

_INSTANCES_AT_ONCE = 256  # per batch that packing reads
_OPTIONS = [field.name for field in fields(InstanceOptions)]


@dataclass(frozen=True, kw_only=True)
class PretrainingData(InstanceOptions):
    """Vocabulary and text or files of instances, and how text becomes instances.

    The settings of `InstanceOptions` are for text. The defaults are those of google-research/bert
    `create_pretraining_data.py`. A run's configuration records what the files hold instead of these settings.

    Raises:
        ValueError: if text and files of instances are both given, or neither.

    Example:

    >>> data = keras_bert.PretrainingData(vocab_file="vocab.txt", text_files=("corpus/*.txt",))
    >>> data.do_lower_case, data.masked_lm_prob
    (True, 0.15)
    """

    vocab_file: str = setting(REQUIRED, "The vocabulary, one wordpiece per line.", recorded=False)
    do_lower_case: bool = setting(True, "Whether the vocabulary is lower-cased.", recorded=False)
    text_files: tuple[str, ...] = setting(
        (), "Prepared text (tools.prepare_corpus), files or patterns, comma-separated.", recorded=False
    )
    instance_files: tuple[str, ...] = files_setting(
        "Files of instances (tools.create_pretraining_data), a pattern or folder; repeat the flag for each phase."
    )
    eval_text_files: tuple[str, ...] = setting((), "Held-out text to evaluate on, like text_files.", recorded=False)
    eval_instance_files: tuple[str, ...] = files_setting("Held-out instances to evaluate on, like instance_files.")
    evaluate_every: int | None = setting(
        None, "Training steps between evaluations; default: only at the end.", lower=1, recorded=False
    )
    eval_instances: int = setting(2048, "Maximum number of instances per evaluation.", lower=1, recorded=False)
    shard_megabytes: float = setting(
        8.0, "With text_files: size of the text of a shard, which is in memory.", lower=0.001, recorded=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for text, files in (("text_files", "instance_files"), ("eval_text_files", "eval_instance_files")):
            given = [name for name in (text, files) if getattr(self, name)]
            if len(given) > 1 or not (given or text.startswith("eval_")):
                raise ValueError(f"{text} or {files} must be given, one of the two")
        if reasons := self.without_effect():
            for name, reason in reasons.items():
                if not self.is_default(name):
                    raise ValueError(f"{name} has no effect {reason}")

    def without_effect(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        if not (self.text_files or self.eval_text_files):
            unused = (*_OPTIONS, "shard_megabytes")
            reasons = dict.fromkeys(unused, "without text_files: instances in files are as they were made")
        if not (self.eval_text_files or self.eval_instance_files):
            reason = "without eval_text_files or eval_instance_files"
            reasons |= {"evaluate_every": reason, "eval_instances": reason}
        return reasons

    def tokenizer(self) -> BertTokenizer:
        """Returns the tokenizer of the vocabulary."""
        return BertTokenizer(self.vocab_file, lower_case=self.do_lower_case)

    def instances(
        self, recipe: PretrainingRecipe, tokenizer: BertTokenizer, evaluation: bool = False
    ) -> TextInstances | StoredInstances | None:
        """Returns the instances to train or evaluate on; None if there are none to evaluate on.

        Raises:
            FileNotFoundError: if a pattern has no files.
        """
        text, files = self.text_files, self.instance_files
        if evaluation:
            text, files = self.eval_text_files, self.eval_instance_files
        if text:
            settings: dict[str, Any] = {"seed": recipe.seed, "next_sentence": recipe.next_sentence}
            settings |= {name: getattr(self, name) for name in _OPTIONS}
            shard_bytes = int(self.shard_megabytes * MEGABYTE)
            return TextInstances(matching_files(list(text)), tokenizer, shard_bytes, settings)
        return (
            StoredInstances([find_instances(pattern) for pattern in files], tokenizer, recipe.seed) if files else None
        )


def find_instances(pattern: str) -> list[str]:
    """Finds the files of instances of a pattern or in a folder, sorted; raises FileNotFoundError if there are none."""
    if not tf.io.gfile.isdir(pattern):
        return matching_files([pattern])
    found = instance_files(pattern)
    if not found:
        raise FileNotFoundError(f"there are no files of instances in the folder {pattern}")
    return found


class TextInstances:
    """Instances made from prepared text during training; `settings` are arguments of `InstanceSettings`."""

    def __init__(
        self, files: Sequence[str], tokenizer: BertTokenizer, shard_bytes: int, settings: dict[str, Any]
    ) -> None:
        self._plan = plan_shards(files, shard_bytes)
        self._tokenizer = tokenizer
        self._settings = {"masked_lm_prob": InstanceSettings.masked_lm_prob, **settings}
        size = sum(shard.size for shard in self._plan)
        self.description = f"{len(files)} files of text, {size:,} bytes, made during training"

    def check(self, phases: Sequence[Phase], max_position_embeddings: int, fills_rows: bool) -> None:
        """Raises ValueError if a phase's instances cannot be made, or the vocabulary lacks what they need."""
        for phase in phases:
            InstanceMaker(self._tokenizer, self._settings_for(phase))

    def configuration(self) -> dict[str, Any]:
        """Returns what determines the instances, as values for JSON."""
        text = [shard.ranges for shard in self._plan]
        return {**describe_vocabulary(self._tokenizer), **self._settings, "text": text}

    def batches(
        self, phase: Phase, number: int, batch_size: int, worker: tuple[int, int] = (0, 1), epochs: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches of a phase's instances for a worker, (index, number of workers); `number` is ignored."""
        return text_batches(self._plan, self._tokenizer, self._settings_for(phase), batch_size, *worker, epochs=epochs)

    def max_predictions(self, phase: Phase, number: int) -> int:
        """Returns the maximum number of masked tokens in a full row of a phase."""
        return self._settings_for(phase).max_predictions

    def _settings_for(self, phase: Phase) -> InstanceSettings:
        predictions = predictions_per_sequence(phase.sequence_length, self._settings["masked_lm_prob"])
        return InstanceSettings(sequence_length=phase.sequence_length, max_predictions=predictions, **self._settings)


class StoredInstances:
    """Instances from files of `tools.create_pretraining_data` or google-research/bert; `paths` are by phase."""

    def __init__(self, paths: Sequence[Sequence[str]], tokenizer: BertTokenizer, seed: int) -> None:
        self._paths = paths
        self._tokenizer = tokenizer
        self._seed = seed
        self._descriptions = [describe_shards(files) for files in paths]
        numbers = [description["instances"] for description in self._descriptions]
        self.description = ", then ".join(
            f"{len(files)} files of {'an unknown number of' if number is None else f'{number:,}'} instances"
            for files, number in zip(paths, numbers, strict=True)
        )

    def check(self, phases: Sequence[Phase], max_position_embeddings: int, fills_rows: bool) -> None:
        """Raises ValueError if the files do not fit the model or the phases; `fills_rows` forbids short instances."""
        if len(phases) != len(self._paths):
            raise ValueError(f"there are {len(phases)} phases and files for {len(self._paths)}: each phase has its own")
        for phase, description in zip(phases, self._descriptions, strict=True):
            check_shards(description, self._tokenizer, max_position_embeddings)
            length = description["sequence_length"]
            if length > phase.sequence_length or (fills_rows and length < phase.sequence_length):
                raise ValueError(
                    f"a phase has rows of {phase.sequence_length} tokens, and its files have instances of {length}; "
                    "give the phase that length, or files of instances that are made for it (with pack they may be "
                    "shorter)"
                )

    def configuration(self) -> dict[str, Any]:
        """Returns what determines the instances, as values for JSON."""
        return {**describe_vocabulary(self._tokenizer), "instances": self._paths}

    def batches(
        self, phase: Phase, number: int, batch_size: int, worker: tuple[int, int] = (0, 1), epochs: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches of a phase's instances for a worker, (index, number of workers); `number` is the phase's."""
        seed = None if epochs == 1 else self._seed
        return shard_batches(self._paths[number], batch_size, *worker, seed=seed, epochs=epochs)

    def max_predictions(self, phase: Phase, number: int) -> int:
        """Returns the maximum number of masked tokens in a full row of a phase."""
        description = self._descriptions[number]
        return description["max_predictions"] * math.ceil(phase.sequence_length / description["sequence_length"])


Instances = TextInstances | StoredInstances


def pretraining_batches(
    instances: Instances, recipe: PretrainingRecipe, worker: tuple[int, int] = (0, 1)
) -> tf.data.Dataset:
    """Returns a worker's batches `(inputs, labels)`, phase after phase, one per step; the iterator can be saved."""
    whole = None
    for number, phase in enumerate(recipe.phases):
        rows = phase.batch_size // worker[1]
        if recipe.pack:
            made = instances.batches(phase, number, _INSTANCES_AT_ONCE, worker)
            max_predictions = predictions_per_row(instances.max_predictions(phase, number))
            full = pack_dataset(made, phase.sequence_length, max_predictions, seed=recipe.seed)
            batches = full.batch(rows, drop_remainder=True)
        else:
            batches = instances.batches(phase, number, rows, worker)
        batches = batches.map(lambda batch: inputs_and_labels(batch, recipe.objective)).take(phase.steps)
        whole = batches if whole is None else whole.concatenate(batches)
    assert whole is not None
    return whole.prefetch(2)


def evaluation_batches(
    instances: Instances, phase: Phase, number: int, objective: str, max_instances: int
) -> list[tuple[Any, Any]]:
    """Returns batches to evaluate on, in memory; raises ValueError if there are fewer instances than a batch."""
    rows = min(phase.batch_size, max_instances)
    made = instances.batches(phase, number, rows, epochs=1).take(max(max_instances // rows, 1))
    batches = [inputs_and_labels(batch, objective) for batch in made]
    if not batches:
        raise ValueError(
            f"the text to evaluate on gives fewer than {rows} instances of {phase.sequence_length} tokens, a "
            "batch; give more of it, or a smaller eval_instances"
        )
    return batches
