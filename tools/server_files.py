"""Writes the files for a model server: its configuration, a Dockerfile with a health check, and a compose file.

    python -m tools.server_files --server=tf_serving --model=models/reviews --output=deploy/reviews
    python -m tools.server_files --server=kserve --model=models/reviews --output=deploy/k --storage_uri=s3://models/reviews
    python -m tools.server_files --server=triton --model=models/reviews_onnx --output=deploy/triton
    python -m tools.server_files --server=tei --model=runs/embedder/model --output=deploy/tei

| --server | --model |
|---|---|
| tf_serving, kserve | folder of the versions of a SavedModel, which takes texts |
| triton | export with format="onnx", which takes token ids |
| openvino (OpenVINO Model Server) | export with format="onnx" or "openvino", which takes token ids |
| tei (text-embeddings-inference) | folder of a BertTextEmbedder in the format of sentence-transformers |

Then `docker compose up --build --wait` in the folder of --output starts the server; for KServe, `kubectl apply`. The
files of triton and openvino are copied; other models stay where they are, and are mounted.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from string import Template

from absl import app, flags

from tools.program import flag_definer, hide_info_logs, run_program
from tools.serve import find_newest, find_versions, model_name

_TEMPLATES = Path(__file__).with_name("server_templates")
_SAVED_MODEL, _ONNX, _OPENVINO, _EMBEDDER = "a SavedModel", "an ONNX export", "an OpenVINO export", "an embedder"
_FILES = {_ONNX: ("model.onnx",), _OPENVINO: ("model.xml", "model.bin")}
# What each server serves, and what to do if --model is something else.
_SAVED_MODEL_ADVICE = 'model.export("models/NAME/1") writes one'
_IDS_ADVICE = "which takes token ids: clients compute these from texts, with the export's tokenizer.json"
SERVERS = {
    "tf_serving": ((_SAVED_MODEL,), _SAVED_MODEL_ADVICE),
    "kserve": ((_SAVED_MODEL,), _SAVED_MODEL_ADVICE),
    "triton": ((_ONNX,), f'model.export(path, format="onnx") writes one, {_IDS_ADVICE}'),
    "openvino": ((_ONNX, _OPENVINO), f'model.export(path, format="openvino") writes one, {_IDS_ADVICE}'),
    "tei": ((_EMBEDDER,), "BertTextEmbedder.save_checkpoint(path) writes one"),
}
_PORTS = {
    "tf_serving": ("8500", "8501"),
    "triton": ("8000", "8001", "8002"),
    "openvino": ("9000", "8000"),
    "tei": ("80",),
}
_TRITON_TYPES = {"FLOAT": "TYPE_FP32", "INT32": "TYPE_INT32", "INT64": "TYPE_INT64"}


def find_kind(folder):
    """Returns what a folder holds, or None."""
    if find_newest(folder):
        return _SAVED_MODEL
    for kind, names in _FILES.items():
        if all((folder / name).is_file() for name in names):
            return kind
    return _EMBEDDER if (folder / "modules.json").is_file() else None


def read_labels(texts, versions):
    """Returns {label: version} from items of `label=version`; ValueError if a version is missing."""
    labels = {}
    for text in texts:
        label, _, version = text.partition("=")
        if not re.fullmatch(r"[\w.-]+", label, re.ASCII) or version not in versions:
            raise ValueError(
                f"--version_labels={text} must be LABEL=VERSION, with one of the versions of --model, {versions}; for "
                "example stable=1,canary=2"
            )
        labels[label] = version
    return labels


def tf_serving_values(folder, version_labels):
    """Returns the values of TensorFlow Serving's files. With labels, it loads their versions, else the newest."""
    if find_newest(folder) == folder:
        raise ValueError(
            f"--model={folder} is one version of a SavedModel; give the folder of its versions, such as models/reviews "
            "with the version models/reviews/1"
        )
    labels = read_labels(version_labels, [version.name for version in find_versions(folder)])
    served = "".join(f" versions: {version}" for version in sorted({*labels.values()}, key=int))
    lines = (f'    version_labels {{ key: "{label}" value: {version} }}\n' for label, version in labels.items())
    return {"policy": f"specific {{{served} }}" if labels else "latest { num_versions: 1 }", "labels": "".join(lines)}


def triton_values(folder):
    """Returns the values of Triton's config.pbtxt, from the inputs and outputs of the ONNX file."""
    import onnx
    from google.protobuf.message import DecodeError

    from keras_bert.export.serving_files import BATCH_TIMEOUT_MICROSECONDS, max_batch_size
    from keras_bert.weights.bert_config import read_json

    try:
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    except DecodeError as error:
        raise ValueError(f"{folder / 'model.onnx'} is not a complete ONNX file: {error}") from error
    length = read_json(folder / "tokenizer_config.json")["model_max_length"]
    has_choices = len(graph.input[0].type.tensor_type.shape.dim) == 3
    return {
        "max_batch_size": max_batch_size(length, inputs_per_row=4 if has_choices else 1),
        "queue_delay": BATCH_TIMEOUT_MICROSECONDS,
        "inputs": ",\n".join(map(_triton_tensor, graph.input)),
        "outputs": ",\n".join(map(_triton_tensor, graph.output)),
    }


