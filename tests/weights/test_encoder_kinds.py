import pytest

from keras_bert.layers import layer_pooling
from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.weights.encoder_kinds import LAYER_POOLINGS, ONE_BERT, EncoderKind, read_encoder_kind
from keras_bert.weights.layout import expected_encoder_shapes
from tests.models.composed import FEATURES, KINDS, make_encoder
from tests.toys import toy_encoder
from tests.weights.conftest import SIZES


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_of_the_models(kind):
    encoder = make_encoder(kind)
    kinds = {
        "left_to_right_bilstm": EncoderKind("bilstm", 8),
        FEATURES: EncoderKind("bilstm", 5, 2, "weighted_sum_all"),
        "two_directions": EncoderKind("two_directions"),
    }
    composition = kinds.get(kind, ONE_BERT)
    arguments = encoder.bert_encoders()[0].get_config()
    expected = {path: tuple(variable.shape) for path, variable in encoder.variables_by_path("encoder/").items()}
    assert composition.shapes(arguments) == expected
    assert composition.head_width(arguments["hidden_size"]) == encoder.hidden_size
    if kind != "right_to_left":
        assert composition.name(arguments) == kind


def test_the_mixes_are_those_of_the_layer():
    assert LAYER_POOLINGS == layer_pooling.LAYER_POOLINGS


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_shapes_of_features_are_those_of_the_models(pooling):
    encoder = BiLstmEncoder(toy_encoder(num_hidden_layers=5, with_pooler=False), 3, 2, pooling)
    expected = {path: tuple(variable.shape) for path, variable in encoder.variables_by_path("encoder/").items()}
    assert EncoderKind("bilstm", 3, 2, pooling).shapes(encoder.encoder.get_config()) == expected


def test_one_bert_is_as_it_was():
    assert ONE_BERT.shapes(SIZES) == expected_encoder_shapes(SIZES)
    assert ONE_BERT.name({}) == "bidirectional"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encoder_family": "elmo"}, "encoder_family must be one of .* found 'elmo'"),
        ({"encoder_family": ["bilstm"]}, "encoder_family must be one of"),
        ({"encoder_family": "bilstm"}, "bilstm_units must be .* found None"),
        ({"encoder_family": "bilstm", "bilstm_units": 0}, "bilstm_units must be .* found 0"),
        ({"encoder_family": "bilstm", "bilstm_units": True}, "bilstm_units must be .* found True"),
        ({"encoder_family": "bilstm", "bilstm_units": 4, "bilstm_layers": 0}, "bilstm_layers must be .* found 0"),
        ({"encoder_family": "bilstm", "bilstm_units": 4, "features": "sum"}, "features must be one of .* found 'sum'"),
    ],
)
def test_what_is_no_composition_is_refused(tmp_path, config, message):
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        read_encoder_kind(config, tmp_path / "config.json")
