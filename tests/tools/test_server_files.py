"""The files of servers, parsed as the servers do. The servers themselves are not run."""

import json
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow_serving.config import model_server_config_pb2
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from keras_bert.export.serving_files import write_batching_parameters
from keras_bert.models.text_embedder import BertTextEmbedder
from tests.tools.program_flags import parse_flags
from tests.toys import toy_encoder, toy_preprocessor
from tools import server_files


@pytest.fixture
def saved_model(tmp_path):
    """The folder of two versions of a SavedModel, as far as the program reads it."""
    for version in ("2", "10"):
        folder = tmp_path / "models" / "reviews" / version
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").touch()
        write_batching_parameters(folder, 32)
    return folder.parent


@pytest.fixture
def onnx_folder(tmp_path):
    """A folder with an ONNX file of the inputs and outputs of a classifier's."""
    onnx = pytest.importorskip("onnx")
    TensorProto, helper = onnx.TensorProto, onnx.helper
    folder = tmp_path / "onnx"
    folder.mkdir()
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", "length"]) for name in names]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 2])]
    onnx.save(helper.make_model(helper.make_graph([], "classifier", inputs, outputs)), folder / "model.onnx")
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    return folder


def write(server, model, output, **options):
    """Runs the program; returns the folder."""
    server_files.run(parse_flags(server_files, server=server, model=model, output=output, **options))
    return output


# The fields of messages whose protos no package here has, as far as our files use them: `str`, `int`, the names of an
# enum, a dict of fields, or a list of one of these. Only names and types matter to the format of text.
NUMBER = {"value": int}
BATCHING_PARAMETERS = {  # TensorFlow Serving 2.20, session_bundle_config.proto
    "max_batch_size": NUMBER,
    "batch_timeout_micros": NUMBER,
    "max_enqueued_batches": NUMBER,
    "num_batch_threads": NUMBER,
    "allowed_batch_sizes": [int],
}
MONITORING_CONFIG = {"prometheus_config": {"enable": bool, "path": str}}  # and its monitoring_config.proto
TENSOR = {"name": str, "data_type": ("TYPE_INVALID", "TYPE_INT32", "TYPE_FP32"), "dims": [int]}
TRITON_CONFIG = {  # tritonclient 2.73, model_config.proto
    "name": str,
    "backend": str,
    "max_batch_size": int,
    "input": [TENSOR],
    "output": [TENSOR],
    "dynamic_batching": {"max_queue_delay_microseconds": int, "default_queue_policy": {"max_queue_size": int}},
    "version_policy": {"latest": {"num_versions": int}},
}


