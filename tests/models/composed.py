"""Toy encoders of all kinds."""

import numpy as np

from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from tests.toys import VOCABULARY, toy_encoder

FEATURES = "features_weighted_sum_all"
BILSTMS = {"left_to_right_bilstm": 1, FEATURES: 2}
KINDS = ("left_to_right", "right_to_left", *BILSTMS, "two_directions")
COMPOSED = KINDS[2:]


def make_encoder(kind, with_pooler=True, **arguments):
    """Returns a toy encoder of a kind; its random weights differ everywhere."""
    if kind == "two_directions":
        directions = {"left_to_right": 1, "right_to_left": 2}
        return TwoDirectionEncoder(
            *(
                toy_encoder(attention_direction=direction, with_pooler=with_pooler, **{"seed": seed, **arguments})
                for direction, seed in directions.items()
            )
        )
    if kind == "left_to_right_bilstm":
        encoder = toy_encoder(attention_direction="left_to_right", with_pooler=False, **arguments)
        return BiLstmEncoder(encoder, with_pooler=with_pooler, seed=1)
    if kind == FEATURES:
        encoder = toy_encoder(with_pooler=False, **arguments)
        return BiLstmEncoder(encoder, 5, 2, "weighted_sum_all", with_pooler, seed=1)
    return toy_encoder(attention_direction=kind, with_pooler=with_pooler, **arguments)


def random_inputs(batch=4, length=10):
    """Returns ids of random tokens and lengths; the last row has no padding."""
    generator = np.random.default_rng(0)
    lengths = np.append(generator.integers(2, length, batch - 1), length)
    return {
        "token_ids": generator.integers(5, len(VOCABULARY), [batch, length]).astype("int32"),
        "segment_ids": generator.integers(0, 2, [batch, length]).astype("int32"),
        "padding_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
    }
