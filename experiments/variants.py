"""What the tables of the paper compare: how each variant is pre-trained and fine-tuned."""

from dataclasses import dataclass

TABLES = ("pretraining_tasks", "model_size", "masking", "features")
PAPER_SIZES = ((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16))  # table 6
# Table 8: the share of the masked tokens that become [MASK], that stay, and that become another one, in percent.
_MASKS = ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))
_MIXES = {  # table 7
    "embeddings": "Embeddings",
    "second_to_last": "Second-to-last hidden",
    "last": "Last hidden",
    "weighted_sum_last_four": "Weighted sum of last four hidden",
    "concat_last_four": "Concatenation of last four hidden",
    "weighted_sum_all": "Weighted sum of all layers",
}


@dataclass(frozen=True)
class Variant:
    """A row of a table.

    Args:
        row: dict of column to what stands there, which describes the variant.
        pretraining: str. The folder of its pre-training, which several variants may share; None where there is none.
        pretrain_flags: tuple of str, further flags of `tasks.pretrain`.
        size: tuple of blocks, width and heads; None is that of the configuration given.
        folder: str, of its fine-tuning.
        fine_tune_flags: tuple of str, further flags of the programs that fine-tune.
    """

    row: dict
    folder: str
    pretraining: str | None = None
    pretrain_flags: tuple[str, ...] = ()
    size: tuple[int, int, int] | None = None
    fine_tune_flags: tuple[str, ...] = ()


def variants_of(table, sizes=PAPER_SIZES, feature_flags=()):
    """The variants of a table, in the paper's order.

    Args:
        table: str, one of `TABLES`.
        sizes: for "model_size", tuple of tuples of blocks, width and heads.
        feature_flags: for "features", list of str: flags of those variants whose BERT does not learn.

    Returns:
        list of Variant.

    Raises:
        ValueError: if there is no such table.

    Example:

    >>> [variant.row["Pre-training"] for variant in variants_of("pretraining_tasks")]
    ['BERT', 'No NSP', 'LTR & no NSP', '+ BiLSTM']
    """
    if table == "pretraining_tasks":
        return _pretraining_tasks()
    if table == "model_size":
        return [_of_size(*size) for size in sizes]
    if table == "masking":
        return [_of_masks(*shares) for shares in _MASKS]
    if table == "features":
        return [
            Variant({"Approach": "Fine-tuning"}, "fine_tuning"),
            *(
                Variant({"Approach": f"Features: {name}"}, mix, fine_tune_flags=(f"--features={mix}", *feature_flags))
                for mix, name in _MIXES.items()
            ),
        ]
    raise ValueError(f"there is no table {table!r}; allowed are {', '.join(TABLES)}")


def _pretraining_tasks():
    """Table 5. The BiLSTM is put on top of what was pre-trained from left to right, not pre-trained itself."""
    no_nsp, left_to_right = ("--next_sentence=none",), ("--objective=left_to_right", "--next_sentence=none")
    return [
        Variant({"Pre-training": "BERT"}, "bert", "bert"),
        Variant({"Pre-training": "No NSP"}, "no_nsp", "no_nsp", no_nsp),
        Variant({"Pre-training": "LTR & no NSP"}, "left_to_right", "left_to_right", left_to_right),
        Variant(
            {"Pre-training": "+ BiLSTM"},
            "left_to_right_bilstm",
            "left_to_right",
            left_to_right,
            fine_tune_flags=("--encoder=left_to_right_bilstm",),
        ),
    ]


def _of_size(blocks, width, heads):
    name = f"{blocks}x{width}x{heads}"
    return Variant({"#L": blocks, "#H": width, "#A": heads}, name, name, size=(blocks, width, heads))


def _of_masks(mask, same, random):
    name = f"mask_{mask}_same_{same}_random_{random}"
    flags = (f"--mask_share={mask / 100}", f"--random_share={random / 100}")
    return Variant({"Mask": f"{mask}%", "Same": f"{same}%", "Random": f"{random}%"}, name, name, flags)
