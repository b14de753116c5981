import pytest

from keras_bert.text.final_text import final_text


@pytest.mark.parametrize(
    "answer, words, expected",
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1066", "(1066),", "1066"),
        ("cafe", "the café,", "café"),
        ("u . s .", "U.S. army", "U.S."),
        ("a b", "A\u00adb", "A\u00adb"),  # not found
        ("2", "2½", "2"),
        ("fi", "ﬁ", "ﬁ"),  # not found: BERT's tokens keep the ligature
        ("汉 字", "「汉字」", "汉字"),
        ("가", "가", "가"),  # one character becomes two letters
        ("[UNK]", "☃☃", "☃☃"),
        ("", "word", "word"),
        ("word", "", ""),
    ],
)
def test_finds_lower_cased_answers_in_their_words(answer, words, expected):
    assert final_text(answer, words, lower_case=True) == expected


def test_finds_cased_answers_in_their_words():
    assert final_text("Café", "«Café»", lower_case=False) == "Café"
    assert final_text("café", "«Café»", lower_case=False) == "«Café»"
