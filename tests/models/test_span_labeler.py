import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.formats.squad_files import SquadQuestion
from keras_bert.data.formats.squad_predictions import answer_questions
from keras_bert.data.tokenized_questions import tokenize_questions
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from tests.toys import VOCABULARY, toy_encoder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]
NAMES = ("start_logits", "end_logits")


@pytest.fixture(params=["gelu", "gelu_new"])
def golden(shared, request):
    return shared / "golden" / "hf_tiny" / request.param / "question_answering"


@pytest.fixture
def folder(golden, tmp_path):
    """A Hugging Face folder with a layer for spans and a vocabulary of 200 words."""
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(golden / name, tmp_path / name)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return tmp_path


def load(folder):
    return BertSpanLabeler.from_checkpoint(folder, sequence_length=32, stride=8, max_query_length=8)


@pytest.fixture(scope="module")
def labeler():
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(with_pooler=False), preprocessor, seed=1)


def test_logits_equal_hugging_face(shared, golden, folder):
    inputs = np.load(shared / "golden" / "hf_tiny" / "inputs.npz")
    labeler = load(folder)
    mask = inputs["attention_mask"]
    ids = {"token_ids": inputs["input_ids"], "segment_ids": inputs["token_type_ids"], "padding_mask": mask}
    outputs, expected = labeler(ids), np.load(golden / "outputs.npz")
    for name in NAMES:
        logits = keras.ops.convert_to_numpy(outputs[name])
        np.testing.assert_allclose(logits[mask == 1], expected[name][mask == 1], atol=1e-5)
        assert np.all(logits[mask == 0] < -1e8)
    assert not labeler.checkpoint_report.random
    assert not labeler.checkpoint_report.unused


def test_a_checkpoint_comes_back(folder, tmp_path):
    labeler = load(folder)
    again = load(labeler.save_checkpoint(tmp_path / "again"))
    variables = again.variables_by_path()
    for path, variable in labeler.variables_by_path().items():
        np.testing.assert_array_equal(variable, variables[path])
    assert not again.checkpoint_report.random


