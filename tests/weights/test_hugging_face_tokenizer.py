import json

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.normalization import LARGEST_WORD_LIMIT
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.weights import hugging_face_tokenizer
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.hugging_face_tokenizer import (
    FolderTokenizer,
    TokenizerSettings,
    read_tokenizer,
    read_tokenizer_json,
    tokenizer_files,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "été", "##s"]
SETTINGS = TokenizerSettings(WORDS, lower_case=True, max_characters_per_word=100)


def write(folder, settings=SETTINGS, **changes):
    """Writes a tokenizer's files; a change is a value by the path of its field in `tokenizer.json`, joined by "__"."""
    for name, text in tokenizer_files(settings, max_length=8).items():
        (folder / name).write_text(text, encoding="utf-8")
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for field, value in changes.items():
        *outer, last = field.split("__")
        part = document
        for name in outer:
            part = part[int(name)] if isinstance(part, list) else part[name]
        part[last] = value
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder / "tokenizer.json"


def write_config(folder, **settings):
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("limit", [100, 200])
@pytest.mark.parametrize(("lower_case", "strip_accents"), [(True, None), (True, False), (False, True), (False, None)])
def test_written_tokenizer_is_read_back(tmp_path, lower_case, strip_accents, limit):
    write(tmp_path, TokenizerSettings(WORDS, lower_case, strip_accents, limit))
    expected = FolderTokenizer(tmp_path / "vocab.txt", lower_case, strip_accents, limit, max_length=8)
    assert read_tokenizer(tmp_path, 7) == expected
    (tmp_path / "vocab.txt").unlink()
    assert read_tokenizer(tmp_path, 7).vocabulary == tuple(WORDS)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == ("BertTokenizer" if limit == 100 else "PreTrainedTokenizerFast")


def test_written_tokenizer_equals_theirs(tmp_path, shared):
    theirs = json.loads((shared / "golden/formats/hugging_face_v5/classifier/tokenizer.json").read_text("utf-8"))
    ours = TokenizerSettings(list(theirs["model"]["vocab"]), lower_case=True, max_characters_per_word=100)
    assert json.loads(tokenizer_files(ours, 24)["tokenizer.json"]) == theirs


def test_their_library_gives_our_ids(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    texts = ["Étés?", "été" * 33 + "s", "été" * 34, "x [MASK]s", ""]
    for limit, accents in [(100, False), (200, False), (100, True)]:
        words = [*WORDS, "ete", "##été", "##ete", "##ét", "?", "x"]
        settings = TokenizerSettings(words, True, accents, limit)
        theirs = tokenizers.Tokenizer.from_file(str(write(tmp_path, settings)))
        tokenizer = BertTokenizer(words, True, accents, special_tokens_in_text=True, max_characters_per_word=limit)
        for text, row in zip(texts, BertPreprocessor(tokenizer)(texts)["token_ids"].numpy().tolist(), strict=True):
            assert theirs.encode(text).ids == row[: 1 + row.index(tokenizer.sep_id)]


def test_vocabulary_with_repeated_entries_has_no_tokenizer_json():
    files = tokenizer_files(TokenizerSettings([*WORDS, "##s"], lower_case=True), 8)
    assert sorted(files) == ["tokenizer_config.json", "vocab.txt"]
    assert json.loads(files["tokenizer_config.json"])["tokenizer_class"] == "BertTokenizer"


@pytest.mark.parametrize("name", ["tokenizer_keep_accents", "tokenizer_cased", "tokenizer_cased_strip_accents"])
def test_reproduces_the_ids_of_reference_tokenizers(shared, name):
    folder = shared / "golden" / "formats" / "hugging_face_v5" / name
    expected, read = np.load(folder / "expected.npz"), read_tokenizer(folder)
    assert read.max_characters_per_word == 100 and read.max_length == 24
    tokenizer = BertTokenizer(read.vocabulary, read.lower_case, read.strip_accents)
    found = BertPreprocessor(tokenizer)(expected["text_a"].tolist())
    for key in ("token_ids", "padding_mask"):
        np.testing.assert_array_equal(found[key], expected[key])


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("classifier", BertClassifier),
        ("classifier_sharded", BertClassifier),
        ("encoder", BertEncoder),
        ("pretraining", BertPretrainer),
    ],
)
def test_models_of_transformers_5_give_their_outputs(shared, name, model):
    folder = shared / "golden" / "formats" / "hugging_face_v5" / name
    expected, loaded = np.load(folder / "expected.npz"), model.from_checkpoint(folder)
    assert not loaded.checkpoint_report.random and not loaded.checkpoint_report.unused
    ids = {key: expected[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    encoder = loaded if model is BertEncoder else loaded.encoder
    found = {**encoder(ids, return_hidden_states=True)}
    found["hidden_states"] = np.stack(found["hidden_states"])[:, ids["padding_mask"] == 1]
    if model is BertPretrainer:
        outputs = loaded(ids)
        found |= {"mlm_logits": outputs["masked_logits"][ids["padding_mask"] == 1]}
        found |= {"nsp_logits": outputs["next_sentence_logits"]}
    if model is BertClassifier:
        found["logits"] = loaded(ids)
        assert loaded.labels == ["negative", "neutral", "positive"]
    masked = {"hidden_states": (slice(None), ids["padding_mask"] == 1), "mlm_logits": ids["padding_mask"] == 1}
    compared = {"hidden_states", "pooled_output", "logits", "mlm_logits", "nsp_logits"} & set(expected.files)
    for key in compared:
        np.testing.assert_allclose(found[key], expected[key][masked.get(key, ...)], atol=1e-5, err_msg=key)
    assert len(compared) == {"classifier_sharded": 1, "classifier": 3, "encoder": 2, "pretraining": 4}[name]
    if model is BertClassifier:
        pairs = expected["text_a"].tolist(), expected["text_b"].tolist()
        rows = [loaded.preprocessor(([a], [b]) if b else [a])["token_ids"][0] for a, b in zip(*pairs, strict=True)]
        for row, tokens in zip(rows, expected["token_ids"], strict=True):
            np.testing.assert_array_equal(row, tokens[: len(row)])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("negative_bpe_tokenizer", "tokenizer.json: the type of the model must be 'WordPiece'; found 'BPE'"),
        ("negative_roberta", "config.json: model_type must be 'bert'; found 'roberta'"),
    ],
)
def test_refuses_other_models(shared, name, message):
    with pytest.raises(ValueError, match=message):
        read_checkpoint(shared / "golden" / "formats" / "hugging_face_v5" / name)