def _triton_tensor(value):
    """Returns a tensor of an ONNX graph in the format of config.pbtxt, without the batch axis."""
    from onnx import TensorProto

    tensor = value.type.tensor_type
    dims = ", ".join(str(dim.dim_value or -1) for dim in tensor.shape.dim[1:])
    dtype = TensorProto.DataType.Name(tensor.elem_type)
    if dtype not in _TRITON_TYPES or not re.fullmatch(r"\w+", value.name, re.ASCII):
        raise ValueError(f"model.onnx has the tensor {value.name!r} of type {dtype}, as no export of keras_bert has")
    return f'  {{ name: "{value.name}" data_type: {_TRITON_TYPES[dtype]} dims: [ {dims} ] }}'


def check_embedder(folder):
    """Raises ValueError if text-embeddings-inference cannot read a folder.

    Source: router/src/lib.rs and backends/src/lib.rs of version 1.9.
    """
    from keras_bert.weights.bert_config import read_json

    pooling = Path("1_Pooling/config.json")
    needed = ("config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json", pooling)
    if missing := [str(name) for name in needed if not (folder / name).is_file()]:
        raise ValueError(f"text-embeddings-inference needs {missing}, which {folder} lacks; {SERVERS['tei'][1]}")
    if (model_type := read_json(folder / "config.json").get("model_type")) != "bert":
        raise ValueError(
            f"text-embeddings-inference does not know the model_type {model_type!r} of {folder / 'config.json'}; save "
            'the embedder with dtype="float32"'
        )
    modes = read_json(folder / pooling)
    if not (modes.get("pooling_mode_cls_token") or modes.get("pooling_mode_mean_tokens")):
        raise ValueError(
            f"text-embeddings-inference has no pooling but cls and mean, and {folder / pooling} has another. Train "
            "with one of these, or serve a SavedModel with --server=tf_serving"
        )


def write_files(server, folder, output, name, version_labels=(), storage_uri=None):
    """Writes the files for a server to a new folder."""
    from keras_bert.io.atomic_write import atomic_folder

    kinds, advice = SERVERS[server]
    kind, version = find_kind(folder), folder.name if re.fullmatch("[0-9]+", folder.name) else "1"
    if kind not in kinds:
        raise ValueError(
            f"--server={server} serves {' or '.join(kinds)}, and {folder} holds {kind or 'none'}; {advice}"
        )
    values = {"name": name, "storage_uri": _quote(storage_uri)}
    if kind == _SAVED_MODEL:
        values |= tf_serving_values(folder, version_labels)
    elif server == "triton":
        values |= triton_values(folder)
    elif server == "tei":
        check_embedder(folder)
    copied = _FILES.get(kind, ())
    if server in _PORTS:
        source = "./models" if copied else os.path.relpath(folder, output)
        ports = ", ".join(f'"127.0.0.1:{"8080" if port == "80" else port}:{port}"' for port in _PORTS[server])
        source = _quote(source).replace("$", "$$")  # Docker Compose replaces names of variables
        values |= {"source": source, "target": "" if copied else f"/{name}", "ports": ports}
    with atomic_folder(output) as unfinished:
        templates = [*(_TEMPLATES / server).iterdir(), *((_TEMPLATES / "docker").iterdir() if server in _PORTS else ())]
        for template in templates:
            text = template.read_text("utf-8")
            path = unfinished / template.name
            if template.name == "config.pbtxt":
                path = unfinished / "models" / name / template.name
                path.parent.mkdir(parents=True)
            path.write_text(text if template.suffix == ".sh" else Template(text).substitute(values), "utf-8")
        for file in copied:
            target = unfinished / "models" / name / version / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, target)


def _quote(text):
    """Returns a text in quotes, as YAML reads it."""
    return json.dumps(text, ensure_ascii=False)


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("enum", "server", None, list(SERVERS), "Server to write the files for.", required=True)
    define("string", "model", None, "Folder of the model.", required=True)
    define("string", "output", None, "Folder to write; must not exist.", required=True)
    define("string", "name", None, "Name of the model in addresses; default: that of the folder.")
    define("list", "version_labels", [], "tf_serving: versions to serve by label, such as stable=1,canary=2.")
    define(
        "string", "storage_uri", None, "kserve: where the cluster finds the folder of the versions, such as s3://a/b."
    )


def run(values):
    """Writes the files, and prints what to do with them."""
    for flag, server in (("version_labels", "tf_serving"), ("storage_uri", "kserve")):
        if values[flag].present and values.server != server:
            raise ValueError(f"--{flag} is for --server={server} only")
    if values.server == "kserve" and not values.storage_uri:
        raise ValueError(
            "--server=kserve needs --storage_uri, the address of a copy of --model that the cluster can read"
        )
    folder, name = Path(values.model), values.name or model_name(values.model)
    # What Kubernetes takes, or what needs no escapes in configurations, addresses and shells.
    pattern = "[a-z]([-a-z0-9]*[a-z0-9])?" if values.server == "kserve" else r"[A-Za-z0-9][A-Za-z0-9_.-]*"
    if not re.fullmatch(pattern, name):
        raise ValueError(f"the name {name!r} must match {pattern} for --server={values.server}; give another by --name")
    write_files(values.server, folder, Path(values.output), name, values.version_labels, values.storage_uri)
    start = (
        "kubectl apply -f inferenceservice.yaml" if values.server == "kserve" else "docker compose up --build --wait"
    )
    print(f"To start the server: cd {values.output} && {start}", file=sys.stderr)
    if values.server in ("triton", "openvino"):
        print(f"It takes token ids; {folder / 'README.md'} shows how to compute them.", file=sys.stderr)


def main(argv):
    """Runs the program; errors of the model and the flags are printed without a traceback."""
    hide_info_logs()
    run_program("server_files", run, argv, "the model is given by --model", (ImportError, OSError, ValueError))


if __name__ == "__main__":
    define_flags()
    app.run(main)
