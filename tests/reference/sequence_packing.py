"""First-fit decreasing, and rows of packed instances, in slow, obvious Python."""


def first_fit(lengths, predictions, capacity, max_instances, max_predictions):
    """Returns the rows and offsets of the instances, as two lists."""
    contents = []  # the numbers of the instances in each row
    rows, offsets = [None] * len(lengths), [None] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], -predictions[number], number)):
        for row in range(len(contents) + 1):
            if row == len(contents):
                contents.append([])
            together = [*contents[row], number]
            has_room = sum(lengths[i] for i in together) <= capacity and len(together) <= max_instances
            if has_room and sum(predictions[i] for i in together) <= max_predictions:
                rows[number], offsets[number] = row, sum(lengths[i] for i in contents[row])
                contents[row] = together
                break
    return rows, offsets


def pack(instances, sequence_length, max_instances, max_predictions):
    """Returns the rows as a dict of lists of lists, from instances that are dicts of lists without padding."""
    lengths = [len(instance["token_ids"]) for instance in instances]
    predictions = [len(instance["masked_positions"]) for instance in instances]
    rows, offsets = first_fit(lengths, predictions, sequence_length, max_instances, max_predictions)
    widths = {
        **dict.fromkeys(("token_ids", "segment_ids", "padding_mask", "sequence_ids", "position_ids"), sequence_length),
        **dict.fromkeys(("masked_positions", "masked_labels", "masked_weights"), max_predictions),
        **dict.fromkeys(("cls_positions", "next_sentence_labels", "next_sentence_weights"), max_instances),
    }
    packed = {name: [] for name in widths}
    for row in range(max(rows) + 1):
        content = {name: [] for name in widths}
        numbers = sorted((i for i in range(len(instances)) if rows[i] == row), key=lambda i: offsets[i])
        for sequence_id, number in enumerate(numbers, start=1):
            instance, offset, length = instances[number], offsets[number], lengths[number]
            content["token_ids"] += instance["token_ids"]
            content["segment_ids"] += instance["segment_ids"]
            content["padding_mask"] += [1] * length
            content["sequence_ids"] += [sequence_id] * length
            content["position_ids"] += range(length)
            for position, label in sorted(zip(instance["masked_positions"], instance["masked_labels"], strict=True)):
                content["masked_positions"].append(offset + position)
                content["masked_labels"].append(label)
                content["masked_weights"].append(1.0)
            content["cls_positions"].append(offset)
            content["next_sentence_labels"].append(instance["next_sentence_label"])
            content["next_sentence_weights"].append(1.0)
        for name, width in widths.items():
            packed[name].append(content[name] + [0] * (width - len(content[name])))
    return packed
