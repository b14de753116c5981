import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.linear_model import LogisticRegression

import keras_bert
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.weights.layout import POOLINGS
from tests.reference.windows import split_into_windows
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor, toy_reviews

TEXTS, LABELS = toy_reviews(64)
LOGITS_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def trained(classifier, x=TEXTS, y=LABELS, epochs=12, **arguments):
    classifier.compile(keras_bert.BertAdamW(5e-3, bias_correction=True))
    classifier.fit(x, y, epochs=epochs, batch_size=16, verbose=0, **arguments)
    return classifier


def test_learns_from_strings():
    classifier = trained(toy_classifier(encoder_arguments={"num_hidden_layers": 2}))
    assert classifier.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] > 0.95
    assert classifier.predict_labels(["the film was lovely .", "awful"]) == ["positive", "negative"]
    probabilities = classifier.predict_probabilities(TEXTS[:3])
    assert_close(probabilities.sum(axis=1), 1.0, num_terms=2)


def test_predict_keeps_the_order_and_equals_a_direct_call():
    classifier = toy_classifier()
    logits = classifier.predict(TEXTS, batch_size=8, verbose=0)
    one_by_one = [np.array(classifier(classifier.preprocessor([text]))) for text in TEXTS]
    assert_close(logits, np.concatenate(one_by_one), num_terms=64)


def test_all_forms_of_input_agree():
    classifier = toy_classifier()
    ids = {name: values.numpy() for name, values in toy_preprocessor(pad_to="max_length")(TEXTS).items()}
    expected = classifier.predict(TEXTS, verbose=0)
    for x in (
        np.array(TEXTS),
        np.array(TEXTS, object),
        [text.encode() for text in TEXTS],
        tf.constant(TEXTS),
        {"text": TEXTS},
        ids,
        tf.data.Dataset.from_tensor_slices(TEXTS).batch(7),
        tf.data.Dataset.from_tensor_slices({"text": TEXTS}).batch(7),
        tf.data.Dataset.from_tensor_slices(ids).batch(7),
    ):
        assert_close(classifier.predict(x, verbose=0), expected, num_terms=64)


def test_all_forms_of_labels_agree():
    numbers = np.array([int(label == "positive") for label in LABELS])
    ids = {name: values.numpy() for name, values in toy_preprocessor(pad_to="max_length")(TEXTS).items()}
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(32)
    losses = []
    for arguments in (
        (TEXTS, LABELS),
        (TEXTS, numbers),
        (TEXTS, numbers[:, None]),
        (np.array(TEXTS), np.array(LABELS)),
        (ids, LABELS),
        (batches,),
        (tf.data.Dataset.from_tensor_slices((ids, numbers)).batch(32),),
    ):
        classifier = toy_classifier()
        classifier.compile()
        losses.append(classifier.evaluate(*arguments, batch_size=32, verbose=0))
    assert_close(losses, np.broadcast_to(losses[0], np.shape(losses)), num_terms=64)


def test_pairs_are_read_from_all_containers_in_order():
    classifier = toy_classifier(["same", "different"])
    a, b = TEXTS[:8], TEXTS[8:16]
    expected = classifier.predict((a, b), verbose=0)
    assert_close(classifier.predict({"text_a": a, "text_b": b}, verbose=0), expected, num_terms=64)
    batches = tf.data.Dataset.from_tensor_slices({"text_a": a, "text_b": b}).batch(3)
    assert_close(classifier.predict(batches, verbose=0), expected, num_terms=64)
    assert np.abs(classifier.predict((b, a), verbose=0) - expected).max() > 1e-4


@pytest.mark.slow
def test_learns_several_labels_per_text():
    texts = ["good", "bad", "good and bad", "the film"] * 8
    labels = [["praise"], ["blame"], ["praise", "blame"], []] * 8
    classifier = trained(toy_classifier(["praise", "blame"], problem_type=MULTI_LABEL), texts, labels, epochs=25)
    assert classifier.predict_labels(texts[:4]) == labels[:4]
    assert classifier.evaluate(texts, labels, verbose=0, return_dict=True)["accuracy"] == 1.0


