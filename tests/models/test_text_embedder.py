import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.models.embedding_objectives import EmbeddingObjective
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.training.step import TrainStep
from tests.models.small_heads import trained_weights
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

TEXTS, _ = toy_reviews(40)
TRIPLETS = {"anchor": TEXTS[:12], "positive": TEXTS[12:24], "negative": TEXTS[24:36]}
PAIRS = (TEXTS[:12], TEXTS[12:24])
SCORES = [len({*a.split()} & {*b.split()}) / len({*a.split()} | {*b.split()}) for a, b in zip(*PAIRS, strict=True)]


def toy_embedder(encoder_arguments=None, preprocessor=None, **arguments):
    encoder = toy_encoder(with_pooler=False, **(encoder_arguments or {}))
    return BertTextEmbedder(encoder, preprocessor or toy_preprocessor(), **{"seed": 1, **arguments})


def without_dropout(encoder_arguments=None, **arguments):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return toy_embedder({**rates, **(encoder_arguments or {})}, **arguments)


def test_embeddings_and_cosines_equal_sentence_transformers(shared, minilm):
    golden = shared / "golden" / "minilm"
    expected = np.load(golden / "sentence_embeddings.npz")
    sentences = json.loads((golden / "texts.json").read_text())["sentences"]
    embedder = BertTextEmbedder.from_preset("all_minilm_l6_v2", sequence_length=48)
    vectors = embedder.encode(sentences)
    assert_close(vectors, expected["embeddings"], limit=GOLDEN_LIMIT)
    ids = {"token_ids": expected["input_ids"], "padding_mask": expected["attention_mask"]}
    assert_close(embedder.encode(ids), expected["embeddings"], limit=GOLDEN_LIMIT)
    assert_close(embedder.similarity(sentences, 2 * vectors), expected["cosine"], limit=GOLDEN_LIMIT)


@pytest.mark.parametrize("arguments", [{}, {"pooling": "max", "normalize": False}, {"projection": 5, "dimensions": 3}])
def test_batches_equal_single_texts(arguments):
    embedder = toy_embedder(**arguments)
    found = embedder.encode(TEXTS, batch_size=16)
    assert found.dtype == np.float32 and found.shape == (40, embedder.size)
    single = np.concatenate([embedder(embedder.preprocessor([text])) for text in TEXTS])
    assert_close(found, single, num_terms=64)


def test_texts_of_an_example_do_not_influence_each_other():
    embedder = toy_embedder()
    (batch, _), *_ = training_batches(embedder.tokenize(TRIPLETS), BatchPlan([1] * 12, 12, bucket_step=None)).take(1)
    expected = [embedder.encode(TRIPLETS[name]) for name in TRIPLETS]
    assert_close(np.array(embedder(batch)).swapaxes(0, 1), np.array(expected), num_terms=64)


@pytest.mark.parametrize(
    ("encoder_arguments", "pooling"),
    [({}, "mean"), ({"gradient_checkpointing": True}, "max"), ({"attention_direction": "left_to_right"}, "cls")],
)
@pytest.mark.parametrize("examples", [1, 12])
def test_texts_without_padding_give_the_same(encoder_arguments, pooling, examples):
    embedder = without_dropout(encoder_arguments, pooling=pooling)
    (batch, _), *_ = training_batches(embedder.tokenize(TRIPLETS), BatchPlan([1] * 12, 12, bucket_step=None)).take(1)
    batch = {name: values[:examples] for name, values in batch.items()}
    batch["padding_mask"] = tf.tensor_scatter_nd_update(batch["padding_mask"], [[0, 0, 1]], [0])  # also inside a text
    batch["padding_mask"] *= tf.constant([1, 1, 0])[:, None]  # and texts without a token

    def vectors_and_gradients(batch):
        with tf.GradientTape() as tape:
            vectors = embedder(batch, training=True)
            loss = tf.reduce_sum(vectors[:, 0] * tf.roll(vectors[:, 1], 1, axis=-1))
        gradients = tape.gradient(loss, embedder.trainable_variables)
        return [vectors, *(tf.convert_to_tensor(gradient) for gradient in gradients)]

    spec = {name: tf.TensorSpec([None, 3, None], values.dtype) for name, values in batch.items()}
    packed = tf.function(vectors_and_gradients).get_concrete_function(spec)
    assert "SplitV" in {node.op for node in packed.graph.as_graph_def().node}
    for found, expected in zip(packed(batch), vectors_and_gradients(batch), strict=True):
        assert_close(found, expected, num_terms=256)


