import pytest

from keras_bert.weights.bert_config import find_vocabulary, parse_encoder_arguments, read_json
from tests.weights.conftest import SIZES

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
CONFIG = {**SIZES, "hidden_act": "gelu"}


def test_optional_fields_have_defaults(tmp_path):
    assert parse_encoder_arguments(CONFIG, tmp_path / "bert_config.json", ACTIVATIONS) == {
        **SIZES,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }


@pytest.mark.parametrize("field", [*SIZES, "hidden_act"])
def test_names_missing_field(tmp_path, field):
    config = {name: value for name, value in CONFIG.items() if name != field}
    with pytest.raises(ValueError, match=rf"bert_config.json: the fields \['{field}'\] are missing"):
        parse_encoder_arguments(config, tmp_path / "bert_config.json", ACTIVATIONS)


SIZE, ACTIVATION = (
    "hidden_size must be an integer of at least 1; found",
    r"hidden_act must be one of \['gelu', 'relu'\]; found",
)
RATE = r"hidden_dropout_prob must be a number in \[0, 1\); found"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        *(("hidden_size", value, SIZE) for value in (0, -1, 2.5, "4", True, None)),
        ("num_attention_heads", 3, "found hidden_size 4 and num_attention_heads 3"),
        *(("hidden_act", value, ACTIVATION) for value in ("swish", None, ["gelu"])),
        *(("hidden_dropout_prob", value, RATE) for value in (1, -0.1, "0.1", True, float("nan"))),
    ],
)
def test_rejects_invalid_values(tmp_path, field, value, message):
    with pytest.raises(ValueError, match=f"bert_config.json: .*{message}"):
        parse_encoder_arguments(CONFIG | {field: value}, tmp_path / "bert_config.json", ACTIVATIONS)


def test_missing_file_lists_the_folder(tmp_path):
    (tmp_path / "other.txt").write_text("")
    message = r"config.json: there is no such file; the folder contains \['other.txt'\]"
    with pytest.raises(FileNotFoundError, match=message):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("content", [b"", b"{", b"version https://git-lfs", b"\xff\xfe{}", b"[1]"])
def test_rejects_file_that_is_not_a_json_object(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    message = "expected a JSON object, found list" if content == b"[1]" else f"not JSON .*{len(content)} bytes"
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested more than 32 deep"),
        ("1" * 400, "an integer of 400 characters; at most 40 are read"),
        ("-" + "1" * 5000, "an integer of 5001 characters"),
        ("1e400", "the number '1e400' is not finite"),
        ("NaN", "the number 'NaN' is not finite"),
        ("-Infinity", "the number '-Infinity' is not finite"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' occurs twice"),
        (r'"\ud800"', "surrogates not allowed"),
    ],
)
def test_refuses_json_that_is_not_safe_to_use(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(f'{{"hidden_size": {content}}}')
    with pytest.raises(ValueError, match=f"config.json: not JSON .*{message}"):
        read_json(path)


def test_reads_unusual_json_and_limits_its_size(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(r'{"a": "\ud83d\ude00", "b": 1000000000000000019884624838656, "c": [[[1.5e300]]]}')
    assert read_json(path) == {"a": "😀", "b": 1000000000000000019884624838656, "c": [[[1.5e300]]]}
    with pytest.raises(ValueError, match=rf"config.json: has {path.stat().st_size} bytes; at most 50 are read"):
        read_json(path, max_bytes=50)
    path.write_text(f'{{"a": [{"[],{}," * 10**6}[]]}}')
    with pytest.raises(ValueError, match=r"config.json: has more than 2000000 values"):
        read_json(path)


@pytest.mark.parametrize("content", ["a\nb\nc\n", "a\nb\nc", "a\r\nb\r\nc", "\u2028\nb\x0bx\n\u0085\n"])
def test_lines_of_a_vocabulary_end_at_line_feeds_only(tmp_path, content):
    path = tmp_path / "vocab.txt"
    path.write_text(content, encoding="utf-8", newline="")
    assert find_vocabulary(tmp_path, 3, tmp_path / "config.json") == path


@pytest.mark.parametrize(("vocab_size", "found"), [(2, 3), (4, 3)])
def test_rejects_vocabulary_of_another_size(tmp_path, vocab_size, found):
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match=rf"vocab.txt: expected {vocab_size} lines, .*config.json; found {found}"):
        find_vocabulary(tmp_path, vocab_size, tmp_path / "config.json")


def test_vocabulary_is_optional(tmp_path):
    assert find_vocabulary(tmp_path, 3, tmp_path / "config.json") is None
