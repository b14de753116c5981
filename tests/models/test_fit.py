"""Keras' training methods on texts, for every head."""

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.models.head import BertHead
from keras_bert.training.step import TrainStep
from tests.models.small_heads import HEADS, make_data, make_head, train_by_trainer, trained_weights
from tests.tolerances import TRAINING_LIMIT, assert_close

RATE, BATCH_SIZE = 1e-2, 8


def compiled(kind, optimizer=None, **arguments):
    head = make_head(kind)
    head.compile(optimizer or keras_bert.BertAdamW(RATE), **arguments)
    return head


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_fit_trains_the_weights_of_the_trainer(kind):
    x, y = make_data(kind)
    head = compiled(kind)
    head.fit(x, y, batch_size=BATCH_SIZE, epochs=2, verbose=0, validation_data=(x, y))
    other = make_head(kind)
    expected = train_by_trainer(other, x, y, 2, BATCH_SIZE, keras_bert.BertAdamW(RATE))
    assert_close(trained_weights(head), expected, limit=TRAINING_LIMIT)
    assert head.history.history.keys() >= {"loss", "val_loss"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_keras_arguments_and_methods_take_texts(kind, tmp_path):
    x, y = make_data(kind)
    head = compiled(kind, keras.optimizers.Adam(1e-3), steps_per_execution=2)
    weights = None if kind == "pretrainer" else np.linspace(0.5, 1.5, 30)
    class_weight = {0: 1.0, 1: 2.0} if head.label_classes() or kind == "multiple_choice" else None
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=5),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.weights.h5", save_weights_only=True),
    ]
    weighting = {"sample_weight": weights, "class_weight": class_weight}
    options = {"batch_size": BATCH_SIZE, "epochs": 2, "verbose": 0, "validation_split": 0.2, "callbacks": callbacks}
    assert len(head.fit(x, y, **weighting, **options).history["val_loss"]) == 2
    evaluated = head.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    assert np.isfinite(evaluated["loss"])
    outputs = keras.tree.flatten(head.predict(x, batch_size=7, verbose=0))
    by_callbacks = keras.tree.flatten(head.predict(x, batch_size=7, verbose=0, callbacks=[keras.callbacks.Callback()]))
    if kind not in ("token_classifier", "pretrainer"):  # whose logits of padding mean nothing
        assert_close(by_callbacks, outputs, num_terms=64)
    head.load_weights(tmp_path / "best.weights.h5")
    logs = head.train_on_batch(x, y, return_dict=True)
    assert logs.keys() == head.test_on_batch(x, y, return_dict=True).keys() >= {"loss"}
    assert keras.tree.flatten(head.predict_on_batch(x))[0].shape[0] == outputs[0].shape[0]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_any_keras_optimizer_gets_dense_gradients_of_the_weighted_mean(optimizer):
    x, y = make_data("single_label", 8)
    head, other = compiled("single_label", optimizer), make_head("single_label")
    before = trained_weights(head)
    head.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    batch, ones = other.tokenize(x, y).batch(tf.range(8)), {"loss": tf.constant(8.0)}
    step = TrainStep(other, keras_bert.BertAdamW(0.0), seed=1)
    gradients, _, _ = step._gradients(batch[:2], ones, tf.constant(0), tf.constant(0), tf.ones([]))
    keras.optimizers.get(optimizer).apply(gradients, other.trainable_variables)
    assert_close(trained_weights(head), trained_weights(other), limit=TRAINING_LIMIT)
    assert np.abs(trained_weights(head) - before).max() > 1e-4


@pytest.mark.slow
def test_one_epoch_three_times_is_three_epochs():
    x, y = make_data("single_label")
    weights = []
    for calls in ([{"epochs": 3}], [{"epochs": 1}] * 3, [{"epochs": 1}, {"epochs": 3, "initial_epoch": 1}]):
        head = compiled("single_label")
        for call in calls:
            head.fit(x, y, batch_size=BATCH_SIZE, verbose=0, **call)
        weights.append(trained_weights(head))
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])
    head.fit(x, y, batch_size=BATCH_SIZE, verbose=0, epochs=2, initial_epoch=5)  # trains nothing
    assert head._fit.epochs_trained == 3


