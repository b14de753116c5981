import json

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
from tests.toys import toy_sentences


def make_file(path, number, seed, sentences_of_document=1, change=lambda tag: tag):
    sentences, tags = toy_sentences(number, seed)
    write_conll(
        path,
        [
            TaggedSentence(tuple(words), tuple(map(change, of_words)), row // sentences_of_document, 1)
            for row, (words, of_words) in enumerate(zip(sentences, tags, strict=True))
        ],
    )
    return [str(path)]


def run(mode, run_dir, checkpoint=None, **given):
    training = {"epochs": 15, "bucket_step": 8} if "train" in mode else {}
    return programs.run(tagging, mode, run_dir, checkpoint, **{**training, **given})


def make_task(modes, **settings):
    return TokenClassificationTask.from_settings(TokenClassificationSettings(**settings), modes)


def recipe(checkpoint):
    return FineTuningRecipe(init_checkpoint=checkpoint, max_seq_length=16)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_checkpoint):
    """Files and folder of a run with all modes, and with the text around the sentences."""
    folder = tmp_path_factory.mktemp("tagging")
    num_sentences = {"train": 250, "dev": 30, "test": 20}
    files = {
        f"{name}_file": make_file(folder / f"{name}.conll", number, seed, sentences_of_document=3)
        for seed, (name, number) in enumerate(num_sentences.items())
    }
    files["predict_file"] = files["test_file"]
    run(
        "train,eval,predict,export",
        folder / "run",
        toy_checkpoint,
        document_context=True,
        **files,
    )
    return files, folder / "run"


@pytest.mark.slow
def test_learns_to_tag(finished):
    _, folder = finished
    report = json.loads((folder / "evaluation.json").read_text())
    assert report["dev"]["micro"]["f1"] > 0.7
    assert set(report["test"]["per_type"]) == {"bad", "good"}
    results = json.loads((folder / "results.json").read_text())
    assert results["score"] == "dev/f1"
    assert results["best"]["metrics"]["dev/f1"] == pytest.approx(report["dev"]["micro"]["f1"])
    assert results["configuration"]["labels"] == ["O", "B-bad", "B-good", "I-bad", "I-good"]
    assert results["configuration"]["scheme"] == "IOB2"


@pytest.mark.slow
def test_written_tags_have_the_reported_scores(finished):
    files, folder = finished
    report = json.loads((folder / "evaluation.json").read_text())
    true = list(read_conll(files["test_file"]))
    for written in (folder / "evaluation_test.conll", folder / "predictions" / "predict.conll"):
        predicted = list(read_conll(written))
        assert [sentence.tokens for sentence in predicted] == [sentence.tokens for sentence in true]
        assert [sentence.document for sentence in predicted] == [sentence.document for sentence in true]
        metrics = tagging_metrics([sentence.tags for sentence in true], [sentence.tags for sentence in predicted])
        assert metrics["f1"] == pytest.approx(report["test"]["micro"]["f1"])


@pytest.mark.slow
def test_exported_model_tags_as_in_the_files(finished):
    _, folder = finished
    signature = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["words"]
    # What was read together is served together.
    together = {}
    for sentence in read_conll(folder / "predictions" / "predict.conll"):
        together.setdefault(sentence.document, []).append(sentence)
    words, tags = (
        [[item for sentence in sentences for item in getattr(sentence, name)] for sentences in together.values()]
        for name in ("tokens", "tags")
    )
    served = signature(words=tf.constant([" ".join(of_text) for of_text in words]))["tags"].numpy()
    for of_text, found in zip(tags, served, strict=True):
        assert [tag.decode() for tag in found[: len(of_text)]] == of_text


@pytest.mark.slow
def test_finished_run_keeps_its_settings(finished):
    files, folder = finished
    again = run("eval", folder, test_file=files["test_file"])["evaluation"]
    assert again["test/f1"] == json.loads((folder / "evaluation.json").read_text())["test"]["micro"]["f1"]


@pytest.mark.slow
def test_parts_of_speech(tmp_path, toy_checkpoint):
    def plain(tag):
        return {"good": "ADJ", "bad": "ADV"}.get(tag[2:], "NOUN")

    files = {
        f"{name}_file": make_file(tmp_path / f"{name}.conll", number, number, change=plain)
        for name, number in {"train": 100, "dev": 20}.items()
    }
    run("train,eval,export", tmp_path / "run", toy_checkpoint, **files)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["score"] == "dev/token_accuracy"
    assert results["best"]["score"] > 0.9
    assert results["configuration"]["scheme"] == "plain"


def test_scheme_is_detected_without_a_run(tmp_path):
    sentence = TaggedSentence(("it", "is", "good"), ("PRON", "AUX", "ADJ"), 0, 1)
    write_conll(tmp_path / "dev.conll", [sentence])
    assert make_task(["eval"], dev_file=(str(tmp_path / "dev.conll"),)).score == "dev/token_accuracy"


def test_every_word_counts_the_same_in_any_batch(tmp_path, toy_checkpoint):
    files = {f"{name}_file": make_file(tmp_path / f"{name}.conll", 30, 0) for name in ("train", "dev")}
    task = make_task(["train"], **files)
    model = task.new_model(recipe(toy_checkpoint), FineTuningRuntime())
    examples = task.training_examples(model)
    words = sum(len(sentence.tokens) for sentence in read_conll(files["train_file"]))
    plan = BatchPlan(examples.lengths, batch_size=8)
    assert mean_loss_weights(model, examples, plan) == {"loss": words / plan.batches_per_epoch}
    # As they come, batches hardly differ, and each has its own mean, as in the original.
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


def test_reports_data_that_cannot_be_used(tmp_path, toy_checkpoint):
    file = make_file(tmp_path / "train.conll", 20, 0)
    with pytest.raises(SystemExit, match="no labelled examples to choose the best model by; give --dev_file"):
        run("train", tmp_path / "run", toy_checkpoint, train_file=file)
    with pytest.raises(SystemExit, match="no token classifier"):
        run("eval", tmp_path / "run", toy_checkpoint, dev_file=file, max_seq_length=16)
    with pytest.raises(SystemExit, match="no trained layer for the tags"):
        labels = ",".join(["O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("good", "bad"))])
        run("eval", tmp_path / "run", toy_checkpoint, dev_file=file, labels=labels, max_seq_length=16)
