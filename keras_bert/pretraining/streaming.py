"""A corpus of any size to files of instances, shard by shard, in one or several processes.

A process holds one shard at a time: its text, its tokens, the choices for one copy, and some thousand instances. That
bounds its memory, whatever the corpus: beside the gigabyte that TensorFlow takes for itself, a process needs less than
32 MB and 16 times `shard_bytes` (sentences of a few bytes take more). A shard's files do not depend on which process
made them, or on the others: the same files come out of any number of processes, and an interrupted run makes the shards
that are missing.

Each copy of a shard is a file of its own, and the first copies of all shards come before the second ones: a model that
reads files in random order does not see a text again before it has seen others.
"""

import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process

import tensorflow as tf
from absl import logging

from keras_bert.io.remote_paths import look_up_each
from keras_bert.pretraining.documents import COUNTS_OF_TEXT
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import FEATURE_NAMES, serialize
from keras_bert.pretraining.shard_files import (
    COMPRESSIONS,
    describe_vocabulary,
    instance_files,
    instances_path,
    read_sidecars,
    record_file,
    remove_unfinished,
    write_sidecar,
)
from keras_bert.text.tokenizer import BertTokenizer

COPIES = 10  # `dupe_factor` of google-research/bert create_pretraining_data.py
_INSTANCES_AT_ONCE = 1024


@dataclass(frozen=True)
class ShardJob:
    """What a process needs to know to make any shard of an output; it can be pickled.

    Args:
        folder: str. Where the files go.
        shards: int. How many there are; each has so many files as copies.
        tokenizer: dict, `BertTokenizer.get_config()`.
        settings: `InstanceSettings`.
        copies: int. How often each document is used, each time with other cuts and masks.
        form: str, the names of the features: "bert" or "models".
        compression: str, "none" or "gzip".

    Raises:
        ValueError: if a number is out of range, or a name unknown.
    """

    folder: str
    shards: int
    tokenizer: dict
    settings: InstanceSettings
    copies: int = COPIES
    form: str = "bert"
    compression: str = "none"

    def __post_init__(self):
        if self.copies < 1:
            raise ValueError(f"copies must be at least 1, got {self.copies}")
        if self.form not in FEATURE_NAMES:
            raise ValueError(f"form must be one of {', '.join(FEATURE_NAMES)}, got {self.form!r}")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {self.compression!r}")

    def paths(self, shard):
        """list of str. The files of a shard's instances, one for each copy."""
        numbers = range(shard.number, self.shards * self.copies, self.shards)
        return [instances_path(self.folder, number, self.shards * self.copies) for number in numbers]

    def configuration(self):
        """dict fit for JSON: what all shards of the output have in common."""
        return {
            "mode": "streaming",
            "shards": self.shards,
            **describe_vocabulary(BertTokenizer.from_config(self.tokenizer)),
            **self.settings.to_dict(),
            "copies": self.copies,
            "form": self.form,
            "compression": self.compression,
        }


class ShardMaker:
    """Makes the files of a job; a process makes one of these, and then many shards.

    Args:
        job: `ShardJob`.

    Raises:
        ValueError: if the vocabulary has no [MASK].
    """

    def __init__(self, job):
        self._job = job
        tokenizer = BertTokenizer.from_config(job.tokenizer)
        self._unknown_id = tokenizer.unk_id
        self._maker = InstanceMaker(tokenizer, job.settings)
        self._configuration = job.configuration()

    def __call__(self, shard):
        """Writes a shard's instances, and beside each file what made it.

        Args:
            shard: `Shard`.

        Returns:
            dict of int: `instances`, of all copies, and what `TokenizedDocuments.counts` gives of the text.

        Raises:
            ValueError: if a file of the corpus is not UTF-8.
        """
        job, maker = self._job, self._maker
        documents = maker.read(shard)
        counts = documents.counts(self._unknown_id)
        token_ids = tf.constant(documents.token_ids)
        made = []
        for copy, path in enumerate(job.paths(shard)):
            rows = maker.choose(documents, shard.number, copy)
            with record_file(path, job.compression) as write:
                for start in range(0, len(rows), _INSTANCES_AT_ONCE):
                    instances = maker.make(token_ids, rows[start : start + _INSTANCES_AT_ONCE])
                    for record in serialize(instances, job.form):
                        write(record)
            place = {"shard": shard.number, "copy": copy, "text": shard.pieces}
            made.append({**self._configuration, **place, "instances": len(rows), **counts})
            write_sidecar(path, made[-1])
        return shard_counts(made)


