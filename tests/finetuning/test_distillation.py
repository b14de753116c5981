import numpy as np
import pytest

import keras_bert
from keras_bert.finetuning.distillation import DistillationSettings, distillation_task
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_reviews

TEXTS, NAMES = toy_reviews(120)
TOKENIZER = keras_bert.BertTokenizer(VOCABULARY, lower_case=True)
RUNTIME = FineTuningRuntime(progress=False, eval_batch_size=16)


@pytest.fixture
def teacher(tmp_path):
    return str(toy_encoder(num_hidden_layers=3, seed=4).save_checkpoint(tmp_path / "teacher", TOKENIZER))


@pytest.fixture
def text_files(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS) + "\n")
    return (str(tmp_path / "*.txt"),)


def write_tsv(file, labels):
    rows = [f"{text}\t{name}" for text, name in zip(TEXTS, labels, strict=True)]
    file.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return str(file)


def recipe(student, **settings):
    defaults = {"max_seq_length": 16, "batch_size": 16, "epochs": 2, "learning_rate": 3e-3}
    return FineTuningRecipe(**{**defaults, "init_checkpoint": str(student), **settings})


@pytest.mark.slow
def test_student_learns_states_on_raw_text_and_resumes(teacher, text_files, tmp_path):
    student = keras_bert.make_student(teacher, tmp_path / "student", [0, 2], texts=TEXTS)
    weights = {"relation_weight": 1.0, "relation_heads": 4, "vector_weight": 1.0}
    settings = DistillationSettings(teacher=teacher, text_files=text_files, eval_texts=20, max_texts=80, **weights)
    results = [
        keras_bert.distill(settings, recipe(student, epochs=epochs), tmp_path / f"{epochs}", runtime=RUNTIME)
        for epochs in (0.01, 4)
    ]
    assert results[1]["configuration"]["data"]["train"].startswith("80 texts, ")
    for name in ("hidden_states", "relations", "text_vectors"):
        before, after = (result["best"]["metrics"][f"dev/{name}"] for result in results)
        assert after < before, name
    assert results[1]["best"]["score"] == pytest.approx(
        -sum(value for name, value in results[1]["best"]["metrics"].items() if "loss" not in name), rel=1e-5
    )
    again = keras_bert.distill(settings, recipe(student, epochs=4), tmp_path / "4", runtime=RUNTIME)
    assert again["trials"] == results[1]["trials"]
    embedder = keras_bert.BertTextEmbedder.from_checkpoint(again["model"])
    assert embedder.encoder.num_hidden_layers == 2
    assert embedder.encoder.hidden_dropout_prob == toy_encoder().hidden_dropout_prob
    with pytest.raises(ValueError, match="has only the scores of its training"):
        keras_bert.distill(settings, recipe(student), tmp_path / "4", runtime=RUNTIME, modes=("eval",))


def test_states_are_computed_by_the_teacher_once_and_held_out_texts_are_others(teacher, text_files):
    settings = DistillationSettings(teacher=teacher, text_files=text_files, eval_texts=20, vector_weight=1.0)
    task = distillation_task(settings, ("train",))
    assert (len(task.data.train), len(task.data.evaluation["dev"])) == (100, 20)
    assert sorted([*task.data.train, *task.data.evaluation["dev"]]) == sorted(TEXTS)
    model = task.new_model(recipe(teacher), RUNTIME)
    before = task.configuration(model)
    task.prepare_training(model)
    examples = task.training_examples(model)
    expected = keras_bert.BertTextEmbedder.from_checkpoint(teacher, sequence_length=16).encode(task.data.train)
    np.testing.assert_allclose(examples.labels, expected, atol=2e-3)
    assert before["data"]["train"].startswith("100 texts, ")
    labels = examples.labels
    task.prepare_training(model)
    assert task.training_examples(model).labels is labels