def parse_message(text, fields):
    """Parses a message in the format of text; an unknown field is an error."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="test", syntax="proto3")
    _add_fields(file.message_type.add(name="Message"), fields, ".test.Message")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return text_format.Parse(text, message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Message"))())


def _add_fields(message, fields, path):
    kinds = {int: "INT64", str: "STRING", bool: "BOOL", dict: "MESSAGE", tuple: "ENUM"}
    for number, (name, kind) in enumerate(fields.items(), start=1):
        label = "LABEL_REPEATED" if isinstance(kind, list) else "LABEL_OPTIONAL"
        (kind,) = kind if isinstance(kind, list) else [kind]
        type_name = f"TYPE_{kinds[kind if isinstance(kind, type) else type(kind)]}"
        field = message.field.add(name=name, number=number, type=type_name, label=label)
        if isinstance(kind, type):
            continue
        field.type_name = f"{path}.M{number}"
        if isinstance(kind, dict):
            _add_fields(message.nested_type.add(name=f"M{number}"), kind, field.type_name)
        else:
            values = message.enum_type.add(name=f"M{number}").value
            for index, value in enumerate(kind):
                values.add(name=value, number=index)


def test_tensorflow_serving_serves_the_newest_version_or_labelled_ones(saved_model, tmp_path):
    for labels, versions, expected in (("", [], {}), ("canary=10,stable=2", [2, 10], {"stable": 2, "canary": 10})):
        options = {"version_labels": labels} if labels else {}
        folder = write("tf_serving", saved_model, tmp_path / f"deploy{labels}", **options)
        text = (folder / "models.config").read_text()
        (config,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
        assert (config.name, config.base_path, config.model_platform) == ("reviews", "/models/reviews", "tensorflow")
        assert list(config.model_version_policy.specific.versions) == versions
        assert config.model_version_policy.latest.num_versions == int(not labels)
        assert dict(config.version_labels) == expected
    (volume, _) = yaml.safe_load((folder / "compose.yaml").read_text())["services"]["server"]["volumes"]
    assert (folder / volume["source"]).resolve() == saved_model.resolve()
    assert volume["target"] == "/models/reviews"


def test_folders_that_are_no_versions_are_ignored(saved_model, tmp_path):
    for name in (".11.unfinished-0123", "backup", "\u00b2"):
        (saved_model / name).mkdir()
        (saved_model / name / "saved_model.pb").touch()
    text = (write("tf_serving", saved_model, tmp_path / "a", version_labels="new=10") / "models.config").read_text()
    assert "specific { versions: 10 }" in text
    with pytest.raises(ValueError, match=r"one of the versions of --model, \['2', '10'\]"):
        write("tf_serving", saved_model, tmp_path / "b", version_labels="new=backup")


def test_any_path_of_a_model_is_mounted(saved_model, tmp_path):
    folder = saved_model.rename(tmp_path / 'a $HOME "b" \U0001f600')
    file = write("tf_serving", folder, tmp_path / "deploy", name="reviews") / "compose.yaml"
    source = yaml.safe_load(file.read_text("utf-8"))["services"]["server"]["volumes"][0]["source"]
    assert "$" not in source.replace("$$", "")  # Docker Compose would replace it
    assert (file.parent / source.replace("$$", "$")).resolve() == folder.resolve()


def test_parameters_have_the_fields_of_the_server(saved_model, tmp_path):
    folder = write("tf_serving", saved_model, tmp_path / "deploy")
    assert parse_message((folder / "batching.config").read_text(), BATCHING_PARAMETERS).num_batch_threads.value == 4
    monitoring = parse_message((folder / "monitoring.config").read_text(), MONITORING_CONFIG).prometheus_config
    assert (monitoring.enable, monitoring.path) == (True, "/monitoring/prometheus/metrics")
    model = parse_message((saved_model / "2" / "batching_params.pbtxt").read_text(), BATCHING_PARAMETERS)
    assert (model.max_batch_size.value, model.max_enqueued_batches.value) == (32, 100)
    sizes = list(model.allowed_batch_sizes)
    # The server refuses others: increasing, and the last one the maximum.
    assert sizes == sorted({*sizes}) and sizes[-1] == 32


def test_kserve_gets_a_server_with_the_operations_of_the_tokenizer(saved_model, tmp_path):
    folder = write("kserve", saved_model, tmp_path / "deploy", storage_uri="s3://models/reviews")
    assert [path.name for path in folder.iterdir()] == ["inferenceservice.yaml"]
    service = yaml.safe_load((folder / "inferenceservice.yaml").read_text())
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service["spec"]["predictor"]["model"]
    assert (model["storageUri"], model["runtimeVersion"]) == ("s3://models/reviews", "2.20.0")


def test_triton_gets_the_inputs_and_outputs_of_the_onnx_file(onnx_folder, tmp_path):
    folder = write("triton", onnx_folder, tmp_path / "deploy", name="reviews") / "models" / "reviews"
    assert (folder / "1" / "model.onnx").read_bytes() == (onnx_folder / "model.onnx").read_bytes()
    config = parse_message((folder / "config.pbtxt").read_text(), TRITON_CONFIG)
    assert (config.name, config.backend, config.max_batch_size) == ("reviews", "onnxruntime", 16)  # of 512 tokens
    int32, float32 = 1, 2
    inputs = [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input]
    assert inputs == [(name, int32, [-1]) for name in ("token_ids", "segment_ids", "padding_mask")]
    assert [(x.name, x.data_type, list(x.dims)) for x in config.output] == [("probabilities", float32, [2])]
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 100


@pytest.mark.parametrize("name, data_type", [('a" dims: [ 1', "FLOAT"), ("a", "STRING")])
def test_triton_refuses_onnx_files_of_others(onnx_folder, tmp_path, name, data_type):
    import onnx

    model = onnx.load(onnx_folder / "model.onnx")
    model.graph.output[0].name = name
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(data_type)
    onnx.save(model, onnx_folder / "model.onnx")
    with pytest.raises(ValueError, match=f"of type {data_type}, as no export of keras_bert has"):
        write("triton", onnx_folder, tmp_path / "deploy", name="reviews")
    (onnx_folder / "model.onnx").write_bytes(b"no protocol buffer")
    with pytest.raises(ValueError, match="is not a complete ONNX file"):
        write("triton", onnx_folder, tmp_path / "deploy", name="reviews")


def test_openvino_computes_in_float32(onnx_folder, tmp_path):
    folder = write("openvino", onnx_folder, tmp_path / "deploy", name="reviews")
    (model,) = json.loads((folder / "config.json").read_text())["model_config_list"]
    assert model["config"]["base_path"] == "/models/reviews"
    assert model["config"]["plugin_config"] == {"INFERENCE_PRECISION_HINT": "f32"}
    assert (folder / "models" / "reviews" / "1" / "model.onnx").is_file()


def test_text_embeddings_inference_reads_what_an_embedder_writes(tmp_path):
    for pooling, projection in (("mean", None), ("cls", 8), ("max", None), ("weighted", None)):
        encoder = toy_encoder(with_pooler=False)
        embedder = BertTextEmbedder(encoder, toy_preprocessor(), pooling=pooling, projection=projection, seed=1)
        model = embedder.save_checkpoint(tmp_path / pooling)
        if pooling in ("max", "weighted"):
            with pytest.raises(ValueError, match="has no pooling but cls and mean"):
                write("tei", model, tmp_path / f"deploy_{pooling}")
            continue
        folder = write("tei", model, tmp_path / f"deploy_{pooling}")
        assert f'"/models/{pooling}"' in (folder / "Dockerfile").read_text()
        # What its source requires: a number, and the names of the modules and of the activation.
        assert json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"] == 16
        modules = {module["type"] for module in json.loads((model / "modules.json").read_text())}
        names = ("Transformer", "Pooling", "Dense", "Normalize")
        assert modules <= {f"sentence_transformers.models.{name}" for name in names}
        assert json.loads((model / "config.json").read_text())["model_type"] == "bert"
    model = embedder.save_checkpoint(tmp_path / "int8", dtype="int8")
    with pytest.raises(ValueError, match="does not know the model_type 'keras_bert'"):
        write("tei", model, tmp_path / "none")
    (model / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"needs \['tokenizer.json'\]"):
        write("tei", model, tmp_path / "none")


def test_refuses_what_a_server_cannot_serve(saved_model, onnx_folder, tmp_path):
    for server, model, options, message in (
        ("triton", saved_model, {}, "serves an ONNX export, and .* holds a SavedModel; .* takes token ids: clients"),
        ("openvino", saved_model, {}, "serves an ONNX export or an OpenVINO export"),
        ("tei", saved_model, {}, r"BertTextEmbedder.save_checkpoint\(path\) writes one"),
        ("tf_serving", onnx_folder, {}, "serves a SavedModel, and .*onnx holds an ONNX export"),
        ("tf_serving", tmp_path / "missing", {}, "holds none"),
        ("tf_serving", saved_model / "2", {}, "is one version of a SavedModel; give the folder of its versions"),
        ("tf_serving", saved_model, {"version_labels": "stable=3"}, r"one of the versions of --model, \['2', '10'\]"),
        ("tf_serving", saved_model, {"version_labels": "a b=2"}, "must be LABEL=VERSION"),
        ("tf_serving", saved_model, {"name": 'a"b'}, "must match"),
        ("kserve", saved_model, {}, "needs --storage_uri"),
        ("kserve", saved_model, {"storage_uri": "s3://a/b", "name": "My_model"}, "must match"),
        ("triton", onnx_folder, {"version_labels": "stable=2"}, "--version_labels is for --server=tf_serving only"),
    ):
        with pytest.raises(ValueError, match=message):
            write(server, model, tmp_path / "deploy", **options)
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "mine").touch()
    with pytest.raises(FileExistsError):
        write("tf_serving", saved_model, tmp_path / "deploy")


@pytest.mark.parametrize("server", [name for name in server_files.SERVERS if name != "kserve"])
def test_dockerfiles_copy_files_that_exist_and_check_health(server, saved_model, onnx_folder, tmp_path):
    embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), seed=1)
    model = {"tf_serving": saved_model, "tei": tmp_path / "reviews"}.get(server, onnx_folder)
    if server == "tei":
        embedder.save_checkpoint(model)
    folder = write(server, model, tmp_path / "deploy", name="reviews")
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    (copied,) = (line.split()[1:-1] for line in lines if line.startswith("COPY"))
    assert [name for name in copied if not (folder / name).is_file()] == []
    (check,) = (json.loads(line.partition(" CMD ")[2]) for line in lines if line.startswith("HEALTHCHECK"))
    assert check[:2] == ["bash", "/config/healthcheck.sh"]
    assert isinstance(json.loads(next(line for line in lines if line.startswith("CMD"))[4:]), list)
    compose = yaml.safe_load((folder / "compose.yaml").read_text())["services"]["server"]
    assert any(port.endswith(f":{check[2]}") for port in compose["ports"])
    assert all(port.startswith("127.0.0.1:") for port in compose["ports"])


@pytest.mark.parametrize(
    "status, text, is_healthy",
    [(200, "AVAILABLE", True), (200, "LOADING", False), (503, "AVAILABLE", False), (404, "", False)],
)
def test_health_check_needs_the_status_and_the_word(status, text, is_healthy):
    script = Path(server_files.__file__).with_name("server_templates") / "docker" / "healthcheck.sh"

    def answer(environ, start_response):
        response = Response(text if environ["PATH_INFO"] == "/v1/models/reviews" else "AVAILABLE", status)
        return response(environ, start_response)

    server = make_server("127.0.0.1", 0, answer)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    command = ["bash", script, str(server.server_port), "/v1/models/reviews", "AVAILABLE"]
    assert (subprocess.run(command, timeout=10).returncode == 0) == is_healthy
    server.shutdown()
    thread.join()
    assert subprocess.run(command, timeout=10, stderr=subprocess.DEVNULL).returncode != 0  # nothing listens
