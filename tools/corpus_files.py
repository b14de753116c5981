"""The files of `tools.prepare_corpus`: shards of documents in a folder that appears when it is complete."""

import os
from pathlib import Path

_SHARD_NAME = "corpus-{:05d}.txt"


def check_output_folder(folder):
    """Raises if a folder cannot be written without overwriting something.

    Args:
        folder: str or Path.

    Raises:
        FileExistsError: if it is there and holds something.
        NotADirectoryError: if it, or what should hold it, is a file.
    """
    folder = Path(folder)
    if folder.is_dir():
        content = sorted(os.listdir(folder))
        if content:
            raise FileExistsError(
                f"the output folder {folder} is not empty, it holds {content[0]}; nothing is overwritten: give a new "
                "folder, or remove it"
            )
        return
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise NotADirectoryError(f"the output folder {folder} cannot be made: {existing} is a file")


def write_shards(documents, folder, shard_bytes):
    """Writes documents as lines of sentences, with a blank line between documents.

    A shard ends with the document that reaches the size: it is at most one document larger, and none is parted.

    Args:
        documents: iterable of iterables of str, the sentences.
        folder: Path of an empty folder; its files are corpus-00000.txt, corpus-00001.txt, ...
        shard_bytes: int.

    Returns:
        list of int, the bytes of each shard.
    """
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