@pytest.mark.slow
def test_learns_a_regression():
    targets = [1.0 if label == "positive" else -1.0 for label in LABELS]
    classifier = trained(toy_classifier(None, problem_type=REGRESSION), y=targets, epochs=20)
    assert classifier.evaluate(TEXTS, targets, verbose=0, return_dict=True)["mse"] < 0.2
    assert classifier.predict(TEXTS[:5], verbose=0).shape == (5, 1)


def test_loss_is_the_weighted_mean_of_cross_entropies():
    classifier = toy_classifier(["a", "b", "c"], class_weights={"b": 3.0})
    logits = np.random.default_rng(0).normal(size=[4, 3]).astype("float32")
    labels, sample_weight = np.array([0, 1, 1, 2]), np.array([1.0, 0.5, 2.0, 0.0], "float32")
    losses = -np.log((np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(4), labels])
    weights = np.array([1.0, 3.0, 3.0, 1.0]) * sample_weight
    loss_sum, weight = classifier.loss_terms(labels, tf.constant(logits), tf.constant(sample_weight))["loss"]
    assert_close(loss_sum, (losses * weights).sum(), num_terms=4 * 3)
    assert float(weight) == weights.sum()


def test_loss_of_several_labels_is_the_mean_over_labels():
    classifier = toy_classifier(["a", "b"], problem_type=MULTI_LABEL, class_weights=[1.0, 2.0])
    logits = np.array([[5.0, -2.0], [0.5, 30.0]], "float32")
    labels = np.array([[1.0, 0.0], [0.0, 1.0]], "float32")
    probabilities = 1 / (1 + np.exp(-logits.astype("float64")))
    losses = -np.log(np.where(labels == 1, probabilities, 1 - probabilities)) * [1.0, 2.0]
    loss_sum, weight = classifier.loss_terms(labels, tf.constant(logits))["loss"]
    assert_close(loss_sum, losses.sum(), num_terms=2 * 2)
    assert float(weight) == 6.0


@pytest.mark.parametrize("form", ["constructor", "fit by name", "fit by number", "dataset"])
def test_class_weights_silence_a_class(form):
    weights = {"fit by number": {1: 0.0}}.get(form, {"positive": 0.0})
    classifier = toy_classifier(class_weights=weights if form == "constructor" else None)
    classifier.compile(keras_bert.BertAdamW(5e-3))
    x = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(16) if form == "dataset" else TEXTS
    fit_weights = {} if form == "constructor" else {"class_weight": weights}
    classifier.fit(x, None if form == "dataset" else LABELS, epochs=4, verbose=0, **fit_weights)
    assert set(classifier.predict_labels(TEXTS)) == {"negative"}


@pytest.mark.parametrize("freeze", ["none", "embeddings", "encoder", 1, 2])
def test_freeze_trains_exactly_the_other_weights_also_after_loading(freeze, tmp_path):
    classifier = toy_classifier(freeze=freeze, encoder_arguments={"num_hidden_layers": 2})
    before = {path: np.array(variable) for path, variable in classifier.variables_by_path().items()}
    trained(classifier, epochs=1)
    changed = {path for path, v in classifier.variables_by_path().items() if (np.array(v) != before[path]).any()}
    blocks = range(freeze) if isinstance(freeze, int) else ()
    frozen = {"none": (), "encoder": ("encoder/",)}.get(
        freeze, ("encoder/embeddings/", *(f"encoder/transformer_block_{i}/" for i in blocks))
    )
    assert changed == {path for path in before if not path.startswith(frozen)}
    classifier.save(tmp_path / "classifier.keras")
    loaded = keras.models.load_model(tmp_path / "classifier.keras")
    assert {path for path, variable in loaded.variables_by_path().items() if variable.trainable} == changed


