import pytest

from keras_bert.weights.assignment_report import report_assignment
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.layout import expected_encoder_shapes
from tests.weights.conftest import SIZES

ENCODER = expected_encoder_shapes(SIZES)


def test_new_head_stays_random_and_old_head_is_unused(hugging_face_folder):
    checkpoint = read_checkpoint(hugging_face_folder.with_classifier().write())
    report = report_assignment(checkpoint, ENCODER | {"span_logits/kernel": (4, 2)})
    assert report.random == ("span_logits/kernel",)
    assert report.unused == ("classifier.bias", "classifier.weight")


def test_text_lists_all_variables(hugging_face_folder):
    hugging_face_folder.tensors["other.bias"] = hugging_face_folder.tensors["bert.pooler.dense.bias"]
    checkpoint = read_checkpoint(hugging_face_folder.write())
    lines = str(report_assignment(checkpoint, {**ENCODER, "logits/bias": (3,)})).split("\n")
    assert lines[0] == (
        f"{checkpoint.path}: {len(ENCODER)} variables read, 1 stayed random, 1 tensors of the file not used, "
        "0 optimizer slots skipped"
    )
    block = "transformer_block_0/self_attention/query_key_value/bias"
    layer = "bert.encoder.layer.0.attention.self"
    assert f"  read    encoder/{block} <- {layer}.query.bias, {layer}.key.bias, {layer}.value.bias" in lines
    assert "  random  logits/bias" in lines
    assert "  unused  other.bias" in lines


def test_names_tensors_that_do_not_fit(hugging_face_folder):
    checkpoint = read_checkpoint(hugging_face_folder.with_classifier(3).write())
    with pytest.raises(ValueError) as caught:
        report_assignment(checkpoint, {**ENCODER, "logits/kernel": (4, 5), "logits/bias": (5,)})
    message = str(caught.value)
    assert str(checkpoint.path) in message
    assert "tensor classifier.weight (our 'logits/kernel'): expected shape [4, 5], found [4, 3]" in message
    assert "tensor classifier.bias (our 'logits/bias'): expected shape [5], found [3]" in message
