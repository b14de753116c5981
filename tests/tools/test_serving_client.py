"""The program sends texts and files to a server, writes its answers in order, and says what is wrong in one line."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from absl import app, flags

from keras_bert.io.row_errors import BadRowError
from tests.addresses import free_addresses
from tests.forked import run as run_forked
from tests.tools.serving_clients.served_models import ServedModels
from tests.tools.serving_clients.servers import grpc_server, http_server, rest_answers
from tools import serving_client
from tools.serving_clients.client import ServingError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Two models without weights: one of texts, which refuses the text "wrong", and one of prompts with choices."""
    place, strings = tmp_path_factory.mktemp("plain"), tf.TensorSpec([None], tf.string, name="text")

    def of_texts(text):
        with tf.control_dependencies([tf.debugging.assert_none_equal(text, "wrong", message="this text is wrong")]):
            return {"upper": tf.strings.upper(text), "size": tf.strings.length(text)}

    def of_choices(prompt, choices):
        return {"joined": tf.strings.reduce_join(choices, axis=1, separator="|"), "prompt": tf.identity(prompt)}

    save(place / "texts", of_texts, text=strings)
    several = tf.TensorSpec([None, None], tf.string, name="choices")
    save(place / "choices", of_choices, prompt=tf.TensorSpec([None], tf.string, name="prompt"), choices=several)
    models = ServedModels({"texts": {1: place / "texts"}, "choices": {1: place / "choices"}}, {"texts": {"stable": 1}})
    with contextlib.closing(models):
        yield models


def save(folder, function, **specs):
    signature = tf.function(lambda **inputs: function(**inputs)).get_concrete_function(**specs)
    tf.saved_model.save(tf.Module(), str(folder), signatures=signature)


@pytest.fixture(scope="module", params=["grpc", "http"])
def server(served, request):
    with grpc_server(served) if request.param == "grpc" else http_server(rest_answers(served)) as address:
        yield address


def run(server, *arguments, model="texts"):
    values = flags.FlagValues()
    serving_client.define_flags(values)
    values(["serving_client", f"--server={server}", f"--model={model}", *map(str, arguments)])
    serving_client.run(values, serving_client.inputs_of_flags(values))


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_texts_are_answered_on_standard_output(server, capsys):
    run(server, "--text=a film", "--text=", "--text=\udcffbad", "--version=stable")
    found = rows_of(capsys.readouterr().out)
    assert found == [{"size": 6, "upper": "A FILM"}, {"size": 0, "upper": ""}, {"size": 4, "upper": "\ufffdBAD"}]


def test_choices_are_those_of_one_prompt(server, capsys):
    run(server, "--prompt=a", "--choice=b,c", "--choice=d", "--version=1", model="choices")
    assert rows_of(capsys.readouterr().out) == [{"joined": "b,c|d", "prompt": "a"}]
    with pytest.raises(ValueError, match="as many rows as the others"):
        run(server, "--prompt=a", "--prompt=b", "--choice=c", model="choices")


def test_a_file_is_answered_in_batches(server, tmp_path, capsys):
    rows = [{"text": f"text {number}", "id": number} for number in range(7)]
    rows[3]["text"] = {"b64": "/2E="}
    source, target = tmp_path / "rows.jsonl", tmp_path / "new" / "answers.jsonl"
    source.write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    run(server, f"--input={source}", f"--output={target}", "--batch_size=3")
    found = rows_of(target.read_text("utf-8"))
    assert [row["line"] for row in found] == [1, 3, 5, 7, 9, 11, 13]
    assert [row["upper"] for row in found] == [
        *(f"TEXT {i}" for i in range(3)),
        "\ufffdA",
        "TEXT 4",
        "TEXT 5",
        "TEXT 6",
    ]
    assert capsys.readouterr().err.splitlines()[-1] == f"7 answers written to {target}"
    with pytest.raises(FileExistsError, match="--overwrite to replace it"):
        run(server, f"--input={source}", f"--output={target}")
    with pytest.raises(ValueError, match="is one of the files of --input"):
        run(server, f"--input={source}", f"--output={source}", "--overwrite")


