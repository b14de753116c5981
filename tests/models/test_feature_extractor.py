import json

import keras
import numpy as np
import pytest
from absl import logging

from keras_bert.models.feature_extractor import BertFeatureExtractor
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

GOLDEN_HEAD = "sequence_classification"
TEXTS, _ = toy_reviews(40)
COMBINATIONS = ("stack", "concat", "sum", "mean")


def toy_extractor(encoder_arguments=None, **arguments):
    preprocessor = arguments.pop("preprocessor", toy_preprocessor())
    return BertFeatureExtractor(toy_encoder(**(encoder_arguments or {})), preprocessor, **arguments)


@pytest.fixture(scope="module")
def states():
    """The hidden states of the tokens of each text alone, float32 [layers, tokens, hidden]."""
    return [hidden_states(toy_extractor(), text) for text in TEXTS]


def hidden_states(extractor, text):
    outputs = extractor.encoder(extractor.preprocessor([text]), return_hidden_states=True)
    return np.concatenate(outputs["hidden_states"])


def combined(states, layers, how):
    """Combines layers of one text's hidden states by definition."""
    chosen = np.stack([states[layer] for layer in layers], axis=1)
    forms = {"stack": chosen, "concat": chosen.reshape(len(chosen), -1), "sum": chosen.sum(1), "mean": chosen.mean(1)}
    return forms[how]


def test_every_layer_equals_hugging_face(shared, golden, folder):
    ids, expected = read_ids(shared / "golden" / "hf_tiny"), np.load(golden / "outputs.npz")

    def features(*arguments):
        extractor = BertFeatureExtractor.from_checkpoint(folder, *arguments, sequence_length=24)
        assert not extractor.checkpoint_report.random
        return extractor(ids)

    for layer in range(3):
        for number in (layer, layer - 3):
            assert_close(features([number]), expected[f"hidden_state_{layer}"], limit=GOLDEN_LIMIT)
    stacked = features([-1, 0], "stack")
    assert_close(stacked, np.stack([expected["hidden_state_2"], expected["hidden_state_0"]], 2), limit=GOLDEN_LIMIT)


def test_wordpieces_equal_hugging_face_on_minilm(shared, minilm):
    golden = shared / "golden" / "minilm"
    expected, mask = np.load(golden / "outputs.npz"), read_ids(golden)["padding_mask"]
    texts = json.loads((golden / "texts.json").read_text())
    extractor = BertFeatureExtractor.from_preset("all_minilm_l6_v2", layers=[0, 3, 6], combine="stack")
    extractor.preprocessor.sequence_length = texts["max_length"]
    pairs = ([row["text_a"] for row in texts["inputs"]], [row["text_b"] or "" for row in texts["inputs"]])
    for row, features in enumerate(extractor.extract(pairs)):
        length = mask[row].sum()
        assert features.names == [token for token in texts["tokens"][row] if token != "[PAD]"]
        assert features.numbers.tolist() == list(range(length))
        states = np.stack([expected[f"hidden_state_{layer}"][row, :length] for layer in (0, 3, 6)], axis=1)
        assert_close(features.vectors, states, limit=10 * GOLDEN_LIMIT)  # of values up to 10


def test_training_has_no_effect():
    extractor = toy_extractor({"hidden_dropout_prob": 0.5})
    ids = extractor.preprocessor(TEXTS[:5])
    np.testing.assert_array_equal(extractor(ids, training=True), extractor(ids))


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_wordpieces_of_batches_equal_single_texts(states, combine):
    extractor = toy_extractor(layers=[-2, -1], combine=combine)
    found = extractor.extract(TEXTS, batch_size=16)
    wordpieces = extractor.preprocessor.tokenizer.tokens(TEXTS).to_list()
    for features, names, text_states in zip(found, wordpieces, states, strict=True):
        assert features.names == ["[CLS]", *(name.decode() for name in names), "[SEP]"]
        assert_close(features.vectors, combined(text_states, [-2, -1], combine), num_terms=64)


def test_words_have_the_first_or_mean_vector_of_their_wordpieces():
    extractor = toy_extractor(layers=[-1, 0], combine="stack")
    text = " goodly,\tthe film ."  # good ##ly , | the | film | .
    states = np.stack(hidden_states(extractor, text)[[-1, 0]], axis=1)
    first, mean = (extractor.extract([text], "words", how)[0] for how in ("first", "mean"))
    assert first.names == mean.names == ["goodly,", "the", "film", "."]
    assert first.numbers.tolist() == mean.numbers.tolist() == [0, 1, 2, 3]
    assert_close(first.vectors, states[[1, 4, 5, 6]], num_terms=64)
    assert_close(mean.vectors, [states[1:4].mean(axis=0), *states[4:7]], num_terms=64)


