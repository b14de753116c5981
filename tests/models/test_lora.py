import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.models.freeze import reinitialize_top_blocks
from keras_bert.models.lora import DEFAULT_TARGETS, copy_merged, enable_lora, get_adapter
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.weights.peft_adapter import TARGETS
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_reviews

IDS = {"token_ids": np.array([[2, 5, 14, 3], [2, 9, 3, 0]]), "padding_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]])}
LORA = {"lora_rank": 2, "lora_alpha": 5}
HEADS = {
    "classifier": lambda **lora: toy_classifier(("a", "b", "c"), **lora),
    "tokens": lambda **lora: keras_bert.BertTokenClassifier(toy_encoder(), ["O", "X"], seed=1, **lora),
    "spans": lambda **lora: keras_bert.BertSpanLabeler(toy_encoder(), seed=1, **lora),
    "choice": lambda **lora: keras_bert.BertMultipleChoice(toy_encoder(), seed=1, **lora),
    "pretraining": lambda **lora: keras_bert.BertPretrainer(toy_encoder(), seed=1, **lora),
}


def trained(model, seed=0):
    """Returns the model with other trainable weights, as if trained."""
    generator = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(weight + generator.normal(size=weight.shape) * 0.3)
    return model


def outputs(model):
    """Returns the outputs for `IDS`, as one array."""
    ids = IDS
    if isinstance(model, keras_bert.BertMultipleChoice):
        ids = {name: np.stack([values, values], axis=1) for name, values in IDS.items()}
    return np.concatenate([np.array(part).ravel() for part in keras.tree.flatten(model(ids))])


def values(model):
    return {weight.path: np.array(weight) for weight in model.weights}


def test_only_adapters_and_head_are_trained_and_have_optimizer_slots():
    classifier = toy_classifier(**LORA)
    before, trainable = values(classifier), classifier.trainable_weights
    assert {weight.path.rpartition("/")[2] for weight in trainable} == {
        "lora_kernel_a", "lora_kernel_b", "kernel", "bias"
    }  # fmt: skip
    assert not any("encoder" in weight.path for weight in trainable if not weight.name.startswith("lora"))
    classifier.compile(keras_bert.BertAdamW(1e-2))
    classifier.fit(*toy_reviews(16), epochs=2, verbose=0)
    after = values(classifier)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {weight.path for weight in trainable}
    assert len(classifier.optimizer.variables) == 2 * len(trainable) + 2


def test_gradients_are_those_of_the_kernels_projected_to_the_adapters():
    adapted = trained(toy_classifier(dropout=0.0, lora_targets=["query", "value", "output.dense"], **LORA))
    merged = adapted.merge_adapter()

    def gradients(model, *variables):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(IDS, training=False) ** 2)
        return [np.array(gradient) for gradient in tape.gradient(loss, [variable.value for variable in variables])]

    block, other = adapted.encoder.transformer_blocks[0], merged.encoder.transformer_blocks[0]
    a, b = block.output_projection.lora_kernel_a, block.output_projection.lora_kernel_b
    d_a, d_b = gradients(adapted, a, b)
    (d_kernel,) = gradients(merged, other.output_projection.kernel)
    np.testing.assert_allclose(d_a, 2.5 * d_kernel @ np.array(b).T, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(d_b, 2.5 * np.array(a).T @ d_kernel, rtol=1e-3, atol=1e-5)
    fused = block.self_attention.query_key_value
    (d_b,) = gradients(adapted, fused.lora_kernel_b)
    (d_kernel,) = gradients(merged, other.self_attention.query_key_value.kernel)
    a = np.array(fused.lora_kernel_a)
    expected = [2.5 * a[:, :2].T @ d_kernel[:, :16], 2.5 * a[:, 2:].T @ d_kernel[:, 32:]]  # query and value
    np.testing.assert_allclose(d_b, np.concatenate(expected, axis=1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_starts_unchanged_and_equals_its_merged_copy_and_its_saved_forms(kind, tmp_path):
    model = HEADS[kind](**LORA)
    np.testing.assert_array_equal(outputs(model), outputs(HEADS[kind]()))
    expected = outputs(trained(model))
    assert np.abs(expected - outputs(HEADS[kind]())).max() > 0.05
    merged = model.merge_adapter()
    np.testing.assert_allclose(outputs(merged), expected, atol=1e-4)
    assert merged.lora_rank is None
    assert merged.freeze == "none"
    assert len(merged.trainable_weights) == len(merged.weights)
    again = HEADS[kind]()
    again.load_adapter(model.save_adapter(tmp_path / "adapter"))
    np.testing.assert_array_equal(outputs(again), expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outputs(loaded), expected)
    assert (loaded.lora_rank, loaded.lora_alpha, loaded.lora_targets) == (2, 5, DEFAULT_TARGETS)
    assert len(loaded.trainable_weights) == len(model.trainable_weights)


@pytest.mark.parametrize("targets", [["query"], ["key", "output.dense"], ["pooler.dense", "intermediate.dense"]])
def test_adapters_round_trip_bit_exactly(targets, tmp_path):
    model = trained(toy_classifier(lora_targets=targets, lora_dropout=0.1, **LORA))
    assert model.lora_targets == tuple(name for name in TARGETS if name in targets)
    again = toy_classifier()
    again.load_adapter(model.save_adapter(tmp_path / "one"))
    again.save_adapter(tmp_path / "two")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert again.lora_dropout == 0.1
    # Into a model that has adapters, as for training on.
    other = toy_classifier(lora_targets=targets, **LORA)
    other.load_adapter(tmp_path / "one")
    np.testing.assert_array_equal(outputs(other), outputs(model))


def test_a_checkpoint_has_the_merged_kernels_and_trains_with_new_adapters(tmp_path):
    model = trained(toy_classifier(**LORA))
    model.save_checkpoint(tmp_path / "model")
    np.testing.assert_allclose(
        outputs(keras_bert.BertClassifier.from_checkpoint(tmp_path / "model")), outputs(model), atol=1e-4
    )
    again = keras_bert.BertClassifier.from_checkpoint(tmp_path / "model", lora_rank=3, lora_targets=["key"])
    assert not again.checkpoint_report.random
    assert again.lora_targets == ("key",)
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-4)
    pretrainer = keras_bert.BertPretrainer.from_checkpoint(tmp_path / "model", lora_rank=3)
    assert pretrainer.lora_rank == 3
    encoder = toy_encoder()
    enable_lora(encoder, 2)
    trained(encoder).save_checkpoint(tmp_path / "encoder")
    loaded = keras_bert.BertEncoder.from_checkpoint(tmp_path / "encoder")
    np.testing.assert_allclose(loaded(IDS)["pooled_output"], encoder(IDS)["pooled_output"], atol=1e-4)


def test_a_random_pooler_that_stays_frozen_is_reported(tmp_path, caplog):
    toy_encoder(with_pooler=False).save_checkpoint(tmp_path / "encoder")
    arguments = {"labels": ["a", "b"], "vocabulary": VOCABULARY, "lower_case": True}
    keras_bert.BertClassifier.from_checkpoint(tmp_path / "encoder", lora_rank=2, **arguments)
    assert "LoRA does not train these weights" in caplog.text


def test_an_export_has_the_merged_kernels():
    model = trained(toy_classifier(**LORA))
    from keras_bert.models.serving import with_dtype

    served = with_dtype(model, None)
    assert served.lora_rank is None
    assert len(served.weights) == len(toy_classifier().weights)
    np.testing.assert_allclose(outputs(served), outputs(model), atol=1e-4)
    low = with_dtype(model, "bfloat16")
    np.testing.assert_allclose(outputs(low), outputs(model), atol=0.2)


def test_predictions_compiled_before_the_adapter_was_loaded_are_renewed(tmp_path):
    model = trained(toy_classifier(**LORA))
    model.save_adapter(tmp_path / "adapter")
    texts, labels = toy_reviews(4)
    again = toy_classifier()
    again.compile("sgd")
    again.predict(texts, verbose=0)
    again.load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(again.predict(texts, verbose=0), model.predict(texts, verbose=0), atol=1e-5)
    other = toy_classifier()
    other.compile(keras_bert.BertAdamW(1e-3))
    other.fit(texts, labels, verbose=0)
    with pytest.raises(ValueError, match="load the adapter before training"):
        other.load_adapter(tmp_path / "adapter")


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_trains_in_mixed_precision_with_gradient_checkpointing(dtype):
    arguments = {"dtype": dtype, "gradient_checkpointing": True}
    classifier = toy_classifier(encoder_arguments=arguments, lora_dropout=0.1, **LORA)
    before = values(classifier)
    classifier.compile(keras_bert.BertAdamW(1e-2))
    history = classifier.fit(*toy_reviews(16), epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    adapters = [weight for weight in classifier.weights if weight.name.startswith("lora_kernel")]
    assert all(weight.dtype == "float32" for weight in adapters)
    assert all((np.array(weight) != before[weight.path]).any() for weight in adapters)


@pytest.mark.parametrize("kind", ["left_to_right_bilstm", "two_directions"])
def test_other_encoders_have_adapters_in_every_bert(kind, tmp_path):
    toy_classifier().save_checkpoint(tmp_path / "start")

    def make(**lora):
        _, encoder = read_encoder(tmp_path / "start", kind, seed=1)
        return keras_bert.BertClassifier(encoder, 2, seed=1, **lora)

    model = trained(make(**LORA))
    assert len(get_adapter(model).matrices) == 4 * len(model.encoder.bert_encoders())
    np.testing.assert_allclose(outputs(copy_merged(model)), outputs(model), atol=1e-4)
    again = make()
    again.load_adapter(model.save_adapter(tmp_path / "adapter"))
    np.testing.assert_array_equal(outputs(again), outputs(model))


def test_adapters_start_differently_by_seed_and_layer():
    first, same, other = (get_adapter(toy_classifier(seed=seed, **LORA)).matrices for seed in (1, 1, 2))
    starts = [matrices[path][0] for matrices in (first, other) for path in matrices]
    assert len({array.tobytes() for array in starts}) == len(starts) == 8
    for path, (a, b) in first.items():
        np.testing.assert_array_equal(a, same[path][0])
        assert np.abs(a).max() <= 1 / np.sqrt(a.shape[0]) + 1e-6  # PEFT's bound
        assert not b.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lora_rank": 0}, "at least 1, got 0"),
        ({"lora_rank": 2, "lora_alpha": -1}, "lora_alpha must be a positive number"),
        ({"lora_rank": 2, "lora_dropout": 1.0}, "lora_dropout must be at least 0 and below 1"),
        ({"lora_rank": 2, "lora_targets": ["query", "dense"]}, "must be any of query, .*; got dense"),
        ({"lora_rank": 2, "lora_targets": []}, "got none"),
        ({"lora_alpha": 2}, "lora_alpha=2 has no effect without lora_rank"),
        ({"lora_targets": ["key"]}, "has no effect without lora_rank"),
        ({"lora_rank": 2, "freeze": 1}, "leave freeze out, which is 1"),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_classifier(**arguments)


def test_rejects_what_contradicts_the_encoder(tmp_path):
    with pytest.raises(ValueError, match="this one is frozen"):
        toy_classifier(encoder_arguments={"trainable": False}, lora_rank=2)
    with pytest.raises(ValueError, match="needs an encoder with with_pooler=True"):
        keras_bert.BertSpanLabeler(toy_encoder(with_pooler=False), lora_rank=2, lora_targets=["pooler.dense"])
    model = toy_classifier(**LORA)
    with pytest.raises(ValueError, match="has adapters of LoRA already"):
        keras_bert.BertClassifier(model.encoder, 2, lora_rank=2)
    with pytest.raises(ValueError, match="cannot be both frozen and re-initialized"):
        reinitialize_top_blocks(model.encoder, 1)
    for method in ("merge_adapter", "save_adapter"):
        with pytest.raises(ValueError, match=f"`{method}` needs a model with adapters"):
            getattr(toy_classifier(), method)(*[tmp_path / "adapter"] * (method == "save_adapter"))
    model.save_adapter(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"rank 2, lora_alpha 5 .* the model has lora_rank=3"):
        toy_classifier(lora_rank=3, lora_alpha=5).load_adapter(tmp_path / "adapter")
    with pytest.raises(FileExistsError):
        model.save_adapter(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"logits/kernel.*expected shape \[3, 16\], found \[2, 16\]"):
        toy_classifier(("a", "b", "c")).load_adapter(tmp_path / "adapter")
    with pytest.raises(ValueError, match="leave freeze out"):
        toy_classifier(freeze="encoder").load_adapter(tmp_path / "adapter")


def test_equals_the_outputs_of_peft(shared, tmp_path):
    folder = shared / "golden" / "formats" / "peft_lora"
    expected = np.load(folder / "adapter" / "expected.npz")
    ids = {name: expected[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    vocabulary = [*VOCABULARY, *(f"[unused{number}]" for number in range(65 - len(VOCABULARY)))]
    classifier = keras_bert.BertClassifier.from_checkpoint(
        folder / "base", vocabulary=vocabulary, lower_case=True, sequence_length=24
    )
    np.testing.assert_allclose(classifier.predict(ids, verbose=0), expected["logits_without_adapter"], atol=1e-5)
    classifier.load_adapter(folder / "adapter")
    assert (classifier.lora_rank, classifier.lora_alpha, classifier.lora_dropout) == (4, 8, 0.05)
    assert classifier.lora_targets == ("query", "value")
    encoded = classifier.encoder(ids, return_hidden_states=True)
    is_token = ids["padding_mask"] == 1
    for ours, theirs in zip(encoded["hidden_states"], expected["hidden_states"], strict=True):
        np.testing.assert_allclose(np.array(ours)[is_token], theirs[is_token], atol=1e-5)
    np.testing.assert_allclose(classifier.predict(ids, verbose=0), expected["logits"], atol=1e-5)
    np.testing.assert_allclose(classifier.merge_adapter().predict(ids, verbose=0), expected["logits"], atol=1e-5)
    stored = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    written = classifier.save_adapter(tmp_path / "adapter") / "adapter_model.safetensors"
    assert written.stat().st_size == len(stored)


def test_an_adapter_is_described_by_its_matrices():
    adapter = get_adapter(toy_classifier(lora_targets=["query", "value"], **LORA))
    assert {field.name for field in dataclasses.fields(adapter)} >= {"rank", "alpha", "matrices", "head"}
    ((path, (a, b)),) = adapter.matrices.items()
    assert path == "encoder/transformer_block_0/self_attention/query_key_value/kernel"
    assert (a.shape, b.shape) == ((16, 4), (2, 32))
    assert set(adapter.head) == {"logits/kernel", "logits/bias"}
