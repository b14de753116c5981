"""The variants that the paper's tables compare: how each is pre-trained and fine-tuned."""

from dataclasses import dataclass

TABLES = ("pretraining_tasks", "model_size", "masking", "features")
PAPER_SIZES = ((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16))  # table 6
# Table 8: percent of the selected tokens that become [MASK], stay the same, and become a random token.
_MASKINGS = ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))
_FEATURES = {  # table 7
    "embeddings": "Embeddings",
    "second_to_last": "Second-to-last hidden",
    "last": "Last hidden",
    "weighted_sum_last_four": "Weighted sum of last four hidden",
    "concat_last_four": "Concatenation of last four hidden",
    "weighted_sum_all": "Weighted sum of all layers",
}


@dataclass(frozen=True)
class Variant:
    """A row of a table."""

    row: dict  # {column: cell} that describes the variant
    folder: str  # folder of its fine-tuning
    pretraining: str | None = None  # folder of its pre-training, which variants may share; None for no pre-training
    pretrain_flags: tuple[str, ...] = ()  # additional flags of `tasks.pretrain`
    size: tuple[int, int, int] | None = None  # layers, hidden size and heads; None to use --bert_config_file
    fine_tune_flags: tuple[str, ...] = ()  # additional flags of the fine-tuning programs


def list_variants(table, sizes=PAPER_SIZES, feature_flags=()):
    """Lists the variants of a table, one of `TABLES`, in the paper's order.

    `sizes`, tuples of layers, hidden size and attention heads, are for "model_size"; `feature_flags`, those of the
    variants with a frozen BERT, for "features".
    """
    if table == "pretraining_tasks":
        no_nsp, left_to_right = ("--next_sentence=none",), ("--objective=left_to_right", "--next_sentence=none")
        # The BiLSTM is added to the left-to-right model for fine-tuning; it is not pre-trained.
        bilstm = ("--encoder=left_to_right_bilstm",)
        return [
            Variant({"Pre-training": "BERT"}, "bert", "bert"),
            Variant({"Pre-training": "No NSP"}, "no_nsp", "no_nsp", no_nsp),
            Variant({"Pre-training": "LTR & no NSP"}, "left_to_right", "left_to_right", left_to_right),
            Variant(
                {"Pre-training": "+ BiLSTM"},
                "left_to_right_bilstm",
                "left_to_right",
                left_to_right,
                fine_tune_flags=bilstm,
            ),
        ]
    if table == "model_size":
        return [_make_size_variant(*size) for size in sizes]
    if table == "masking":
        return [_make_masking_variant(*percentages) for percentages in _MASKINGS]
    variants = [Variant({"Approach": "Fine-tuning"}, "fine_tuning")]
    for name, description in _FEATURES.items():
        given = (f"--encoder=features_{name}", *feature_flags)
        variants.append(Variant({"Approach": f"Features: {description}"}, name, fine_tune_flags=given))
    return variants


def _make_size_variant(num_layers, hidden_size, num_heads):
    name = f"{num_layers}x{hidden_size}x{num_heads}"
    size = (num_layers, hidden_size, num_heads)
    return Variant({"#L": num_layers, "#H": hidden_size, "#A": num_heads}, name, name, size=size)


def _make_masking_variant(mask, same, random):
    name = f"mask_{mask}_same_{same}_random_{random}"
    given = (f"--mask_token_rate={mask / 100}", f"--random_token_rate={random / 100}")
    return Variant({"Mask": f"{mask}%", "Same": f"{same}%", "Random": f"{random}%"}, name, name, given)
