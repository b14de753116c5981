import numpy as np
import pytest

from keras_bert.models.encoder import BertEncoder
from tests.tolerances import assert_close
from tests.tools.program_flags import parse_flags
from tests.tools.test_attention_page import decode_weights, read_data
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor
from tools import attention
from tools.attention import choose_layers, compute_attention, load_model
from tools.attention_page import ROUNDING_ERROR


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return toy_encoder(initializer_range=0.8).save_checkpoint(
        tmp_path_factory.mktemp("attention") / "model", toy_preprocessor().tokenizer
    )


def run(*arguments):
    attention.run(parse_flags(attention, *arguments))


def compute_scores(encoder, ids):
    """[layers, heads, from, to] of a single row without padding."""
    return np.stack(encoder(ids, return_attention_scores=True)["attention_scores"])[:, 0]


@pytest.mark.parametrize("pad_to", ["longest", "max_length"])
def test_weights_equal_the_scores_of_the_encoder(pad_to):
    encoder = toy_encoder(initializer_range=0.8)
    texts = ["a lovelyly film [MASK]", "the plot was good"]
    read, cut = compute_attention(encoder, toy_preprocessor(pad_to=pad_to), texts, [0, 1])
    assert read.tokens == [
        *("[CLS]", "a", "lovely", "##ly", "film", "[UNK]", "[UNK]", "[UNK]", "[SEP]"),
        *("the", "plot", "was", "good", "[SEP]"),
    ]
    assert read.segment_ids == [0] * 9 + [1] * 5
    assert (read.special, read.layers, cut) == ([0, 8, 13], [0, 1], 0)
    ids = toy_preprocessor()(([texts[0]], [texts[1]]))
    # Two layers of width 16: about a hundred terms between the embeddings and the last scores.
    assert_close(read.weights, compute_scores(encoder, ids), num_terms=100)
    assert_close(read.weights.sum(axis=-1), np.ones(read.weights.shape[:-1]), num_terms=14)


def test_computes_selected_layers_of_a_truncated_text():
    encoder = toy_encoder(num_hidden_layers=3)
    read, cut = compute_attention(encoder, toy_preprocessor(sequence_length=6), ["good " * 9], [0, 2])
    assert (read.tokens, cut) == (["[CLS]", *["good"] * 4, "[SEP]"], 5)
    ids = toy_preprocessor()(["good " * 4])
    assert_close(read.weights, compute_scores(encoder, ids)[[0, 2]], num_terms=100)


def test_rejects_texts_without_tokens_and_too_many_weights(monkeypatch):
    monkeypatch.setattr("tools.attention_page.MAX_WEIGHTS", 99)
    for texts, message in (
        (["\x00 "], r"--text='\\x00 ' has no tokens"),
        (["a", ""], "--text_b='' has no tokens"),
        (["a good film"], "2 layers of 2 heads with 5 tokens are 100 weights"),
    ):
        with pytest.raises(ValueError, match=message):
            compute_attention(toy_encoder(), toy_preprocessor(), texts, [0, 1])


def test_chooses_layers():
    assert choose_layers(None, 3) == [0, 1, 2]
    assert choose_layers(["2", "0", "2"], 3) == [0, 2]
    for layers in (["3"], ["-1"], ["0", "x"], [""], []):
        with pytest.raises(ValueError, match=r"must be comma-separated layers of the model, 0 \(the first\) to 2"):
            choose_layers(layers, 3)


def test_writes_the_page_of_a_checkpoint(checkpoint, tmp_path, capsys):
    output = tmp_path / "new" / "pair.html"
    run(f"--checkpoint={checkpoint}", "--text=a [MASK] film", "--text_b=Good!", f"--output={output}", "--layers=1")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"1 layer of 2 heads, 8 tokens; written to {output} (0.0")
    data = read_data(output.read_text(encoding="utf-8"))
    assert data["tokens"] == ["[CLS]", "a", "[MASK]", "film", "[SEP]", "good", "[UNK]", "[SEP]"]
    assert (data["title"], data["texts"]) == ("a [MASK] film / Good!", ["a [MASK] film", "Good!"])
    assert data["subtitle"] == f"{checkpoint}: 1 layer of 2 heads, 8 tokens"
    token_ids = [[VOCABULARY.index(token) for token in data["tokens"]]]
    ids = {"token_ids": np.array(token_ids), "segment_ids": np.array([data["segment_ids"]])}
    expected = compute_scores(BertEncoder.from_checkpoint(checkpoint), ids)[[1]]
    np.testing.assert_allclose(decode_weights(data), expected, rtol=0, atol=ROUNDING_ERROR)
    assert np.ptp(expected) > 0.1


def test_rejects_checkpoints_without_a_vocabulary(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "model")
    with pytest.raises(ValueError, match=r"has no vocab\.txt"):
        load_model(folder, None)


def test_truncates_long_texts(tmp_path, capsys):
    arguments = ["--preset=bert_tiny_novels", f"--text={'good ' * 200}", f"--output={tmp_path / 'page.html'}"]
    run(*arguments, "--max_seq_length=10", "--title=<b> & Co.")
    data = read_data((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert (data["title"], data["layers"], data["heads"]) == ("<b> & Co.", [0, 1], 4)
    assert "2 layers of 4 heads, 10 tokens; 192 more truncated; written to" in capsys.readouterr().err
    run(*arguments, "--overwrite")
    assert "128 tokens; 74 more truncated" in capsys.readouterr().err
    data = read_data((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["subtitle"].endswith("128 tokens; 74 more truncated")
    assert len(data["title"]) <= 80
    with pytest.raises(ValueError, match="--max_seq_length=129 exceeds the 128 positions of the model"):
        run(*arguments, "--overwrite", "--max_seq_length=129")


def test_checks_the_output_first(tmp_path):
    with pytest.raises(ValueError, match=r"page\.png must end in \.html"):
        run("--checkpoint=missing", "--text=a", f"--output={tmp_path / 'page.png'}")
