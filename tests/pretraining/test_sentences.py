import random
import sys

import pytest

from keras_bert.pretraining import sentences
from keras_bert.pretraining.sentences import check_language, split_sentences
from tests.pretraining.stories import CHINESE, CHINESE_SENTENCES, KOREAN, KOREAN_SENTENCES, PARAGRAPHS, SENTENCES


@pytest.mark.parametrize("paragraph, expected", zip(PARAGRAPHS, SENTENCES, strict=True))
def test_splits_english_paragraphs(paragraph, expected):
    assert list(split_sentences(paragraph)) == expected


def test_splits_chinese_and_korean_paragraphs():
    assert [sentence for text in CHINESE for sentence in split_sentences(text, "zh")] == CHINESE_SENTENCES
    assert [sentence for text in KOREAN for sentence in split_sentences(text, "ko")] == KOREAN_SENTENCES


@pytest.mark.parametrize(
    "text",
    [
        '"Is that your boot?" | "It is not. | It is my brother\'s. | He is in the navy."',
        '"No! no!" he cried. | "Never! | I said so."',
        '"Wet?" replied he. | "Not more than a foot, I hope."',
        "'Tis he! | He comes.",
        "“Come out. | I can see you.”",
        '"They left at 5 p.m. on Monday," said Mr. Grey. | Nobody believed it.',
    ],
)
def test_quotations_of_several_sentences_are_split(text):
    expected = text.split(" | ")
    assert list(split_sentences(" ".join(expected))) == expected


@pytest.mark.parametrize("language", ["en", "zh", "xx"])
@pytest.mark.parametrize("window", [5, 64, 8192])
def test_nothing_but_white_space_is_lost(monkeypatch, language, window):
    monkeypatch.setattr(sentences, "_WINDOW", window)
    generator = random.Random(window)
    for _ in range(100):
        words = generator.choices(
            [*"aB9.!?-'\"“”‘’「」（）。？！中か가😀", "Mr.", "It's", "...", "e.g.", "\u200b"], k=60
        )
        text = "".join(word + generator.choice([" ", ""]) for word in words).strip()
        found = list(split_sentences(text, language))
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(sentence and sentence == sentence.strip() for sentence in found)


def test_long_paragraphs_are_split_like_short_ones(monkeypatch):
    expected = CHINESE_SENTENCES * 20
    text = "".join(expected)
    for window in (60, 200, 8192):
        monkeypatch.setattr(sentences, "_WINDOW", window)
        assert list(split_sentences(text, "zh")) == expected
    monkeypatch.setattr(sentences, "_WINDOW", 5)
    assert list(split_sentences("渡船离开了小岛" * 100 + "。再见。", "zh")) == ["渡船离开了小岛" * 100 + "。", "再见。"]


def test_the_time_is_linear_in_the_length(monkeypatch):
    lengths = []

    def segment(language, text):
        lengths.append(len(text))
        return [text[i : i + 100] for i in range(0, len(text), 100)]

    monkeypatch.setattr(sentences, "_load_segment_function", lambda: segment)
    assert len(list(split_sentences(("渡船离开了小岛。再" * 100) * 1000, "zh"))) == 9_000
    assert max(lengths) <= 8192
    assert sum(lengths) < 1_000_000


def test_invalid_languages_are_refused():
    for language in ("en", "zh", "ko", "zh-hant", "yue"):
        check_language(language)
    for language in ("English", "", "e", None, "zh_CN"):
        with pytest.raises(ValueError, match="must be a language code"):
            check_language(language)


def test_a_missing_library_is_named(monkeypatch):
    sentences._load_segment_function.cache_clear()
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ImportError, match=r"pip install 'keras-bert-zoo\[pretraining\]'"):
        check_language("en")
    monkeypatch.undo()
    check_language("en")
