import json
import os
import shutil
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.pytorch_file import open_pytorch
from tests.weights.conftest import HUGGING_FACE_NAMES, assert_encoder_equals_file
from tests.weights.pytorch_files import (
    EMPTY_ORDERED_DICT,
    dictionary,
    parameter,
    storage,
    tensor,
    write_arrays,
    write_legacy,
    write_zip,
)

FORMATS = ("zip", "legacy")
VALUES = np.arange(1, 13, dtype=np.float32)


def write(path, file_format, pickle, storages, **options):
    (write_zip if file_format == "zip" else write_legacy)(path, pickle, storages, **options)


def read_all(path):
    with open_pytorch(path) as tensors:
        return {name: tensors.read(name) for name in tensors.entries}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


# === Reading ===


@pytest.mark.parametrize("legacy", [False, True])
def test_reads_a_bert(hugging_face_folder, legacy):
    folder = hugging_face_folder.write()
    positions = {"bert.embeddings.position_ids": np.arange(8).reshape(1, 8)}
    write_arrays(folder / "pytorch_model.bin", hugging_face_folder.tensors | positions, legacy)
    assert read_checkpoint(folder).path.name == "model.safetensors"
    (folder / "model.safetensors").unlink()
    for found in (read_checkpoint(folder), read_checkpoint(folder / "pytorch_model.bin")):
        assert found.path == folder / "pytorch_model.bin"
        assert_encoder_equals_file(found.arrays, hugging_face_folder.tensors, HUGGING_FACE_NAMES, transposed=True)
        assert found.unused == ("bert.embeddings.position_ids",)
    (folder / "pytorch_model.bin").rename(folder / "best.bin")
    assert read_checkpoint(folder / "best.bin").arrays.keys() == found.arrays.keys()


@pytest.mark.parametrize("legacy", [False, True])
def test_reads_shards(hugging_face_folder, legacy):
    folder, tensors = hugging_face_folder.write(), hugging_face_folder.tensors
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(sorted(tensors))}
    for shard in set(weight_map.values()):
        write_arrays(folder / shard, {name: tensors[name] for name in tensors if weight_map[name] == shard}, legacy)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    found = read_checkpoint(folder)
    assert_encoder_equals_file(found.arrays, tensors, HUGGING_FACE_NAMES, transposed=True)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int64])
def test_reads_types(path, dtype, legacy):
    expected = {"a": np.arange(6).reshape(2, 3).astype(dtype), "scalar": np.array(7, dtype)}
    write_arrays(path, expected, legacy)
    for name, array in read_all(path).items():
        assert array.dtype == dtype and array.flags.writeable
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("file_format", FORMATS)
def test_reads_views_of_shared_storages(path, file_format):
    shared = storage("3", 12, legacy=file_format == "legacy")
    views = {
        "whole": tensor(shared, 0, (3, 4), (4, 1)),
        "transposed": parameter(tensor(shared, 0, (4, 3), (1, 4))),
        "window": tensor(shared, 5, (2, 2), (4, 1)),
        "repeated": tensor(shared, 2, (3, 2), (0, 1)),
        "empty": tensor(shared, 12, (0, 3), (3, 1)),
    }
    write(path, file_format, dictionary(views, EMPTY_ORDERED_DICT), {"3": VALUES.tobytes()})
    found, whole = read_all(path), VALUES.reshape(3, 4)
    expected = {"whole": whole, "transposed": whole.T, "window": whole[1:, 1:3], "repeated": [[3, 4]] * 3}
    for name, array in {**expected, "empty": np.zeros((0, 3))}.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("keys", [["state_dict"], ["model"], ["model_state_dict"], ["model", "state_dict"]])
def test_reads_nested_state_dicts(path, keys):
    def wrap(items):
        pickle = dictionary(items)
        for key in reversed(keys):
            pickle = dictionary({"epoch": b"K\3", key: pickle, "optimizer": dictionary({"state": b"}"})})
        return pickle

    write_arrays(path, {"a": VALUES}, wrap=wrap)
    np.testing.assert_array_equal(read_all(path)["a"], VALUES)


