"""Measures keras_bert beside what people use otherwise, in turn and in one run, and prints medians and ratios.

    pip install '.[benchmark]'
    python -m tools.benchmark --suite=tokenizer --vocabulary=vocab.txt --text=novels/*.txt

Suites:
    tokenizer: ids of lines of text, without offsets, by `BertTokenizer` and by Hugging Face tokenizers, on all cores.
    optimizer: one step on the 22.7 million parameters of MiniLM's shape, by `BertAdamW` and by Keras' AdamW.
"""

import glob
import statistics
import time

from absl import app, flags


def measure(programs, turns):
    """Seconds of every program in every turn.

    Args:
        programs: dict of name to function without arguments.
        turns: int.

    Returns:
        dict of name to list of seconds.
    """
    seconds = {name: [] for name in programs}
    for turn in range(turns + 1):
        for name, program in programs.items():
            started = time.perf_counter()
            program()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def print_table(seconds, ours):
    """Prints medians, and how many times faster ours is, turn by turn."""
    print(f"{'':<44}{'median s':>10}{'ratio to ours: median':>24}{'lowest':>9}{'highest':>9}")
    for name, values in seconds.items():
        ratios = [value / own for value, own in zip(values, seconds[ours], strict=True)]
        median, lowest, highest = statistics.median(ratios), min(ratios), max(ratios)
        print(f"{name:<44}{statistics.median(values):>10.3f}{median:>24.2f}{lowest:>9.2f}{highest:>9.2f}")


def tokenizer_programs(vocabulary, files, most_lines, batch_size):
    """`BertTokenizer` in tf.data, and both batch encoders of Hugging Face tokenizers, over the same lines."""
    import tensorflow as tf
    import tokenizers

    import keras_bert

    lines = []
    for file in files:
        with open(file, encoding="utf-8-sig") as text:
            lines += [line.strip() for line in text if line.strip()]
    lines = lines[:most_lines]
    ours = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    batches = tf.data.Dataset.from_tensor_slices(lines).batch(batch_size).cache()
    ids = batches.map(lambda batch: ours.tokenize(batch).values, num_parallel_calls=tf.data.AUTOTUNE)
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece.from_file(vocabulary, unk_token="[UNK]"))
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    count = sum(int(tf.size(batch)) for batch in ids)
    print(f"{len(lines)} lines, {count} tokens")

    def hugging_face(encode):
        for start in range(0, len(lines), batch_size):
            encode(lines[start : start + batch_size], add_special_tokens=False)

    return {
        "keras_bert": lambda: [None for _ in ids],
        "Hugging Face encode_batch": lambda: hugging_face(theirs.encode_batch),
        "Hugging Face encode_batch_fast": lambda: hugging_face(theirs.encode_batch_fast),
    }


def optimizer_programs():
    """One step of `BertAdamW`, and of Keras' AdamW with and without clipping by global norm."""
    import keras
    import tensorflow as tf

    import keras_bert

    encoder = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
    programs = {}
    for name, optimizer in {
        "keras_bert": keras_bert.BertAdamW(5e-5),
        "Keras AdamW, clipped by global norm": keras.optimizers.AdamW(5e-5, global_clipnorm=1.0),
        "Keras AdamW, not clipped": keras.optimizers.AdamW(5e-5),
    }.items():
        variables = keras_bert.BertEncoder(**encoder, seed=1).trainable_variables
        gradients = [tf.random.stateless_normal(variable.shape, [1, i]) for i, variable in enumerate(variables)]
        optimizer.build(variables)
        programs[name] = _step(optimizer, gradients, variables)
    return programs


def _step(optimizer, gradients, variables):
    import tensorflow as tf

    return tf.function(lambda: optimizer.apply(gradients, variables))


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_enum("suite", None, ["tokenizer", "optimizer"], "What to measure.", required=True)
    flags.DEFINE_integer("turns", 7, "How often each is measured, in turn, after one turn that does not count.")
    flags.DEFINE_multi_string("text", [], "Files of text for the tokenizer suite; patterns are expanded.")
    flags.DEFINE_string("vocabulary", None, "A lower-case vocab.txt for the tokenizer suite.")
    flags.DEFINE_integer("lines", 51_200, "Most lines of text to tokenize.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 512, "Lines in a batch.", lower_bound=1)


def main(argv):
    """Builds the programs of the suite, measures them in turn, and prints the table."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; repeat --text for several files")
    if flags.FLAGS.suite == "optimizer":
        programs = optimizer_programs()
    else:
        files = sorted(file for pattern in flags.FLAGS.text for file in glob.glob(pattern))
        if not files or not flags.FLAGS.vocabulary:
            raise app.UsageError("the tokenizer suite needs --vocabulary and --text, which must match a file")
        programs = tokenizer_programs(flags.FLAGS.vocabulary, files, flags.FLAGS.lines, flags.FLAGS.batch_size)
    print_table(measure(programs, flags.FLAGS.turns), ours="keras_bert")


if __name__ == "__main__":
    define_flags()
    app.run(main)
