"""What made files of pre-training instances, for `tools.inspect_pretraining_data`."""

import json

COUNTED_FACTS = ("instances", "documents", "one_sentence_documents", "tokens")  # of one file; others are of all
_FIRST_FACTS = ("mode", "vocabulary_sha256", "vocab_size", "lower_case", "strip_accents", "sequence_length")


def merge_facts(shards):
    """What made files of instances, from what stands beside them.

    Args:
        shards: list of `InstanceShard`.

    Returns:
        dict of name to the list of different values, or to their sum for what is counted; empty if nothing stands
        beside any of them. The ranges of text that made each shard are left out.
    """
    merged = {}
    for facts in (shard.facts for shard in shards if shard.facts is not None):
        for name, value in facts.items():
            if name in COUNTED_FACTS:
                merged[name] = merged.get(name, 0) + value
            elif name != "text" and value not in merged.setdefault(name, []):
                merged[name].append(value)
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
    expected = facts.get("shards", [])
    described = sum(shard.facts is not None for shard in shards)
    if len(expected) == 1 and expected[0] != described:
        lines.append(f"  these are {described:,} of the {expected[0]:,} shards that were made together")
    unknown = [shard.path for shard in shards if shard.facts is None]
    if unknown:
        lines.append(
            f"  nothing beside {'it' if len(shards) == 1 else f'{len(unknown):,} of them'} says what made "
            f"{'it' if len(unknown) == 1 else 'them'}, such as {unknown[0]}: vocabulary, seed and rates are not known"
        )
    return lines