def test_reads_zip64_and_files_without_byteorder(path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    write_arrays(path, {"a": VALUES, "b": -VALUES})
    assert b"PK\6\6" in path.read_bytes()
    np.testing.assert_array_equal(read_all(path)["b"], -VALUES)
    path.write_bytes(path.read_bytes().replace(b"byteorder", b"bytebrder"))
    np.testing.assert_array_equal(read_all(path)["a"], VALUES)
    # An extra field that is shorter than it states.
    entry = zipfile.ZipInfo("model/extra")
    entry.extra = struct.pack("<2H4s", 1, 8, b"abcd")
    write_changed_zip(path, entries={entry: b""})
    np.testing.assert_array_equal(read_all(path)["a"], VALUES[:6].reshape(2, 3))


def test_reads_nothing_before_it_is_asked(path):
    write_arrays(path, {"a": VALUES, "b": -VALUES})
    data = bytearray(path.read_bytes())
    data[data.find(VALUES.tobytes()) + 5] ^= 1
    path.write_bytes(data)
    with open_pytorch(path) as tensors:
        assert tensors.entries["a"].shape == (12,) and tensors.entries["a"].dtype == "float32"
        np.testing.assert_array_equal(tensors.read("b"), -VALUES)
        with pytest.raises(ValueError, match=r"pytorch_model.bin: not a complete .*entry '0' has checksum"):
            tensors.read("a")


# === Refusing ===


def write_changed_zip(path, changes=(), **options):
    """Writes a zip file, and replaces some of its bytes."""
    write_zip(path, dictionary({"a": tensor(storage())}), {"0": VALUES[:6].tobytes()}, **options)
    data = path.read_bytes()
    for old, new in changes:
        assert old in data and len(old) == len(new)
        data = data.replace(old, new)
    path.write_bytes(data)


def test_refuses_zip_files_unlike_those_of_pytorch(path):
    size, entry = VALUES[:6].nbytes, b"model/data/0"
    for message, arguments in {
        "is compressed or encrypted": {"compression": zipfile.ZIP_DEFLATED},
        "'model/../../a' of its zip file has a name that is unsafe": {"entries": {"model/../../a": b""}},
        "'/a' of its zip file has a name": {"entries": {"/a": b""}},
        "'model/a//b' of its zip file has a name": {"entries": {"model/a//b": b""}},
        "'model/twice' of its zip file has a name that is unsafe or there twice": {
            "entries": {"model/twice": b"", "model/other": b""},
            "changes": [(b"model/other", b"model/twice")],
        },
        "over 255 bytes": {"entries": {"model/" + "a" * 300: b""}},
        "states 50000 entries": {"changes": [(struct.pack("<2H", 4, 4), struct.pack("<2H", 50_000, 50_000))]},
        "its byteorder is not 'little'": {"changes": [(b"little", b"big\0\0\0")]},
        "no data.pkl among the entries": {"changes": [(b"data.pkl", b"data.pk_")]},
        "storage '0' is missing": {"changes": [(b"data/0", b"data/1")]},
        "overlaps with another": {"changes": [(struct.pack("<2I", size, size), struct.pack("<2I", 9999, 9999))]},
    }.items():
        write_changed_zip(path, **arguments)
        with pytest.raises(ValueError) as caught:
            read_all(path)
        assert str(path) in str(caught.value) and message in str(caught.value)
    write_zip(path, dictionary({"a" * (1 << 18): b"N"}), {})
    with pytest.raises(ValueError, match="its pickle has 262"):
        read_all(path)
    # Another name in the table of contents than before the data.
    write_changed_zip(path)
    data = path.read_bytes()
    path.write_bytes(data[:-200] + data[-200:].replace(entry, b"model/data/1"))
    with pytest.raises(ValueError, match="has another name in the contents"):
        read_all(path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_refuses_storages_beyond_the_file(path, file_format):
    for count in (7, 2**44, 2**62):
        pickle = dictionary({"a": tensor(storage(count=count, legacy=file_format == "legacy"))})
        write(path, file_format, pickle, {"0": VALUES[:6].tobytes()})
        with pytest.raises(ValueError, match=rf"opcode BINPERSID says that storage '0' has {count} elements"):
            read_all(path)


def test_refuses_legacy_files_whose_parts_disagree(path):
    good = dictionary({"a": tensor(storage(legacy=True))})
    data = {"0": VALUES[:6].tobytes()}
    for message, storages, options in [
        ("written on a big-endian machine", data, {"little_endian": b"\x89"}),
        ("storage '0' is missing", {}, {}),
        ("its list of storages has '1', which is unknown", {"1": b"", **data}, {}),
        ("has 6 elements; it has 5", data, {"counts": {"0": 5}}),
        ("has 6 elements of type float32, 24 bytes; the file has 20", {"0": data["0"][:20]}, {"counts": {"0": 6}}),
    ]:
        write_legacy(path, good, storages, **options)
        with pytest.raises(ValueError, match=message):
            read_all(path)


def test_refuses_files_without_tensors(path):
    for pickle, message in [
        (b"]", "it contains a list, not a dictionary"),
        (b"}", r"it has no tensors, .* but the keys \[\]"),
        (dictionary({"vocabulary": b"]"}), r"it has no tensors, .* but the keys \['vocabulary'\]"),
        (b"}q\0" + b"(X\5\0\0\0modelh\0u", "it contains a dict"),
    ]:
        write_zip(path, pickle, {})
        with pytest.raises(ValueError, match=message):
            read_all(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_files_are_named_with_their_size(path, legacy):
    write_arrays(path, {"a": VALUES, "b": -VALUES}, legacy)
    for size in range(path.stat().st_size - 1, -1, -7):
        os.truncate(path, size)
        with pytest.raises(ValueError) as caught:
            read_all(path)
        assert str(path) in str(caught.value)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match=r"not a complete file of PyTorch .*it has 63 bytes.*Git LFS pointer"):
        read_all(path)


def test_many_views_of_a_storage_take_no_more_memory_than_the_file(path):
    views = {str(index): tensor(storage(count=10_000), 0, (10_000,), (1,)) for index in range(50)}
    write_zip(path, dictionary(views), {"0": bytes(40_000)})
    with open_pytorch(path) as tensors, pytest.raises(ValueError, match="take more than twice the file's size"):
        for name in tensors.entries:
            assert tensors.read(name).nbytes == tensors.read(name).nbytes == 40_000
            assert int(name) < 3


# === Files of PyTorch itself ===

# The names that are not read.
POSITION_IDS = ("bert.embeddings.position_ids",)
TIED = ("cls.predictions.decoder.bias", "cls.predictions.decoder.weight")
CASES = {"float32": POSITION_IDS, "float16": POSITION_IDS, "bfloat16": POSITION_IDS, "views": (), "wrapped": ()}
CASES["pretraining_tied"] = TIED


@pytest.mark.parametrize(("case", "unused"), CASES.items())
def test_both_formats_of_pytorch_have_the_same_tensors(shared, case, unused):
    formats = shared / "golden" / "formats"
    new, old = (read_all(formats / f"pytorch_bin_{name}" / case / "pytorch_model.bin") for name in FORMATS)
    assert new.keys() == old.keys() and len(new) > 50
    for name, array in new.items():
        assert array.dtype == old[name].dtype and array.tobytes() == old[name].tobytes()
    found = [read_checkpoint(formats / f"pytorch_bin_{name}" / case) for name in FORMATS]
    for path, array in found[0].arrays.items():
        np.testing.assert_array_equal(array, found[1].arrays[path])
    assert found[0].unused == found[1].unused == unused


def test_refuses_malicious_files(shared, tmp_path, monkeypatch):
    folders = sorted((shared / "golden" / "formats" / "malicious_pickles").glob("*/*/"))
    assert len(folders) == 50
    for number, source in enumerate(folders):
        folder = shutil.copytree(source, tmp_path / str(number))
        before = sorted(folder.rglob("*"))
        monkeypatch.chdir(folder)
        with pytest.raises(ValueError, match=r"_model.bin: refused, since its pickle's opcode [A-Z]\w+ ") as caught:
            read_checkpoint(folder)
        assert sorted(folder.rglob("*")) == before
        expected = MALICIOUS.get(source.name)
        assert expected is None or expected in str(caught.value)


MALICIOUS = {
    **dict.fromkeys(["os_system", "magic_number", "obj_opcode", "build_setstate", "build_then_call"], "'os.system'"),
    **dict.fromkeys(["posix_system", "plain_pickle", "reduce_in_state_dict", "reduce_in_key"], "'posix.system'"),
    **dict.fromkeys(["importlib"], "'builtins.getattr'"),
    **dict.fromkeys(["stack_global_memo", "stack_global_joined"], "opcode POP"),
    "builtins_eval": "'builtins.eval'",
    "builtins_exec_python2_name": "'__builtin__.exec'",
    "getattr_chain": "STACK_GLOBAL imports 'torch.serialization.os.system'",
    "torch_hub": "'torch.hub._load_local'",
    "numpy_load": "'numpy.load'",
    "subprocess": "'subprocess.Popen'",
    "inst_opcode": "opcode STRING",
    "extension_registry": "opcode EXT1",
    "build_slots": "opcode BUILD",
    "persistent_id_parent_path": "opcode BINPERSID refers to the storage '../../../inner.bin'",
    "persistent_id_absolute_path": "opcode BINPERSID refers to the storage '/absolute/inner.bin'",
    "persistent_id_not_a_tuple": "opcode BINPERSID",
    "persistent_id_huge_count": "opcode BINPERSID says that storage '0' has 17592186044416",
    "rebuild_out_of_bounds": "opcode REDUCE calls torch._utils._rebuild_tensor_v2 for a tensor beyond its storage",
}
