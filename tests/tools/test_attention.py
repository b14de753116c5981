"""The page that the program writes has the tokens of the tokenizer and the attention of the encoder."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from keras_bert.models.encoder import BertEncoder
from tests.forked import run as run_forked
from tests.tolerances import assert_close
from tests.tools.test_attention_page import data_of, weights_of
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor
from tools import attention
from tools.attention import choose_layers, load_model, read_attention
from tools.attention_page import ROUNDING_ERROR

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return toy_encoder(initializer_range=0.8).save_checkpoint(
        tmp_path_factory.mktemp("attention") / "model", toy_preprocessor().tokenizer
    )


def values_of(*arguments):
    values = flags.FlagValues()
    attention.define_flags(values)
    values(["attention", *map(str, arguments)])
    return values


def run(*arguments):
    attention.run(values_of(*arguments))


def scores_of(encoder, ids):
    """[layers, heads, from, to] of a single row without padding."""
    return np.stack(encoder(ids, return_attention_scores=True)["attention_scores"])[:, 0]


@pytest.mark.parametrize("pad_to", ["longest", "max_length"])
def test_tokens_and_weights(pad_to):
    encoder = toy_encoder(initializer_range=0.8)
    texts = ["a lovelyly film [MASK]", "the plot was good"]
    read, cut = read_attention(encoder, toy_preprocessor(pad_to=pad_to), texts, [0, 1])
    assert read.tokens == [
        *("[CLS]", "a", "lovely", "##ly", "film", "[UNK]", "[UNK]", "[UNK]", "[SEP]"),
        *("the", "plot", "was", "good", "[SEP]"),
    ]
    assert read.segment_ids == [0] * 9 + [1] * 5
    assert (read.special, read.layers, cut) == ([0, 8, 13], [0, 1], 0)
    ids = toy_preprocessor()(([texts[0]], [texts[1]]))
    # Two layers of width 16: about a hundred terms between the embeddings and the last scores.
    assert_close(read.weights, scores_of(encoder, ids), num_terms=100)
    assert_close(read.weights.sum(axis=-1), np.ones(read.weights.shape[:-1]), num_terms=14)


def test_some_layers_of_a_text_that_is_cut():
    encoder = toy_encoder(num_hidden_layers=3)
    read, cut = read_attention(encoder, toy_preprocessor(sequence_length=6), ["good " * 9], [0, 2])
    assert (read.tokens, cut) == (["[CLS]", *["good"] * 4, "[SEP]"], 5)
    ids = toy_preprocessor()(["good " * 4])
    assert_close(read.weights, scores_of(encoder, ids)[[0, 2]], num_terms=100)


def test_texts_without_tokens():
    for texts, message in ((["\x00 "], r"--text='\\x00 ' has no tokens"), (["a", ""], "--text_b='' has no tokens")):
        with pytest.raises(ValueError, match=message):
            read_attention(toy_encoder(), toy_preprocessor(), texts, [0])


def test_too_many_weights_are_refused_before_they_are_computed(monkeypatch):
    monkeypatch.setattr("tools.attention_page.MOST_WEIGHTS", 99)
    with pytest.raises(ValueError, match="2 layers of 2 heads with 5 tokens are 100 weights"):
        read_attention(toy_encoder(), toy_preprocessor(), ["a good film"], [0, 1])


def test_layers():
    assert choose_layers(None, 3) == [0, 1, 2]
    assert choose_layers(["2", "0", "2"], 3) == [0, 2]
    for given in (["3"], ["-1"], ["0", "x"], [""], []):
        with pytest.raises(ValueError, match=r"the layers of this model are 0 \(the lowest\) to 2; give some of them"):
            choose_layers(given, 3)


def test_the_page_of_a_checkpoint(checkpoint, tmp_path, capsys):
    output = tmp_path / "new" / "pair.html"
    run(f"--checkpoint={checkpoint}", "--text=a [MASK] film", "--text_b=Good!", f"--output={output}", "--layers=1")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"1 layer of 2 heads, 8 tokens; written to {output} (0.0")
    data = data_of(output.read_text(encoding="utf-8"))
    assert data["tokens"] == ["[CLS]", "a", "[MASK]", "film", "[SEP]", "good", "[UNK]", "[SEP]"]
    assert (data["title"], data["texts"]) == ("a [MASK] film / Good!", ["a [MASK] film", "Good!"])
    assert data["facts"] == f"{checkpoint}: 1 layer of 2 heads, 8 tokens"
    token_ids = [[VOCABULARY.index(token) for token in data["tokens"]]]
    ids = {"token_ids": np.array(token_ids), "segment_ids": np.array([data["segment_ids"]])}
    expected = scores_of(BertEncoder.from_checkpoint(checkpoint), ids)[[1]]
    np.testing.assert_allclose(weights_of(data), expected, rtol=0, atol=ROUNDING_ERROR)
    assert np.ptp(expected) > 0.1


def test_a_shipped_preset(tmp_path, capsys):
    text = "It was unbelievable, and yet he smiled."
    run("--preset=bert_tiny_novels", f"--text={text}", f"--output={tmp_path / 'page.html'}", "--title=<b> & Co.")
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    encoder, preprocessor = load_model(None, "bert_tiny_novels")
    tokens = [token.decode() for token in preprocessor.tokenizer.tokens(text).numpy()]
    assert data["tokens"] == ["[CLS]", *tokens, "[SEP]"]
    assert any(token.startswith("##") for token in tokens)
    weights = weights_of(data)
    np.testing.assert_allclose(weights, scores_of(encoder, preprocessor([text])), rtol=0, atol=ROUNDING_ERROR)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=0, atol=0.01)
    assert (data["title"], data["layers"], data["heads"]) == ("<b> & Co.", [0, 1], 4)


def test_a_text_that_is_too_long(tmp_path, capsys):
    arguments = ["--preset=bert_tiny_novels", f"--text={'good ' * 200}", f"--output={tmp_path / 'page.html'}"]
    run(*arguments, "--max_seq_length=10")
    assert "2 layers of 4 heads, 10 tokens; 192 more did not fit; written to" in capsys.readouterr().err
    run(*arguments, "--overwrite")
    assert "128 tokens; 74 more did not fit" in capsys.readouterr().err
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["facts"].endswith("128 tokens; 74 more did not fit")
    assert len(data["title"]) <= 80
    with pytest.raises(ValueError, match="--max_seq_length=129 is beyond the 128 positions of the model"):
        run(*arguments, "--overwrite", "--max_seq_length=129")


def test_a_checkpoint_without_a_vocabulary(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "model")
    with pytest.raises(ValueError, match=r"has no vocab\.txt, without which texts have no tokens"):
        load_model(folder, None)


def test_outputs_are_checked_before_the_model_is_read(tmp_path, checkpoint):
    (tmp_path / "old.html").write_text("old")
    arguments = ["--checkpoint=missing", "--text=a"]
    with pytest.raises(FileExistsError, match=r"old\.html exists; give another name, or --overwrite"):
        run(*arguments, f"--output={tmp_path / 'old.html'}")
    with pytest.raises(ValueError, match=r"page\.png must end in \.html"):
        run(*arguments, f"--output={tmp_path / 'page.png'}")
    assert (tmp_path / "old.html").read_text() == "old"
    run(f"--checkpoint={checkpoint}", "--text=a", f"--output={tmp_path / 'old.html'}", "--overwrite")
    assert data_of((tmp_path / "old.html").read_text(encoding="utf-8"))["tokens"] == ["[CLS]", "a", "[SEP]"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--preset=b", "--output=o"],
        ["--preset=b", "--text=t"],
        ["--text=t", "--output=o"],
        ["--checkpoint=a", "--preset=b", "--text=t", "--output=o"],
        ["--preset=b", "--text=t", "--output=o", "--max_seq_length=2"],
    ],
)
def test_flags_that_cannot_be(arguments):
    with pytest.raises(flags.IllegalFlagValueError):
        values_of(*arguments)


@pytest.mark.slow
def test_the_program(checkpoint, tmp_path):
    program = [sys.executable, "-m", "tools.attention", f"--output={tmp_path / 'page.html'}", "--text=a film"]
    answer = run_forked([*program, f"--checkpoint={checkpoint}"], cwd=ROOT)
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert re.search(
        r"^2 layers of 2 heads, 4 tokens; written to \S+page\.html \(0\.0\d MB\)$", answer.stderr, re.MULTILINE
    )
    answer = run_forked([*program, f"--checkpoint={tmp_path / 'missing'}", "--overwrite"], cwd=ROOT)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith(f"tools.attention: {tmp_path / 'missing'}: ")
    assert "Traceback" not in answer.stderr
    assert "unexpected arguments: ['more']" in run_forked([*program, "--preset=x", "more"], cwd=ROOT).stderr
