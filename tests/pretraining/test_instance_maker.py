"""Instances depend on the settings, the shard and the copy only, and contain the tokens of the text."""

import functools

import numpy as np
import pytest

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import NEXT_SENTENCE_TASKS, InstanceSettings
from keras_bert.pretraining.shards import plan_shards
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, random_text, tokenizer, write_corpus

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def documents():
    return tokenize_documents(random_text(0, documents=60).split("\n"), tokenizer().tokenize)


@functools.cache  # making its graph takes a second
def maker(**settings):
    return InstanceMaker(tokenizer(), InstanceSettings(**{"sequence_length": 32, "max_predictions": 5, **settings}))


def made_by(maker, documents, shard=0, copy=0):
    rows = maker.choose(documents, shard, copy)
    return rows, {name: values.numpy() for name, values in maker.make(documents.token_ids, rows).items()}


def unmasked(made):
    token_ids = made["token_ids"].copy()
    for row, (positions, labels, weights) in enumerate(
        zip(made["masked_positions"], made["masked_labels"], made["masked_weights"], strict=True)
    ):
        token_ids[row, positions[weights > 0]] = labels[weights > 0]
    return token_ids


@pytest.mark.parametrize("task", NEXT_SENTENCE_TASKS)
def test_instances_contain_the_tokens_of_the_text(documents, task):
    rows, made = made_by(maker(next_sentence=task), documents)
    assert len(rows) > 100
    token_ids, lengths = unmasked(made), made["padding_mask"].sum(axis=1)
    for row, (a_start, a_end, b_start, b_end, label, _) in enumerate(rows):
        expected = [CLS, *documents.token_ids[a_start:a_end], SEP]
        if task != "none":
            expected += [*documents.token_ids[b_start:b_end], SEP]
        assert token_ids[row, : lengths[row]].tolist() == expected
        assert made["segment_ids"][row].sum() == (0 if task == "none" else b_end - b_start + 1)
        assert made["next_sentence_labels"][row] == label
    assert not token_ids[made["padding_mask"] == 0].any()


def test_shapes_and_dtypes(documents):
    _, made = made_by(maker(), documents)
    number = len(made["token_ids"])
    shapes = {name: values.shape for name, values in made.items()}
    assert shapes == {
        **dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), (number, 32)),
        **dict.fromkeys(("masked_positions", "masked_labels", "masked_weights"), (number, 5)),
        "next_sentence_labels": (number,),
    }
    floats = {name for name, values in made.items() if values.dtype == np.float32}
    assert floats == {"masked_weights"}
    assert {values.dtype for name, values in made.items() if name not in floats} == {np.dtype("int32")}


def test_seed_shard_and_copy_change_the_instances(documents):
    first = made_by(maker(), documents, shard=3, copy=1)
    again = made_by(maker(), documents, shard=3, copy=1)
    assert np.array_equal(first[0], again[0])
    assert all(np.array_equal(first[1][name], again[1][name]) for name in first[1])
    others = [
        made_by(maker(seed=1), documents, shard=3, copy=1),
        made_by(maker(), documents, shard=1, copy=3),
        made_by(maker(), documents, shard=3, copy=2),
        made_by(maker(), documents, shard=2, copy=1),
    ]
    starts = [set(map(tuple, rows[:, :4].tolist())) for rows, _ in (first, *others)]
    for other in starts[1:]:
        assert len(starts[0] & other) < 0.3 * len(starts[0])
    keys = [set(rows[:, 5].tolist()) for rows, _ in (first, *others)]
    assert all(not keys[0] & other for other in keys[1:])
    assert len(keys[0]) == len(first[0])


def test_instances_do_not_depend_on_unrelated_documents():
    # Without random next sentences, documents after it do not change the instances of a document.
    lines = random_text(1, documents=12).split("\n")
    settings = {"next_sentence": "sop"}
    few = tokenize_documents(lines[:40], tokenizer().tokenize)
    many = tokenize_documents(lines, tokenizer().tokenize)
    end = few.documents[-2][-1]  # the last one is cut
    found = [maker(**settings).choose(each, 0, 0) for each in (few, many)]
    first, second = (sorted(row.tolist() for row in rows if max(row[:4]) <= end) for rows in found)
    assert first == second and len(first) > 5