def test_saves_and_loads_as_keras_file_and_trains_alike_after_loading(tmp_path):
    classifier = trained(toy_classifier(class_weights=[1.0, 2.0], freeze="embeddings"), epochs=2)
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.save(tmp_path / "classifier.keras")
    loaded = keras.models.load_model(tmp_path / "classifier.keras")
    assert loaded.labels == ["negative", "positive"]
    assert loaded.class_weights == [1.0, 2.0]
    assert loaded.get_config() == classifier.get_config()
    np.testing.assert_array_equal(loaded.predict(TEXTS, verbose=0), expected)
    assert loaded.evaluate(TEXTS, LABELS, verbose=0) == classifier.evaluate(TEXTS, LABELS, verbose=0)
    assert int(loaded.optimizer.iterations) == int(classifier.optimizer.iterations) == 8
    for model in (classifier, loaded):
        model.fit(TEXTS[:16], LABELS[:16], shuffle=False, verbose=0)
    for one, two in zip(classifier.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(one, two)


def test_tensorflow_checkpoint_after_predict_keeps_every_variable(tmp_path):
    classifier = toy_classifier()
    classifier.predict(TEXTS, verbose=0)
    file = tf.train.Checkpoint(model=classifier).write(str(tmp_path / "checkpoint"))
    saved = [name for name, _ in tf.train.list_variables(file) if "VARIABLE_VALUE" in name]
    assert len(saved) == len(classifier.variables)


def test_evaluates_on_validation_data_or_split():
    classifier = toy_classifier()
    classifier.compile(keras_bert.BertAdamW(0.0))
    expected = classifier.evaluate(TEXTS[48:], LABELS[48:], verbose=0)[0]
    for y, arguments in (
        (LABELS[:48], {"validation_data": (TEXTS[48:], LABELS[48:])}),
        (LABELS, {"validation_split": 0.25}),
    ):
        history = classifier.fit(TEXTS[: len(y)], y, verbose=0, **arguments).history
        assert set(history) == {"accuracy", "loss", "val_accuracy", "val_loss"}
        assert_close(history["val_loss"][0], expected, num_terms=64)


def test_long_texts_are_counted(caplog):
    classifier = toy_classifier()
    classifier.predict(["good " * 30, "bad"], verbose=0)
    assert "1 of 2 texts are longer than 16 tokens and were truncated (the longest has 32)" in caplog.text
    classifier.predict(tf.data.Dataset.from_tensor_slices(["good " * 30, "bad"] * 6).batch(4), verbose=0)
    (message,) = [record.message for record in caplog.records if "of the dataset so far" in record.message]
    assert "longer than 16 tokens and were truncated or split into windows" in message


def test_dropout_is_on_the_pooled_output():
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    classifier = toy_classifier(dropout=0.5, encoder_arguments=no_dropout)
    ids = classifier.preprocessor(TEXTS[:4])
    classifier.logits.kernel.assign(np.ones([16, 2]))
    dropped = np.array(classifier(ids, training=True))
    # Both logits sum the same remains of the pooled output; dropout on the logits would make them differ.
    np.testing.assert_array_equal(dropped[:, 0], dropped[:, 1])
    assert np.abs(dropped - np.array(classifier(ids))).max() > 1e-4
    without = toy_classifier(dropout=0.0, encoder_arguments=no_dropout)
    # Not to the bit: while training, activations are computed in another order.
    assert_close(without(ids, training=True), without(ids), num_terms=64)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"labels": ["a", "a"]}, r"distinct; these are given more than once: \['a'\]"),
        ({"labels": ["a", "b\n"]}, "must be printable"),
        ({"labels": ["a"]}, "needs at least 2 labels"),
        ({"labels": "ab"}, "a list of names, or their number; got 'ab'"),
        ({"problem_type": "ranking"}, "unknown problem_type 'ranking'; allowed are"),
        ({"freeze": "half"}, "got 'half'"),
        ({"freeze": 3, "encoder_arguments": {"num_hidden_layers": 2}}, "from 1 to 2; got 3"),
        ({"class_weights": [1.0]}, "must be 2, one for each label; got 1"),
        ({"class_weights": {"neutral": 1.0}}, "the label 'neutral', which is not among"),
        ({"class_weights": [1.0, -1.0]}, "that of 'positive' is -1.0"),
        ({"encoder_arguments": {"with_pooler": False}}, "with_pooler=True"),
        ({"pooling": "mean"}, "pooling='mean' needs an encoder with no pooler: make it with with_pooler=False"),
        ({"pooling": "median"}, "unknown pooling 'median'; allowed are"),
        ({"encoder_arguments": {"vocab_size": 7}}, "22 wordpieces and the encoder 7"),
        (
            {"preprocessor": toy_preprocessor(sequence_length=33)},
            "sequence_length=33 is beyond the encoder's 32 positions",
        ),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_classifier(**arguments)


