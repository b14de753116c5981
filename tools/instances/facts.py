"""What made files of pre-training instances, for `tools.inspect_pretraining_data`."""

import json
import os

# `COUNTS_OF_TEXT` of keras_bert.pretraining.documents, whose import would make --help slow.
_COUNTS_OF_TEXT = ("documents", "one_sentence_documents", "tokens", "unknown_tokens")
COUNTED_FACTS = ("instances", *_COUNTS_OF_TEXT)
_OF_ONE_FILE = ("text", "shard", "copy", "bytes")
_FIRST_FACTS = ("mode", "vocabulary_sha256", "vocab_size", "lower_case", "strip_accents", "sequence_length")


def merge_facts(shards):
    """What made files of instances, from what stands beside them.

    Args:
        shards: list of `InstanceShard`.

    Returns:
        dict of name to the list of different values, or to their sum for what is counted; empty if nothing stands
        beside any of them. The text of a shard counts once, however many copies there are. What is of one file alone,
        such as the ranges of its text, is left out.
    """
    merged, counted = {}, set()
    for shard in shards:
        facts = shard.facts or {}
        text = os.path.dirname(shard.path), facts.get("shard", shard.path)
        left_out = _OF_ONE_FILE + (_COUNTS_OF_TEXT if text in counted else ())
        counted.add(text)
        for name in facts.keys() - set(left_out):
            if name in COUNTED_FACTS:
                merged[name] = merged.get(name, 0) + facts[name]
            elif facts[name] not in merged.setdefault(name, []):
                merged[name].append(facts[name])
    return dict(sorted(merged.items(), key=_place))


def _place(item):
    name, _ = item
    if name in COUNTED_FACTS:
        return 2, COUNTED_FACTS.index(name), name
    return (0, _FIRST_FACTS.index(name), name) if name in _FIRST_FACTS else (1, 0, name)


def describe_facts(shards):
    """What made files of instances, for a human.

    Args:
        shards: list of `InstanceShard`.

    Returns:
        list of str, lines.
    """
    lines = [f"{len(shards):,} file{'s' * (len(shards) > 1)} of instances, such as {shards[0].path}"]
    facts = merge_facts(shards)
    for name, value in facts.items():
        values = [f"{value:,}"] if name in COUNTED_FACTS else [json.dumps(each).strip('"') for each in value]
        lines.append(f"  {name:<24}{' and '.join(values)}")
    described = sum(shard.facts is not None for shard in shards)
    together = facts.get("shards", [])
    expected = [number * copies for number in together for copies in facts["copies"]]
    if len(expected) == 1 and expected[0] != described:
        lines.append(f"  these are {described:,} of the {expected[0]:,} files that were made together")
    unknown = [shard.path for shard in shards if shard.facts is None]
    if unknown:
        lines.append(
            f"  nothing beside {'it' if len(shards) == 1 else f'{len(unknown):,} of them'} says what made "
            f"{'it' if len(unknown) == 1 else 'them'}, such as {unknown[0]}: vocabulary, seed and rates are not known"
        )
    return lines
