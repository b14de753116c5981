import base64
import hashlib
import html
import html.parser
import json
import re
import subprocess

import numpy as np
import pytest

from tests.tools.browser import BROWSERS, OPTIONS, installed_browsers
from tools import attention_page
from tools.attention_page import ROUNDING_ERROR, Attention, build_page, check_size, encode_weights

HOSTILE = [
    *("</script><script>document.title='broken out'</script>", "<!--<script>", "$style", "&lt;", "]]>", "__proto__"),
    *("<img src=x onerror=\"document.title='broken out'\">", "\"'`${alert(1)}\\", "👩‍🚀", "שלום", "\u202egnp.exe"),
    *("a\u2028b", "nul\x00", "##ing"),
]
# Invisible characters are shown by their code points.
SHOWN = {"\u202egnp.exe": "U+202Egnp.exe", "a\u2028b": "aU+2028b", "nul\x00": "nulU+0000"}


def random_attention(length=7, layers=(0, 1), heads=2, tokens=None, seed=1):
    """Rows of weights from flat to concentrated on one token."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=[len(layers), heads, length, length]) * generator.uniform(0, 12, [length, 1])
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return Attention(
        tokens=tokens or ["[CLS]", *(f"word{i}" for i in range(1, length - 1)), "[SEP]"],
        segment_ids=[0] * (length - 2) + [1] * 2,
        special=[0, length - 1],
        layers=list(layers),
        weights=(weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32),
    )


class Elements(html.parser.HTMLParser):
    """The tags of a page in order, and the contents of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)


def read_data(page):
    """The data in a page, as its script reads them."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def decode_weights(data):
    """[layers, heads, from, to] of a page's data."""
    shape = len(data["layers"]), data["heads"], len(data["tokens"])
    maxima, codes = (b"".join(map(base64.b64decode, data[name])) for name in ("maxima", "codes"))
    maxima = np.frombuffer(maxima, "<f4").reshape(*shape, 1)
    return maxima * (np.frombuffer(codes, np.uint8).reshape(*shape, shape[-1]) / 255) ** 2


@pytest.mark.parametrize("length", [1, 2, 20, 512])
def test_rounding_error_is_bounded(length):
    weights = random_attention(max(length, 2)).weights[..., :length, :length]
    weights = weights / weights.sum(axis=-1, keepdims=True)
    codes, maxima = encode_weights(weights)
    decoded = maxima[..., None].astype(np.float64) * (codes / 255) ** 2
    assert np.abs(decoded - weights).max() <= ROUNDING_ERROR
    np.testing.assert_array_equal(decoded.max(axis=-1), weights.max(axis=-1))
    # By the bound of each weight, as the roots of a row's weights sum to at most that of their number.
    np.testing.assert_allclose(decoded.sum(axis=-1), 1, rtol=0, atol=length**0.5 / 255 + length / 510**2)


def test_page_holds_the_weights():
    attention = random_attention(layers=(3, 5))
    data = read_data(build_page(attention, "a title", "a subtitle", ["a", "b"]))
    np.testing.assert_allclose(decode_weights(data), attention.weights, rtol=0, atol=ROUNDING_ERROR)
    for name in ("tokens", "segment_ids", "special", "layers"):
        assert data[name] == getattr(attention, name)
    assert (data["title"], data["subtitle"], data["texts"], data["heads"]) == ("a title", "a subtitle", ["a", "b"], 2)


def test_hostile_text_stays_data():
    plain = random_attention(len(HOSTILE))
    hostile = plain._replace(tokens=HOSTILE)
    everywhere = "".join(HOSTILE)
    page = build_page(hostile, everywhere, everywhere, HOSTILE)
    elements, expected = Elements(page), Elements(build_page(plain, "", "", []))
    assert elements.tags == expected.tags
    assert elements.scripts[1:] == expected.scripts[1:]
    data = json.loads(elements.scripts[0])
    assert data["tokens"] == data["texts"] == HOSTILE
    assert data["title"] == data["subtitle"] == everywhere
    assert not set(page) & {"\x00", "\u2028", "\u202e"}


