"""A page that shows attention weights in any browser: one file, which loads nothing and sends nothing.

`page.html`, `page.css` and `page.js` are its parts. Whatever comes from a text, a vocabulary or the command line stands
in the page as JSON, of which the script makes text and never markup; and the page's own policy lets no other script run
and no address be asked.
"""

import base64
import hashlib
import json
import string
from pathlib import Path
from typing import NamedTuple

import numpy as np

# With 8 bits a weight this is a page of 90 MB, which browsers still open in seconds; 12 layers of 12 heads with 512
# tokens are 37.7 million.
MOST_WEIGHTS = 2**26
# How far a weight in the page may be from the model's, see `encode_weights`.
ROUNDING_ERROR = 0.002

_CODES = 255


class Attention(NamedTuple):
    """The attention weights of one input, and the tokens that they are between.

    Args:
        tokens: list of str, the wordpieces with [CLS] and [SEP], without padding.
        segment_ids: list of int, 0 for the first text and 1 for the second.
        special: list of int, the places of [CLS] and [SEP].
        layers: list of int, the layers' numbers, 0 the lowest.
        weights: float32 [layers, heads, from, to], probabilities over the tokens that are looked at.
    """

    tokens: list[str]
    segment_ids: list[int]
    special: list[int]
    layers: list[int]
    weights: np.ndarray


def check_size(layers, heads, length):
    """Raises if there are more weights than a page can hold.

    Args:
        layers, heads, length: int. How many layers, heads in each, and tokens.

    Raises:
        ValueError: with what to show less of.
    """
    number = layers * heads * length**2
    if number > MOST_WEIGHTS:
        raise ValueError(
            f"{layers} layers of {heads} heads with {length} tokens are {number:,} weights, and a page holds at most "
            f"{MOST_WEIGHTS:,}; show fewer layers by --layers, or fewer tokens by --max_seq_length"
        )


def encode_weights(weights):
    """Stores attention weights in 8 bits each, as their square roots relative to the greatest weight of their row.

    A weight p of a row whose greatest is m becomes round(255 sqrt(p / m)), and is off by at most
    sqrt(p m) / 255 + m / 510²: the greatest by nothing, and each other by less than 1/500, as p + m is at most 1. Steps
    of equal width would be no nearer, and lose the many small weights of a long text, which together are no small part.

    Args:
        weights: float [..., from, to], rows of probabilities.

    Returns:
        A pair: uint8 of the same shape, and float32 [..., from], the greatest weight of each row.

    Example:

    >>> codes, greatest = encode_weights(np.array([[0.5, 0.48, 0.02]]))
    >>> codes.tolist(), np.round(greatest[:, None] * (codes / 255) ** 2, 4).tolist()
    ([[255, 250, 51]], [[0.5, 0.4806, 0.02]])
    """
    greatest = weights.max(axis=-1).astype(np.float32)
    relative = weights / np.maximum(greatest, np.finfo(np.float32).tiny)[..., None]
    return np.rint(_CODES * np.sqrt(relative)).astype(np.uint8), greatest


def build_page(attention, title, facts, texts):
    """The page as HTML.

    Args:
        attention: `Attention`.
        title: str.
        facts: str, the line below the title: of what model the weights are, for example.
        texts: sequence of str, what was tokenized.

    Returns:
        str.

    Raises:
        ValueError: if there are more weights than a page can hold.
    """
    layers, heads, length, _ = attention.weights.shape
    check_size(layers, heads, length)
    codes, greatest = encode_weights(attention.weights)
    data = {
        "title": title,
        "facts": facts,
        "texts": list(texts),
        "precision": f"Weights are stored in 8 bits; each is within {100 * ROUNDING_ERROR:.1f} percentage points of "
        "the model's, the greatest of every row exact.",
        "tokens": attention.tokens,
        "segment_ids": attention.segment_ids,
        "special": attention.special,
        "layers": attention.layers,
        "heads": heads,
        "greatest": [_base64(layer.astype("<f4")) for layer in greatest],
        "codes": [_base64(layer) for layer in codes],
    }
    style, script = _read_part("page.css"), _read_part("page.js")
    return string.Template(_read_part("page.html")).substitute(
        style=style,
        style_hash=_hash_for_policy(style),
        script=script,
        script_hash=_hash_for_policy(script),
        # Only "<" could end the element; JSON's own escapes leave only ASCII.
        data=json.dumps(data).replace("<", "\\u003c"),
    )


def _base64(array):
    return base64.b64encode(array.tobytes()).decode("ascii")


def _read_part(name):
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash_for_policy(source):
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
