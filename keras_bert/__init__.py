"""BERT (arXiv 1810.04805) for Keras 3 on TensorFlow: every public name, loaded when it is first used.

Loading on first use keeps `import keras_bert` fast, and lets `keras_bert.BertEncoder` work where TensorFlow is not
installed.

Example:

>>> import keras_bert
>>> encoder = keras_bert.BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
>>> encoder.hidden_size
8
"""

import importlib

_PUBLIC_NAMES = {
    "BertAdamW": "keras_bert.training.optimizer",
    "BertClassifier": "keras_bert.models.classifier",
    "BertEncoder": "keras_bert.models.encoder",
    "BertPreprocessor": "keras_bert.text.preprocessor",
    "BertTokenizer": "keras_bert.text.tokenizer",
    "WarmupSchedule": "keras_bert.training.schedule",
}

__version__ = "0.1.0"
__all__ = [*_PUBLIC_NAMES, "__version__"]


def __getattr__(name):
    if name not in _PUBLIC_NAMES:
        raise AttributeError(
            f"module 'keras_bert' has no attribute {name!r}; its public names are {sorted(_PUBLIC_NAMES)}"
        )
    value = getattr(importlib.import_module(_PUBLIC_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
