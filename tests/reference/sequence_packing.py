"""First-fit decreasing, and rows of packed instances, slowly: one instance and one token after another."""


def place_first_fit(lengths, predictions, capacity, max_instances, max_predictions):
    """Rows and offsets of the instances, as two lists."""
    contents = []  # of each row: the numbers of the instances in it
    rows, offsets = [None] * len(lengths), [None] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], -predictions[number], number)):
        for row in range(len(contents) + 1):
            if row == len(contents):
                contents.append([])
            together = [*contents[row], number]
            if sum(lengths[i] for i in together) > capacity:
                continue
            if len(together) > max_instances:
                continue
            if sum(predictions[i] for i in together) > max_predictions:
                continue
            rows[number], offsets[number] = row, sum(lengths[i] for i in contents[row])
            contents[row] = together
            break
    return rows, offsets


def pack(instances, sequence_length, max_instances, max_predictions):
    """Rows as a dict of lists of lists, from instances that are dicts of lists without padding."""
    rows, offsets = place_first_fit(
        [len(instance["token_ids"]) for instance in instances],
        [len(instance["masked_positions"]) for instance in instances],
        sequence_length,
        max_instances,
        max_predictions,
    )
    of_tokens = ["token_ids", "segment_ids", "padding_mask", "sequence_ids", "position_ids"]
    of_predictions = ["masked_positions", "masked_labels", "masked_weights"]
    of_instances = ["cls_positions", "next_sentence_labels", "next_sentence_weights"]
    packed = {name: [] for name in of_tokens + of_predictions + of_instances}
    for row in range(max(rows) + 1):
        content = {name: [] for name in packed}
        numbers = sorted((i for i in range(len(instances)) if rows[i] == row), key=lambda i: offsets[i])
        for sequence_id, number in enumerate(numbers, start=1):
            instance = instances[number]
            for position, token_id in enumerate(instance["token_ids"]):
                content["token_ids"].append(token_id)
                content["segment_ids"].append(instance["segment_ids"][position])
                content["padding_mask"].append(1)
                content["sequence_ids"].append(sequence_id)
                content["position_ids"].append(position)
            for position, label in sorted(zip(instance["masked_positions"], instance["masked_labels"], strict=True)):
                content["masked_positions"].append(offsets[number] + position)
                content["masked_labels"].append(label)
                content["masked_weights"].append(1.0)
            content["cls_positions"].append(offsets[number])
            content["next_sentence_labels"].append(instance["next_sentence_label"])
            content["next_sentence_weights"].append(1.0)
        for names, width in (
            (of_tokens, sequence_length),
            (of_predictions, max_predictions),
            (of_instances, max_instances),
        ):
            for name in names:
                packed[name].append(content[name] + [0] * (width - len(content[name])))
    return packed
