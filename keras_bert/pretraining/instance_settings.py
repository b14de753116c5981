"""Settings of pre-training instances, with the defaults of google-research/bert."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from keras_bert.settings import Settings, setting

NEXT_SENTENCE_TASKS = ("nsp", "sop", "none")
SHORTEST_SEQUENCE = 5  # [CLS], [SEP], [SEP] and one token per sentence; the original draws target lengths from 2 on
_NUM_SPECIAL_TOKENS = {"nsp": 3, "sop": 3, "none": 2}

_setting = functools.partial(setting, recorded=False)  # a run records them with its data, see `to_dict`


@dataclass(frozen=True, kw_only=True)
class InstanceOptions(Settings):
    """How text becomes instances, of any length."""

    fill_to_length: bool = _setting(True, "Fill instances to their length; otherwise make pairs of single sentences.")
    do_whole_word_mask: bool = _setting(False, "Mask all wordpieces of a word together.")
    masked_lm_prob: float = _setting(
        0.15,  # paper, section 3.1
        "Fraction of tokens that are masked.",
        check=(lambda value: 0 < value <= 1, "must be above 0 and at most 1"),
    )
    mask_token_rate: float = _setting(0.8, "Fraction of masked tokens that become [MASK].", lower=0.0, upper=1.0)
    random_token_rate: float = _setting(
        0.1, "Fraction of masked tokens that become a random token; the rest is unchanged.", lower=0.0, upper=1.0
    )
    short_seq_prob: float = _setting(0.1, "Fraction of documents whose instances are shorter.", lower=0.0, upper=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_token_rate + self.random_token_rate > 1:
            raise ValueError(
                "mask_token_rate and random_token_rate must sum to at most 1, got "
                f"{self.mask_token_rate} and {self.random_token_rate}"
            )


@dataclass(frozen=True, kw_only=True)
class InstanceSettings(InstanceOptions):
    """Settings of instances from text. The defaults are those of google-research/bert `create_pretraining_data.py`."""

    sequence_length: int = _setting(
        128, "Maximum sequence length in tokens, [CLS] and [SEP] included.", lower=SHORTEST_SEQUENCE
    )
    max_predictions: int = _setting(20, "Maximum number of masked tokens per instance.", lower=1)
    seed: int = _setting(12345, "Seed of all random choices.")
    next_sentence: str = _setting(
        "nsp",
        "Second segments: next or random (nsp), next or swapped (sop), or none.",
        choices=NEXT_SENTENCE_TASKS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.next_sentence == "none" and not self.fill_to_length:
            raise ValueError('fill_to_length=False makes pairs of sentences, but next_sentence="none" has no pairs')

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of tokens without `[CLS]` and `[SEP]`."""
        return self.sequence_length - _NUM_SPECIAL_TOKENS[self.next_sentence]

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as a dict that can be written as JSON."""
        return dataclasses.asdict(self)