def test_words_of_pairs_have_the_vectors_of_their_tokens():
    extractor = toy_extractor()
    pairs = (["goodly film", "", "plot"], ["the plot", "was bad", ""])
    found = extractor.extract(pairs, "words")
    assert [features.names for features in found] == [["goodly", "film", "the", "plot"], ["was", "bad"], ["plot"]]
    for features, a, b, positions in zip(found, *pairs, ([1, 3, 5, 6], [2, 3], [1]), strict=True):
        states = np.array(extractor(extractor.preprocessor(([a], [b]))))[0]
        assert_close(features.vectors, states[positions], num_terms=64)


def test_omits_words_without_wordpieces(monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda message, *values: warnings.append(message % values))
    extractor = toy_extractor(preprocessor=toy_preprocessor(sequence_length=6))
    found = extractor.extract(["good \u200b bad", "", "a a goodly goodly goodly", "\u200b"], "words", "mean")
    assert [features.names for features in found] == [["good", "bad"], [], ["a", "a", "goodly"], []]
    assert [features.numbers.tolist() for features in found] == [[0, 2], [], [0, 1, 2], []]
    assert [features.vectors.shape for features in found] == [(2, 16), (0, 16), (3, 16), (0, 16)]
    assert warnings == ["1 of 4 texts are longer than 6 tokens and were truncated (the longest has 10)"]


def test_accepts_tokenized_texts():
    extractor = toy_extractor()
    units = extractor.tokenize(TEXTS, "words")
    for before, features in zip(extractor.extract(TEXTS, "words"), extractor.extract(units), strict=True):
        assert before.names == features.names
        np.testing.assert_array_equal(before.vectors, features.vectors)


def test_bfloat16_is_close_to_float32():
    extractor, low = toy_extractor(layers=[0, 1, 2]), toy_extractor({"dtype": "bfloat16"}, layers=[0, 1, 2])
    ids = extractor.preprocessor(TEXTS)
    is_token = np.array(ids["padding_mask"])[:, :, None]
    found = np.array(low(ids))
    assert found.dtype == np.float32
    assert_close(found * is_token, extractor(ids) * is_token, dtype="bfloat16")


def test_saves_and_loads_as_keras_file(tmp_path):
    extractor = toy_extractor(layers=[-1, 0], combine="mean", trainable=False)
    extractor.save(tmp_path / "extractor.keras")
    again = keras.saving.load_model(tmp_path / "extractor.keras")
    assert again.get_config() == extractor.get_config()
    assert not again.trainable
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), extractor.predict(TEXTS, verbose=0))


def test_saves_and_loads_checkpoints(tmp_path):
    extractor = toy_extractor()
    folder = extractor.save_checkpoint(tmp_path / "model")
    again = BertFeatureExtractor.from_checkpoint(folder)
    assert not again.encoder.with_pooler
    assert not again.checkpoint_report.random
    assert again.preprocessor.sequence_length == 32  # the encoder's positions
    for found, expected in zip(again.extract(TEXTS), extractor.extract(TEXTS), strict=True):
        assert_close(found.vectors, expected.vectors, num_terms=64)


def test_has_only_the_encoders_weights():
    extractor = toy_extractor()
    assert len(extractor.weights) == len(extractor.encoder.weights) > 0
    model = keras.Sequential([extractor, keras.layers.Dense(1)])
    ids = extractor.preprocessor(TEXTS[:2])
    assert model(ids).shape == (*ids["token_ids"].shape, 1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"layers": []}, r"at least one number, got \[\]"),
        ({"layers": "-1"}, "at least one number, got '-1'"),
        ({"layers": -1}, "at least one number, got -1"),
        ({"layers": [-1, 3]}, r"from 0 \(the embeddings\) to 2 .* from -1 .* to -3; got 3"),
        ({"layers": [-4]}, "got -4"),
        ({"layers": [True]}, "got True"),
        ({"layers": [1.0]}, "got 1.0"),
        ({"layers": [-1, 2]}, r"given twice: \[-1, 2\], of 2 blocks"),
        ({"combine": "add"}, r"unknown combine 'add'; allowed are \('stack', 'concat', 'sum', 'mean'\)"),
        ({"preprocessor": toy_preprocessor(long_texts="windows")}, "has long_texts='windows'"),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_extractor(**arguments)


def test_rejects_invalid_inputs():
    extractor = toy_extractor()
    for arguments, message in (
        ((["a"], "letters"), "unit must be one of"),
        ((["a"], "words", "last"), "unknown word_pooling 'last'"),
        (("a text",), "must be a list of texts, got a single one"),
        (([],), "there are no"),
    ):
        with pytest.raises(ValueError, match=message):
            extractor.extract(*arguments)
    without = BertFeatureExtractor(toy_encoder())
    with pytest.raises(ValueError, match="this BertFeatureExtractor has no preprocessor"):
        without.extract(["a"])
