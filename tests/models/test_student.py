import numpy as np
import pytest

import keras_bert
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.student import make_student
from tests.toys import OTHER_WORDS, VOCABULARY, toy_encoder, toy_preprocessor

TEXTS = ["a good film, the plot was dull.", "the film was lovely"]


@pytest.fixture
def teacher(tmp_path):
    return toy_encoder(num_hidden_layers=3).save_checkpoint(
        tmp_path / "teacher", keras_bert.BertTokenizer(VOCABULARY, lower_case=True)
    )


def load(folder):
    return keras_bert.BertClassifier.from_checkpoint(folder, labels=2, sequence_length=16)


def test_chosen_layers_are_copied(teacher, tmp_path):
    student = BertEncoder.from_checkpoint(make_student(teacher, tmp_path / "student", layers=[0, 2]))
    assert not student.checkpoint_report.random
    ids = toy_preprocessor()(TEXTS)
    expected = BertEncoder.from_checkpoint(teacher)
    hidden = expected(ids, return_hidden_states=True)["hidden_states"][1]
    mask = np.asarray(ids["padding_mask"], bool)[:, None]
    hidden = expected.transformer_blocks[2](hidden, np.repeat(mask, mask.shape[-1], axis=1))
    np.testing.assert_allclose(student(ids)["sequence_output"], hidden, atol=1e-5)


def test_kept_texts_have_the_same_wordpieces_and_outputs(teacher, tmp_path):
    folder = make_student(teacher, tmp_path / "student", texts=iter(TEXTS[:1]))
    before, after = load(teacher), load(folder)
    vocabulary = after.preprocessor.tokenizer.vocabulary
    assert len(vocabulary) < len(VOCABULARY) == before.encoder.vocab_size
    ids, smaller_ids = before.preprocessor(TEXTS[:1]), after.preprocessor(TEXTS[:1])
    pieces = [vocabulary[index] for index in np.asarray(smaller_ids["token_ids"])[0]]
    assert pieces == [VOCABULARY[index] for index in np.asarray(ids["token_ids"])[0]]
    for name, output in before.encoder(ids).items():
        np.testing.assert_array_equal(output, after.encoder(smaller_ids)[name])
    assert "great" not in vocabulary and "was" in vocabulary


def test_wrong_arguments(teacher, tmp_path):
    for layers in ([], [2, 0], [0, 3], [-1]):
        with pytest.raises(ValueError, match=r"layers must be ascending numbers from 0 to 2"):
            make_student(teacher, tmp_path / "student", layers)
    with pytest.raises(ValueError, match="have no effect without texts"):
        make_student(teacher, tmp_path / "student", vocab_size=9)
    no_vocabulary = toy_encoder().save_checkpoint(tmp_path / "no_vocabulary")
    with pytest.raises(ValueError, match="has no vocabulary"):
        make_student(no_vocabulary, tmp_path / "student", texts=OTHER_WORDS)


def test_sentence_encoder_stays_one(minilm, tmp_path):
    folder = make_student(minilm, tmp_path / "student", [0, 3], ["some words"], dtype="bfloat16")
    student = keras_bert.BertTextEmbedder.from_checkpoint(folder)
    assert (student.pooling, student.normalize, student.preprocessor.sequence_length) == ("mean", True, 256)
    assert student.encoder.num_hidden_layers == 2
