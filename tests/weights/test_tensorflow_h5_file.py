import json

import h5py
import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.weights import hugging_face
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.tensorflow_h5_file import translate_name
from tests.weights.conftest import SIZES

MODELS = {
    "BertModel": "tf_bert_model",
    "BertForSequenceClassification": "tf_bert_for_sequence_classification",
    "BertForTokenClassification": "tf_bert_for_token_classification",
    "BertForMultipleChoice": "tf_bert_for_multiple_choice_3",
    "BertForQuestionAnswering": "tf_bert_for_question_answering",
    "BertForPreTraining": "tf_bert_for_pre_training",
    "BertForMaskedLM": "tf_bert_for_masked_lm",
    "BertForNextSentencePrediction": "tf_bert_for_next_sentence_prediction",
}
HEADS = {
    "BertForSequenceClassification": ("logits", "classifier", 3),
    "BertForTokenClassification": ("token_logits", "classifier", 5),
    "BertForMultipleChoice": ("choice_logits", "classifier", 1),
    "BertForQuestionAnswering": ("spans", "qa_outputs", 2),
}


def their_name(name, model):
    """The inverse of `translate_name`, for the names of `hugging_face_folder`."""
    parts = name.replace(".layer.", ".layer_@_").split(".")
    if "LayerNorm" in parts:
        parts[-1] = {"weight": "gamma", "bias": "beta"}[parts[-1]]
    elif parts[-1] == "weight" and parts[-2] != "word_embeddings":
        parts[-1] = "embeddings" if parts[-2].endswith("_embeddings") else "kernel"
    if parts[0] == "cls":
        parts[0] = "mlm___cls" if parts[1] == "predictions" else "nsp___cls"
    return "/".join([parts[0], model, *parts]).replace("@", ".") + ":0"


def write(folder, model):
    """Writes `hugging_face_folder` with its weights as a `tf_model.h5`."""
    path = folder.write()
    (path / "model.safetensors").unlink()
    with h5py.File(path / "tf_model.h5", "w") as file:
        file.attrs["layer_names"] = ["bert", "classifier"]
        for name, tensor in folder.tensors.items():
            theirs = their_name(name, model)
            file[theirs] = tensor.T if theirs.endswith("/kernel:0") else tensor
        if "cls.predictions.bias" in folder.tensors:  # the shared embeddings, which Keras stores twice
            file[f"mlm___cls/{model}/bert/embeddings/word_embeddings/weight:0"] = np.zeros((7, 4), "f4")
        file.create_group("top_level_model_weights")
    return path


@pytest.mark.parametrize("architecture", MODELS)
def test_reads_same_arrays_as_from_safetensors(hugging_face_folder, architecture):
    folder, random = hugging_face_folder, np.random.default_rng(1)
    folder.config["architectures"] = [architecture]
    hidden = SIZES["hidden_size"]
    shapes = {}
    if architecture in HEADS:
        _, name, outputs = HEADS[architecture]
        shapes = {f"{name}.weight": (outputs, hidden), f"{name}.bias": (outputs,)}
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        transform = "cls.predictions.transform"
        shapes |= {f"{transform}.dense.weight": (hidden, hidden), "cls.predictions.bias": (SIZES["vocab_size"],)}
        shapes |= {f"{transform}.{name}": (hidden,) for name in ("dense.bias", "LayerNorm.weight", "LayerNorm.bias")}
    if architecture in ("BertForPreTraining", "BertForNextSentencePrediction"):
        shapes |= {"cls.seq_relationship.weight": (2, hidden), "cls.seq_relationship.bias": (2,)}
    folder.tensors |= {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    if architecture in ("BertForTokenClassification", "BertForQuestionAnswering"):
        folder.tensors = {name: tensor for name, tensor in folder.tensors.items() if "pooler" not in name}
    expected = read_checkpoint(folder.write())
    checkpoint = read_checkpoint(write(folder, MODELS[architecture]))
    assert checkpoint.path.name == "tf_model.h5"
    assert checkpoint.unused == expected.unused == ()
    assert checkpoint.tensor_names == expected.tensor_names
    assert checkpoint.classifier_arguments == expected.classifier_arguments
    assert checkpoint.arrays.keys() == expected.arrays.keys()
    if architecture in HEADS:
        assert f"{HEADS[architecture][0]}/kernel" in checkpoint.arrays
    for path, array in expected.arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[path], array)


def test_safetensors_come_first_and_files_may_be_passed(hugging_face_folder):
    path = write(hugging_face_folder, "tf_bert_model")
    assert hugging_face.find(path / "tf_model.h5") == hugging_face.find(path) == path / "tf_model.h5"
    hugging_face_folder.write()
    assert hugging_face.find(path) == path / "model.safetensors"


def test_missing_tensor_is_named(hugging_face_folder):
    del hugging_face_folder.tensors["bert.pooler.dense.weight"]
    with pytest.raises(ValueError, match=r"tf_model.h5: tensor 'bert.pooler.dense.weight' .* found no such tensor"):
        read_checkpoint(write(hugging_face_folder, "tf_bert_model"))


@pytest.mark.parametrize("name", ["", "a", "a/b", "___", "a/b/___/_._", "bert/x/bert/pooler/dense/kernel:0", "a" * 250])
def test_translates_any_name(name):
    assert isinstance(translate_name(name), str)


@pytest.mark.parametrize("model", ["classifier", "pretraining"])
def test_reproduces_outputs(shared, model):
    folder = shared / "golden" / "formats" / "tf_model_h5" / model
    expected = np.load(folder / "expected.npz")
    ids = {name: expected[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    real = ids["padding_mask"].astype(bool)
    outputs = BertEncoder.from_checkpoint(folder)(ids)
    found, wanted = np.asarray(outputs["sequence_output"]), expected["hidden_states"][-1]
    np.testing.assert_allclose(found[real], wanted[real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], rtol=0, atol=1e-5)
    if model == "classifier":
        classifier = BertClassifier.from_checkpoint(folder, sequence_length=24)
        assert not classifier.checkpoint_report.random and not classifier.checkpoint_report.unused
        assert classifier.labels == list(json.loads((folder / "config.json").read_text())["id2label"].values())
        np.testing.assert_allclose(classifier(ids), expected["logits"], rtol=0, atol=1e-5)
    else:
        pretrainer = BertPretrainer.from_checkpoint(folder)
        assert not pretrainer.checkpoint_report.random and not pretrainer.checkpoint_report.unused
        outputs = pretrainer(ids)
        found, wanted = np.asarray(outputs["masked_logits"]), expected["mlm_logits"]
        np.testing.assert_allclose(found[real], wanted[real], rtol=0, atol=1e-5)
        np.testing.assert_allclose(outputs["next_sentence_logits"], expected["nsp_logits"], rtol=0, atol=1e-5)
