"""Reads and writes the tokenizer of a Hugging Face folder: `tokenizer.json`, `tokenizer_config.json`, `vocab.txt`.

A `tokenizer.json` is read only if our `BertTokenizer` tokenizes as it says; any other setting is refused by its name.
Three of its parts have no influence on the ids of a text and are not read: `decoder`, `truncation` and `padding` (the
last two are set by the caller in their libraries, too).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.io.special_tokens import (
    CLASSIFICATION_TOKEN,
    MASK_TOKEN,
    PADDING_TOKEN,
    SEPARATOR_TOKEN,
    SPECIAL_TOKENS,
    UNKNOWN_TOKEN,
)
from keras_bert.weights.bert_config import find_vocabulary, read_json, shorten

VOCABULARY_NAME = "vocab.txt"
TOKENIZER_NAME = "tokenizer.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
PREFIX = "##"
_VERSION = "1.0"
_MAX_TOKENIZER_BYTES = 2**25
LARGEST_WORD_LIMIT = 999  # of BertTokenizer
_THEIR_WORD_LIMIT = 100  # that their class BertTokenizer applies, whatever tokenizer.json says
# Their classes whose tokenizer is BERT's, or the one that tokenizer.json describes.
_OWN_CLASS, _GENERIC_CLASS = "BertTokenizer", "PreTrainedTokenizerFast"
_CLASSES = (
    _OWN_CLASS,
    "BertTokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
    _GENERIC_CLASS,
    "TokenizersBackend",
)
# The names of the special tokens in tokenizer_config.json.
_TOKEN_ROLES = {
    "unk_token": UNKNOWN_TOKEN,
    "cls_token": CLASSIFICATION_TOKEN,
    "sep_token": SEPARATOR_TOKEN,
    "pad_token": PADDING_TOKEN,
    "mask_token": MASK_TOKEN,
}
# The only values of other settings in tokenizer_config.json that our tokenizer has.
_ONLY_SETTINGS = {
    "tokenize_chinese_chars": True,
    "do_basic_tokenize": True,
    "padding_side": "right",
    "truncation_side": "right",
}
_MODEL_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
_ADVICE = (
    "keras_bert has only BERT's own tokenizer. To use the weights alone, copy the folder without its tokenizer's files "
    "and pass vocabulary= where a tokenizer is needed."
)


@dataclass(frozen=True)
class FolderTokenizer:
    """The tokenizer of a folder; None for whatever the folder does not state."""

    vocabulary: Path | tuple[str, ...] | None = None
    lower_case: bool | None = None
    strip_accents: bool | None = None  # None: as `lower_case`
    max_characters_per_word: int | None = None
    max_length: int | None = None  # of an input in tokens


@dataclass(frozen=True)
class TokenizerSettings:
    """Tokenizer settings to write to the folder."""

    vocabulary: Sequence[str]  # wordpieces in the order of their ids
    lower_case: bool
    strip_accents: bool | None = None  # None: as `lower_case`
    max_characters_per_word: int = 200


def read_tokenizer(
    folder: Path, vocab_size: int | None = None, config_path: Path = Path("config.json")
) -> FolderTokenizer:
    """Reads the tokenizer of a folder: its `vocab.txt`, its `tokenizer.json`, or both if they agree.

    `vocab_size` is the encoder's, as `config_path` states it. Raises ValueError if the files are
    corrupt, contradict each other or the encoder, or describe a tokenizer that `BertTokenizer` is not.

    >>> read_tokenizer(Path("folder/without/tokenizer")).vocabulary is None
    True
    """
    tokenizer_path, settings_path = folder / TOKENIZER_NAME, folder / TOKENIZER_CONFIG_NAME
    settings = _read_settings(settings_path) if settings_path.is_file() else {}
    max_length = settings.get("model_max_length")
    if not tokenizer_path.is_file():
        return FolderTokenizer(
            find_vocabulary(folder, vocab_size, config_path),
            settings.get("do_lower_case"),
            settings.get("strip_accents"),
            max_length=max_length,
        )
    read = read_tokenizer_json(tokenizer_path)
    assert isinstance(read.vocabulary, tuple)
    wordpieces = read.vocabulary
    if vocab_size is not None and len(read.vocabulary) != vocab_size:
        raise ValueError(
            f"{tokenizer_path}: expected {vocab_size} wordpieces, the vocab_size of {config_path}; found "
            f"{len(read.vocabulary)}. Put the tokenizer that belongs to these weights into the folder."
        )
    read = _apply_settings(read, tokenizer_path, settings, settings_path)
    vocabulary = find_vocabulary(folder, vocab_size, config_path)
    if vocabulary is not None:
        _check_same_vocabulary(wordpieces, tokenizer_path, vocabulary)
    return replace(read, vocabulary=vocabulary or read.vocabulary, max_length=max_length)


def read_tokenizer_json(path: Path) -> FolderTokenizer:
    """Reads a `tokenizer.json` of the tokenizers library; ValueError unless it is the tokenizer of a BERT."""
    document = read_json(path, _MAX_TOKENIZER_BYTES)
    _require(path, "version", document.get("version"), _VERSION)
    vocabulary, max_characters_per_word = _read_model(document.get("model"), path)
    vocabulary = _add_tokens(vocabulary, document.get("added_tokens"), path)
    ids = {token: index for index, token in enumerate(vocabulary)}
    missing = [token for token in SPECIAL_TOKENS if token not in ids and token != MASK_TOKEN]
    if missing:
        raise ValueError(f"{path}: the vocabulary lacks {missing}, which a BERT needs. {_ADVICE}")
    lower_case, strip_accents = _read_normalizer(document.get("normalizer"), path)
    _check_type(path, "pre_tokenizer", _only_member(document.get("pre_tokenizer"), "pretokenizers"), "BertPreTokenizer")
    _check_post_processor(document.get("post_processor"), ids, path)
    return FolderTokenizer(tuple(vocabulary), lower_case, strip_accents, max_characters_per_word)


def tokenizer_files(settings: TokenizerSettings, max_length: int) -> dict[str, str]:
    """Returns the contents of a folder's tokenizer files by name.

    They give the ids that `settings` describe in transformers, sentence-transformers and text-embeddings-inference.
    Their class `BertTokenizer` limits words to 100 characters; with another limit their generic class is named, which
    does what `tokenizer.json` says. `tokenizer.json` cannot hold a vocabulary with an entry that occurs twice; it is
    omitted then.
    """
    files = {VOCABULARY_NAME: "".join(f"{token}\n" for token in settings.vocabulary)}
    has_json = len(set(settings.vocabulary)) == len(settings.vocabulary)
    if has_json:
        files[TOKENIZER_NAME] = to_json(_tokenizer_document(settings))
    else:
        logging.warning("the vocabulary has repeated entries, which a %s cannot hold: not written", TOKENIZER_NAME)
    own_class = not has_json or settings.max_characters_per_word == _THEIR_WORD_LIMIT
    configuration: dict[str, Any] = {
        "tokenizer_class": _OWN_CLASS if own_class else _GENERIC_CLASS,
        "do_lower_case": settings.lower_case,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        "model_input_names": _MODEL_INPUTS,
        **{role: token for role, token in _TOKEN_ROLES.items() if token in settings.vocabulary},
    }
    if settings.strip_accents not in (None, settings.lower_case):
        configuration["strip_accents"] = settings.strip_accents
    files[TOKENIZER_CONFIG_NAME] = to_json(configuration)
    return files


def to_json(value: Any) -> str:
    """Returns an indented JSON document."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _tokenizer_document(settings: TokenizerSettings) -> dict[str, Any]:
    ids = {token: index for index, token in enumerate(settings.vocabulary)}
    strip_accents = settings.strip_accents
    return {
        "version": _VERSION,
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in sorted(set(SPECIAL_TOKENS) & ids.keys(), key=ids.__getitem__)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None if strip_accents == settings.lower_case else strip_accents,
            "lowercase": settings.lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _template(0),
            "pair": [*_template(0), *_template(1)[1:]],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in (CLASSIFICATION_TOKEN, SEPARATOR_TOKEN)
                if token in ids
            },
        },
        "decoder": {"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNKNOWN_TOKEN,
            "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": settings.max_characters_per_word,
            "vocab": ids,
        },
    }


