"""The highest layers of a pre-trained encoder begun anew, which steadies fine-tuning on small sets."""

from keras_bert.layers.seeds import derive_seed


def reinitialize_top_blocks(encoder, number, seed=None):
    """Gives the pooler and the highest transformer blocks fresh random weights (arXiv 2006.05987, section 4).

    What they learned is close to the task of pre-training, and far from that of fine-tuning. The paper finds one to
    six of 24 blocks best, depending on the task.

    Args:
        encoder: a `BertEncoder`, or one made of such, of which each gets such weights of its own.
        number: int. How many blocks; 0 is the pooler alone.
        seed: int or None. Of the weights.

    Raises:
        ValueError: if the encoder has not that many, or one of them is frozen and could not learn anything anew.

    Example:

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> before = [block.weights[0].numpy() for block in encoder.transformer_blocks]
    >>> reinitialize_top_blocks(encoder, 1, seed=1)
    >>> pairs = zip(before, encoder.transformer_blocks)
    >>> [bool((kernel == block.weights[0].numpy()).all()) for kernel, block in pairs]
    [True, False]
    """
    for place, part in enumerate(encoder.bert_encoders()):
        _reinitialize_top_blocks(part, number, derive_seed(seed, f"encoder {place}") if place else seed)


def _reinitialize_top_blocks(encoder, number, seed):
    blocks = encoder.transformer_blocks
    if not 0 <= number <= len(blocks):
        raise ValueError(f"the encoder has {len(blocks)} blocks; {number} of them cannot begin anew")
    layers = [*blocks[len(blocks) - number :], *([encoder.pooler] if encoder.with_pooler else [])]
    frozen = [layer.name for layer in layers if not layer.trainable]
    if frozen:
        raise ValueError(f"{', '.join(frozen)} cannot begin anew and be frozen; choose fewer blocks for one of the two")
    for layer in layers:
        fresh = type(layer).from_config({**layer.get_config(), "seed": derive_seed(seed, layer.name)})
        fresh.build((None, None, encoder.hidden_size))
        for variable, value in zip(layer.weights, fresh.weights, strict=True):
            variable.assign(value)
