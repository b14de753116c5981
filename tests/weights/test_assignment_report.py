import pytest

from keras_bert.weights.assignment_report import report_assignment
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.layout import expected_encoder_shapes
from tests.weights.conftest import SIZES

ENCODER = expected_encoder_shapes(SIZES)


def test_lists_all_variables(hugging_face_folder):
    checkpoint = read_checkpoint(hugging_face_folder.with_classifier().write())
    report = report_assignment(checkpoint, {**ENCODER, "spans/kernel": (4, 2)})
    assert report.random == ("spans/kernel",)
    assert report.unused == ("classifier.bias", "classifier.weight")
    lines = str(report).split("\n")
    assert lines[0] == (
        f"{checkpoint.path}: {len(ENCODER)} variables read, 1 stayed random, 2 tensors of the file not used, "
        "0 optimizer slots skipped"
    )
    block, layer = "transformer_block_0/self_attention/query_key_value/bias", "bert.encoder.layer.0.attention.self"
    assert f"  read    encoder/{block} <- {layer}.query.bias, {layer}.key.bias, {layer}.value.bias" in lines
    assert {"  random  spans/kernel", "  unused  classifier.bias", "  unused  classifier.weight"} <= set(lines)


def test_names_tensors_that_do_not_fit(hugging_face_folder):
    checkpoint = read_checkpoint(hugging_face_folder.with_classifier(3).write())
    with pytest.raises(ValueError) as caught:
        report_assignment(checkpoint, {**ENCODER, "logits/kernel": (4, 5), "logits/bias": (5,)})
    message = str(caught.value)
    assert str(checkpoint.path) in message
    assert "tensor classifier.weight (our 'logits/kernel'): expected shape [4, 5], found [4, 3]" in message
    assert "tensor classifier.bias (our 'logits/bias'): expected shape [5], found [3]" in message
