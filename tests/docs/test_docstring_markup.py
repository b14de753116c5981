import dataclasses
import re
from pathlib import Path

import pytest

import keras_bert
import keras_bert.training
from docs.docstring_markup import convert

ROOT = Path(__file__).parents[2]


def test_the_api_reference_lists_every_public_name_once():
    listed = []
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for module, block in re.findall(r"currentmodule:: (\S+)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            listed += [f"{module}.{name}" for name in re.findall(r"^\.\. auto\w+:: (\w+)", block, re.MULTILINE)]
    public = [f"keras_bert.{name}" for name in keras_bert.__all__ if name != "__version__"]
    # Names of keras_bert.training that are also names of keras_bert are listed there.
    own = [name for name in keras_bert.training.__all__ if name not in keras_bert.__all__]
    assert sorted(listed) == sorted([*public, *(f"keras_bert.training.{name}" for name in own)])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("takes `text` and `**kwargs`", "takes ``text`` and ``**kwargs``"),
        ("the `BertEncoder`s of *.csv", r"the ``BertEncoder``\ s of \*.csv"),
        ("features_* or a|b", r"features\_\* or a\|b"),
        ("`a*`\n>>> print('*`')", "``a*``\n>>> print('*`')"),
    ],
)
def test_only_code_in_backticks_is_markup(line, expected):
    assert convert(line.split("\n")) == expected.split("\n")


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (
            "Inputs: a dict of\n    ids: int32,\n        two ranks.\n    mask: int32.\nEnd.",
            "**Inputs:** a dict of\n\n* ids: int32,\n  two ranks.\n* mask: int32.\n\nEnd.",
        ),
        ("Outputs:\n    float32.", "**Outputs:**\nfloat32."),
        ("Inputs: ids, and\n    a mask.\n\nArgs:", "**Inputs:** ids, and\na mask.\n\nArgs:"),
        ("Args:\n    x: one of:\n        a: text.\n", "Args:\n    x: one of:\n\n        * a: text.\n\n"),
        ("Returns:\n    A dict: of texts.", ":returns:\n    A dict: of texts."),
        ("An update:\n\n    m = 1\n    v = 2\n\nEnd.", "An update:\n\n| m = 1\n| v = 2\n\nEnd."),
    ],
)
def test_indented_blocks_become_lists_paragraphs_fields_or_formulas(docstring, expected):
    assert "\n".join(convert(docstring.split("\n"))) == expected


def test_the_fields_of_settings_are_arguments():
    fields = [("rate", float, dataclasses.field(default=0.1, metadata={"help": "A rate."}))]
    settings = dataclasses.make_dataclass("Settings", fields)
    assert convert(["Settings.", "", "Raises:", "    ValueError: always."], settings) == [
        *("Settings.", "", "Args:", "    rate: A rate.", "", "Raises:", "    ValueError: always.")
    ]
