import gzip
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.documents import TokenizedDocuments
from keras_bert.pretraining.exact_instances import (
    ExactInstance,
    check_outputs,
    make_exact_instances,
    read_exact_documents,
    write_exact_instances,
)
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import FEATURE_NAMES, parse_records
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, contents, features, records, tokenizer

SETTINGS = [
    f"{corpus}.{setting}"
    for corpus in ("sample_text", "corpus_excerpt")
    for setting in ("len128_wordpiece", "len128_wwm", "len64_wordpiece")
]
SMALL = InstanceSettings(sequence_length=6, max_predictions=2)
INSTANCE = ExactInstance([2, 5, 3, 6, 3], 3, False, [1], [5])


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
    """The entry of the golden manifest, the settings, our instances, and the next random number."""
    uncased, documents = corpora
    known = next(each for each in json.loads((golden / "manifest.json").read_text()) if each["name"] == request.param)
    settings = InstanceSettings(
        sequence_length=known["max_seq_length"],
        max_predictions=known["max_predictions_per_seq"],
        masked_lm_prob=known["masked_lm_prob"],
        short_seq_prob=known["short_seq_prob"],
        do_whole_word_mask=known["do_whole_word_mask"],
    )
    rng = random.Random(known["random_seed"])
    corpus = documents[request.param.split(".")[0]]
    instances = make_exact_instances(corpus, uncased.vocabulary, rng, settings, known["dupe_factor"])
    return known, settings, instances, rng.random()


def test_instances_are_those_of_the_original(made, golden, corpora):
    known, _, instances, next_random = made
    vocabulary = corpora[0].vocabulary
    (path,) = golden.glob(f"{known['name']}.instances.jsonl*")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        expected = [json.loads(line) for line in file]
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
    assert found == expected
    assert len(found) == known["num_instances"]
    assert next_random == known["next_rng_random"]


@pytest.mark.parametrize("record_format", FEATURE_NAMES)
def test_features_in_the_files_are_those_of_the_original(made, golden, tmp_path, record_format):
    known, settings, instances, _ = made
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    write_exact_instances(paths, instances, settings, record_format, {"seed": known["random_seed"]})
    expected = np.load(golden / f"{known['name']}.features.npz")
    for start, path in enumerate(paths):  # instances are written to the files alternately
        found = records(path)
        assert set(features(found[0])) == set(FEATURE_NAMES[record_format].values())
        parsed = parse_records(tf.constant(found), record_format, settings.sequence_length, settings.max_predictions)
        for name, golden_name in FEATURE_NAMES["bert"].items():
            values = expected[golden_name][start::2]
            np.testing.assert_array_equal(np.reshape(parsed[name], values.shape), values)
    sidecar = json.loads((tmp_path / "two.json").read_text())
    number, size = known["num_instances"] // 2, (tmp_path / "two").stat().st_size
    expected = {"seed": 12345, "mode": "exact", "record_format": record_format}
    assert sidecar == {**expected, "instances": number, "bytes": size}


def test_a_document_continues_in_the_next_file(tmp_path):
    (tmp_path / "1.txt").write_text("river\r\n\r\n stone\nnight")
    (tmp_path / "2.txt").write_text("light\n\t\nriver\n")
    paths = [str(tmp_path / "1.txt"), str(tmp_path / "2.txt")]
    found = read_exact_documents(paths, tokenizer())
    assert found.token_ids.tolist() == [5, 6, 12, 7, 5]
    assert found.documents == [[0, 1], [1, 2, 3, 4], [4, 5]]
    assert len(read_exact_documents([paths[0]] * 2, tokenizer()).documents) == 3  # repeated files are read again


def test_only_white_space_ends_a_document(tmp_path):
    # The tokenizer removes a byte order mark, but Python's strip does not.
    path = tmp_path / "1.txt"
    path.write_text("\ufeff\nriver\n\ufeff\nstone\n")
    assert read_exact_documents([str(path)], tokenizer()).documents == [[0, 1, 2]]


def test_carriage_returns_are_removed_as_the_reader_of_the_original_does(tmp_path):
    path = tmp_path / "1.txt"
    path.write_bytes(b"river\rly\rstone \r light\r\n\r\r\n\rnight\r\rs\nriver\r")
    with tf.io.gfile.GFile(str(path), "r") as file:
        lines = list(iter(file.readline, ""))
    assert lines == ["riverlystone  light\n", "\n", "nights\n", "river"]
    found = read_exact_documents([str(path)], tokenizer())
    expected = tokenizer().tokenize([line.strip() for line in lines]).flat_values.numpy()
    assert found.token_ids.tolist() == expected.tolist()
    assert len(found.documents) == 2


@pytest.mark.parametrize(
    "content, error, message",
    [
        (b"", ValueError, "no text found in .*corpus.txt; give prepared text"),
        (b"\n \n\n", ValueError, "no text found in .*corpus.txt; give prepared text"),
        (b"\x07\n", ValueError, "no text found in .*corpus.txt; give prepared text"),
        (b"ab\xe9\n", ValueError, "corpus.txt is not UTF-8: byte 2 cannot be decoded"),
        (None, FileNotFoundError, "does not exist or is a folder"),
    ],
)
def test_unusable_files_are_refused(tmp_path, content, error, message):
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        read_exact_documents([str(path)], tokenizer())


def test_a_duplicate_entry_has_the_id_of_its_last_position():
    # Random tokens are drawn from the distinct entries.
    vocabulary = [*VOCABULARY[:5], "river", "river"]
    documents = TokenizedDocuments(np.array([6] * 40), [[0, 20, 40]])
    settings = InstanceSettings(sequence_length=64, max_predictions=20)
    instances = make_exact_instances(documents, vocabulary, random.Random(0), settings, num_copies=200)
    assert {token_id for each in instances for token_id in each.token_ids} == {0, 1, 2, 3, 4, 6}


def test_outputs_must_be_new_files_in_existing_folders(tmp_path):
    path = str(tmp_path / "records")
    check_outputs([path])
    check_outputs(["records-in-the-working-directory"])
    with pytest.raises(ValueError, match="an output file is given twice"):
        check_outputs([path] * 2)
    with pytest.raises(FileNotFoundError, match=r"the folder .*missing of .*records does not exist; create it"):
        check_outputs([str(tmp_path / "missing" / "records")])
    write_exact_instances([path], [INSTANCE], SMALL, "bert", {})
    before = contents(tmp_path)
    assert set(before) == {"records", "records.json"}
    with pytest.raises(FileExistsError, match=f"{path} exists; delete it, or give another name"):
        write_exact_instances([str(tmp_path / "other"), path], [INSTANCE], SMALL, "bert", {})
    (tmp_path / "records").unlink()
    with pytest.raises(FileExistsError, match=r"records.json exists"):
        check_outputs([path])
    assert contents(tmp_path) == {"records.json": before["records.json"]}


def test_an_error_leaves_no_file(tmp_path):
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    too_long = ExactInstance([2, 5, 3, 6, 3, 3, 3], 3, False, [1], [5])
    with pytest.raises(ValueError):
        write_exact_instances(paths, [too_long], SMALL, "bert", {})
    assert contents(tmp_path) == {}


def test_there_may_be_more_files_than_instances(tmp_path):
    paths = [str(tmp_path / str(number)) for number in range(3)]
    write_exact_instances(paths, [INSTANCE], SMALL, "bert", {})
    assert [len(records(path)) for path in paths] == [1, 0, 0]
    assert [json.loads((tmp_path / f"{path}.json").read_text())["instances"] for path in paths] == [1, 0, 0]
