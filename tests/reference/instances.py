"""Next sentence pairs as the paper's appendix and the original program describe them, on lists of tokens."""

from itertools import chain


def pairs_of_document(documents, number, longest, rng, short_rate):
    """(first tokens, second tokens, is random) of each instance; a document is a list of sentences, lists of tokens.

    Draws from `rng` what the original draws, in its order, but for masking.
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
    """The first sentences, as many as it takes to have the wanted number of tokens, but one at least."""
    taken = []
    for sentence in sentences:
        taken.append(sentence)
        if sum(map(len, taken)) >= wanted:
            break
    return taken


def random_sentences(documents, number, wanted, rng):
    """Tokens of sentences from some place of another document, if one is found in ten tries."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    begin = rng.randint(0, len(documents[other]) - 1)
    return joined(take_sentences(documents[other][begin:], wanted))


def shorten(first, second, longest, rng):
    """Removes tokens from the ends of the longer one, from the second if they are equally long, in place."""
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)


def joined(sentences):
    return list(chain.from_iterable(sentences))
