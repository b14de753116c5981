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
    assert len(load_vocabulary(str(write(tmp_path, SPECIAL)))) == 4  # the last line feed adds no entry


def test_reads_the_released_vocabularies_and_infers_their_case(vocabularies):
    sizes = {name: len(vocabulary) for name, vocabulary in vocabularies.items()}
    assert sizes == {"uncased": 30522, "cased": 28996, "multi_cased": 119547, "chinese": 21128}
    assert (vocabularies["chinese"][343], vocabularies["chinese"][13502]) == ("", "##")
    is_lower_case = {name: is_lower_case_vocabulary(vocabulary) for name, vocabulary in vocabularies.items()}
    assert is_lower_case == {"uncased": True, "cased": False, "multi_cased": False, "chinese": True}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt cannot be used.*is empty"),
        (b"[PAD]\n\xff\xfe\n", "vocab.txt is not UTF-8: byte 6"),
        (b"PK\x03\x04[PAD]\n\x00\n", "vocab.txt is not a text: byte 10 is NUL.*not a checkpoint"),
        (SPECIAL + "a" * 1001, r"vocab.txt cannot be used.*index 4 has 1001 characters.*'aaaa"),
        (b"\n" * ((1 << 21) + 1), "vocab.txt has 2097153 lines, and at most 2097152"),
        (b"a" * ((1 << 26) + 1), "vocab.txt has more than 67108864 bytes"),
        ("[PAD]\n[UNK]\nplay\n", r"vocab.txt cannot be used.*lacks \[CLS\], \[SEP\]"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load_vocabulary(write(tmp_path, content))


def test_missing_files_and_folders_are_refused(tmp_path):
    for path, message in ((tmp_path / "none.txt", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(FileNotFoundError, match=message):
            load_vocabulary(path)


@pytest.mark.parametrize("vocabulary", ["[UNK]", None, {"a": 1}, ["[UNK]", 5], ["[UNK]", b"a"]])
def test_other_types_are_refused(vocabulary):
    with pytest.raises(TypeError, match="Received"):
        check_vocabulary(vocabulary)
