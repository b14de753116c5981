"""Masks are filled in the graph as the logits say, and an exported model answers the same."""

import numpy as np
import pytest
import tensorflow as tf

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
    return BertPretrainer(toy_encoder(), preprocessor=preprocessor(), seed=1)


@pytest.fixture(scope="module")
def exported(pretrainer, tmp_path_factory):
    return pretrainer.export(tmp_path_factory.mktemp("words") / "1", top=3)


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


def test_the_exported_model_answers_the_same(pretrainer, exported):
    signatures = tf.saved_model.load(str(exported)).signatures
    examples = [
        tf.train.Example(
            features=tf.train.Features(feature={"text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))})
        ).SerializeToString()
        for text in BYTES
    ]
    expected = pretrainer.fill_masks(BYTES, top=3)
    for answers in (
        signatures["serving_default"](text=tf.constant(BYTES)),
        signatures["tokens"](**pretrainer.preprocessor(BYTES)),
        signatures["examples"](examples=tf.constant(examples)),
    ):
        assert answers["masks"].numpy().tolist() == MASKS
        assert answers["words"].shape == answers["probabilities"].shape == (len(TEXTS), 3, 3)
        for row, masks in enumerate(expected):
            words, probabilities = answers["words"][row].numpy(), answers["probabilities"][row].numpy()
            found = [
                [(word.decode(), p) for word, p in zip(*mask, strict=True)]
                for mask in zip(words[: len(masks)], probabilities[: len(masks)], strict=True)
            ]
            same(found, masks)
            assert not any(words[len(masks) :].ravel()) and not probabilities[len(masks) :].any()


def test_a_batch_without_texts(exported):
    answers = tf.saved_model.load(str(exported)).signatures["serving_default"](text=tf.constant([], tf.string))
    assert answers["words"].shape == (0, 0, 3) and answers["masks"].shape == (0,)


def test_bfloat16_has_half_the_size_and_nearly_the_same_words(tmp_path):
    pretrainer = BertPretrainer(toy_encoder(hidden_size=64), preprocessor=preprocessor(), seed=1)
    sizes, probabilities = [], []
    for dtype in ("float32", "bfloat16"):
        folder = pretrainer.export(tmp_path / dtype / "1", dtype=dtype)
        sizes.append((folder / "variables" / "variables.data-00000-of-00001").stat().st_size)
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        probabilities.append(serve(text=tf.constant(["a [MASK] film"]))["probabilities"].numpy())
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.05)
    np.testing.assert_allclose(*probabilities, rtol=0.2)


def test_a_checkpoint_brings_its_tokenizer(pretrainer, tmp_path):
    folder = pretrainer.save_checkpoint(tmp_path / "model")
    again = BertPretrainer.from_checkpoint(folder)
    assert again.preprocessor.sequence_length == 32  # the positions of the model
    for found, expected in zip(again.fill_masks(TEXTS[:5]), pretrainer.fill_masks(TEXTS[:5]), strict=True):
        same(found, expected)


def test_what_cannot_be_is_refused(pretrainer, tmp_path, exported):
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
    with pytest.raises(FileExistsError):
        pretrainer.export(exported)
