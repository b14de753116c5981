"""Pre-training from text and from files, in phases, packed or not, and resumed where it stopped."""

import json
import secrets
import signal
import sys
import time
from pathlib import Path

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
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.pretraining.corpora import VOCABULARY, tokenizer, write_corpus, write_vocabulary
from tests.tasks import programs

ROOT = Path(__file__).parents[2]
SHARD_MEGABYTES = 0.003
ENCODER = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
PHASES = ("16:6:8", "32:5:4")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of text to train on, and one to evaluate on; the vocabulary and the model's size are next to them."""
    folder = tmp_path_factory.mktemp("pretrain")
    *files, held_out = write_corpus(folder / "corpus", files=3, documents=20)
    write_vocabulary(folder / "vocab.txt")
    write_config(folder / "config.json")
    return files, held_out


def write_config(path, **changes):
    path.write_text(json.dumps({**ENCODER, "hidden_act": "gelu", "type_vocab_size": 2, **changes}))
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


def make_data(corpus, held_out=False, instance_files=(), **settings):
    files, other = corpus
    if not instance_files:
        settings = {"text_files": tuple(files), "shard_megabytes": SHARD_MEGABYTES, **settings}
    if held_out:
        settings = {"eval_text_files": (other,), "evaluate_every": 3, **settings}
    vocabulary = Path(files[0]).parents[1] / "vocab.txt"
    return PretrainingData(vocab_file=vocabulary, instance_files=instance_files, **settings)


def make_recipe(corpus, **settings):
    config = None if "init_checkpoint" in settings else Path(corpus[0][0]).parents[1] / "config.json"
    given = {"bert_config_file": config, "num_warmup_steps": 2, "learning_rate": 1e-3, "phase": PHASES, "seed": 5}
    return PretrainingRecipe(**{**given, **settings})


def run(run_dir, corpus, data=None, **recipe):
    runtime = RuntimeSettings(checkpoint_every=4, log_every=1, progress=False)
    data = data or make_data(corpus)
    return pretrain(data, make_recipe(corpus, **recipe), run_dir, runtime=runtime, command="the command")


def weights(run_dir):
    found = load_file(run_dir / "model" / "model.safetensors")
    return np.concatenate([found[name].ravel() for name in sorted(found)])


def records(run_dir, event):
    lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize(("source", "pack"), [("text", True), ("files", False)])
def test_run_leaves_a_model_that_others_read(tmp_path, corpus, source, pack):
    files = () if source == "text" else write_instances(tmp_path / "instances", corpus[0])
    results = run(tmp_path / "run", corpus, make_data(corpus, held_out=True, instance_files=files), pack=pack)
    names = {f"{term}_{score}" for term in ("masked_lm", "next_sentence") for score in ("loss", "accuracy")}
    assert set(results["metrics"]) == {f"eval/{name}" for name in (*names, "perplexity")}
    assert 0 < results["metrics"]["eval/masked_lm_loss"] < 2 * np.log(len(VOCABULARY))
    assert results["updates"] == 11
    assert json.loads((tmp_path / "run" / "results.json").read_text())["metrics"] == results["metrics"]
    assert [record["step"] for record in records(tmp_path / "run", "evaluation")] == [3, 6, 9, 11]
    card = (tmp_path / "run" / "model_card.md").read_text()
    assert "6 steps of 8 rows of 16 tokens" in card and "5 steps of 4 rows of 32 tokens" in card
    assert "the command" in card and "masked_lm_accuracy" in card
    assert (tmp_path / "run" / "training_curve.png").stat().st_size > 1000
    pretrainer = BertPretrainer.from_checkpoint(tmp_path / "run" / "model")
    assert not pretrainer.checkpoint_report.random
    classifier = keras_bert.BertClassifier.from_checkpoint(
        tmp_path / "run" / "model", labels=["a", "b"], sequence_length=16
    )
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
    data = make_data(corpus, held_out=True)
    results = run(tmp_path / "run", corpus, data, phase=("24:150:16",), learning_rate=5e-3)
    first, last = (record["loss"] for record in (records(tmp_path / "run", "train")[i] for i in (0, -1)))
    assert last < 0.9 * first
    assert results["metrics"]["eval/masked_lm_loss"] < np.log(len(VOCABULARY))


@pytest.mark.parametrize("next_sentence", ["sop", "none"])
def test_other_next_sentence_objectives(tmp_path, corpus, next_sentence):
    run(tmp_path / "run", corpus, next_sentence=next_sentence, phase=PHASES[:1])
    names = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert ("cls.seq_relationship.weight" in names) == (next_sentence == "sop")


