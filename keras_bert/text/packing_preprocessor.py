"""What all preprocessors have in common."""

from typing import Any, Self

import tensorflow as tf

from keras_bert.text.pack import pack
from keras_bert.text.tokenizer import BertTokenizer


class PackingPreprocessor:
    """A preprocessor that packs what its tokenizer gives into rows of a length, and can be made again of its config.

    Args:
        tokenizer: `BertTokenizer`.
        sequence_length: int, most ids of a row, the special tokens included.

    Raises:
        TypeError: `tokenizer` is no `BertTokenizer`.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
        >>> again = PackingPreprocessor.from_config(PackingPreprocessor(tokenizer, 8).get_config())
        >>> again.pack(again.tokenizer.tokenize(["playing"]))["token_ids"].numpy().tolist()
        [[2, 4, 5, 3]]
    """

    def __init__(self, tokenizer: BertTokenizer, sequence_length: int):
        if not isinstance(tokenizer, BertTokenizer):
            raise TypeError(
                f"tokenizer must be a BertTokenizer. Received: {type(tokenizer).__name__}. "
                "Make one with BertTokenizer(vocabulary, lower_case=...)."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def pack(
        self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None = None, pad_to: str = "longest"
    ) -> dict[str, tf.Tensor]:
        """Packs rows as `keras_bert.text.pack.pack` does, with the tokenizer's special ids.

        Args:
            segment_a: ragged ids [rows, (tokens)].
            segment_b: the same, or None.
            pad_to: "longest" or "max_length".

        Returns:
            dict of int32 tensors [rows, length]: `token_ids`, `segment_ids`, `padding_mask`.
        """
        return pack(
            segment_a,
            segment_b,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
            pad_id=self.tokenizer.pad_id,
            sequence_length=self.sequence_length,
            pad_to=pad_to,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, fit for JSON: dict with the tokenizer's config under "tokenizer"."""
        return {"tokenizer": self.tokenizer.get_config(), "sequence_length": self.sequence_length}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the preprocessor that `get_config` described.

        Args:
            config: dict, from `get_config`.

        Returns:
            a preprocessor of this class.
        """
        return cls(**{**config, "tokenizer": BertTokenizer.from_config(config["tokenizer"])})
