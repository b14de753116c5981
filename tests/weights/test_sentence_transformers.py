import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.weights.sentence_transformers import EmbeddingSettings, embedding_files, read_embedding_settings
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

OLD = "sentence_transformers.models."
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": f"{OLD}Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{OLD}Pooling"},
]
SETTINGS = EmbeddingSettings("mean", normalize=True, max_length=8)


def write(folder, settings=SETTINGS, **files):
    """Writes a folder's files; `files` replace the contents of those with that name, "/" written as "__"."""
    for name, text in embedding_files(settings, hidden_size=4).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name, value in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "weighted"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("projection", [(None, "tanh"), (3, "tanh"), (5, "linear")])
def test_written_settings_are_read_back(tmp_path, pooling, normalize, projection):
    settings = EmbeddingSettings(pooling, normalize, 9, *projection)
    assert read_embedding_settings(write(tmp_path, settings), hidden_size=4) == settings


def test_embedder_reproduces_reference_embeddings(shared):
    folder = shared / "golden" / "formats" / "sentence_transformers"
    expected, embedder = np.load(folder / "expected.npz"), BertTextEmbedder.from_checkpoint(folder)
    assert (embedder.pooling, embedder.normalize, embedder.preprocessor.sequence_length) == ("mean", True, 22)
    texts = expected["text_a"].tolist()
    np.testing.assert_array_equal(embedder.preprocessor(texts)["token_ids"], expected["token_ids"])
    np.testing.assert_allclose(embedder.encode(texts), expected["embeddings"], atol=1e-5)
    own = BertTextEmbedder.from_checkpoint(folder / "model.safetensors", pooling="cls", sequence_length=5)
    assert (own.pooling, own.normalize, own.preprocessor.sequence_length) == ("cls", True, 5)


def test_embedder_of_minilm_has_its_length(minilm):
    assert read_embedding_settings(minilm, 384) == EmbeddingSettings("mean", True, 256)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "weighted"])
def test_embedder_is_read_back(tmp_path, pooling):
    projection = {"max": {"projection": 5}, "cls": {"projection": 24, "projection_activation": "linear"}}
    arguments = {"pooling": pooling, "normalize": pooling == "mean", **projection.get(pooling, {})}
    embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), **arguments)
    loaded = BertTextEmbedder.from_checkpoint(embedder.save_checkpoint(tmp_path / "model"))
    texts, _ = toy_reviews(6)
    np.testing.assert_array_equal(loaded.encode(texts), embedder.encode(texts))
    assert loaded.preprocessor.get_config() == embedder.preprocessor.get_config()
    for file in (tmp_path / "model").rglob("*.json"):
        again = loaded.save_checkpoint(tmp_path / f"again_{file.stem}")
        assert (again / file.relative_to(tmp_path / "model")).read_bytes() == file.read_bytes()
        break


def test_embedder_with_truncated_vectors_is_written_without_modules(tmp_path):
    embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), pooling="cls", dimensions=4)
    folder = embedder.save_checkpoint(tmp_path / "model")
    assert not (folder / "modules.json").exists()
    loaded = BertTextEmbedder.from_checkpoint(folder)
    assert (loaded.pooling, loaded.normalize, loaded.preprocessor.sequence_length) == ("mean", True, 32)


def test_dense_layer_without_a_bias(tmp_path):
    embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), projection=5)
    weights = embedder.save_checkpoint(tmp_path / "model") / "2_Dense" / "model.safetensors"
    kernel = load_file(weights)["linear.weight"]
    save_file({"linear.weight": kernel}, weights)
    loaded = BertTextEmbedder.from_checkpoint(tmp_path / "model")
    np.testing.assert_array_equal(loaded.projection.kernel, kernel.T)
    np.testing.assert_array_equal(loaded.projection.bias, np.zeros(5))
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="2_Dense has no file of weights, one of"):
        BertTextEmbedder.from_checkpoint(tmp_path / "model")
    save_file({"linear.weight": kernel[:4]}, weights)
    with pytest.raises(ValueError, match=r"2_Dense/model.safetensors.*linear.weight"):
        BertTextEmbedder.from_checkpoint(tmp_path / "model")


