"""Turns docstrings with Markdown's markup into reStructuredText for the API reference.

Sphinx' extension napoleon does the sections `Args`, `Raises` and `Example`. This module does what it does not know:
code in single backticks, text that is not markup, the sections `Inputs`, `Outputs` and `Returns`, and lists by
indentation.
"""

import dataclasses
import re

_SPAN = re.compile(r"`([^`]+)`")
_ITEM = re.compile(r"\w+: ")
_NAPOLEON_HEADERS = ("Args:", "Raises:", "Example:")


def convert(docstring, settings_class=None):
    """Returns the lines of a docstring as reStructuredText.

    Args:
        docstring: the lines, without common indentation.
        settings_class: a dataclass whose fields have help texts, which become the section `Args`; None for others.
    """
    lines = list(docstring)
    if settings_class is not None:
        fields = [f"    {field.name}: {field.metadata['help']}" for field in dataclasses.fields(settings_class)]
        start = next((i for i, line in enumerate(lines) if re.fullmatch(r"(Raises|Example):", line)), len(lines))
        lines[start:start] = ["Args:", *fields, ""]
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")), len(lines))
    return [*_convert_blocks(_escape("\n".join(lines[:start])).split("\n")), *lines[start:]]


def _escape(text):
    """Doubles the backticks of code, and escapes characters that are markup only in reStructuredText."""
    parts = _SPAN.split(text)  # text and code alternate
    parts[::2] = [re.sub(r"([\\*|]|(?<=\w)_\b)", r"\\\1", part) for part in parts[::2]]
    # Code may be joined to a word, as in `x`s; an escaped space ends it.
    parts[1::2] = [f"``{part}``\\ " for part in parts[1::2]]
    return re.sub(r"``\\ (?=[\s.,;:!?)'-]|$)", "``", "".join(parts))


def _convert_blocks(lines):
    """Converts the indented blocks that are not arguments, each by the line before it."""
    result, position = [], 0
    while position < len(lines):
        line = lines[position]
        position += 1
        text = line.strip()
        if line == "Returns:":
            result.append(":returns:")
            continue
        section = re.fullmatch(r"(Inputs|Outputs|Call arguments):(.*)", line)
        result.append(f"**{section[1]}:**{section[2]}" if section else line)
        if text in _NAPOLEON_HEADERS or not (section or text.endswith(":")):
            continue
        is_formula = not section and lines[position : position + 1] == [""]
        start = position + is_formula
        end = start
        while end < len(lines) and _indentation(lines[end]) > _indentation(line):
            end += 1
        block = lines[start:end]
        if not block:
            continue
        if is_formula:
            result += ["", *(f"| {each.strip()}" for each in block)]
        elif section and not (text.endswith(" of") or _ITEM.match(block[0].strip())):
            result += [each.strip() for each in block]
        else:
            outer = "" if section else " " * _indentation(block[0])
            result += ["", *_items(block, outer), ""]
        position = end
    return result


def _items(block, outer):
    """Makes list items of the lines of a block that are not indented more than its first line."""
    first = _indentation(block[0])
    return [f"{outer}{'  ' if _indentation(line) > first else '* '}{line.strip().removeprefix('- ')}" for line in block]


def _indentation(line):
    return len(line) - len(line.lstrip())
