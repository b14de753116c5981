"""Masks are filled in the graph as the logits say, and an exported model answers the same."""

import numpy as np
import pytest

import keras_bert
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.tokenizer import BertTokenizer
from tests.toys import VOCABULARY, toy_encoder

TEXTS = ["a [MASK] film", "good", "", "[MASK]", "the [MASK] was [MASK] , and [MASK] .", "[MASK] \x00 \udcff[ MASK ]"]
BYTES = [text.encode("utf-8", "surrogateescape") for text in TEXTS]
MASKS = [1, 0, 0, 1, 3, 1]


def preprocessor(**arguments):
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    return keras_bert.BertPreprocessor(tokenizer, **{"sequence_length": 16, **arguments})


@pytest.fixture(scope="module")
def pretrainer():
    return BertPretrainer(toy_encoder(num_hidden_layers=1), preprocessor=preprocessor(), seed=1)


def slowly(pretrainer, text, top):
    """Mask by mask, from the logits of the whole text."""
    ids = pretrainer.preprocessor([text])
    logits = np.asarray(pretrainer(ids)["masked_logits"], "float64")[0]
    masks = []
    for position in np.flatnonzero(ids["token_ids"][0] == VOCABULARY.index("[MASK]")):
        shares = np.exp(logits[position] - logits[position].max())
        shares /= shares.sum()
        best = np.argsort(-shares, kind="stable")[:top]
        masks.append([(VOCABULARY[word], shares[word]) for word in best])
    return masks


def same(found, expected):
    assert [[word for word, _ in mask] for mask in found] == [[word for word, _ in mask] for mask in expected]
    for mask, other in zip(found, expected, strict=True):
        np.testing.assert_allclose([p for _, p in mask], [p for _, p in other], rtol=1e-4)


def test_masks_are_filled_as_the_logits_say(pretrainer):
    filled = pretrainer.fill_masks(BYTES, top=4)
    assert [len(masks) for masks in filled] == MASKS
    for text, found in zip(BYTES, filled, strict=True):
        same(found, slowly(pretrainer, text, 4))
    assert [masks for masks in pretrainer.fill_masks(["good", "bad"])] == [[], []]


def test_a_checkpoint_brings_its_tokenizer(pretrainer, tmp_path):
    folder = pretrainer.save_checkpoint(tmp_path / "model")
    again = BertPretrainer.from_checkpoint(folder)
    assert again.preprocessor.sequence_length == 32  # the positions of the model
    for found, expected in zip(again.fill_masks(TEXTS[:5]), pretrainer.fill_masks(TEXTS[:5]), strict=True):
        same(found, expected)


def test_what_cannot_be_is_refused(pretrainer, tmp_path):
    with pytest.raises(ValueError, match="special_tokens_in_text=True"):
        plain = keras_bert.BertPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16)
        BertPretrainer(toy_encoder(), preprocessor=plain)
    with pytest.raises(ValueError, match="has 22 wordpieces and the encoder 20 embeddings"):
        BertPretrainer(toy_encoder(vocab_size=20), preprocessor=preprocessor())
    with pytest.raises(ValueError, match="sequence_length=64 is beyond the encoder's 32 positions"):
        BertPretrainer(toy_encoder(), preprocessor=preprocessor(sequence_length=64))
    with pytest.raises(ValueError, match="must truncate texts"):
        BertPretrainer(toy_encoder(), preprocessor=preprocessor(long_texts="windows"))
    with pytest.raises(ValueError, match="needs a preprocessor, and this one was made without"):
        BertPretrainer(toy_encoder()).export(tmp_path / "1")
    for top in (0, 1000):
        with pytest.raises(ValueError, match=f"top must be from 1 to .*; got {top}"):
            pretrainer.fill_masks(["[MASK]"], top=top)
    with pytest.raises(ValueError, match="texts must be a list of texts, got a single one"):
        pretrainer.fill_masks("[MASK]")
    with pytest.raises(FileExistsError):
        pretrainer.export(tmp_path)