@pytest.mark.parametrize("objective", ["multiple_negatives", "triplet", "cosine", "cosent"])
def test_fit_lowers_the_loss(objective):
    embedder = without_dropout(objective=objective)
    embedder.compile(keras_bert.BertAdamW(3e-3))
    x, y = (PAIRS, SCORES) if objective.startswith("cos") else (TRIPLETS, None)
    history = embedder.fit(x, y, epochs=8, batch_size=6, verbose=0, validation_split=0.25).history
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    assert len(history["val_loss"]) == 8


@pytest.mark.parametrize("objective", ["multiple_negatives", "cosent"])
def test_parts_of_a_batch_give_the_weights_of_the_whole(objective):
    x, y = (PAIRS, SCORES) if objective == "cosent" else (TRIPLETS, None)
    weights = []
    for parts in (1, 5):
        embedder = without_dropout(objective=objective)
        embedder.compile(keras_bert.BertAdamW(1e-2), gradient_accumulation_steps=parts)
        embedder.fit(x, y, epochs=2, batch_size=12, verbose=0)
        weights.append(trained_weights(embedder))
    assert_close(weights[1], weights[0], limit=1e-4)


def test_parts_of_a_batch_have_the_same_dropout_in_both_passes():
    embedder = toy_embedder({"hidden_dropout_prob": 0.5})
    step = TrainStep(embedder, keras_bert.BertAdamW(1e-2), gradient_accumulation_steps=3, seed=3)
    examples = embedder.tokenize(TRIPLETS)
    batch = next(iter(training_batches(examples, BatchPlan(examples.lengths, 12))))
    key, one = step._gradients._dropout_seeds.key(0, 0), tf.ones([])
    _, sums, outputs = step._gradients(batch, {"loss": one}, tf.constant(0), tf.constant(0), one)
    again = []
    for part in range(3):
        ids = {name: values[4 * part : 4 * part + 4] for name, values in batch[0].items()}
        with step._gradients._dropout_seeds.scope(step._gradients._dropout_seeds.values(key, part)):
            again.append(embedder(ids, training=True))
    assert_close(outputs, np.concatenate(again), num_terms=64)
    assert_close(sums["loss"], embedder.loss_terms(batch[1], np.concatenate(again))["loss"][0], limit=1e-4)


def test_batches_of_a_static_shape_give_the_same_weights():
    weights = []
    for static_rows in (None, 1):
        embedder, optimizer = without_dropout(), keras_bert.BertAdamW(1e-2)
        examples = embedder.tokenize(TRIPLETS)
        batches = training_batches(examples, BatchPlan(examples.lengths, 7, seed=1), static_rows_multiple=static_rows)
        report = TrainStep(embedder, optimizer).run(iter(batches), first_step=0, steps=2)
        assert report["examples"] == 12  # without the rows of padding of a static shape
        weights.append(trained_weights(embedder))
    assert_close(weights[1], weights[0], limit=1e-4)


def test_search_finds_the_most_similar_texts():
    embedder = toy_embedder(normalize=False)
    cosines = embedder.similarity(TEXTS[:3], TEXTS)
    for corpus in (TEXTS, embedder.encode(TEXTS)):
        scores, numbers = embedder.search(TEXTS[:3], corpus, top_k=4)
        assert numbers[:, 0].tolist() == [0, 1, 2]
        assert_close(scores, np.sort(cosines, axis=1)[:, ::-1][:, :4], num_terms=64)
        assert_close(np.take_along_axis(cosines, numbers, axis=1), scores, num_terms=64)


