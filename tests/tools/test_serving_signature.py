import numpy as np
import pytest
import tensorflow as tf

from tools.serving_signature import Column, ItemList, ServingSignature, map_outputs

TEXT = {"text": False}


@pytest.fixture
def plain_model(tmp_path):
    """Writes a SavedModel with one signature of a function, or none."""

    def write(function=None, name="serving_default", dtype=tf.string, inputs=("text",), shape=(None,)):
        module = tf.Module()
        signatures = {}
        if function is not None:
            specs = {key: tf.TensorSpec(shape, dtype, name=key) for key in inputs}
            signatures[name] = tf.function(lambda **texts: function(**texts)).get_concrete_function(**specs)
        tf.saved_model.save(module, tmp_path / "plain", signatures=signatures)
        return tmp_path / "plain"

    return write


def strings(*shape):
    return tf.TensorSpec([None, *shape], tf.string)


def test_label_columns_have_the_exact_names():
    matrix = tf.TensorSpec([None, 2])
    outputs = dict.fromkeys(("score_very_good", "score_very_good_2"), tf.TensorSpec([None]))
    outputs |= {"probabilities": matrix, "labels": strings(2), "label": strings()}
    columns, lists = map_outputs(outputs, TEXT, ["very good", "very-good"])
    assert list(columns) == ["label", "labels", "probability_very good", "probability_very-good"]
    assert list(columns.values()) == [("label", None), ("labels", None), ("probabilities", 0), ("probabilities", 1)]
    assert lists == {}
    assert list(map_outputs({"probabilities": matrix}, TEXT)[0]) == ["probability_0", "probability_1"]


def test_regression_columns_are_named_after_the_outputs():
    outputs = {"length": tf.TensorSpec([None]), "values": tf.TensorSpec([None, 1])}
    assert map_outputs(outputs, TEXT, ["length"]) == ({"length": ("values", 0)}, {})


def test_offsets_are_in_characters():
    numbers = tf.TensorSpec([None], tf.int32)
    outputs = dict.fromkeys(["end_byte", "end_character", "start_byte", "start_character"], numbers)
    columns, lists = map_outputs({**outputs, "answer": strings(), "byte": numbers}, TEXT)
    assert list(columns) == ["answer", "start", "end", "byte"]
    assert [source for source, _ in columns.values()] == ["answer", "start_character", "end_character", "byte"]
    assert {index for _, index in columns.values()} == {None}
    assert lists == {}
    columns, _ = map_outputs({"end": numbers, "end_character": numbers}, TEXT)
    assert list(columns) == ["end_character", "end"]


def test_recognizes_known_lists():
    offsets = {name: tf.TensorSpec([None, None], tf.int32) for name in ("start_characters", "end_characters")}
    words = {"words": strings(None), "tags": strings(None), "scores": tf.TensorSpec([None, None]), **offsets}
    count = {"word_count": tf.TensorSpec([None], tf.int32)}
    columns, lists = map_outputs({**words, **count}, TEXT, ["O", "B-x"])
    assert (columns, list(lists)) == ({}, ["words"])
    assert list(lists["words"].source) == ["text", "tag", "score", "start", "end"]
    # Outputs of unknown models are kept unchanged.
    columns, lists = map_outputs(words, TEXT)
    assert (columns, list(lists)) == ({}, sorted(words))
    masks = {"words": strings(None), "probabilities": tf.TensorSpec([None, None]), "masks": tf.TensorSpec([None])}
    columns, lists = map_outputs(masks, TEXT)
    assert (list(columns), list(lists)) == (["masks"], ["probabilities", "words"])
    probabilities = {"probabilities": tf.TensorSpec([None, None])}
    assert map_outputs(probabilities, {"choices": True})[1]["probabilities"].count == "number of choices"
    assert map_outputs(probabilities, {"choices": False})[1] == {"probabilities": ("probabilities", None, None)}