def test_page_makes_no_requests_and_runs_one_script():
    page = build_page(random_attention(), "", "", [])
    assert not re.search(r"https?:|\bsrc=|\bhref=|url\(|@import|\bimport\b|fetch\(|innerHTML|eval\(", page)
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    hashes = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in (script, style)]
    assert policy == "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'".format(*hashes)


def test_rejects_too_many_weights(monkeypatch):
    check_size(12, 12, 512)
    message = r"24 layers of 16 heads with 512 tokens are 100,663,296 weights.* 67,108,864; shorten the texts"
    with pytest.raises(ValueError, match=message):
        check_size(24, 16, 512)
    monkeypatch.setattr(attention_page, "MAX_WEIGHTS", 2 * 2 * 7 * 7 - 1)
    with pytest.raises(ValueError, match="a page holds at most 195"):
        build_page(random_attention(), "", "", [])


def open_file(browser, file, fragment=""):
    """Opens a file in a headless browser; returns the document and the lines of its console."""
    options = [*OPTIONS, "--enable-logging=stderr", "--window-size=1280,900", "--dump-dom"]
    command = [browser, *options, f"--user-data-dir={file.parent / 'profile'}", f"{file.as_uri()}{fragment}"]
    process = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120)
    return process.stdout, [line for line in process.stderr.splitlines() if "CONSOLE" in line]


def open_page(browser, folder, page, fragment=""):
    """Opens a page in a headless browser; returns the document."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    document, console = open_file(browser, folder / "page.html", fragment)
    assert console == []
    return document


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A Chromium-based browser that can open a file."""
    probe = tmp_path_factory.mktemp("browser") / "probe.html"
    probe.write_text("<body><script>document.body.append(6 * 7)</script>")
    for program in installed_browsers():
        if "42" in open_file(program, probe)[0]:
            return program
    pytest.skip(f"no browser is installed that can open a file (looked for {BROWSERS})")


def strip_tags(markup):
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def read_tokens(document):
    """(what is shown of the token, its weight) of all tokens in a document."""
    pairs = re.findall(r'<span class="word">(.*?)</span> <span class="weight">(.*?)</span>', document, re.DOTALL)
    return [(strip_tags(word), float(weight.removesuffix("%")) / 100) for word, weight in pairs]


def read_element(document, name):
    return strip_tags(re.search(rf'<(\w+) id="{name}"[^>]*>(.*?)</\1>', document, re.DOTALL)[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fragment, token, choose",
    [
        ("#layer=5&head=1&token=3", 3, lambda weights: weights[1, 1, 3]),
        ("#layer=3&head=0&token=2&direction=to", 2, lambda weights: weights[0, 0, :, 2]),
        ("#layer=5&head=average&token=6", 6, lambda weights: weights[1].mean(axis=0)[6]),
        ("#layer=3&head=maximum&token=0&direction=to", 0, lambda weights: weights[0].max(axis=0)[:, 0]),
        ("#layer=4&head=2&token=7&direction=__proto__", 1, lambda weights: weights[0, 0, 1]),  # none of it is there
        ("", 1, lambda weights: weights[0, 0, 1]),
    ],
)
def test_browser_shows_the_selection_in_the_address(browser, tmp_path, fragment, token, choose):
    attention = random_attention(layers=(3, 5))
    document = open_page(browser, tmp_path, build_page(attention, "a title", "a subtitle", ["a text"]), fragment)
    assert 'data-ready="yes"' in document
    words, weights = zip(*read_tokens(document), strict=True)
    assert list(words) == attention.tokens
    expected = choose(attention.weights)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=ROUNDING_ERROR + 0.0005)  # tenths of a percent
    buttons = re.findall(r'<button [^>]*class="token"[^>]*>', document)
    assert [index for index, button in enumerate(buttons) if 'aria-pressed="true"' in button] == [token]
    assert f"{attention.tokens[token]} (token {token})" in read_element(document, "summary")
    assert document.count("<canvas") == 2 * 4 + 1
    assert (read_element(document, "title"), read_element(document, "subtitle")) == ("a title", "a subtitle")
    assert strip_tags(re.search(r"<title>.*?</title>", document)[0]) == "a title"


