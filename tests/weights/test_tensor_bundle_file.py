import random

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.weights.crc32c import masked_crc32c
from keras_bert.weights.tensor_bundle_file import find_prefix, open_tensor_bundle, read_string
from tests.weights.tensor_bundles import DATA, FLOAT, STRING, encode_entry, encode_field, encode_table, write_bundle

TENSORS = {
    "bert/words": np.arange(40_000, dtype=np.float32).reshape(-1, 4),
    "bert/half": np.arange(6, dtype=np.float16),
    "bert/brain": np.arange(6).astype(ml_dtypes.bfloat16),
    "empty": np.zeros((0, 3), np.float64),
    "global_step": np.int64(30),
    "is_cased": np.bool_(True),
    "sign": np.int8(-3),
}


@pytest.fixture
def written(tmp_path):
    """Prefix of a checkpoint that TensorFlow wrote."""
    prefix, text = tmp_path / "bert_model.ckpt", tf.constant("word" * 100)
    names = [*TENSORS, "text"]
    values = [*TENSORS.values(), text]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return prefix


def test_reads_what_tensorflow_wrote(written):
    tensors = open_tensor_bundle(written)
    assert tensors.entries.keys() == {*TENSORS, "text"}
    for name, array in TENSORS.items():
        entry = tensors.entries[name]
        assert (entry.shape, entry.dtype) == (array.shape, array.dtype.name)
        np.testing.assert_array_equal(tensors.read(name), array)
        assert tensors.read(name).dtype == array.dtype
    assert read_string(tensors, "text") == b"word" * 100
    with pytest.raises(ValueError, match=r"the text 'sign' is int8 of shape \[\]"):
        read_string(tensors, "sign")
    with pytest.raises(ValueError, match=r"the text 'absent' is missing"):
        read_string(tensors, "absent")


def test_reads_several_data_files(tmp_path):
    prefixes = [str(tmp_path / f"part_{index}") for index in range(2)]
    for index, prefix in enumerate(prefixes):
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=[f"t{index}"], shape_and_slices=[""], tensors=[np.float32([index])]
        )
    merged = tmp_path / "model.ckpt-3"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(merged))
    assert find_prefix(tmp_path) == merged
    tensors = open_tensor_bundle(merged)
    assert [tensors.read(f"t{index}").tolist() for index in range(2)] == [[0.0], [1.0]]


# === Damaged and hostile files ===


def entry_of(**arguments):
    return [(b"x", encode_entry(**{"shape": (5,), "size": 20, **arguments}))]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (entry_of(shape=(-5,)), r"'x' has the shape \[-5\]"),
        (entry_of(shape=(2**40, 2**40)), r"'x' of type float32 and shape .* has 20 bytes"),
        (entry_of(shape=(1,) * 300, size=4), r"'x' has the shape \[1, 1"),
        (entry_of(shape=(2**33,), size=2**35), r"'x' has 34359738368 bytes at 0; .* has 100"),
        (entry_of(size=-20), "'x' of type float32 and shape .* has -20 bytes"),
        (entry_of(offset=-8), "'x' has 20 bytes at -8"),
        (entry_of(offset=96), "'x' has 20 bytes at 96"),
        (entry_of(shard=77), "'x' is in data file 77 of 1"),
        (entry_of(shard=-1), "'x' is in data file -1 of 1"),
        (entry_of(rest=encode_field(2, encode_field(3, 1))), "'x' has no shape"),
        (entry_of() + entry_of(), "the key b'x' does not come after b'x'"),
        ([(b"y", entry_of()[0][1]), *entry_of()], "the key b'x' does not come after b'y'"),
        ([(b"x" * 1001, entry_of()[0][1])], "a damaged entry after the key b''"),
        ([(b"x", b"\x08")], "does not end"),
        ([(b"x", encode_field(1, b"float"))], "a field of 5 bytes in place of a number"),
        ([(b"t%d" % i, encode_entry((5,), 20)) for i in range(6)], "the tensors in .* have 120 bytes, .* has 100"),
    ],
)
def test_rejects_hostile_tables(tmp_path, items, message):
    prefix = write_bundle(tmp_path / "model.ckpt", items, bytes(100))
    with pytest.raises(ValueError, match=rf"model.ckpt: cannot be read \(.*{message}"):
        open_tensor_bundle(prefix)


def test_types_and_partitions_that_are_not_read_have_a_name(tmp_path):
    partition = encode_field(7, b"")
    items = [(b"x", encode_entry((5,), 20, dtype=99)), (b"y", encode_entry((5,), 0, rest=partition))]
    entries = open_tensor_bundle(write_bundle(tmp_path / "model.ckpt", items, bytes(100))).entries
    assert [entry.dtype for entry in entries.values()] == ["type 99", "float32 in partitions"]


