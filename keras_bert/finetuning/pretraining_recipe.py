"""Recipe of a pre-training run: every setting that its result depends on, besides the data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from keras_bert.finetuning.recipe import PRECISIONS
from keras_bert.models.encoder import ENCODER_SIZES
from keras_bert.pretraining.instance_settings import NEXT_SENTENCE_TASKS
from keras_bert.pretraining.objectives import MASKED, OBJECTIVES
from keras_bert.settings import Settings, repeated_setting, setting
from keras_bert.training.schedule import DECAYS
from keras_bert.weights.hugging_face_writer import FLOAT_STORED_TYPES

_PHASE = re.compile(r"([1-9][0-9]*):([1-9][0-9]*):([1-9][0-9]*)")


@dataclass(frozen=True)
class Phase:
    """A part of a pre-training with one sequence length; `batch_size` counts the rows on all devices."""

    sequence_length: int
    steps: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe(Settings):
    """The model to pre-train, and training settings. The defaults are the paper's (arXiv 1810.04805, appendix A.2).

    `python -m tasks.pretrain --help` describes each setting: the program has a flag for each.

    Raises:
        TypeError, ValueError: if a setting has a value that is not allowed, or two contradict each other.

    Example:

    >>> keras_bert.PretrainingRecipe(size="tiny", phase=("128:9000:256", "512:1000:256")).phases[1].steps
    1000
    """

    size: str | None = setting(
        None, "A published model size; default: base.", choices=tuple(ENCODER_SIZES), recorded=False
    )
    bert_config_file: str | None = setting(
        None, "The model's size as a bert_config.json, instead of size.", recorded=False
    )
    init_checkpoint: str | None = setting(None, "Initial weights, and the model's size; default: random weights.")
    phase: tuple[str, ...] = repeated_setting(
        setting(
            ("128:900000:256", "512:100000:256"),
            "LENGTH:STEPS:ROWS, the rows per batch; repeat the flag for several phases.",
            check=(lambda text: bool(_PHASE.fullmatch(text)), "must be LENGTH:STEPS:ROWS, such as 128:900000:256"),
        )
    )
    objective: str = setting(MASKED, "Which words are predicted.", choices=OBJECTIVES)
    next_sentence: str = setting(
        NEXT_SENTENCE_TASKS[0],
        "Predict whether the second segment is next or random (nsp), in order or swapped (sop), or use single "
        "segments (none).",
        choices=NEXT_SENTENCE_TASKS,
    )
    pack: bool = setting(False, "Put several instances into a row, so that there is hardly any padding.")
    precision: str = setting("float32", "Dtype policy of the computation.", choices=PRECISIONS)
    learning_rate: float = setting(1e-4, "Peak learning rate.", lower=0.0)
    num_warmup_steps: int = setting(10_000, "Warmup steps, or all steps if there are fewer.", lower=0)
    schedule: str = setting("linear", "Decay of the learning rate over all phases; see WarmupSchedule.", choices=DECAYS)
    weight_decay: float = setting(0.01, "Decoupled weight decay.", lower=0.0)
    clip_norm: float = setting(1.0, "Maximum global norm of the gradients.", lower=1e-9)
    dropout: float | None = setting(
        None,
        "Dropout rate of hidden states and attention in pre-training only; default: the model's own.",
        lower=0.0,
        upper=0.999,
    )
    seed: int = setting(1, "Seed of new weights, dropout and data order.", lower=0)
    checkpoint_dtype: str = setting("float32", "Dtype of the weights in model/.", choices=FLOAT_STORED_TYPES)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("size", "bert_config_file", "init_checkpoint") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{given[0]} and {given[1]} both give the size of the model; give one of them")
        if not self.phase:
            raise ValueError("phase must have at least one LENGTH:STEPS:ROWS")

    @property
    def phases(self) -> list[Phase]:
        """The phases in order."""
        return [Phase(*map(int, text.split(":"))) for text in self.phase]
