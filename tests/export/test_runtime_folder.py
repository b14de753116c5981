"""Writing functions of ids for other runtimes; tests/models/test_runtime_exports.py has the heads."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.export import litert_model, onnx_model, runtime_folder
from keras_bert.export.export_options import INT8, INT8_DYNAMIC, RUNTIME_FORMATS, ExportOptions
from keras_bert.export.runtime_folder import Readme, Samples, check_runtime, load_model, write_runtime_folder

README = Readme("Scores", "ids = {'token_ids': np.array([[1, 2]], np.int32)}", "")
SAMPLES = [{"token_ids": np.arange(6, dtype="int32").reshape(shape)} for shape in ((1, 6), (3, 2), (6, 1))]


@pytest.fixture(params=RUNTIME_FORMATS)
def runtime_format(request):
    skip_without(request.param)
    return request.param


def skip_without(*formats, quantize=None):
    """Skips a test unless the packages of formats are installed, as they are by the extra `test`."""
    for name in formats:
        try:
            check_runtime(name, quantize)
        except ImportError as error:
            pytest.skip(str(error))


def written(path, format, function, files, readme=README, **options):
    """Writes the folder of a function, with `SAMPLES`."""
    calibration = SAMPLES if options.get("quantize") == INT8 else []
    options = ExportOptions(format=format, calibration_texts=calibration or None, **options)
    return write_runtime_folder(path, options, function, Samples(SAMPLES, calibration=calibration), files, readme)


def function_of(compute):
    """Returns a `tf.function` of ids, with a variable in it."""
    weight = tf.Variable([2.0, -1.0, 0.5])

    def scores(token_ids):
        return {"scores": compute(tf.cast(token_ids, tf.float32)[:, :1] * weight), "sums": tf.reduce_sum(token_ids, 1)}

    return tf.function(scores, input_signature=[tf.TensorSpec([None, None], tf.int32, "token_ids")], autograph=False)


def test_writes_a_model_with_its_files_and_a_readme_that_runs_it(runtime_format, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "new" / runtime_format
    function = function_of(tf.nn.gelu)
    # Not tokenizers, whose import is replaced by the one of this file's ids.
    assert written(folder, runtime_format, function, {"labels.txt": "a\r\nb\n"}) == folder
    assert (folder / "labels.txt").read_bytes() == b"a\r\nb\n"
    readme = (folder / "README.md").read_text("utf-8")
    assert "`labels.txt` has the name" in readme
    monkeypatch.chdir(folder)
    names = {}
    exec(readme.split("```python\n")[1].split("```")[0], names)
    expected = function(**{name: tf.constant(values) for name, values in names["ids"].items()})
    assert names["outputs"].keys() == {"scores", "sums"}
    np.testing.assert_allclose(names["outputs"]["scores"], expected["scores"], atol=1e-6)
    np.testing.assert_array_equal(names["outputs"]["sums"], expected["sums"])
    with pytest.raises(FileExistsError):
        written(folder, runtime_format, function, {})


def test_onnx_has_the_exact_gelu_and_layer_norms(tmp_path):
    skip_without("onnx")
    import onnx
    import onnxruntime

    def compute(x):
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        gain = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + 1e-12) * [1.0, 2.0, 3.0]
        return tf.nn.gelu(centered * gain + [0.0, 1.0, 0.0])

    folder = written(tmp_path / "1", "onnx", function_of(compute), {})
    operations = [node.op_type for node in onnx.load(folder / "model.onnx").graph.node]
    # TensorFlow's operation `Erfc` does not exist in ONNX.
    assert "Erf" in operations and "LayerNormalization" in operations
    assert not {"Erfc", "Reciprocal", "Sqrt"} & set(operations)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(folder / "model.onnx", options)
    assert "Gelu" in {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}


@pytest.mark.parametrize(
    ("runtime_format", "quantize"), [*((name, INT8_DYNAMIC) for name in RUNTIME_FORMATS), ("openvino", INT8)]
)
def test_quantized_weights_take_a_quarter_of_the_space(runtime_format, quantize, tmp_path, monkeypatch):
    skip_without(runtime_format, quantize=quantize)
    generator = np.random.default_rng(0)
    table, first, second = (
        tf.Variable(generator.normal(size=shape), dtype=tf.float32) for shape in ((64, 256), (256, 256), (256, 3))
    )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "token_ids")], autograph=False)
    def function(token_ids):
        hidden = tf.matmul(tf.gather(table, token_ids), first) / 16  # [batch, length, 256]
        return {"scores": tf.matmul(tf.nn.gelu(hidden), second), "sums": tf.reduce_sum(token_ids, 1)}

    folder = written(tmp_path / "1", runtime_format, function, {}, quantize=quantize)
    assert sum(path.stat().st_size for path in folder.glob("model.*")) < 0.5 * 4 * (64 + 256 + 3) * 256
    assert quantize in (folder / "README.md").read_text()
    found = load_model(folder, runtime_format)(SAMPLES[1])
    expected = function(SAMPLES[1]["token_ids"])
    difference = np.linalg.norm(found["scores"] - expected["scores"]) / np.linalg.norm(expected["scores"])
    assert 1e-4 < difference < 0.05
    np.testing.assert_array_equal(found["sums"], expected["sums"])
    monkeypatch.setattr(runtime_folder, "QUANTIZED_TOLERANCE", 1e-5)
    with pytest.raises(ValueError, match=r"computes another scores for ids of shape \(1, 6\)"):
        written(tmp_path / "2", runtime_format, function, {}, quantize=quantize)


@pytest.mark.parametrize("name", ["litert", "onnx"])
def test_refuses_an_operation_that_the_runtime_lacks(name, tmp_path):
    skip_without(name)
    function = function_of(lambda x: tf.math.betainc(tf.abs(x) + 1.0, tf.abs(x) + 1.0, tf.zeros_like(x)))
    with pytest.raises(ValueError, match=r"(LiteRT|ONNX Runtime) cannot represent this model: [\s\S]*Betainc"):
        written(tmp_path / "1", name, function, {})
    assert list(tmp_path.iterdir()) == []


NOT_A_NUMBER = ({"scores": [[np.nan, 1.0, -1e9]]}, r"another scores for ids of shape \(1, 6\): .* is nan")


@pytest.mark.parametrize(
    ("changed", "message", "quantize"),
    [
        (*NOT_A_NUMBER, INT8_DYNAMIC),
        (
            {"scores": [[0.5, 1.0, -1e9]]},
            r"the relative difference is 0\.67, and at most 0\.5 is allowed",
            INT8_DYNAMIC,
        ),
        ({"scores": [[2.0, 1.0, -2e9]]}, "the relative difference is 1, ", INT8_DYNAMIC),
        (*NOT_A_NUMBER, None),
        ({"scores": [[2.0, 1.0001, -1e9]]}, r"the relative difference is 5e-05, and at most 1e-05 is allowed", None),
        ({"scores": [[2.0, 1.0, -2e9]]}, "the relative difference is 1, ", None),
        ({"sums": [2]}, "computes another sums", None),
        ({"scores": [[2.0]]}, r"returns scores of shape \(1, 1\) for ids of shape \(1, 6\); it is \(1, 3\)", None),
        ({"more": [1]}, r"returns \['more', 'scores', 'sums'\] instead of \['scores', 'sums'\]", None),
        (None, r"LiteRT cannot run the model on ids of shape \(1, 6\): division by zero", None),
    ],
)
def test_a_file_that_gives_other_outputs_is_an_error_and_leaves_nothing(
    changed, message, quantize, tmp_path, monkeypatch
):
    right = {"scores": [[2.0, 1.0, -1e9]], "sums": [1]}

    def load_model(folder):
        answers = None if changed is None else {name: np.array(values) for name, values in {**right, **changed}.items()}
        return lambda ids: answers or 1 / 0

    monkeypatch.setattr(litert_model, "load_model", load_model)
    monkeypatch.setattr(litert_model, "write_model", lambda function, folder, *_: (folder / "model").write_text(""))
    monkeypatch.setattr(litert_model, "PACKAGES", ())
    specs = [tf.TensorSpec([None, None], tf.int32, "token_ids")]
    function = tf.function(
        lambda token_ids: {name: tf.constant(values) for name, values in right.items()}, input_signature=specs
    )
    with pytest.raises(ValueError, match=message):
        written(tmp_path / "1", "litert", function, {}, quantize=quantize)
    assert list(tmp_path.iterdir()) == []


def test_names_the_command_that_installs_a_runtime(monkeypatch, tmp_path):
    missing = {"onnxruntime", "tf2onnx"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    with pytest.raises(ImportError, match=r'needs onnxruntime, tf2onnx\. .* pip install "keras-bert-zoo\[onnx\]"'):
        write_runtime_folder(tmp_path / "1", ExportOptions(format="onnx"), None, Samples([]), {}, README)
    assert set(onnx_model.PACKAGES) >= missing
    assert list(tmp_path.iterdir()) == []
