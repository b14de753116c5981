import csv
import gzip
import json
import logging

import numpy as np
import pytest

from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.tolerances import tolerance
from tests.tools.program_flags import parse_flags
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor, toy_reviews
from tools import predict

pytestmark = pytest.mark.slow
TAGS = ["O", "B-good", "I-good", "B-bad", "I-bad"]
NULL_THRESHOLD = 0.5
HOSTILE = ["", " ", "\0", "bad\0 film", "[SEP] [MASK] [mask]", "naïve\u2028good 好", "good film " * 90, '"a\tb"\r\n']


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)


def exported(model, tmp_path_factory, **arguments):
    return model, model.export(tmp_path_factory.mktemp("model") / "1", **arguments)


@pytest.fixture(scope="module")
def span_labeler(tokenizer, tmp_path_factory):
    preprocessor = BertQuestionPreprocessor(tokenizer, 16, 4, 6)
    labeler = BertSpanLabeler(toy_encoder(with_pooler=False), preprocessor, seed=1)
    return exported(labeler, tmp_path_factory, null_threshold=NULL_THRESHOLD)


@pytest.fixture(scope="module")
def token_classifier(tokenizer, tmp_path_factory):
    encoder = toy_encoder(with_pooler=False, initializer_range=1.0, num_hidden_layers=1)
    return exported(BertTokenClassifier(encoder, TAGS, BertWordPreprocessor(tokenizer, 16), seed=1), tmp_path_factory)


@pytest.fixture(scope="module")
def multiple_choice(tmp_path_factory):
    return exported(BertMultipleChoice(toy_encoder(num_hidden_layers=1), toy_preprocessor(), seed=1), tmp_path_factory)


@pytest.fixture(scope="module")
def pretrainer(tokenizer, tmp_path_factory):
    model = BertPretrainer(toy_encoder(num_hidden_layers=1), preprocessor=BertPreprocessor(tokenizer, 16), seed=1)
    return exported(model, tmp_path_factory, top=3)


def run(**options):
    predict.run(parse_flags(predict, **{"chunk_size": 13, "batch_size": 4, **options}))


def write_jsonl(path, columns):
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def assert_same(found, expected):
    """Checks that both are equal as JSON, order of keys included, except for the last digits of numbers."""

    def parse(value, **options):
        return json.loads(json.dumps(value), object_pairs_hook=list, **options)

    assert parse(found) == parse(expected, parse_float=lambda x: pytest.approx(float(x), abs=tolerance(num_terms=64)))


def test_answers_questions(span_labeler, tmp_path, caplog):
    labeler, folder = span_labeler
    contexts = [*HOSTILE, *toy_reviews(30)[0]]
    questions = contexts[::-1]
    source = write_jsonl(tmp_path / "in.jsonl", {"id": range(len(contexts)), "question": questions, "text": contexts})
    run(saved_model=folder, input=source, output=tmp_path / "out.jsonl", columns="context=text", keep_columns="id,text")
    rows = read_jsonl(tmp_path / "out.jsonl")
    columns = ["answer", "score", "start", "end", "null_score", "num_windows", "truncated"]
    assert list(rows[0]) == ["line", "id", "text", *columns, "n_best"]
    assert {row["truncated"] for row in rows} == {row["num_windows"] == 64 for row in rows}
    assert [row["id"] for row in rows] == list(range(len(contexts)))
    assert [row["text"] for row in rows] == contexts
    for row, answers in zip(rows, labeler.answer(questions, contexts, n_best=20), strict=True):
        assert_same(row["n_best"], [{"answer": answer.pop("text"), **answer} for answer in answers])
    best = labeler.answer(questions, contexts, null_threshold=NULL_THRESHOLD)
    for row, answers in zip(rows, best, strict=True):
        answer = answers[0] if answers else {"text": "", "start": 0, "end": 0}
        assert (row["answer"], row["start"], row["end"]) == (answer["text"], answer["start"], answer["end"])
        if row["n_best"]:
            assert row["score"] == row["n_best"][0]["score"]
            assert (row["null_score"] - row["score"] > NULL_THRESHOLD) == (not row["answer"])
    assert {bool(row["answer"]) for row in rows if row["n_best"]} == {True, False}

    # A table holds the same except for the lists, which the log states.
    with caplog.at_level(logging.WARNING):
        run(saved_model=folder, input=source, output=tmp_path / "out.csv", columns="context=text")
    assert "cannot hold the lists of n_best" in caplog.text
    with open(tmp_path / "out.csv", newline="") as file:
        header, *fields = csv.reader(file)
    assert header == ["line", *columns]
    values = [[row[name] for name in header] for row in rows]
    assert fields == [[each if isinstance(each, str) else json.dumps(each) for each in row] for row in values]


