"""Answer spans of windows, found one by one."""


def find_answer_spans(windows, n_best, max_answer_length):
    """Sorts the spans of one question's windows, best first, as google-research/bert's run_squad.py does.

    `windows` are tuples (start logits, end logits, may start, may end) of lists; the result has tuples (window, start,
    end, start logit, end logit).
    """

    def best(logits):
        return sorted(range(len(logits)), key=lambda position: -logits[position])[:n_best]

    spans = [
        (number, start, end, start_logits[start], end_logits[end])
        for number, (start_logits, end_logits, may_start, may_end) in enumerate(windows)
        for start in best(start_logits)
        for end in best(end_logits)
        if may_start[start] and may_end[end] and start <= end < start + max_answer_length
    ]
    return sorted(spans, key=lambda span: -(span[3] + span[4]))
