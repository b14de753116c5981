"""The clients of both protocols get a model's own answers from a server, and say what is wrong with a request."""

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from tests.addresses import free_addresses
from tests.tools.serving_clients.served_models import ServedModels, StatusError
from tests.tools.serving_clients.servers import grpc_server, http_server, rest_answers
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_preprocessor
from tools.serving_clients.client import ServingError
from tools.serving_clients.opening import open_client

TEXTS = [
    "a good film",
    "",
    "bad \x00 \u00e9 [SEP] \U0001f469\u200d\U0001f4bb",
    "the plot was dull , and the film awful",
]
BYTES = [b"good", b"\xff\xfe bad film"]
ID_NAMES = ("token_ids", "segment_ids", "padding_mask")
QUESTIONS = {"prompt": ["the film was", "a plot"], "choices": [["good", "bad , and dull", "fine"], ["the film", "bad"]]}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Models, and their folders, by name."""
    place, small = tmp_path_factory.mktemp("served"), {"num_hidden_layers": 1, "initializer_range": 0.5}
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True)
    models = {
        "old": toy_classifier(encoder_arguments=small),
        "new": toy_classifier(["very bad", "good"], encoder_arguments={**small, "seed": 2}),
        "choices": BertMultipleChoice(toy_encoder(**small), toy_preprocessor(), seed=1),
        "words": BertPretrainer(toy_encoder(**small), preprocessor=BertPreprocessor(tokenizer, 16), seed=1),
    }
    return models, {name: model.export(place / name / "1") for name, model in models.items()}


@pytest.fixture(scope="module")
def served(exported):
    _, folders = exported
    versions = {
        "reviews": {1: folders["old"], 2: folders["new"]},
        "choices": {7: folders["choices"]},
        "words/all": {1: folders["words"]},
    }
    models = ServedModels(versions, {"reviews": {"stable": 1}})
    with contextlib.closing(models):
        yield models


@pytest.fixture(scope="module", params=["grpc", "http"])
def server(served, request):
    with grpc_server(served) if request.param == "grpc" else http_server(rest_answers(served)) as address:
        yield address


def test_texts_are_classified(exported, server):
    model = exported[0]["new"]
    with open_client(server, "reviews") as client:
        answer = client.predict({"text": TEXTS})
    expected = model.predict_probabilities(TEXTS)
    assert list(answer) == ["label", "probabilities", "score_good", "score_very_bad"]
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)
    np.testing.assert_allclose(answer["score_good"], expected[:, 1], atol=1e-6)
    assert answer["label"] == model.predict_labels(TEXTS)
    assert type(answer["probabilities"][0][0]) is float and len(str(answer["probabilities"][0][0])) < 14


def test_bytes_ids_and_examples_are_taken(exported, server):
    model = exported[0]["new"]
    expected = model.predict_probabilities(BYTES)
    feature = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for text in BYTES]
    examples = [
        tf.train.Example(features=tf.train.Features(feature={"text": each})).SerializeToString() for each in feature
    ]
    ids = [model.preprocessor([text]) for text in BYTES]  # of different lengths
    rows = {name: [each[name].numpy()[0].tolist() for each in ids] for name in ids[0]}
    assert len({len(row) for row in rows["token_ids"]}) == 2
    with open_client(server, "reviews") as client:
        for answer in (
            client.predict({"text": BYTES}),
            client.predict({"text": ["good", {"b64": "//4gYmFkIGZpbG0="}]}),
            client.predict({"examples": examples}, "examples"),
            client.predict(rows, "tokens"),
        ):
            np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)


def test_choices_of_different_numbers(exported, server):
    model = exported[0]["choices"]
    with open_client(server, "choices") as client:
        answer = client.predict(QUESTIONS)
    for row in range(2):
        question = {name: values[row : row + 1] for name, values in QUESTIONS.items()}
        expected = np.asarray(tf.nn.softmax(model.predict(question)))[0]
        np.testing.assert_allclose(answer["probabilities"][row][: len(expected)], expected, atol=1e-6)
        assert answer["choice"][row] == expected.argmax()
        assert answer["text"][row] == QUESTIONS["choices"][row][expected.argmax()]
    assert answer["probabilities"][1][2] == 0


def test_outputs_of_three_dimensions(exported, server):
    texts = ["a [MASK] film", "[MASK] [MASK]", "good"]
    with open_client(server, "words/all") as client:
        answer = client.predict({"text": texts})
    filled = exported[0]["words"].fill_masks(texts)
    assert answer["masks"] == [1, 2, 0]
    assert answer["words"][1] == [[word for word, _ in mask] for mask in filled[1]]
    assert answer["words"][2] == [[""] * 5] * 2


def test_versions_and_labels(exported, server):
    with open_client(server, "reviews") as client:
        assert [(each.number, each.state) for each in client.versions()] == [(2, "AVAILABLE"), (1, "AVAILABLE")]
    for version in (1, "stable"):
        with open_client(server, "reviews", version) as client:
            answer = client.predict({"text": TEXTS})
            assert answer["label"] == exported[0]["old"].predict_labels(TEXTS)
            assert [each.number for each in client.versions()] == [1]


def test_signatures_are_those_of_the_model(server):
    with open_client(server, "choices") as client:
        signatures = client.signatures()
    assert list(signatures) == ["examples", "serving_default", "tokens"]
    inputs, outputs = signatures["serving_default"]
    assert {name: str(spec) for name, spec in inputs.items()} == {
        "choices": "string [any, any]",
        "prompt": "string [any]",
    }
    assert {name: spec.dtype for name, spec in outputs.items()} == {
        "choice": "int32",
        "probabilities": "float",
        "text": "string",
    }
    assert signatures["tokens"].inputs["token_ids"] == ("int32", (-1, -1, -1))


@pytest.mark.parametrize(
    ("inputs", "signature", "message"),
    [
        ({"txt": ["a"]}, "serving_default", r"the signature takes text: string \[any\]; got txt"),
        ({}, "serving_default", "got nothing"),
        ({"text": ["a"]}, "classify", "no signature 'classify'; it has examples, serving_default, tokens"),
        (
            {"text": "a"},
            "serving_default",
            r"text must be string \[any\], a list of what is within; got 'a' for a list",
        ),
        ({"text": [["a"]]}, "serving_default", r"text must hold a text, or bytes as .*; got \['a'\]"),
        ({"text": [1]}, "serving_default", "text must hold a text.*; got 1"),
        ({"text": ["\ud800"]}, "serving_default", "text holds half of a surrogate pair"),
        ({"text": [{"b64": "%"}]}, "serving_default", "text must hold a text, or bytes"),
    ],
)
def test_requests_that_do_not_fit_are_not_sent(server, inputs, signature, message):
    with open_client(server, "reviews") as client, pytest.raises(ValueError, match=message):
        client.predict(inputs, signature)


def test_inputs_that_differ_in_rows_or_types_are_not_sent(server):
    with open_client(server, "choices") as client:
        with pytest.raises(ValueError, match=r"as many rows as the others, got \{'prompt': 1, 'choices': 2\}"):
            client.predict({"prompt": ["a"], "choices": [["a", "b"], ["c", "d"]]})
        ids = {name: [[[1, 2], [3]]] for name in ID_NAMES}
        for wrong in ("a", 1.5, True, None):
            with pytest.raises(ValueError, match=r"token_ids must be int32 \[any, any, any\], got .* in it"):
                client.predict({**ids, "token_ids": [[[wrong]]]}, "tokens")


def test_what_the_server_refuses_is_said(server):
    ids = {name: [[1] * 33] for name in ID_NAMES}
    with open_client(server, "reviews") as client:
        with pytest.raises(ServingError, match=r"refused the request .*the ids are longer than the 32 positions"):
            client.predict(ids, "tokens")
        with pytest.raises(ServingError, match=r"refused the request .*Could not parse example"):
            client.predict({"examples": ["no example"]}, "examples")


@pytest.mark.parametrize(
    ("model", "version", "message"),
    [
        ("half", None, r"does not serve half: Servable not found for request: Latest\(half\)"),
        ("reviews", 9, r"does not serve reviews \(version 9\): Servable .*Specific\(reviews, 9\)"),
        ("reviews", "canary", "refused the request .*: Unrecognized servable version label: canary"),
    ],
)
def test_models_that_are_not_there(server, model, version, message):
    with open_client(server, model, version) as client, pytest.raises(ServingError, match=message):
        client.predict({"text": ["a"]})


def test_versions_of_a_model_that_is_not_there(server):
    with (
        open_client(server, "half") as client,
        pytest.raises(ServingError, match="Could not find any versions of model"),
    ):
        client.versions()


def test_nothing_is_asked_of_it(server):
    with open_client(server, "reviews") as client:
        answer = client.predict({"text": []})
        assert answer["probabilities"] == answer["label"] == []
    with open_client(server, "choices") as client:
        nothing = {"prompt": [], "choices": []}
        if server.startswith("grpc"):
            assert client.predict(nothing)["choice"] == []
        else:
            with pytest.raises(ValueError, match=r"JSON cannot tell the shape \(0, 0\) of choices"):
                client.predict(nothing)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_no_server_is_there(scheme):
    (address,) = free_addresses(1)
    with open_client(f"{scheme}://{address}", "reviews") as client:
        for call in (client.versions, client.signatures, lambda: client.predict({"text": ["a"]})):
            with pytest.raises(ServingError, match=f"{address} is not available: .* Is it the port for"):
                call()


@pytest.mark.parametrize(("scheme", "name"), [("grpc", "gRPC"), ("http", "REST")])
def test_the_port_of_the_other_protocol(served, scheme, name):
    with http_server(rest_answers(served)) if scheme == "grpc" else grpc_server(served) as address:
        client = open_client(f"{scheme}://{address.partition('://')[2]}", "reviews")
        with client, pytest.raises(ServingError, match=rf"is not available: .* Is it the port for {name}"):
            client.signatures()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_does_not_answer(scheme):
    is_over = threading.Event()

    class Slow:
        def metadata(self, request):
            is_over.wait(10)
            raise StatusError("NOT_FOUND", "too late")

    def answer(method, path, body):
        is_over.wait(10)
        return 200, b"{}"

    with grpc_server(Slow()) if scheme == "grpc" else http_server(answer) as address:
        client = open_client(address, "reviews", timeout_seconds=0.2)
        with client, pytest.raises(ServingError, match=r"has not answered in 0\.2 seconds"):
            client.signatures()
        is_over.set()


@pytest.mark.parametrize("server", ["localhost:8500", "https://a:1", "grpc://a", "http://a:99999", "http://a:1/v1", ""])
def test_addresses_that_are_none(server):
    with pytest.raises(ValueError, match="a server's address is grpc://host:port or http://host:port"):
        open_client(server, "reviews")
