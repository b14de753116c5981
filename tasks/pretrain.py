r"""Pre-trains BERT on masked words and next sentences, from prepared text or from files of instances.

    python -m tasks.pretrain --text_files='corpus/*.txt' --vocab_file=vocab.txt --size=tiny --run_dir=runs/tiny \
        --phase=128:9000:256 --phase=512:1000:256

Each --phase is LENGTH:UPDATES:ROWS, and they come one after the other; the default is the paper's recipe. Text becomes
instances while the model trains; files of tools.create_pretraining_data are given by --instance_files instead, once for
each phase. --run_dir then holds model/ (weights and vocabulary), model_card.md, training_curve.png, results.json and
log.jsonl. A run that was interrupted goes on where it stopped, in whatever phase, when the same command is given again.
"""

import dataclasses
import re
import shlex
import sys
from pathlib import Path

from absl import app, flags

import tasks.flags

# Flags that say how text becomes instances, which are in files of instances already.
_OF_TEXT = (
    "fill_to_length",
    "do_whole_word_mask",
    "masked_lm_prob",
    "mask_share",
    "random_share",
    "short_seq_prob",
    "shard_megabytes",
)
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
_PHASE = re.compile(r"([1-9][0-9]*):([1-9][0-9]*):([1-9][0-9]*)")


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_training_flags(schedule="linear")
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_list("text_files", None, "Prepared text (tools.prepare_corpus), files or patterns, comma-separated.")
    flags.DEFINE_multi_string(
        "instance_files",
        None,
        "Files of instances (tools.create_pretraining_data), a pattern or folder; repeat it for each phase.",
    )
    flags.DEFINE_list("eval_text_files", None, "As --text_files, of other text, to evaluate on.")
    flags.DEFINE_multi_string("eval_instance_files", None, "As --instance_files, of other text, to evaluate on.")
    flags.DEFINE_string("vocab_file", None, "The vocabulary, one wordpiece a line.", required=True)
    flags.DEFINE_bool("do_lower_case", True, "Whether the vocabulary is lower-cased.")
    flags.DEFINE_enum("size", None, SIZES, "A published size of the model.")
    flags.DEFINE_string("bert_config_file", None, "The model's size as a bert_config.json, instead of --size.")
    flags.DEFINE_string("init_checkpoint", None, "Weights to begin with, and the model's size; default: random ones.")
    flags.DEFINE_multi_string(
        "phase", ["128:900000:256", "512:100000:256"], "LENGTH:UPDATES:ROWS of a batch; repeat it for several."
    )
    flags.register_validator(
        "phase",
        lambda phases: all(map(_PHASE.fullmatch, phases)),
        "must be LENGTH:UPDATES:ROWS, such as 128:900000:256",
    )
    flags.DEFINE_bool("pack", False, "Put several instances into a row, so that hardly any of it is padding.")
    flags.DEFINE_enum("objective", "mlm", ["mlm", "left_to_right", "right_to_left"], "Which words are predicted.")
    flags.DEFINE_enum("next_sentence", "nsp", ["nsp", "sop", "none"], "Next or random, in order or swapped, or single.")
    flags.DEFINE_bool("fill_to_length", True, "With --text_files: fill instances; else pairs of single sentences.")
    flags.DEFINE_bool("do_whole_word_mask", False, "With --text_files: mask all pieces of a word together.")
    flags.DEFINE_float(
        "masked_lm_prob", 0.15, "With --text_files: share of the tokens that are masked.", 0.001, upper_bound=1.0
    )
    flags.DEFINE_float("mask_share", 0.8, "With --text_files: share of the masked tokens that become [MASK].", 0.0, 1.0)
    flags.DEFINE_float(
        "random_share", 0.1, "With --text_files: share of them that become a random token; the rest stays.", 0.0, 1.0
    )
    flags.DEFINE_float("short_seq_prob", 0.1, "With --text_files: share of the documents with shorter instances.")
    flags.DEFINE_float(
        "shard_megabytes", 8, "With --text_files: text of a shard, which is in memory.", lower_bound=0.001
    )
    flags.DEFINE_float("learning_rate", 1e-4, "Peak of the learning rate.", lower_bound=0.0)
    flags.DEFINE_integer("num_warmup_steps", 10_000, "Updates that warm up, if there are so many.", lower_bound=0)
    flags.DEFINE_float(
        "dropout", None, "Of hidden states and attention, in pre-training alone; default: the model's own.", 0.0, 0.999
    )
    flags.DEFINE_integer("evaluate_every", None, "Updates between two evaluations; default: only at the end.", 1)
    flags.DEFINE_integer("eval_instances", 2048, "Most instances of an evaluation.", lower_bound=1)
    flags.DEFINE_enum(
        "checkpoint_dtype", "float32", ["float32", "bfloat16"], "How the weights of model/ are stored at the end."
    )
    for name in ("", "eval_"):
        flags.register_multi_flags_validator([f"{name}text_files", f"{name}instance_files"], _one_source(name))
    flags.register_multi_flags_validator(["size", "bert_config_file", "init_checkpoint"], _one_model)
    flags.register_multi_flags_validator(["text_files", "eval_text_files", *_OF_TEXT], _has_text)
    flags.register_multi_flags_validator(["evaluate_every", "eval_text_files", "eval_instance_files"], _has_evaluation)


def _one_source(prefix):
    def check(values):
        text, instances = values[f"{prefix}text_files"], values[f"{prefix}instance_files"]
        if (text and instances) or not (text or instances or prefix):
            raise flags.ValidationError(f"give --{prefix}text_files or --{prefix}instance_files, one of the two")
        return True

    return check


