"""Computes the attention weights of a text, or of a pair of texts, and shows them on a page."""

import textwrap

import numpy as np

from keras_bert.io.row_errors import plural
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.preprocessor import BertPreprocessor
from tools.attention_page import Attention, build_page, check_size

_MAX_TITLE_LENGTH = 80


class AttentionModel:
    """An encoder with its tokenizer, which reads [MASK] in a text as the special token.

    Args:
        path: folder or file of a checkpoint.
        name: what the pages call it.
    """

    def __init__(self, path, name):
        # A pretrainer's tokenizer reads [MASK]; its heads are not used, so they may be random.
        pretrainer = BertPretrainer.from_checkpoint(path)
        if pretrainer.preprocessor is None:
            raise ValueError(f"{path} has no vocab.txt, which is needed to tokenize texts; add the model's vocabulary")
        self._encoder = pretrainer.encoder
        self._preprocessor = BertPreprocessor(pretrainer.preprocessor.tokenizer, self._encoder.max_position_embeddings)
        self._name = name

    def build_page(self, texts):
        """Returns a page with the attention weights of one or two texts."""
        attention, num_truncated = compute_attention(self._encoder, self._preprocessor, texts)
        summary = (
            f"{plural(len(attention.layers), 'layer')} of {plural(self._encoder.num_attention_heads, 'head')}, "
            f"{plural(len(attention.tokens), 'token')}" + (f"; {num_truncated} more truncated" if num_truncated else "")
        )
        title = textwrap.shorten(" / ".join(texts), _MAX_TITLE_LENGTH, placeholder=" …")
        return build_page(attention, title, f"{self._name}: {summary}", texts)


def compute_attention(encoder, preprocessor, texts):
    """Computes the attention weights of one or two texts, and the number of tokens that were truncated."""
    tokenizer = preprocessor.tokenizer
    if len(texts) not in (1, 2):
        raise ValueError(f"expected one text or two, got {len(texts)}")
    for number, length in enumerate(tokenizer.tokenize(texts).row_lengths(), start=1):
        if not length:
            raise ValueError(f"text {number} has no tokens: {texts[number - 1]!r}; type some words")
    ids, counts = preprocessor.with_token_counts(tuple([text] for text in texts) if len(texts) > 1 else texts)
    length = int(ids["padding_mask"].numpy().sum())
    check_size(encoder.num_hidden_layers, encoder.num_attention_heads, length)

    scores = encoder(ids, return_attention_scores=True)["attention_scores"]
    token_ids = ids["token_ids"][0, :length]
    is_special = np.isin(token_ids, [tokenizer.cls_id, tokenizer.sep_id])
    attention = Attention(
        tokens=[token.decode() for token in tokenizer.id_to_token(token_ids).numpy()],
        segment_ids=ids["segment_ids"][0, :length].numpy().tolist(),
        special=np.flatnonzero(is_special).tolist(),
        layers=list(range(encoder.num_hidden_layers)),
        weights=np.stack([layer[0, :, :length, :length] for layer in scores]),
    )
    return attention, int(counts[0]) - length