ZEROS = np.zeros([2, 4], "int32")
IDS = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), ZEROS)


@pytest.mark.parametrize(
    "x, y, message",
    [
        (["a", "b"], ["positive", "neutral"], "label 1 is 'neutral', which is not among the model's labels"),
        (["a", "b"], [0, 2], "from 0 to 1 .*; label 1 is 2"),
        (["a", "b"], [0.5, 1], "label 0 is 0.5"),
        (["a", "b"], [0], "2 examples, but y has 1"),
        (["a", "b"], [[0, 1], [1, 0]], "several labels at once use problem_type"),
        (["a", 3], [0, 1], r"text\[1\] must be a string, got 3"),
        ((["a", "b"], ["c"]), [0, 1], "the same number of texts, got {'text_a': 2, 'text_b': 1}"),
        (np.zeros([2, 4]), [0, 1], "takes texts .*, or ids"),
        ({**IDS, "token_ids": ZEROS + 99}, [0, 1], "token_ids must be from 0 to 21; received values from 99 to 99"),
        ({**IDS, "segment_ids": ZEROS + 2}, [0, 1], "segment_ids must be from 0 to 1"),
        (dict.fromkeys(IDS, np.zeros([2, 40], "int32")), [0, 1], "40 tokens long; the encoder has positions for 32"),
        ({**IDS, "token_ids": np.zeros([2, 4])}, [0, 1], "whole numbers"),
        ([], [], "no texts"),
        (["a", "b"], None, "there are no labels"),
    ],
)
def test_rejects_invalid_training_data(x, y, message):
    classifier = toy_classifier()
    classifier.compile()
    with pytest.raises((ValueError, TypeError), match=message):
        classifier.fit(x, y, verbose=0)


def test_rejects_invalid_calls():
    classifier = toy_classifier()
    with pytest.raises(ValueError, match="has no preprocessor and takes ids only, but got texts"):
        BertClassifier(toy_encoder(), 2).predict(["a text"])
    with pytest.raises(ValueError, match=r"called on ids, a dict with token_ids .*; got list"):
        classifier(["a text"])
    for batch_size in (0, -1, 1.5):
        with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
            classifier.predict(["a text"], batch_size=batch_size)
    with pytest.raises(ValueError, match="compile the model before `fit`"):
        classifier.fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="they are logits"):
        classifier.compile(loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="class_weights are part of the model's own loss"):
        toy_classifier(class_weights=[1.0, 2.0]).compile(loss=LOGITS_LOSS)
    classifier.compile()
    with pytest.raises(ValueError, match="not batched"):
        classifier.fit(tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)))


def test_a_loss_object_replaces_the_models_own_loss():
    losses = []
    for loss in (None, LOGITS_LOSS):
        classifier = toy_classifier()
        classifier.compile(loss=loss)
        losses.append(classifier.evaluate(TEXTS, LABELS, verbose=0)[0])
    assert_close(*losses, num_terms=64)


LONG_TEXTS = ["good " + "a " * 40, "bad", "the film was " * 12 + "awful", ""]


def test_windows_average_the_logits_of_each_text():
    classifier = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows", window_stride=5))
    averaged = classifier.predict(LONG_TEXTS, verbose=0)
    whole = toy_classifier(preprocessor=toy_preprocessor(sequence_length=16))
    for text, logits in zip(LONG_TEXTS, averaged, strict=True):
        words = text.split()
        windows = [" ".join(window) for window in split_into_windows(words, window_length=14, stride=5)]
        assert_close(whole.predict(windows, verbose=0).mean(axis=0), logits, num_terms=64)


@pytest.mark.slow
def test_windows_are_the_same_in_training_evaluation_and_pairs(caplog):
    classifier = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows"))
    labels = ["positive", "negative", "negative", "positive"]
    classifier.compile(keras_bert.BertAdamW(5e-3, bias_correction=True))
    classifier.fit(LONG_TEXTS, labels, epochs=20, verbose=0)
    assert classifier.evaluate(LONG_TEXTS, labels, verbose=0, return_dict=True)["accuracy"] == 1.0
    assert "2 of 4 texts are longer than 16 tokens and were split into windows" in caplog.text
    pairs = classifier.predict((["good"] * 4, LONG_TEXTS), verbose=0)
    assert pairs.shape == (4, 2)


