"""Windows over a row of tokens, cut one by one."""


def windows_of(tokens, window_length, stride):
    """The windows of one row, as google-research/bert's run_squad.py makes its document spans."""
    windows, begin = [], 0
    while True:
        windows.append(tokens[begin : begin + window_length])
        if begin + window_length >= len(tokens):
            return windows
        begin += stride
