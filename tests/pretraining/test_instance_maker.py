import functools

import numpy as np
import pytest

from keras_bert.pretraining.documents import tokenize_documents
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import NEXT_SENTENCE_TASKS, InstanceSettings
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, assert_is_batch, random_text, tokenizer
from tests.reference.masking import mask_row

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
    rows, columns = np.nonzero(made["masked_weights"])
    token_ids[rows, made["masked_positions"][rows, columns]] = made["masked_labels"][rows, columns]
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


def test_instances_have_the_documented_shapes_and_dtypes(documents):
    rows, made = made_by(maker(), documents)
    assert_is_batch(made, len(rows), 32, 5)


def test_seed_shard_and_copy_change_the_instances(documents):
    first, again = (made_by(maker(), documents, shard=3, copy=1) for _ in range(2))
    assert np.array_equal(first[0], again[0])
    assert all(np.array_equal(first[1][name], again[1][name]) for name in first[1])
    changes = [({}, 3, 1), ({"seed": 1}, 3, 1), ({}, 1, 3), ({}, 3, 2), ({}, 2, 1)]
    rows = [maker(**settings).choose(documents, shard, copy) for settings, shard, copy in changes]
    assert np.array_equal(rows[0], first[0])
    starts = [set(map(tuple, each[:, :4].tolist())) for each in rows]
    keys = [set(each[:, 5].tolist()) for each in rows]
    assert len(keys[0]) == len(rows[0])
    for other_starts, other_keys in zip(starts[1:], keys[1:], strict=True):
        assert len(starts[0] & other_starts) < 0.3 * len(starts[0])
        assert not keys[0] & other_keys


def test_instances_do_not_depend_on_unrelated_documents():
    # Without random next sentences, documents after it do not change the instances of a document.
    lines = random_text(1, documents=12).split("\n")
    few, many = (tokenize_documents(part, tokenizer().tokenize) for part in (lines[:40], lines))
    end = few.documents[-2][-1]  # the last one is cut
    found = [maker(next_sentence="sop").choose(each, 0, 0).tolist() for each in (few, many)]
    first, second = (sorted(row for row in rows if max(row[:4]) <= end) for rows in found)
    assert first == second and len(first) > 5


def test_instances_do_not_depend_on_their_batch(documents):
    rows, made = made_by(maker(), documents)
    for start in (0, 7, 50):
        part = maker().make(documents.token_ids, rows[start : start + 9])
        assert all(np.array_equal(part[name], made[name][start : start + 9]) for name in made)


def test_instances_are_in_random_order(documents):
    starts = maker().choose(documents, 0, 0)[:, 0]
    assert 0.4 < np.mean(starts[1:] > starts[:-1]) < 0.6


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_equal_the_reference(documents, whole_words):
    options = {"max_predictions": 7, "mask_token_rate": 0.5, "random_token_rate": 0.3}
    rows, made = made_by(maker(masked_lm_prob=0.3, do_whole_word_mask=whole_words, **options), documents)
    for index, (token_ids, padding_mask) in enumerate(zip(unmasked(made), made["padding_mask"], strict=True)):
        row = (token_ids.tolist(), padding_mask.tolist(), int(rows[index, 5]))
        for name, values in mask_row(*row, VOCABULARY, rate=0.3, whole_words=whole_words, **options).items():
            assert made[name][index].tolist() == values


@pytest.mark.parametrize("task", NEXT_SENTENCE_TASKS)
def test_empty_text_gives_no_instances(task):
    rows, made = made_by(maker(next_sentence=task), tokenize_documents(["", ""], tokenizer().tokenize))
    assert rows.shape == (0, 6)
    assert_is_batch(made, 0, 32, 5)


def test_documents_of_one_sentence_have_no_ordered_pairs():
    single = tokenize_documents(["river stone", "", "night"], tokenizer().tokenize)
    assert [len(maker(next_sentence=task).choose(single, 0, 0)) for task in NEXT_SENTENCE_TASKS] == [2, 0, 2]


def test_special_tokens_in_the_text_are_ordinary_words():
    plain = tokenize_documents(["[MASK] [CLS] river [SEP]", "[MASK]"], tokenizer().tokenize)
    assert set(plain.token_ids.tolist()) == {1, 5}
    _, made = made_by(maker(masked_lm_prob=0.01, max_predictions=1), plain)
    assert (unmasked(made) == CLS).sum() == len(made["token_ids"])
    assert not (unmasked(made) == MASK).any()


def test_long_sentences_fit_the_sequence_length():
    long = tokenize_documents(["river " * 1000, "night " * 900, "", "stone"], tokenizer().tokenize)
    for task in NEXT_SENTENCE_TASKS:
        _, made = made_by(maker(next_sentence=task, sequence_length=5, max_predictions=1), long)
        lengths = made["padding_mask"].sum(axis=1)
        assert lengths.max() == 5
        assert lengths.min() >= 3


def test_a_vocabulary_without_mask_is_refused():
    with pytest.raises(ValueError, match=r"lacks \[MASK\], which masked language modelling needs"):
        InstanceMaker(BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], lower_case=True), InstanceSettings())