@pytest.mark.parametrize("x", [TEXTS, {"text": TEXTS}])
def test_predict_of_some_steps_returns_the_first_rows(x):
    classifier = toy_classifier()
    some = classifier.predict(x, batch_size=8, steps=2, verbose=0)
    assert_close(some, classifier.predict(x, verbose=0)[:16], num_terms=64)


@pytest.mark.parametrize(
    "arguments", [{"metrics": ["acc"]}, {"metrics": "accuracy"}, {"weighted_metrics": ["accuracy"]}]
)
def test_accuracy_of_several_labels_is_by_label(arguments):
    classifier = toy_classifier(["a", "b", "c"], problem_type=MULTI_LABEL)
    classifier.compile(**arguments)
    rows = np.random.default_rng(0).integers(0, 2, [64, 3])
    by_label = (rows == (classifier.predict(TEXTS, verbose=0) >= 0)).mean()
    assert classifier.evaluate(TEXTS, rows, verbose=0, return_dict=True)["accuracy"] == pytest.approx(by_label)


@pytest.mark.parametrize(
    "labels, problem_type, message",
    [
        (["x", "neutral"], SINGLE_LABEL, "labels that the model does not have"),
        ([0, 2], SINGLE_LABEL, "labels that the model does not have"),
        ([[1, 0], [0, 1]], SINGLE_LABEL, r"must have the shape \[batch\], got"),
        ([0.5, 1.0], SINGLE_LABEL, "names or whole numbers, got float"),
        ([["a"], ["b"]], MULTI_LABEL, "write several label names at once as zeros and ones"),
        ([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], MULTI_LABEL, r"of the shape \[batch, 2\]"),
        ([[5.0, 2.0], [1.0, 0.0]], MULTI_LABEL, "labels other than zeros and ones"),
    ],
)
def test_rejects_invalid_labels_in_a_dataset(labels, problem_type, message):
    classifier = toy_classifier(["x", "y"], problem_type=problem_type)
    classifier.compile()
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        classifier.fit(tf.data.Dataset.from_tensor_slices((["a", "b"], labels)).batch(2), verbose=0)


def test_boolean_labels_and_weights_in_a_dataset():
    classifier = toy_classifier()
    classifier.compile()
    weights = np.linspace(0.0, 1.0, 64).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, np.array(LABELS) == "positive", weights)).batch(64)
    expected = classifier.evaluate(TEXTS, LABELS, sample_weight=weights, batch_size=64, verbose=0)
    assert_close(classifier.evaluate(batches, verbose=0), expected, num_terms=64)


def test_keras_trains_on_a_pydataset_of_ids():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return IDS, ZEROS[:, 0]

    classifier = toy_classifier()
    classifier.compile()
    assert len(classifier.fit(Batches(), verbose=0).history["loss"]) == 1


def test_predict_takes_ids_of_any_whole_number_type():
    classifier = toy_classifier()
    ids = {name: values.numpy() for name, values in classifier.preprocessor(TEXTS).items()}
    expected = classifier.predict(TEXTS, verbose=0)
    forms = [{name: values.astype(dtype) for name, values in ids.items()} for dtype in ("int64", "int32", "uint8")]
    for form in (*forms, {**ids, "padding_mask": ids["padding_mask"].astype(bool)}):
        assert_close(classifier.predict(form, verbose=0), expected, num_terms=64)


