"""Windows over a row of tokens, and which window gives a token the most context, one by one.

As google-research/bert's run_squad.py makes its document spans.
"""


def split_into_windows(tokens, window_length, stride):
    """Splits one row into windows."""
    windows, begin = [], 0
    while True:
        windows.append(tokens[begin : begin + window_length])
        if begin + window_length >= len(tokens):
            return windows
        begin += stride


def is_max_context(windows):
    """Marks each token of each window, (first token, length), of one context if no other window gives more context."""

    def score(window, token):
        first, length = window
        return min(token - first, first + length - 1 - token) + 0.01 * length

    def best(token):
        containing = [i for i, (first, length) in enumerate(windows) if first <= token < first + length]
        return max(containing, key=lambda i: score(windows[i], token))  # the first on a tie

    return [[best(first + i) == number for i in range(length)] for number, (first, length) in enumerate(windows)]
