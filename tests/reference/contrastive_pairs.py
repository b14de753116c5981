"""SetFit's pairs of labelled texts, one by one."""

import itertools


def all_pairs(texts, labels):
    """Returns the pairs with equal and those with different labels, each a sorted tuple; a text pairs with itself."""
    kinds = {True: [], False: []}
    for (a, label_a), (b, label_b) in itertools.combinations_with_replacement(zip(texts, labels, strict=True), 2):
        kinds[label_a == label_b].append(tuple(sorted((a, b))))
    return kinds[True], kinds[False]