VOCABULARY = {word: index for index, word in enumerate(WORDS)}
ADDED = {"content": "[ENT]", "id": 7, "single_word": False, "normalized": False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "2.0"}, "version must be '1.0'; found '2.0'"),
        ({"model": None}, "model must be an object; found None"),
        ({"model__type": "Unigram"}, "the type of the model must be 'WordPiece'; found 'Unigram'"),
        ({"model__unk_token": "<unk>"}, r"model.unk_token must be '\[UNK\]'; found '<unk>'"),
        ({"model__continuing_subword_prefix": "@@"}, "model.continuing_subword_prefix must be '##'; found '@@'"),
        ({"model__max_input_chars_per_word": 1000}, "max_input_chars_per_word must be .* from 1 to 999; found 1000"),
        ({"model__max_input_chars_per_word": True}, "max_input_chars_per_word must be .*; found True"),
        ({"model__vocab": {**VOCABULARY, "a": 9}}, "without a hole and each once; the id of 'a' is 9, and 7 was"),
        ({"model__vocab": {**VOCABULARY, "a": 6}}, "the id of 'a' is 6, and 7 was expected"),
        ({"model__vocab": {**VOCABULARY, "a": 7.0}}, "model.vocab must be an object {wordpiece: id}"),
        ({"model__vocab": {"a": 0}, "added_tokens": []}, r"lacks \['\[UNK\]', '\[CLS\]', '\[SEP\]', '\[PAD\]'\]"),
        ({"normalizer": None}, "normalizer must be 'BertNormalizer'; found None"),
        ({"normalizer": "BertNormalizer"}, "normalizer must be 'BertNormalizer'; found None"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2}}, "found 'Sequence'"),
        ({"normalizer__clean_text": False}, "normalizer.clean_text must be True; found False"),
        ({"normalizer__handle_chinese_chars": False}, "normalizer.handle_chinese_chars must be True; found False"),
        ({"normalizer__lowercase": None}, "normalizer.lowercase must be true or false; found null"),
        ({"normalizer__strip_accents": 1}, "strip_accents must be true or false; found 1"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer must be 'BertPreTokenizer'; found 'Whitespace'"),
        ({"post_processor": None}, "post_processor must be 'TemplateProcessing'; found None"),
        ({"post_processor__single": []}, "post_processor.single must be"),
        ({"post_processor__pair__3__Sequence": {"id": "B", "type_id": 0}}, "post_processor.pair must be"),
        ({"post_processor__special_tokens": {}}, "post_processor.special_tokens must be"),
        ({"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 3]}}, "post_processor.cls must be"),
        ({"added_tokens": [ADDED]}, r"found '\[ENT\]', which would be a token of its own"),
        ({"added_tokens": 5}, "added_tokens must be a list of objects; found 5"),
        ({"added_tokens__4__id": 3}, r"added token \[MASK\] must have the id 4, .*; found 3"),
        ({"added_tokens__4__normalized": True}, r"normalized of the added token \[MASK\] must be False"),
    ],
)
def test_refuses_other_settings_by_name(tmp_path, changes, message):
    with pytest.raises(ValueError, match=rf"tokenizer.json: .*{message}"):
        read_tokenizer_json(write(tmp_path, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Sequence", "normalizers": ["here"]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}]}},
        {"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}},
        {"truncation": {"max_length": 4}, "padding": {"strategy": {"Fixed": 4}}, "decoder": None},
        {"added_tokens": None},
        {"added_tokens__4__lstrip": True},
        {"model__type": "absent"},
    ],
)
def test_reads_other_forms_of_the_same_tokenizer(tmp_path, changes):
    path = write(tmp_path)
    expected = read_tokenizer_json(path)
    document = json.loads(path.read_text())
    if "normalizer" in changes:
        changes["normalizer"]["normalizers"] = [document["normalizer"]]
    write(tmp_path, **changes)
    if "model__type" in changes:  # files of old versions have no type
        del document["model"]["type"]
        path.write_text(json.dumps(document))
    assert read_tokenizer_json(path) == expected


def test_reads_special_tokens_that_were_added_later(tmp_path):
    words = [word for word in WORDS if word != "[MASK]"]
    added = {"content": "[MASK]", "id": 6, "single_word": False, "normalized": False}
    path = write(tmp_path, TokenizerSettings(words, True), added_tokens=[added])
    assert read_tokenizer_json(path).vocabulary == (*words, "[MASK]")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case must be true or false; found 'yes'"),
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars must be True; found False"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be True; found False"),
        ({"padding_side": "left"}, "padding_side must be 'right'; found 'left'"),
        ({"truncation_side": "left"}, "truncation_side must be 'right'"),
        ({"never_split": ["a"]}, r"never_split may have .* only; found \['a'\]"),
        ({"extra_special_tokens": {"entity": {"content": "[E]"}}}, "extra_special_tokens may have .* only; found"),
        ({"additional_special_tokens": 5}, "additional_special_tokens may have .* only; found 5"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class must be one of .*; found 'BertJapanese"),
        ({"cls_token": {"content": "<s>"}}, r"cls_token must be '\[CLS\]'; found '<s>'"),
        ({"model_max_length": 0}, "model_max_length must be an integer of at least 1; found 0"),
        ({"model_max_length": 8.5}, "model_max_length must be an integer of at least 1; found 8.5"),
    ],
)
def test_refuses_other_tokenizer_configs(tmp_path, settings, message):
    write(tmp_path)
    write_config(tmp_path, **settings)
    with pytest.raises(ValueError, match=rf"tokenizer_config.json: .*{message}"):
        read_tokenizer(tmp_path)


