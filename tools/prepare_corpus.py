"""Makes a corpus for pre-training of files of text: one sentence a line, a blank line between documents.

    python -m tools.prepare_corpus --input='novels/*.txt' --output=corpus
    python -m tools.prepare_corpus --input='wiki/*.jsonl.gz' --form=jsonl --language=zh --output=corpus

Input: text files, each a document (or each line, or what stands between blank lines: --document_per), or JSON Lines,
each object a document; also .gz. Byte order marks and line ends of all kinds are removed, wrapped lines are joined,
white space becomes single spaces, and paragraphs are split into sentences by sentencex. How lines make paragraphs is
found out for each document (--paragraph_end forces it): lines are wrapped if most of those with another directly after
them end within a sentence and are about as long as the longest; keras_bert/pretraining/paragraphs.py has the rule.

Output: UTF-8 files corpus-00000.txt, corpus-00001.txt, ... in a folder that appears when all of it is written. Files
are read in alphabetical order; the same input gives the same output. If the program is interrupted there is no output
folder, and the same command starts anew; what a killed process left (.NAME.unfinished-... beside the folder) is read by
nothing and can be removed.
"""

import os
import sys

from absl import app, flags


def prepare(inputs, output, shard_bytes, progress, bad_rows, **options):
    """Writes the corpus.

    Args:
        inputs: list of str. Files and glob patterns.
        output: str. A folder that is not there, or empty.
        shard_bytes: int. The size at which a shard ends.
        progress: bool, whether to draw a bar on standard error; None draws one on a terminal.
        bad_rows: a `BadRows`, told of lines and rows that cannot be used.
        **options: as for `read_documents`.

    Returns:
        `CorpusCounts`, and a list of int, the bytes of each shard.

    Raises:
        ValueError: if there is no text at all; and as `read_documents` and `atomic_folder` say.
    """
    from tqdm import tqdm

    from keras_bert.data.example_files import find_files
    from keras_bert.io.atomic_write import atomic_folder
    from keras_bert.io.row_errors import plural
    from keras_bert.pretraining.raw_text import CorpusCounts, read_documents
    from tools.corpus_files import write_shards

    counts = CorpusCounts()
    files = find_files(inputs)
    documents = read_documents(files, bad_rows=bad_rows, counts=counts, **options)
    draws = sys.stderr.isatty() if progress is None else progress
    total = sum(os.path.getsize(file) for file in files)
    with (
        atomic_folder(output) as folder,
        tqdm(total=total, unit="B", unit_scale=True, disable=not draws) as bar,
    ):

        def watched(sentences):
            for sentence in sentences:
                bar.update(counts.bytes_read - bar.n)
                yield sentence

        sizes = write_shards(map(watched, documents), folder, shard_bytes)
        bar.update(counts.bytes_read - bar.n)
        if not sizes:
            raise ValueError(f"there is no text in {plural(counts.files, 'file')} of --input; nothing is written")
    return counts, sizes


def describe(counts, sizes, bad_rows, output):
    """What was made, for a human.

    Args:
        counts, sizes: as `prepare` returns them.
        bad_rows: the `BadRows` of the run.
        output: str. The folder.

    Returns:
        str, one line or more.
    """
    from keras_bert.io.row_errors import plural

    lines = [
        f"{plural(counts.files, 'file')}, {plural(counts.documents, 'document')}, "
        f"{plural(counts.paragraphs, 'paragraph')}, {plural(counts.sentences, 'sentence')}: "
        f"{plural(counts.bytes_read, 'byte')} read, {sum(sizes)} written to {plural(len(sizes), 'shard')} in {output}"
    ]
    if counts.empty_files:
        lines.append(f"{plural(counts.empty_files, 'file')} without text")
    if counts.empty_documents:
        lines.append(f"{plural(counts.empty_documents, 'row')} without text")
    if bad_rows.count:
        lines.append(f"{plural(bad_rows.count, 'bad row')} skipped")
    return "\n".join(lines)


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    ends = ["auto", "line", "blank_line", "short_line"]
    define("list", "input", None, "Files or glob patterns (** for any folders), with commas between.", required=True)
    define("string", "output", None, "Folder for the shards; not there, or empty.", required=True)
    define("enum", "form", "text", ["text", "jsonl"], "Form of the input.")
    define("string", "text_field", "text", "Key of the text in the objects of JSON Lines.")
    define("enum", "document_per", "file", ["file", "line", "blank_line"], "What of a text file is one document.")
    define("string", "language", "en", "Code of the language, such as en, zh or ko.")
    define("string", "encoding", "utf-8", "Encoding of text files.")
    define("enum", "paragraph_end", "auto", ends, "What ends a paragraph; blank lines always do. auto: found out.")
    define(
        "enum", "hyphens", "auto", ["auto", "keep", "drop"], "What to do with hyphens at ends of lines that are joined."
    )
    define("float", "shard_megabytes", 16.0, "Size at which a shard ends, 10^6 bytes; no document is parted.")
    define("bool", "skip_bad_rows", False, "Whether to count and pass over lines and rows that cannot be used.")
    define("enum", "progress", "auto", ["auto", "on", "off"], "Whether to draw a bar; auto: on a terminal.")


def run(values):
    """Checks the flags, writes the corpus, and says on standard error what was made."""
    from tools.corpus_files import check_output_folder

    if not values.shard_megabytes > 0:
        raise ValueError(f"--shard_megabytes must be more than 0, got {values.shard_megabytes}")
    check_output_folder(values.output)

    from keras_bert.io.row_errors import BadRows

    bad_rows = BadRows(skip=values.skip_bad_rows)
    names = ("form", "text_field", "document_per", "language", "encoding", "paragraph_end", "hyphens")
    counts, sizes = prepare(
        values.input,
        values.output,
        round(values.shard_megabytes * 1e6),
        progress={"auto": None, "on": True, "off": False}[values.progress],
        bad_rows=bad_rows,
        **{name: getattr(values, name) for name in names},
    )
    bad_rows.log_total()
    print(describe(counts, sizes, bad_rows, values.output), file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with files or flags is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every file has its flag")
    try:
        run(flags.FLAGS)
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"tools.prepare_corpus: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
