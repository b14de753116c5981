import csv

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_bert.models.text_embedder import BertTextEmbedder
from tasks import embed
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.toys import VOCABULARY, toy_reviews

WORDS = [word for word in VOCABULARY if word.isalpha()]


def write(path, rows, columns):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([columns, *rows])
    return str(path)


def make_pairs(path, number, seed):
    """Writes pairs of texts that belong together because they have a word in common."""
    generator = np.random.default_rng(seed)
    rows = []
    for row in range(number):
        word = WORDS[row % len(WORDS)]
        rows.append([f"{word} {generator.choice(WORDS)}", f"the {word} {word}"])
    return write(path, rows, ["query", "document"])


def make_scored(path, number, seed):
    texts, _ = toy_reviews(2 * number, seed)
    rows = []
    for a, b in zip(texts[::2], texts[1::2], strict=True):
        common = len(set(a.split()) & set(b.split())) / len(set(a.split()) | set(b.split()))
        rows.append([a, b, round(1 + 4 * common, 2)])
    return write(path, rows, ["text_a", "text_b", "score"])


def run(mode, run_dir, checkpoint=None, **options):
    return programs.run(embed, mode, run_dir, checkpoint, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_checkpoint):
    """The files and folder of a run with all modes."""
    folder = tmp_path_factory.mktemp("embed")
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(f"the {word} {word}" for word in WORDS) + "\n")
    options = {
        "train_file": make_pairs(folder / "train.csv", 200, 0),
        "dev_file": make_pairs(folder / "dev.csv", 30, 1),
        "text_columns": "query,document",
        "corpus_file": str(corpus),
    }
    training = {"epochs": 8, "batch_size": 16, "learning_rate": 1e-3, "gradient_accumulation_steps": 2}
    run("train,eval,export", folder / "run", toy_checkpoint, **options, **training)
    return options, folder / "run"


@pytest.mark.slow
def test_learns_to_retrieve(finished):
    options, folder = finished
    report = read_json(folder / "evaluation.json")["dev"]
    assert report["recall_at_1"] > 0.6
    assert report["ndcg_at_10"] >= report["recall_at_1"]
    results = read_json(folder / "results.json")
    assert results["score"] == "dev/ndcg_at_10"
    assert results["best"]["metrics"]["dev/mrr_at_10"] == pytest.approx(report["mrr_at_10"])
    own = {name: options[name] for name in ("dev_file", "text_columns")}
    assert run("eval", folder, **own)["evaluation"]["dev/ndcg_at_10"] == report["ndcg_at_10"]


@pytest.mark.slow
def test_exports_the_corpus(finished):
    _, folder = finished
    search = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["search"]
    found = search(text=tf.constant(["good", "film"]))
    corpus = (folder.parent / "corpus.txt").read_text().splitlines()
    embedder = BertTextEmbedder.from_checkpoint(read_json(folder / "exported_saved_model.json")["model"])
    _, numbers = embedder.search(["good", "film"], corpus)
    assert found["texts"].numpy()[:, 0].tolist() == [corpus[number].encode() for number in numbers[:, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("evaluation", ["similarity", "reranking"])
def test_learns_from_scores(tmp_path, toy_checkpoint, evaluation):
    files = {
        "train_file": make_scored(tmp_path / "train.csv", 150, 0),
        "dev_file": make_scored(tmp_path / "dev.csv", 40, 1),
    }
    options = {"score_column": "score", "score_range": "1,5", "evaluation": evaluation, "objective": "cosent"}
    results = run(
        "train,eval", tmp_path / "run", toy_checkpoint, epochs=4, learning_rate=1e-3, batch_size=16, **files, **options
    )
    name = {"similarity": "dev/spearman_correlation", "reranking": "dev/mean_average_precision"}[evaluation]
    assert results["evaluation"][name] > 0.4
    assert read_json(tmp_path / "run" / "evaluation.json")["dev"][name[4:]] == results["evaluation"][name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "cosent"}, "objective=cosent compares scores; give score_column"),
        ({"evaluation": "similarity"}, "evaluation=similarity compares scores; give score_column"),
        ({"text_columns": "a"}, "text_columns must name two or three columns"),
        ({"text_columns": "a,b,c", "score_column": "s"}, "triplets have no scores"),
        ({"score_range": "5,1", "score_column": "s"}, "score_range must be two numbers, the lower first"),
        ({"min_score": 0.5}, "min_score has no effect without score_column"),
        ({"margin": 1.0}, "margin has no effect with objective=multiple_negatives"),
    ],
)
def test_rejects_flags_that_contradict_each_other(options, message):
    with pytest.raises((flags.IllegalFlagValueError, ValueError), match=message):
        programs.parse(embed, run_dir="run", init_checkpoint="x", **options)


def test_rejects_predict_and_pairs_below_the_score(tmp_path, toy_checkpoint):
    files = {
        "train_file": make_scored(tmp_path / "train.csv", 4, 0),
        "dev_file": make_scored(tmp_path / "dev.csv", 4, 1),
    }
    with pytest.raises(SystemExit, match="an embedder has no predictions; write the vectors of a file with"):
        run("predict", tmp_path / "run", toy_checkpoint)
    with pytest.raises(SystemExit, match=r"there is no file .*nowhere\.txt"):  # before the training
        run("train,export", tmp_path / "run", toy_checkpoint, corpus_file=str(tmp_path / "nowhere.txt"), **files)
    (tmp_path / "corpus.txt").write_bytes(b"good\n\xc3(\n")
    with pytest.raises(SystemExit, match=r"corpus\.txt, line 2: is not UTF-8"):
        run("train,export", tmp_path / "run", toy_checkpoint, corpus_file=str(tmp_path / "corpus.txt"), **files)
    with pytest.raises(SystemExit, match="no pair has a score of at least min_score=9"):
        run("train", tmp_path / "run", toy_checkpoint, score_column="score", min_score=9.0, **files)
