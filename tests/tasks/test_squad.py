import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.formats.squad_files import read_squad
from keras_bert.finetuning.question_answering_task import QuestionAnsweringSettings, QuestionAnsweringTask
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.run_models import saved_configuration
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.finetuning.task import TaskData
from keras_bert.io.atomic_write import write_json
from keras_bert.metrics.squad_scores import squad_metrics
from tasks import squad
from tests.tasks import programs
from tests.tasks.programs import read_json
from tests.toys import BAD_WORDS, GOOD_WORDS, OTHER_WORDS


def make_file(path, number, version, seed):
    """Questions after the good word of a text; under version 2.0 some texts have a bad word instead."""
    generator = np.random.default_rng(seed)
    paragraphs = []
    for identifier in range(number):
        impossible = version == "2.0" and generator.random() < 0.4
        words = generator.choice(OTHER_WORDS, generator.integers(3, 24)).tolist()
        answer = str(generator.choice(BAD_WORDS if impossible else GOOD_WORDS))
        position = int(generator.integers(len(words) + 1))
        context = " ".join([*words[:position], answer, *words[position:]])
        start = len("".join(f"{word} " for word in words[:position]))
        answers = [] if impossible else [{"text": answer, "answer_start": start}]
        question = {"id": f"q{identifier}", "question": "good film ?", "answers": answers, "is_impossible": impossible}
        paragraphs.append({"context": context, "qas": [question]})
    path.write_text(json.dumps({"version": version, "data": [{"title": "toy", "paragraphs": paragraphs}]}))
    return path


SETTINGS = {"doc_stride": 8, "max_query_length": 4, "n_best_size": 5, "max_answer_length": 3}


def run(version, mode, files, run_dir, init_checkpoint=None, settings=SETTINGS, **training):
    flags = {"train": "train_file", "eval": "eval_file", "predict": "predict_file"}
    paths = {flag: files["eval" if name == "predict" else name] for name, flag in flags.items() if name in mode}
    if "train" in mode:
        training = {"max_seq_length": 24, "epochs": 8, **training}
        paths["eval_file"] = files["eval"]
    return programs.run(squad, mode, run_dir, init_checkpoint, version=version, **paths, **settings, **training)


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def finished(request, tmp_path_factory, toy_checkpoint):
    """The version, files and folder of a run with all modes."""
    folder = tmp_path_factory.mktemp("squad")
    files = {
        name: make_file(folder / f"{name}.json", number, request.param, seed)
        for seed, (name, number) in enumerate({"train": 200, "eval": 40}.items())
    }
    run(request.param, "train,eval,predict,export", files, folder / "run", toy_checkpoint)
    return request.param, files, folder / "run"


@pytest.mark.slow
def test_learns_to_answer_and_writes_answers_with_the_reported_scores(finished):
    version, files, folder = finished
    metrics = read_json(folder / "evaluation.json")["eval"]
    assert metrics["exact_match"] > 0.8
    assert metrics["total"] == 40
    results = read_json(folder / "results.json")
    assert results["score"] == ("eval/f1" if version == "1.1" else "eval/best_f1")
    assert results["best"]["metrics"]["eval/f1"] == pytest.approx(metrics["f1"])
    right = {question.id: question.answers for question in read_squad(files["eval"], version)}
    for name in ("evaluation_eval", "predictions/predict"):
        answers = read_json(folder / name / "predictions.json")
        assert squad_metrics(answers, right, version)["f1"] == pytest.approx(metrics["f1"])
        assert (folder / name / "null_odds.json").exists() == (version == "2.0")
    again = run(None, "eval", files, folder, settings={})["evaluation"]  # it knows its version, windows and answers
    assert again["eval/f1"] == metrics["f1"]


@pytest.mark.slow
def test_exported_model_answers_as_in_the_files(finished):
    version, files, folder = finished
    signature = tf.saved_model.load(str(folder / "saved_model" / "1")).signatures["serving_default"]
    questions = list(read_squad(files["eval"], version))
    served = signature(
        question=tf.constant([question.question for question in questions]),
        context=tf.constant([question.context for question in questions]),
    )["answer"].numpy()
    answers = read_json(folder / "predictions" / "predict" / "predictions.json")
    same = [answers[question.id] == answer.decode() for question, answer in zip(questions, served, strict=True)]
    assert np.mean(same) >= 0.95


def test_predictions_and_exports_use_the_threshold_of_training(tmp_path):
    def export_settings(run_dir, init_checkpoint=None, **settings):
        saved = QuestionAnsweringSettings.recorded(saved_configuration(run_dir, init_checkpoint))
        task = QuestionAnsweringTask(QuestionAnsweringSettings(**{**saved, **settings}), TaskData())
        task.use_model_of(run_dir, init_checkpoint)
        return task.export_settings()

    trained, evaluated, neither = (tmp_path / name for name in ("trained", "evaluated", "neither"))
    form = {"stride": 8, "max_query_length": 4, "n_best": 5, "max_answer_length": 3}
    for folder in (trained, evaluated):
        folder.mkdir()
        write_json(folder / "evaluation.json", {"test": {"best_f1_threshold": 5.0}})
    write_json(trained / "configuration.json", {"task": "squad2.0", "version": "2.0", **SETTINGS})
    write_json(trained / "results.json", {"best": {"metrics": {"eval/f1": 0.5, "eval/best_f1_threshold": -3.0}}})
    assert export_settings(trained) == export_settings(neither, trained) == {**form, "null_threshold": -3.0}
    assert export_settings(trained, null_score_diff_threshold=1.0)["null_threshold"] == 1.0
    assert export_settings(trained, n_best_size=7)["n_best"] == 7
    assert export_settings(evaluated, version="2.0")["null_threshold"] == 5.0
    assert export_settings(neither, version="2.0")["null_threshold"] == 0.0
    assert export_settings(trained, version="1.1")["null_threshold"] is None
    with pytest.raises(ValueError, match=r"unknown version of SQuAD: give version=1\.1"):
        export_settings(neither)


def test_modes_need_their_files_and_the_head_no_dropout(toy_checkpoint):
    task = QuestionAnsweringTask(QuestionAnsweringSettings(version="1.1"), TaskData())
    for mode, flag in (("train", "--train_file"), ("eval", "--eval_file"), ("predict", "--predict_file")):
        with pytest.raises(ValueError, match=flag):
            task.check([mode])
    with pytest.raises(ValueError, match=r"no dropout before it; got dropout=0\.1"):
        task.new_model(FineTuningRecipe(init_checkpoint=toy_checkpoint, dropout=0.1), FineTuningRuntime())


def test_rejects_a_checkpoint_without_a_span_head(tmp_path, toy_checkpoint):
    files = {"eval": make_file(tmp_path / "eval.json", 3, "1.1", 0)}
    with pytest.raises(SystemExit, match="no trained layer for spans"):
        run("1.1", "eval", files, tmp_path / "run", toy_checkpoint, max_seq_length=24)