def test_chooses_among_any_number_of_choices(multiple_choice, tmp_path):
    model, folder = multiple_choice
    generator, texts = np.random.default_rng(0), [*HOSTILE, *toy_reviews(30)[0]]
    prompts = [texts[number] for number in generator.integers(len(texts), size=16)]
    choices = [[texts[number] for number in generator.integers(1, len(texts), 2 + row % 4)] for row in range(16)]
    source = write_jsonl(tmp_path / "in.jsonl", {"prompt": prompts, "choices": choices})
    run(saved_model=folder, input=source, output=tmp_path / "out.jsonl")
    for row, prompt, row_choices in zip(read_jsonl(tmp_path / "out.jsonl"), prompts, choices, strict=True):
        logits = model.predict({"prompt": [prompt], "choices": [row_choices]})
        assert_same(row["probabilities"], model.probabilities(logits)[0].tolist())
        assert row["choice"] == logits[0].argmax()
        assert row["text"] == row_choices[row["choice"]]


def test_reads_choices_from_table_columns(multiple_choice, tmp_path):
    model, folder = multiple_choice
    rows = ["start\tend0\tend1\tend2", "a film\tgood\tbad , and dull\tfine", "the plot\t\tbad\tpoor"]
    (tmp_path / "in.tsv").write_text("\n".join(rows))
    options = {"saved_model": folder, "input": tmp_path / "in.tsv", "columns": "prompt=start,choices=end0+end1+end2"}
    run(output=tmp_path / "out.tsv", **options)
    run(output=tmp_path / "out.jsonl", **options)
    rows = read_jsonl(tmp_path / "out.jsonl")
    logits = model.predict({"prompt": ["a film"], "choices": [["good", "bad , and dull", "fine"]]})
    assert_same(rows[0]["probabilities"], model.probabilities(logits)[0].tolist())
    logits = model.predict({"prompt": ["the plot"], "choices": [["bad", "poor"]]})
    assert_same(rows[1]["probabilities"], [0.0, *model.probabilities(logits)[0].tolist()])
    header, *fields = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert header == ["line", "choice", "text"]
    assert fields == [[str(row[name]) for name in header] for row in rows]


def test_tags_texts(token_classifier, tmp_path):
    model, folder = token_classifier
    texts = [*HOSTILE, *toy_reviews(30)[0]]
    source = write_jsonl(tmp_path / "in.jsonl", {"text": texts})
    run(saved_model=folder, input=source, output=tmp_path / "out.jsonl")
    rows = read_jsonl(tmp_path / "out.jsonl")
    assert [row.pop("line") for row in rows] == list(range(1, len(texts) + 1))
    assert [row.pop("num_windows") >= 1 and row.pop("truncated") for row in rows] == [False] * len(texts)
    assert_same(rows, model.tag(texts))
    assert {entity["type"] for row in rows for entity in row["entities"]} == {"good", "bad"}
    assert {len(row["entities"]) for row in rows} >= {0, 1, 2}


def test_fills_masks(pretrainer, tmp_path):
    model, folder = pretrainer
    texts = [text.replace("film", "[MASK]") for text in toy_reviews(30)[0]]
    texts[3:3] = ["", "[MASK][MASK]", "a [MASK] film [MASK] " * 9]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    run(saved_model=folder, input=tmp_path / "in.txt", output=tmp_path / "out.jsonl.gz", output_format="jsonl")
    rows = [json.loads(line) for line in gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).splitlines()]
    assert len({len(row["masks"]) for row in rows}) > 2
    expected = [
        [[{"word": word, "probability": probability} for word, probability in mask] for mask in masks]
        for masks in model.fill_masks(texts, top=3)
    ]
    assert_same([row["masks"] for row in rows], expected)
