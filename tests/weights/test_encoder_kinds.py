import pytest

from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.weights.encoder_kinds import LAYER_POOLINGS, ONE_BERT, EncoderKind, read_encoder_kind
from tests.models.composed import FEATURES, KINDS, make_encoder
from tests.toys import toy_encoder


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_match_the_models(kind):
    encoder = make_encoder(kind)
    kinds = {
        "left_to_right_bilstm": EncoderKind("bilstm", 8),
        FEATURES: EncoderKind("bilstm", 5, 2, "weighted_sum_all"),
        "two_directions": EncoderKind("two_directions"),
    }
    encoder_kind = kinds.get(kind, ONE_BERT)
    arguments = encoder.bert_encoders()[0].get_config()
    assert encoder_kind.shapes(arguments) == encoder_shapes(encoder)
    assert encoder_kind.head_width(arguments["hidden_size"]) == encoder.hidden_size
    if kind != "right_to_left":
        assert encoder_kind.name(arguments) == kind


def encoder_shapes(encoder):
    return {path: tuple(variable.shape) for path, variable in encoder.variables_by_path("encoder/").items()}


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_shapes_of_feature_encoders_match_the_models(pooling):
    encoder = BiLstmEncoder(toy_encoder(num_hidden_layers=5, with_pooler=False), 3, 2, pooling)
    arguments = encoder.encoder.get_config()
    assert EncoderKind("bilstm", 3, 2, pooling).shapes(arguments) == encoder_shapes(encoder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encoder_family": "elmo"}, "encoder_family must be one of .* found 'elmo'"),
        ({"encoder_family": "bilstm", "bilstm_units": 0}, "bilstm_units must be .* found 0"),
        ({"encoder_family": "bilstm", "bilstm_units": 4, "bilstm_layers": 0}, "bilstm_layers must be .* found 0"),
        ({"encoder_family": "bilstm", "bilstm_units": 4, "features": "sum"}, "features must be one of .* found 'sum'"),
    ],
)
def test_rejects_unknown_encoder_kinds(tmp_path, config, message):
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        read_encoder_kind(config, tmp_path / "config.json")
