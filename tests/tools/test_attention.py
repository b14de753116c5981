import numpy as np
import pytest

from keras_bert.models.encoder import BertEncoder
from tests.tolerances import assert_close
from tests.tools.test_attention_page import decode_weights, read_data
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor
from tools.attention import AttentionModel, compute_attention
from tools.attention_page import ROUNDING_ERROR


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return toy_encoder(initializer_range=0.8).save_checkpoint(
        tmp_path_factory.mktemp("attention") / "model", toy_preprocessor().tokenizer
    )


def compute_scores(encoder, ids):
    """[layers, heads, from, to] of a single row without padding."""
    return np.stack(encoder(ids, return_attention_scores=True)["attention_scores"])[:, 0]


@pytest.mark.parametrize("pad_to", ["longest", "max_length"])
def test_weights_equal_the_scores_of_the_encoder(pad_to):
    encoder = toy_encoder(initializer_range=0.8)
    texts = ["a lovelyly film [MASK]", "the plot was good"]
    read, cut = compute_attention(encoder, toy_preprocessor(pad_to=pad_to), texts)
    assert read.tokens == [
        *("[CLS]", "a", "lovely", "##ly", "film", "[UNK]", "[UNK]", "[UNK]", "[SEP]"),
        *("the", "plot", "was", "good", "[SEP]"),
    ]
    assert read.segment_ids == [0] * 9 + [1] * 5
    assert (read.special, read.layers, cut) == ([0, 8, 13], [0, 1], 0)
    ids = toy_preprocessor()(([texts[0]], [texts[1]]))
    # Two layers of width 16: about a hundred terms between the embeddings and the last scores.
    assert_close(read.weights, compute_scores(encoder, ids), num_terms=100)
    assert_close(read.weights.sum(axis=-1), np.ones(read.weights.shape[:-1]), num_terms=14)


def test_truncates_long_texts():
    encoder = toy_encoder(num_hidden_layers=3)
    read, cut = compute_attention(encoder, toy_preprocessor(sequence_length=6), ["good " * 9])
    assert (read.tokens, read.layers, cut) == (["[CLS]", *["good"] * 4, "[SEP]"], [0, 1, 2], 5)
    ids = toy_preprocessor()(["good " * 4])
    assert_close(read.weights, compute_scores(encoder, ids), num_terms=100)


def test_rejects_texts_without_tokens_and_too_many_weights(monkeypatch):
    monkeypatch.setattr("tools.attention_page.MAX_WEIGHTS", 99)
    for texts, message in (
        ([], "expected one text or two, got 0"),
        (["\x00 "], r"text 1 has no tokens: '\\x00 '"),
        (["a", ""], "text 2 has no tokens: ''"),
        (["a good film"], "2 layers of 2 heads with 5 tokens are 100 weights"),
    ):
        with pytest.raises(ValueError, match=message):
            compute_attention(toy_encoder(), toy_preprocessor(), texts)


def test_builds_the_page_of_a_checkpoint(checkpoint):
    data = read_data(AttentionModel(checkpoint, "toy").build_page(["a [MASK] film", "Good!"]))
    assert data["tokens"] == ["[CLS]", "a", "[MASK]", "film", "[SEP]", "good", "[UNK]", "[SEP]"]
    assert (data["title"], data["texts"]) == ("a [MASK] film / Good!", ["a [MASK] film", "Good!"])
    assert data["subtitle"] == "toy: 2 layers of 2 heads, 8 tokens"
    token_ids = [[VOCABULARY.index(token) for token in data["tokens"]]]
    ids = {"token_ids": np.array(token_ids), "segment_ids": np.array([data["segment_ids"]])}
    expected = compute_scores(BertEncoder.from_checkpoint(checkpoint), ids)
    np.testing.assert_allclose(decode_weights(data), expected, rtol=0, atol=ROUNDING_ERROR)
    assert np.ptp(expected) > 0.1


def test_reports_what_was_truncated(checkpoint):
    data = read_data(AttentionModel(checkpoint, "toy").build_page(["good " * 90]))
    assert data["subtitle"] == "toy: 2 layers of 2 heads, 32 tokens; 60 more truncated"
    assert len(data["title"]) <= 80


def test_rejects_checkpoints_without_a_vocabulary(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "model")
    with pytest.raises(ValueError, match=r"has no vocab\.txt"):
        AttentionModel(folder, "toy")
