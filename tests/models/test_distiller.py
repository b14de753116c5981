import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.models.distiller import BertDistiller, StateObjective
from tests.reference import distillation as reference
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor

TEXTS = ["a good film, the plot was dull.", "the film was lovely"]
ALL = {"hidden_weight": 1.0, "relation_weight": 1.0, "vector_weight": 1.0}


def distiller(objective=None, student=None, **arguments):
    teacher = toy_encoder(num_hidden_layers=3, seed=2, trainable=False)
    encoder = toy_encoder(
        num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **student or {}
    )
    return BertDistiller(encoder, teacher, toy_preprocessor(), objective=StateObjective(**objective or {}), **arguments)


def query_key_value(encoder, states, layer):
    projected = encoder.transformer_blocks[layer - 1].self_attention.query_key_value(states[layer - 1])
    return np.split(np.asarray(projected), 3, axis=-1)


def test_losses_equal_the_reference():
    objective = {**ALL, "hidden_states": ("0:0", "1:3"), "relation_layer": 2, "relation_heads": 4}
    model = distiller(objective)
    teacher, ids = model._teacher.encoder, toy_preprocessor()(TEXTS)
    own, other = (encoder(ids, return_hidden_states=True)["hidden_states"] for encoder in (model.encoder, teacher))
    outputs = model(ids)
    relations = query_key_value(model.encoder, own, 2), query_key_value(teacher, other, 2)
    for row, length in enumerate(np.sum(ids["padding_mask"], axis=1)):
        pairs = [(own[a][row, :length].numpy(), other[b][row, :length].numpy()) for a, b in ((0, 0), (1, 3))]
        expected = np.mean([reference.hidden_state_loss(*pair) for pair in pairs])
        np.testing.assert_allclose(outputs["hidden_states"][row], expected, rtol=1e-5)
        triples = [[part[row, :length] for part in parts] for parts in relations]
        np.testing.assert_allclose(outputs["relations"][row], reference.relation_loss(*triples, 4), rtol=1e-4)
        np.testing.assert_allclose(outputs["text_vectors"][row], own[2][row, :length].numpy().mean(axis=0), atol=1e-6)


def test_loss_terms_are_weighted_sums():
    model = distiller({**ALL, "vector_weight": 3.0})
    outputs = {"hidden_states": tf.constant([1.0, 2.0]), "relations": tf.constant([4.0, 8.0])}
    outputs["text_vectors"] = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    labels = tf.constant([[0.0, 1.0], [0.0, 1.0]], tf.float16)
    terms = model.loss_terms(labels, outputs, tf.constant([1.0, 0.5]))
    sums = {name: (float(total), float(weight)) for name, (total, weight) in terms.items()}
    assert sums == {"hidden_states": (2.0, 1.5), "relations": (8.0, 1.5), "text_vectors": (3.0, 1.5)}
    weights = model.loss_weights(labels, tf.constant([1.0, 0.5]))
    assert {name: float(weight) for name, weight in weights.items()} == dict.fromkeys(sums, 1.5)
    means = model.mean_losses(outputs, labels)
    assert means == {"hidden_states": 1.5, "relations": 6.0, "text_vectors": 0.5}


def test_a_part_without_weight_is_not_computed():
    assert set(distiller({"hidden_weight": 0.0, "vector_weight": 1.0})(toy_preprocessor()(TEXTS))) == {"text_vectors"}
    assert set(distiller()(toy_preprocessor()(TEXTS))) == {"text_vectors", "hidden_states"}


def test_teacher_is_no_part_of_the_model(tmp_path):
    model = distiller(ALL, encoder_arguments={"hidden_dropout_prob": 0.2})
    assert {id(weight) for weight in model.weights} == {id(weight) for weight in model.encoder.weights}
    with tf.GradientTape() as tape:
        outputs = model(toy_preprocessor()(TEXTS), training=True)
        terms = model.loss_terms(tf.ones([2, 16]), outputs)
        loss = tf.add_n([total for total, _ in terms.values()])
    gradients = tape.gradient(loss, model.encoder.trainable_variables + model._teacher.encoder.weights)
    number = len(model.encoder.trainable_variables)
    assert all(gradient is None for gradient in gradients[number:])
    assert all(gradient is not None for gradient in gradients[:number])
    saved = keras_bert.BertTextEmbedder.from_checkpoint(model.save_checkpoint(tmp_path / "student"))
    assert (saved.pooling, saved.normalize, saved.encoder.hidden_dropout_prob) == ("mean", True, 0.2)
    np.testing.assert_allclose(saved.encoder.weights[0], model.encoder.weights[0])


def test_student_of_another_width_is_projected(tmp_path):
    model = distiller({"relation_weight": 1.0, "relation_heads": 2}, {"hidden_size": 8})
    assert tuple(model.projection_2.kernel.shape) == (8, 16)
    outputs = model(toy_preprocessor()(TEXTS))
    assert outputs["hidden_states"].shape == (2,) and np.all(np.isfinite(outputs["relations"]))
    assert len(model.weights) == len(model.encoder.weights) + 2
    folder = model.save_checkpoint(tmp_path / "student")
    assert keras_bert.BertEncoder.from_checkpoint(folder).hidden_size == 8


def test_teacher_reads_its_own_ids():
    kept = [index for index, word in enumerate(VOCABULARY) if word != "good"]
    words = [VOCABULARY[index] for index in kept]
    preprocessor = keras_bert.BertPreprocessor(keras_bert.BertTokenizer(words, lower_case=True), 16)
    teacher = toy_encoder()
    student = toy_encoder(vocab_size=len(kept))
    variables = teacher.variables_by_path()
    for path, variable in student.variables_by_path().items():
        value = np.asarray(variables[path])
        variable.assign(value[kept] if value.shape != tuple(variable.shape) else value)
    model = BertDistiller(student, teacher, preprocessor, VOCABULARY)
    np.testing.assert_allclose(model(preprocessor(TEXTS[1:]))["hidden_states"], [0.0], atol=1e-10)
    with pytest.raises(ValueError, match=r"must be part of the teacher's, which lacks 1 of its wordpieces.*'good'"):
        BertDistiller(toy_encoder(), student, toy_preprocessor(), words)
    with pytest.raises(ValueError, match="pass the teacher's as teacher_vocabulary"):
        BertDistiller(student, teacher, preprocessor)


@pytest.mark.parametrize(
    ("objective", "student", "message"),
    [
        ({"hidden_states": ("3:1",)}, {}, "hidden_states=3:1: the student has 2 layers, the teacher 3"),
        ({"hidden_states": ("one",)}, {}, "hidden_states must be STUDENT:TEACHER"),
        ({"relation_weight": 1.0, "relation_layer": 4}, {}, "relation_layer=4: the teacher has 3 layers"),
        ({"relation_weight": 1.0, "relation_heads": 3}, {}, "relation_heads=3 must divide the hidden sizes"),
        ({"vector_weight": 1.0}, {"hidden_size": 8}, "students of the teacher's width, 16"),
        ({"hidden_weight": 0.0}, {}, "there is nothing to learn"),
    ],
)
def test_wrong_objectives(objective, student, message):
    with pytest.raises(ValueError, match=message):
        distiller(objective, student)
