r"""Makes instances of pre-training, masked words and next sentences, from prepared text.

    python -m tools.create_pretraining_data --input_file='corpus/*.txt' --vocab_file=vocab.txt --output_dir=instances \
        --num_workers=2

Prepared text has one sentence a line and a blank line between documents (python -m tools.prepare_corpus makes it). The
corpus is cut into shards, each process makes one at a time, and memory does not grow with the corpus. Random next
sentences come from the documents of the shard. An interrupted run goes on with the same command, and the files are the
same for any number of processes.

With --runner=direct, flink, spark or dataflow Apache Beam makes the same files, here or on a cluster. What follows --
goes to it as its pipeline options:

    python -m tools.create_pretraining_data ... --runner=flink -- --flink_master=HOST:8081 --parallelism=64

With --exact it makes what google-research/bert's create_pretraining_data.py makes, in the same order, to the last
random number, from the same flags; everything is then in memory and one core does it all.
"""

import random
import signal
import sys
import time
from multiprocessing import forkserver

from absl import app, flags

_MANY_UNKNOWN = 0.05  # of the tokens: beyond it, the vocabulary is another text's
_STREAMING_FLAGS = (
    "shard_megabytes",
    "num_workers",
    "runner",
    "next_sentence",
    "fill_to_length",
    "mask_share",
    "random_share",
    "compression",
)


def define_flags(values=flags.FLAGS):
    """Defines the flags, with the names and defaults of the original where it has them.

    They are defined here and not on import, so that one process can import several programs.
    """

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("list", "input_file", None, "Files of prepared text, or patterns, separated by commas.", required=True)
    define("string", "vocab_file", None, "The vocabulary, one wordpiece a line.", required=True)
    define("string", "output_dir", None, "Folder for the files of instances.")
    define("list", "output_file", None, "With --exact: files for the instances, which take turns.")
    define("bool", "exact", False, "Make the original's instances in the original's order.")
    define("bool", "do_lower_case", True, "Whether the vocabulary is lower-cased.")
    define("bool", "do_whole_word_mask", False, "Mask all pieces of a word together.")
    define("integer", "max_seq_length", 128, "Most tokens of an instance.", lower_bound=5)
    define("integer", "max_predictions_per_seq", 20, "Most masked tokens of an instance.", lower_bound=1)
    define("integer", "random_seed", 12345, "Seed of all random choices.")
    define("integer", "dupe_factor", 10, "How often each document is used, with other masks.", lower_bound=1)
    define("float", "masked_lm_prob", 0.15, "Share of the tokens that are masked.")
    define("float", "short_seq_prob", 0.1, "Share of the documents whose instances are shorter.")
    define("bool", "use_v2_feature_names", False, "Write input_word_ids and input_type_ids, as tensorflow/models.")
    define("integer", "num_workers", 1, "Processes on this machine.", lower_bound=1)
    define("enum", "runner", None, ["direct", "flink", "spark", "dataflow"], "Let Apache Beam make the shards, there.")
    define("float", "shard_megabytes", 8, "Text of a shard, which a process holds in memory.", lower_bound=0.001)
    define("enum", "next_sentence", "nsp", ["nsp", "sop", "none"], "Next or random, in order or swapped, or single.")
    define("bool", "fill_to_length", True, "Fill instances to their length; otherwise pairs of single sentences.")
    define("float", "mask_share", 0.8, "How many of the masked tokens become [MASK].")
    define("float", "random_share", 0.1, "How many of them become a random token.")
    define("enum", "compression", "none", ["none", "gzip"], "Of the files of instances.")
    define("bool", "progress", True, "Show a progress bar.")
    flags.register_multi_flags_validator(["exact", "output_file", "output_dir"], _outputs_fit, flag_values=values)


def _outputs_fit(values):
    needed, other = ("output_file", "output_dir") if values["exact"] else ("output_dir", "output_file")
    if values[needed] and not values[other]:
        return True
    raise flags.ValidationError(
        "--exact writes to --output_file=FILE[,FILE...]" if values["exact"] else "give --output_dir=FOLDER"
    )


def settings_from_flags(values):
    """The `InstanceSettings` that the flags ask for."""
    from keras_bert.pretraining.instance_settings import InstanceSettings

    return InstanceSettings(
        sequence_length=values.max_seq_length,
        max_predictions=values.max_predictions_per_seq,
        seed=values.random_seed,
        next_sentence=values.next_sentence,
        short_sequence_rate=values.short_seq_prob,
        fill_to_length=values.fill_to_length,
        masking_rate=values.masked_lm_prob,
        whole_words=values.do_whole_word_mask,
        mask_share=values.mask_share,
        random_share=values.random_share,
    )


def create_streaming(values, settings, tokenizer, files, beam_options):
    """Makes all shards that are not there yet.

    Args:
        beam_options: list of str, for Apache Beam.

    Returns:
        A pair: list of dict, the counts of the shards that were there, and of those that were made.
    """
    from tqdm import tqdm

    from keras_bert.pretraining.shards import MEGABYTE, plan_shards
    from keras_bert.pretraining.streaming import ShardJob, make_shards, missing_shards

    plan = plan_shards(files, int(values.shard_megabytes * MEGABYTE))
    job = ShardJob(
        folder=values.output_dir,
        shards=len(plan),
        tokenizer=tokenizer.get_config(),
        settings=settings,
        copies=values.dupe_factor,
        form="models" if values.use_v2_feature_names else "bert",
        compression=values.compression,
    )
    missing, finished = missing_shards(job, plan)
    if not missing:
        return finished, []
    if values.runner:
        from keras_bert.pretraining.beam import make_shards_with_beam

        return finished, make_shards_with_beam(job, missing, values.runner, values.num_workers, beam_options)
    made = []
    bar = tqdm(total=sum(shard.size for shard in missing), unit="B", unit_scale=True, disable=not values.progress)
    with bar:
        for shard, counts in make_shards(job, missing, min(values.num_workers, len(missing))):
            made.append(counts)
            bar.update(shard.size)
    return finished, made


