"""Which part of an encoder training leaves as it is."""

FREEZE_NONE, FREEZE_EMBEDDINGS, FREEZE_ENCODER = "none", "embeddings", "encoder"


def freeze_layers(encoder, freeze):
    """Freezes layers of an encoder, for whoever else uses it, too.

    Args:
        encoder: a `BertEncoder`, or one made of such, which are all frozen alike; what it adds to them is not.
        freeze: "none", "embeddings", "encoder", or a number k: the embeddings and the lowest k blocks.

    Raises:
        ValueError: on anything else.

    Example:

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> freeze_layers(encoder, 1)
    >>> [layer.trainable for layer in (encoder.embeddings, *encoder.transformer_blocks)]
    [False, False, True]
    """
    for part in encoder.bert_encoders():
        _freeze_layers(part, freeze)


def _freeze_layers(encoder, freeze):
    blocks = encoder.num_hidden_layers
    if freeze == FREEZE_ENCODER:
        encoder.trainable = False
    elif freeze == FREEZE_EMBEDDINGS:
        encoder.embeddings.trainable = False
    elif isinstance(freeze, int) and not isinstance(freeze, bool) and 1 <= freeze <= blocks:
        for layer in (encoder.embeddings, *encoder.transformer_blocks[:freeze]):
            layer.trainable = False
    elif freeze != FREEZE_NONE:
        raise ValueError(
            f'freeze must be "none", "embeddings", "encoder" or a number of blocks from 1 to {blocks}; got {freeze!r}'
        )
