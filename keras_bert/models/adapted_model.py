"""Text models whose encoder may have adapters of LoRA."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.inference import Predictor
from keras_bert.models.labelled_text_model import LabelledTextModel
from keras_bert.models.lora import (
    LORA_ARGUMENTS,
    check_lora_arguments,
    copy_merged,
    enable_lora,
    get_adapter,
    head_variables,
    set_adapter,
)
from keras_bert.typing import PathLike
from keras_bert.weights.peft_adapter import read_adapter, write_adapter


class AdaptedModel(LabelledTextModel):
    """A `LabelledTextModel` that merges, saves and loads adapters of LoRA; they are described at `BertHead`."""

    seed: int | None
    freeze: str | int
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] | None = None

    def _enable_lora(
        self,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        lora_dropout: float = 0.0,
        lora_targets: Sequence[str] | None = None,
    ) -> None:
        targets = check_lora_arguments(lora_rank, lora_alpha, lora_dropout, lora_targets)
        if lora_rank is None or targets is None:
            return
        if self.freeze != FREEZE_NONE:
            raise ValueError(f"LoRA freezes the encoder itself; leave freeze out, which is {self.freeze!r}")
        enable_lora(self.encoder, lora_rank, lora_alpha, lora_dropout, targets, self.seed)
        self.lora_rank, self.lora_alpha = lora_rank, lora_rank if lora_alpha is None else lora_alpha
        self.lora_dropout, self.lora_targets = lora_dropout, tuple(targets)

    def merge_adapter(self) -> Self:
        """Returns a copy of the model without LoRA, whose kernels contain the adapters; it has the same outputs.

        `export` and `save_checkpoint` merge by themselves.

        Raises:
            ValueError: if the model has no adapters.
        """
        self._require_lora("merge_adapter")
        return copy_merged(self)

    def save_adapter(self, path: PathLike, base_model: str | None = None) -> Path:
        """Writes the adapters and the head as a folder of Hugging Face's PEFT library; the encoder is left out.

        Args:
            path: folder to write.
            base_model: name or folder of the checkpoint that the training started from, for PEFT's `AutoPeftModel`.

        Returns:
            The folder.

        Raises:
            FileExistsError: if `path` exists.
            ValueError: if the model has no adapters.

        Example:

        >>> encoder = keras_bert.BertEncoder(6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> classifier = keras_bert.BertClassifier(encoder, labels=2, lora_rank=4, lora_targets=["query", "value"])
        >>> folder = classifier.save_adapter(Path(tempfile.mkdtemp()) / "adapter")
        >>> sorted(file.name for file in folder.iterdir())
        ['adapter_config.json', 'adapter_model.safetensors']
        """
        self._require_lora("save_adapter")
        kind, arguments = self.encoder.encoder_kind(), self.encoder.bert_encoders()[0].get_config()
        return write_adapter(path, get_adapter(self), kind, arguments, base_model)

    def load_adapter(self, path: PathLike) -> None:
        """Loads the adapters, and the head if the folder has one, from a folder of PEFT's library.

        A model without adapters gets those of the folder; do this before training, and in the scope of the model's
        strategy. Otherwise rank, `lora_alpha` and targets must be the same. The encoder must have the weights of the
        base model.

        Args:
            path: folder with `adapter_config.json` and `adapter_model.safetensors`.

        Raises:
            FileNotFoundError, ValueError: if the folder is missing, damaged, does not fit the model or its labels, or
                has settings that are not supported; the message names them. The model is then unchanged.
        """
        kind, arguments = self.encoder.encoder_kind(), self.encoder.bert_encoders()[0].get_config()
        shapes = {name: tuple(variable.shape) for name, variable in self.variables_by_path().items()}
        adapter = read_adapter(path, kind, arguments, shapes, head_variables(self))
        if self.lora_rank is None:
            if self.compiled and self.optimizer.built:
                raise ValueError(
                    "load the adapter before training: the optimizer was built for other variables. Compile the model "
                    "again with a new optimizer"
                )
            self._enable_lora(adapter.rank, adapter.alpha, adapter.dropout, adapter.targets)
            self._discard_functions()
        own = (self.lora_rank, self.lora_alpha, self.lora_targets)
        if own != (adapter.rank, adapter.alpha, adapter.targets):
            raise ValueError(
                f"{path} has adapters of rank {adapter.rank}, lora_alpha {adapter.alpha:g} and the targets "
                f"{', '.join(adapter.targets)}; the model has lora_rank={own[0]}, lora_alpha={own[1]} and lora_targets="
                f"{own[2]}. Load it into a model without LoRA"
            )
        set_adapter(self, adapter)

    def _discard_functions(self) -> None:
        """Discards compiled functions, which do not have the adapters."""
        self.train_function = self.test_function = self.predict_function = None
        self._predictor = Predictor()

    def _require_lora(self, method: str) -> None:
        if self.lora_rank is None:
            raise ValueError(f"`{method}` needs a model with adapters; make it with lora_rank=, or call `load_adapter`")

    def get_config(self) -> dict[str, Any]:
        lora = {name: getattr(self, name) for name in LORA_ARGUMENTS} if self.lora_rank is not None else {}
        return {**super().get_config(), **lora}
