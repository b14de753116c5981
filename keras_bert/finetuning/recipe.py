"""Recipe of a fine-tuning run: every setting that its result depends on."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from keras_bert.data.batching import BUCKET_STEP
from keras_bert.models.freeze import FREEZE_EMBEDDINGS, FREEZE_ENCODER, FREEZE_NONE
from keras_bert.models.lora import check_lora_arguments
from keras_bert.settings import Settings, setting
from keras_bert.training.schedule import DECAYS
from keras_bert.weights.conversion import ENCODERS
from keras_bert.weights.encoder_kinds import TWO_DIRECTIONS
from keras_bert.weights.peft_adapter import TARGETS

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_BATCH_SIZE = 32  # paper, appendix A.3
_POSITIVE = (lambda value: value > 0, "must be a positive number")

_training = functools.partial(setting, modes=("train",))


def _is_freeze(value: int | str) -> bool:
    return value > 0 if isinstance(value, int) else value in (FREEZE_NONE, FREEZE_EMBEDDINGS, FREEZE_ENCODER)


@dataclass(frozen=True, kw_only=True)
class FineTuningRecipe(Settings):
    """Settings that determine the result of fine-tuning. The defaults are the paper's (arXiv 1810.04805, appendix A.3).

    `python -m tasks.glue --help` describes each setting: the programs have a flag for each.

    Raises:
        TypeError, ValueError: if a setting has a value that is not allowed, or two contradict each other.

    Example:

    >>> recipe = keras_bert.FineTuningRecipe(init_checkpoint="bert_tiny_novels", learning_rate=(5e-5, 3e-5))
    >>> recipe.batch_size, recipe.learning_rates, recipe.seeds
    (32, (5e-05, 3e-05), (1,))
    >>> keras_bert.FineTuningRecipe(epochs=0)
    Traceback (most recent call last):
    ValueError: epochs must be a positive number, got 0.0
    """

    init_checkpoint: str | None = setting(
        None, "Initial weights: a checkpoint (file or folder), the folder of another run, or the name of a preset."
    )
    init_checkpoint_right_to_left: str | None = _training(
        None,
        "With encoder=two_directions: the weights of the right-to-left encoder, init_checkpoint being those of the "
        "other. Default: the same checkpoint, if it was trained in both directions.",
    )
    encoder: str | None = setting(
        None,
        "Load the checkpoint's weights into another encoder of the paper (sections 5.1 and 5.3). features_* is a "
        "frozen BERT with two new BiLSTMs on that pooling of its layers, which need a higher learning rate such as "
        "1e-3. Default: the checkpoint's own encoder.",
        choices=ENCODERS,
    )
    max_seq_length: int = setting(128, "Maximum sequence length in tokens.", lower=3)
    freeze: int | str = _training(
        FREEZE_NONE,
        "Layers that are not trained: none, embeddings, encoder, or a number of bottom layers.",
        check=(_is_freeze, "must be none, embeddings, encoder, or a positive number of layers"),
    )
    lora_rank: int | None = _training(
        None,
        "Train low-rank adapters of this rank (LoRA) and the head in place of the encoder; default: no adapters.",
        lower=1,
    )
    lora_alpha: float | None = _training(
        None, "With lora_rank: scale of the adapters, times the rank; default: the rank, a scale of 1.", check=_POSITIVE
    )
    lora_dropout: float = _training(
        0.0, "With lora_rank: rate of the dropout on the input of the adapters.", lower=0.0, upper=0.999
    )
    lora_targets: tuple[str, ...] | None = _training(
        None,
        "With lora_rank: the dense layers with adapters, comma-separated; default: all but the pooler.",
        choices=tuple(TARGETS),
    )
    dropout: float | None = _training(
        None, "Dropout rate before the new head; default: 0.1, where the head has dropout.", lower=0.0, upper=0.999
    )
    precision: str = setting("float32", "Dtype policy of the computation.", choices=PRECISIONS)
    epochs: float = _training(3.0, "Passes over the training examples.", check=_POSITIVE)
    batch_size: int | None = _training(
        None, "Examples per batch, over all devices; default: 32, or no limit with token_budget.", lower=1
    )
    token_budget: int | None = _training(
        None, "Maximum number of tokens per batch, padding included; the number of examples varies.", lower=1
    )
    bucket_step: int = _training(
        BUCKET_STEP,
        "Width of the length buckets in tokens; 0 takes batches as they come, as the original does.",
        lower=0,
    )
    static_shapes: bool | None = _training(
        None, "Pad all batches to one shape, which XLA compiles once; default: only on a TPU."
    )
    learning_rate: float | tuple[float, ...] = _training(
        5e-5,
        "Peak learning rate. Several, comma-separated, are all tried, and the best on the first evaluation split is "
        "kept.",
        check=_POSITIVE,
    )
    num_seeds: int = _training(
        1, "Number of runs per learning rate, with seeds `seed`, `seed + 1`, ...; the best is kept.", lower=1
    )
    seed: int = _training(1, "Seed of new weights, dropout, data order and of held-out examples.", lower=0)
    schedule: str = _training("bert", "Decay of the learning rate; see WarmupSchedule.", choices=DECAYS)
    warmup_proportion: float = _training(0.1, "Fraction of training steps used for warmup.", lower=0.0, upper=1.0)
    weight_decay: float = _training(0.01, "Decoupled weight decay.", lower=0.0)
    clip_norm: float = _training(1.0, "Maximum global norm of the gradients.", check=_POSITIVE)
    bias_correction: bool | None = _training(
        None, "Adam's bias correction, which the original lacks; default: on with fewer than 10,000 examples."
    )
    layer_decay: float = _training(
        1.0, "Learning rate of a layer relative to the layer above it.", lower=1e-9, upper=1.0
    )
    reinitialize_top_layers: int | None = _training(
        None, "Number of top layers to re-initialize, pooler included (0: only the pooler); default: none.", lower=0
    )
    evaluate_every: int | None = _training(
        None, "Training steps between evaluations; default: once per epoch.", lower=1
    )
    patience: int | None = _training(None, "Stop after this many evaluations in a row without a better score.", lower=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is None and self.token_budget is None:
            object.__setattr__(self, "batch_size", _BATCH_SIZE)
        if self.token_budget is not None and not self.bucket_step:
            raise ValueError("token_budget needs length buckets: bucket_step must be at least 1")
        if not self.learning_rates or len(set(self.learning_rates)) < len(self.learning_rates):
            raise ValueError(f"learning_rate must be one or several different numbers, got {self.learning_rate}")
        if self.init_checkpoint_right_to_left is not None and self.encoder != TWO_DIRECTIONS:
            raise ValueError("init_checkpoint_right_to_left is for encoder=two_directions only")
        check_lora_arguments(self.lora_rank, self.lora_alpha, self.lora_dropout, self.lora_targets)
        if self.lora_rank is not None and self.freeze != FREEZE_NONE:
            raise ValueError(f"freeze={self.freeze} has no effect with lora_rank, which freezes the encoder")
        if self.lora_rank is not None and self.reinitialize_top_layers is not None:
            raise ValueError("reinitialize_top_layers cannot be used with lora_rank: those layers would not be trained")

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """All learning rates that are tried."""
        return self.learning_rate if isinstance(self.learning_rate, tuple) else (self.learning_rate,)

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds that each learning rate is tried with."""
        return tuple(range(self.seed, self.seed + self.num_seeds))

    def trials(self) -> list[FineTuningRecipe]:
        """Returns a recipe for each combination of learning rate and seed."""
        return [
            replace(self, learning_rate=rate, seed=seed, num_seeds=1)
            for rate in self.learning_rates
            for seed in self.seeds
        ]