def test_reads_settings_without_tokenizer_json(tmp_path):
    write_config(tmp_path, do_lower_case=False, strip_accents=True, model_max_length=1e30, extra_special_tokens=[])
    assert read_tokenizer(tmp_path) == FolderTokenizer(None, False, True, None, int(1e30))
    write(tmp_path, TokenizerSettings(WORDS, lower_case=True, strip_accents=False))
    write_config(tmp_path, strip_accents=None)
    assert read_tokenizer(tmp_path).strip_accents is None


@pytest.mark.parametrize("settings", [{"do_lower_case": False}, {"strip_accents": False}])
def test_tokenizer_config_wins_over_tokenizer_json(tmp_path, caplog, settings):
    write(tmp_path)
    write_config(tmp_path, **settings)
    read = read_tokenizer(tmp_path)
    assert read.lower_case is settings.get("do_lower_case", True)
    assert read.strip_accents is settings.get("strip_accents")
    assert "which counts, as in transformers" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n".join(WORDS).replace("##s", "##t"), "the wordpiece 6 is '##t' there and '##s' here"),
        ("\n".join(WORDS[:-1]), "it has 6 wordpieces, and 7 are there"),
        ("\udcff".join(WORDS), "not UTF-8"),
    ],
)
def test_refuses_another_vocab_txt(tmp_path, content, message):
    write(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=rf"vocab.txt: .*{message}"):
        read_tokenizer(tmp_path)


def test_refuses_vocabulary_of_another_encoder(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer.json: expected 8 wordpieces, .*config.json; found 7"):
        read_tokenizer(write(tmp_path).parent, 8)


def test_word_limit_is_that_of_the_tokenizer():
    assert hugging_face_tokenizer.LARGEST_WORD_LIMIT == LARGEST_WORD_LIMIT