def test_exported_search_equals_search(tmp_path):
    embedder = toy_embedder(normalize=False)
    served = tf.saved_model.load(embedder.export(tmp_path / "1", corpus=TEXTS[5:], top_k=3)).signatures
    found = served["search"](text=tf.constant(TEXTS[:6]))
    scores, numbers = embedder.search(TEXTS[:6], TEXTS[5:], top_k=3)
    assert_close(found["scores"], scores, num_terms=64)
    texts = [[text.decode() for text in row] for row in found["texts"].numpy()]
    assert texts == [[TEXTS[5 + number] for number in row] for row in found["indices"].numpy()]
    assert found["indices"][5, 0] == 0 and numbers[5, 0] == 0
    assert set(served) == {"serving_default", "tokens", "examples", "search"}
    with pytest.raises(ValueError, match="a corpus is stored in a SavedModel only, and has at least one text; got 0"):
        embedder.export(tmp_path / "2", corpus=[])
    with pytest.raises(ValueError, match="corpus must be a list of texts, got a single one"):
        embedder.export(tmp_path / "2", corpus="a text")


def test_trains_on_ids():
    texts, ids = without_dropout(), without_dropout()
    arrays = texts.tokenize(TRIPLETS).batch(tf.range(12))[0]
    arrays = {name: values.numpy() for name, values in arrays.items()}
    assert arrays["token_ids"].shape[:2] == (12, 3)
    for embedder, x in ((texts, TRIPLETS), (ids, arrays)):
        embedder.compile(keras_bert.BertAdamW(1e-2))
        embedder.fit(x, batch_size=12, verbose=0)
    assert_close(trained_weights(ids), trained_weights(texts), limit=1e-4)


def test_bfloat16_is_close_to_float32():
    embedder, low = toy_embedder(), toy_embedder({"dtype": "bfloat16"})
    assert low.encode(TEXTS).dtype == np.float32
    assert_close(low.encode(TEXTS), embedder.encode(TEXTS), dtype="bfloat16")


def test_saves_and_loads_as_keras_file(tmp_path):
    objective = EmbeddingObjective(scale=10.0, matryoshka=(8, 4))
    embedder = toy_embedder(pooling="weighted", projection=8, objective=objective, trainable=False)
    embedder.compile(keras_bert.BertAdamW(1e-2), gradient_accumulation_steps=2)
    embedder.save(tmp_path / "embedder.keras")
    again = keras.saving.load_model(tmp_path / "embedder.keras")
    assert again.objective == objective
    assert again.get_config() == embedder.get_config() and again.get_compile_config() == embedder.get_compile_config()
    np.testing.assert_array_equal(again.encode(TEXTS), embedder.encode(TEXTS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "first"}, "unknown pooling 'first'; allowed are .*'weighted'"),
        ({"dimensions": 17}, "dimensions must be from 1 to the size of the vectors, 16; got 17"),
        ({"projection": 4, "objective": EmbeddingObjective(matryoshka=(8,))}, "matryoshka must be .* 4; got 8"),
        ({"objective": "softmax"}, "objective must be one of"),
        ({"preprocessor": toy_preprocessor(long_texts="windows")}, "has long_texts='windows'"),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_embedder(**arguments)


@pytest.mark.parametrize(
    ("objective", "x", "y", "message"),
    [
        ("multiple_negatives", PAIRS, SCORES, "objective='multiple_negatives' has no labels; leave them out, or make"),
        ("cosent", PAIRS, None, "there are no labels"),
        ("cosent", PAIRS, ["high"] * 12, "labels must be finite numbers, one score per pair; got <U4"),
        ("cosine", PAIRS, [float("nan")] * 12, "labels must be finite numbers"),
        ("triplet", PAIRS, None, "objective='triplet' takes 3 texts per example; got text_a, text_b"),
        ("cosine", TRIPLETS, SCORES, "objective='cosine' takes 2 texts per example; got anchor, positive, negative"),
        ("multiple_negatives", TEXTS, None, "there are no labels"),
    ],
)
def test_rejects_data_of_another_objective(objective, x, y, message):
    embedder = toy_embedder(objective=objective)
    embedder.compile(keras_bert.BertAdamW(1e-2))
    with pytest.raises(ValueError, match=message):
        embedder.fit(x, y, verbose=0)


def test_rejects_settings_of_training():
    embedder = toy_embedder()
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be at least 1, got 0"):
        embedder.compile(gradient_accumulation_steps=0)
    embedder.compile(jit_compile=True)
    with pytest.raises(ValueError, match="XLA cannot compile the training of a BertTextEmbedder"):
        embedder.fit(TRIPLETS, verbose=0)