def create_exact(values, settings, tokenizer, files):
    """Makes the instances of the original.

    Returns:
        A pair as of `create_streaming`, with one dict for all files.
    """
    from keras_bert.pretraining.exact_instances import check_free, exact_instances, read_exact_documents, write_exact
    from keras_bert.pretraining.shard_files import describe_vocabulary

    check_free(values.output_file)
    documents = read_exact_documents(files, tokenizer)
    instances = exact_instances(
        documents.token_ids,
        documents.documents,
        tokenizer.vocabulary,
        random.Random(settings.seed),
        settings.sequence_length,
        settings.max_predictions,
        copies=values.dupe_factor,
        masking_rate=settings.masking_rate,
        short_sequence_rate=settings.short_sequence_rate,
        whole_words=settings.whole_words,
    )
    write_exact(
        values.output_file,
        instances,
        settings.sequence_length,
        settings.max_predictions,
        "models" if values.use_v2_feature_names else "bert",
        {**describe_vocabulary(tokenizer), **settings.to_dict(), "copies": values.dupe_factor, "text": files},
    )
    return [], [{"instances": len(instances), **documents.counts(tokenizer.unk_id)}]


def describe(finished, made, seconds, next_sentence="nsp"):
    """What was made, for a human.

    Args:
        finished, made: lists of dict, the counts of what was there and of what was made.
        seconds: float, the time that it took.
        next_sentence: str, of the settings.

    Returns:
        str, one line or more.
    """
    total = {name: sum(counts[name] for counts in (*finished, *made)) for name in (*finished, *made)[0]}
    now = sum(counts["instances"] for counts in made)
    lines = [f"{total['instances']:,} instances of {total['documents']:,} documents with {total['tokens']:,} tokens"]
    if made:
        lines.append(f"made {now:,} of them in {seconds:.0f} s, {now / seconds:,.0f} a second")
    if finished:
        lines.append(f"{len(finished)} of {len(finished) + len(made)} shards were there already")
    if total["one_sentence_documents"]:
        lines.append(f"{total['one_sentence_documents']:,} documents have one sentence, which nothing follows")
    if total["one_sentence_documents"] > total["documents"] / 2:
        lines.append("Is this prepared text, one sentence a line and a blank line between documents?")
        lines[-1] += " python -m tools.prepare_corpus makes it"
    if total["unknown_tokens"] > _MANY_UNKNOWN * total["tokens"]:
        share = 100 * total["unknown_tokens"] / total["tokens"]
        lines.append(f"{share:.1f}% of the tokens are [UNK]: is the vocabulary that of this text?")
    alone = sum(counts["documents"] == 1 for counts in (*finished, *made))
    if alone and next_sentence == "nsp":
        lines.append(
            f"{alone} of {len(finished) + len(made)} shards have one document: random next sentences are its own. "
            "Larger shards (--shard_megabytes) or more text have others"
        )
    return "\n".join(lines)


def run(values, beam_options=()):
    """Makes the instances, and says what was made."""
    from keras_bert.io.remote_paths import matching_files
    from keras_bert.text.tokenizer import BertTokenizer

    started = time.monotonic()
    settings = settings_from_flags(values)
    files = matching_files(values.input_file)
    tokenizer = BertTokenizer(values.vocab_file, lower_case=values.do_lower_case)
    if tokenizer.mask_id is None:
        raise ValueError(f"the vocabulary {values.vocab_file} has no [MASK], which masked words need; add it")
    if values.exact:
        finished, made = create_exact(values, settings, tokenizer, files)
    else:
        finished, made = create_streaming(values, settings, tokenizer, files, beam_options)
    if not any(counts["instances"] for counts in (*finished, *made)):
        raise ValueError("no instance was made: no document has enough sentences and tokens")
    print(describe(finished, made, time.monotonic() - started, settings.next_sentence))


def _prepare_processes():
    """Lets the process from which workers are forked import TensorFlow while this one does, too."""
    forkserver.set_forkserver_preload(["keras_bert.pretraining.streaming"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which it inherits: an interrupt is for this process
    forkserver.ensure_running()
    signal.signal(signal.SIGINT, before)


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    if argv[1:] and not flags.FLAGS.runner:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}; every file has its flag")
    given = [name for name in _STREAMING_FLAGS if flags.FLAGS[name].present]
    if flags.FLAGS.exact and given:
        raise app.UsageError(f"the original has no --{given[0]}; leave it out with --exact")
    # What a cluster sends before it ends a process is an interrupt, too: the shards that are begun are finished.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if flags.FLAGS.num_workers > 1 and not flags.FLAGS.runner:
            _prepare_processes()
        _run_with_errors_in_a_line(argv[1:])
    except KeyboardInterrupt:
        sys.exit("tools.create_pretraining_data: interrupted; the same command makes what is missing")


def _run_with_errors_in_a_line(beam_options):
    import tensorflow as tf

    try:
        run(flags.FLAGS, beam_options)
    except (ImportError, OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
        sys.exit(f"tools.create_pretraining_data: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
