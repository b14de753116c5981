"""Shows what is in files of pre-training instances: what made them, some of them in words, and their rates and lengths.

    python -m tools.inspect_pretraining_data instances --vocab_file=vocab.txt --output=report.png

SHARDS are TFRecord files, patterns of them, or folders: those of tools.create_pretraining_data, beside which a file
says what made them, and those of google-research/bert and tensorflow/models, gzipped or not.

It prints what made them; the first instances, each masked place as [what stood there → what stands there]; and a table
of what was realised beside what was asked for. A masked token counts as kept if its label stands there: also one that
was drawn at random and happened to be the same. Repetitions are instances with the same ids as one before them; the
same text with other masks is counted by itself. --output draws histograms.

Few instances are in memory at a time. Of large files --sample many are read, spread over all files, the first ones of
each. In tools.create_pretraining_data's these are of the first copy, and each copy of a document draws anew whether its
instances are short: of few long documents the copies differ. --sample=0 reads all, and checks the files' ends, too.
"""

import json
import os
import random
import shutil
import sys

from absl import app, flags

from tools.figures import check_figure
from tools.instances.facts import describe_facts, merge_facts

_COLUMNS = 100  # where there is no terminal


class InstanceChoice:
    """Some instances of many: the first ones, or ones drawn at random.

    Args:
        number: int. How many.
        seed: int; None is the first ones.
    """

    def __init__(self, number, seed=None):
        self._number = number
        self._random = None if seed is None else random.Random(seed)
        self._seen = 0
        self._chosen = []

    def add(self, batch):
        """Offers the instances of an `InstanceBatch`."""
        for row in range(len(batch.instances["token_ids"])):
            place = self._place()
            self._seen += 1
            if place is not None:
                instance = {name: values[row : row + 1].copy() for name, values in batch.instances.items()}
                self._chosen[place : place + 1] = [(self._seen, batch.shard, batch.start + row, instance)]

    def _place(self):
        if len(self._chosen) < self._number:
            return len(self._chosen)
        if self._random is None:
            return None
        place = self._random.randrange(self._seen + 1)
        return place if place < self._number else None

    def chosen(self):
        """list of (`InstanceShard`, int place in the file, dict of arrays [1, ...]), in their order."""
        return [rest for _, *rest in sorted(self._chosen, key=lambda each: each[0])]


