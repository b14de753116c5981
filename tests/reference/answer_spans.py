"""The spans of windows that may answer a question, found one by one."""


def spans_of(windows, n_best, max_answer_length):
    """The spans of one question's windows, the best first.

    Args:
        windows: list of (start logits, end logits, may start, may end), lists of one length.
        n_best: int, the starts and ends of a window that are looked at.
        max_answer_length: int.

    Returns:
        list of (window, start, end, start logit, end logit), as google-research/bert's run_squad.py has them.
    """

    def best(logits):
        return sorted(range(len(logits)), key=lambda place: -logits[place])[:n_best]

    spans = [
        (number, start, end, start_logits[start], end_logits[end])
        for number, (start_logits, end_logits, may_start, may_end) in enumerate(windows)
        for start in best(start_logits)
        for end in best(end_logits)
        if may_start[start] and may_end[end] and start <= end < start + max_answer_length
    ]
    return sorted(spans, key=lambda span: -(span[3] + span[4]))
