"""The program, and its page in a real browser."""

import concurrent.futures
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.load import Server
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.models.zero_shot import ZeroShotClassifier
from tests.models.exported_heads import heads
from tests.tools.browser import BROWSERS, Browser, installed_browsers
from tests.tools.program_flags import parse_flags
from tests.tools.test_attention_page import HOSTILE, SHOWN
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor
from tools import serve
from tools.attention import AttentionModel
from tools.served_model import ServedModel

ROOT = Path(__file__).parents[2]
CORPUS = ["a good film", "<b>bad</b>", "the plot", "dull , dull"]


def test_finds_the_newest_version(tmp_path):
    assert serve.find_newest(tmp_path) is None
    for name in ("2", "10", "x", "\u00b2", ".12.unfinished-0", "11"):
        (tmp_path / name).mkdir()
        if name != "11":  # one that is not complete
            (tmp_path / name / "saved_model.pb").touch()
    assert serve.find_newest(tmp_path) == tmp_path / "10"
    assert serve.find_newest(tmp_path / "2") == tmp_path / "2"


@pytest.mark.parametrize(
    "path, name",
    [
        ("models/reviews/1", "reviews"),
        ("models/reviews", "reviews"),
        ("runs/messages/saved_model/12", "messages"),
        ("runs/messages/", "messages"),
        ("bert_tiny_novels", "bert_tiny_novels"),
        ("hf://owner/a-model@v1.0", "a-model_v1.0"),
        ("a b:c", "a_b_c"),
    ],
)
def test_names_a_model(path, name):
    assert serve.model_name(path) == name


def test_rejects_folders_without_a_model(tmp_path):
    with pytest.raises(ValueError, match="holds no SavedModel, nor versions of one"):
        serve.load_model(parse_flags(serve, saved_model=tmp_path))
    with pytest.raises(FileNotFoundError, match=r"--run_dir: there is no .*missing"):
        serve.load_model(parse_flags(serve, run_dir=tmp_path / "missing"))


@pytest.mark.slow
def test_serves_presets_and_runs(tmp_path):
    model, checkpoint = serve.load_model(parse_flags(serve, preset="bert_tiny_novels"))
    assert (model.name, model.version) == ("bert_tiny_novels", "1")
    texts = ["It was a [MASK] night."]
    words = model.predict({"instances": texts})["predictions"][0]["words"]
    assert words == [[word for word, _ in BertPretrainer.from_preset("bert_tiny_novels").fill_masks(texts, 5)[0][0]]]
    assert "[MASK]" in serve.load_attention(checkpoint, "x")(texts)

    classifier = toy_classifier(["no", "yes"])
    classifier.save_checkpoint(tmp_path / "run" / "model")
    (tmp_path / "run" / "results.json").write_text('{"best": {"folder": "."}}')
    model, checkpoint = serve.load_model(parse_flags(serve, "--pairs", run_dir=tmp_path / "run", name="mine"))
    assert (model.name, model.labels, checkpoint) == ("mine", ["no", "yes"], tmp_path / "run" / "model")
    answer = model.predict({"instances": [{"text_a": "good", "text_b": "bad"}]})["predictions"][0]
    assert answer["label"] == classifier.predict_labels((["good"], ["bad"]))[0]

    classifier.export(tmp_path / "run" / "saved_model" / "4")
    model, _ = serve.load_model(parse_flags(serve, run_dir=tmp_path / "run"))
    assert (model.name, model.version) == ("run", "4")

    toy_encoder().save_checkpoint(tmp_path / "encoder", toy_preprocessor().tokenizer)
    model, _ = serve.load_model(parse_flags(serve, preset=tmp_path / "encoder"))
    assert len(model.predict({"instances": ["good"]})["predictions"][0]) == 16


@pytest.mark.parametrize(
    "sent, restarts",
    [
        ([], False),
        ([signal.SIGTERM], False),
        ([signal.SIGUSR1, signal.SIGUSR1], True),
        ([signal.SIGUSR1, signal.SIGTERM], False),
        ([signal.SIGTERM, signal.SIGUSR1], False),
    ],
)
def test_restarts_unless_it_was_told_to_end(sent, restarts):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}

    def raise_signals():
        for number in sent:
            signal.raise_signal(number)

    server = SimpleNamespace(serve_forever=raise_signals, shutdown=lambda: None)
    try:
        assert serve.serve(server, None) == restarts
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_an_encoder_without_attention_weights_is_served_without_them(tmp_path):
    (tmp_path / "model").mkdir()
    assert serve.load_attention(tmp_path / "model", "x") is None