def _template(segment: int) -> list[dict[str, Any]]:
    """Returns [CLS] text [SEP] of one segment, as their `TemplateProcessing` stores it."""
    parts = [("SpecialToken", CLASSIFICATION_TOKEN), ("Sequence", "AB"[segment]), ("SpecialToken", SEPARATOR_TOKEN)]
    return [{kind: {"id": name, "type_id": segment}} for kind, name in parts]


def _require(path: Path, name: str, found: Any, expected: Any) -> None:
    """Raises ValueError unless a setting has the one value that our tokenizer has; 1 is not True here."""
    if type(found) is not type(expected) or found != expected:
        raise ValueError(f"{path}: {name} must be {expected!r}; found {shorten(found)}. {_ADVICE}")


def _check_type(path: Path, name: str, part: Any, expected: str) -> None:
    """Raises ValueError unless a part of the file is an object of a type."""
    _require(path, name, part.get("type") if isinstance(part, dict) else None, expected)


def _only_member(part: Any, key: str) -> Any:
    """Returns the only member of a Sequence of one, which is that member; otherwise the part itself."""
    members = part.get(key) if isinstance(part, dict) and part.get("type") == "Sequence" else None
    return members[0] if isinstance(members, list) and len(members) == 1 else part


def _read_model(model: Any, path: Path) -> tuple[list[str], int]:
    """Returns the wordpieces in the order of their ids, and the maximum length of a word."""
    if not isinstance(model, dict):
        raise ValueError(f"{path}: model must be an object; found {shorten(model)}. Fetch the file again.")
    # Old files do not name the type; only WordPiece has this limit.
    if "type" in model or "max_input_chars_per_word" not in model:
        _require(path, "the type of the model", model.get("type"), "WordPiece")
    _require(path, "model.unk_token", model.get("unk_token"), UNKNOWN_TOKEN)
    _require(path, "model.continuing_subword_prefix", model.get("continuing_subword_prefix"), PREFIX)
    limit = model.get("max_input_chars_per_word")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LARGEST_WORD_LIMIT:
        raise ValueError(
            f"{path}: model.max_input_chars_per_word must be an integer from 1 to {LARGEST_WORD_LIMIT}; found "
            f"{shorten(limit)}. {_ADVICE}"
        )
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(index) is int for index in vocabulary.values()):
        raise ValueError(f"{path}: model.vocab must be an object {{wordpiece: id}}. Fetch the file again.")
    return _in_order(vocabulary, path), limit


