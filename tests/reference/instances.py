"""Next-sentence pairs as in the paper's appendix and the original program, on lists of tokens."""

from itertools import chain


def pairs_of_document(documents, number, longest, rng, short_rate):
    """Yields (first tokens, second tokens, is random) for each instance; a document is a list of lists of tokens.

    Draws the same numbers from `rng` as the original, in its order, except for masking.
    """
    waiting = list(documents[number])
    wanted = rng.randint(2, longest) if rng.random() < short_rate else longest
    while waiting:
        taken = take_sentences(waiting, wanted)
        in_first = rng.randint(1, len(taken) - 1) if len(taken) > 1 else 1
        first = joined(taken[:in_first])
        if len(taken) == 1 or rng.random() < 0.5:
            is_random, used = True, in_first
            second = random_sentences(documents, number, wanted - len(first), rng)
        else:
            is_random, used = False, len(taken)
            second = joined(taken[in_first:])
        shorten(first, second, longest, rng)
        yield first, second, is_random
        waiting = waiting[used:]


def take_sentences(sentences, wanted):
    """Takes the first sentences until they have the wanted number of tokens, at least one."""
    taken = []
    for sentence in sentences:
        taken.append(sentence)
        if sum(map(len, taken)) >= wanted:
            break
    return taken


def random_sentences(documents, number, wanted, rng):
    """Takes sentences from a random position of another document, if one is found in ten tries."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    begin = rng.randint(0, len(documents[other]) - 1)
    return joined(take_sentences(documents[other][begin:], wanted))


def shorten(first, second, longest, rng):
    """Removes tokens in place from the ends of the longer list, from the second on a tie."""
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)


def joined(sentences):
    return list(chain.from_iterable(sentences))
