"""The instances of google-research/bert, one by one, and the random number that comes after them."""

import gzip
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.exact_instances import (
    ExactInstance,
    check_free,
    exact_instances,
    read_exact_documents,
    write_exact,
)
from keras_bert.pretraining.records import FEATURE_NAMES, parse
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, contents, features, records, tokenizer, write_corpus

SETTINGS = [
    f"{corpus}.{setting}"
    for corpus in ("sample_text", "corpus_excerpt")
    for setting in ("len128_wordpiece", "len128_wwm", "len64_wordpiece")
]


@pytest.fixture(scope="module")
def golden(shared):
    return shared / "golden" / "pretraining_data"


@pytest.fixture(scope="module")
def corpora(shared, golden):
    """The tokenizer, and the documents of each input."""
    uncased = BertTokenizer(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt", lower_case=True)
    names = ("sample_text", "corpus_excerpt")
    return uncased, {name: read_exact_documents([str(golden / f"{name}.txt")], uncased) for name in names}


@pytest.fixture(scope="module", params=SETTINGS)
def made(request, golden, corpora):
    """What is known of a setting, the instances made, and the next random number."""
    uncased, documents = corpora
    known = next(each for each in json.loads((golden / "manifest.json").read_text()) if each["name"] == request.param)
    rng = random.Random(known["random_seed"])
    instances = exact_instances(
        *documents[request.param.split(".")[0]],
        uncased.vocabulary,
        rng,
        known["max_seq_length"],
        known["max_predictions_per_seq"],
        known["dupe_factor"],
        known["masked_lm_prob"],
        known["short_seq_prob"],
        known["do_whole_word_mask"],
    )
    return known, instances, rng.random()


def golden_instances(golden, name):
    (path,) = golden.glob(f"{name}.instances.jsonl*")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


def test_each_instance(made, golden, corpora):
    known, instances, next_random = made
    vocabulary = corpora[0].vocabulary
    found = [
        {
            "tokens": [vocabulary[token_id] for token_id in each.token_ids],
            "segment_ids": [0] * each.first_length + [1] * (len(each.token_ids) - each.first_length),
            "is_random_next": each.is_random_next,
            "masked_lm_positions": each.masked_positions,
            "masked_lm_labels": [vocabulary[token_id] for token_id in each.masked_labels],
        }
        for each in instances
    ]
    assert found == golden_instances(golden, known["name"])
    assert len(found) == known["num_instances"]
    assert next_random == known["next_rng_random"]


@pytest.mark.parametrize("form", FEATURE_NAMES)
def test_the_features_in_the_files(made, golden, tmp_path, form):
    known, instances, _ = made
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    lengths = known["max_seq_length"], known["max_predictions_per_seq"]
    write_exact(paths, instances, *lengths, form, {"seed": known["random_seed"]})
    expected = np.load(golden / f"{known['name']}.features.npz")
    for turn, path in enumerate(paths):  # the files take turns
        found = records(path)
        assert set(features(found[0])) == set(FEATURE_NAMES[form].values())
        parsed = parse(tf.constant(found), form, *lengths)
        for name, golden_name in FEATURE_NAMES["bert"].items():
            values = expected[golden_name][turn::2]
            np.testing.assert_array_equal(np.reshape(parsed[name], values.shape), values)
    sidecar = json.loads((tmp_path / "two.json").read_text())
    number, size = known["num_instances"] // 2, (tmp_path / "two").stat().st_size
    assert sidecar == {"seed": 12345, "mode": "exact", "form": form, "instances": number, "bytes": size}


# Reading.


def test_a_document_goes_on_in_the_next_file(tmp_path):
    (tmp_path / "1.txt").write_text("river\r\n\r\n stone\nnight")
    (tmp_path / "2.txt").write_text("light\n\t\nriver\n")
    found = read_exact_documents([str(tmp_path / "1.txt"), str(tmp_path / "2.txt")], tokenizer())
    assert found.token_ids.tolist() == [5, 6, 12, 7, 5]
    assert found.documents == [[0, 1], [1, 2, 3, 4], [4, 5]]


def test_the_same_file_twice_is_two_documents_as_in_the_original(tmp_path):
    path = str(tmp_path / "1.txt")
    (tmp_path / "1.txt").write_text("river\n\n")
    assert read_exact_documents([path, path], tokenizer()).documents == [[0, 1], [1, 2]]


def test_only_white_space_ends_a_document(tmp_path):
    # The tokenizer drops a byte order mark, and Python's strip does not.
    path = tmp_path / "1.txt"
    path.write_text("\ufeff\nriver\n\ufeff\nstone\n")
    assert read_exact_documents([str(path)], tokenizer()).documents == [[0, 1, 2]]


@pytest.mark.parametrize("content", ["", "\n \n\n", "\x07\n"])
def test_no_text(tmp_path, content):
    path = tmp_path / "corpus.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"there is no text in {path}: give prepared text"):
        read_exact_documents([str(path)], tokenizer())


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*missing\.txt"):
        read_exact_documents([str(tmp_path / "missing.txt")], tokenizer())
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_exact_documents([str(tmp_path)], tokenizer())
    (tmp_path / "latin.txt").write_bytes(b"ab\xe9\n")
    with pytest.raises(ValueError, match=r"latin.txt is not UTF-8: byte 2 cannot be decoded"):
        read_exact_documents([str(tmp_path / "latin.txt")], tokenizer())


# Masking.


def small_instances(tmp_path, **options):
    (path,) = write_corpus(tmp_path / "corpus", files=1)
    documents = read_exact_documents([path], tokenizer())
    return exact_instances(*documents, VOCABULARY, random.Random(0), 24, 3, **{"copies": 4, **options})


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_are_consistent(tmp_path, whole_words):
    instances = small_instances(tmp_path, whole_words=whole_words)
    assert len(instances) > 100
    for each in instances:
        assert each.masked_positions == sorted(set(each.masked_positions))
        assert len(each.masked_labels) == len(each.masked_positions) <= 3
        assert not {2, 3} & set(each.masked_labels)
        assert each.token_ids[0] == 2 and each.token_ids[each.first_length - 1] == each.token_ids[-1] == 3


def test_a_single_sentence_is_followed_by_itself():
    instances = exact_instances([5, 6, 7], [[0, 3]], VOCABULARY, random.Random(0), 16, 2, copies=3)
    assert [each.is_random_next for each in instances] == [True] * 3
    assert all(len(each.token_ids) == 9 for each in instances)


def test_an_entry_that_stands_twice():
    # The last id of a token is its own, and a random token is drawn from the distinct ones.
    vocabulary = [*VOCABULARY[:5], "river", "river"]
    instances = exact_instances([6] * 40, [[0, 20, 40]], vocabulary, random.Random(0), 64, 20, copies=200)
    found = {token_id for each in instances for token_id in each.token_ids}
    assert found == {0, 1, 2, 3, 4, 6}


# Files.


def test_nothing_is_overwritten(tmp_path):
    path = str(tmp_path / "records")
    instance = ExactInstance([2, 5, 3, 6, 3], 3, False, [1], [5])
    write_exact([path], [instance], 6, 2, "bert", {})
    before = contents(tmp_path)
    assert set(before) == {"records", "records.json"}
    with pytest.raises(FileExistsError, match=f"{path} exists; delete it, or give another name"):
        write_exact([str(tmp_path / "other"), path], [instance], 6, 2, "bert", {})
    (tmp_path / "records").unlink()
    with pytest.raises(FileExistsError, match=r"records.json exists"):
        check_free([path])
    assert contents(tmp_path) == {"records.json": before["records.json"]}


def test_outputs_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="a file is given twice"):
        check_free([str(tmp_path / "records")] * 2)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing for .*records; make it"):
        check_free([str(tmp_path / "missing" / "records")])
    check_free(["records-that-are-not-there"])


def test_an_error_leaves_no_file(tmp_path):
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    too_long = ExactInstance([2, 5, 3, 6, 3, 3, 3], 3, False, [1], [5])
    with pytest.raises(ValueError):
        write_exact(paths, [too_long], 6, 2, "bert", {})
    assert contents(tmp_path) == {}


def test_more_files_than_instances(tmp_path):
    paths = [str(tmp_path / str(number)) for number in range(3)]
    write_exact(paths, [ExactInstance([2, 5, 3, 6, 3], 3, False, [1], [5])], 6, 2, "bert", {})
    assert [len(records(path)) for path in paths] == [1, 0, 0]
    assert [json.loads((tmp_path / f"{path}.json").read_text())["instances"] for path in paths] == [1, 0, 0]