def _in_order(vocabulary: Mapping[str, int], path: Path) -> list[str]:
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    for index, token in enumerate(tokens):
        if vocabulary[token] != index:
            raise ValueError(
                f"{path}: the ids of the vocabulary must be 0, 1, 2, ..., without a hole and each once; the id of "
                f"{shorten(token)} is {vocabulary[token]}, and {index} was expected. Correct the file."
            )
    return tokens


def _add_tokens(vocabulary: list[str], added: Any, path: Path) -> list[str]:
    """Returns the vocabulary with the added tokens, which may be missing from the model's own."""
    if added is None:
        return vocabulary
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise ValueError(f"{path}: added_tokens must be a list of objects; found {shorten(added)}. Correct the field.")
    ids = {token: index for index, token in enumerate(vocabulary)}
    for token in added:
        content, index = token.get("content"), token.get("id")
        if content not in SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: added_tokens may be {list(SPECIAL_TOKENS)}; found {shorten(content)}, which would be a token "
                f"of its own wherever a text contains it. {_ADVICE}"
            )
        # They decide where the token is found in a text. Whether it takes the white space next to it does not matter.
        for name in ("single_word", "normalized"):
            _require(path, f"{name} of the added token {content}", token.get(name), False)
        if type(index) is not int or ids.setdefault(content, index) != index:
            raise ValueError(
                f"{path}: the added token {content} must have the id {ids.get(content)}, as in model.vocab; found "
                f"{shorten(index)}. Correct the file."
            )
    return vocabulary if len(ids) == len(vocabulary) else _in_order(ids, path)


def _read_normalizer(normalizer: Any, path: Path) -> tuple[bool, bool | None]:
    """Returns lower_case and strip_accents."""
    normalizer = _only_member(normalizer, "normalizers")
    _check_type(path, "normalizer", normalizer, "BertNormalizer")
    for name in ("clean_text", "handle_chinese_chars"):
        _require(path, f"normalizer.{name}", normalizer.get(name), True)
    lower_case = _boolean_or_none(normalizer, "lowercase", path)
    if lower_case is None:
        raise ValueError(f"{path}: normalizer.lowercase must be true or false; found null. Correct the field.")
    return lower_case, _boolean_or_none(normalizer, "strip_accents", path)


