"""Builds a page that shows attention weights in any browser: a single file that loads nothing and sends nothing.

Strings are stored as JSON, which the script inserts as text and never as markup.
"""

import base64
import hashlib
import json
import string
from pathlib import Path
from typing import NamedTuple

import numpy as np

# A page of 90 MB, which browsers open in seconds; 12 layers of 12 heads with 512 tokens are 37.7 million weights.
MAX_WEIGHTS = 2**26
ROUNDING_ERROR = 0.002  # largest difference between a weight in the page and the model's, see `encode_weights`
_MAX_CODE = 255


class Attention(NamedTuple):
    """The attention weights of one input."""

    tokens: list[str]  # wordpieces with [CLS] and [SEP], without padding
    segment_ids: list[int]
    special: list[int]  # positions of [CLS] and [SEP]
    layers: list[int]  # from 0
    weights: np.ndarray  # float32 [layers, heads, from, to], probabilities over the attended tokens


def check_size(num_layers, num_heads, length):
    """Raises ValueError if there are more weights than a page can hold."""
    num_weights = num_layers * num_heads * length**2
    if num_weights > MAX_WEIGHTS:
        raise ValueError(
            f"{num_layers} layers of {num_heads} heads with {length} tokens are {num_weights:,} weights, but a page "
            f"holds at most {MAX_WEIGHTS:,}; shorten the texts"
        )


def encode_weights(weights):
    """Stores attention weights in 8 bits each, as their square roots relative to the maximum of their row.

    A weight p of a row with maximum m becomes round(255 sqrt(p / m)); the error is below 1/500.
    """
    maxima = weights.max(axis=-1).astype(np.float32)
    relative = weights / np.maximum(maxima, np.finfo(np.float32).tiny)[..., None]
    return np.rint(_MAX_CODE * np.sqrt(relative)).astype(np.uint8), maxima


def build_page(attention, title, subtitle, texts):
    """Returns the page as HTML; `texts` are the original texts. Raises ValueError if there are too many weights."""
    layers, heads, length, _ = attention.weights.shape
    check_size(layers, heads, length)
    codes, maxima = encode_weights(attention.weights)
    data = {
        "title": title,
        "subtitle": subtitle,
        "texts": list(texts),
        "precision": f"Weights are stored in 8 bits; they differ from the model's by at most "
        f"{100 * ROUNDING_ERROR:.1f} percentage points, and the maximum of every row is exact.",
        "tokens": attention.tokens,
        "segment_ids": attention.segment_ids,
        "special": attention.special,
        "layers": attention.layers,
        "heads": heads,
        "maxima": [_base64(layer.astype("<f4")) for layer in maxima],
        "codes": [_base64(layer) for layer in codes],
    }
    style, script = _read_part("page.css"), _read_part("page.js")
    return string.Template(_read_part("page.html")).substitute(
        style=style,
        style_hash=hash_for_policy(style),
        script=script,
        script_hash=hash_for_policy(script),
        # json.dumps returns ASCII, in which only "<" could end the element.
        data=json.dumps(data).replace("<", "\\u003c"),
    )


def _base64(array):
    return base64.b64encode(array.tobytes()).decode("ascii")


def _read_part(name):
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def hash_for_policy(source):
    """Returns what allows a script or a style in a Content Security Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