@pytest.mark.parametrize("kind", ["single_label", *(pytest.param(kind, marks=pytest.mark.slow) for kind in HEADS[1:])])
def test_backup_and_restore_resumes_to_the_same_weights(kind, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def fit(*callbacks):
        head = compiled(kind)
        head.fit(*make_data(kind), batch_size=BATCH_SIZE, epochs=3, verbose=0, callbacks=callbacks)
        return trained_weights(head)

    with pytest.raises(KeyboardInterrupt):
        fit(keras.callbacks.BackupAndRestore(tmp_path), Stop())
    np.testing.assert_array_equal(fit(keras.callbacks.BackupAndRestore(tmp_path)), fit())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind not in ("windows", "embedder")])
def test_jit_compile_trains_the_same_weights(kind):
    x, y = make_data(kind, 16)
    weights = []
    for jit_compile in (False, True):
        # Adam would amplify the rounding errors of gradients that are 0 but for them.
        head = compiled(kind, keras.optimizers.SGD(RATE), jit_compile=jit_compile)
        head.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
        weights.append(trained_weights(head))
    assert_close(*weights, num_terms=16 * 16, magnitude=1)
    assert head.get_compile_config()["jit_compile"] is True


@pytest.mark.slow
def test_a_fit_on_other_data_has_its_own_divisor():
    x, y = make_data("single_label")
    head, other = compiled("single_label", keras_bert.BertAdamW(RATE, clip_norm=1e-3)), make_head("single_label")
    optimizer = keras_bert.BertAdamW(RATE, clip_norm=1e-3)
    for epoch, part in enumerate((slice(None), slice(9))):
        head.fit(x[part], y[part], batch_size=BATCH_SIZE, verbose=0)
        expected = train_by_trainer(other, x[part], y[part], 1, BATCH_SIZE, optimizer, first_epoch=epoch)
    assert_close(trained_weights(head), expected, limit=TRAINING_LIMIT)


def test_pandas_columns_are_read_like_dicts():
    x, y = make_data("single_label")
    frame = pandas.DataFrame({"text": x, "label": y})
    head = compiled("single_label")
    expected = head.evaluate(x, y, verbose=0)
    for arguments in ((frame,), (frame[["text"]], frame["label"]), (frame["text"], frame["label"])):
        assert_close(head.evaluate(*arguments, verbose=0), expected, num_terms=64)
    assert_close(head.predict(frame["text"], verbose=0), head.predict(x, verbose=0), num_terms=64)
    head.fit(frame, validation_data=frame, verbose=0)
    assert "val_loss" in head.fit(frame, validation_data=head.tokenize(frame), verbose=0).history
    questions, answers = make_data("span_labeler", 6)
    labeler = make_head("span_labeler")
    frame = pandas.DataFrame(questions)
    np.testing.assert_array_equal(labeler.tokenize(frame, answers).labels, labeler.tokenize(questions, answers).labels)


def test_takes_lists_and_generators_of_pairs():
    (first, second), y = make_data("pairs")
    head = compiled("pairs")
    expected = head.predict((first, second), verbose=0)
    pairs = list(zip(first, second, strict=True))
    np.testing.assert_array_equal(head.predict(pairs, verbose=0), expected)
    np.testing.assert_array_equal(head.predict((pair for pair in pairs), verbose=0), expected)
    head.fit((pair for pair in pairs), y, verbose=0)


def test_methods_of_a_batch_take_what_fit_takes():
    x, y = make_data("single_label", 4)
    frame, head = pandas.DataFrame({"text": x, "label": y}), compiled("single_label")
    expected = head.test_on_batch(x, y)
    for arguments in ((frame,), (iter(x), y)):
        assert_close(head.test_on_batch(*arguments), expected, num_terms=64)
    assert np.isfinite(head.train_on_batch(frame)).all()
    np.testing.assert_array_equal(head.predict_on_batch(frame), head.predict_on_batch(x))
    assert len(make_head("token_classifier").predict_on_batch(iter([["good"]] * 4))) == 4
    with pytest.raises(ValueError, match="in memory are needed, but got a _TensorSliceDataset"):
        head.test_on_batch(tf.data.Dataset.from_tensor_slices((x, y)))


