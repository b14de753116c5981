"""Multiple choice: SWAG (arXiv 1808.05326) and CODAH (arXiv 1904.04365), sentences with several continuations."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.delimited import check_columns, read_columns, read_header
from keras_bert.data.formats.text_lines import check_is_file
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.typing import PathLike

_ENDING = re.compile(r"ending(0|[1-9][0-9]*)")
_CODAH_COLUMNS = ("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label")


class MultipleChoiceQuestion(NamedTuple):
    """A prompt and its possible continuations, of which one is correct."""

    prompt: str
    choices: tuple[str, ...]  # equally many for all questions of a file
    label: int | None  # index of the correct choice; None if it is not known
    line: int  # line on which the question starts in its file, from 1
    category: str | None = None  # category of the question, if the file states it


def read_swag(
    path: PathLike, bad_rows: BadRows | None = None, with_labels: bool = True
) -> ExampleStream[MultipleChoiceQuestion]:
    """Reads the questions of a file of SWAG, or of one with the same columns.

    The prompt is the first sentence, and each choice the start of the second sentence followed by an ending. They are
    segments A and B of the input (BERT, arXiv 1810.04805, section 4.4).

    `path` is a CSV file with the columns `sent1`, `sent2`, `ending0`, `ending1` and so on, any number of them, and, if
    `with_labels`, `label`; `.gz` files are decompressed. A row is invalid if it has another number of columns than the
    header, an empty ending, or a label that is not the index of an ending.
    """
    path = check_is_file(path)
    names = read_header(path, "csv")
    num_endings = sum(1 for name in names if _ENDING.fullmatch(name))
    endings = [f"ending{number}" for number in range(num_endings)]
    if num_endings < 2 or not {*endings} <= {*names}:
        raise ValueError(f"{path} must have columns ending0, ending1 and so on, at least two; its columns are {names}")
    with_labels = with_labels and "label" in names
    columns = ["sent1", "sent2", *endings, *(["label"] if with_labels else [])]
    check_columns(path, names, columns)

    def parse(line: int, values: list[str]) -> MultipleChoiceQuestion:
        prompt, start, *rest = values
        choices = rest[:num_endings]
        _check_endings(choices)
        if start:
            choices = [f"{start} {ending}" for ending in choices]
        label = _parse_label(rest[-1], num_endings) if with_labels else None
        return MultipleChoiceQuestion(prompt, tuple(choices), label, line)

    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = partial(read_columns, path, columns, "csv", bad_rows)
    return ExampleStream(partial(_read, path, rows, parse, bad_rows), str(path))


def read_codah(
    path: PathLike, bad_rows: BadRows | None = None, with_labels: bool = True
) -> ExampleStream[MultipleChoiceQuestion]:
    """Reads the questions of a file of CODAH: all of them, or those of its authors' folds.

    Source: `data/full_data.tsv` and `data/cv_split` of Websail-NU/CODAH. A prompt ends where its choices start, often
    in the middle of a sentence. Categories are letters of i (idioms), n (negation), p (polysemy), q (quantities), r
    (reference) and o (others), or "".

    `path` is a TSV file without header and quoting: category, prompt, four endings, label. Without `with_labels`, the
    last column may contain anything.
    """
    path = check_is_file(path)

    def parse(line: int, values: list[str]) -> MultipleChoiceQuestion:
        category, prompt, *choices, label = values
        _check_endings(choices)
        label_index = _parse_label(label, len(choices)) if with_labels else None
        return MultipleChoiceQuestion(prompt, tuple(choices), label_index, line, category)

    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = partial(read_columns, path, _CODAH_COLUMNS, "tsv", bad_rows, _CODAH_COLUMNS)
    return ExampleStream(partial(_read, path, rows, parse, bad_rows), str(path))


def _read(
    path: Path,
    rows: Callable[[], Iterator[tuple[int, list[str]]]],
    parse: Callable[[int, list[str]], MultipleChoiceQuestion],
    bad_rows: BadRows,
) -> Iterator[MultipleChoiceQuestion]:
    for line, values in rows():
        try:
            question = parse(line, values)
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield question


def _check_endings(endings: Sequence[str]) -> None:
    for number, ending in enumerate(endings):
        if not ending.strip():
            raise ValueError(
                f"ending{number} is empty, and every question has {len(endings)} choices; got {quotation(ending)}"
            )


def _parse_label(text: str, num_choices: int) -> int:
    label = text.strip()
    if label not in map(str, range(num_choices)):
        raise ValueError(f"the label must be the index of a choice, 0 to {num_choices - 1}; got {quotation(text)}")
    return int(label)