def _has_text(values):
    given = [name for name in _OF_TEXT if values[name] != flags.FLAGS[name].default]
    if given and not (values["text_files"] or values["eval_text_files"]):
        raise flags.ValidationError(f"--{given[0]} is for --text_files; instances in files are as they were made")
    return True


def _has_evaluation(values):
    if values["evaluate_every"] and not (values["eval_text_files"] or values["eval_instance_files"]):
        raise flags.ValidationError("--evaluate_every needs --eval_text_files or --eval_instance_files")
    return True


def _one_model(values):
    given = [name for name, value in values.items() if value]
    if len(given) > 1:
        raise flags.ValidationError(f"--{given[0]} and --{given[1]} both say how large the model is; give one")
    return True


def encoder_arguments_from_flags(values, vocab_size):
    """The encoder that the flags ask for.

    Args:
        values: the flags' values.
        vocab_size: int, of the vocabulary.

    Returns:
        dict, constructor arguments of `BertEncoder`.

    Raises:
        FileNotFoundError, ValueError: if there is no such checkpoint or configuration, or it is of another vocabulary.
    """
    from keras_bert.finetuning.run_models import resolve_checkpoint
    from keras_bert.models.encoder import ENCODER_SIZES
    from keras_bert.models.pretrained import read_bert
    from keras_bert.weights.google_bert import read_bert_config

    if values.init_checkpoint:
        source = values.init_checkpoint
        sizes = dict(read_bert(resolve_checkpoint(source)).encoder_arguments)
        sizes.pop("attention_direction", None)  # the objective says it
    elif values.bert_config_file:
        source = values.bert_config_file
        sizes = read_bert_config(Path(source))
    else:
        rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # paper, appendix A.2
        source, sizes = None, {**ENCODER_SIZES[values.size or "base"], "vocab_size": vocab_size, **rates}
    if sizes["vocab_size"] != vocab_size:
        raise ValueError(
            f"{source} is of a vocabulary of {sizes['vocab_size']} wordpieces, and {values.vocab_file} has {vocab_size}"
        )
    return {**sizes, "dtype": values.precision, "gradient_checkpointing": values.gradient_checkpointing}


def instances_from_flags(values, tokenizer, prefix=""):
    """The instances that the flags name.

    Args:
        values: the flags' values.
        tokenizer: `BertTokenizer`.
        prefix: str. "" for those to train on, "eval_" for those to evaluate on.

    Returns:
        `tasks.pretraining_input.TextInstances`, `StoredInstances`, or None if no flag names any.

    Raises:
        FileNotFoundError: if a pattern has no files.
        ValueError: if files are no instances or no text.
    """
    from keras_bert.io.remote_paths import matching_files
    from keras_bert.pretraining.shards import MEGABYTE
    from tasks.pretraining_input import StoredInstances, TextInstances

    if patterns := values[f"{prefix}text_files"].value:
        return TextInstances(
            matching_files(patterns),
            tokenizer,
            int(values.shard_megabytes * MEGABYTE),
            seed=values.seed,
            next_sentence=values.next_sentence,
            fill_to_length=values.fill_to_length,
            short_sequence_rate=values.short_seq_prob,
            whole_words=values.do_whole_word_mask,
            masking_rate=values.masked_lm_prob,
            mask_share=values.mask_share,
            random_share=values.random_share,
        )
    if patterns := values[f"{prefix}instance_files"].value:
        return StoredInstances([find_instances(pattern) for pattern in patterns], tokenizer, values.seed)
    return None


def find_instances(pattern):
    """The files of instances of a pattern, or in a folder.

    Args:
        pattern: str.

    Returns:
        list of str, in alphabetical order.

    Raises:
        FileNotFoundError: if there are none.
    """
    import tensorflow as tf

    from keras_bert.io.remote_paths import matching_files
    from keras_bert.pretraining.shard_files import instance_files

    if not tf.io.gfile.isdir(pattern):
        return matching_files([pattern])
    found = instance_files(pattern)
    if not found:
        raise FileNotFoundError(f"there are no files of instances in the folder {pattern}")
    return found


def main(argv):
    """Flags to keyword arguments."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    from keras_bert.finetuning.run_models import resolve_checkpoint
    from keras_bert.text.tokenizer import BertTokenizer
    from tasks.pretraining import Recipe, pretrain
    from tasks.pretraining_input import Phase

    values = flags.FLAGS
    tasks.flags.log_to_standard_error()
    with tasks.flags.errors_without_traceback("tasks.pretrain"):
        arguments = tasks.flags.training_arguments()
        tokenizer = BertTokenizer(values.vocab_file, lower_case=values.do_lower_case)
        pretrain(
            tokenizer=tokenizer,
            instances=instances_from_flags(values, tokenizer),
            evaluation=instances_from_flags(values, tokenizer, "eval_"),
            phases=[Phase(*map(int, _PHASE.fullmatch(phase).groups())) for phase in values.phase],
            encoder_arguments=encoder_arguments_from_flags(values, tokenizer.vocab_size),
            init_checkpoint=values.init_checkpoint and resolve_checkpoint(values.init_checkpoint),
            recipe=Recipe(**{field.name: values[field.name].value for field in dataclasses.fields(Recipe)}),
            evaluate_every=values.evaluate_every,
            eval_instances=values.eval_instances,
            dropout=values.dropout,
            checkpoint_dtype=values.checkpoint_dtype,
            command=shlex.join(["python", "-m", "tasks.pretrain", *sys.argv[1:]]),
            **arguments,
        )


if __name__ == "__main__":
    define_flags()
    app.run(main)
