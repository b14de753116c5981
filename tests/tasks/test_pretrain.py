import json

import numpy as np
import pytest
from absl import flags
from safetensors.numpy import load_file

import keras_bert
from keras_bert.finetuning.pretrain import encoder_arguments, pretrain
from keras_bert.finetuning.pretraining_data import PretrainingData, pretraining_batches
from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.finetuning.run_models import resolve_checkpoint
from keras_bert.finetuning.runtime import RuntimeSettings
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.shards import plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker
from tasks import pretrain as program
from tests.pretraining.corpora import VOCABULARY, tokenizer, write_corpus, write_vocabulary
from tests.tasks import programs
from tests.tasks.programs import interrupt, read_json, read_records, read_weights, trained_weights
from tests.tolerances import assert_close

SHARD_MEGABYTES = 0.003
ENCODER = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 40, "type_vocab_size": 2, "hidden_act": "gelu"}
ENCODER |= {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
PHASES = ("16:6:8", "32:5:4")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of text to train on, a file to evaluate on, and the folder of vocab.txt and config.json."""
    folder = tmp_path_factory.mktemp("pretrain")
    *files, held_out = write_corpus(folder / "corpus", files=3, documents=20)
    write_vocabulary(folder / "vocab.txt")
    write_config(folder / "config.json")
    return files, held_out, folder


def write_config(path, **changes):
    path.write_text(json.dumps({**ENCODER, **changes}))
    return path


def write_instances(folder, files, lengths=(16, 32)):
    """Files of instances of each length, made from the text."""
    paths, plan = [], plan_shards(files, int(SHARD_MEGABYTES * 1e6))
    for length in lengths:
        settings = InstanceSettings(sequence_length=length, max_predictions=4)
        job = ShardJob(str(folder / f"{length}"), len(plan), tokenizer().get_config(), settings, num_copies=2)
        (folder / f"{length}").mkdir(parents=True)
        for shard in plan:
            ShardMaker(job)(shard)
        paths.append(str(folder / f"{length}"))
    return tuple(paths)


def make_data(corpus, evaluate=False, instance_files=(), **settings):
    files, held_out, folder = corpus
    if not instance_files:
        settings = {"text_files": tuple(files), "shard_megabytes": SHARD_MEGABYTES, **settings}
    if evaluate:
        settings = {"eval_text_files": (held_out,), "evaluate_every": 3, **settings}
    return PretrainingData(vocab_file=folder / "vocab.txt", instance_files=instance_files, **settings)


def make_recipe(corpus, **settings):
    config = None if "init_checkpoint" in settings else corpus[2] / "config.json"
    defaults = {"bert_config_file": config, "num_warmup_steps": 2, "learning_rate": 1e-3, "phase": PHASES, "seed": 5}
    return PretrainingRecipe(**{**defaults, **settings})


def run(run_dir, corpus, data=None, **recipe):
    runtime = RuntimeSettings(checkpoint_every=4, log_every=1, progress=False, gradient_accumulation_steps=2)
    data = data or make_data(corpus)
    return pretrain(data, make_recipe(corpus, **recipe), run_dir, runtime=runtime, command="the command")


@pytest.mark.parametrize(("source", "pack"), [("text", True), pytest.param("files", False, marks=pytest.mark.slow)])
def test_run_writes_a_model_that_others_read(tmp_path, corpus, source, pack):
    files = () if source == "text" else write_instances(tmp_path / "instances", corpus[0])
    results = run(tmp_path / "run", corpus, make_data(corpus, evaluate=True, instance_files=files), pack=pack)
    names = {f"{term}_{score}" for term in ("masked_lm", "next_sentence") for score in ("loss", "accuracy")}
    assert set(results["metrics"]) == {f"eval/{name}" for name in (*names, "perplexity")}
    assert 0 < results["metrics"]["eval/masked_lm_loss"] < 2 * np.log(len(VOCABULARY))
    assert results["updates"] == 11
    assert read_json(tmp_path / "run" / "results.json")["metrics"] == results["metrics"]
    assert [record["step"] for record in read_records(tmp_path / "run", "evaluation")] == [3, 6, 9, 11]
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "6 steps of 8 rows of 16 tokens" in card and "5 steps of 4 rows of 32 tokens" in card
    assert "the command" in card and "masked_lm_accuracy" in card
    assert (tmp_path / "run" / "training_curve.png").stat().st_size > 1000
    pretrainer = BertPretrainer.from_checkpoint(tmp_path / "run" / "model")
    assert not pretrainer.checkpoint_report.random
    options = {"labels": ["a", "b"], "sequence_length": 16}
    classifier = keras_bert.BertClassifier.from_checkpoint(tmp_path / "run" / "model", **options)
    assert classifier.preprocessor.tokenizer.vocabulary == VOCABULARY
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}


def test_batches_follow_the_phases(tmp_path, corpus):
    recipe = make_recipe(corpus)
    batches = pretraining_batches(make_data(corpus).instances(recipe, tokenizer()), recipe)
    shapes = [tuple(inputs["token_ids"].shape) for inputs, _ in batches]
    assert shapes == [(8, 16)] * 6 + [(4, 32)] * 5
    recipe = make_recipe(corpus, phase=("64:3:4",), pack=True)
    data = make_data(corpus, instance_files=write_instances(tmp_path / "instances", corpus[0], lengths=(16,)))
    batches = pretraining_batches(data.instances(recipe, tokenizer()), recipe)
    assert np.mean([inputs["padding_mask"].numpy().mean() for inputs, _ in batches]) > 0.9


def test_model_learns(tmp_path, corpus):
    data = make_data(corpus, evaluate=True)
    results = run(tmp_path / "run", corpus, data, phase=("24:150:16",), learning_rate=5e-3)
    losses = [record["loss"] for record in read_records(tmp_path / "run", "train")]
    assert losses[-1] < 0.9 * losses[0]
    assert results["metrics"]["eval/masked_lm_loss"] < np.log(len(VOCABULARY))


@pytest.mark.parametrize("next_sentence", ["sop", "none"])
def test_head_for_pairs_exists_only_if_they_are_predicted(tmp_path, corpus, next_sentence):
    run(tmp_path / "run", corpus, next_sentence=next_sentence, phase=PHASES[:1])
    names = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert ("cls.seq_relationship.weight" in names) == (next_sentence == "sop")


@pytest.mark.slow
def test_finished_run_can_be_evaluated_later(tmp_path, corpus):
    assert run(tmp_path / "run", corpus, phase=PHASES[:1])["metrics"] == {}
    metrics = run(tmp_path / "run", corpus, make_data(corpus, evaluate=True), phase=PHASES[:1])["metrics"]
    assert metrics["eval/masked_lm_loss"] > 0
    at_once = run(tmp_path / "other", corpus, make_data(corpus, evaluate=True), phase=PHASES[:1])["metrics"]
    assert metrics == pytest.approx(at_once)


def test_model_pretrained_without_dropout_keeps_its_rates_for_fine_tuning(tmp_path, corpus):
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    config = write_config(tmp_path / "config.json", **rates)
    results = run(tmp_path / "run", corpus, phase=PHASES[:1], bert_config_file=config, dropout=0.0)
    assert {results["configuration"]["encoder"][name] for name in rates} == {0.0}
    config = read_json(tmp_path / "run" / "model" / "config.json")
    assert {name: config[name] for name in rates} == rates


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["left_to_right", "right_to_left"])
def test_language_model_keeps_its_direction(tmp_path, corpus, objective):
    options = {"next_sentence": "none", "phase": PHASES[:1]}
    run(tmp_path / "run", corpus, objective=objective, checkpoint_dtype="bfloat16", **options)
    model = resolve_checkpoint(tmp_path / "run")
    assert model == (tmp_path / "run" / "model").resolve()
    pretrainer = BertPretrainer.from_checkpoint(model)
    assert pretrainer.encoder.attention_direction == objective
    assert not pretrainer.next_sentence
    assert set(pretrainer.checkpoint_report.random) == {"encoder/pooler/kernel", "encoder/pooler/bias"}
    direction = objective.replace("_", " ")
    assert f"Its attention goes {direction}" in (tmp_path / "run" / "model" / "README.md").read_text()
    # The objective gives the direction, whatever that of the initial weights.
    run(tmp_path / "masked", corpus, init_checkpoint=model, **options)
    masked = BertPretrainer.from_checkpoint(tmp_path / "masked" / "model")
    assert masked.encoder.attention_direction == "bidirectional"


@pytest.mark.slow
def test_starts_from_the_weights_of_another_run(tmp_path, corpus):
    run(tmp_path / "one", corpus)
    run(tmp_path / "two", corpus, init_checkpoint=tmp_path / "one", learning_rate=0.0, weight_decay=0.0)
    np.testing.assert_array_equal(read_weights(tmp_path / "two"), read_weights(tmp_path / "one"))


@pytest.fixture
def start_phases(start, corpus):
    """Starts training in two phases, without data."""
    command = [
        "tasks.pretrain",
        f"--vocab_file={corpus[2] / 'vocab.txt'}",
        f"--bert_config_file={corpus[2] / 'config.json'}",
    ]
    command += ["--phase=16:20:8", "--phase=32:30:4", "--deterministic"]
    command += ["--log_every=1", "--steps_per_execution=3", "--checkpoint_every=1000"]
    return lambda run_dir, *flags, **options: start(run_dir, *command, *flags, **options)


def text_flags(corpus):
    return [f"--text_files={','.join(corpus[0])}", f"--shard_megabytes={SHARD_MEGABYTES}"]


def check_resumes(start, folder, step):
    """A run that was interrupted ends with the weights of an uninterrupted one."""
    stopped_at = interrupt(start(folder / "parts"), step)
    whole, parts = start(folder / "whole"), start(folder / "parts")
    np.testing.assert_array_equal(trained_weights(parts), trained_weights(whole))
    assert parts[0].steps("resumed") == [stopped_at] and stopped_at < 50


@pytest.mark.slow
@pytest.mark.parametrize(("source", "step"), [("files", 8), ("text", 25)])
def test_run_stopped_in_either_phase_resumes_to_the_same_weights(tmp_path, corpus, start_phases, source, step):
    data = [*text_flags(corpus), "--pack"]
    if source == "files":
        data = [f"--instance_files={path}" for path in write_instances(tmp_path / "instances", corpus[0])]
    check_resumes(lambda run_dir: start_phases(run_dir, *data), tmp_path, step)


@pytest.mark.slow
def test_workers_stopped_in_the_second_phase_resume_to_the_same_weights(tmp_path, corpus, start_phases):
    options = ["--checkpoint_dtype=bfloat16", "--masked_lm_prob=0.3", "--do_whole_word_mask"]
    options += ["--mask_token_rate=0.7", "--random_token_rate=0.2", *text_flags(corpus)]
    check_resumes(lambda run_dir: start_phases(run_dir, *options, workers=2), tmp_path, step=25)
    data = read_json(tmp_path / "whole" / "configuration.json")["data"]
    expected = {"masked_lm_prob": 0.3, "do_whole_word_mask": True, "mask_token_rate": 0.7, "random_token_rate": 0.2}
    assert expected.items() <= data.items()
    tensors = load_file(tmp_path / "whole" / "model" / "model.safetensors").values()
    assert {tensor.dtype.name for tensor in tensors} == {"bfloat16"}


@pytest.mark.slow
def test_two_replicas_train_the_weights_of_one_device(tmp_path, corpus, start_phases):
    flags = [*text_flags(corpus), "--pack", "--dropout=0"]  # dropout has another mask on each replica
    one = start_phases(tmp_path / "one", *flags)
    two = start_phases(tmp_path / "two", *flags, "--strategy=mirrored", "--num_logical_devices=2")
    assert_close(trained_weights(two), trained_weights(one), limit=1e-5)  # required of MirroredStrategy


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"phase": ("64:1:4",)}, r"rows of 64 tokens, and the model has 40 positions"),
        ({"next_sentence": "nsp", "objective": "left_to_right"}, "attends to nothing else in a left-to-right encoder"),
    ],
)
def test_rejects_settings_before_the_folder_is_created(tmp_path, corpus, recipe, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", corpus, **recipe)
    assert not (tmp_path / "run").exists()


def test_rejects_files_that_do_not_fit_the_phases(tmp_path, corpus):
    data = make_data(corpus, instance_files=write_instances(tmp_path / "instances", corpus[0], lengths=(16,)))
    with pytest.raises(ValueError, match="there are 2 phases and files for 1"):
        run(tmp_path / "run", corpus, data)
    for length in (12, 20):
        with pytest.raises(ValueError, match=f"rows of {length} tokens, and its files have instances of 16"):
            run(tmp_path / "run", corpus, data, phase=(f"{length}:1:4",))
    assert not (tmp_path / "run").exists()


def test_rejects_too_little_text_to_evaluate_on(tmp_path, corpus):
    path = tmp_path / "short.txt"
    path.write_text("river stone\nnight\n")
    with pytest.raises(ValueError, match="gives fewer than 8 instances of 16 tokens, a batch"):
        run(tmp_path / "run", corpus, make_data(corpus, eval_text_files=(str(path),)))


def test_rejects_a_configuration_with_another_vocabulary(corpus):
    message = f"config.json has a vocabulary of {len(VOCABULARY)} wordpieces, and .*vocab.txt has 99"
    with pytest.raises(ValueError, match=message):
        encoder_arguments(make_recipe(corpus), make_data(corpus), 99)


def test_program_prints_scores_and_rejects_contradicting_flags(tmp_path, corpus, capsys):
    files, held_out, folder = corpus
    options = {"vocab_file": folder / "vocab.txt", "run_dir": tmp_path / "run", "text_files": ",".join(files)}
    with pytest.raises(flags.Error, match="--text_files or instance_files must be given, one of the two"):
        programs.parse(program, **options, instance_files="b")
    with pytest.raises(flags.Error, match="--size and init_checkpoint both give the size"):
        programs.parse(program, **options, size="tiny", init_checkpoint="x")
    with pytest.raises(SystemExit, match=r"tasks.pretrain: no file is named missing\*"):
        program.run(programs.parse(program, **{**options, "text_files": "missing*", "size": "tiny"}))
    assert not (tmp_path / "run").exists()
    options |= {"eval_text_files": held_out, "bert_config_file": folder / "config.json", "phase": ["16:2:4", "32:1:2"]}
    values = programs.parse(program, **options, shard_megabytes=SHARD_MEGABYTES, progress=False)
    metrics = program.run(values)["metrics"]
    printed = capsys.readouterr().out
    assert f"{metrics['eval/masked_lm_loss']:.4f}" in printed
    assert str(tmp_path / "run" / "model") in printed
    loss = read_records(tmp_path / "run", "train")[-1]["loss"]
    assert printed.split()[:5] == ["steps", "3", "training", "loss", f"{loss:.4f}"]