def test_random_words_replace_some_of_the_texts(teacher, text_files):
    def read(fraction):
        settings = DistillationSettings(
            teacher=teacher, text_files=text_files, eval_texts=20, replaced_words=fraction, max_texts=90
        )
        return distillation_task(settings, ("train",)).data

    before, after = read(0.0), read(0.3)
    assert after.evaluation == before.evaluation
    pairs = [
        pair
        for old, new in zip(before.train, after.train, strict=True)
        for pair in zip(old.split(), new.split(), strict=True)
    ]
    changed = [new for old, new in pairs if old != new]
    assert 0.2 < len(changed) / len(pairs) < 0.35
    assert set(changed) <= {word for word in VOCABULARY if word.isalpha() and len(word) > 2}
    assert read(0.3).train == after.train


@pytest.mark.slow
def test_student_learns_logits_of_a_task(tmp_path):
    teacher = toy_classifier(encoder_arguments={"seed": 5})
    teacher.compile(keras_bert.BertAdamW(1e-2))
    teacher.fit(TEXTS, NAMES, batch_size=8, epochs=5, verbose=0)
    path = teacher.save_checkpoint(tmp_path / "teacher")
    student = toy_encoder(num_hidden_layers=1, seed=7).save_checkpoint(tmp_path / "student", TOKENIZER)
    flipped = [{"negative": "positive", "positive": "negative"}[name] for name in NAMES]
    files = [write_tsv(tmp_path / name, labels) for name, labels in (("train.tsv", flipped), ("dev.tsv", NAMES))]
    # With wrong labels that do not count, the student agrees with its teacher.
    data = {"train_file": (files[0],), "dev_file": (files[1],)}
    settings = DistillationSettings(teacher=str(path), teacher_weight=1.0, **data)
    results = keras_bert.distill(
        settings, recipe(student, epochs=8, batch_size=8, learning_rate=1e-2), tmp_path / "run", runtime=RUNTIME
    )
    assert (results["configuration"]["temperature"], results["configuration"]["teacher"]) == (2.0, str(path))
    trained = keras_bert.BertClassifier.from_checkpoint(results["model"], sequence_length=16)
    agreement = np.mean(np.array(trained.predict_labels(TEXTS)) == np.array(teacher.predict_labels(TEXTS)))
    assert agreement > 0.85
    modes = ("eval",)
    evaluated = keras_bert.distill(settings, recipe(student), tmp_path / "run", runtime=RUNTIME, modes=modes)
    assert evaluated["evaluation"]["dev/accuracy"] == results["best"]["score"]

    other = toy_classifier(labels=("bad", "good")).save_checkpoint(tmp_path / "other")
    wrong = DistillationSettings(teacher=str(other), **data)
    with pytest.raises(ValueError, match=r"has the labels \['bad', 'good'\], not \['negative', 'positive'\]"):
        keras_bert.distill(wrong, recipe(student), tmp_path / "wrong", runtime=RUNTIME)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_files": ("a",), "train_file": ("b",)}, "train_file is for a task and text_files for raw text"),
        ({"problem_type": "regression"}, "logits are learned for single labels only"),
        ({"teacher_weight": 1.5}, "teacher_weight must be at most 1.0"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        DistillationSettings(teacher="teacher", **settings)


def test_settings_of_the_other_kind_have_no_effect():
    raw_text = DistillationSettings(teacher="teacher", text_files=("a",)).without_effect()
    assert {"train_file", "labels", "temperature"} <= set(raw_text) and "hidden_weight" not in raw_text
    task = DistillationSettings(teacher="teacher").without_effect()
    assert {"hidden_weight", "relation_heads", "max_texts"} <= set(task) and "temperature" not in task


def test_wrong_data_and_recipes(teacher, text_files):
    with pytest.raises(ValueError, match="text_files have 120 texts, and eval_texts=120 of them are held out"):
        distillation_task(DistillationSettings(teacher=teacher, text_files=text_files, eval_texts=120), ("train",))
    settings = DistillationSettings(teacher=teacher, text_files=text_files, eval_texts=20)
    with pytest.raises(ValueError, match="leave encoder, freeze and lora_rank out"):
        distillation_task(settings, ("train",)).new_model(recipe(teacher, lora_rank=2), RUNTIME)
