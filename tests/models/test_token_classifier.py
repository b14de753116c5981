import keras
import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import VOCABULARY, toy_encoder, toy_reviews

GOLDEN_HEAD = "token_classification"
TAGS = ["O", "B-good", "I-good", "B-bad", "I-bad"]
SENTENCES = [["good", "lovely", "film"], ["\u200b"], ["a", "plot", "goodly", "bad"] * 20, [".", "dull"]]


def preprocessor(**arguments):
    return BertWordPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), **{"sequence_length": 16, **arguments})


def toy_model(**arguments):
    return BertTokenClassifier(
        toy_encoder(num_hidden_layers=1, with_pooler=False),
        **{"labels": TAGS, "preprocessor": preprocessor(), "seed": 1, **arguments},
    )


def test_logits_equal_hugging_face(shared, golden, folder):
    ids = read_ids(shared / "golden" / "hf_tiny")
    model = BertTokenClassifier.from_checkpoint(folder, sequence_length=32)
    assert_close(model(ids), np.load(golden / "outputs.npz")["logits"], limit=GOLDEN_LIMIT)
    assert model.labels == ["0", "1", "2", "3", "4"]
    assert not model.checkpoint_report.random
    assert not model.checkpoint_report.unused


def test_saves_and_loads_checkpoints_with_labels(folder, tmp_path):
    model = BertTokenClassifier.from_checkpoint(folder, labels=TAGS, sequence_length=32, dropout=0.25)
    assert not model.checkpoint_report.random  # a layer without names fits any names, if there are as many
    again = BertTokenClassifier.from_checkpoint(model.save_checkpoint(tmp_path / "again"), sequence_length=32)
    variables = again.variables_by_path()
    for path, variable in model.variables_by_path().items():
        np.testing.assert_array_equal(variable, variables[path])
    assert (again.labels, again.dropout.rate) == (TAGS, 0.25)
    names = ["O", "B-a", "I-a", "B-b", "I-b"]
    other = BertTokenClassifier.from_checkpoint(tmp_path / "again", labels=names, sequence_length=32)
    assert any(path.startswith("token_logits/") for path in other.checkpoint_report.random)