def test_instances_do_not_depend_on_their_batch(documents):
    rows, made = made_by(maker(), documents)
    for start in (0, 7, 50):
        part = maker().make(documents.token_ids, rows[start : start + 9])
        assert all(np.array_equal(part[name], made[name][start : start + 9]) for name in made)


def test_instances_are_in_random_order(documents):
    starts = maker().choose(documents, 0, 0)[:, 0]
    assert 0.4 < np.mean(starts[1:] > starts[:-1]) < 0.6


def test_masking_rates(documents):
    rows = np.concatenate([maker().choose(documents, shard, 0) for shard in range(20)])
    made = maker(max_predictions=20, masking_rate=0.3).make(documents.token_ids, rows)
    made = {name: values.numpy() for name, values in made.items()}
    chosen = made["masked_weights"] > 0
    lengths = made["padding_mask"].sum(axis=1)
    assert np.array_equal(chosen.sum(axis=1), np.maximum(1, np.round(lengths * 0.3)))
    now = np.take_along_axis(made["token_ids"], made["masked_positions"], 1)[chosen]
    labels = made["masked_labels"][chosen]
    assert len(now) > 20_000
    random_ones = 0.1 / len(VOCABULARY)  # random tokens that are [MASK], or the token itself
    assert np.mean(now == MASK) == pytest.approx(0.8 + random_ones, abs=0.01)
    assert np.mean(now == labels) == pytest.approx(0.1 + random_ones, abs=0.01)
    assert 0.4 < made["next_sentence_labels"].mean() < 0.8  # some chunks have one sentence


@pytest.mark.parametrize("task", NEXT_SENTENCE_TASKS)
def test_empty_text_gives_no_instances(task):
    empty = tokenize_documents(["", ""], tokenizer().tokenize)
    rows, made = made_by(maker(next_sentence=task), empty)
    assert rows.shape == (0, 6)
    assert made["token_ids"].shape == (0, 32)


def test_documents_of_one_sentence():
    single = tokenize_documents(["river stone", "", "night"], tokenizer().tokenize)
    assert [len(maker(next_sentence=task).choose(single, 0, 0)) for task in NEXT_SENTENCE_TASKS] == [2, 0, 2]


def test_special_tokens_in_the_text_are_ordinary_words():
    plain = tokenize_documents(["[MASK] [CLS] river [SEP]", "[MASK]"], tokenizer().tokenize)
    assert set(plain.token_ids.tolist()) == {1, 5}
    _, made = made_by(maker(masking_rate=0.01, max_predictions=1), plain)
    assert (unmasked(made) == CLS).sum() == len(made["token_ids"])
    assert not (unmasked(made) == MASK).any()


def test_long_sentences_fit_the_sequence_length():
    long = tokenize_documents(["river " * 1000, "night " * 900, "", "stone"], tokenizer().tokenize)
    for task in NEXT_SENTENCE_TASKS:
        _, made = made_by(maker(next_sentence=task, sequence_length=5, max_predictions=1), long)
        lengths = made["padding_mask"].sum(axis=1)
        assert lengths.max() == 5
        assert lengths.min() >= 3


def test_shards_contain_all_documents(tmp_path):
    (path,) = write_corpus(tmp_path / "corpus", files=1)
    plan = plan_shards([path], 1000)
    assert len(plan) > 2
    whole = tokenize_documents(random_text(0, documents=20).split("\n"), tokenizer().tokenize)
    read = [maker().read(shard) for shard in plan]
    assert np.array_equal(np.concatenate([each.token_ids for each in read]), whole.token_ids)
    assert sum(len(each.documents) for each in read) == len(whole.documents)


def test_a_vocabulary_without_mask_is_refused():
    with pytest.raises(ValueError, match=r"lacks \[MASK\], which masked language modelling needs"):
        InstanceMaker(BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], lower_case=True), InstanceSettings())
