"""Runs the encoder on JAX where TensorFlow cannot be imported, and compares it with a golden; `test_jax.py` runs it."""

import importlib.abc
import sys
from pathlib import Path

import numpy as np


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

    assert keras.backend.backend() == "jax"
    largest = 0.0
    for activation in ("gelu", "gelu_new"):
        encoder = keras_bert.BertEncoder.from_checkpoint(Path(golden) / activation / "sequence_classification")
        inputs = np.load(Path(golden) / "inputs.npz")
        expected = np.load(Path(golden) / activation / "sequence_classification" / "outputs.npz")
        ids = {
            "token_ids": inputs["input_ids"],
            "segment_ids": inputs["token_type_ids"],
            "padding_mask": inputs["attention_mask"],
        }
        outputs = encoder(ids, return_hidden_states=True, return_attention_scores=True)
        pairs = [(outputs["hidden_states"][i], expected[f"hidden_state_{i}"]) for i in range(3)]
        pairs += [(outputs["attention_scores"][i], expected[f"attention_{i}"]) for i in range(2)]
        pairs += [(outputs["pooled_output"], expected["pooled"])]
        largest = max(largest, *(float(np.abs(np.array(ours) - theirs).max()) for ours, theirs in pairs))
    extractor = keras_bert.BertFeatureExtractor(
        encoder, layers=[0, 1, 2], combine="stack", pooling="cls", normalize=False
    )
    for i in range(3):
        difference = np.array(extractor(ids))[:, i] - expected[f"hidden_state_{i}"][:, 0]
        largest = max(largest, float(np.abs(difference).max()))
    encoder(ids, training=True)  # dropout
    encoder.save(weights_file)
    loaded = keras.models.load_model(weights_file)
    assert np.array_equal(loaded(ids)["pooled_output"], encoder(ids)["pooled_output"])
    assert "tensorflow" not in sys.modules
    print(largest)


if __name__ == "__main__":
    main(*sys.argv[1:])