def shard_counts(sidecars):
    """What is in a shard, all copies together.

    Args:
        sidecars: list of dict, what stands beside its files.

    Returns:
        dict, as `ShardMaker` gives it.

    Example:

    >>> counts = {"documents": 1, "one_sentence_documents": 0, "tokens": 99, "unknown_tokens": 2}
    >>> shard_counts([{"instances": 3, **counts}] * 2)["instances"]
    6
    """
    instances = sum(facts["instances"] for facts in sidecars)
    return {"instances": instances, **{name: sidecars[0][name] for name in COUNTS_OF_TEXT}}


def missing_shards(job, plan):
    """The shards of a plan that are not finished, after what an interrupted run left is removed.

    A shard is finished if its files and those beside them are there, and have not lost bytes since.

    Args:
        job: `ShardJob`.
        plan: list of `Shard`.

    Returns:
        A pair: list of `Shard`, and list of dict, the counts of the finished ones.

    Raises:
        FileExistsError: if the folder has shards of another configuration or corpus; the message names what differs.
        NotADirectoryError: if it is a file.

    Example:

    >>> settings = InstanceSettings(sequence_length=16, max_predictions=2)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], lower_case=True)
    >>> missing_shards(ShardJob(tempfile.mkdtemp(), 0, tokenizer.get_config(), settings), [])
    ([], [])
    """
    if tf.io.gfile.exists(job.folder) and not tf.io.gfile.isdir(job.folder):
        raise NotADirectoryError(f"{job.folder} is a file; give a folder for the files of instances")
    configuration = job.configuration()
    expected = {path: shard for shard in plan for path in job.paths(shard)}
    present = instance_files(job.folder)
    for path in present:
        if path not in expected:
            raise FileExistsError(
                f"{path} belongs to another run: this one has {job.shards} shards in {job.copies} copies. Give an "
                "empty folder, or the same corpus, size of shards and number of copies as before"
            )
    sidecars = read_sidecars(list(expected))
    for path, facts in sidecars.items():
        text = [list(piece) for piece in expected[path].pieces]
        _check_same(path, facts, {**configuration, "text": text})
    complete = _undamaged({path: sidecars[path] for path in present if path in sidecars})
    missing = [shard for shard in plan if not complete.issuperset(job.paths(shard))]
    finished = [shard for shard in plan if complete.issuperset(job.paths(shard))]
    remove_unfinished(job.folder)
    return missing, [shard_counts([sidecars[path] for path in job.paths(shard)]) for shard in finished]


def _undamaged(sidecars):
    """The files that have the size that is written beside them."""
    sizes = look_up_each(lambda path: tf.io.gfile.stat(path).length, sidecars)
    damaged = {
        path: size for (path, facts), size in zip(sidecars.items(), sizes, strict=True) if facts["bytes"] != size
    }
    for path, size in damaged.items():
        logging.warning("%s has %d bytes instead of %d, and is made again", path, size, sidecars[path]["bytes"])
    return set(sidecars) - set(damaged)


def _check_same(path, facts, expected):
    different = [
        f"{name} is {facts.get(name)!r} there and {value!r} here"
        for name, value in expected.items()
        if facts.get(name) != value
    ]
    if different:
        raise FileExistsError(
            f"{path} was made otherwise: {'; '.join(different)}. Give the arguments of then, or another folder"
        )


def make_shards(job, shards, num_workers=1):
    """Makes shards, in one or several processes.

    Args:
        job: `ShardJob`.
        shards: list of `Shard`.
        num_workers: int. Processes; with 1 it is this one.

    Yields:
        (`Shard`, dict): each shard that is finished, in the order in which they are, and its counts.

    Raises:
        RuntimeError: if a process died.
        ValueError: as `ShardMaker`.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    tf.io.gfile.makedirs(job.folder)
    make = ShardMaker(job)  # with several processes, too: an error here says more than one of theirs
    if num_workers == 1:
        for shard in shards:
            yield shard, make(shard)
        return
    pool = ProcessPoolExecutor(num_workers, _process_context(), _start_process, (job,))
    try:
        tasks = {pool.submit(_make_in_process, shard): shard for shard in shards}
        waiting = set(tasks)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for task in done:
                yield tasks[task], task.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process that makes shards was killed, perhaps for want of memory. Start again, with fewer processes "
            "or smaller shards: those that are finished are kept"
        ) from error
    finally:
        # After an error, too: nobody is to write into the folder any more when this ends.
        pool.shutdown(wait=True, cancel_futures=True)


def _process_context():
    # Processes are forked from one that has imported TensorFlow, and not run it: each begins at once.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


_make = None  # of this process; a shard's work does not pickle it anew


def _start_process(job):
    global _make
    # An interrupt is for the process that gives the work: this one finishes its shard.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # As many processes as cores: more threads in each would only get into each other's way.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _make = ShardMaker(job)


def _end_with_parent():
    # One that was killed cannot end its processes: they would go on writing, and then wait for ever.
    parent_process().join()
    os._exit(1)


def _make_in_process(shard):
    return _make(shard)
