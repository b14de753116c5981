"""Writers of TensorFlow's checkpoints with right checksums, for damaged and hostile ones."""

import struct

import tensorflow as tf

from keras_bert.weights.crc32c import masked_crc32c

HEADER = (b"", b"\x08\x01")  # one data file
DATA = ".data-00000-of-00001"
FLOAT, STRING = 1, 7


def encode_varint(number):
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def encode_field(number, value):
    """Encodes a field of a protocol buffer: a varint, or bytes."""
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value


def encode_entry(shape, size, dtype=FLOAT, shard=0, offset=0, checksum=0, rest=b""):
    """Encodes where a tensor is stored."""
    dims = b"".join(encode_field(2, encode_field(1, extent)) for extent in shape)
    numbers = [encode_field(number, value) for number, value in ((3, shard), (4, offset), (5, size))]
    checksum = encode_varint(6 << 3 | 5) + struct.pack("<I", checksum)
    return encode_field(1, dtype) + encode_field(2, dims) + b"".join(numbers) + checksum + rest


def encode_table(items):
    """Encodes a sorted string table of one block."""
    table = b""

    def add_block(items):
        nonlocal table
        lengths = [encode_varint(0) + encode_varint(len(key)) + encode_varint(len(value)) for key, value in items]
        block = b"".join(length + key + value for length, (key, value) in zip(lengths, items, strict=True))
        block += struct.pack("<II", 0, 1)
        handle = encode_varint(len(table)) + encode_varint(len(block))
        table += block + b"\0" + struct.pack("<I", masked_crc32c(block + b"\0"))
        return handle

    data, meta = add_block(items), add_block([])
    footer = meta + add_block([(items[-1][0], data)])
    return table + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_bundle(prefix, items, data=b""):
    """Writes a checkpoint of encoded entries by key."""
    prefix.with_name(f"{prefix.name}.index").write_bytes(encode_table([HEADER, *items]))
    prefix.with_name(prefix.name + DATA).write_bytes(data)
    return prefix


def make_object(attributes):
    """Returns an object to checkpoint, from nested dicts of arrays by attribute."""
    children = {
        name: make_object(value) if isinstance(value, dict) else tf.Variable(value)
        for name, value in attributes.items()
    }
    return tf.train.Checkpoint(**children)
