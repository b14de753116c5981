r"""Makes pre-training instances (masked words and next sentences) from prepared text.

    python -m tools.create_pretraining_data --input_file='corpus/*.txt' --vocab_file=vocab.txt --output_dir=instances \
        --num_workers=2

Prepared text has one sentence per line and a blank line between documents (python -m tools.prepare_corpus writes it).
The corpus is divided into shards, each process makes one at a time, and memory does not grow with the corpus. Random
next sentences come from the documents of the shard. Re-run the same command to resume an interrupted run. The files are
the same for any number of processes.

To check the data, --show prints random instances with their masks, and averages. Without --input_file it only shows
existing files, also those of google-research/bert (--output_file):

    python -m tools.create_pretraining_data --vocab_file=vocab.txt --output_dir=instances --show=3

With --runner=direct, flink, spark or dataflow Apache Beam makes the same files, here or on a cluster. Arguments after
-- are its pipeline options:

    python -m tools.create_pretraining_data ... --runner=flink -- --flink_master=HOST:8081 --parallelism=64

With --exact it makes what google-research/bert's create_pretraining_data.py makes from the same flags, in the same
order, to the last random number. Everything is then held in memory and processed on one core. Differs from BERT: the
files of a pattern are read in alphabetical order; the original reads them in the order in which the file system lists
them, which changes the instances. To compare the two, list the files in --input_file in the same order for both.
"""

import random
import signal
import sys
import time
from multiprocessing import forkserver

from absl import app, flags

from tools.program import define_settings, flag_definer, read_settings

_MAX_UNKNOWN_RATE = 0.05  # fraction of the tokens; more suggests the vocabulary of another text
_STREAMING_FLAGS = (
    "shard_megabytes",
    "num_workers",
    "runner",
    "next_sentence",
    "fill_to_length",
    "mask_token_rate",
    "random_token_rate",
    "compression",
)
# By setting: the flag of the original, where that has another name.
_FLAG_NAMES = {
    "sequence_length": "max_seq_length",
    "max_predictions": "max_predictions_per_seq",
    "seed": "random_seed",
}


def define_flags(values=flags.FLAGS):
    """Defines the flags, with the names and defaults of the original where it has them; not on import."""
    from keras_bert.pretraining.instance_settings import InstanceSettings

    define = flag_definer(values)
    define_settings(define, InstanceSettings, **_FLAG_NAMES)
    define("list", "input_file", None, "Files of prepared text, or patterns, separated by commas.")
    define("string", "vocab_file", None, "Vocabulary, one wordpiece per line.", required=True)
    define("string", "output_dir", None, "Folder for the files of instances.")
    define("list", "output_file", None, "With --exact or --show: files of instances, separated by commas.")
    define("bool", "exact", False, "Make the instances of the original in its order.")
    define("integer", "show", None, "Number of random instances to print, with averages.", lower_bound=0)
    define("bool", "do_lower_case", True, "Whether the vocabulary is lowercase.")
    define("integer", "dupe_factor", 10, "Number of copies of each document, with different masks.", lower_bound=1)
    define("bool", "use_v2_feature_names", False, "Write input_word_ids and input_type_ids, as tensorflow/models does.")
    define("integer", "num_workers", 1, "Number of processes on this machine.", lower_bound=1)
    define(
        "enum", "runner", None, ["direct", "flink", "spark", "dataflow"], "Apache Beam runner that makes the shards."
    )
    define("float", "shard_megabytes", 8, "Text per shard, which a process holds in memory.", lower_bound=0.001)
    define("enum", "compression", "none", ["none", "gzip"], "Compression of the files of instances.")
    define("bool", "progress", True, "Show a progress bar on a terminal.")
    names = ["input_file", "show", "exact", "output_file", "output_dir"]
    flags.register_multi_flags_validator(names, _check_outputs, flag_values=values)


def _check_outputs(values):
    if not values["input_file"] and (values["show"] is None or values["exact"]):
        raise flags.ValidationError("give --input_file=FILE[,FILE...], or --show=N to print existing instances")
    if not values["input_file"] and bool(values["output_file"]) == bool(values["output_dir"]):
        raise flags.ValidationError("--show needs either --output_dir=FOLDER or --output_file=FILE[,FILE...]")
    if values["input_file"]:
        needed, other = ("output_file", "output_dir") if values["exact"] else ("output_dir", "output_file")
        if not values[needed] or values[other]:
            raise flags.ValidationError(
                "--exact writes to --output_file=FILE[,FILE...]" if values["exact"] else "give --output_dir=FOLDER"
            )
    return True


def create_streaming(values, settings, tokenizer, files, beam_options):
    """Makes all missing shards. Returns the counts of the shards that existed, and of those that were made."""
    from tqdm import tqdm

    from keras_bert.pretraining.shards import MEGABYTE, plan_shards
    from keras_bert.pretraining.streaming import ShardJob, find_missing_shards, make_shards

    plan = plan_shards(files, int(values.shard_megabytes * MEGABYTE))
    job = ShardJob(
        folder=values.output_dir,
        num_shards=len(plan),
        tokenizer=tokenizer.get_config(),
        settings=settings,
        num_copies=values.dupe_factor,
        record_format=_record_format(values),
        compression=values.compression,
    )
    missing, finished = find_missing_shards(job, plan)
    if not missing:
        return finished, []
    if values.runner:
        from keras_bert.pretraining.beam import make_shards_with_beam

        return finished, make_shards_with_beam(job, missing, values.runner, values.num_workers, beam_options)
    made = []
    size = sum(shard.size for shard in missing)
    with tqdm(total=size, unit="B", unit_scale=True, disable=None if values.progress else True) as bar:
        for shard, counts in make_shards(job, missing, min(values.num_workers, len(missing))):
            made.append(counts)
            bar.update(shard.size)
    return finished, made


