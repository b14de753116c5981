"""What instances of pre-training are made of, in one place, with the paper's numbers."""

from dataclasses import dataclass, fields

from keras_bert.pretraining.instances import NEXT_SENTENCE_TASKS, SHORTEST_SEQUENCE


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """How text becomes instances. The defaults are those of google-research/bert `create_pretraining_data.py`.

    Args:
        sequence_length: int. Most tokens, with [CLS] and [SEP].
        max_predictions: int. Most masked tokens of an instance.
        seed: int.
        next_sentence: str, one of "nsp" (next or random sentences), "sop" (in order or swapped) and "none" (one
            segment), as `document_segments` describes them.
        short_sequence_rate: float. The share of documents whose instances are shorter.
        fill_to_length: bool. False makes pairs of single sentences.
        masking_rate: float. The share of tokens that are masked (arXiv 1810.04805, section 3.1).
        whole_words: bool. Whether all pieces of a word are masked together.
        mask_share, random_share: float. How many of the masked tokens become [MASK], and a random token; the others
            stay.

    Raises:
        ValueError: if a number is out of range, or `fill_to_length` is False with single segments.

    Example:

    >>> InstanceSettings(sequence_length=512, max_predictions=77).masking_rate
    0.15
    """

    sequence_length: int = 128
    max_predictions: int = 20
    seed: int = 12345
    next_sentence: str = "nsp"
    short_sequence_rate: float = 0.1
    fill_to_length: bool = True
    masking_rate: float = 0.15
    whole_words: bool = False
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self):
        if self.next_sentence not in NEXT_SENTENCE_TASKS:
            raise ValueError(
                f"next_sentence must be one of {', '.join(NEXT_SENTENCE_TASKS)}, got {self.next_sentence!r}"
            )
        if self.sequence_length < SHORTEST_SEQUENCE:
            raise ValueError(
                f"sequence_length must be at least {SHORTEST_SEQUENCE} ([CLS], [SEP], [SEP] and a token of each "
                f"sentence), got {self.sequence_length}"
            )
        if self.max_predictions < 1:
            raise ValueError(f"max_predictions must be at least 1, got {self.max_predictions}")
        if not 0 < self.masking_rate <= 1:
            raise ValueError(f"masking_rate must be above 0 and at most 1, got {self.masking_rate}")
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1):
            raise ValueError(
                "mask_share and random_share must be at least 0 and together at most 1, got "
                f"{self.mask_share} and {self.random_share}"
            )
        if not 0 <= self.short_sequence_rate <= 1:
            raise ValueError(f"short_sequence_rate must be from 0 to 1, got {self.short_sequence_rate}")
        if self.next_sentence == "none" and not self.fill_to_length:
            raise ValueError('fill_to_length=False makes pairs of sentences, and next_sentence="none" has no pairs')

    def to_dict(self):
        """dict of the settings by name, fit for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