def as_json(rows, shards, reader):
    """The table and what made the instances, as JSON.

    Args:
        rows: dict of `Row`.
        shards: list of `InstanceShard`.
        reader: `InstanceReader` that has read.

    Returns:
        str.
    """
    made_by = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in merge_facts(shards).items()
    }
    return json.dumps(
        {
            "files": len(shards),
            "files_without_instances": reader.empty,
            "files_without_description": [shard.path for shard in shards if shard.facts is None],
            "made_by": made_by or None,
            **reader.form,
            "compression": sorted(reader.compressions),
            "all_instances_read": reader.is_complete,
            "table": {
                name: {
                    "realised": row.realised,
                    "asked_for": row.asked_for[0] if len(row.asked_for) == 1 else row.asked_for or None,
                }
                for name, row in rows.items()
            },
        },
        indent=1,
    )


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("string", "vocab_file", None, "The vocabulary that made the instances; without it ids are shown.")
    define("integer", "instances", 5, "How many instances to show.", lower_bound=0)
    define("integer", "seed", None, "Show instances drawn at random from those read; by default the first ones.")
    define("integer", "sample", 10000, "How many instances to count; 0 is all.", lower_bound=0)
    define("string", "output", None, "PNG file to draw histograms to.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    define("bool", "json", False, "Print JSON of the table and of what made the instances, and nothing else.")


def read_vocabulary(path, shards):
    """Reads a vocabulary, and refuses one that did not make the instances.

    Args:
        path: str.
        shards: list of `InstanceShard`.

    Returns:
        list of str.

    Raises:
        FileNotFoundError, ValueError: if it cannot be read, or is another one; the message has both hashes.
    """
    from keras_bert.pretraining.shard_files import describe_vocabulary
    from keras_bert.text.tokenizer import BertTokenizer
    from keras_bert.text.vocabulary import is_lower_case_vocabulary, load_vocabulary

    vocabulary = load_vocabulary(path)
    tokenizer = BertTokenizer(vocabulary, is_lower_case_vocabulary(vocabulary))
    given = describe_vocabulary(tokenizer)["vocabulary_sha256"]
    for shard in shards:
        made_by = given if shard.facts is None else shard.facts.get("vocabulary_sha256", given)
        if made_by != given:
            raise ValueError(
                f"--vocab_file={path} is not the vocabulary that made {shard.path}: its SHA-256 is {given}, and that "
                f"of the instances {made_by}"
            )
    return vocabulary


def print_instances(chosen, vocabulary):
    """Prints instances in words, or in ids without a vocabulary."""
    from keras_bert.text.vocabulary import MASK_TOKEN
    from tools.instances.text import describe_instance

    mask_id = None if vocabulary is None else {token: number for number, token in enumerate(vocabulary)}.get(MASK_TOKEN)
    width = shutil.get_terminal_size((_COLUMNS, 0)).columns
    for shard, place, instance in chosen:
        print(f"\ninstance {place + 1:,} of {shard.path}")
        task = "nsp" if shard.settings is None else shard.settings.next_sentence
        print("\n".join(describe_instance(instance, 0, task, vocabulary, mask_id, width)))
    if chosen and vocabulary is None:
        print("\nThe numbers are ids: give --vocab_file for words, and for the shares of [MASK] and [UNK].")


def _remarks(rows, counts, reader, shards):
    remarks = []
    if not reader.is_complete:
        remarks.append(
            "The first instances of each file, whose order is random; of few documents others may be of other lengths. "
            "--sample=0 reads all"
        )
    if not counts.repeated_texts.is_exact:
        remarks.append("There are so many instances that repetitions are estimated from a part of them.")
    is_in_order = any((shard.facts or {}).get("next_sentence") == "sop" for shard in shards)
    if "label_1" in rows and not is_in_order:
        remarks.append("Where one sentence is left, or fills an instance alone, what follows it is always random.")
    return remarks


def run(names, values):
    """Checks the arguments, reads, prints, and draws."""
    if values.output is not None:
        check_figure(values.output, values.overwrite)

    from tqdm import tqdm

    from tools.instances.counts import InstanceCounts
    from tools.instances.figure import draw_instances
    from tools.instances.shards import InstanceReader, describe_files, find_shards
    from tools.instances.table import asked_replacements, describe_table, label_names, make_table

    shards = describe_files(find_shards(names))
    vocabulary = None if values.vocab_file is None else read_vocabulary(values.vocab_file, shards)
    if not values.json:
        print("\n".join(describe_facts(shards)), flush=True)
    reader = InstanceReader(shards, values.sample, None if vocabulary is None else len(vocabulary))
    choice = InstanceChoice(values.instances, values.seed)
    counts = None
    with tqdm(desc="reading", unit=" instances", disable=None, leave=False) as bar:
        for batch in reader:
            counts = counts or InstanceCounts(
                reader.form["sequence_length"], reader.form["max_predictions"], vocabulary
            )
            counts.add(batch.instances, batch.shard.settings)
            choice.add(batch)
            bar.update(len(batch.instances["token_ids"]))
    if counts is None:
        raise ValueError(f"none of {len(shards):,} files has an instance, such as {shards[0].path}")
    rows = make_table(counts, shards)
    if values.json:
        print(as_json(rows, shards, reader))
    else:
        if reader.empty:
            print(f"  {len(reader.empty):,} of the files have no instance, such as {reader.empty[0]}")
        print_instances(choice.chosen(), vocabulary)
        remarks = _remarks(rows, counts, reader, shards)
        print("\n" + "\n".join([*describe_table(rows, vocabulary is not None), *remarks]))
    if values.output is not None:
        title = f"{counts.instances:,} instances of {len(shards):,} files"
        draw_instances(values.output, counts, asked_replacements(shards), label_names(shards), title)
        print(f"drawn to {values.output}", file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    import tensorflow as tf

    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know all characters of a vocabulary
    try:
        run(argv[1:], flags.FLAGS)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads, such as head, has seen enough; and the interpreter must not write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, tf.errors.OpError) as error:
        sys.exit(f"tools.inspect_pretraining_data: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