def test_finished_run_can_be_evaluated_later(tmp_path, corpus):
    assert run(tmp_path / "run", corpus, phase=PHASES[:1])["metrics"] == {}
    metrics = run(tmp_path / "run", corpus, make_data(corpus, held_out=True), phase=PHASES[:1])["metrics"]
    assert metrics["eval/masked_lm_loss"] > 0
    at_once = run(tmp_path / "other", corpus, make_data(corpus, held_out=True), phase=PHASES[:1])["metrics"]
    assert metrics == pytest.approx(at_once)


def test_model_pretrained_without_dropout_keeps_its_rates_for_fine_tuning(tmp_path, corpus):
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    config = write_config(tmp_path / "config.json", **rates)
    results = run(tmp_path / "run", corpus, phase=PHASES[:1], bert_config_file=config, dropout=0.0)
    assert {results["configuration"]["encoder"][name] for name in rates} == {0.0}
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert {name: config[name] for name in rates} == rates


@pytest.mark.parametrize("objective", ["left_to_right", "right_to_left"])
def test_language_models(tmp_path, corpus, objective):
    given = {"next_sentence": "none", "phase": PHASES[:1]}
    run(tmp_path / "run", corpus, objective=objective, checkpoint_dtype="bfloat16", **given)
    model = resolve_checkpoint(tmp_path / "run")
    assert model == (tmp_path / "run" / "model").resolve()
    pretrainer = BertPretrainer.from_checkpoint(model)
    assert pretrainer.encoder.attention_direction == objective
    assert not pretrainer.next_sentence
    assert set(pretrainer.checkpoint_report.random) == {"encoder/pooler/kernel", "encoder/pooler/bias"}
    direction = objective.replace("_", " ")
    assert f"Its attention goes {direction}" in (tmp_path / "run" / "model_card.md").read_text()
    # The objective gives the direction, whatever that of the initial weights.
    run(tmp_path / "masked", corpus, init_checkpoint=model, **given)
    masked = BertPretrainer.from_checkpoint(tmp_path / "masked" / "model")
    assert masked.encoder.attention_direction == "bidirectional"


def test_initial_weights_are_those_of_another_run(tmp_path, corpus):
    run(tmp_path / "one", corpus)
    run(tmp_path / "two", corpus, init_checkpoint=tmp_path / "one", learning_rate=0.0, weight_decay=0.0)
    np.testing.assert_array_equal(weights(tmp_path / "two"), weights(tmp_path / "one"))


@pytest.fixture
def command(corpus):
    """The command line of a run in two phases, without its data and folder."""
    folder = Path(corpus[0][0]).parents[1]
    return [
        *(sys.executable, "-m", "tasks.pretrain", f"--vocab_file={folder / 'vocab.txt'}"),
        *(f"--bert_config_file={folder / 'config.json'}", "--phase=16:20:8", "--phase=32:30:4", "--deterministic"),
        *("--log_every=1", "--steps_per_execution=3", "--checkpoint_every=1000", "--noprogress"),
    ]


def text_flags(files):
    return [f"--text_files={','.join(files)}", f"--shard_megabytes={SHARD_MEGABYTES}"]


class Run:
    """One or several programs of one run."""

    def __init__(self, run_dir, *commands):
        self.run_dir = run_dir
        self._logs = [run_dir.with_name(f"{run_dir.name}_{secrets.token_hex(4)}.log") for _ in commands]
        self._processes = []
        for command, path in zip(commands, self._logs, strict=True):
            with open(path, "w") as log:
                process = ForkedProgram([*command, f"--run_dir={run_dir}"], cwd=ROOT, stdout=log, stderr=log)
            self._processes.append(process)

    def terminate_at(self, update):
        """SIGTERM to the last program, once the run has logged the update."""
        log = self.run_dir / "log.jsonl"
        while self._processes[0].poll() is None:
            if log.is_file() and f'"step": {update}' in log.read_text():
                self._processes[-1].send_signal(signal.SIGTERM)
                return
            time.sleep(0.01)

    def check_ends_with(self, status):
        try:
            found = [process.wait(timeout=300) for process in self._processes]
        finally:
            for process in self._processes:
                process.kill()
        assert found == [status] * len(found), [path.read_text()[-3000:] for path in self._logs]


