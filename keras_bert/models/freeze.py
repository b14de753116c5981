"""Freezes and re-initializes layers of an encoder before fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_bert.layers.seeds import derive_seed

if TYPE_CHECKING:
    from keras_bert.models.encoder import BertEncoder

FREEZE_NONE, FREEZE_EMBEDDINGS, FREEZE_ENCODER = "none", "embeddings", "encoder"


def freeze_layers(encoder: Any, freeze: str | int) -> None:
    """Freezes layers of every `BertEncoder` of an encoder, also for other models that share it.

    `freeze` is "none", "embeddings", "encoder", or a number k: the embeddings and the lowest k blocks.

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> freeze_layers(encoder, 1)
    >>> [layer.trainable for layer in (encoder.embeddings, *encoder.transformer_blocks)]
    [False, False, True]
    """
    for bert in encoder.bert_encoders():
        blocks = bert.num_hidden_layers
        if freeze == FREEZE_ENCODER:
            bert.trainable = False
        elif freeze == FREEZE_EMBEDDINGS:
            bert.embeddings.trainable = False
        elif isinstance(freeze, int) and not isinstance(freeze, bool) and 1 <= freeze <= blocks:
            for layer in (bert.embeddings, *bert.transformer_blocks[:freeze]):
                layer.trainable = False
        elif freeze != FREEZE_NONE:
            raise ValueError(
                f'freeze must be "none", "embeddings", "encoder" or a number of blocks from 1 to {blocks}; '
                f"got {freeze!r}"
            )


def reinitialize_top_blocks(encoder: Any, num_blocks: int, seed: int | None = None) -> None:
    """Re-initializes the pooler and the top transformer blocks (arXiv 2006.05987, section 4).

    They are specialized to pre-training; new weights stabilize fine-tuning on small data sets. The paper finds 1 to 6
    of 24 blocks best, depending on the task. With 0 blocks, only the pooler is re-initialized. If an encoder has
    several BERTs, each gets different weights. Raises ValueError if the encoder has fewer blocks, or one of them is
    frozen.

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> before = [block.weights[0].numpy() for block in encoder.transformer_blocks]
    >>> reinitialize_top_blocks(encoder, 1, seed=1)
    >>> pairs = zip(before, encoder.transformer_blocks)
    >>> [bool((kernel == block.weights[0].numpy()).all()) for kernel, block in pairs]
    [True, False]
    """
    for index, bert in enumerate(encoder.bert_encoders()):
        _reinitialize_bert(bert, num_blocks, derive_seed(seed, f"encoder {index}") if index else seed)


def _reinitialize_bert(encoder: BertEncoder, num_blocks: int, seed: int | None) -> None:
    blocks = encoder.transformer_blocks
    if not 0 <= num_blocks <= len(blocks):
        raise ValueError(f"the encoder has {len(blocks)} blocks; {num_blocks} of them cannot be re-initialized")
    layers: list[Any] = [*blocks[len(blocks) - num_blocks :], *([encoder.pooler] if encoder.with_pooler else [])]
    frozen = [layer.name for layer in layers if not all(weight.trainable for weight in layer.weights)]
    if frozen:
        raise ValueError(
            f"{', '.join(frozen)} cannot be both frozen and re-initialized; freeze or re-initialize fewer blocks"
        )
    for layer in layers:
        fresh = type(layer).from_config({**layer.get_config(), "seed": derive_seed(seed, layer.name)})
        fresh.build((None, None, encoder.hidden_size))
        for variable, value in zip(layer.weights, fresh.weights, strict=True):
            variable.assign(value)
