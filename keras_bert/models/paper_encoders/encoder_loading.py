"""Loads a checkpoint into its own kind of encoder, or into another one."""

from typing import Any

from keras_bert.layers.attention_mask import LEFT_TO_RIGHT, RIGHT_TO_LEFT
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.composed_encoder import ComposedEncoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from keras_bert.typing import PathLike
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.conversion import convert_encoder
from keras_bert.weights.encoder_kinds import BERT, BILSTM, EncoderKind


def read_encoder(
    path: PathLike,
    encoder: str | None = None,
    right_to_left: PathLike | None = None,
    seed: int | None = None,
    allow_nonfinite: bool = False,
    **encoder_arguments: Any,
) -> tuple[Checkpoint, BertEncoder | ComposedEncoder]:
    """Reads a checkpoint and creates an encoder for its weights, which are not assigned yet.

    `encoder=None` keeps the checkpoint's own encoder. Otherwise a BERT is converted to "left_to_right",
    "left_to_right_bilstm" or "two_directions" (paper, section 5.1), or to features, such as "features_concat_last_four"
    (section 5.3); see `keras_bert.weights.conversion.ENCODERS`. For "two_directions", `path` is the checkpoint of the
    left-to-right encoder and `right_to_left` that of the other one. `encoder_arguments` replace the checkpoint's.
    `allow_nonfinite` is as for `read_checkpoint`.
    """
    checkpoint = read_checkpoint(path, allow_nonfinite)
    if encoder is not None:
        other = None if right_to_left is None else read_checkpoint(right_to_left, allow_nonfinite)
        checkpoint = convert_encoder(checkpoint, encoder, other)
    elif right_to_left is not None:
        raise ValueError('right_to_left is a second checkpoint for encoder="two_directions"; pass both or neither')
    arguments = {"seed": seed, **checkpoint.encoder_arguments, **encoder_arguments}
    return checkpoint, _create_encoder(checkpoint.encoder_kind, arguments)


def _create_encoder(kind: EncoderKind, arguments: dict[str, Any]) -> BertEncoder | ComposedEncoder:
    if kind.family == BERT:
        return BertEncoder(**arguments)
    seed = arguments["seed"]
    if kind.family == BILSTM:
        with_pooler, lstms = arguments.pop("with_pooler", True), (kind.bilstm_units, kind.bilstm_layers, kind.features)
        bert = BertEncoder(**arguments, with_pooler=False)
        return BiLstmEncoder(bert, *lstms, with_pooler, derive_seed(seed, BILSTM))

    def one_direction(direction: str) -> BertEncoder:
        own = {"attention_direction": direction, "seed": derive_seed(seed, direction), "name": direction}
        return BertEncoder(**{**arguments, **own})

    return TwoDirectionEncoder(one_direction(LEFT_TO_RIGHT), one_direction(RIGHT_TO_LEFT))


def get_encoder_kind(encoder: BertEncoder | ComposedEncoder) -> str:
    """Returns the name of an encoder as `read_encoder` takes it, or "bidirectional".

    >>> get_encoder_kind(keras_bert.BertEncoder(9, 8, num_hidden_layers=1, num_attention_heads=2))
    'bidirectional'
    """
    return encoder.encoder_kind().name(encoder.bert_encoders()[0].get_config())