def check_resumes(whole, parts, commands, update):
    """A run that was terminated and started again ends with the weights of an uninterrupted one."""
    first = Run(parts, *commands())
    first.terminate_at(update)
    first.check_ends_with(143)
    runs = Run(whole, *commands()), Run(parts, *commands())  # at the same time
    for run in runs:
        run.check_ends_with(0)
    (resumed,) = records(parts, "resumed")
    assert update <= resumed["step"] < 50
    np.testing.assert_array_equal(weights(parts), weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize(("source", "update"), [("files", 8), ("text", 25)])
def test_run_stopped_in_either_phase_resumes_to_the_same_weights(tmp_path, corpus, command, source, update):
    files, _ = corpus
    if source == "files":
        write_instances(tmp_path / "instances", files)
        data = [f"--instance_files={tmp_path / 'instances' / str(length)}" for length in (16, 32)]
    else:
        data = [*text_flags(files), "--pack"]
    check_resumes(tmp_path / "whole", tmp_path / "parts", lambda: [[*command, *data]], update)


@pytest.mark.slow
def test_workers_stopped_in_the_second_phase_resume_to_the_same_weights(tmp_path, corpus, command):
    def commands():
        workers = ["--strategy=multi_worker", f"--workers={','.join(free_addresses(2))}"]
        return [[*command, *text_flags(corpus[0]), *options, *workers, f"--worker_index={index}"] for index in range(2)]

    options = ["--checkpoint_dtype=bfloat16", "--masked_lm_prob=0.3", "--do_whole_word_mask"]
    options += ["--mask_token_rate=0.7", "--random_token_rate=0.2"]
    check_resumes(tmp_path / "whole", tmp_path / "parts", commands, update=25)
    made = json.loads((tmp_path / "whole" / "configuration.json").read_text())
    assert (made["data"]["masking_rate"], made["data"]["whole_words"]) == (0.3, True)
    assert (made["data"]["mask_token_rate"], made["data"]["random_token_rate"]) == (0.7, 0.2)
    assert {tensor.dtype.name for tensor in load_file(tmp_path / "whole/model/model.safetensors").values()} == {
        "bfloat16"
    }


@pytest.mark.slow
def test_two_replicas_train_the_weights_of_one_device(tmp_path, corpus, command):
    command = [*command, *text_flags(corpus[0]), "--pack", "--dropout=0"]  # which has another mask on each replica
    replicas = ["--strategy=mirrored", "--num_logical_devices=2"]
    runs = Run(tmp_path / "one", command), Run(tmp_path / "two", [*command, *replicas])
    for run in runs:
        run.check_ends_with(0)
    np.testing.assert_allclose(weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"phase": ("64:1:4",)}, r"rows of 64 tokens, and the model has 40 positions"),
        ({"next_sentence": "nsp", "objective": "left_to_right"}, "attends to nothing else in a left-to-right encoder"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_the_folder_is_made(tmp_path, corpus, recipe, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", corpus, **recipe)
    assert not (tmp_path / "run").exists()


def test_files_that_do_not_fit_the_phases_are_refused(tmp_path, corpus):
    data = make_data(corpus, instance_files=write_instances(tmp_path / "instances", corpus[0], lengths=(16,)))
    with pytest.raises(ValueError, match="there are 2 phases and files for 1"):
        run(tmp_path / "run", corpus, data)
    for length in (12, 20):
        with pytest.raises(ValueError, match=f"rows of {length} tokens, and its files have instances of 16"):
            run(tmp_path / "run", corpus, data, phase=(f"{length}:1:4",))
    assert not (tmp_path / "run").exists()


def test_too_little_text_to_evaluate_on_is_refused(tmp_path, corpus):
    path = tmp_path / "short.txt"
    path.write_text("river stone\nnight\n")
    with pytest.raises(ValueError, match="gives fewer than 8 instances of 16 tokens, a batch"):
        run(tmp_path / "run", corpus, make_data(corpus, eval_text_files=(str(path),)))


def test_configuration_of_another_vocabulary_is_refused(tmp_path, corpus):
    recipe = make_recipe(corpus, bert_config_file=write_config(tmp_path / "config.json"))
    message = f"config.json has a vocabulary of {len(VOCABULARY)} wordpieces, and .*vocab.txt has 99"
    with pytest.raises(ValueError, match=message):
        encoder_arguments(recipe, make_data(corpus), 99)


def test_program_prints_scores_and_refuses_contradicting_flags(tmp_path, corpus, capsys):
    files, held_out = corpus
    folder = Path(files[0]).parents[1]
    given = {"vocab_file": folder / "vocab.txt", "run_dir": tmp_path / "run", "text_files": ",".join(files)}
    with pytest.raises(flags.Error, match="--text_files or instance_files must be given, one of the two"):
        programs.parse(program, **given, instance_files="b")
    with pytest.raises(flags.Error, match="--size and init_checkpoint both give the size"):
        programs.parse(program, **given, size="tiny", init_checkpoint="x")
    with pytest.raises(SystemExit, match=r"tasks.pretrain: no file is named missing\*"):
        values = programs.parse(program, **{**given, "text_files": "missing*", "size": "tiny"})
        program.run(values)
    assert not (tmp_path / "run").exists()
    given |= {"eval_text_files": held_out, "bert_config_file": folder / "config.json", "phase": ["16:2:4", "32:1:2"]}
    values = programs.parse(program, **given, shard_megabytes=SHARD_MEGABYTES, progress=False)
    metrics = program.run(values)["metrics"]
    printed = capsys.readouterr().out
    assert f"{metrics['eval/masked_lm_loss']:.4f}" in printed
    assert str(tmp_path / "run" / "model") in printed
