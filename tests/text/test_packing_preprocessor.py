import json

import numpy as np
import pytest

from keras_bert.text.packing_preprocessor import PackingPreprocessor


def test_it_packs_with_the_special_ids_of_its_tokenizer(tokenizers):
    tokenizer = tokenizers["uncased"]
    preprocessor = PackingPreprocessor.from_config(
        json.loads(json.dumps(PackingPreprocessor(tokenizer, 8).get_config()))
    )
    ids = tokenizer.tokenize(["the year"])
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
    row = [special[0], *ids.values.numpy(), special[1]]
    assert preprocessor.pack(ids)["token_ids"].numpy().tolist() == [row]
    padded = preprocessor.pack(ids, pad_to="max_length")["token_ids"].numpy()
    np.testing.assert_array_equal(padded, [[*row, *[special[2]] * (8 - len(row))]])
    assert preprocessor.pack(ids, ids)["segment_ids"].numpy().sum() == len(ids.values) + 1


def test_there_must_be_a_tokenizer():
    with pytest.raises(TypeError, match=r"must be a BertTokenizer\. Received: str\. Make one"):
        PackingPreprocessor("vocab.txt", 8)
