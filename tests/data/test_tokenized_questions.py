import gzip
import json

import numpy as np
import pytest

from keras_bert.data.formats.squad_files import SquadQuestion, read_squad
from keras_bert.data.tokenized_questions import tokenize_questions
from keras_bert.io.row_errors import BadRows
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("split", ["train", "predict"])
@pytest.mark.parametrize("sequence_length, stride", [(128, 64), (384, 128)])
def test_features_equal_those_of_the_original(shared, uncased, monkeypatch, version, split, sequence_length, stride):
    monkeypatch.setattr("keras_bert.data.tokenized_questions._CHUNK_SIZE", 30)  # so that there are several
    folder = shared / "golden" / "squad"
    name = f"v{version}_{split}_uncased_len{sequence_length}_stride{stride}_features.jsonl.gz"
    lines = gzip.decompress((folder / name).read_bytes()).decode().split("\n")
    features = [json.loads(line) for line in lines if line]
    questions = read_squad(folder / f"v{version}_{split}.json", version, split == "train", BadRows(skip=True))
    tokenized = tokenize_questions(
        questions, BertQuestionPreprocessor(uncased, sequence_length, stride, 64), split == "train"
    )

    assert tokenized.rows.tolist() == [feature["example_index"] for feature in features]
    inputs = tokenized.windows.batch(np.arange(len(features)))
    inputs = inputs[0] if split == "train" else inputs
    ends = np.cumsum(tokenized.windows.lengths - tokenized.context_starts - 1)
    for number, feature in enumerate(features):
        length = sum(feature["input_mask"])
        assert inputs["token_ids"][number, :length].numpy().tolist() == feature["input_ids"][:length]
        assert inputs["segment_ids"][number, :length].numpy().tolist() == feature["segment_ids"][:length]
        assert str(tokenized.context_starts[number]) == next(iter(feature["token_to_orig_map"]))
        window = slice(0 if number == 0 else ends[number - 1], ends[number])
        assert tokenized.words[window].tolist() == list(feature["token_to_orig_map"].values())
        assert tokenized.is_max_context[window].tolist() == list(feature["token_is_max_context"].values())
        if split == "train":
            assert tokenized.windows.labels[number].tolist() == [feature["start_position"], feature["end_position"]]


def test_an_answer_without_tokens_keeps_its_words(uncased):
    # A zero-width space is a word of SQuAD's and no token of BERT's.
    question = SquadQuestion("q1", "Where?", "in \u200b Paris", ("\u200b",), False, 1, 1)
    tokenized = tokenize_questions([question], BertQuestionPreprocessor(uncased, 32, 8, 8), to_train=True)
    assert tokenized.words.tolist() == [0, 2]
    assert tokenized.windows.labels.tolist() == [[5, 4]]


def test_an_empty_context_gives_a_window(uncased):
    questions = [
        SquadQuestion(str(i), "Where?", text, (), False, None, None) for i, text in enumerate(["", "a b", " "])
    ]
    tokenized = tokenize_questions(questions, BertQuestionPreprocessor(uncased, 32, 8, 8))
    assert tokenized.rows.tolist() == [0, 1, 2]
    assert tokenized.context_lengths.tolist() == [0, 2, 0]
    assert tokenized.words.tolist() == [0, 1]


def test_refuses_unusable_questions(uncased):
    preprocessor = BertQuestionPreprocessor(uncased, 32, 8, 8)
    without_words = SquadQuestion("q1", "Where?", "In Paris", ("Paris",), False, None, None)
    with pytest.raises(ValueError, match=r"question 'q1' has no first_word .* read_squad\(path, to_train=True\)"):
        tokenize_questions([without_words], preprocessor, to_train=True)
    with pytest.raises(TypeError, match="must be a SquadQuestion, as read_squad yields; got 'Where'"):
        tokenize_questions(["Where"], preprocessor)
    with pytest.raises(ValueError, match="no questions"):
        tokenize_questions([], preprocessor)
