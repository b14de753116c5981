"""Multiple choice: SWAG (arXiv 1808.05326) and CODAH (arXiv 1904.04365), sentences with several continuations."""

import functools
import re
from typing import NamedTuple

from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.delimited import check_columns, read_columns, read_header
from keras_bert.data.formats.text_lines import check_is_file
from keras_bert.io.row_errors import BadRows, quotation

_ENDING = re.compile(r"ending(0|[1-9][0-9]*)")
_CODAH_COLUMNS = ("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label")


class MultipleChoiceQuestion(NamedTuple):
    """A text, and its possible continuations, of which one is right.

    Args:
        prompt: str.
        choices: tuple of str, as many in every question of a file.
        label: int or None. The number of the right choice, from 0; None where it is not known.
        line: int. The line on which the question begins in its file, from 1.
        category: str or None. The kind of question, where the file says it; "" where it leaves it empty.

    Example:

    >>> question = MultipleChoiceQuestion("She is hungry.", ("She eats.", "She sings."), label=0, line=2)
    >>> question.choices[question.label]
    'She eats.'
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None
    line: int
    category: str | None = None


def read_swag(path, bad_rows=None, with_labels=True):
    """The questions of a file of SWAG, or of one with its columns.

    The prompt is the first sentence, and each choice the beginning of the second one with an ending behind it, as they
    are segments A and B of the paper's input (BERT, arXiv 1810.04805, section 4.4).

    Args:
        path: str or Path. A CSV file with the columns `sent1`, `sent2`, `ending0`, `ending1` and so on, any number of
            them, and, but for questions to predict, `label`; decompressed if its name ends in `.gz`.
        bad_rows: a `BadRows`, told of rows with another number of columns than the header, an empty ending, or a label
            that is the number of none. None takes the first one for an error.
        with_labels: bool. False passes over a column of labels, whatever stands in it.

    Returns:
        `ExampleStream` of `MultipleChoiceQuestion`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file lacks one of the columns, has no rows, or has fewer than two endings or a gap in their
            numbers.
        BadRowError: when a bad row is read, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "val.csv"
    >>> _ = path.write_text("sent1,sent2,ending0,ending1,label\\nShe is hungry.,She,eats.,sings.,0\\n")
    >>> for question in read_swag(path):
    ...     print(question)
    MultipleChoiceQuestion(prompt='She is hungry.', choices=('She eats.', 'She sings.'), label=0, line=2, category=None)
    """
    path = check_is_file(path)
    names = read_header(path, "csv")
    endings = _endings(path, names)
    with_labels = with_labels and "label" in names
    columns = ["sent1", "sent2", *endings, *(["label"] if with_labels else [])]
    check_columns(path, names, columns)

    def parse(line, values):
        prompt, start, *rest = values
        choices = rest[: len(endings)]
        _check_endings(endings, choices)
        if start:
            choices = [f"{start} {ending}" for ending in choices]
        label = _label(rest[-1], len(endings)) if with_labels else None
        return MultipleChoiceQuestion(prompt, tuple(choices), label, line)

    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = functools.partial(read_columns, path, columns, "csv", bad_rows)
    return ExampleStream(functools.partial(_read, path, rows, parse, bad_rows), str(path))


def read_codah(path, bad_rows=None, with_labels=True):
    """The questions of a file of CODAH: all of them, or one of the parts of its authors' folds.

    Source: `data/full_data.tsv` and `data/cv_split` of Websail-NU/CODAH. A prompt ends where its choices begin, often
    in the middle of a sentence.

    Args:
        path: str or Path. A TSV file without header and without quoting: category, prompt, four endings, label;
            decompressed if its name ends in `.gz`.
        bad_rows: a `BadRows`, told of rows with another number of columns, an empty ending, or a label that is the
            number of none. None takes the first one for an error.
        with_labels: bool. False passes over what stands in the place of the labels.

    Returns:
        `ExampleStream` of `MultipleChoiceQuestion`. The category is as in the file: letters of i (idioms), n
        (negation), p (polysemy), q (quantities), r (reference) and o (others), or "".

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: when it is read, if the file has no rows.
        BadRowError: when a bad row is read, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "codah.tsv"
    >>> _ = path.write_text("o\\tShe is hungry. She\\teats.\\tsings.\\tflies.\\tsleeps.\\t0\\n")
    >>> next(iter(read_codah(path))).choices
    ('eats.', 'sings.', 'flies.', 'sleeps.')
    """
    path = check_is_file(path)

    def parse(line, values):
        category, prompt, *choices, label = values
        _check_endings(_CODAH_COLUMNS[2:-1], choices)
        label = _label(label, len(choices)) if with_labels else None
        return MultipleChoiceQuestion(prompt, tuple(choices), label, line, category)

    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = functools.partial(read_columns, path, _CODAH_COLUMNS, "tsv", bad_rows, _CODAH_COLUMNS)
    return ExampleStream(functools.partial(_read, path, rows, parse, bad_rows), str(path))


def _read(path, rows, parse, bad_rows):
    for line, values in rows():
        try:
            question = parse(line, values)
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield question


def _endings(path, names):
    endings = [name for name in names if _ENDING.fullmatch(name)]
    expected = [f"ending{number}" for number in range(len(endings))]
    if len(endings) < 2 or {*endings} != {*expected}:
        raise ValueError(f"{path} must have columns ending0, ending1 and so on, at least two; its columns are {names}")
    return expected


def _check_endings(names, endings):
    for name, ending in zip(names, endings, strict=True):
        if not ending.strip():
            raise ValueError(f"{name} is empty, and every question has {len(endings)} choices; got {quotation(ending)}")


def _label(text, num_choices):
    label = text.strip()
    if label not in map(str, range(num_choices)):
        raise ValueError(f"the label must be the number of a choice, 0 to {num_choices - 1}; got {quotation(text)}")
    return int(label)
