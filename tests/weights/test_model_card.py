import json

import pytest

from keras_bert.weights.hub import hash_file
from keras_bert.weights.model_card import ModelCard, write_model_card

yaml = pytest.importorskip("yaml")  # of huggingface_hub
SIZES = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}


@pytest.fixture
def folder(tmp_path):
    """Returns a function that makes a folder of weights with this architecture."""

    def make(architecture="BertForSequenceClassification", **config):
        (tmp_path / "model.safetensors").write_bytes(b"weights")
        config = {"model_type": "bert", "architectures": [architecture], **SIZES, **config}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return make


def read_card(path):
    _, header, body = path.read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(header), body


def test_card_says_what_the_hub_and_a_reader_need(folder):
    path = folder(id2label={"0": "negative", "1": "positive"})
    scores = [{"metric": "accuracy", "value": 0.9125, "dataset": "SST-2", "split": "dev", "seed": 3}]
    card = write_model_card(
        path,
        "owner/name",
        license="mit",
        language="en",
        base_model="google-bert/bert-base-uncased",
        datasets=["nyu-mll/glue"],
        data="SST-2, 67,349 sentences",
        recipe={"learning rate": 2e-5, "layers": [1, 2]},
        scores=scores,
        trials=[{"seed": 3, "accuracy": 0.9125}, {"seed": 4, "accuracy": 0.91}],
        command="python -m tasks.glue",
    )
    header, body = read_card(card)
    assert header["library_name"] == "keras_bert" and header["pipeline_tag"] == "text-classification"
    assert header["license"] == "mit" and header["language"] == ["en"]
    assert header["base_model"] == "google-bert/bert-base-uncased" and header["datasets"] == ["nyu-mll/glue"]
    (result,) = header["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9125}]
    assert result["dataset"] == {"type": "nyu-mll/glue", "name": "SST-2", "split": "dev"}
    assert "A BERT with 6 layers, hidden size 384" in body and "`negative`, `positive`" in body
    assert 'keras_bert.BertClassifier.from_preset("hf://owner/name")' in body
    assert "| SST-2 | dev | accuracy | 0.9125 | 3 |" in body and "| 4 | 0.91 |" in body
    assert "| learning rate | 2e-05 |" in body and "| layers | 1, 2 |" in body
    assert f"| `model.safetensors` | 7 bytes | `{hash_file(path / 'model.safetensors')}` |" in body
    assert "at most 512 tokens" in body and "python -m tasks.glue" in body and "SST-2, 67,349 sentences" in body
    usage = body.split("```python\n")[1].split("```")[0]
    assert len(usage.splitlines()) <= 10
    compile(usage, "usage", "exec")


@pytest.mark.parametrize(
    ("architecture", "model_class", "task"),
    [
        ("BertForTokenClassification", "BertTokenClassifier", "token-classification"),
        ("BertForQuestionAnswering", "BertSpanLabeler", "question-answering"),
        ("BertForMultipleChoice", "BertMultipleChoice", "multiple-choice"),
        ("BertForPreTraining", "BertPretrainer", "fill-mask"),
        ("BertModel", "BertEncoder", "feature-extraction"),
    ],
)
def test_class_and_task_are_those_of_the_architecture(folder, architecture, model_class, task):
    header, body = read_card(write_model_card(folder(architecture)))
    assert header["pipeline_tag"] == task
    assert f'keras_bert.{model_class}.from_checkpoint("path/of/this/folder")' in body


def test_sentence_encoder(folder):
    path = folder("BertModel")
    (path / "modules.json").write_text("[]")
    header, body = read_card(write_model_card(path))
    assert header["pipeline_tag"] == "sentence-similarity" and "sentence-transformers" in header["tags"]
    assert "keras_bert.BertTextEmbedder" in body
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_type": "keras_bert"}))  # as with weights in int8
    header, body = read_card(write_model_card(path))
    assert header["pipeline_tag"] == "sentence-similarity" and "sentence-transformers" not in header["tags"]
    assert "keras_bert.BertTextEmbedder" in body


def test_regression_and_own_class(folder):
    body = read_card(write_model_card(folder(id2label={"0": "x"}, problem_type="regression"), model_class="Mine"))[1]
    assert "keras_bert.BertClassifier" in body and "model.predict([" in body


def test_folder_of_another_format(tmp_path):
    header, body = read_card(write_model_card(tmp_path, "owner/name", model_class="BertSpanLabeler"))
    assert header["pipeline_tag"] == "question-answering" and "# name" in body


@pytest.mark.parametrize("text", ['"a": b', "- x\n---\n# y", "a|b", "`code`", "\x7f\x85\u2028\ud800", "{[", "日本 😀"])
def test_any_text_stays_where_it_belongs(folder, text):
    path = folder(id2label={"0": text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore"), "1": "b"})
    text = text.encode("utf-8", "ignore").decode("utf-8")
    header, body = read_card(write_model_card(path, title=text, license=text, recipe={"r": text}, tags=[text]))
    assert header["license"] == text and text in header["tags"]
    assert body.count("\n## ") == 5
    (row,) = [line for line in body.splitlines() if line.startswith("| r |")]
    assert len(row.replace("\\|", "").split("|")) == 4


def test_a_card_is_kept_on_request(folder):
    path = folder()
    (path / "README.md").write_text("mine")
    write_model_card(path, overwrite=False)
    assert (path / "README.md").read_text() == "mine"
    write_model_card(path)
    assert (path / "README.md").read_text() != "mine"


def test_unknown_fields_and_classes():
    with pytest.raises(TypeError, match="licence"):
        ModelCard("title", licence="mit")
    with pytest.raises(ValueError, match="model_class must be one of"):
        ModelCard("title", model_class="Mine")
