import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import keras_bert
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.objectives import inputs_and_labels
from keras_bert.pretraining.row_packing import pack_instances
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.trainer import Trainer
from keras_bert.training.trainer_settings import TrainerSettings
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close, tolerance
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor

LENGTH, PREDICTIONS = 16, 3


def toy_pretrainer(next_sentence=True, **arguments):
    return BertPretrainer(toy_encoder(**arguments), next_sentence, seed=1)


def random_instances(number=24, seed=0):
    """Returns instances of different lengths, masked at random."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(5, LENGTH + 1, number)
    is_token = np.arange(LENGTH) < lengths[:, None]
    positions = np.sort([generator.permutation(np.arange(1, 5))[:PREDICTIONS] for _ in range(number)], axis=1)
    weights = np.arange(PREDICTIONS) < generator.integers(1, PREDICTIONS + 1, number)[:, None]
    return {
        "token_ids": np.where(is_token, generator.integers(5, len(VOCABULARY), [number, LENGTH]), 0).astype("int32"),
        "segment_ids": np.where(is_token, np.arange(LENGTH) > lengths[:, None] // 2, 0).astype("int32"),
        "padding_mask": is_token.astype("int32"),
        "masked_positions": np.where(weights, positions, 0).astype("int32"),
        "masked_labels": np.where(weights, generator.integers(5, len(VOCABULARY), positions.shape), 0).astype("int32"),
        "masked_weights": weights.astype("float32"),
        "next_sentence_labels": generator.integers(0, 2, number).astype("int32"),
    }


def batch_of(instances, objective="mlm"):
    """Returns inputs and labels."""
    return inputs_and_labels({name: tf.constant(array) for name, array in instances.items()}, objective)


def loss_and_gradients(pretrainer, instances):
    """Returns the loss of a batch and its gradients, without dropout."""
    inputs, labels = batch_of(instances)
    with tf.GradientTape() as tape:
        terms = pretrainer.loss_terms(labels, pretrainer(inputs))
        loss = tf.add_n([loss_sum / weight for loss_sum, weight in terms.values()])
    gradients = tape.gradient(loss, pretrainer.trainable_variables)
    return float(loss), [np.asarray(tf.convert_to_tensor(gradient)) for gradient in gradients]


@pytest.mark.parametrize("form", ["pretraining", "pretraining_legacy_keys", "pretraining_extra_keys"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_equals_hugging_face(shared, activation, form):
    golden = shared / "golden" / "hf_tiny"
    folder = golden / activation / form
    if not folder.is_dir():
        folder = golden / activation / "pretraining"
    expected = np.load(golden / activation / "pretraining" / "outputs.npz")
    pretrainer, ids = BertPretrainer.from_checkpoint(folder), read_ids(golden)
    assert not pretrainer.checkpoint_report.random
    outputs = pretrainer(ids)
    assert_close(outputs["masked_logits"], expected["prediction_logits"], limit=GOLDEN_LIMIT)
    assert_close(outputs["next_sentence_logits"], expected["seq_relationship_logits"], limit=GOLDEN_LIMIT)
    positions = np.array([[3, 0, 3], [1, 2, 3], [0, 0, 0], [2, 1, 0]])
    chosen = pretrainer({**ids, "masked_positions": positions})["masked_logits"]
    wanted = np.take_along_axis(expected["prediction_logits"], positions[:, :, None], axis=1)
    assert_close(chosen, wanted, limit=GOLDEN_LIMIT)


def test_loss_and_metrics_equal_their_definition():
    pretrainer, instances = toy_pretrainer(), random_instances()
    inputs, labels = batch_of(instances)
    outputs = pretrainer(inputs)
    terms, sums = pretrainer.loss_terms(labels, outputs), pretrainer.metric_sums(labels, outputs)
    is_masked = instances["masked_weights"] == 1
    assert not is_masked.all()
    masked, following = (np.asarray(outputs[name], "float64") for name in ("masked_logits", "next_sentence_logits"))
    for name, logits, term_labels in (
        ("masked_lm", masked[is_masked], instances["masked_labels"][is_masked]),
        ("next_sentence", following, instances["next_sentence_labels"]),
    ):
        weight = len(term_labels)
        loss = np.sum(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(weight), term_labels])
        correct = np.sum(logits.argmax(axis=1) == term_labels)
        assert_close(terms[name], [loss, weight], num_terms=weight)
        assert float(pretrainer.loss_weights(labels)[name]) == weight
        found = [sums[f"{name}_{part}"] for part in ("loss", "correct", "weight")]
        assert_close(found, [loss, correct, weight], num_terms=weight)


def test_packed_rows_give_the_loss_and_gradients_of_padded_ones():
    pretrainer, instances = toy_pretrainer(), random_instances()
    rows = pack_instances(instances, sequence_length=32, max_instances=6, max_predictions=12)
    assert len(rows["token_ids"]) < 0.6 * len(instances["token_ids"])
    loss, gradients = loss_and_gradients(pretrainer, instances)
    packed_loss, packed_gradients = loss_and_gradients(pretrainer, rows)
    assert_close(packed_loss, loss, num_terms=64)
    for variable, one, other in zip(pretrainer.trainable_variables, gradients, packed_gradients, strict=True):
        assert_close(other, one, num_terms=64)
        assert np.abs(one).max() > 1e-6, variable.path


def test_word_embeddings_are_shared_with_the_output_layer():
    pretrainer = toy_pretrainer(next_sentence=False)
    table = pretrainer.encoder.embeddings.token_embeddings
    before = np.asarray(table)
    pretrainer.compile(keras_bert.BertAdamW(1e-2, weight_decay=0.0))
    pretrainer.fit(tf.data.Dataset.from_tensors(batch_of(random_instances())), verbose=0)
    change = np.abs(np.asarray(table) - before).max(axis=1)
    assert change.max() > 1e-3
    assert change[0] > 0  # [PAD], which is only an output
    assert len([weight for weight in pretrainer.weights if weight.shape == table.shape]) == 1


def test_trainer_learns_masked_words(tmp_path):
    pretrainer = toy_pretrainer(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    inputs, labels = batch_of(random_instances(8))
    sums = pretrainer.metric_sums(labels, pretrainer(inputs))
    assert float(sums["masked_lm_correct"]) < 0.5 * float(sums["masked_lm_weight"])
    trainer = Trainer(pretrainer, keras_bert.BertAdamW(1e-2), RunDirectory(tmp_path / "run", {}), TrainerSettings(120))
    trainer.train(tf.data.Dataset.from_tensors((inputs, labels)).repeat())
    sums = pretrainer.metric_sums(labels, pretrainer(inputs))
    assert float(sums["masked_lm_correct"]) == float(sums["masked_lm_weight"])
    assert float(sums["next_sentence_correct"]) == 8


@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_a_language_model_cannot_see_what_it_predicts(direction):
    pretrainer = toy_pretrainer(next_sentence=False, attention_direction=direction)
    inputs, labels = batch_of(random_instances(), direction)
    logits = np.asarray(pretrainer(inputs)["masked_logits"])
    changed = np.asarray(inputs["token_ids"]).copy()
    changed[:, 3] = changed[:, 3] % (len(VOCABULARY) - 5) + 5
    other = np.asarray(pretrainer({**inputs, "token_ids": changed})["masked_logits"])
    weights = np.asarray(labels["masked_weights"])
    is_equal = ((np.abs(logits - other) <= tolerance(num_terms=64)).all(axis=2) | (weights == 0)).all(axis=0)
    # Column i of "left_to_right" is predicted at position i, and of "right_to_left" at i + 1.
    expected = np.arange(LENGTH - 1) < 3 if direction == "left_to_right" else np.arange(LENGTH - 1) + 1 > 3
    assert weights.any(axis=0).all()  # something is predicted in every column
    assert np.array_equal(is_equal, expected)


@pytest.mark.parametrize("next_sentence", [True, False])
def test_saves_and_loads_checkpoints_and_keras_files(tmp_path, next_sentence):
    pretrainer = toy_pretrainer(next_sentence)
    for variable in pretrainer.trainable_variables:
        variable.assign_add(np.random.default_rng(1).normal(size=variable.shape) * 0.1)
    folder = pretrainer.save_checkpoint(tmp_path / "model", toy_preprocessor().tokenizer)
    again = BertPretrainer.from_checkpoint(folder, next_sentence=next_sentence)
    assert not again.checkpoint_report.random and not again.checkpoint_report.unused
    pretrainer.save(tmp_path / "pretrainer.keras")
    inputs, _ = batch_of(random_instances(4))
    for loaded in (again, keras.saving.load_model(tmp_path / "pretrainer.keras")):
        assert_close(loaded(inputs), pretrainer(inputs), num_terms=64)
    assert ("cls.seq_relationship.weight" in load_file(folder / "model.safetensors")) == next_sentence
    classifier = keras_bert.BertClassifier.from_checkpoint(folder, labels=["a", "b"], sequence_length=16)
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}
    tables = (model.encoder.embeddings.token_embeddings for model in (classifier, pretrainer))
    np.testing.assert_array_equal(*tables)


def test_heads_missing_from_a_checkpoint_are_random(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "encoder")
    pretrainer = BertPretrainer.from_checkpoint(folder, seed=3)
    assert pretrainer.next_sentence
    heads = {path for path in pretrainer.variables_by_path() if not path.startswith("encoder/")}
    assert set(pretrainer.checkpoint_report.random) == heads and len(heads) == 7


def test_bfloat16_is_close_to_float32():
    pretrainer, half = toy_pretrainer(), toy_pretrainer(dtype="mixed_bfloat16")
    inputs, _ = batch_of(random_instances(4))
    found = half(inputs)
    assert {output.dtype for output in found.values()} == {tf.float32}
    assert_close(found, pretrainer(inputs), num_terms=4, dtype="bfloat16")  # the blocks and heads round in turn
    assert half.masked_lm.bias.dtype == "float32"


def test_rejects_invalid_settings():
    with pytest.raises(ValueError, match="with_pooler=True, or pass next_sentence=False"):
        BertPretrainer(toy_encoder(with_pooler=False))
    with pytest.raises(ValueError, match="attends to nothing else in a left-to-right encoder"):
        BertPretrainer(toy_encoder(attention_direction="left_to_right"))
    one_way = BertPretrainer(toy_encoder(attention_direction="left_to_right"), False, preprocessor())
    message = "only a bidirectional encoder is trained to fill masks; this one is left_to_right"
    with pytest.raises(ValueError, match=message):
        one_way.fill_masks(["a [MASK]"])
    pretrainer = toy_pretrainer()
    inputs, labels = batch_of(random_instances(4))
    with pytest.raises(ValueError, match="leave sample_weight out"):
        pretrainer.loss_terms(labels, pretrainer(inputs), sample_weight=np.ones(4))


TEXTS = ["a [MASK] film", "good", "", "[MASK]", "the [MASK] was [MASK] , and [MASK] .", "[MASK] \x00 \udcff[ MASK ]"]
BYTES = [text.encode("utf-8", "surrogateescape") for text in TEXTS]


def preprocessor(**arguments):
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    return keras_bert.BertPreprocessor(tokenizer, **{"sequence_length": 16, **arguments})


@pytest.fixture(scope="module")
def pretrainer():
    return BertPretrainer(toy_encoder(num_hidden_layers=1), preprocessor=preprocessor(), seed=1)


def reference_masks(pretrainer, text, top):
    """Fills the masks one by one, from the logits of the whole text."""
    ids = pretrainer.preprocessor([text])
    logits = np.asarray(pretrainer(ids)["masked_logits"], "float64")[0]
    masks = []
    for position in np.flatnonzero(ids["token_ids"][0] == VOCABULARY.index("[MASK]")):
        probabilities = np.exp(logits[position] - logits[position].max())
        probabilities /= probabilities.sum()
        best = np.argsort(-probabilities, kind="stable")[:top]
        masks.append([(VOCABULARY[word], probabilities[word]) for word in best])
    return masks


def assert_same_masks(found, expected):
    assert [[word for word, _ in mask] for mask in found] == [[word for word, _ in mask] for mask in expected]
    for mask, other in zip(found, expected, strict=True):
        assert_close([p for _, p in mask], [p for _, p in other], num_terms=64)


def test_filled_masks_follow_the_logits(pretrainer, tmp_path):
    filled = pretrainer.fill_masks(BYTES, top=4)
    assert [len(masks) for masks in filled] == [1, 0, 0, 1, 3, 1]
    for text, found in zip(BYTES, filled, strict=True):
        assert_same_masks(found, reference_masks(pretrainer, text, 4))
    assert pretrainer.fill_masks(["good", "bad"]) == [[], []]
    again = BertPretrainer.from_checkpoint(pretrainer.save_checkpoint(tmp_path / "model"))
    assert again.preprocessor.sequence_length == 32  # the positions of the model
    for found, expected in zip(again.fill_masks(TEXTS[:5], top=4), filled[:5], strict=True):
        assert_same_masks(found, expected)


def test_rejects_invalid_preprocessors_and_arguments(pretrainer, tmp_path):
    plain = keras_bert.BertPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16)
    for invalid, message in (
        (plain, "special_tokens_in_text=True"),
        (preprocessor(sequence_length=64), "sequence_length=64 is beyond the encoder's 32 positions"),
        (preprocessor(long_texts="windows"), "must truncate texts"),
    ):
        with pytest.raises(ValueError, match=message):
            BertPretrainer(toy_encoder(), preprocessor=invalid)
    with pytest.raises(ValueError, match="has 22 wordpieces and the encoder 20 embeddings"):
        BertPretrainer(toy_encoder(vocab_size=20), preprocessor=preprocessor())
    with pytest.raises(ValueError, match="has no preprocessor"):
        BertPretrainer(toy_encoder()).export(tmp_path / "1")
    for top in (0, 1000):
        with pytest.raises(ValueError, match=f"top must be from 1 to .*; got {top}"):
            pretrainer.fill_masks(["[MASK]"], top=top)
    with pytest.raises(ValueError, match="texts must be a list of texts, got a single one"):
        pretrainer.fill_masks("[MASK]")
    with pytest.raises(FileExistsError):
        pretrainer.export(tmp_path)
