"""Settings of pre-training instances, with the defaults of google-research/bert."""

import dataclasses
from dataclasses import dataclass
from typing import Any

NEXT_SENTENCE_TASKS = ("nsp", "sop", "none")
SHORTEST_SEQUENCE = 5  # [CLS], [SEP], [SEP] and one token per sentence; the original draws target lengths from 2 on
_NUM_SPECIAL_TOKENS = {"nsp": 3, "sop": 3, "none": 2}


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """Settings of instances from text. The defaults are those of google-research/bert `create_pretraining_data.py`."""

    sequence_length: int = 128  # maximum number of tokens, [CLS] and [SEP] included; at least 5
    max_predictions: int = 20  # maximum number of masked tokens per instance
    seed: int = 12345  # seed of all random choices
    next_sentence: str = "nsp"  # actual or random next sentences; "sop": in order or swapped; "none": one segment
    short_sequence_rate: float = 0.1  # fraction of documents whose instances are made shorter
    fill_to_length: bool = True  # whether a segment holds as many sentences as fit; else pairs of single sentences
    masking_rate: float = 0.15  # fraction of tokens that are masked (arXiv 1810.04805, section 3.1)
    whole_words: bool = False  # whether all wordpieces of a word are masked together
    mask_token_rate: float = 0.8  # fraction of the masked tokens that are replaced by [MASK]
    random_token_rate: float = 0.1  # fraction replaced by a random token; the rest is unchanged

    def __post_init__(self) -> None:
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
        if not (
            self.mask_token_rate >= 0
            and self.random_token_rate >= 0
            and self.mask_token_rate + self.random_token_rate <= 1
        ):
            raise ValueError(
                "mask_token_rate and random_token_rate must be at least 0 and their sum at most 1, got "
                f"{self.mask_token_rate} and {self.random_token_rate}"
            )
        if not 0 <= self.short_sequence_rate <= 1:
            raise ValueError(f"short_sequence_rate must be from 0 to 1, got {self.short_sequence_rate}")
        if self.next_sentence == "none" and not self.fill_to_length:
            raise ValueError('fill_to_length=False makes pairs of sentences, but next_sentence="none" has no pairs')

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of tokens without `[CLS]` and `[SEP]`."""
        return self.sequence_length - _NUM_SPECIAL_TOKENS[self.next_sentence]

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as a dict that can be written as JSON."""
        return dataclasses.asdict(self)
