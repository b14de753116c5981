"""`convert_single_example` of google-research/bert's `run_classifier.py` for token ids, in slow, obvious Python."""


def truncate_pair(segment_a, segment_b, room):
    """Removes tokens in place from the end of the longer list, of b on a tie, until both fit."""
    while len(segment_a) + len(segment_b) > room:
        if len(segment_a) > len(segment_b):
            segment_a.pop()
        else:
            segment_b.pop()


def pack(segment_a, segment_b, cls_id, sep_id, pad_id, sequence_length):
    """Packs one row: lists token_ids, segment_ids and padding_mask."""
    segment_a, segment_b = list(segment_a), list(segment_b or [])
    if segment_b:
        truncate_pair(segment_a, segment_b, sequence_length - 3)
    else:
        del segment_a[sequence_length - 2 :]
    token_ids = [cls_id, *segment_a, sep_id]
    segment_ids = [0] * len(token_ids)
    if segment_b:
        token_ids += [*segment_b, sep_id]
        segment_ids += [1] * (len(segment_b) + 1)
    padding = sequence_length - len(token_ids)
    padding_mask = [1] * len(token_ids) + [0] * padding
    return token_ids + [pad_id] * padding, segment_ids + [0] * padding, padding_mask
