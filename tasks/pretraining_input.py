"""What pre-training learns from: instances from text or from files, in phases of one length each."""

import dataclasses
import math
from dataclasses import dataclass

from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.objectives import inputs_and_labels
from keras_bert.pretraining.on_the_fly import text_batches
from keras_bert.pretraining.record_reader import check_shards, describe_shards, shard_batches
from keras_bert.pretraining.row_packing import pack_dataset, predictions_per_row
from keras_bert.pretraining.shard_files import describe_vocabulary
from keras_bert.pretraining.shards import plan_shards
from keras_bert.text.masking import predictions_per_sequence

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
        self._settings = {"masking_rate": InstanceSettings.masking_rate, **settings}
        size = sum(shard.size for shard in self._plan)
        self.description = f"{len(files)} files of text, {size:,} bytes, made while training"

    def check(self, phases, max_position_embeddings, fills_rows):
        """Raises ValueError if a phase's instances cannot be made, or the vocabulary lacks what they need."""
        for phase in phases:
            InstanceMaker(self._tokenizer, self._settings_of(phase))

    def configuration(self):
        """dict fit for JSON: what determines the instances."""
        text = [shard.ranges for shard in self._plan]
        return {**describe_vocabulary(self._tokenizer), **self._settings, "text": text}

    def batches(self, phase, number, batch_size, worker_index=0, num_workers=1, epochs=None):
        """Batches of a phase's instances for one worker; `number`, that of the phase, is not looked at."""
        return text_batches(
            self._plan, self._tokenizer, self._settings_of(phase), batch_size, worker_index, num_workers, epochs=epochs
        )

    def most_predictions(self, phase, number):
        """int. The most masked tokens of a phase's row that is full of instances."""
        return self._settings_of(phase).max_predictions

    def _settings_of(self, phase):
        predictions = predictions_per_sequence(phase.sequence_length, self._settings["masking_rate"])
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

    def check(self, phases, max_position_embeddings, fills_rows):
        """Raises ValueError if the files are not for this model, or not of the phases' lengths.

        Args:
            phases: list of `Phase`.
            max_position_embeddings: int, of the model.
            fills_rows: bool. Whether an instance is a row; if not, it may be shorter.
        """
        if len(phases) != len(self._paths):
            raise ValueError(f"there are {len(phases)} phases and files for {len(self._paths)}: each phase has its own")
        for phase, description in zip(phases, self._descriptions, strict=True):
            check_shards(description, self._tokenizer, max_position_embeddings)
            length = description["sequence_length"]
            if length > phase.sequence_length or (fills_rows and length < phase.sequence_length):
                raise ValueError(
                    f"a phase has rows of {phase.sequence_length} tokens, and its files have instances of {length}; "
                    "give the phase that length, or files of instances that are made for it (with --pack they may be "
                    "shorter)"
                )

    def configuration(self):
        """dict fit for JSON: what determines the instances."""
        return {**describe_vocabulary(self._tokenizer), "instances": self._paths}

    def batches(self, phase, number, batch_size, worker_index=0, num_workers=1, epochs=None):
        """Batches of a phase's instances for one worker."""
        seed = None if epochs == 1 else self._seed
        return shard_batches(self._paths[number], batch_size, worker_index, num_workers, seed=seed, epochs=epochs)

    def most_predictions(self, phase, number):
        """int. The most masked tokens of a phase's row that is full of instances."""
        description = self._descriptions[number]
        return description["max_predictions"] * math.ceil(phase.sequence_length / description["sequence_length"])


def training_batches(instances, phases, objective, pack, seed, worker_index=0, num_workers=1):
    """All batches of a worker, phase after phase.

    Args:
        instances: `TextInstances` or `StoredInstances`.
        phases: list of `Phase`.
        objective: str, one of `OBJECTIVES`.
        pack: bool. Whether several instances share a row.
        seed: int. Of the order of packed rows.
        worker_index, num_workers: int.

    Returns:
        tf.data.Dataset of pairs of dicts, inputs and labels; it has one element for every update, and its iterator can
        be checkpointed, in any phase.
    """
    whole = None
    for number, phase in enumerate(phases):
        rows = phase.batch_size // num_workers
        if pack:
            made = instances.batches(phase, number, _INSTANCES_AT_ONCE, worker_index, num_workers)
            most_predictions = predictions_per_row(instances.most_predictions(phase, number))
            full = pack_dataset(made, phase.sequence_length, most_predictions, seed=seed)
            batches = full.batch(rows, drop_remainder=True)
        else:
            batches = instances.batches(phase, number, rows, worker_index, num_workers)
        batches = batches.map(lambda batch: inputs_and_labels(batch, objective)).take(phase.updates)
        whole = batches if whole is None else whole.concatenate(batches)
    return whole.prefetch(2)


def held_out_batches(instances, phase, number, objective, most_instances):
    """Batches to evaluate on, in memory.

    Args:
        instances: `TextInstances` or `StoredInstances`.
        phase: `Phase`.
        number: int, that of the phase.
        objective: str.
        most_instances: int.

    Returns:
        list of pairs of dicts, inputs and labels.

    Raises:
        ValueError: if there are fewer instances than a batch.
    """
    rows = min(phase.batch_size, most_instances)
    made = instances.batches(phase, number, rows, epochs=1).take(max(most_instances // rows, 1))
    batches = [inputs_and_labels(batch, objective) for batch in made]
    if not batches:
        raise ValueError(
            f"what is there to evaluate on gives fewer than {rows} instances of {phase.sequence_length} tokens, a "
            "batch; give more of it, or a smaller --eval_instances"
        )
    return batches
