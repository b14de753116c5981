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
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import VOCABULARY, toy_encoder

GOLDEN_HEAD = "question_answering"
NAMES = ("start_logits", "end_logits")
QUESTIONS = ["the film ?", "good , was", "a", "dull dull dull dull dull dull dull", "", "plot"]
CONTEXTS = ["A good film was lovely.", "the plot, and the film\nwas dull " * 6, "", " \t ", "goodly plot", "bad . fine"]


def load(folder):
    return BertSpanLabeler.from_checkpoint(folder, sequence_length=32, stride=8, max_query_length=8)


@pytest.fixture(scope="module")
def labeler():
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(num_hidden_layers=1, with_pooler=False), preprocessor, seed=1)


def test_logits_equal_hugging_face(shared, golden, folder):
    ids, labeler = read_ids(shared / "golden" / "hf_tiny"), load(folder)
    outputs, expected, mask = labeler(ids), np.load(golden / "outputs.npz"), ids["padding_mask"]
    for name in NAMES:
        logits = keras.ops.convert_to_numpy(outputs[name])
        assert_close(logits[mask == 1], expected[name][mask == 1], limit=GOLDEN_LIMIT)
        assert np.all(logits[mask == 0] < -1e8)
    assert not labeler.checkpoint_report.random
    assert not labeler.checkpoint_report.unused


def test_saves_and_loads_checkpoints_and_keras_files(folder, tmp_path):
    labeler = load(folder)
    labeler.save(tmp_path / "model.keras")
    checkpoint = load(labeler.save_checkpoint(tmp_path / "checkpoint"))
    assert not checkpoint.checkpoint_report.random
    for loaded in (checkpoint, keras.saving.load_model(tmp_path / "model.keras")):
        variables = loaded.variables_by_path()
        for path, variable in labeler.variables_by_path().items():
            np.testing.assert_array_equal(variable, variables[path])
        assert loaded.preprocessor.get_config() == labeler.preprocessor.get_config()


def test_loss_equals_numpy(labeler):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(2, 3, 5)).astype("float32")
    labels, weights = np.array([[0, 4], [2, 2], [0, 0]], "int32"), np.array([1.0, 2.0, 0.0], "float32")
    total, weight = labeler.loss_terms(labels, dict(zip(NAMES, logits, strict=True)), weights)["loss"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = [-(log_probabilities[0, i, a] + log_probabilities[1, i, b]) / 2 for i, (a, b) in enumerate(labels)]
    assert_close(total, np.dot(losses, weights), num_terms=15)
    assert weight == labeler.loss_weights(labels, weights)["loss"] == 3


def test_padding_has_no_probability(labeler):
    ids = {"token_ids": np.array([[2, 4, 3, 5, 3, 0]]), "padding_mask": np.array([[1, 1, 1, 1, 1, 0]])}
    assert all(logits[0, -1] < -1e8 for logits in labeler(ids).values())


@pytest.mark.slow
def test_learns_from_ids():
    labeler = BertSpanLabeler(toy_encoder(with_pooler=False), seed=1)
    ids = np.random.default_rng(0).integers(4, 6, [64, 8])
    ids[:, 0] = 2
    labels = np.stack([(ids == 5).argmax(axis=1)] * 2, axis=1)  # the first 5, or [CLS] where there is none
    labeler.compile(keras.optimizers.Adam(1e-2))
    losses = labeler.fit({"token_ids": ids}, labels, epochs=12, verbose=0, batch_size=16).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    assert labeler.evaluate({"token_ids": ids}, labels, verbose=0) < losses[0]


def test_accuracy_counts_starts_and_ends(tmp_path):
    labeler = BertSpanLabeler(toy_encoder(with_pooler=False), seed=1)
    generator = np.random.default_rng(0)
    ids, labels = {"token_ids": generator.integers(4, 20, [9, 5])}, generator.integers(0, 5, [9, 2])
    is_right = np.stack([labeler(ids)[name] for name in NAMES], axis=1).argmax(axis=2) == labels
    expected = dict(zip((f"{name}_accuracy" for name in NAMES), is_right.mean(axis=0), strict=True))
    by_output = {name: [keras.metrics.SparseCategoricalAccuracy("accuracy")] for name in NAMES}
    for metrics in ("accuracy", ["acc"], by_output):
        labeler.compile(keras.optimizers.Adam(), metrics=metrics, run_eagerly=True)
        found = labeler.evaluate(ids, labels, verbose=0, return_dict=True)
        assert {name: found[name] for name in expected} == pytest.approx(expected)
    labeler.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").evaluate(ids, labels, verbose=0, return_dict=True)
    assert again == pytest.approx(found)
    with pytest.raises(ValueError, match=r"give a dict with a list for each of \['start_logits', 'end_logits'\]"):
        labeler.compile(metrics=["f1"])


def test_answers_equal_prediction_files_and_their_offsets(labeler):
    questions = [
        SquadQuestion(str(i), question, context, (), False, None, None)
        for i, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True))
    ]
    tokenized = tokenize_questions(questions, labeler.preprocessor)
    logits = (x.numpy() for x in labeler(tokenized.windows.batch(np.arange(len(tokenized.windows)))).values())
    predictions = answer_questions(tokenized, *logits, labeler.preprocessor.tokenizer, max_answer_length=5)
    found = labeler.answer(QUESTIONS, CONTEXTS, n_best=20, max_answer_length=5)
    for context, answers, expected in zip(CONTEXTS, found, predictions.n_best.values(), strict=True):
        texts = [answer["text"] for answer in answers]  # two may have the same score
        assert sorted(texts) == sorted(answer.text for answer in expected if answer.text != "empty")
        scores = [answer.start_logit + answer.end_logit for answer in expected][: len(texts)]
        assert_close([answer["score"] for answer in answers], scores, num_terms=64)
        for answer in answers:
            # White space in an answer is one space, as in the original's files.
            assert answer["text"] == " ".join(context[answer["start"] : answer["end"]].split())
    assert [len(answers) for answers in labeler.answer(QUESTIONS, CONTEXTS, n_best=3)] == [3, 3, 0, 0, 3, 3]