def test_removes_padding():
    arrays = {
        "number": np.array([0, 2]),
        "names": np.array([[b"", b"", b""], [b"a", "ü".encode(), b""]], object),
        "ends": np.array([[0, 0, 0], [4, 6, 0]]),
        "shares": np.array([[[0, 0], [0, 0], [0, 0]], [[0.1, 0.2], [0.3, 0.4], [0, 0]]], "float32"),
    }
    for count in ("number", "ends"):
        assert list(ItemList("names", count).rows(arrays)) == [[], ["a", "ü"]]
        objects = ItemList({"name": "names", "end": "ends"}, count)
        assert list(objects.rows(arrays)) == [[], [{"name": "a", "end": 4}, {"name": "ü", "end": 6}]]
        nested = ItemList({"share": "shares"}, count)
        assert list(nested.rows(arrays)) == [[], [[{"share": 0.1}, {"share": 0.2}], [{"share": 0.3}, {"share": 0.4}]]]
    assert list(ItemList("ends").rows(arrays)) == [[0, 0, 0], [4, 6, 0]]
    assert Column("names").rows(arrays) == [[], ["a", "ü"]]


@pytest.mark.parametrize("shape", [None, [2]])
def test_rejects_outputs_without_a_batch_axis(shape):
    with pytest.raises(ValueError, match=r"'sum' has shape .*; its first axis must be the batch"):
        map_outputs({"sum": tf.TensorSpec(shape)}, TEXT)


def test_rejects_a_wrong_number_of_labels():
    with pytest.raises(ValueError, match=r"expected \[batch, 3\]"):
        map_outputs({"probabilities": tf.TensorSpec([None, 2])}, TEXT, ["a", "b", "c"])


def test_rejects_models_without_the_signature(plain_model):
    folder = plain_model(lambda text: {"label": text}, name="other")
    with pytest.raises(ValueError, match=r"has no signature 'serving_default'; it has \['other'\]"):
        ServingSignature(folder)


@pytest.mark.parametrize(
    "dtype, shape, received",
    [
        (tf.float32, [None], r"'float32 \(None,\)'"),
        (tf.string, [None, 1], r"'string \(None, 1\)'"),
        (tf.string, None, "'string <unknown>'"),
    ],
)
def test_rejects_models_that_do_not_take_texts(plain_model, dtype, shape, received):
    folder = plain_model(lambda text: {"label": text}, dtype=dtype, shape=shape)
    with pytest.raises(ValueError, match=rf"takes \{{'text': {received}\}}; it must take raw texts"):
        ServingSignature(folder)


def test_runs_models_of_other_projects(plain_model):
    def answer(title, body):
        characters = tf.strings.unicode_decode(body, "UTF-8").to_tensor()
        half = tf.cast(characters, tf.bfloat16) / 2
        parts = tf.strings.bytes_split(body).to_tensor()  # not all of them are characters
        return {"size": tf.strings.length(title), "upper": tf.strings.upper(title), "half": half, "parts": parts}

    signature = ServingSignature(plain_model(answer, inputs=("title", "body")))
    assert signature.inputs == {"title": False, "body": False}
    assert (signature.columns, signature.lists) == (["size", "upper"], ["half", "parts"])
    texts = {"title": ["a", "film"], "body": ["ad", "ü"]}
    assert signature(texts, ["size", "upper"]) == [[1, "A"], [4, "FILM"]]
    assert signature(texts, ["half", "upper"]) == [[[48.5, 50.0], "A"], [[126.0, 0.0], "FILM"]]
    assert signature(texts, ["parts"]) == [[["a", "d"]], [["\ufffd", "\ufffd"]]]


def test_embeddings_are_lists_of_short_decimals(plain_model):
    def embed(text):
        length = tf.cast(tf.strings.length(text), tf.float32)[:, None]
        return {"embedding": length / [10.0, 100.0], "stacked": tf.stack([length, length], axis=1)}

    signature = ServingSignature(plain_model(embed))
    assert (signature.columns, signature.lists) == ([], ["embedding", "stacked"])
    answers = signature({"text": ["a", "abc"]}, ["embedding", "stacked"])
    assert answers == [[[0.1, 0.01], [[1.0], [1.0]]], [[0.3, 0.03], [[3.0], [3.0]]]]


def test_rejects_outputs_with_a_different_number_of_rows(plain_model):
    signature = ServingSignature(plain_model(lambda text: {"unique": tf.unique(text)[0]}))
    assert signature({"text": ["a", "b"]}, ["unique"]) == [["a"], ["b"]]
    with pytest.raises(ValueError, match="'unique' has 1 rows for 2 rows of texts"):
        signature({"text": ["a", "a"]}, ["unique"])
