import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer
from tests.text.conftest import TOY_VOCABULARY, VOCABULARY_FILES, code_point_rows, golden_rows


@pytest.mark.parametrize("name", VOCABULARY_FILES)
def test_golden_texts_equal_the_original(shared, tokenizers, name):
    rows = golden_rows(shared, name)
    texts = [row["text"] for row in rows]
    assert len(rows) == 2076
    ids = tokenizers[name].tokenize(texts)
    assert ids.dtype == tf.int32
    assert ids.to_list() == [row["ids"] for row in rows]
    tokens = [[token.decode() for token in row] for row in tokenizers[name].tokens(texts).to_list()]
    assert tokens == [row["tokens"] for row in rows]


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_every_code_point_equals_the_original(shared, tokenizers, name):
    rows = code_point_rows(shared, name)
    assert len(rows) == 282_230
    tokens = tokenizers[name].tokens([f"a{chr(code_point)}b" for code_point, _ in rows])
    joined = tf.strings.reduce_join(tokens, axis=-1, separator=" ").numpy()
    assert [row for row, found in zip(rows, joined, strict=True) if row[1] != found.decode()] == []


def test_special_tokens_in_text_are_opt_in(toy):
    assert toy.tokenize("[MASK]").numpy().tolist() == [10, 12, 11]
    tokenizer = BertTokenizer(TOY_VOCABULARY, lower_case=True, special_tokens_in_text=True)
    ids = tokenizer.tokenize("play[MASK]ing [mask][CLS]é[SEP][PAD][UNK]").numpy().tolist()
    assert ids == [5, 4, 1, 10, 12, 11, 2, 1, 3, 0, 1]
    # Text cannot contain the characters that mark special tokens internally.
    assert tokenizer.tokenize(f"play {''.join(map(chr, range(0xE0020, 0xE007F)))} play").numpy().tolist() == [5, 5]


def test_last_of_several_equal_entries_has_the_id():
    tokenizer = BertTokenizer([*TOY_VOCABULARY, "play", "", "##"], lower_case=True)
    assert tokenizer.tokenize("playing").numpy().tolist() == [13, 6]
    assert tokenizer.token_to_id("play") == 13
    assert tokenizer.id_to_token([5, 13, 14, 15]).numpy().tolist() == [b"play", b"play", b"", b"##"]


def test_empty_texts_and_batches_have_no_ids(toy):
    assert toy.tokenize(["", "play", " \t"]).to_list() == [[], [5], []]
    assert toy.tokenize([]).to_list() == []
    assert toy.tokenize("").numpy().tolist() == []


def test_works_in_tf_data_and_tf_function_with_unknown_batch_size(toy):
    dataset = tf.data.Dataset.from_tensor_slices(["Playing!", "café", "PLAY"]).batch(2).map(toy.tokenize)
    assert [batch.to_list() for batch in dataset] == [[[5, 6, 7], [8]], [[5]]]
    function = tf.function(toy.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    assert function(tf.constant(["café playing"])).to_list() == [[8, 5, 6]]


def test_tokenizer_created_in_a_graph_outlives_it():
    vocabulary = [*TOY_VOCABULARY, "graph"]
    in_graph = tf.function(lambda texts: BertTokenizer(vocabulary, lower_case=True).tokenize(texts))
    expected = [[len(vocabulary) - 1, vocabulary.index("!")]]
    assert in_graph(tf.constant(["Graph!"])).to_list() == expected
    assert BertTokenizer(vocabulary, lower_case=True).tokenize(["Graph!"]).to_list() == expected


def test_looks_up_ids_and_tokens(toy):
    assert (toy.pad_id, toy.unk_id, toy.cls_id, toy.sep_id, toy.mask_id) == (0, 1, 2, 3, 4)
    assert toy.vocab_size == len(toy.vocabulary) == 13
    assert (toy.id_to_token(6), toy.id_to_token(np.int64(6)), toy.token_to_id("##ing")) == ("##ing", "##ing", 6)
    assert toy.id_to_token(tf.ragged.constant([[5, 6], []])).to_list() == [[b"play", b"##ing"], []]
    assert BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play"], lower_case=True).mask_id is None
    with pytest.raises(ValueError, match=r"from 0 to 12\. Received: 13"):
        toy.id_to_token(13)
    with pytest.raises(ValueError, match="no entry 'Play'"):
        toy.token_to_id("Play")


def test_detokenize_joins_wordpieces_and_removes_special_tokens(toy):
    assert toy.detokenize([2, 5, 6, 7, 3, 0, 0]).numpy() == b"playing !"
    assert toy.detokenize([[2, 1, 4, 3], [2, 3, 0, 0]]).numpy().tolist() == [b"[UNK] [MASK]", b""]
    assert toy.detokenize(tf.ragged.constant([[5, 6, 8], [], [6]])).numpy().tolist() == [b"playing cafe", b"", b"##ing"]
    assert toy.detokenize([]).numpy() == b""


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (["play"], TypeError, "Token ids must be integers"),
        (None, TypeError, "Token ids must be integers"),
        ([[1], 2], TypeError, "Token ids must be integers"),
        (5, ValueError, "shape"),
        ([[[5]]], ValueError, "shape"),
    ],
)
def test_detokenize_refuses_other_inputs(toy, ids, error, message):
    with pytest.raises(error, match=message):
        toy.detokenize(ids)


def test_config_survives_json():
    tokenizer = BertTokenizer(
        TOY_VOCABULARY, False, strip_accents=True, special_tokens_in_text=True, max_characters_per_word=9
    )
    config = json.loads(json.dumps(tokenizer.get_config()))
    copy = BertTokenizer.from_config(config)
    assert copy.get_config() == tokenizer.get_config() == config
    assert copy.tokenize("café [MASK] PLAY abcdefghij").numpy().tolist() == [8, 4, 1, 1]


def test_reads_a_vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(TOY_VOCABULARY), encoding="utf-8")
    for form in (path, str(path)):
        assert BertTokenizer(form, lower_case=True).vocabulary == TOY_VOCABULARY
    with pytest.raises(ValueError, match="no entry that a word could match"):
        BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], lower_case=True)


def test_warns_if_case_and_vocabulary_disagree(caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        BertTokenizer([*TOY_VOCABULARY, "A"], lower_case=False)
        assert caplog.text == ""
        BertTokenizer([*TOY_VOCABULARY, "A"], lower_case=True)
    assert "looks cased" in caplog.text
