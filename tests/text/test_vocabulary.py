import pytest

from keras_bert.text.vocabulary import check_vocabulary, is_lower_case_vocabulary, load_vocabulary

SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"


def write(folder, content):
    path = folder / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_lines_end_at_line_feeds_only_and_are_stripped(tmp_path):
    path = write(tmp_path, SPECIAL + "a\r\n\u2028\n##\u2028\n b \nc\x0bd\n\nend")
    assert load_vocabulary(path)[4:] == ["a", "", "##", "b", "c\x0bd", "", "end"]


def test_last_line_feed_adds_no_entry(tmp_path):
    assert len(load_vocabulary(write(tmp_path, SPECIAL))) == 4


def test_accepts_a_path_as_str(tmp_path):
    assert load_vocabulary(str(write(tmp_path, SPECIAL)))[1] == "[UNK]"


def test_released_vocabularies_have_their_sizes(vocabularies):
    sizes = {name: len(vocabulary) for name, vocabulary in vocabularies.items()}
    assert sizes == {"uncased": 30522, "cased": 28996, "multi_cased": 119547, "chinese": 21128}
    assert (vocabularies["chinese"][343], vocabularies["chinese"][13502]) == ("", "##")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"[PAD]\n\xff\xfe\n", "not UTF-8: byte 6"),
        ("[PAD]\n[UNK]\nplay\n", r"lacks \[CLS\], \[SEP\]"),
    ],
)
def test_unusable_files_are_refused_with_their_name(tmp_path, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_vocabulary(write(tmp_path, content))
    assert "vocab.txt" in str(caught.value)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_vocabulary(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize("vocabulary", ["[UNK]", None, {"a": 1}, ["[UNK]", 5], ["[UNK]", b"a"]])
def test_something_other_than_strings_is_refused(vocabulary):
    with pytest.raises(TypeError, match="Received"):
        check_vocabulary(vocabulary)


def test_case_of_released_vocabularies_is_recognised(vocabularies):
    cases = {name: is_lower_case_vocabulary(vocabulary) for name, vocabulary in vocabularies.items()}
    assert cases == {"uncased": True, "cased": False, "multi_cased": False, "chinese": True}