def create_exact(values, settings, tokenizer, files):
    """Makes the instances of the original. Returns counts like `create_streaming`, those of all files together."""
    from keras_bert.pretraining.exact_instances import (
        check_outputs,
        make_exact_instances,
        read_exact_documents,
        write_exact_instances,
    )
    from keras_bert.pretraining.shard_files import describe_vocabulary

    check_outputs(values.output_file)
    documents = read_exact_documents(files, tokenizer)
    rng = random.Random(settings.seed)
    instances = make_exact_instances(documents, tokenizer.vocabulary, rng, settings, values.dupe_factor)
    metadata = {
        **describe_vocabulary(tokenizer),
        **settings.to_dict(),
        "compression": "none",
        "num_copies": values.dupe_factor,
        "text": files,
    }
    write_exact_instances(values.output_file, instances, settings, _record_format(values), metadata)
    return [], [{"instances": len(instances), **documents.counts(tokenizer.unk_id)}]


def _record_format(values):
    return "models" if values.use_v2_feature_names else "bert"


def describe(finished, made, seconds, next_sentence="nsp"):
    """Returns a report on the counts of the shards that existed and of those that were made, with hints."""
    shards = [*finished, *made]
    total = {name: sum(counts[name] for counts in shards) for name in shards[0]}
    num_made = sum(counts["instances"] for counts in made)
    lines = [f"{total['instances']:,} instances of {total['documents']:,} documents with {total['tokens']:,} tokens"]
    if made:
        lines.append(f"made {num_made:,} of them in {seconds:.0f} s, {num_made / seconds:,.0f} per second")
    if finished:
        lines.append(f"{len(finished)} of {len(shards)} shards already existed")
    if total["one_sentence_documents"]:
        lines.append(f"{total['one_sentence_documents']:,} documents have only one sentence, without a next one")
    if total["one_sentence_documents"] > total["documents"] / 2:
        lines.append(
            "Is this prepared text, with one sentence per line and a blank line between documents? "
            "python -m tools.prepare_corpus writes it"
        )
    if total["unknown_tokens"] > _MAX_UNKNOWN_RATE * total["tokens"]:
        rate = total["unknown_tokens"] / total["tokens"]
        lines.append(f"{rate:.1%} of the tokens are [UNK]: is this the vocabulary of the text?")
    num_single = sum(counts["documents"] == 1 for counts in shards)
    if num_single and next_sentence == "nsp":
        lines.append(
            f"{num_single} of {len(shards)} shards have one document, whose random next sentences are its own. Use "
            "larger shards (--shard_megabytes) or more text"
        )
    return "\n".join(lines)


def run(values, beam_options=()):
    """Makes the instances and prints a report, and shows some of them."""
    from keras_bert.io.remote_paths import matching_files
    from keras_bert.pretraining.instance_settings import InstanceSettings
    from keras_bert.pretraining.shard_files import instance_files
    from keras_bert.text.tokenizer import BertTokenizer

    started = time.monotonic()
    settings = read_settings(values, InstanceSettings, **_FLAG_NAMES)
    files = matching_files(values.input_file or [])
    tokenizer = BertTokenizer(values.vocab_file, lower_case=values.do_lower_case)
    if tokenizer.mask_id is None:
        raise ValueError(f"the vocabulary {values.vocab_file} has no [MASK], which masked words need; add it")
    if files:
        if values.exact:
            finished, made = create_exact(values, settings, tokenizer, files)
        else:
            finished, made = create_streaming(values, settings, tokenizer, files, beam_options)
        if not any(counts["instances"] for counts in (*finished, *made)):
            raise ValueError("no instances were made: no document has enough sentences and tokens")
        print(describe(finished, made, time.monotonic() - started, settings.next_sentence))
    if values.show is not None:
        from tools.show_instances import describe_instances

        paths = matching_files(values.output_file) if values.output_file else instance_files(values.output_dir)
        if not paths:
            raise FileNotFoundError(f"there are no files of instances in {values.output_dir}")
        for line in describe_instances(paths, tokenizer, values.show, values.random_seed):
            print(line)


def _prepare_processes():
    """Starts the process from which workers are forked, which imports TensorFlow once for all of them."""
    forkserver.set_forkserver_preload(["keras_bert.pretraining.streaming"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: this process handles interrupts
    forkserver.ensure_running()
    signal.signal(signal.SIGINT, before)


def main(argv):
    """Runs the program; errors in files or flags are printed in one line."""
    values = flags.FLAGS
    if argv[1:] and not values.runner:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}; give files with --input_file")
    given = [name for name in _STREAMING_FLAGS if values[name].present]
    if values.exact and given:
        raise app.UsageError(f"--{given[0]} has no effect with --exact, because the original does not have it")
    # A cluster ends a process with SIGTERM: like after an interrupt, the current shards are finished.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if values.num_workers > 1 and not values.runner:
            _prepare_processes()
        import tensorflow as tf

        try:
            run(values, argv[1:])
        except (ImportError, OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
            sys.exit(f"tools.create_pretraining_data: {error}")
    except KeyboardInterrupt:
        sys.exit("tools.create_pretraining_data: interrupted; re-run the same command to resume")


if __name__ == "__main__":
    define_flags()
    app.run(main)
