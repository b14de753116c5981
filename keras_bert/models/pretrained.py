"""Moves weights between models and checkpoint folders, and loads the tokenizer of a checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from absl import logging

from keras_bert.layers.dense import Dense
from keras_bert.typing import PathLike
from keras_bert.weights.assignment_report import AssignmentReport, report_assignment
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import encoder_name
from keras_bert.weights.encoder_kinds import BERT, EncoderKind
from keras_bert.weights.google_bert_writer import write_google_bert
from keras_bert.weights.hub import check_repository, push_folder
from keras_bert.weights.hugging_face_tokenizer import TokenizerSettings
from keras_bert.weights.hugging_face_writer import write_hugging_face
from keras_bert.weights.keras_hub_writer import write_keras_hub
from keras_bert.weights.model_card import write_model_card
from keras_bert.weights.preset_names import find_repository, resolve_preset
from keras_bert.weights.sentence_transformers import EmbeddingSettings, read_embedding_settings

if TYPE_CHECKING:
    from keras_bert.text.tokenizer import BertTokenizer

# Writers by the name of their format. All take the arguments of `write_hugging_face`, and refuse those that their
# format cannot hold (ValueError) before they write anything.
WRITERS: dict[str, Callable[..., Path]] = {
    "hugging_face": write_hugging_face,
    "google": write_google_bert,
    "keras_hub": write_keras_hub,
}


class FromPreset:
    """Adds `from_preset` and `push_to_hub` to a model that has `from_checkpoint` and `save_checkpoint`."""

    @classmethod
    def from_checkpoint(cls, path: PathLike, **kwargs: Any) -> Self:
        """Creates a model with the weights of a checkpoint."""
        raise NotImplementedError

    @classmethod
    def from_preset(cls, name: PathLike, **kwargs: Any) -> Self:
        """Creates a model with the weights of a published model: `from_checkpoint` of its folder.

        What is on the Hugging Face Hub is downloaded to the cache of `huggingface_hub`, with a progress bar, and only
        the files that are needed; later calls make no request. A branch or tag stays at the commit that was downloaded
        first.

        Args:
            name: the name of a preset, one of `keras_bert.list_presets()`; `hf://owner/name` or
                `hf://owner/name@revision` for any BERT on the Hugging Face Hub, where the revision is a branch, tag or
                commit; or the path of a folder.
            **kwargs: as for `from_checkpoint`.

        Returns:
            A model of this class.

        Raises:
            ValueError: if the name is unknown, the model is not a BERT, or a file is corrupt.
            FileNotFoundError: if there is no such model, revision or file, or its package is not installed.
            PermissionError: if the model is gated or private; the message says how to get access.
            ConnectionError: if the hub cannot be reached, or the download broke off.
        """
        return cls.from_checkpoint(resolve_preset(name), **kwargs)

    def push_to_hub(
        self,
        repository: str,
        card: Mapping[str, Any] | None = None,
        private: bool | None = None,
        message: str = "Upload a BERT of keras_bert",
        create_pull_request: bool = False,
        **save_arguments: Any,
    ) -> str:
        """Uploads the files of `save_checkpoint` and a model card to the Hugging Face Hub, in one commit.

        Log in first, with `hf auth login` or the environment variable HF_TOKEN.

        Args:
            repository: `owner/name`; a repository that does not exist is created.
            card: fields of `keras_bert.weights.model_card.ModelCard`, for example `license`, `language`, `base_model`,
                `datasets`, `data`, `recipe`, `scores` and `limits`, which are added to what the files state.
            private: whether a repository that is created is private; None means the default of the owner.
            message: title of the commit.
            create_pull_request: whether to propose the commit instead of making it.
            **save_arguments: arguments of `save_checkpoint`, such as `dtype` or `tokenizer`.

        Returns:
            The address of the commit, or of the pull request.

        Raises:
            ValueError: if the name is not one of a repository, or as `save_checkpoint`.
            TypeError: if the card has an unknown field.
            PermissionError: if the user is not logged in, or may not write to the repository.
            ConnectionError: if the hub cannot be reached.
        """
        check_repository(repository)
        with tempfile.TemporaryDirectory() as parent:
            folder = self.save_checkpoint(Path(parent) / "model", **save_arguments)  # type: ignore[attr-defined]
            fields = {"base_model": self._base_model(), **(card or {})}
            write_model_card(folder, repository, model_class=type(self).__name__, **fields)
            return push_folder(folder, repository, private, message, create_pull_request)

    def _base_model(self) -> str:
        """Returns the repository on the hub that the initial weights are from; empty if unknown."""
        report = getattr(self, "checkpoint_report", None)
        return "" if report is None else find_repository(report.path.parent) or ""


def read_bert(path: PathLike, allow_nonfinite: bool = False) -> Checkpoint:
    """Reads a checkpoint whose encoder is a single BERT; raises ValueError for other encoders."""
    checkpoint = read_checkpoint(path, allow_nonfinite)
    if checkpoint.encoder_kind.family != BERT:
        raise ValueError(
            f"{path} has the encoder {encoder_name(checkpoint)!r}, which is not a BertEncoder; load it with "
            "`from_checkpoint` of the model class that saved it, such as BertClassifier"
        )
    return checkpoint


def load_tokenizer(
    checkpoint: Checkpoint, vocabulary: PathLike | Sequence[str] | None = None, lower_case: bool | None = None
) -> BertTokenizer:
    """Creates the tokenizer that a checkpoint was trained with.

    `vocabulary` replaces the checkpoint's `vocab.txt`. A `lower_case` of None is read from the checkpoint, or inferred
    from the vocabulary; a contradiction is a ValueError.
    """
    from keras_bert.text.tokenizer import BertTokenizer, choose_case

    vocabulary = vocabulary if vocabulary is not None else checkpoint.vocabulary
    if vocabulary is None:
        raise ValueError(f"{checkpoint.path} has no vocabulary; pass vocabulary=, a file or a list of wordpieces")
    lower_case = choose_case(vocabulary, lower_case, checkpoint.lower_case, checkpoint.path)
    limits: dict[str, Any] = {"max_characters_per_word": checkpoint.max_characters_per_word}
    if checkpoint.max_characters_per_word is None:
        limits = {}
    try:
        return BertTokenizer(vocabulary, lower_case, checkpoint.strip_accents, **limits)
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: its vocabulary cannot be used. {error!s:.500}") from error


def assign_arrays(variables: Mapping[str, keras.Variable], checkpoint: Checkpoint) -> AssignmentReport:
    """Assigns a checkpoint's arrays to variables by path; nothing is assigned if a shape differs (ValueError)."""
    report = report_assignment(checkpoint, {path: tuple(variable.shape) for path, variable in variables.items()})
    for path in report.read:
        variables[path].assign(checkpoint.arrays[path])
    logging.info("%s", report)
    return report