def test_predict_sees_changed_weights():
    classifier = toy_classifier()
    before = classifier.predict(TEXTS, verbose=0)
    classifier.logits.bias.assign_add([1.0, 0.0])
    assert_close(classifier.predict(TEXTS, verbose=0), before + np.array([1.0, 0.0]), num_terms=64)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_classifies_the_vectors_of_an_embedder(pooling, tmp_path):
    encoder = toy_encoder(with_pooler=False)
    classifier = BertClassifier(encoder, ["negative", "positive"], toy_preprocessor(), pooling=pooling, seed=1)
    vectors = BertTextEmbedder(encoder, toy_preprocessor(), pooling).encode(TEXTS)
    expected = 4 * vectors @ np.asarray(classifier.logits.kernel) + np.asarray(classifier.logits.bias)
    assert_close(classifier.predict(TEXTS, verbose=0), expected, num_terms=64)
    trained(classifier, epochs=1)
    folder = classifier.save_checkpoint(tmp_path / "model")
    loaded = BertClassifier.from_checkpoint(folder, sequence_length=16)
    assert (loaded.pooling, loaded.checkpoint_report.random) == (pooling, ())
    np.testing.assert_array_equal(loaded.predict(TEXTS, verbose=0), classifier.predict(TEXTS, verbose=0))
    other = BertClassifier.from_checkpoint(folder, sequence_length=16, pooling="pooler")
    assert {"encoder/pooler/kernel", "logits/kernel"} <= set(other.checkpoint_report.random)


def test_pooling_of_a_sentence_encoder_without_a_pooler(tmp_path):
    embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), "max")
    folder = embedder.save_checkpoint(tmp_path / "model")
    assert BertClassifier.from_checkpoint(folder, labels=2).pooling == "max"
    assert BertClassifier.from_checkpoint(folder, labels=2, pooling="cls").pooling == "cls"
    assert BertClassifier.from_checkpoint(folder, labels=2, pooling="pooler").pooling == "pooler"
    choices = BertMultipleChoice.from_checkpoint(folder)
    assert "encoder/pooler/kernel" in choices.checkpoint_report.random


def test_invalid_pooling_in_a_checkpoint(tmp_path):
    encoder = toy_encoder(with_pooler=False)
    classifier = BertClassifier(encoder, 2, toy_preprocessor(), pooling="max", seed=1)
    config = classifier.save_checkpoint(tmp_path / "model") / "config.json"
    config.write_text(config.read_text().replace('"max"', '["max"]'))
    with pytest.raises(ValueError, match=r"config.json: classifier_pooling must be one of .*; found \['max'\]"):
        BertClassifier.from_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("labels", [("bad", "good"), ("bad", "good", "none")])
def test_fit_logits_is_the_logistic_regression_of_scikit_learn(labels):
    texts, names = toy_reviews(60)
    names = [
        labels[-1] if len(text.split()) > 6 else labels[name == "positive"]
        for text, name in zip(texts, names, strict=True)
    ]
    classifier = toy_classifier(
        labels, {"with_pooler": False}, pooling="mean", class_weights=[1.0, 3.0, 0.5][: len(labels)]
    )
    encoder_weights = [np.array(weight) for weight in classifier.encoder.weights]
    classifier.fit_logits(texts[:40], names[:40], inverse_regularization=5.0)
    vectors = BertTextEmbedder(classifier.encoder, classifier.preprocessor).encode(texts)
    weights = dict(zip(labels, classifier.class_weights, strict=True))
    expected = LogisticRegression(C=5.0, class_weight=weights, max_iter=1000).fit(vectors[:40], names[:40])
    np.testing.assert_allclose(
        classifier.predict_probabilities(texts), expected.predict_proba(vectors), atol=2e-3, rtol=0
    )
    for before, after in zip(encoder_weights, classifier.encoder.weights, strict=True):
        np.testing.assert_array_equal(before, after)


def test_fit_logits_averages_the_vectors_of_windows():
    labels = ["positive", "negative", "negative", "positive"]
    classifier = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows"))
    classifier.fit_logits(LONG_TEXTS, labels, inverse_regularization=1e6)
    assert classifier.predict_labels(LONG_TEXTS) == labels


def test_fit_logits_rejects_labels_that_it_cannot_learn():
    with pytest.raises(ValueError, match=r"every label needs a text to learn from; there is none for \['positive'\]"):
        toy_classifier().fit_logits(["good", "bad"], ["negative", "negative"])
    with pytest.raises(ValueError, match="there are no labels: y is None"):
        toy_classifier().fit_logits(["good", "bad"])
    with pytest.raises(ValueError, match=r"logistic regression needs a single label per text .* is 'multi_label"):
        toy_classifier(problem_type=MULTI_LABEL).fit_logits(["good"], [["negative"]])
