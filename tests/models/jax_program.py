"""Runs the encoder on JAX where TensorFlow cannot be imported, and compares it with a golden; `test_jax.py` runs it."""

import importlib.abc
import sys
from pathlib import Path

import numpy as np

from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close


class _Blocked(importlib.abc.MetaPathFinder):
    """Makes TensorFlow look as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(golden, weights_file):
    """Prints the largest difference to the stored outputs."""
    sys.meta_path.insert(0, _Blocked())
    import keras

    import keras_bert
    from tests.layers.attention_on_jax import compare_attention

    assert keras.backend.backend() == "jax"
    compare_attention()
    folder = Path(golden) / "gelu_new" / "sequence_classification"
    ids, expected = read_ids(Path(golden)), np.load(folder / "outputs.npz")
    encoder = keras_bert.BertEncoder.from_checkpoint(folder)
    outputs = encoder(ids, return_hidden_states=True, return_attention_scores=True)
    vectors = np.array(keras_bert.BertFeatureExtractor(encoder, layers=[0, 1, 2], combine="stack")(ids))
    embedder = keras_bert.BertTextEmbedder(encoder, pooling="cls", normalize=False)
    states = [expected[f"hidden_state_{i}"] for i in range(3)]
    pairs = [*zip(outputs["hidden_states"], states, strict=True), (outputs["pooled_output"], expected["pooled"])]
    pairs += [(outputs["attention_scores"][i], expected[f"attention_{i}"]) for i in range(2)]
    pairs += [(vectors[:, :, i], states[i]) for i in range(3)]
    largest = max(float(np.abs(np.array(ours) - theirs).max()) for ours, theirs in pairs)
    assert_close(embedder.encode(ids), states[2][:, 0], limit=GOLDEN_LIMIT)
    _train_embedder(ids)
    encoder(ids, training=True)  # dropout
    encoder.save(weights_file)
    loaded = keras.models.load_model(weights_file)
    assert np.array_equal(loaded(ids)["pooled_output"], encoder(ids)["pooled_output"])
    for composed in _composed_encoders():
        one, two = _padded(composed), _padded(composed, padding=3)
        assert_close(two, one, num_terms=64)
        composed.save(f"{weights_file}.composed.keras")
        again = _padded(keras.models.load_model(f"{weights_file}.composed.keras"))
        assert all(np.array_equal(again[name], one[name]) for name in one)
    _train_on_ids(encoder, ids)
    _train_adapters(folder, ids, weights_file)
    assert "tensorflow" not in sys.modules
    print(largest)


def _train_on_ids(encoder, ids):
    """Trains by Keras on ids; texts need TensorFlow."""
    import keras

    import keras_bert

    classifier = keras_bert.BertClassifier(encoder, ["no", "yes"], seed=1)
    classifier.compile(keras.optimizers.Adam(1e-3))
    labels = ["no" if row % 2 == 0 else "yes" for row in range(len(ids["token_ids"]))]
    history = classifier.fit(ids, labels, verbose=0, class_weight={"no": 2.0})
    assert np.isfinite(history.history["loss"]).all()
    for method in (lambda: classifier.fit(["a text"], ["no"]), lambda: classifier.predict(["a text"])):
        try:
            method()
        except ValueError as error:
            assert "texts are tokenized by TensorFlow" in str(error)
        else:
            raise AssertionError("texts were accepted")


def _train_embedder(ids):
    import keras

    import keras_bert

    encoder = keras_bert.BertEncoder(int(ids["token_ids"].max()) + 1, 8, num_hidden_layers=1, num_attention_heads=2)
    embedder = keras_bert.BertTextEmbedder(encoder, seed=1)
    embedder.compile(keras.optimizers.Adam(1e-3))
    pairs = {name: np.stack([values, values[::-1]], axis=1) for name, values in ids.items()}
    assert np.isfinite(embedder.fit(pairs, verbose=0).history["loss"]).all()


def _train_adapters(folder, ids, weights_file):
    import keras

    import keras_bert

    def make(**lora):
        encoder = keras_bert.BertEncoder.from_checkpoint(folder)
        return keras_bert.BertClassifier(encoder, ["no", "yes"], seed=1, **lora)

    classifier = make(lora_rank=2, lora_dropout=0.1)
    classifier.compile(keras.optimizers.Adam(1e-2))
    frozen = [np.array(variable) for variable in classifier.non_trainable_weights]
    classifier.fit(ids, [row % 2 for row in range(len(ids["token_ids"]))], epochs=2, verbose=0)
    assert all(map(np.array_equal, frozen, classifier.non_trainable_weights))
    expected = classifier.predict(ids, verbose=0)
    assert np.abs(expected - make().predict(ids, verbose=0)).max() > 1e-3
    np.testing.assert_allclose(classifier.merge_adapter().predict(ids, verbose=0), expected, atol=1e-5)
    again = make()
    again.load_adapter(classifier.save_adapter(f"{weights_file}.adapter"))
    np.testing.assert_array_equal(again.predict(ids, verbose=0), expected)
    classifier.save(f"{weights_file}.lora.keras")
    loaded = keras.models.load_model(f"{weights_file}.lora.keras")
    np.testing.assert_array_equal(loaded.predict(ids, verbose=0), expected)


def _composed_encoders():
    import keras_bert

    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "seed": 1}
    directions = ("left_to_right", "right_to_left")
    parts = [keras_bert.BertEncoder(**sizes, attention_direction=direction) for direction in directions]
    yield keras_bert.TwoDirectionEncoder(*parts)
    yield keras_bert.BiLstmEncoder(keras_bert.BertEncoder(**sizes, with_pooler=False), seed=1)


def _padded(encoder, padding=0):
    """Returns the outputs of rows of 4 and 6 tokens, without those of padding."""
    ids = np.pad([[2, 5, 6, 3, 0, 0], [2, 7, 8, 9, 5, 3]], [(0, 0), (0, padding)])
    outputs = encoder({"token_ids": ids, "padding_mask": (ids > 0).astype("int32")})
    outputs["sequence_output"] = np.array(outputs["sequence_output"])[:, :6] * (ids[:, :6] > 0)[:, :, None]
    return outputs


if __name__ == "__main__":
    main(*sys.argv[1:])
