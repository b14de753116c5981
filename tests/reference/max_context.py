"""Which window gives a token most context, found one token after the other."""


def is_max_context(windows):
    """For every token of every window of one context, whether no other window has more around it.

    Args:
        windows: list of (first token, length).

    Returns:
        list of lists of bool, as google-research/bert's run_squad.py decides.
    """

    def score(window, token):
        first, length = window
        return min(token - first, first + length - 1 - token) + 0.01 * length

    def best(token):
        holding = [i for i, (first, length) in enumerate(windows) if first <= token < first + length]
        return max(holding, key=lambda i: score(windows[i], token))  # the first of equals

    return [[best(first + i) == number for i in range(length)] for number, (first, length) in enumerate(windows)]