@pytest.mark.slow
def test_a_process_serves_without_the_package(tmp_path):
    toy_classifier().export(tmp_path / "reviews" / "1")
    block = "import signal, sys, runpy; sys.modules['keras_bert'] = None; "
    block += "signal.signal(signal.SIGINT, signal.default_int_handler); "  # tests in the background ignore it
    block += "sys.argv[0] = 'serve'; runpy.run_module('tools.serve', run_name='__main__')"
    command = [sys.executable, "-c", block, f"--saved_model={tmp_path / 'reviews'}", "--port=0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "")
            address = next(match[1] for match in (re.match("REST: (http.*)", line) for line in lines) if match)
            request = urllib.request.Request(f"{address}:predict", b'{"instances": ["good"]}')
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["predictions"][0].keys() >= {"label", "probabilities"}
            assert address.endswith("/v1/models/reviews")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_a_new_version_and_a_restart_lose_no_request(tmp_path):
    folder, labels, done = tmp_path / "reviews", [], threading.Event()
    toy_classifier().export(folder / "1")
    toy_classifier(["no", "yes"]).export(tmp_path / "2")
    with Server(folder) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:

        def send():
            while not done.is_set():
                with urllib.request.urlopen(request) as answer:
                    labels.append(json.load(answer)["predictions"][0]["label"])

        def wait_for_answers():
            before = len(labels)
            while len(labels) < before + 9:
                ended = concurrent.futures.wait(futures, 0.01, concurrent.futures.FIRST_COMPLETED).done
                for future in ended:
                    future.result()  # raises the error of a request

        address = f"{server.address}/v1/models/reviews:predict"
        request = urllib.request.Request(address, b'{"instances": ["good"]}')
        futures = [pool.submit(send) for _ in range(3)]
        try:
            wait_for_answers()
            (tmp_path / "2").rename(folder / "2")
            while not server.versions:
                wait_for_answers()
            assert server.versions == ["2"]
            wait_for_answers()
            server.process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            server.restart()  # while it starts
            wait_for_answers()
        finally:
            done.set()
        for future in futures:
            future.result()
    versions = ["2" if label in ("no", "yes") else "1" for label in labels]
    assert len(labels) >= 27 and {*versions[:6]} == {"1"} and {*versions[-12:]} == {"2"}


# The page in a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    for program in installed_browsers():
        running = Browser(program, tmp_path_factory.mktemp("profile"))
        yield running
        running.close()
        return
    pytest.skip(f"no browser is installed (looked for {BROWSERS})")


@contextlib.contextmanager
def serving(model, attention=None):
    """Serves a model in a thread; the value is the page's address."""
    server = serve.make_server(model, attention, 0, 30)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def open_page(browser, address, width=1280):
    browser.open(address, width)
    browser.wait("document.documentElement.dataset.ready === 'yes'")


def run_by_keyboard(browser, texts):
    """Types the texts of all fields in their order, and presses the button; returns the lines of the result."""
    browser.evaluate("document.activeElement.blur(); document.querySelector('textarea').focus()")
    for name, text in texts.items():
        assert browser.evaluate("document.activeElement.id") == f"field-{name}"
        browser.type(text)
        browser.press("Tab")
    browser.press("Enter")
    return wait_for_result(browser)


def wait_for_result(browser):
    browser.wait("document.getElementById('result').getAttribute('aria-busy') === 'false'")
    return browser.evaluate("document.getElementById('result').innerText").split("\n")


def percent(share):
    return f"{100 * share:.1f}%"


def ranked(names, shares, text=percent):
    """The lines of a list of bars, longest first."""
    pairs = sorted(zip(names, shares, strict=True), key=lambda pair: -pair[1])
    return [line for name, share in pairs for line in (name, text(share))]


def expected_label(model, texts):
    row = model.predict({"instances": [texts]})["predictions"][0]
    return ranked(model.labels, row["probabilities"])


def expected_values(model, texts):
    row = model.predict({"instances": [texts]})["predictions"][0]
    return [line for name, value in zip(model.labels, row["values"], strict=True) for line in (name, f"{value:.4g}")]


def expected_masks(model, texts):
    row = model.predict({"instances": [texts]})["predictions"][0]
    first, second = row["words"]
    lines = [texts["text"].replace("[MASK]", first[0], 1).replace("[MASK]", second[0], 1), ""]
    for number, (words, shares) in enumerate(zip(row["words"], row["probabilities"], strict=True), start=1):
        lines += [f"[MASK] {number}", *ranked(words, shares)]
    return lines


def expected_answer(model, texts):
    row = model.predict({"instances": [texts]})["predictions"][0]
    assert texts["context"][row["start_character"] : row["end_character"]] == row["answer"] != ""
    return [row["answer"], "", *texts["context"].split("\n"), "", "Best answers, with their scores"]


def expected_choice(model, texts):
    choices = texts["choices"].split("\n")
    row = model.predict({"instances": [{**texts, "choices": choices}]})["predictions"][0]
    return [line for pair in zip(choices, map(percent, row["probabilities"]), strict=True) for line in pair]


def expected_tags(model, texts):
    row, text = model.predict({"instances": [texts]})["predictions"][0], texts["text"]
    prefix, types = ("entity_", "entity_types") if "entities" in row else ("", "tags")
    marked, position = "", 0
    for i in range(row["entity_count" if prefix else "word_count"]):
        end = row[f"{prefix}end_characters"][i]
        marked, position = f"{marked}{text[position:end]}{row[types][i]}", end
    assert position > 0
    return [marked + text[position:], "", "Probabilities"]


def expected_similarities(model, texts):
    rows = model.predict({"instances": [texts["text"], *texts["others"].split("\n")]})["predictions"]
    norms = [sum(value**2 for value in row) ** 0.5 for row in rows]
    cosines = [
        sum(a * b for a, b in zip(rows[0], row, strict=True)) / norms[0] / norm
        for row, norm in zip(rows[1:], norms[1:], strict=True)
    ]
    lines = ranked(texts["others"].split("\n"), cosines, lambda cosine: f"{cosine:.3f}")
    return [*lines, "", f"Cosines of vectors with {len(rows[0])} numbers."]


def expected_search(model, texts):
    row = model.predict({"instances": [texts], "signature_name": "search"})["predictions"][0]
    return ranked(row["texts"], row["scores"], lambda score: f"{score:.3f}")


def expected_labels(model, texts):
    labels = texts["labels"].split("\n")
    outputs = model.predict({"inputs": {"text": [texts["text"]], "labels": labels}})["outputs"]
    return ranked(labels, outputs["probabilities"][0])


# Texts of the fields, in the order of the page, and the result's lines.
TEXTS = {"text": "a good film"}
TAGGED = {"text": "A good film 👩‍🚀 was lovely, <b>bad</b>!"}
PAGES = {
    "classifier": (TEXTS, expected_label),
    "pairs": ({"text_a": "good", "text_b": "a dull <i>plot</i>"}, expected_label),
    "regression": (TEXTS, expected_values),
    "pretrainer": ({"text": "a [MASK] <b>film</b> & [MASK]"}, expected_masks),
    "span_labeler": ({"question": "was it good", "context": "👩‍🚀 A good film\nwas <b>lovely</b>."}, expected_answer),
    "multiple_choice": ({"prompt": "the film", "choices": "good\n<b>bad</b>\nwas a plot"}, expected_choice),
    "token_classifier": (TAGGED, expected_tags),
    "parts_of_speech": (TAGGED, expected_tags),
    "embedder": ({"text": "good", "others": "fine\n<b>bad</b>\ngood"}, expected_similarities),
    "search": ({"text": "a good plot"}, expected_search),
    "zero_shot": ({"text": "a good film", "labels": "good\n<b>film</b>\nplot"}, expected_labels),
}


# Without the labels that follow marked words.
TEXT_OF_RESULT = """(() => {
  const copy = document.getElementById("result").cloneNode(true);
  copy.querySelectorAll("small").forEach((label) => label.remove());
  return copy.textContent;
})()"""


def export(name, folder):
    if name == "search":
        embedder = BertTextEmbedder(toy_encoder(with_pooler=False), toy_preprocessor(), seed=1)
        return embedder.export(folder, corpus=CORPUS, top_k=3)
    if name == "zero_shot":
        return ZeroShotClassifier(toy_classifier(["contradiction", "entailment"])).export(folder)
    head = heads()[name]
    return head.model().export(folder, **head.arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_shows_the_answers_of_every_head(browser, name, tmp_path):
    model = ServedModel(export(name, tmp_path / name / "1"), name)
    texts, expected = PAGES[name]
    with serving(model) as address:
        for width in (1280, 390):
            open_page(browser, address, width)
            lines = run_by_keyboard(browser, texts)
            assert lines == expected(model, texts)
            assert browser.evaluate("document.documentElement.scrollWidth") == width
            assert browser.errors() == []
            assert all(request.startswith(address) for request in browser.requests())
        # Any text stays text.
        count = "document.querySelectorAll('script, img, iframe, a, link').length"
        before = browser.evaluate(count)
        run_by_keyboard(browser, dict.fromkeys(texts, "\n".join(["[MASK] good", *HOSTILE])))
        assert (browser.evaluate("document.title"), browser.evaluate(count)) == (name, before)
        assert browser.errors() == []
        if name not in ("classifier", "pairs", "regression", "search"):  # their results do not repeat the text
            result = browser.evaluate(TEXT_OF_RESULT)
            assert [text for text in HOSTILE if SHOWN.get(text, text) not in result] == []


class StubModel:
    """Has the signature of a classifier, and answers with hostile labels."""

    name, version, labels = "<i>stub", "1", HOSTILE

    def metadata(self):
        string, matrix = {"dim": [{"size": "-1"}]}, {"dim": [{"size": "-1"}, {"size": "-1"}]}
        outputs = {"label": {"tensor_shape": string}, "probabilities": {"tensor_shape": matrix}}
        signature = {"inputs": {"text": {"dtype": "DT_STRING", "tensor_shape": string}}, "outputs": outputs}
        return {"metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}}

    def predict(self, request):
        text = request["inputs"]["text"][0]
        if text == "bad":
            raise ValueError("<b>the text is bad</b>")
        probabilities = [1 / (i + 2) for i in range(len(self.labels))]
        return {"outputs": {"label": [self.labels[0]], "probabilities": [probabilities]}}


@pytest.mark.slow
def test_hostile_labels_and_errors_stay_text(browser):
    with serving(StubModel()) as address:
        open_page(browser, address)
        lines = run_by_keyboard(browser, {"text": "good"})
        assert lines[::2] == [SHOWN.get(label, label) for label in HOSTILE]
        assert browser.evaluate("document.querySelectorAll('#result li.chosen').length") == 1
        assert run_by_keyboard(browser, {"text": "bad"}) == ["<b>the text is bad</b>"]
        assert browser.evaluate("document.querySelector('#result .error') !== null")
        assert browser.evaluate("document.title") == "<i>stub"
        # The request is shown as a command for a shell.
        run_by_keyboard(browser, {"text": "it's $(good)"})
        _, command = browser.evaluate("document.getElementById('request').textContent").split(" ", 1)
        shown = subprocess.run(["bash", "-c", f"printf '%s\\n' {command}"], text=True, capture_output=True, check=True)
        path, _, body = shown.stdout.splitlines()
        assert path == f"{address}v1/models/%3Ci%3Estub:predict"
        assert json.loads(body) == {"signature_name": "serving_default", "inputs": {"text": ["it's $(good)"]}}
    assert run_by_keyboard(browser, {"text": "a"}) == ["The server does not answer. Is it still running?"]


@pytest.mark.slow
def test_empty_lists_and_shortcut(browser, tmp_path):
    with serving(ServedModel(export("zero_shot", tmp_path / "1"), "topics")) as address:
        open_page(browser, address, 390)
        assert run_by_keyboard(browser, {"text": "a", "labels": " \n"}) == ["“Labels, one per line” is empty."]
        error = run_by_keyboard(browser, {"text": "a", "labels": "good"})
        assert len(error) == 1 and error[0].startswith("the model refuses the request: ")
        browser.evaluate("document.getElementById('field-labels').focus()")
        browser.type("good\nbad")
        browser.press("Enter", control=True)
        browser.wait("document.querySelectorAll('#result li').length === 2")


@pytest.mark.slow
def test_selects_the_task_by_keyboard(browser, tmp_path):
    model = ServedModel(export("search", tmp_path / "1"), "texts")
    with serving(model) as address:
        open_page(browser, address, 390)
        browser.evaluate("document.querySelector('select').focus()")
        browser.press("ArrowDown")
        texts = {"text": "good", "others": "bad\nfine"}
        assert run_by_keyboard(browser, texts) == expected_similarities(model, texts)


@pytest.mark.slow
def test_shows_attention_in_a_new_tab(browser, tmp_path):
    checkpoint = toy_encoder().save_checkpoint(tmp_path / "model", toy_preprocessor().tokenizer)
    attention = AttentionModel(checkpoint, "toy").build_page
    with serving(ServedModel(export("span_labeler", tmp_path / "1"), "toy"), attention) as address:
        open_page(browser, address)
        run_by_keyboard(browser, {"question": "<b>was</b> it good", "context": "the plot"})
        browser.press("Tab")
        browser.press("Enter")
        browser.open_tab()
        browser.wait("document.documentElement.dataset.ready === 'yes'")
        assert browser.evaluate("document.title") == "<b>was</b> it good / the plot"
        assert browser.evaluate("document.querySelectorAll('.token').length") > 5
        assert browser.errors() == []
