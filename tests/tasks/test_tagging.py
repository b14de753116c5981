import pytest
import tensorflow as tf

from keras_bert.data.batching import BatchPlan
from keras_bert.data.formats.conll import TaggedSentence, read_conll, write_conll
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.token_classification_task import TokenClassificationSettings, TokenClassificationTask
from keras_bert.metrics.entity_scores import tagging_metrics
from keras_bert.training.loss import mean_loss_weights
from tasks import tagging
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.toys import toy_sentences


def make_file(path, number, seed, document_length=1, change=lambda tag: tag):
    sentences, tags = toy_sentences(number, seed)
    rows = enumerate(zip(sentences, tags, strict=True))
    write_conll(
        path, [TaggedSentence(tuple(w), tuple(map(change, t)), row // document_length, 1) for row, (w, t) in rows]
    )
    return [str(path)]


def run(mode, run_dir, checkpoint=None, **options):
    training = {"epochs": 15, "bucket_step": 8} if "train" in mode else {}
    return programs.run(tagging, mode, run_dir, checkpoint, **{**training, **options})


def make_task(modes, **settings):
    return TokenClassificationTask.from_settings(TokenClassificationSettings(**settings), modes)


def recipe(checkpoint):
    return FineTuningRecipe(init_checkpoint=checkpoint, max_seq_length=16)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_checkpoint):
    """The files and folder of a run with all modes, with document context."""
    folder = tmp_path_factory.mktemp("tagging")
    num_sentences = {"train": 250, "dev": 30, "test": 20}
    files = {
        f"{name}_file": make_file(folder / f"{name}.conll", number, seed, document_length=3)
        for seed, (name, number) in enumerate(num_sentences.items())
    }
    files["predict_file"] = files["test_file"]
    run("train,eval,predict,export", folder / "run", toy_checkpoint, document_context=True, **files)
    return files, folder / "run"


@pytest.mark.slow
def test_learns_to_tag_and_writes_tags_with_the_reported_scores(finished):
    files, folder = finished
    report = read_json(folder / "evaluation.json")
    assert report["dev"]["micro"]["f1"] > 0.7
    assert set(report["test"]["per_type"]) == {"bad", "good"}
    results = read_json(folder / "results.json")
    assert results["score"] == "dev/f1"
    assert results["best"]["metrics"]["dev/f1"] == pytest.approx(report["dev"]["micro"]["f1"])
    assert results["configuration"]["labels"] == ["O", "B-bad", "B-good", "I-bad", "I-good"]
    assert results["configuration"]["scheme"] == "IOB2"
    true = list(read_conll(files["test_file"]))
    for written in (folder / "evaluation_test.conll", folder / "predictions" / "predict.conll"):
        predicted = list(read_conll(written))
        assert [(each.tokens, each.document) for each in predicted] == [(each.tokens, each.document) for each in true]
        metrics = tagging_metrics([sentence.tags for sentence in true], [sentence.tags for sentence in predicted])
        assert metrics["f1"] == pytest.approx(report["test"]["micro"]["f1"])
    again = run("eval", folder, test_file=files["test_file"])["evaluation"]  # with the settings of the run
    assert again["test/f1"] == report["test"]["micro"]["f1"]


@pytest.mark.slow
def test_exported_model_tags_as_in_the_files(finished):
    _, folder = finished
    signature = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["words"]
    documents = {}  # the sentences of a document were predicted together
    for sentence in read_conll(folder / "predictions" / "predict.conll"):
        words, tags = documents.setdefault(sentence.document, ([], []))
        words += sentence.tokens
        tags += sentence.tags
    texts, tags = zip(*((" ".join(words), tags) for words, tags in documents.values()), strict=True)
    served = signature(words=tf.constant(texts))["tags"].numpy()
    assert [[tag.decode() for tag in row[: len(own)]] for row, own in zip(served, tags, strict=True)] == list(tags)


@pytest.mark.slow
def test_learns_parts_of_speech(tmp_path, toy_checkpoint):
    def plain(tag):
        return {"good": "ADJ", "bad": "ADV"}.get(tag[2:], "NOUN")

    files = {
        f"{name}_file": make_file(tmp_path / f"{name}.conll", number, number, change=plain)
        for name, number in {"train": 100, "dev": 20}.items()
    }
    run("train,eval,export", tmp_path / "run", toy_checkpoint, **files)
    results = read_json(tmp_path / "run" / "results.json")
    assert results["score"] == "dev/token_accuracy"
    assert results["best"]["score"] > 0.9
    assert results["configuration"]["scheme"] == "plain"


def test_detects_the_scheme_without_a_run(tmp_path):
    write_conll(tmp_path / "dev.conll", [TaggedSentence(("it", "is", "good"), ("PRON", "AUX", "ADJ"), 0, 1)])
    assert make_task(["eval"], dev_file=(str(tmp_path / "dev.conll"),)).score == "dev/token_accuracy"


def test_every_word_counts_the_same_in_any_batch(tmp_path, toy_checkpoint):
    files = {f"{name}_file": make_file(tmp_path / f"{name}.conll", 30, 0) for name in ("train", "dev")}
    task = make_task(["train"], **files)
    model = task.new_model(recipe(toy_checkpoint), FineTuningRuntime())
    examples = task.training_examples(model)
    words = sum(len(sentence.tokens) for sentence in read_conll(files["train_file"]))
    plan = BatchPlan(examples.lengths, batch_size=8)
    assert mean_loss_weights(model, examples, plan) == {"loss": words / plan.batches_per_epoch}
    # Without length buckets, batches hardly differ, and each has its own mean, as in the original.
    assert mean_loss_weights(model, examples, BatchPlan(examples.lengths, batch_size=8, bucket_step=None)) is None


def test_unknown_tag_is_reported_with_its_line(tmp_path, toy_checkpoint):
    train = make_file(tmp_path / "train.conll", 20, 0)
    dev = tmp_path / "dev.conll"
    dev.write_text("good\tB-good\n\nplain\tB-ugly\nfilm\tO\n\nbad\tB-bad\n")
    with pytest.raises(SystemExit, match=r"dev.conll, line 3: the tag 'B-ugly' is unknown; known are \['B-bad'"):
        run("train", tmp_path / "run", toy_checkpoint, train_file=train, dev_file=[str(dev)])
    task = make_task(["train"], train_file=train, dev_file=[str(dev)], skip_bad_rows=True)
    model = task.new_model(recipe(toy_checkpoint), FineTuningRuntime())
    assert len(task.configuration(model)["data"]) == 2
    assert task._tokenized["dev"][1].lengths.tolist() == [1, 1]


def test_rejects_data_that_cannot_be_used(tmp_path, toy_checkpoint):
    file = make_file(tmp_path / "train.conll", 20, 0)
    for mode, options, message in (
        ("train", {"train_file": file}, "no labelled examples to choose the best model by; give --dev_file"),
        ("eval", {"dev_file": file}, "no token classifier"),
        ("eval", {"dev_file": file, "labels": "O,B-good,B-bad,I-good,I-bad"}, "no trained layer for the tags"),
    ):
        with pytest.raises(SystemExit, match=message):
            run(mode, tmp_path / "run", toy_checkpoint, max_seq_length=16, **options)
