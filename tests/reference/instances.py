"""Next-sentence pairs as in the paper's appendix and the original program, on lists of tokens."""

from itertools import chain


def pairs_of_document(documents, number, longest, rng, short_rate):
    """Yields (first tokens, second tokens, is random) for each instance; a document is a list of lists of tokens.

    Draws the same numbers from `rng` as the original, in its order, except for masking.
    """
    remaining = list(documents[number])
    target_length = rng.randint(2, longest) if rng.random() < short_rate else longest
    while remaining:
        chunk = take_sentences(remaining, target_length)
        num_first = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first = joined(chunk[:num_first])
        if len(chunk) == 1 or rng.random() < 0.5:
            is_random, used = True, num_first
            second = random_sentences(documents, number, target_length - len(first), rng)
        else:
            is_random, used = False, len(chunk)
            second = joined(chunk[num_first:])
        shorten(first, second, longest, rng)
        yield first, second, is_random
        remaining = remaining[used:]


def take_sentences(sentences, target_length):
    """Takes sentences from the start until they have the target length, at least one."""
    chunk = []
    for sentence in sentences:
        chunk.append(sentence)
        if sum(map(len, chunk)) >= target_length:
            break
    return chunk


def random_sentences(documents, number, target_length, rng):
    """Takes sentences from a random position of another document, if one is found in ten tries."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    begin = rng.randint(0, len(documents[other]) - 1)
    return joined(take_sentences(documents[other][begin:], target_length))


def shorten(first, second, longest, rng):
    """Removes tokens in place from the ends of the longer list, from the second on a tie."""
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)


def joined(sentences):
    return list(chain.from_iterable(sentences))