def test_rows_that_do_not_fit(server, tmp_path, capsys):
    source, target = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    source.write_text('{"text": "a"}\n{"text": 1}\n{"txt": "a"}\n[]\n{"text": "b"}\n')
    arguments = f"--input={source}", f"--output={target}"
    with pytest.raises(BadRowError, match=r"rows.jsonl, line 2: text must hold a text.*; got 1; mend the row"):
        run(server, *arguments)
    assert not target.exists()
    run(server, *arguments, "--skip_bad_rows")
    assert [row["line"] for row in rows_of(target.read_text())] == [1, 5]
    assert capsys.readouterr().err.splitlines()[-1].endswith("2 answers written to " + f"{target}; 3 bad rows skipped")


def test_rows_of_choices_differ_in_length(server, tmp_path):
    source, target = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    source.write_text('{"prompt": "a", "choices": ["b"]}\n{"choices": ["c", "d", "e"], "prompt": "f"}\n')
    run(server, f"--input={source}", f"--output={target}", model="choices")
    assert [row["joined"] for row in rows_of(target.read_text())] == ["b||", "c|d|e"]


def test_an_answer_that_fails_names_the_rows(server, tmp_path):
    source, target = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    source.write_text("".join(f'{{"text": "{text}"}}\n' for text in ("a", "b", "c", "wrong", "d")))
    with pytest.raises(ServingError, match=r"rows.jsonl, lines 3 to 4: .* refused the request .*this text is wrong"):
        run(server, f"--input={source}", f"--output={target}", "--batch_size=2")
    assert list(tmp_path.iterdir()) == [source]


def test_a_file_without_rows(server, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match="has no rows"):
        run(server, f"--input={tmp_path / 'empty.jsonl'}")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        run(server, f"--input={tmp_path / 'none.jsonl'}")


def test_a_model_is_described(server, capsys):
    run(server, "--describe", model="choices")
    assert capsys.readouterr().out.splitlines() == [
        "choices, version 1: AVAILABLE",
        "signature serving_default",
        "  takes choices: string [any, any]",
        "  takes prompt: string [any]",
        "  gives joined: string [any]",
        "  gives prompt: string [any]",
    ]


def test_outputs_without_rows_cannot_be_written():
    for output in (3, [1]):
        with pytest.raises(ValueError, match="the output loss has not a row for each of the 2"):
            serving_client.rows_of({"loss": output}, ["loss"], 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of these alone"),
        (["--text=a", "--describe"], "one of these alone"),
        (["--input=a", "--choice=b"], "one of these alone"),
        (["--text=a", "b"], "every text has its flag"),
        (["--text=a", "--batch_size=32"], "--batch_size is for --input, and has no effect without it"),
        (["--text=a", "--skip_bad_rows"], "--skip_bad_rows is for --input"),
        (["--describe", "--batch_size=1"], "--batch_size is for --input"),
        (["--describe", "--output=x"], "--output is for answers, and --describe asks for none"),
        (["--describe", "--overwrite"], "--overwrite is for answers"),
        (["--text=a", "--overwrite"], "--overwrite is for --output, and has no effect without it"),
        (["--describe", "--signature=x"], "--signature is for answers"),
    ],
)
def test_flags_that_cannot_be(arguments, message, monkeypatch):
    values = flags.FlagValues()
    serving_client.define_flags(values)
    rest = values(["serving_client", "--server=grpc://localhost:1", "--model=m", *arguments])
    monkeypatch.setattr(flags, "FLAGS", values)
    with pytest.raises(app.UsageError, match=message):
        serving_client.main(rest)


@pytest.mark.slow
def test_the_program(server):
    program = [sys.executable, "-m", "tools.serving_client", "--model=texts", "--text=a"]
    answer = run_forked([*program, f"--server={server}"], cwd=ROOT)
    assert (answer.returncode, rows_of(answer.stdout)) == (0, [{"size": 1, "upper": "A"}])
    (address,) = free_addresses(1)
    answer = run_forked([*program, f"--server={server.partition(':')[0]}://{address}"], cwd=ROOT)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith(f"tools.serving_client: {address} is not available: ")