@pytest.mark.slow
def test_null_threshold_decides_whether_a_question_is_answered(labeler, tmp_path):
    question, context = QUESTIONS[:1], CONTEXTS[:1]
    (best,) = labeler.answer(question, context)[0]
    (null,) = labeler.answer(question, context, null_threshold=-1e30)[0]
    odds = null["score"] - best["score"]
    for threshold, text in ((odds + 0.01, best["text"]), (odds - 0.01, "")):
        model = tf.saved_model.load(labeler.export(tmp_path / f"2{text == ''}", null_threshold=threshold))
        served = model.signatures["serving_default"](question=tf.constant(question), context=tf.constant(context))
        assert served["answer"][0].numpy().decode() == text
        assert int(served["end_byte"][0]) == (best["end"] if text else 0)
        assert float(served["score"][0]) == pytest.approx(best["score"])
        assert labeler.answer(question, context, null_threshold=threshold)[0][0]["text"] == text


def test_answers_may_contain_invalid_bytes(labeler):
    (answers,) = labeler.answer([b"film"], [b"good \xff film"], n_best=20)
    assert "good \ufffd film" in [answer["text"] for answer in answers]


def test_rejects_preprocessors_that_do_not_fit(folder):
    preprocessor = load(folder).preprocessor
    with pytest.raises(ValueError, match="the same checkpoint"):
        BertSpanLabeler(toy_encoder(), preprocessor)
    longer = BertQuestionPreprocessor(preprocessor.tokenizer, sequence_length=65, max_query_length=8)
    with pytest.raises(ValueError, match="positions"):
        BertSpanLabeler(load(folder).encoder, longer)


@pytest.mark.parametrize("span", [(3.0, 8.0), 3, (3, 8, 9), ("3", "8")])
def test_rejects_answers_that_are_not_two_integers(labeler, span):
    with pytest.raises(ValueError, match=r"must be two integers, .* question 0 has"):
        labeler.tokenize({"question": ["where"], "context": ["In Paris"]}, [span])


def test_rejects_invalid_inputs(labeler, tmp_path):
    with pytest.raises(ValueError, match="called on ids"):
        labeler({"question": ["a"], "context": ["b"]})
    with pytest.raises(ValueError, match=r"questions must be a list of texts, got a single one; pass \['abc'\]"):
        labeler.answer("abc", ["def"])
    with pytest.raises(ValueError, match="contexts must be a list of texts"):
        labeler.answer(["abc"], "def")
    with pytest.raises(ValueError, match="question must be a list of texts"):
        labeler.tokenize({"question": "abc", "context": "def"})
    with pytest.raises(ValueError, match="bring their answers: leave y out"):
        labeler.tokenize([SquadQuestion("q1", "Where?", "In Paris", ("Paris",), False, 1, 1)], [(3, 8)])
    with pytest.raises(ValueError, match="one context per question"):
        labeler.answer(["a", "b"], ["c"])
    bare = BertSpanLabeler(toy_encoder(), seed=1)
    for method in (lambda: bare.answer(["a"], ["b"]), lambda: bare.export(tmp_path / "1")):
        with pytest.raises(ValueError, match="has no preprocessor"):
            method()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("n_best", value, "a whole number of at least 1") for value in (0, -1, 1.5)),
        ("max_answer_length", 0, "a whole number of at least 1"),
        *(("null_threshold", value, "a number or None") for value in ("0", float("nan"))),
    ],
)
def test_rejects_invalid_arguments_of_answers(labeler, tmp_path, name, value, allowed):
    message = f"{name} must be {allowed}, got {value!r}"
    with pytest.raises(ValueError, match=message):
        labeler.answer(["a"], ["b"], **{name: value})
    with pytest.raises(ValueError, match=message):
        labeler.export(tmp_path / "1", **{name: value})


def test_an_encoder_with_few_positions_gets_a_shorter_default_length(caplog):
    labeler = BertSpanLabeler.from_preset("bert_tiny_novels")
    positions = labeler.encoder.max_position_embeddings
    assert labeler.preprocessor.sequence_length == positions < 384
    assert f"the encoder has {positions} positions: preprocessing with sequence_length={positions}" in caplog.text
    assert len(labeler.answer(["Who?"], ["It was a dark and stormy night. " * 40])) == 1
    with pytest.raises(ValueError, match="beyond the encoder's"):
        BertSpanLabeler.from_preset("bert_tiny_novels", sequence_length=384)


def test_a_long_context_is_read_up_to_the_maximum_of_windows(caplog):
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True)
    labeler = BertSpanLabeler(
        toy_encoder(num_hidden_layers=1, with_pooler=False), BertQuestionPreprocessor(tokenizer, 16, 4, 4, 3), seed=1
    )
    context = "the film was good . "
    # Three windows of the room beside two tokens of the question and three special ones, 4 tokens apart.
    read = " ".join((context * 9).split()[: 16 - 5 + 2 * 4])
    whole, expected = labeler.answer(["a film"] * 2, [context * 50_000, read], n_best=20)  # a megabyte
    assert whole == expected
    assert "1 of 2 texts have more than max_windows=3 windows" in caplog.text
    questions = [SquadQuestion("1", "a film", context * 50, (), False, None, None)]
    assert len(tokenize_questions(questions, labeler.preprocessor).windows) == 3
