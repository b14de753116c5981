import pytest

from keras_bert.weights.wire_format import as_int64, as_message, as_text, read_fields, read_varint


def test_reads_all_types_of_fields():
    message = bytes([0x08, 0x96, 0x01, 0x12, 2, 0xC3, 0xA9, 0x1D, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0])
    fields = list(read_fields(memoryview(message)))
    assert [number for number, _ in fields] == [1, 2, 3, 4]
    assert [as_int64(fields[index][1]) for index in (0, 2, 3)] == [150, 1, 2]
    assert as_text(fields[1][1]) == "é" and as_text(memoryview(b"\xff")) == "\\xff"
    assert as_int64(2**64 - 1) == -1


@pytest.mark.parametrize("message", [b"\x08", b"\x12\x05ab", b"\x0b", b"\x1d\0", b"\x08" + b"\xff" * 11])
def test_rejects_damaged_messages(message):
    with pytest.raises(ValueError, match=r"wire type|does not end"):
        list(read_fields(memoryview(message)))


def test_rejects_values_of_other_types():
    for convert, value in [(as_int64, memoryview(b"a")), (as_message, 3), (as_text, 3)]:
        with pytest.raises(ValueError, match="in place of"):
            convert(value)
    with pytest.raises(ValueError, match="does not end"):
        read_varint(memoryview(b"\x80"), 0)