def test_the_loss_is_that_of_numpy():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(2, 3, 5)).astype("float32")
    labels, weights = np.array([[0, 4], [2, 2], [0, 0]], "int32"), np.array([1.0, 2.0, 0.0], "float32")
    labeler = BertSpanLabeler(toy_encoder())
    total, weight = labeler.loss_terms(labels, dict(zip(NAMES, logits, strict=True)), weights)["loss"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = [-(log_probabilities[0, i, a] + log_probabilities[1, i, b]) / 2 for i, (a, b) in enumerate(labels)]
    np.testing.assert_allclose(total, np.dot(losses, weights), rtol=1e-6)
    assert weight == 3
    assert labeler.loss_weights(labels, weights)["loss"] == 3


def test_padding_does_not_change_the_loss():
    labeler = BertSpanLabeler(toy_encoder(), seed=1)
    short = {"token_ids": np.array([[2, 4, 3, 5, 3]]), "padding_mask": np.ones([1, 5], "int32")}
    long = {name: np.pad(values, [[0, 0], [0, 3]]) for name, values in short.items()}
    labels = np.array([[3, 3]])
    losses = [float(labeler.loss_terms(labels, labeler(ids))["loss"][0]) for ids in (short, long)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.slow
def test_keras_fits_it():
    labeler = BertSpanLabeler(toy_encoder(with_pooler=False), seed=1)
    ids = np.random.default_rng(0).integers(4, 6, [64, 8])
    ids[:, 0] = 2
    labels = np.stack([(ids == 5).argmax(axis=1)] * 2, axis=1)  # the first 5, or [CLS] where there is none
    labeler.compile(keras.optimizers.Adam(1e-2))
    history = labeler.fit({"token_ids": ids}, labels, epochs=12, verbose=0, batch_size=16)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    assert labeler.evaluate({"token_ids": ids}, labels, verbose=0) < history.history["loss"][0]


def test_accuracy_is_that_of_starts_and_of_ends(tmp_path):
    labeler = BertSpanLabeler(toy_encoder(with_pooler=False), seed=1)
    generator = np.random.default_rng(0)
    ids, labels = {"token_ids": generator.integers(4, 20, [9, 5])}, generator.integers(0, 5, [9, 2])
    is_right = np.stack([labeler(ids)[name] for name in NAMES], axis=1).argmax(axis=2) == labels
    expected = dict(zip((f"{name}_accuracy" for name in NAMES), is_right.mean(axis=0), strict=True))
    for metrics in (
        "accuracy",
        ["acc"],
        {name: [keras.metrics.SparseCategoricalAccuracy("accuracy")] for name in NAMES},
    ):
        labeler.compile(keras.optimizers.Adam(), metrics=metrics, run_eagerly=True)
        found = labeler.evaluate(ids, labels, verbose=0, return_dict=True)
        assert {name: found[name] for name in expected} == pytest.approx(expected)
    labeler.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").evaluate(ids, labels, verbose=0, return_dict=True)
    assert again == pytest.approx(found)
    with pytest.raises(ValueError, match=r"give a dict with a list for each of \['start_logits', 'end_logits'\]"):
        labeler.compile(metrics=["f1"])


def test_a_saved_model_comes_back(tmp_path, folder):
    labeler = load(folder)
    labeler.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    ids = {"token_ids": np.array([[2, 7, 3, 8, 9, 3]])}
    np.testing.assert_array_equal(labeler(ids)["end_logits"], again(ids)["end_logits"])
    assert again.preprocessor.get_config() == labeler.preprocessor.get_config()


def test_a_preprocessor_must_fit(folder):
    preprocessor = load(folder).preprocessor
    with pytest.raises(ValueError, match="the same checkpoint"):
        BertSpanLabeler(toy_encoder(), preprocessor)
    longer = BertQuestionPreprocessor(preprocessor.tokenizer, sequence_length=65, max_query_length=8)
    with pytest.raises(ValueError, match="positions"):
        BertSpanLabeler(load(folder).encoder, longer)


def test_texts_are_refused():
    with pytest.raises(ValueError, match="called on ids"):
        BertSpanLabeler(toy_encoder())({"question": ["a"], "context": ["b"]})


def test_a_single_text_is_refused(labeler):
    with pytest.raises(ValueError, match=r"questions must be a list of texts, got a single one; pass \['abc'\]"):
        labeler.answer("abc", ["def"])
    with pytest.raises(ValueError, match="contexts must be a list of texts"):
        labeler.answer(["abc"], "def")
    with pytest.raises(ValueError, match="question must be a list of texts"):
        labeler.tokenize({"question": "abc", "context": "def"})


@pytest.mark.parametrize("span", [(3.0, 8.0), 3, (3, 8, 9), ("3", "8")])
def test_an_answer_is_two_whole_numbers(labeler, span):
    with pytest.raises(ValueError, match=r"must be two integers, .* question 0 has"):
        labeler.tokenize({"question": ["where"], "context": ["In Paris"]}, [span])


def test_questions_of_a_file_have_their_answers(labeler):
    question = SquadQuestion("q1", "Where?", "In Paris", ("Paris",), False, 1, 1)
    with pytest.raises(ValueError, match="bring their answers: leave y out"):
        labeler.tokenize([question], [(3, 8)])


QUESTIONS = ["the film ?", "good , was", "a", "dull dull dull dull dull dull dull", "", "plot"]
CONTEXTS = ["A good film was lovely.", "the plot, and the film\nwas dull " * 6, "", " \t ", "goodly plot", "bad . fine"]


@pytest.fixture(scope="module")
def window_labeler():
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(num_hidden_layers=1, with_pooler=False), preprocessor, seed=1)


@pytest.fixture(scope="module")
def exported(window_labeler, tmp_path_factory):
    return window_labeler.export(tmp_path_factory.mktemp("answers") / "1", n_best=20, max_answer_length=5)


def serve(path, questions, contexts):
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return signature(question=tf.constant(questions, tf.string), context=tf.constant(contexts, tf.string))


def test_answers_are_those_of_the_files_of_predictions(window_labeler, exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    questions = [
        SquadQuestion(str(i), question, context, (), False, None, None)
        for i, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True))
    ]
    preprocessor = window_labeler.preprocessor
    tokenized = tokenize_questions(questions, preprocessor)
    batch = tokenized.windows.batch(np.arange(len(tokenized.windows)))
    logits = (values.numpy() for values in window_labeler(batch).values())
    predictions = answer_questions(tokenized, *logits, preprocessor.tokenizer, max_answer_length=5)
    for row, answers in enumerate(predictions.n_best.values()):
        found = [text.decode() for text in served["n_best_answers"][row].numpy() if text]  # two may have one sum
        assert sorted(found) == sorted(answer.text for answer in answers if answer.text != "empty")
        sums = [answer.start_logit + answer.end_logit for answer in answers][: len(found)]
        np.testing.assert_allclose(served["n_best_scores"][row, : len(found)], sums, atol=1e-5)
        assert served["answer"][row].numpy().decode() == (found[0] if found else "")


