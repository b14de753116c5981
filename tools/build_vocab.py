"""Builds a WordPiece vocabulary from text.

    python -m tools.build_vocab --input='corpus/*.txt' --vocab_size=30522 --lower_case --output=vocab.txt

Input: UTF-8 files, also .gz, of any form that has its text in lines: raw, or prepared with a sentence a line. The words
are those that `keras_bert.BertTokenizer` makes of each line, with the same --lower_case (and --strip_accents).

Output: one entry a line: [PAD], [unused0] and so on (--num_unused), [UNK], [CLS], [SEP], [MASK], the characters of the
text, and pieces learned from its words by Hugging Face tokenizers (pip install "keras-bert-zoo[pretraining]"). The same
text gives the same file, in whatever order its files and lines come. The file gets its name when it is complete.

Memory grows with the number of distinct words and not with the text: by about 100 bytes for each while counting, and
by 1.2 kB while learning, for which the 2 million most frequent are enough.
"""

import sys
import time

from absl import app, flags

from tools.output_file import check_is_no_input, check_output

# A batch ends with the line that reaches so many characters, or so many lines.
_CHARACTERS_IN_BATCH = 2**20
_LINES_IN_BATCH = 2**14


def read_batches(paths, progress):
    """The lines of files, in lists of about a megabyte.

    Args:
        paths: list of Path.
        progress: a function, called with the bytes of a file that were read since the last call.

    Returns:
        Iterator of lists of str.

    Raises:
        BadRowError: if a line is not UTF-8; with file, line and byte.
        ValueError: if a file is compressed and broken, is UTF-16, or has a line of more than 64 MiB.
    """
    from keras_bert.data.formats.text_lines import FilePlace, decode_line, numbered_lines
    from keras_bert.io.row_errors import BadRowError

    batch, characters = [], 0
    for path in paths:
        place, bytes_told = FilePlace(), 0
        for number, line in numbered_lines(path, place):
            try:
                batch.append(decode_line(line, offset=place.line_offset))
            except ValueError as error:
                raise BadRowError(path, number, str(error)) from None
            characters += len(batch[-1])
            progress(place.bytes_read - bytes_told)
            bytes_told = place.bytes_read
            if characters >= _CHARACTERS_IN_BATCH or len(batch) == _LINES_IN_BATCH:
                yield batch
                batch, characters = [], 0
    yield batch


def count_words(paths, lower_case, strip_accents=None, progress=None):
    """Counts the words of files.

    Args:
        paths: list of Path.
        lower_case: bool, whether to lower-case.
        strip_accents: bool, whether to remove accents; None is as `lower_case`.
        progress: bool, whether to draw a bar on standard error; None draws one on a terminal.

    Returns:
        `keras_bert.text.word_counter.WordCounter`.

    Raises:
        ValueError: if a file cannot be read as text, or the files hold no words.
    """
    from tqdm import tqdm

    from keras_bert.text.word_counter import WordCounter

    counter = WordCounter(lower_case, strip_accents)
    total = sum(path.stat().st_size for path in paths)
    draws = sys.stderr.isatty() if progress is None else progress
    with tqdm(total=total, unit="B", unit_scale=True, desc="counting words", disable=not draws) as bar:
        for batch in read_batches(paths, bar.update):
            counter.add(batch)
    if not counter.counts:
        raise ValueError(f"there are no words in {_few([str(path) for path in paths])}; give files with text")
    return counter


def write_vocabulary(path, vocabulary, overwrite=False):
    """Writes a `vocab.txt`.

    Args:
        path: str or Path.
        vocabulary: list of str.
        overwrite: bool. Whether a file that exists may be replaced.

    Raises:
        FileExistsError: if the file exists and may not be replaced.
    """
    from keras_bert.io.atomic_write import atomic_text_file

    with atomic_text_file(path, overwrite) as file:
        file.writelines(f"{entry}\n" for entry in vocabulary)


def _few(names, most=3):
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("list", "input", None, "Files of text, or glob patterns, with commas between them.", required=True)
    define("string", "output", None, "File of the vocabulary.", required=True)
    define("integer", "vocab_size", 30522, "Entries, special tokens included.", lower_bound=1)
    define("bool", "lower_case", False, "Whether to lower-case, as the tokenizer will.")
    define("bool", "strip_accents", None, "Whether to remove accents; by default where --lower_case is given.")
    define("integer", "num_unused", 0, "Entries [unused0], [unused1], ...; with 99, [UNK] is 100.", lower_bound=0)
    define("integer", "limit_alphabet", None, "Most characters to keep; by default all.", lower_bound=1)
    define("integer", "min_frequency", 2, "How often a pair must be seen to become an entry.", lower_bound=1)
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    define("enum", "progress", "auto", ["auto", "on", "off"], "Whether to draw a bar; auto: on a terminal.")


def run(values):
    """Checks the flags, counts, learns, writes, and says on standard error what was written."""
    started = time.monotonic()
    check_output(values.output, values.overwrite)

    from keras_bert.data.example_files import find_files
    from keras_bert.text.tokenizer import BertTokenizer
    from keras_bert.text.vocabulary_learner import VocabularyLearner, measure_coverage

    paths = find_files(values.input)
    check_is_no_input(values.output, paths)
    learner = VocabularyLearner(values.vocab_size, values.num_unused, values.limit_alphabet, values.min_frequency)
    progress = {"auto": None, "on": True, "off": False}[values.progress]
    counter = count_words(paths, values.lower_case, values.strip_accents, progress)
    words = counter.counts.total() + counter.too_long
    print(f"{words:,} words counted, {len(counter.counts):,} of them distinct; learning", file=sys.stderr, flush=True)
    vocabulary = learner.learn(counter.counts)
    coverage = measure_coverage(BertTokenizer(vocabulary, values.lower_case, values.strip_accents), counter.counts)
    write_vocabulary(values.output, vocabulary, values.overwrite)
    print(
        f"{len(vocabulary):,} entries written to {values.output}: "
        f"{(coverage.pieces + counter.too_long) / words:.4f} pieces a word, "
        f"{100 * (coverage.unknown + counter.too_long) / words:.4f}% of the words unknown; "
        f"{time.monotonic() - started:.1f} s",
        file=sys.stderr,
    )


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; put --input into quotation marks, or commas between")
    try:
        run(flags.FLAGS)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"tools.build_vocab: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