@pytest.mark.slow
def test_browser_shows_hostile_text(browser, tmp_path):
    attention = random_attention(len(HOSTILE), tokens=HOSTILE)
    document = open_page(browser, tmp_path, build_page(attention, HOSTILE[0], HOSTILE[1], HOSTILE))
    shown = [SHOWN.get(token, token) for token in HOSTILE]
    assert [word for word, _ in read_tokens(document)] == shown
    assert strip_tags(re.search(r"<title>.*?</title>", document)[0]) == HOSTILE[0]
    assert read_element(document, "texts") == "".join(shown)
    assert not re.search("<img|<script>document", document)


DRIVER = """
const reports = [];
const report = () => reports.push(`${location.hash} ${document.activeElement.dataset.token ?? ""}`.trim());
const press = (key) => {
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  report();
};
const stops = (selector) => [...document.querySelectorAll(selector)].filter((button) => button.tabIndex === 0);
report();
stops(".token")[0].focus();
["ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft", "ArrowDown", "ArrowUp"].forEach(press);
stops(".cell")[0].focus();
["ArrowRight", "ArrowDown", "ArrowDown", "End", "ArrowRight", "Home", "ArrowUp"].forEach(press);
document.querySelectorAll(".token")[4].click(); report();
document.querySelectorAll(".cell")[6].click(); report();
document.querySelector("input[value=to]").click(); report();
const head = document.querySelector("#head");
head.value = "maximum"; head.dispatchEvent(new Event("change")); report();
const weights = () => [...document.querySelectorAll(".weight")].map((each) => each.textContent).join();
const before = weights();
const pointed = document.querySelectorAll(".token")[2];
pointed.dispatchEvent(new PointerEvent("pointerover", { pointerType: "mouse", bubbles: true }));
reports.push(document.querySelector("#summary").textContent.slice(0, 29), pointed.className, before !== weights());
document.querySelector("#tokens").dispatchEvent(new PointerEvent("pointerleave")); reports.push(before === weights());
document.querySelector("#ordinary").click();
reports.push([...document.querySelectorAll(".token")].map((each) => each.style.getPropertyValue("--shade") > 0).join());
const box = document.querySelector("#matrix canvas").getBoundingClientRect();
const position = { clientX: box.left + box.width * 0.99, clientY: box.top + box.height * 0.5, bubbles: true };
document.querySelector("#matrix").dispatchEvent(new PointerEvent("pointermove", position));
reports.push(document.querySelector("#place").textContent);
document.querySelector("#matrix").dispatchEvent(new MouseEvent("click", position)); report();
reports.push([stops(".token").length, stops(".cell").length].join());
document.body.append(Object.assign(document.createElement("pre"), { id: "reports", textContent: reports.join("\\n") }));
"""


@pytest.mark.slow
def test_browser_handles_keys_and_pointer(browser, tmp_path):
    attention = random_attention(layers=(3, 5))
    page = build_page(attention, "", "", [])
    page = re.sub("<meta http-equiv[^>]*>", "", page).replace("</body>", f"<script>{DRIVER}</script></body>")
    document = open_page(browser, tmp_path, page)

    def at(layer, head, token, focus="", direction="from"):
        return f"#layer={layer}&head={head}&token={token}&direction={direction} {focus}".strip()

    # Token 5 begins the second text, which is on a line of its own.
    tokens = [at(3, 0, token, token) for token in (2, 6, 6, 5, 0, 0, 5, 0)]
    cells = [at(*cell, 0) for cell in ((3, 1), (5, 1), (5, 1), (5, "maximum"), (5, "maximum"), (5, 0), (3, 0))]
    weight = attention.weights[1].max(axis=0)[3, 6]
    *reports, hovered, clicked, tab_stops = read_element(document, "reports").splitlines()
    assert reports == [
        at(3, 0, 1),
        *tokens,
        *cells,
        at(3, 0, 4),
        at(5, "average", 4),
        at(5, "average", 4, direction="to"),
        at(5, "maximum", 4, direction="to"),
        "Attention to word2 (token 2):",
        "token pointed",
        "true",
        "true",
        "false,true,true,true,true,true,false",
    ]
    assert hovered.startswith("word3 (3) attends to [SEP] (6): ")
    assert float(hovered.split()[-1].removesuffix("%")) == pytest.approx(100 * weight, abs=100 * ROUNDING_ERROR + 0.05)
    assert clicked == at(5, "maximum", 6, direction="to")
    assert tab_stops == "1,1"
