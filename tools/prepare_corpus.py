"""Prepares text files for pre-training: one sentence per line, a blank line between documents.

    python -m tools.prepare_corpus --input='novels/*.txt' --output=corpus
    python -m tools.prepare_corpus --input='wiki/*.jsonl.gz' --file_format=jsonl --language=zh --output=corpus

Input: text files, one document each (or one per line or block of lines: --document_per), or JSON Lines, one document
per object; also .gz. Byte order marks and line ends of all kinds are removed, wrapped lines are joined, white space
becomes single spaces, and paragraphs are split into sentences by sentencex. How lines form paragraphs is detected for
each document (--paragraph_end forces it); keras_bert/pretraining/paragraphs.py describes the rule.

Output: UTF-8 files corpus-00000.txt, corpus-00001.txt, ... in a folder that appears when all of it is written. Files
are read in alphabetical order, and the same input gives the same output. After an interruption there is no output
folder, and the same command starts again. A killed process leaves a folder .NAME.unfinished-... that can be removed.
"""

import os
import sys
from pathlib import Path

from absl import app, flags

from tools.program import define_settings, flag_definer, read_settings, run_program

_SHARD_NAME = "corpus-{:05d}.txt"


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    from keras_bert.pretraining.raw_text import CorpusFormat

    define = flag_definer(values)
    define_settings(define, CorpusFormat)
    define("list", "input", None, "Files or glob patterns (** for any folders), separated by commas.", required=True)
    define("string", "output", None, "New or empty folder for the corpus.", required=True)
    define("float", "shard_megabytes", 16.0, "Size of an output file in 10^6 bytes; documents are not split.")
    define("bool", "skip_bad_rows", False, "Skip and count unusable lines and rows.")
    define("bool", "progress", True, "Show a progress bar on a terminal.")


def run(values):
    """Checks the flags, writes the corpus, and prints a report to standard error."""
    if not values.shard_megabytes > 0:
        raise ValueError(f"--shard_megabytes must be more than 0, got {values.shard_megabytes}")
    check_output_folder(values.output)

    from tqdm import tqdm

    from keras_bert.data.example_files import find_files
    from keras_bert.io.atomic_write import atomic_folder
    from keras_bert.io.row_errors import BadRows, plural
    from keras_bert.pretraining.raw_text import CorpusCounts, CorpusFormat, read_documents

    corpus_format = read_settings(values, CorpusFormat)
    bad_rows, counts = BadRows(skip=values.skip_bad_rows), CorpusCounts()
    files = find_files(values.input)
    documents = read_documents(files, corpus_format, bad_rows, counts)
    total = sum(os.path.getsize(file) for file in files)
    with (
        atomic_folder(values.output) as folder,
        tqdm(total=total, unit="B", unit_scale=True, disable=None if values.progress else True) as bar,
    ):

        def show_progress(sentences):
            for sentence in sentences:
                bar.update(counts.bytes_read - bar.n)
                yield sentence

        sizes = write_shards(map(show_progress, documents), folder, round(values.shard_megabytes * 1e6))
        if not sizes:
            raise ValueError(f"{plural(counts.files, 'file')} of --input contain no text; nothing is written")
    bad_rows.log_total()
    lines = [
        f"{plural(counts.files, 'file')}, {plural(counts.documents, 'document')}, "
        f"{plural(counts.paragraphs, 'paragraph')}, {plural(counts.sentences, 'sentence')}: "
        f"{plural(counts.bytes_read, 'byte')} read, {sum(sizes)} written to {plural(len(sizes), 'file')} in "
        f"{values.output}"
    ]
    if counts.empty_files:
        lines.append(f"{plural(counts.empty_files, 'file')} without text")
    if counts.empty_documents:
        lines.append(f"{plural(counts.empty_documents, 'row')} without text")
    if bad_rows.count:
        lines.append(f"{plural(bad_rows.count, 'bad row')} skipped")
    print("\n".join(lines), file=sys.stderr)


def check_output_folder(folder):
    """Raises an error if a folder cannot be created, or contains anything."""
    folder = Path(folder)
    if folder.is_dir():
        content = sorted(os.listdir(folder))
        if content:
            raise FileExistsError(
                f"the output folder {folder} is not empty, it contains {content[0]}; give a new folder, or remove it"
            )
        return
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise NotADirectoryError(f"the output folder {folder} cannot be created: {existing} is a file")


def write_shards(documents, folder, shard_bytes):
    """Writes documents to files that end with the document that reaches the size; returns the sizes in bytes."""
    from keras_bert.io.atomic_write import atomic_text_file

    sizes = []
    documents = iter(documents)
    for first in documents:
        with atomic_text_file(folder / _SHARD_NAME.format(len(sizes))) as file:
            size = _write_document(first, file)
            while size < shard_bytes and (document := next(documents, None)) is not None:
                file.write("\n")
                size += 1 + _write_document(document, file)
        sizes.append(size)
    return sizes


def _write_document(sentences, file):
    size = 0
    for sentence in sentences:
        file.write(sentence + "\n")
        size += len(sentence.encode()) + 1
    return size


def main(argv):
    """Runs the program; errors in files or flags are printed in one line."""
    run_program("prepare_corpus", run, argv, "give files with --input", (OSError, ValueError, ImportError))


if __name__ == "__main__":
    define_flags()
    app.run(main)
