"""Toy encoders of all kinds."""

from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from tests.toys import toy_encoder

FEATURES = "features_weighted_sum_all"
BILSTMS = {"left_to_right_bilstm": 1, FEATURES: 2}
KINDS = ("left_to_right", "right_to_left", *BILSTMS, "two_directions")


def make_encoder(kind, with_pooler=True, **arguments):
    """A toy encoder of a kind, with random weights that differ everywhere."""
    if kind == "two_directions":
        one, two = (
            toy_encoder(attention_direction=direction, with_pooler=with_pooler, **{"seed": seed, **arguments})
            for seed, direction in enumerate(("left_to_right", "right_to_left"), start=1)
        )
        return TwoDirectionEncoder(one, two)
    if kind == "left_to_right_bilstm":
        encoder = toy_encoder(attention_direction="left_to_right", with_pooler=False, **arguments)
        return BiLstmEncoder(encoder, with_pooler=with_pooler, seed=1)
    if kind == FEATURES:
        encoder = toy_encoder(with_pooler=False, **arguments)
        return BiLstmEncoder(encoder, 5, 2, "weighted_sum_all", with_pooler, seed=1)
    return toy_encoder(attention_direction=kind, with_pooler=with_pooler, **arguments)
