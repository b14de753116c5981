"""Random numbers and masking, row by row in Python's own integers and lists."""

MODULUS = 2**64
ORDER, KIND, RANDOM_TOKEN = 0, 1, 2  # purposes of random numbers


def finalize(value):
    """Applies SplitMix64's finalizer."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % MODULUS
    return value ^ (value >> 31)


def random_bits(key, purpose, position):
    """Draws 64 random bits."""
    golden = 0x9E3779B97F4A7C15
    stream = finalize((finalize(key % MODULUS) + purpose * golden) % MODULUS)
    return finalize((stream + (position + 1) * golden) % MODULUS)


def integer_below(bits, limit):
    """Converts bits to an integer from 0 to limit - 1."""
    return (bits >> 32) * limit >> 32


def uniform_float(bits):
    """Converts bits to a number in [0, 1)."""
    return (bits >> 11) / 2**53


def find_words(tokens, padding_mask, whole_words):
    """Groups the positions that are masked together, as lists, in the row's order."""
    words = []
    for position, token in enumerate(tokens):
        if not padding_mask[position] or token in ("[CLS]", "[SEP]"):
            continue
        joins = whole_words and token.startswith("##") and words and words[-1][-1] == position - 1
        if joins:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def choose_positions(words, number, key, whole_words):
    """Chooses positions to mask, ascending: words in random order, without those that would exceed the number."""

    def order(index):
        # Whole words draw by their index in the row, single wordpieces by their position; the highest comes first.
        drawn = random_bits(key, ORDER, index if whole_words else words[index][0]) >> 1
        return -drawn, index

    chosen = []
    for index in sorted(range(len(words)), key=order):
        if len(chosen) + len(words[index]) <= number:
            chosen += words[index]
    return sorted(chosen)


def mask_row(
    token_ids,
    padding_mask,
    key,
    vocabulary,
    max_predictions,
    rate=0.15,
    whole_words=False,
    mask_token_rate=0.8,
    random_token_rate=0.1,
):
    """Masks one row of ids: a dict of lists, as `TokenMasker` names them."""
    tokens = [vocabulary[token_id] for token_id in token_ids]
    ids = {token: token_id for token_id, token in enumerate(vocabulary)}
    length = sum(padding_mask)
    number = min(max_predictions, max(1, round(rate * length)))
    positions = choose_positions(find_words(tokens, padding_mask, whole_words), number, key, whole_words)
    masked_ids = list(token_ids)
    for rank, position in enumerate(positions):
        kind = uniform_float(random_bits(key, KIND, rank))
        if kind < mask_token_rate:
            masked_ids[position] = ids["[MASK]"]
        elif kind < mask_token_rate + random_token_rate:
            distinct = list(ids)
            masked_ids[position] = ids[distinct[integer_below(random_bits(key, RANDOM_TOKEN, rank), len(distinct))]]
    padding = [0] * (max_predictions - len(positions))
    return {
        "token_ids": masked_ids,
        "masked_positions": positions + padding,
        "masked_labels": [token_ids[position] for position in positions] + padding,
        "masked_weights": [1.0] * len(positions) + [0.0] * len(padding),
    }