def test_loss_ignores_unlabeled_tokens():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    labels, weights = np.array([[-1, 4, 2], [0, -1, -1]], "int32"), np.array([2.0, 1.0], "float32")
    model = toy_model()
    total, weight = model.loss_terms(labels, logits, weights)["loss"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -2 * (log_probabilities[0, 1, 4] + log_probabilities[0, 2, 2]) - log_probabilities[1, 0, 0]
    assert_close(total, expected, num_terms=15)
    assert weight == model.loss_weights(labels, weights)["loss"] == 5


@pytest.fixture(scope="module")
def model():
    return toy_model()


def test_tags_words_at_their_first_wordpiece(model):
    tokenized = model.tokenize_sentences(SENTENCES)
    logits = model.predict_logits(tokenized, batch_size=3)
    whole = model(tokenized.windows.batch(np.arange(len(tokenized.windows)))).numpy()
    assert_close(logits, whole[tokenized.word_windows, tokenized.word_positions], num_terms=64)
    tags = model.predict_tags(SENTENCES)
    assert [len(sentence_tags) for sentence_tags in tags] == [len(words) for words in SENTENCES]
    assert [tag for sentence_tags in tags for tag in sentence_tags] == [TAGS[label] for label in logits.argmax(axis=1)]


def test_accuracy_ignores_unlabeled_tokens(tmp_path):
    model = toy_model()
    generator = np.random.default_rng(0)
    ids, labels = {"token_ids": generator.integers(4, 20, [9, 5])}, generator.integers(-1, 5, [9, 5])
    expected = (model(ids).numpy().argmax(axis=-1) == labels)[labels >= 0].mean()
    named = ["acc", {"logits": ["accuracy"]}]
    for arguments in ({}, *({"metrics": name} for name in named), {"metrics": None, "weighted_metrics": ["accuracy"]}):
        model.compile(keras.optimizers.Adam(), run_eagerly=True, **arguments)
        assert model.evaluate(ids, labels, batch_size=4, verbose=0)[1] == pytest.approx(expected)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(ids, labels, verbose=0)[1] == pytest.approx(expected)


def test_tags_of_texts_equal_those_of_words_and_entities_equal_seqeval(model):
    sentences = [text.split() for text in toy_reviews(30)[0]]
    sentences += [["good"] * 70, []]  # longer than the model, and empty
    texts = [" ".join(words) for words in sentences]
    for text, described, tags in zip(texts, model.tag(texts), model.predict_tags(sentences), strict=True):
        assert [word["tag"] for word in described["words"]] == tags
        found = []
        for entity in described["entities"]:
            first, last = text[: entity["start"]].count(" "), text[: entity["end"]].count(" ")
            found.append((entity["type"], first, last))
            scores = [word["score"] for word in described["words"][first : last + 1]]
            assert_close(entity["score"], np.mean(scores), num_terms=len(scores))
        assert found == get_entities(tags)


def test_offsets_of_words_and_entities(model):
    texts = ["The «good» film, (bad).", "", "été good"]
    described = model.tag(texts)
    assert described[0]["entities"]
    assert list(toy_model(labels=["NOUN", "VERB"]).tag(texts)[0]) == ["words"]  # no entities
    assert [word["text"] for word in described[0]["words"]][:3] == ["The", "«", "good"]
    for text, answer in zip(texts, described, strict=True):
        for item in answer["words"] + answer["entities"]:
            assert text[item["start"] : item["end"]] == item["text"]


@pytest.mark.parametrize("text", ["good film, " * 90_000, "\u4e16" * 300_000], ids=["words", "one_word_of_chinese"])
def test_a_long_text_is_tagged_up_to_the_maximum_of_windows(text, caplog):
    model = toy_model(preprocessor=preprocessor(max_windows=3))
    whole, short = model.tag([text, "good film"])
    assert "1 of 2 texts have more than max_windows=3 windows" in caplog.text
    assert len(short["words"]) == 2
    assert len(whole["words"]) == 14 + 2 * 7
    (beginning,) = model.tag([text[: whole["words"][-1]["end"]]])
    assert beginning == whole
    # Sentences of words are read to their end.
    assert list(map(len, model.predict_tags([["good"] * 500]))) == [500]


def test_saves_and_loads_as_keras_file(tmp_path):
    model = toy_model(dropout=0.3, preprocessor=preprocessor(stride=4))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_config()["preprocessor"] == model.get_config()["preprocessor"]
    assert again.predict_tags(SENTENCES) == model.predict_tags(SENTENCES)


def test_rejects_invalid_inputs():
    model = toy_model()
    model.compile()
    for sentences in ("a text", ["a text"], [b"a text"]):
        with pytest.raises(ValueError, match=r"`tag` takes raw texts\. Number 0 is a text: b?'a text'"):
            model.predict_tags(sentences)
    with pytest.raises(TypeError, match=r"sentences\[1\]\[1\] must be a string, got None"):
        model.predict_tags([["a"], ["b", None]])
    with pytest.raises(ValueError, match="'B-ugly', which is not among the model's labels"):
        model.tokenize([["a"]], [["B-ugly"]])
    with pytest.raises(ValueError, match=r"a single one; pass \['a text'\]"):
        model.tag("a text")
    for tags in ("O", ["O"], [b"O"]):
        with pytest.raises(ValueError, match=r"tags must be lists of strings, .*\. Number 0 is a text: b?'O'"):
            model.tokenize([["a"]], tags)
    with pytest.raises(ValueError, match="sentence 0 has 2 words and 1 labels"):
        model.tokenize([["a", "b"]], [["O"]])
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
        model.evaluate([["a", "b"]], [["O", "O"]], batch_size=0)
    with pytest.raises(ValueError, match="has no preprocessor"):
        toy_model(preprocessor=None).tag(["a"])
    with pytest.raises(ValueError, match="labels must be distinct"):
        toy_model(labels=["O", "O"])


def test_rejects_checkpoints_of_other_heads(tmp_path):
    toy_encoder().save_checkpoint(tmp_path / "bert", BertTokenizer(VOCABULARY, lower_case=True))
    with pytest.raises(ValueError, match="no token classifier"):
        BertTokenClassifier.from_checkpoint(tmp_path / "bert")
