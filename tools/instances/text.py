"""Pre-training instances as text that a human reads on a terminal, for `tools.inspect_pretraining_data`."""

import unicodedata

import numpy as np

from tools.instances.counts import masked_places, segment_lengths, unmasked_ids

LABEL_NAMES = {"nsp": ("next", "random"), "sop": ("in order", "swapped"), "none": ("one segment", "label 1")}
LABEL_QUESTIONS = {"nsp": "next sentence", "sop": "sentence order", "none": "next sentence"}
_WIDEST_TOKEN = 40  # columns
_NARROWEST = 50  # columns of text; what is masked by the widest token fits


def printable(text):
    """A text without what a terminal would obey or not show: escapes stand for such characters.

    Args:
        text: str.

    Returns:
        str, of no more than 40 columns and, where it is longer, how many characters are left out.
    """
    shown, columns = [], 0
    for number, char in enumerate(text):
        shown.append(char if char.isprintable() else char.encode("unicode_escape").decode())
        columns += _columns(shown[-1])
        if columns > _WIDEST_TOKEN:
            return "".join(shown[:-1]) + f"…(+{len(text) - number})"
    return "".join(shown)


def describe_instance(instances, row, next_sentence="nsp", vocabulary=None, mask_id=None, width=100):
    """An instance in words: its numbers and segments, each masked place as `[what stood there → what stands there]`.

    Args:
        instances: dict of arrays, as of `InstanceMaker.make`.
        row: int. Which of them.
        next_sentence: str, what the label says: "nsp", "sop" or "none".
        vocabulary: list of str; None shows ids.
        mask_id: int, that of [MASK], or None.
        width: int. Columns of the terminal.

    Returns:
        list of str, lines.
    """
    instance = {name: values[row : row + 1] for name, values in instances.items()}
    places = masked_places(instance, mask_id)
    length = int(instance["padding_mask"].sum())
    words = _words(instance, places, vocabulary)[:length]
    is_second = (instance["segment_ids"][0] == 1)[:length]
    lines = [_describe_numbers(instance, length, next_sentence), _describe_masks(places)]
    lines += _wrap("a  ", words[~is_second], width)
    if is_second.any():
        lines += _wrap("b  ", words[is_second], width)
    return ["  " + line for line in lines]


def _describe_numbers(instance, length, next_sentence):
    (first,), (second,) = segment_lengths(instance)
    tokens = f"{length} tokens of {instance['token_ids'].shape[1]}"
    if second == 0:
        return f"{tokens}: {first} in one segment"
    label = LABEL_NAMES[next_sentence][instance["next_sentence_labels"].ravel()[0]]
    return f"{tokens}: {first} in a, {second} in b; {LABEL_QUESTIONS[next_sentence]}: {label}"


def _describe_masks(places):
    parts = f"{places.is_random.sum()} replaced"
    if places.is_mask is not None:
        parts = f"{places.is_mask.sum()} by [MASK], {places.is_random.sum()} by another token"
    return f"{len(places.rows)} masked: {parts}, {places.is_kept.sum()} kept"


def _words(instance, places, vocabulary):
    """What is shown of each place, array [length] of str."""

    def name(token_id):
        return str(token_id) if vocabulary is None else printable(vocabulary[token_id])

    original = unmasked_ids(instance, places)[0]
    shown = [name(token_id) for token_id in original]
    for position, now in zip(places.positions, places.now, strict=True):
        shown[position] = f"[{name(original[position])} → {name(now)}]"
    return np.array(shown, object)


def _wrap(name, words, width):
    """Lines of words, the first one after a name, and the others below it."""
    room = max(width - 2 - len(name), _NARROWEST)
    lines, line, columns = [], [], 0
    for word in words:
        for part in [word] if _columns(word) <= room else word.split(" "):
            needed = _columns(part)
            if line and columns + 1 + needed > room:
                lines.append(" ".join(line))
                line, columns = [], 0
            columns += needed + bool(line)
            line.append(part)
    lines.append(" ".join(line))
    return [(name if number == 0 else " " * len(name)) + line for number, line in enumerate(lines)]


def _columns(text):
    """How many columns of a terminal a text takes: Chinese characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
