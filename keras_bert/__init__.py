"""BERT (arXiv 1810.04805) for Keras 3 on TensorFlow: the public API.

Models and metrics are imported eagerly, so that Keras finds their classes when it loads a saved model. Names that need
TensorFlow are loaded on first use, or when Keras runs on TensorFlow: `keras_bert.BertEncoder` works without TensorFlow.

Modules of this package are imported at module level. A function-local import of one is allowed only to keep TensorFlow
out of `import keras_bert` on other backends, and needs no comment.

Example:

>>> import keras_bert
>>> encoder = keras_bert.BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
>>> encoder.hidden_size
8
"""

import importlib
from typing import Any

import keras

from keras_bert.metrics.keras_metrics import F1Score, MatthewsCorrelation, PearsonCorrelation, SpearmanCorrelation
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.embedding_objectives import EmbeddingObjective
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.feature_extractor import BertFeatureExtractor
from keras_bert.models.keras_archive import load_model
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.models.token_classifier import BertTokenClassifier

_LAZY_NAMES = {
    "BertAdamW": "keras_bert.training.optimizer",
    "BertPreprocessor": "keras_bert.text.preprocessor",
    "BertQuestionPreprocessor": "keras_bert.text.question_preprocessor",
    "BertTokenizer": "keras_bert.text.tokenizer",
    "BertWordPreprocessor": "keras_bert.text.word_preprocessor",
    "DistillationSettings": "keras_bert.finetuning.distillation",
    "FineTuningRecipe": "keras_bert.finetuning.recipe",
    "FineTuningRuntime": "keras_bert.finetuning.runtime",
    "PretrainingData": "keras_bert.finetuning.pretraining_data",
    "PretrainingRecipe": "keras_bert.finetuning.pretraining_recipe",
    "RuntimeSettings": "keras_bert.finetuning.runtime",
    "Trainer": "keras_bert.training.trainer",
    "TrainerSettings": "keras_bert.training.trainer_settings",
    "WarmupSchedule": "keras_bert.training.schedule",
    "ZeroShotClassifier": "keras_bert.models.zero_shot",
    "contrastive_pairs": "keras_bert.data.contrastive_pairs",
    "distill": "keras_bert.finetuning.distillation",
    "fine_tune": "keras_bert.finetuning.fine_tuner",
    "list_presets": "keras_bert.weights.preset_table",
    "make_student": "keras_bert.models.student",
    "pretrain": "keras_bert.finetuning.pretrain",
}

__version__ = "0.1.0"
__all__ = [
    "BertClassifier",
    "BertEncoder",
    "BertFeatureExtractor",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertSpanLabeler",
    "BertTextEmbedder",
    "BertTokenClassifier",
    "BiLstmEncoder",
    "EmbeddingObjective",
    "F1Score",
    "MatthewsCorrelation",
    "PearsonCorrelation",
    "SpearmanCorrelation",
    "TwoDirectionEncoder",
    "__version__",
    "load_model",
    *_LAZY_NAMES,
]

if keras.backend.backend() == "tensorflow":
    # A compiled model is saved with its optimizer, whose class Keras must find, too.
    for _name in ("BertAdamW", "WarmupSchedule"):
        importlib.import_module(_LAZY_NAMES[_name])


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'keras_bert' has no attribute {name!r}; its public names are {sorted(__all__)}")
    value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
