"""Reads TF1 checkpoints of google-research/bert: `bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`."""

from pathlib import Path
from typing import Any

from keras_bert.weights.bert_config import find_vocabulary, parse_encoder_arguments, read_json
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.layout import (
    CLASSIFIER_HEAD,
    SPAN_HEAD,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
)
from keras_bert.weights.tensor_bundle_file import find_prefix, is_object_based, open_tensor_bundle
from keras_bert.weights.tensor_file import TensorFile
from keras_bert.weights.variable_map import (
    check_num_layers,
    drop_absent_pooler,
    map_dense,
    map_encoder,
    map_pretraining_heads,
    select_head,
)

CONFIG_NAME = "bert_config.json"
CLASSIFIER_DROPOUT = 0.1  # keep_prob=0.9 is hard-coded in run_classifier.py, create_model
CLASSIFIER = map_dense(CLASSIFIER_HEAD, ["output_weights"], ["output_bias"])
SPANS = map_dense(SPAN_HEAD, ["cls/squad/output_weights"], ["cls/squad/output_bias"])
# google-research/bert's "gelu" is the tanh form.
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_COUNTERS = frozenset({"global_step", "beta1_power", "beta2_power"})


def find(path: Path) -> Path | None:
    """Returns the prefix of the TF1 checkpoint that `find_prefix` finds at a path; None if it finds none."""
    prefix = find_prefix(path)
    return None if prefix is None or is_object_based(prefix) else prefix


def read(prefix: Path) -> Checkpoint:
    """Reads a checkpoint of google-research/bert: pre-trained, or fine-tuned by `run_classifier.py` or `run_squad.py`.

    `prefix` is its path without `.index`; `bert_config.json` is in the same folder. Optimizer slots are only counted.
    """
    config_path = prefix.with_name(CONFIG_NAME)
    arguments = read_bert_config(config_path)
    vocabulary = find_vocabulary(prefix.parent, arguments["vocab_size"], config_path)
    tensors = open_tensor_bundle(prefix)
    check_num_layers(arguments["num_hidden_layers"], tensors.entries, config_path, prefix)
    variables = map_encoder(arguments["num_hidden_layers"], lambda name: f"bert/{name}", kernels_transposed=False)
    shapes = expected_encoder_shapes(arguments)
    classifier = _classifier_arguments(tensors)
    if classifier:
        variables |= CLASSIFIER
        shapes |= expected_classifier_shapes(arguments["hidden_size"], classifier["num_labels"])
    else:
        variables = drop_absent_pooler(variables, tensors.entries.keys())
    variables |= map_pretraining_heads(lambda name: name, tensors.entries.keys(), kernels_transposed=False)
    variables |= select_head(SPANS, tensors.entries.keys())
    shapes |= expected_pretraining_shapes(arguments)
    shapes |= expected_classifier_shapes(arguments["hidden_size"], 2, SPAN_HEAD)
    arrays = tensors.read_variables(variables, shapes)
    slots = {name for name in tensors.entries if name in _COUNTERS or name.rpartition("/")[0] in tensors.entries}
    return Checkpoint(
        source="google_bert",
        path=prefix,
        encoder_arguments=arguments,
        classifier_arguments=classifier,
        arrays=arrays,
        vocabulary=vocabulary,
        **tensors.account(variables, slots),
    )


def read_bert_config(path: Path) -> dict[str, Any]:
    """Reads a `bert_config.json` (google-research/bert, `modeling.py`, `BertConfig`) as arguments of `BertEncoder`."""
    return parse_encoder_arguments(read_json(path), path, ACTIVATIONS)


def _classifier_arguments(tensors: TensorFile) -> dict[str, Any] | None:
    """Returns the arguments of the head of run_classifier.py, or None if the file has none."""
    shapes = [tensors.entries[name].shape for name in ("output_bias", "output_weights") if name in tensors.entries]
    if not shapes:
        return None
    num_labels, dropout = shapes[0][0] if shapes[0] else 1, CLASSIFIER_DROPOUT
    return {"num_labels": num_labels, "label_names": None, "problem_type": None, "classifier_dropout": dropout}