def _check_post_processor(processor: Any, ids: Mapping[str, int], path: Path) -> None:
    """Raises ValueError unless a text becomes [CLS] text [SEP], and a pair [CLS] a [SEP] b [SEP]."""
    special = {token: ids[token] for token in (CLASSIFICATION_TOKEN, SEPARATOR_TOKEN)}
    if isinstance(processor, dict) and processor.get("type") == "BertProcessing":
        for name, (token, index) in zip(("cls", "sep"), special.items(), strict=True):
            _require(path, f"post_processor.{name}", processor.get(name), [token, index])
        return
    _check_type(path, "post_processor", processor, "TemplateProcessing")
    _require(path, "post_processor.single", processor.get("single"), _template(0))
    _require(path, "post_processor.pair", processor.get("pair"), [*_template(0), *_template(1)[1:]])
    expected = {token: {"id": token, "ids": [index], "tokens": [token]} for token, index in special.items()}
    _require(path, "post_processor.special_tokens", processor.get("special_tokens"), expected)


def _read_settings(path: Path) -> dict[str, Any]:
    """Reads a `tokenizer_config.json`; ValueError if it asks for what our tokenizer does not do."""
    settings = read_json(path)
    name = settings.get("tokenizer_class")
    if name is not None and name not in _CLASSES:
        raise ValueError(f"{path}: tokenizer_class must be one of {_CLASSES}; found {shorten(name)}. {_ADVICE}")
    for flag, only in _ONLY_SETTINGS.items():
        if settings.get(flag) is not None:
            _require(path, flag, settings[flag], only)
    for role, token in _TOKEN_ROLES.items():
        if settings.get(role) is not None:
            _require(path, role, _content(settings[role]), token)
    for name in ("never_split", "additional_special_tokens", "extra_special_tokens"):
        tokens = settings.get(name) or []
        tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
        if not isinstance(tokens, list) or any(_content(token) not in SPECIAL_TOKENS for token in tokens):
            raise ValueError(
                f"{path}: {name} may have {list(SPECIAL_TOKENS)} only; found {shorten(settings[name])}. {_ADVICE}"
            )
    for name in ("do_lower_case", "strip_accents"):
        _boolean_or_none(settings, name, path)
    max_length = settings.get("model_max_length")
    if isinstance(max_length, float) and max_length.is_integer():
        max_length = settings["model_max_length"] = int(max_length)  # 1e30 is their "no limit"
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise ValueError(
            f"{path}: model_max_length must be an integer of at least 1; found {shorten(max_length)}. Correct the "
            "field."
        )
    return settings


def _content(token: Any) -> Any:
    """Returns the text of a token, which may be stored with its flags."""
    return token.get("content") if isinstance(token, dict) else token


def _apply_settings(
    read: FolderTokenizer, path: Path, settings: Mapping[str, Any], settings_path: Path
) -> FolderTokenizer:
    """Lets `tokenizer_config.json` win over `tokenizer.json`, as transformers does, with a warning if they differ."""
    lower_case = settings.get("do_lower_case")
    stated = replace(
        read,
        lower_case=read.lower_case if lower_case is None else lower_case,
        strip_accents=settings.get("strip_accents", read.strip_accents),
    )
    ours, theirs = (
        (one.lower_case, one.lower_case if one.strip_accents is None else one.strip_accents) for one in (stated, read)
    )
    if ours != theirs:
        text = (
            "%s states lower-casing %s and stripping of accents %s, which counts, as in transformers; %s states %s, %s"
        )
        logging.warning(text, settings_path, *ours, path, *theirs)
    return stated


def _check_same_vocabulary(tokens: Sequence[str], path: Path, vocabulary: Path) -> None:
    # Readers of a vocab.txt strip every line, as the original does.
    try:
        lines = vocabulary.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{vocabulary}: not UTF-8 ({error}). Fetch the file again.") from error
    if len(lines) != len(tokens):
        raise ValueError(
            f"{vocabulary}: contradicts {path}: it has {len(lines)} wordpieces, and {len(tokens)} are there. Remove "
            "the file that is not of these weights."
        )
    pairs = enumerate(zip(lines, tokens, strict=True))
    different = next((index for index, (line, token) in pairs if line.strip() != token.strip()), None)
    if different is not None:
        raise ValueError(
            f"{vocabulary}: contradicts {path}: the wordpiece {different} is {shorten(lines[different].strip())} there "
            f"and {shorten(tokens[different])} here. Remove the file that is not of these weights."
        )


def _boolean_or_none(settings: Mapping[str, Any], name: str, path: Path) -> bool | None:
    value = settings.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{path}: {name} must be true or false; found {shorten(value)}. Correct the field.")
    return value
