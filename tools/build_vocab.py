"""Builds a WordPiece vocabulary from text.

    python -m tools.build_vocab --input='corpus/*.txt' --vocab_size=30522 --lower_case --output=vocab.txt

Input: UTF-8 text files, also .gz, raw or prepared. Each line is split into words like `keras_bert.BertTokenizer` does,
with the same --lower_case (and --strip_accents).

Output: one entry per line: [PAD], [unused0] and so on (--num_unused), [UNK], [CLS], [SEP], [MASK], the characters of
the text, and wordpieces learned from its words by Hugging Face tokenizers (pip install "keras-bert-zoo[pretraining]").
The same text gives the same file, in any order of its files and lines. The file appears when it is complete.

Memory grows with the number of distinct words, not with the text: about 100 bytes per word while counting, and 1.2 kB
while learning, for which the 2 million most frequent words are used.
"""

import sys
import time

from absl import app, flags

from tools.output_file import check_is_no_input, check_output
from tools.program import flag_definer, run_program

# A batch ends with the line that reaches one of these numbers.
_CHARACTERS_PER_BATCH = 2**20
_LINES_PER_BATCH = 2**14
_MAX_NAMED_FILES = 3


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("list", "input", None, "Text files or glob patterns, separated by commas.", required=True)
    define("string", "output", None, "File of the vocabulary.", required=True)
    define("integer", "vocab_size", 30522, "Number of entries, special tokens included.", lower_bound=1)
    define("bool", "lower_case", False, "Convert words to lower case, as the tokenizer will.")
    define("bool", "strip_accents", None, "Remove accents. Default: the value of --lower_case.")
    define(
        "integer", "num_unused", 0, "Number of entries [unused0], ...; with 99, [UNK] has the id 100.", lower_bound=0
    )
    define("integer", "limit_alphabet", None, "Maximum number of characters to keep. Default: all.", lower_bound=1)
    define("integer", "min_frequency", 2, "Minimum frequency of a pair that becomes an entry.", lower_bound=1)
    define("bool", "overwrite", False, "Replace an existing output file.")
    define("bool", "progress", True, "Show a progress bar on a terminal.")


def read_batches(paths, progress):
    """Yields lists of lines of about a megabyte; calls `progress` with the number of bytes read since the last call."""
    from keras_bert.data.formats.text_lines import FilePosition, decode_line, numbered_lines
    from keras_bert.io.row_errors import BadRowError

    batch, num_characters = [], 0
    for path in paths:
        position, reported = FilePosition(), 0
        for number, line in numbered_lines(path, position):
            try:
                batch.append(decode_line(line, offset=position.line_offset))
            except ValueError as error:
                raise BadRowError(path, number, str(error)) from None
            num_characters += len(batch[-1])
            progress(position.bytes_read - reported)
            reported = position.bytes_read
            if num_characters >= _CHARACTERS_PER_BATCH or len(batch) == _LINES_PER_BATCH:
                yield batch
                batch, num_characters = [], 0
    yield batch


def count_words(paths, lower_case, strip_accents=None, progress=False):
    """Counts the words of files in a `WordCounter`."""
    from tqdm import tqdm

    from keras_bert.text.word_counter import WordCounter

    counter = WordCounter(lower_case, strip_accents)
    total = sum(path.stat().st_size for path in paths)
    disable = None if progress else True
    with tqdm(total=total, unit="B", unit_scale=True, desc="counting words", disable=disable) as bar:
        for batch in read_batches(paths, bar.update):
            counter.add(batch)
    if not counter.counts:
        more = f" and {len(paths) - _MAX_NAMED_FILES} more" if len(paths) > _MAX_NAMED_FILES else ""
        raise ValueError(f"no words in {', '.join(map(str, paths[:_MAX_NAMED_FILES]))}{more}; give files with text")
    return counter


def run(values):
    """Checks the flags, counts words, learns and writes the vocabulary, and prints a report to standard error."""
    started = time.monotonic()
    check_output(values.output, values.overwrite)

    from keras_bert.data.example_files import find_files
    from keras_bert.io.atomic_write import atomic_text_file
    from keras_bert.text.tokenizer import BertTokenizer
    from keras_bert.text.vocabulary_learner import VocabularyLearner, measure_coverage

    paths = find_files(values.input)
    check_is_no_input(values.output, paths)
    learner = VocabularyLearner(values.vocab_size, values.num_unused, values.limit_alphabet, values.min_frequency)
    counter = count_words(paths, values.lower_case, values.strip_accents, values.progress)
    num_words = counter.counts.total() + counter.num_too_long
    print(f"{num_words:,} words counted, {len(counter.counts):,} of them distinct", file=sys.stderr, flush=True)
    vocabulary = learner.learn(counter.counts)
    coverage = measure_coverage(BertTokenizer(vocabulary, values.lower_case, values.strip_accents), counter.counts)
    with atomic_text_file(values.output, values.overwrite) as file:
        file.writelines(f"{entry}\n" for entry in vocabulary)
    print(
        f"{len(vocabulary):,} entries written to {values.output}: "
        f"{(coverage.num_wordpieces + counter.num_too_long) / num_words:.4f} wordpieces per word, "
        f"{(coverage.num_unknown + counter.num_too_long) / num_words:.4%} of the words unknown; "
        f"{time.monotonic() - started:.1f} s",
        file=sys.stderr,
    )


def main(argv):
    """Runs the program; errors in files or flags are printed in one line."""
    run_program(
        "build_vocab",
        run,
        argv,
        "quote the pattern of --input, or separate by commas",
        (ImportError, OSError, ValueError),
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
