import random

import h5py
import ml_dtypes
import numpy as np
import pytest

from keras_bert.weights.hdf5_file import open_hdf5

TYPES = [f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "u8")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.h5"


def write(path, tensors, **arguments):
    with h5py.File(path, "w", **arguments) as file:
        for name, tensor in tensors.items():
            file[name] = tensor


def read(path):
    with open_hdf5(path) as file:
        assert all(entry.file == path for entry in file.entries.values())
        return {name: file.read(name) for name in file.entries}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (np.asarray(tensor).dtype, np.shape(tensor))
        np.testing.assert_array_equal(found[name], tensor)


def test_reads_all_number_types(path):
    values = np.arange(-3, 3).reshape(2, 3)
    tensors = {f"a/{name}": np.abs(values).astype(name) for name in TYPES}
    tensors |= {"scalar": np.float32(3), "deep/er/and/deeper": values, "empty": np.zeros((0, 3), np.float32)}
    write(path, tensors)
    assert_same(read(path), tensors)
    with open_hdf5(path) as file:
        assert (file.entries["a/>f4"].dtype, file.entries["a/<i8"].dtype) == ("float32", "int64")


def test_reads_large_groups_and_headers(path):
    """Groups of several levels of nodes, and object headers in several blocks."""
    tensors = {f"group/tensor_{index:05}": np.float32(index) for index in range(700)}
    write(path, tensors)
    with h5py.File(path, "a") as file:
        for index in range(40):
            file["group/tensor_00003"].attrs[f"attribute {index}"] = "a" * 100
            file["group"].attrs[f"attribute {index}"] = "b" * 100
    assert_same(read(path), tensors)


def test_reads_bfloat16_as_keras_stores_it(path):
    tensor = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    with h5py.File(path, "w") as file:
        file.create_dataset("layer/vars/0", data=tensor.view("V2")).attrs["dtype"] = "bfloat16"
    assert_same(read(path), {"layer/vars/0": tensor})
    with open_hdf5(path) as file:
        assert file.entries["layer/vars/0"].dtype == "bfloat16"


def test_lists_other_types_by_class(path):
    with h5py.File(path, "w") as file:
        file["text"] = np.array(["a", "b"], dtype=object)
        file["flag"] = True
        file.create_dataset("reference", data=file["text"].ref, dtype=h5py.ref_dtype)
    with open_hdf5(path) as file:
        found = {name: entry.dtype for name, entry in file.entries.items()}
    assert found == {"text": "HDF5's class 9", "flag": "HDF5's class 8", "reference": "HDF5's class 7"}
    with pytest.raises(ValueError, match=r"found a tensor of HDF5's class [789], which is not one of numbers"):
        read(path)


def compact(file):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"a", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2,)), dcpl=properties)


def virtual(file):
    layout = h5py.VirtualLayout((4,), np.float32)
    layout[:] = h5py.VirtualSource("/etc/hostname", "a", (4,))
    file.create_virtual_dataset("a", layout)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.create_dataset("a", data=np.zeros(9), chunks=(3,)), "'a' is stored in chunks"),
        (lambda file: file.create_dataset("a", data=np.zeros(9), compression="gzip"), "a compressed tensor"),
        (compact, "'a' is stored inside its header"),
        (virtual, "'a' is stored virtually, in other tensors"),
        (lambda file: file.create_dataset("a", (4,), "u1", external=[("/etc/hostname", 0, 4)]), "in other files"),
        (lambda file: file.update({"a": h5py.SoftLink("/b")}), "a symbolic or repeated link 'a'"),
        (lambda file: file.update({"a": h5py.ExternalLink("/etc/hostname", "/b")}), "in a newer layout"),
        (lambda file: file.update({"a": np.dtype("f4")}), "'a' is neither a group nor a tensor"),
        (lambda file: file.create_group("a", track_order=True), "an object header of another version"),
        (lambda file: file.update({"a": file["/"]}), "nested more than 16 deep|structures that overlap"),
        (lambda file: file.create_group("/".join("abcdefghijklmnopqrs")), "nested more than 16 deep"),
        (lambda file: file.create_group("a" * 300), "a name without an end"),
        (lambda file: file.create_group("a" * 200 + "/" + "b" * 100), "a path of more than 250"),
        (lambda file: file.create_group(b"\xff"), "one that is not text"),
        (lambda file: file.create_dataset("a", (1 << 40,), "f4"), "which ends after the file"),
    ],
)
def test_refuses_anything_but_groups_and_plain_tensors(path, change, message):
    write(path, {"x/b": np.zeros(3)})
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(ValueError, match=rf"weights.h5: expected an HDF5 file of plain tensors.*({message})"):
        read(path)


@pytest.mark.parametrize("arguments", [{"libver": "latest"}, {"libver": ("v108", "v108")}, {"userblock_size": 512}])
def test_refuses_other_layouts_of_files(path, arguments):
    write(path, {"x": np.zeros(3)}, **arguments)
    with pytest.raises(ValueError, match="save the weights again with Keras or h5py's default settings"):
        read(path)


def test_tensors_may_not_share_bytes(path):
    """A small file may not describe many large tensors."""
    write(path, {f"{index}": np.full(10_000, index, "f4") for index in range(4)})
    data = bytearray(path.read_bytes())
    addresses = [h5py.File(path)[f"{index}"].id.get_offset().to_bytes(8, "little") for index in range(4)]
    for address in addresses[1:]:
        data = data.replace(address, addresses[0])
    path.write_bytes(data[:-60_000])
    with pytest.raises(ValueError, match=r"structures that overlap|it should have"):
        read(path)


def test_refuses_truncated_and_other_files(path):
    write(path, {"a/b": np.zeros(300)})
    data = path.read_bytes()
    for size in (0, 4, 20, 95, 96, 500, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=rf"the file has {size} bytes. If the download is incomplete"):
            read(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match="Git LFS pointer"):
        read(path)


def mutate(data, generator):
    """Returns a copy with a few random bits, numbers or pointers changed, or its end cut off."""
    data = bytearray(data)
    kind = generator.randrange(4)
    if kind == 3:
        return data[: generator.randrange(len(data))]
    for _ in range(generator.choice([1, 2, 8])):
        position = generator.randrange(len(data) - 8)
        if kind == 0:
            data[position] ^= 1 << generator.randrange(8)
        elif kind == 1:
            data[position : position + 4] = generator.choice([0, 1, 255, 1 << 16, (1 << 32) - 1]).to_bytes(4, "little")
        else:
            position -= position % 8
            data[position : position + 8] = (generator.randrange(len(data)) & ~7).to_bytes(8, "little")
    return data


def test_mutations_are_refused_or_read(path):
    """No mutation may raise anything but ValueError; the sizes of what is read are bounded by the file's."""
    write(path, {f"layer_{index}/vars/{name}": np.ones((4, 3), "f4") for index in range(9) for name in "01"})
    data, generator = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(600):
        path.write_bytes(mutate(data, generator))
        try:
            assert sum(tensor.nbytes for tensor in read(path).values()) <= len(data)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 300