def test_places_are_those_of_the_answer(exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    for row, context in enumerate(CONTEXTS):
        start, end = int(served["start_character"][row]), int(served["end_character"][row])
        assert " ".join(context[start:end].split()) == served["answer"][row].numpy().decode()
        first, last = int(served["start_byte"][row]), int(served["end_byte"][row])
        assert context.encode()[first:last].decode() == context[start:end]


def test_the_model_answers_the_same(window_labeler, exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    answers = window_labeler.answer(QUESTIONS, CONTEXTS, n_best=3, max_answer_length=5)
    assert [len(of_question) for of_question in answers] == [3, 3, 0, 0, 3, 3]
    for row, of_question in enumerate(answers):
        for number, answer in enumerate(of_question):
            # White space in an answer is one space, as in the original's files.
            assert answer["text"] == " ".join(CONTEXTS[row][answer["start"] : answer["end"]].split())
            assert answer["text"] == served["n_best_answers"][row, number].numpy().decode()


def test_the_threshold_makes_a_question_impossible(window_labeler, tmp_path):
    question, context = QUESTIONS[:1], CONTEXTS[:1]
    (best,) = window_labeler.answer(question, context)[0]
    (null,) = window_labeler.answer(question, context, null_threshold=-1e30)[0]
    odds = null["score"] - best["score"]
    for threshold, text in ((odds + 0.01, best["text"]), (odds - 0.01, "")):
        served = serve(window_labeler.export(tmp_path / f"2{text == ''}", null_threshold=threshold), question, context)
        assert served["answer"][0].numpy().decode() == text
        assert int(served["end_byte"][0]) == (best["end"] if text else 0)
        assert float(served["score"][0]) == pytest.approx(best["score"])
        assert window_labeler.answer(question, context, null_threshold=threshold)[0][0]["text"] == text


def test_bytes_that_are_no_characters_are_within_an_answer(window_labeler):
    (answers,) = window_labeler.answer([b"film"], [b"good \xff film"], n_best=20)
    assert "good \ufffd film" in [answer["text"] for answer in answers]


def test_what_cannot_be_answered_is_refused(window_labeler, tmp_path):
    bare = BertSpanLabeler(toy_encoder(), seed=1)
    with pytest.raises(ValueError, match="has no preprocessor"):
        bare.answer(["a"], ["b"])
    with pytest.raises(ValueError, match="has no preprocessor"):
        bare.export(tmp_path / "1")
    with pytest.raises(ValueError, match="one context per question"):
        window_labeler.answer(["a", "b"], ["c"])
    whole, number = "a whole number of at least 1", "a number or None"
    for arguments, allowed in (
        ({"n_best": 0}, whole),
        ({"n_best": -1}, whole),
        ({"n_best": 1.5}, whole),
        ({"max_answer_length": 0}, whole),
        ({"null_threshold": "0"}, number),
        ({"null_threshold": float("nan")}, number),
    ):
        ((name, given),) = arguments.items()
        message = f"{name} must be {allowed}, got {given!r}"
        with pytest.raises(ValueError, match=message):
            window_labeler.answer(["a"], ["b"], **arguments)
        with pytest.raises(ValueError, match=message):
            window_labeler.export(tmp_path / "1", **arguments)


def test_an_encoder_with_few_positions_gets_a_shorter_default_length(caplog):
    labeler = BertSpanLabeler.from_preset("bert_tiny_novels")
    positions = labeler.encoder.max_position_embeddings
    assert labeler.preprocessor.sequence_length == positions < 384
    assert f"the encoder has {positions} positions: preprocessing with sequence_length={positions}" in caplog.text
    assert len(labeler.answer(["Who?"], ["It was a dark and stormy night. " * 40])) == 1
    with pytest.raises(ValueError, match="beyond the encoder's"):
        BertSpanLabeler.from_preset("bert_tiny_novels", sequence_length=384)
