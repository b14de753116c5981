import keras_bert
from keras_bert.finetuning.fine_tuner import make_optimizer, make_plan
from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings
from tests.tolerances import TRAINING_LIMIT, assert_close
from tests.toys import toy_classifier, toy_preprocessor, toy_reviews


def test_trains_the_weights_of_keras_fit(tmp_path):
    texts, labels = toy_reviews(60)
    rows = [f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    checkpoint = str(toy_classifier().encoder.save_checkpoint(tmp_path / "toy", toy_preprocessor().tokenizer))
    training = {"epochs": 2, "batch_size": 8, "learning_rate": 5e-3, "seed": 1, "evaluate_every": 16}
    recipe = keras_bert.FineTuningRecipe(init_checkpoint=checkpoint, max_seq_length=16, **training)
    settings = TextClassificationSettings(
        train_file=(str(tmp_path / "train.tsv"),), dev_file=(str(tmp_path / "train.tsv"),)
    )
    task = TextClassification.from_settings(settings, ("train",))
    runtime = keras_bert.FineTuningRuntime(progress=False)
    results = keras_bert.fine_tune(task, recipe, tmp_path / "run", runtime=runtime, modes=("train",))
    assert results["best"]["best_step"] == 16
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert str(tmp_path) not in card and "Initial weights: `toy`" in card
    assert "keras_bert.BertClassifier" in card and "`negative`, `positive`" in card
    score = results["best"]["metrics"]["dev/accuracy"]
    assert f"| {results['task']} | dev | accuracy | {score:.6g} | 1 |" in card and "| epochs | 2 |" in card

    trained = keras_bert.BertClassifier.from_checkpoint(results["model"], sequence_length=16)
    classifier = keras_bert.BertClassifier.from_checkpoint(
        checkpoint, labels=trained.labels, sequence_length=16, seed=recipe.seed
    )
    _, schedule = make_plan(classifier.tokenize(texts, labels), recipe)
    classifier.compile(make_optimizer(classifier, schedule, len(texts), recipe))
    classifier.fit(texts, labels, batch_size=8, epochs=2, verbose=0)
    assert_close(classifier.trainable_weights, trained.trainable_weights, limit=TRAINING_LIMIT)
