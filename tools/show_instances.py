"""Readable view of files of pre-training instances, for `tools.create_pretraining_data --show`."""

import random
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert.pretraining.record_reader import check_shards, describe_shards, read_first_instances
from keras_bert.text.tokenizer import BertTokenizer

_SAMPLE_SIZE = 10_000  # instances, the first ones of each file
_LABELS = {"nsp": ("next sentence", "actual", "random"), "sop": ("sentence order", "original", "swapped")}
_WIDTH = 100  # characters, where the output is not a terminal


def describe_instances(paths: Sequence[str], tokenizer: BertTokenizer, num_shown: int, seed: int) -> Iterator[str]:
    """Yields the lines of a report: some random instances, and averages over the first ones of each file."""
    description = describe_shards(paths)
    check_shards(description, tokenizer, description["sequence_length"])
    sidecar = description["sidecars"][0] or {}
    num_per_file = -(-_SAMPLE_SIZE // len(paths))
    batches = list(read_first_instances(paths, description, num_per_file).as_numpy_iterator())
    instances = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    rows, columns = np.nonzero(instances["masked_weights"] > 0)
    masked = rows, instances["masked_positions"][rows, columns]
    original = instances["token_ids"].copy()
    original[masked] = instances["masked_labels"][rows, columns]
    label_names = _LABELS.get(sidecar.get("next_sentence", "nsp"))

    num_instances = len(original)
    for row in sorted(random.Random(seed).sample(range(num_instances), min(num_shown, num_instances))):
        length = int(instances["padding_mask"][row].sum())
        tokens = [_printable(tokenizer.vocabulary[token_id]) for token_id in original[row, :length]]
        for position in masked[1][masked[0] == row]:
            now = _printable(tokenizer.vocabulary[instances["token_ids"][row, position]])
            tokens[position] = f"[{tokens[position]}→{now}]"
        is_second = instances["segment_ids"][row, :length] == 1
        label = f", {label_names[0]}: {label_names[1 + instances['next_sentence_labels'][row]]}" if label_names else ""
        yield f"instance {row + 1:,} of the sample: {length} tokens, {(masked[0] == row).sum()} masked{label}"
        for name, chosen in (("a: ", ~is_second), ("b: ", is_second)):
            yield from _wrap(name, [token for token, is_chosen in zip(tokens, chosen, strict=True) if is_chosen])
        yield ""
    yield from _summarize(paths, description, sidecar)
    yield from _average(instances, original, masked, tokenizer, label_names)


def _printable(token: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in token)


def _wrap(name: str, tokens: list[str]) -> list[str]:
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(" ".join(tokens), width, initial_indent=f"  {name}", subsequent_indent=" " * 5, **options)


def _summarize(paths: Sequence[str], description: dict[str, Any], sidecar: dict[str, Any]) -> Iterator[str]:
    number = "an unknown number of" if description["instances"] is None else f"{description['instances']:,}"
    yield f"{number} instances in {len(paths):,} files, such as {paths[0]}"
    left_out = {"instances", "text", "shard", "copy", "bytes", "documents", "one_sentence_documents", "tokens"}
    settings = {**description, **sidecar}
    del settings["sidecars"]
    shown = (f"{name}={value}" for name, value in settings.items() if name not in {*left_out, "unknown_tokens"})
    yield from textwrap.wrap(", ".join(shown), _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _average(
    instances: dict[str, np.ndarray],
    original: np.ndarray,
    masked: tuple[np.ndarray, np.ndarray],
    tokenizer: BertTokenizer,
    label_names: tuple[str, ...] | None,
) -> Iterator[str]:
    num_instances, sequence_length = original.shape
    num_tokens = int(instances["padding_mask"].sum())
    now, labels = instances["token_ids"][masked], original[masked]
    is_kept = now == labels
    is_mask = ~is_kept & (now == tokenizer.mask_id)
    fractions = [values.mean() if len(values) else 0.0 for values in (is_mask, ~is_kept & ~is_mask, is_kept)]
    num_unknown = int(((original == tokenizer.unk_id) & (instances["padding_mask"] == 1)).sum())
    yield f"averages over {num_instances:,} instances, the first ones of each file:"
    mean_length = num_tokens / num_instances
    yield f"  tokens         {mean_length:.1f} of {sequence_length} ({1 - mean_length / sequence_length:.1%} padding)"
    yield f"  masked tokens  {len(now) / num_instances:.1f} ({len(now) / num_tokens:.1%} of all tokens)"
    yield "  replaced by    [MASK] {:.1%}, another token {:.1%}, unchanged {:.1%}".format(*fractions)
    yield f"  unknown        {num_unknown / num_tokens:.2%} of all tokens"
    if label_names:
        rate = instances["next_sentence_labels"].mean()
        yield f"  {label_names[0]:<15}{label_names[1]} {1 - rate:.1%}, {label_names[2]} {rate:.1%}"
