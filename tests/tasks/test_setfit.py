import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_bert.finetuning.few_shot_task import draw_examples
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.text_embedder import BertTextEmbedder
from tasks import classify, setfit
from tests.tasks import programs
from tests.tasks.test_classify import write_csv
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

TEXTS, NAMES = toy_reviews(160)
COLUMNS = {"text_column": "review", "label_column": "mood"}


def run(mode, run_dir, checkpoint=None, **options):
    if "train" in mode:
        options = {**COLUMNS, "epochs": 4, "batch_size": 16, "learning_rate": 1e-2, **options}
    return programs.run(setfit, mode, run_dir, checkpoint, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("setfit")
    parts = {"train_file": slice(60), "dev_file": slice(60, None)}
    return {
        name: write_csv(folder / f"{name}.csv", zip(TEXTS[rows], NAMES[rows], strict=True))
        for name, rows in parts.items()
    }


@pytest.mark.slow
def test_learns_from_few_examples_and_saves_a_classifier(toy_checkpoint, files, tmp_path):
    options = {**files, "examples_per_class": 16, "max_pairs": 256}
    folder = tmp_path / "run"
    modes = "train,eval,predict,export"
    results = run(modes, folder, toy_checkpoint, predict_file=files["dev_file"], **options)
    assert results["evaluation"]["dev/accuracy"] > 0.7
    assert results["best"]["metrics"]["dev/accuracy"] == results["evaluation"]["dev/accuracy"]
    assert results["configuration"]["data"]["train"].startswith("32 examples, ")
    assert results["best"]["steps"] == 4 * 256 // 16
    model = BertClassifier.from_checkpoint(folder / "model", sequence_length=16)
    assert (model.pooling, model.labels) == ("mean", ["negative", "positive"])
    labels = model.predict_labels(TEXTS[60:])
    predictions = (folder / "predictions" / "dev_file.csv.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in predictions[1:]] == labels
    serve = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["serving_default"]
    assert [label.decode() for label in serve(text=tf.constant(TEXTS[60:]))["label"].numpy()] == labels

    assert run("train", folder, toy_checkpoint, **options)["trials"] == results["trials"]  # finished, not repeated
    for program in (setfit, classify):  # the model is an ordinary classifier
        again = programs.run(program, "eval", folder, dev_file=files["dev_file"])
        assert again["evaluation"] == results["evaluation"]


@pytest.mark.slow
def test_adapters_and_seeds(toy_checkpoint, files, tmp_path):
    options = {"examples_per_class": 4, "epochs": 1, "lora_rank": 2, "num_seeds": 2, "pooling": "cls"}
    results = run("train,eval", tmp_path / "run", toy_checkpoint, **files, **options)
    assert len(results["trials"]) == 2
    folder = tmp_path / "run" / results["best"]["folder"]
    merged = BertClassifier.from_checkpoint(folder / "model", sequence_length=16)
    adapted = BertTextEmbedder.from_checkpoint(toy_checkpoint, pooling="cls", normalize=False, sequence_length=16)
    adapted.load_adapter(folder / "adapter")
    vectors = BertTextEmbedder(merged.encoder, merged.preprocessor, "cls", normalize=False).encode(TEXTS)
    np.testing.assert_allclose(adapted.encode(TEXTS), vectors, atol=1e-5)


def test_draws_as_many_of_each_label_in_their_order():
    rows = [{"label": name, "line": line} for line, name in enumerate(NAMES)]
    drawn = draw_examples(iter(rows), 5, seed=1)
    assert [row["line"] for row in drawn] == sorted({row["line"] for row in drawn})
    assert sorted(row["label"] for row in drawn) == ["negative"] * 5 + ["positive"] * 5
    assert drawn == draw_examples(rows, 5, seed=1) != draw_examples(rows, 5, seed=2)
    with pytest.raises(ValueError, match=r"examples_per_class=200 is more .*: 'positive' has 78, 'negative' has 82"):
        draw_examples(rows, 200, seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_columns": "a,b"}, "texts are embedded one by one: give text_column, not text_columns"),
        ({"problem_type": "regression"}, "should be one of <single_label_classification>"),
        ({"pooling": "pooler"}, "should be one of"),
        ({"inverse_regularization": 0.0}, "inverse_regularization must be a positive number"),
        ({"mode": "eval", "examples_per_class": 8}, "examples_per_class has no effect with --mode=eval"),
    ],
)
def test_rejects_flags(options, message):
    with pytest.raises((flags.IllegalFlagValueError, ValueError), match=message):
        programs.parse(setfit, run_dir="run", init_checkpoint="x", **options)


def test_rejects_data_that_it_cannot_learn_from(toy_checkpoint, files, tmp_path):
    for train, options, message in (
        ([("good", "a"), ("bad", "a")], {}, r"at least 2 distinct labels are needed, got \['a'\]"),
        ([("good", "a"), ("bad", "b")], {"labels": "a,b,c"}, r"every label needs a text .* none for \['c'\]"),
        ([("good", "a"), ("bad", "b")], {"examples_per_class": 2}, "examples_per_class=2 is more .* 'a' has 1, 'b'"),
    ):
        file = write_csv(tmp_path / "train.csv", train)
        dev = write_csv(tmp_path / "dev.csv", train)
        with pytest.raises(SystemExit, match=message):
            run("train", tmp_path / "run", toy_checkpoint, train_file=file, dev_file=dev, **options)
        assert not (tmp_path / "run").exists()
    projected = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), projection=5)
    with pytest.raises(SystemExit, match="has a dense layer on its text vectors, which a classifier lacks"):
        run("train", tmp_path / "run", projected.save_checkpoint(tmp_path / "projected"), **files)
