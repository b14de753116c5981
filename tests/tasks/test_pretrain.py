"""Pre-training runs from text and from files, in phases, packed or not, and goes on where it stopped."""

import json
import secrets
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import keras_bert
from keras_bert.finetuning.run_models import resolve_checkpoint
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.shards import plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker
from tasks import pretrain as program
from tasks.pretraining import Recipe, pretrain
from tasks.pretraining_input import Phase, StoredInstances, TextInstances, training_batches
from tests.addresses import free_addresses
from tests.forked import ForkedProgram
from tests.forked import run as run_forked
from tests.pretraining.corpora import VOCABULARY, tokenizer, write_corpus, write_vocabulary

ROOT = Path(__file__).parents[2]
SHARD_BYTES = 3000
ENCODER = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
PHASES = [Phase(16, 6, 8), Phase(32, 5, 4)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of text to train on, and one to evaluate on."""
    *files, held_out = write_corpus(tmp_path_factory.mktemp("pretrain") / "corpus", files=3, documents=20)
    return files, held_out


def from_text(files, **settings):
    return TextInstances(files, tokenizer(), SHARD_BYTES, seed=5, **settings)


def from_files(folder, files, lengths=(16, 32)):
    """Files of instances of each length, made from the text."""
    paths, plan = [], plan_shards(files, SHARD_BYTES)
    for length in lengths:
        settings = InstanceSettings(sequence_length=length, max_predictions=4)
        job = ShardJob(str(folder / f"{length}"), len(plan), tokenizer().get_config(), settings, num_copies=2)
        (folder / f"{length}").mkdir(parents=True)
        for shard in plan:
            ShardMaker(job)(shard)
        paths.append([path for shard in plan for path in job.paths(shard)])
    return StoredInstances(paths, tokenizer(), seed=5)


def run(
    run_dir,
    instances,
    phases=PHASES,
    encoder_arguments=ENCODER,
    init_checkpoint=None,
    held_out=None,
    checkpoint_dtype="float32",
    dropout=None,
    **recipe,
):
    return pretrain(
        run_dir,
        tokenizer=tokenizer(),
        instances=instances,
        phases=phases,
        encoder_arguments=encoder_arguments,
        init_checkpoint=init_checkpoint,
        evaluation=held_out,
        evaluate_every=3 if held_out else None,
        recipe=Recipe(**{"num_warmup_steps": 2, "learning_rate": 1e-3, **recipe}),
        checkpoint_dtype=checkpoint_dtype,
        dropout=dropout,
        command="the command",
        checkpoint_every=4,
        log_every=1,
    )


def weights(run_dir):
    found = load_file(run_dir / "model" / "model.safetensors")
    return np.concatenate([found[name].ravel() for name in sorted(found)])


def records(run_dir, event):
    lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize(("source", "pack"), [("text", True), ("files", False)])
def test_a_run_leaves_a_model_that_others_read(tmp_path, corpus, source, pack):
    files, held_out = corpus
    instances = from_text(files) if source == "text" else from_files(tmp_path / "instances", files)
    results = run(tmp_path / "run", instances, held_out=from_text([held_out]), pack=pack)
    names = {f"{term}_{score}" for term in ("masked_lm", "next_sentence") for score in ("loss", "accuracy")}
    assert set(results["metrics"]) == {f"eval/{name}" for name in (*names, "perplexity")}
    assert 0 < results["metrics"]["eval/masked_lm_loss"] < 2 * np.log(len(VOCABULARY))
    assert results["updates"] == 11
    assert json.loads((tmp_path / "run" / "results.json").read_text())["metrics"] == results["metrics"]
    assert [record["step"] for record in records(tmp_path / "run", "evaluation")] == [3, 6, 9, 11]
    card = (tmp_path / "run" / "model_card.md").read_text()
    assert "6 updates of 8 rows of 16 tokens" in card and "5 updates of 4 rows of 32 tokens" in card
    assert "the command" in card and "masked_lm_accuracy" in card
    assert (tmp_path / "run" / "training_curve.png").stat().st_size > 1000
    pretrainer = BertPretrainer.from_checkpoint(tmp_path / "run" / "model")
    assert not pretrainer.checkpoint_report.random
    classifier = keras_bert.BertClassifier.from_checkpoint(
        tmp_path / "run" / "model", labels=["a", "b"], sequence_length=16
    )
    assert classifier.preprocessor.tokenizer.vocabulary == VOCABULARY
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}


def test_every_phase_has_its_rows_in_order(corpus):
    batches = training_batches(from_text(corpus[0]), PHASES, "mlm", pack=False, seed=1)
    shapes = [tuple(inputs["token_ids"].shape) for inputs, _ in batches]
    assert shapes == [(8, 16)] * 6 + [(4, 32)] * 5


def test_packed_rows_of_short_instances_are_full(tmp_path, corpus):
    instances = from_files(tmp_path / "instances", corpus[0], lengths=(16,))
    batches = training_batches(instances, [Phase(64, 3, 4)], "mlm", pack=True, seed=1)
    fullness = np.mean([inputs["padding_mask"].numpy().mean() for inputs, _ in batches])
    assert fullness > 0.9


def test_the_model_learns(tmp_path, corpus):
    files, held_out = corpus
    results = run(
        tmp_path / "run",
        from_text(files),
        phases=[Phase(24, 150, 16)],
        held_out=from_text([held_out]),
        learning_rate=5e-3,
    )
    first, last = (record["loss"] for record in (records(tmp_path / "run", "train")[i] for i in (0, -1)))
    assert last < 0.9 * first
    assert results["metrics"]["eval/masked_lm_loss"] < np.log(len(VOCABULARY))


@pytest.mark.parametrize("next_sentence", ["sop", "none"])
def test_other_next_sentences(tmp_path, corpus, next_sentence):
    instances = from_text(corpus[0], next_sentence=next_sentence)
    run(tmp_path / "run", instances, next_sentence=next_sentence, phases=PHASES[:1])
    names = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert ("cls.seq_relationship.weight" in names) == (next_sentence == "sop")


def test_a_finished_run_can_be_evaluated_afterwards(tmp_path, corpus):
    files, held_out = corpus
    assert run(tmp_path / "run", from_text(files), PHASES[:1])["metrics"] == {}
    metrics = run(tmp_path / "run", from_text(files), PHASES[:1], held_out=from_text([held_out]))["metrics"]
    assert metrics["eval/masked_lm_loss"] > 0
    at_once = run(tmp_path / "other", from_text(files), PHASES[:1], held_out=from_text([held_out]))["metrics"]
    assert metrics == pytest.approx(at_once)


def test_a_model_that_was_pretrained_without_dropout_has_its_own_for_fine_tuning(tmp_path, corpus):
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    instances = from_text(corpus[0])
    results = run(tmp_path / "run", instances, PHASES[:1], {**ENCODER, **rates}, dropout=0.0)
    assert {results["configuration"]["encoder"][name] for name in rates} == {0.0}
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert {name: config[name] for name in rates} == rates


@pytest.mark.parametrize("objective", ["left_to_right", "right_to_left"])
def test_language_models(tmp_path, corpus, objective):
    settings = {"next_sentence": "none", "phases": PHASES[:1]}
    instances = from_text(corpus[0], next_sentence="none")
    run(tmp_path / "run", instances, objective=objective, checkpoint_dtype="bfloat16", **settings)
    model = resolve_checkpoint(tmp_path / "run")
    assert model == (tmp_path / "run" / "model").resolve()
    pretrainer = BertPretrainer.from_checkpoint(model)
    assert pretrainer.encoder.attention_direction == objective
    assert not pretrainer.next_sentence
    assert set(pretrainer.checkpoint_report.random) == {"encoder/pooler/kernel", "encoder/pooler/bias"}
    direction = objective.replace("_", " ")
    assert f"Its attention goes {direction}" in (tmp_path / "run" / "model_card.md").read_text()
    # Weights to begin with, whatever direction they were trained in: the objective says which it is from now on.
    run(tmp_path / "masked", instances, init_checkpoint=model, **settings)
    masked = BertPretrainer.from_checkpoint(tmp_path / "masked" / "model")
    assert masked.encoder.attention_direction == "bidirectional"


def test_weights_to_begin_with(tmp_path, corpus):
    run(tmp_path / "one", from_text(corpus[0]))
    model = resolve_checkpoint(tmp_path / "one")
    assert model == (tmp_path / "one" / "model").resolve()
    run(tmp_path / "two", from_text(corpus[0]), init_checkpoint=model, learning_rate=0.0, weight_decay=0.0)
    np.testing.assert_array_equal(weights(tmp_path / "two"), weights(tmp_path / "one"))


@pytest.fixture
def command(tmp_path, corpus):
    """The command line of a run in two phases, but for its data and its folder."""
    (tmp_path / "config.json").write_text(json.dumps({**ENCODER, "hidden_act": "gelu", "type_vocab_size": 2}))
    return [
        *(sys.executable, "-m", "tasks.pretrain", f"--vocab_file={write_vocabulary(tmp_path / 'vocab.txt')}"),
        *(f"--bert_config_file={tmp_path / 'config.json'}", "--phase=16:20:8", "--phase=32:30:4", "--deterministic"),
        *("--log_every=1", "--steps_per_execution=3", "--checkpoint_every=1000", "--noprogress"),
    ]


def text_flags(files):
    return [f"--text_files={','.join(files)}", "--shard_megabytes=0.003"]


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


def check_goes_on(whole, parts, commands, update):
    """A run that was terminated and given the same commands again ends with the weights of a whole one."""
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
def test_a_run_stopped_in_either_phase_goes_on_to_the_same_weights(tmp_path, corpus, command, source, update):
    files, _ = corpus
    if source == "files":
        from_files(tmp_path / "instances", files)
        data = [f"--instance_files={tmp_path / 'instances' / str(length)}" for length in (16, 32)]
    else:
        data = [*text_flags(files), "--pack"]
    check_goes_on(tmp_path / "whole", tmp_path / "parts", lambda: [[*command, *data]], update)


@pytest.mark.slow
def test_workers_stopped_in_the_second_phase_go_on_to_the_same_weights(tmp_path, corpus, command):
    def commands():
        workers = ["--strategy=multi_worker", f"--workers={','.join(free_addresses(2))}"]
        return [[*command, *text_flags(corpus[0]), *options, *workers, f"--worker_index={index}"] for index in range(2)]

    options = ["--checkpoint_dtype=bfloat16", "--masked_lm_prob=0.3", "--do_whole_word_mask"]
    options += ["--mask_share=0.7", "--random_share=0.2"]
    check_goes_on(tmp_path / "whole", tmp_path / "parts", commands, update=25)
    made = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert (made["data"]["masking_rate"], made["data"]["whole_words"]) == (0.3, True)
    assert (made["data"]["mask_share"], made["data"]["random_share"]) == (0.7, 0.2)
    assert {tensor.dtype.name for tensor in load_file(tmp_path / "whole/model/model.safetensors").values()} == {
        "bfloat16"
    }


@pytest.mark.slow
def test_two_replicas_learn_what_one_device_does(tmp_path, corpus, command):
    command = [*command, *text_flags(corpus[0]), "--pack", "--dropout=0"]  # which has another mask on each replica
    replicas = ["--strategy=mirrored", "--num_logical_devices=2"]
    runs = Run(tmp_path / "one", command), Run(tmp_path / "two", [*command, *replicas])
    for run in runs:
        run.check_ends_with(0)
    np.testing.assert_allclose(weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"phases": [Phase(64, 1, 4)]}, r"rows of 64 tokens, and the model has 40 positions"),
        ({"next_sentence": "nsp", "objective": "left_to_right"}, "sees nothing where the encoder reads from left"),
        ({"encoder_arguments": {**ENCODER, "hidden_size": 15}}, "hidden_size"),
        ({"checkpoint_dtype": "float16"}, r"one of \('float32', 'bfloat16'\), got 'float16'"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_folder_is_made(tmp_path, corpus, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", from_text(corpus[0]), **arguments)
    assert not (tmp_path / "run").exists()


def test_files_that_do_not_fit_the_phases(tmp_path, corpus):
    instances = from_files(tmp_path / "instances", corpus[0], lengths=(16,))
    with pytest.raises(ValueError, match="there are 2 phases and files for 1"):
        run(tmp_path / "run", instances)
    for length in (12, 20):
        with pytest.raises(ValueError, match=f"rows of {length} tokens, and its files have instances of 16"):
            run(tmp_path / "run", instances, phases=[Phase(length, 1, 4)])
    assert not (tmp_path / "run").exists()


def test_phases_that_cannot_be():
    with pytest.raises(ValueError, match="the updates of a phase must be at least 1, got 0"):
        Phase(16, 0, 8)


def test_too_little_text_to_evaluate_on(tmp_path, corpus):
    path = tmp_path / "short.txt"
    path.write_text("river stone\nnight\n")
    with pytest.raises(ValueError, match="gives fewer than 8 instances of 16 tokens, a batch"):
        run(tmp_path / "run", from_text(corpus[0]), held_out=from_text([str(path)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text_files=a", "--instance_files=b"], "give --text_files or --instance_files, one of the two"),
        ([], "give --text_files or --instance_files, one of the two"),
        (["--text_files=a", "--eval_text_files=b", "--eval_instance_files=c"], "one of the two"),
        (["--text_files=a", "--size=tiny", "--init_checkpoint=x"], "both say how large the model is"),
        (["--text_files=a", "--phase=128:0:8"], "must be LENGTH:UPDATES:ROWS"),
        (["--text_files=a", "--phase=128"], "must be LENGTH:UPDATES:ROWS"),
        (["--instance_files=a", "--masked_lm_prob=0.2"], "--masked_lm_prob is for --text_files"),
        (["--text_files=a", "--evaluate_every=5"], "--evaluate_every needs --eval_text_files or"),
        (["--text_files=missing*", "--size=tiny"], "tasks.pretrain: no file is named missing*"),
    ],
)
def test_flags_that_cannot_be(tmp_path, options, message):
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    command = [sys.executable, "-m", "tasks.pretrain", f"--vocab_file={vocabulary}", f"--run_dir={tmp_path / 'run'}"]
    answer = run_forked([*command, *options], cwd=ROOT)
    assert answer.returncode != 0
    assert message in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stdout + answer.stderr
    assert not (tmp_path / "run").exists()


def test_a_configuration_of_another_vocabulary(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**ENCODER, "hidden_act": "gelu", "type_vocab_size": 2}))

    class Values:
        init_checkpoint, bert_config_file, vocab_file = None, str(path), "vocab.txt"

    with pytest.raises(ValueError, match=r"config.json is of a vocabulary of 17 wordpieces, and vocab.txt has 99"):
        program.encoder_arguments_from_flags(Values(), 99)
