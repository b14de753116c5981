"""A request to an exported classifier: texts to a SavedModel, or ids of the same texts to another runtime.

A figure `b8x64` is the time of a request of 8 texts with 64 tokens each.
"""

import functools
import tempfile
from pathlib import Path

from benchmarks.timing import load_head, median_seconds

SHAPES = ((1, 16), (1, 32), (1, 128), (8, 64), (32, 26), (16, 128))
_CALIBRATION_SHAPE = (32, 64)


def measure(values, format="saved_model", **options):
    """Measures the exported model at all shapes; `values` are the flags of the suite, `options` those of `export`."""
    from keras_bert.models.classifier import BertClassifier

    model = load_head(BertClassifier, values.init_checkpoint, labels=["negative", "positive"])
    if options.get("quantize") == "int8":
        options["calibration_texts"] = make_texts(model.preprocessor, *_CALIBRATION_SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        compute = load(model.export(Path(folder) / "1", format=format, **options), format)
        figures = {}
        for shape in SHAPES:
            texts = make_texts(model.preprocessor, *shape)
            seconds = median_seconds(
                functools.partial(compute, request(model.preprocessor, texts, format)), values.repeats
            )
            figures["b{}x{} ms".format(*shape)] = 1e3 * seconds
    return figures, "texts" if format == "saved_model" else "ids"


def load(path, format):
    """Returns a function that runs an exported model, from a dict of inputs to its outputs as arrays."""
    from keras_bert.export.runtime_folder import load_model

    if format != "saved_model":
        return load_model(path, format)
    import tensorflow as tf

    signature = tf.saved_model.load(path).signatures["serving_default"]
    return lambda inputs: {name: value.numpy() for name, value in signature(**inputs).items()}


def request(preprocessor, texts, format):
    """Returns the inputs of an exported model for texts."""
    import tensorflow as tf

    if format == "saved_model":
        return {"text": tf.constant(texts)}
    return {name: values.numpy() for name, values in preprocessor(texts).items()}


def make_texts(preprocessor, number, length):
    """Returns texts of words of the vocabulary, each of which fills `length` tokens with [CLS] and [SEP]."""
    words = [word for word in preprocessor.tokenizer.vocabulary if word.isascii() and word.isalpha()]
    words *= 1 + number * length // len(words)
    return [" ".join(words[row * length :][: length - 2]) for row in range(number)]


PROGRAMS = {
    "keras_bert": measure,
    "bfloat16": functools.partial(measure, dtype="bfloat16"),
    "onnxruntime": functools.partial(measure, format="onnx"),
    "openvino": functools.partial(measure, format="openvino"),
    "litert": functools.partial(measure, format="litert"),
    "onnxruntime_int8_dynamic": functools.partial(measure, format="onnx", quantize="int8_dynamic"),
    "openvino_int8_dynamic": functools.partial(measure, format="openvino", quantize="int8_dynamic"),
    "openvino_int8": functools.partial(measure, format="openvino", quantize="int8"),
    "litert_int8_dynamic": functools.partial(measure, format="litert", quantize="int8_dynamic"),
}
