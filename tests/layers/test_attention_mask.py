import numpy as np
import pytest

from keras_bert.layers.attention_mask import make_attention_mask

PADDING_MASK = np.array([[1, 1, 1, 0], [0, 0, 0, 0]])


def allowed(direction, query, key):
    return {"bidirectional": True, "left_to_right": key <= query, "right_to_left": key >= query}[direction]


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
@pytest.mark.parametrize("sequence_ids", [None, np.array([[0, 0, 1, 1], [0, 1, 2, 3]])])
def test_equals_its_definition(direction, sequence_ids):
    mask = np.array(make_attention_mask(PADDING_MASK, direction, sequence_ids))
    for row in range(2):
        for query in range(4):
            for key in range(4):
                expected = bool(PADDING_MASK[row, key]) and allowed(direction, query, key)
                if sequence_ids is not None:
                    expected = expected and sequence_ids[row, query] == sequence_ids[row, key]
                assert np.broadcast_to(mask, (2, 4, 4))[row, query, key] == expected


def test_rejects_unknown_directions():
    with pytest.raises(ValueError, match=r"'sideways'.*bidirectional"):
        make_attention_mask(PADDING_MASK, "sideways")