def relative_variables(model: keras.Model, prefix: str = "") -> dict[str, keras.Variable]:
    """Returns the weights of a model by their path below the model's own name, in the order of creation.

    Adapters of LoRA are left out: they are not part of a checkpoint; see `merged_arrays`.

    >>> model = keras.Sequential([keras.layers.Dense(2, name="logits")], name="mine")
    >>> model.build((None, 3))
    >>> list(relative_variables(model, "head/"))
    ['head/logits/kernel', 'head/logits/bias']
    """
    weights = (weight for weight in model.weights if not weight.name.startswith("lora_kernel_"))
    return {prefix + weight.path.removeprefix(f"{model.name}/"): weight for weight in weights}


def merged_arrays(model: keras.Model, variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Returns the values of a model's variables by path, with adapters of LoRA added to their kernels."""
    layers = (layer for layer in model._flatten_layers() if isinstance(layer, Dense) and layer.lora_enabled)
    merged = {id(layer.kernel): layer for layer in layers}
    return {
        path: merged[id(variable)].merged_kernel() if id(variable) in merged else np.asarray(variable)
        for path, variable in variables.items()
    }


def write_checkpoint(
    path: PathLike,
    encoder: Any,
    arrays: Mapping[str, np.ndarray],
    tokenizer: BertTokenizer | None = None,
    head: Mapping[str, Any] | EmbeddingSettings | None = None,
    dtype: str = "float32",
    encoder_arguments: Mapping[str, Any] | None = None,
    format: str = "hugging_face",
) -> Path:
    """Writes a model in one of the formats of `WRITERS`; raises ValueError for another.

    `arrays` are the variables of the whole model by path, the encoder's under `encoder/`. `encoder_arguments` replace
    those of the encoder in the configuration. `head` is the `classifier_arguments` of a checkpoint, or settings of a
    model of embeddings, which only a Hugging Face folder holds. Only keras_bert can read the folder if the encoder is
    not a bidirectional BERT.
    """
    arguments = {**encoder.bert_encoders()[0].get_config(), **(encoder_arguments or {})}
    return _write(path, format, tokenizer, head, arguments, arrays, dtype, encoder.encoder_kind())


def convert_checkpoint(source: PathLike, path: PathLike, format: str = "hugging_face", dtype: str = "float32") -> Path:
    """Converts a checkpoint, with its heads and its tokenizer, to another format; its weights are copied.

    `source` is what `from_preset` takes; `path` must not exist. Raises ValueError for what the format cannot hold.
    """
    checkpoint = read_checkpoint(resolve_preset(source))
    head: Mapping[str, Any] | EmbeddingSettings | None = checkpoint.classifier_arguments
    if head is None and format == "hugging_face":
        head = read_embedding_settings(checkpoint.path.parent, checkpoint.encoder_arguments["hidden_size"])
    tokenizer = None if checkpoint.vocabulary is None else load_tokenizer(checkpoint)
    arguments, kind = checkpoint.encoder_arguments, checkpoint.encoder_kind
    return _write(path, format, tokenizer, head, arguments, checkpoint.arrays, dtype, kind)


def tokenizer_settings(tokenizer: BertTokenizer) -> TokenizerSettings:
    """Returns the settings of `tokenizer` that its files hold."""
    return TokenizerSettings(
        tokenizer.vocabulary, tokenizer.lower_case, tokenizer.strip_accents, tokenizer.max_characters_per_word
    )


def _write(
    path: PathLike,
    format: str,
    tokenizer: BertTokenizer | None,
    head: Mapping[str, Any] | EmbeddingSettings | None,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    dtype: str,
    kind: EncoderKind,
) -> Path:
    if format not in WRITERS:
        raise ValueError(f"format must be one of {list(WRITERS)}; got {format!r}")
    settings = None if tokenizer is None else tokenizer_settings(tokenizer)
    if isinstance(head, EmbeddingSettings):
        embedding = {"embedding": head} if format == "hugging_face" else {}
        return WRITERS[format](path, arguments, arrays, None, settings, dtype, kind, **embedding)
    return WRITERS[format](path, arguments, arrays, head, settings, dtype, kind)