@pytest.mark.parametrize("kind", ["multiple_choice", "span_labeler", "token_classifier", "pretrainer"])
def test_rejects_datasets_of_texts(kind):
    head, texts = compiled(kind), tf.data.Dataset.from_tensors((tf.constant(["a film"]), tf.constant([0])))
    for method in (head.fit, head.evaluate):
        with pytest.raises(ValueError, match=r"cannot be trained .* from a tf.data.Dataset of texts, only of ids"):
            method(texts)
    if kind != "pretrainer":
        with pytest.raises(ValueError, match=r"cannot predict from a tf.data.Dataset of texts"):
            head.predict(texts)


def test_other_backends_are_told_to_use_tensorflow(monkeypatch):
    kinds = ("single_label", "token_classifier", "span_labeler", "pretrainer")
    classifier, tagger, labeler, pretrainer = map(make_head, kinds)
    optimizers = ("auto", keras_bert.BertAdamW(RATE))
    pretrainer.preprocessor = None  # `from_checkpoint` makes none on JAX
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for call in (
        lambda: tagger.predict_tags([["good"]]),
        lambda: tagger.tag(["good"]),
        lambda: labeler.answer(["good"], ["good"]),
        lambda: pretrainer.fill_masks(["good"]),
    ):
        with pytest.raises(ValueError, match="texts are tokenized by TensorFlow, and the Keras backend is jax"):
            call()
    for optimizer in optimizers:
        with pytest.raises(ValueError, match="BertAdamW, the default optimizer, needs TensorFlow"):
            classifier.compile(optimizer)


@pytest.mark.parametrize("kind", HEADS)
def test_predicts_nothing_for_no_texts(kind):
    x, _ = make_data(kind, 2)
    empty = {name: [] for name in x} if isinstance(x, dict) and "token_ids" not in x else []
    for output in keras.tree.flatten(make_head(kind).predict(empty, verbose=0)):
        assert output.shape[0] == 0


@pytest.mark.parametrize(
    ("kind", "x", "y", "arguments", "message"),
    [
        ("single_label", "a text", ["positive"], {}, r"got a single one; pass \['a text'\]"),
        ("single_label", [3, 4], [0, 1], {}, "BertClassifier takes texts .a list of texts .* got"),
        ("regression", ["a"], [0.0], {"class_weight": {0: 1.0}}, "class_weight needs labels that are classes"),
        ("multiple_choice", ["a film"], [0], {}, "takes texts .*with prompt and choices"),
        ("span_labeler", {"question": ["a"]}, None, {}, "with question and context"),
        ("span_labeler", {"question": ["a"], "context": ["b"]}, None, {}, "there are no labels"),
        ("pretrainer", ["a film"], None, {}, "pass pairs of texts, and labels"),
        ("single_label", ["a"], ["positive"], {"sample_weight": [[1.0]]}, r"shape \[examples\]"),
        ("single_label", ["a", "b"], [0, 1], {"sample_weight": [1.0, np.nan]}, "finite .* got nan for example 1"),
        ("single_label", ["a"], [0], {"sample_weight": [-1.0]}, "at least 0, got -1.0 for example 0"),
        ("single_label", ["a"], ["positive"], {"validation_split": 0.5}, "leaves one of the two parts empty"),
    ],
)
def test_rejects_invalid_data(kind, x, y, arguments, message):
    with pytest.raises(ValueError, match=message):
        compiled(kind).fit(x, y, verbose=0, **arguments)


def test_keras_passes_an_iterator_to_the_overridden_private_method(monkeypatch):
    overridden, calls = BertHead._maybe_symbolic_build, []

    def build(head, **arguments):
        calls.append(arguments)
        overridden(head, **arguments)

    monkeypatch.setattr(BertHead, "_maybe_symbolic_build", build)
    head, data = compiled("single_label"), make_data("single_label", 4)
    head.fit(*data, verbose=0)
    head.evaluate(*data, verbose=0)
    assert [list(arguments) for arguments in calls] == [["iterator"]] * 2, (
        "Keras' `fit` and `evaluate` changed: adapt BertHead._maybe_symbolic_build"
    )
    assert callable(keras.Model._maybe_symbolic_build)  # which the method calls