def test_rejects_damaged_tensors(written):
    data = written.with_name(written.name + DATA)
    stored = bytearray(data.read_bytes())
    tensors = open_tensor_bundle(written)
    stored[tensors.entries["bert/half"].offset] ^= 1
    data.write_bytes(stored)
    with pytest.raises(ValueError, match="Checksum does not match: tensor 'bert/half'"):
        tensors.read("bert/half")
    data.write_bytes(b"")
    with pytest.raises(ValueError, match="ends within tensor 'bert/half'"):
        tensors.read("bert/half")
    data.unlink()
    with pytest.raises(FileNotFoundError, match=rf"bert_model.ckpt: cannot be read: No such file: .*{DATA}"):
        open_tensor_bundle(written)


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ((3,), b"\x01abcda", r"it has the shape \[3\]"),
        ((), b"\x05abcda", "it has 1 bytes, not 5"),
        ((), b"", "not end"),
    ],
)
def test_rejects_damaged_texts(tmp_path, shape, text, message):
    entry = encode_entry(shape, len(text), dtype=STRING)
    tensors = open_tensor_bundle(write_bundle(tmp_path / "model.ckpt", [(b"x", entry)], text))
    with pytest.raises(ValueError, match=message):
        tensors.read("x")


def test_rejects_other_tables(tmp_path):
    prefix = write_bundle(tmp_path / "model.ckpt", entry_of(), bytes(100))
    index = tmp_path / "model.ckpt.index"
    table = index.read_bytes()
    for changed, message in [
        (table[:-1], "does not end as one of TensorFlow"),
        (b"", "does not end as one of TensorFlow"),
        (table[:3] + b"?" + table[4:], "Checksum does not match: the block at 0"),
        (table[:-48] + b"\xff\x7f" * 20 + table[-8:], r"a block of \d+ bytes at \d+ in a table"),
        (bytes(2**22 + 1), "more than 4194304"),
    ]:
        index.write_bytes(changed)
        with pytest.raises(ValueError, match=message):
            open_tensor_bundle(prefix)
    for header, message in [(b"\x08\x01\x10\x01", "big-endian"), (None, "does not begin with its header")]:
        index.write_bytes(encode_table(entry_of() if header is None else [(b"", header), *entry_of()]))
        with pytest.raises(ValueError, match=message):
            open_tensor_bundle(prefix)


def test_rejects_links_out_of_the_folder(written, tmp_path):
    folder = tmp_path / "linked"
    folder.mkdir()
    for suffix in (".index", DATA):
        (folder / f"model.ckpt{suffix}").symlink_to(written.with_name(written.name + suffix))
        with pytest.raises(ValueError, match="which is not a file or folder directly in"):
            open_tensor_bundle(folder / "model.ckpt")
        (folder / f"model.ckpt{suffix}").unlink()
        (folder / f"model.ckpt{suffix}").write_bytes(written.with_name(written.name + suffix).read_bytes())
    assert open_tensor_bundle(folder / "model.ckpt").entries.keys() >= TENSORS.keys()


def test_mutated_files_raise_errors_that_name_the_checkpoint(tmp_path):
    # Checksums are right, so that the entries behind them are parsed.
    values = np.arange(20, dtype=np.float32)
    checksums = [masked_crc32c(part) for part in values.reshape(4, 5)]
    items = [
        (b"t%d" % index, encode_entry((5,), 20, FLOAT, 0, 20 * index, checksum))
        for index, checksum in enumerate(checksums)
    ]
    generator, read = random.Random(0), 0
    for _ in range(100):
        index = generator.randrange(len(items))
        name, entry = items[index]
        changed = bytearray(entry)
        for _ in range(generator.choice([1, 1, 3])):
            changed[generator.randrange(len(changed))] = generator.choice([0, 1, 127, 128, 255])
        mutated = [*items[:index], (name, bytes(changed)), *items[index + 1 :]]
        prefix = write_bundle(tmp_path / "model.ckpt", mutated, values.tobytes())
        try:
            tensors = open_tensor_bundle(prefix)
            for other in tensors.entries:
                if tensors.entries[other].dtype == "float32":
                    tensors.read(other)
            read += 1
        except ValueError as error:
            assert str(prefix) in str(error)
    assert 0 < read < 80


# === Finding ===


def test_state_file_may_not_be_text(tmp_path):
    state = tmp_path / "checkpoint"
    for content in (b"\xff\xfe", b'model_checkpoint_path: ".."', b'model_checkpoint_path: "' + b"a" * 5000 + b'"'):
        state.write_bytes(content)
        with pytest.raises((ValueError, FileNotFoundError), match=r"checkpoint: (expected|names)"):
            find_prefix(tmp_path)
    assert find_prefix(tmp_path / "absent") is None