def test_reads_modules_of_newer_versions(tmp_path):
    new = [
        {**MODULES[0], "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {**MODULES[1], "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
    ]
    pooling = {"embedding_dimension": 4, "pooling_mode": "cls", "include_prompt": True}
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 11}')
    write(tmp_path, modules=new, **{"1_Pooling__config": pooling}, sentence_bert_config={})
    assert read_embedding_settings(tmp_path, 4) == EmbeddingSettings("cls", False, 11)


DENSE = {"idx": 2, "name": "2", "path": "2_Dense", "type": f"{OLD}Dense"}
LAYER = {"in_features": 4, "out_features": 3, "activation_function": "torch.nn.modules.activation.Tanh"}
MEAN_AND_MAX = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules": {}}, "modules.json: expected a list of modules; found {}"),
        ({"modules": [5]}, "modules.json: expected a list of modules"),
        ({"modules": [*MODULES, DENSE, DENSE]}, r"modules.json: the modules must be .*\.Dense'\]. Such vectors cannot"),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {**LAYER, "in_features": 5}},
            "in_features must be 4; found 5",
        ),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {**LAYER, "out_features": 0}},
            "out_features must be a posi",
        ),
        (
            {"modules": [*MODULES, DENSE], "2_Dense__config": {**LAYER, "activation_function": "os.system"}},
            r"activation_function must be .*Tanh.* or .*Identity.*; found 'os.system'",
        ),
        ({"modules": MODULES[:1]}, "the modules must be Transformer, Pooling and"),
        ({"modules": [{**MODULES[0], "type": "custom_st.Transformer"}, MODULES[1]]}, "found .'custom_st.Transformer'"),
        ({"modules": [{**MODULES[0], "path": "0_Transformer"}, MODULES[1]]}, 'Transformer must be ""; found .0_Tr'),
        *(
            ({"modules": [MODULES[0], {**MODULES[1], "path": path}]}, "names .* which is not a file or folder directly")
            for path in ("..", "../other", "/etc", "a/b", "", "link", "\0", "x" * 300)
        ),
        ({"modules": [MODULES[0], {**MODULES[1], "path": 5}]}, "Pooling must be a name; found 5"),
        ({"1_Pooling__config": MEAN_AND_MAX}, r"config.json: the pooling must be one of .*; found \['max', 'mean'\]"),
        ({"1_Pooling__config": {"pooling_mode": "lasttoken"}}, r"the pooling must be .*; found \['lasttoken'\]"),
        ({"1_Pooling__config": {"pooling_mode": ["cls"], "embedding_dimension": 8}}, "embedding_dimension must be 4"),
        ({"1_Pooling__config": {}}, r"the pooling must be .*; found \[\]"),
        ({"2_Normalize__config": {"module_input_name": "token"}}, 'module_input_name must be "sentence_embedding"'),
        ({"sentence_bert_config": {"max_seq_length": 1}}, "max_seq_length must be an integer of at least 2; found 1"),
        ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case must be false; found True"),
        ({"sentence_bert_config": {"transformer_task": "fill-mask"}}, 'must be "feature-extraction"'),
        ({"sentence_bert_config": {"modality_config": {"image": {}}}}, "modality_config must be"),
        (
            {"config_sentence_transformers": {"default_prompt_name": "query", "prompts": {"query": "q: "}}},
            "default_prompt_name must be null; found 'query'",
        ),
    ],
)
def test_refuses_other_modules_and_settings_by_name(tmp_path, files, message):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=message):
        read_embedding_settings(write(folder, **files), hidden_size=4)


def test_ignores_the_files_if_everything_is_given(tmp_path):
    folder = BertTextEmbedder(toy_encoder(), toy_preprocessor()).save_checkpoint(tmp_path / "model")
    (folder / "modules.json").write_text("[]")
    with pytest.raises(ValueError, match="the modules must be"):
        BertTextEmbedder.from_checkpoint(folder)
    own = {"pooling": "max", "normalize": False, "sequence_length": 9}
    assert BertTextEmbedder.from_checkpoint(folder, **own).pooling == "max"
