"""Batching by length bucket, one example at a time."""


def cut_into_batches(lengths, batch_size, token_budget, bucket_step):
    """Splits the lengths of an epoch's examples into batches: a list of lists of lengths."""

    def bucket(length):
        return -(-length // bucket_step)

    batches = []
    for length in sorted(lengths, key=bucket):
        fits = bool(batches)
        if fits and batch_size is not None:
            fits = len(batches[-1]) < batch_size
        if fits and token_budget is not None:
            same_bucket = bucket(batches[-1][0]) == bucket(length)
            fits = same_bucket and (len(batches[-1]) + 1) * bucket(length) * bucket_step <= token_budget
        if fits:
            batches[-1].append(length)
        else:
            batches.append([length])
    return batches
