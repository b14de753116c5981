import io

import pytest

from keras_bert.weights.tensor_pickle import RefusedError, Tensor, TensorPickle
from tests.weights.pytorch_files import (
    EMPTY_ORDERED_DICT,
    REBUILD_PARAMETER,
    REBUILD_TENSOR,
    dictionary,
    group,
    number,
    parameter,
    storage,
    tensor,
    text,
)


def load(pickle, max_operations=1000):
    return TensorPickle(io.BytesIO(b"\x80\x02" + pickle + b"."), max_operations).read_value()


def test_describes_tensors():
    reader = TensorPickle(io.BytesIO(b"\x80\x02" + tensor(storage("7", 9), 2, (2, 2), (3, 1)) + b"."), 1000)
    found = reader.read_value()
    assert (found.offset, found.shape, found.strides, found.size, found.span) == (2, (2, 2), (3, 1), 4, 5)
    assert found.storage is reader.storages["7"] and (found.storage.dtype, found.storage.count) == ("float32", 9)
    for pickle in (parameter(tensor(storage())), tensor(storage(legacy=True)), tensor(storage(count=0), 0, (0, 3))):
        assert isinstance(load(pickle), Tensor)
    # A scalar, and a dimension of size 1 with an arbitrary stride.
    assert load(tensor(storage(), 5, (), ())).span == 1
    assert load(tensor(storage(), 0, (1, 6), (999, 1))).span == 6


def test_reads_plain_values():
    values = {"none": b"N", "yes": b"\x88", "byte": b"K\xff", "short": b"M\xff\xff", "int": b"J\xff\xff\xff\xff"}
    values |= {"float": b"G?\xf8" + b"\0" * 6, "long": number(-(2**70)), "empty": b")", "pair": b"NN\x86"}
    values |= {"list": b"](K\1K\2eK\3a", "copy": b"K\7q\5h\5\x86", "text": text("ü")}
    expected = {"none": None, "yes": True, "byte": 255, "short": 65535, "int": -1, "float": 1.5, "long": -(2**70)}
    expected |= {"empty": (), "pair": (None, None), "list": [1, 2, 3], "copy": (7, 7), "text": "ü"}
    assert load(dictionary(values)) == expected


def test_ignores_the_attributes_of_an_ordered_dict():
    metadata = dictionary({"_metadata": dictionary({"": dictionary({"version": b"K\1"})}, EMPTY_ORDERED_DICT)})
    found = load(dictionary({"a": b"K\2"}, EMPTY_ORDERED_DICT) + metadata + b"b")
    assert found == {"a": 2} and not hasattr(found, "_metadata")


def test_reads_protocol_4():
    name = b"\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94"
    assert load(b"\x80\x04\x95" + b"\0" * 8 + name + b")R") == {}


REFUSED = {
    "GLOBAL imports 'os.system'": b"cos\nsystem\n",
    "GLOBAL imports 'torch.load'": b"ctorch\nload\n",
    "STACK_GLOBAL imports 'os.system'": text("os") + text("system") + b"\x93",
    "STACK_GLOBAL imports a name that is not a string": b"NN\x93",
    "STRING is not needed": b"S'a'\n",
    "INST is not needed": b"(ios\nsystem\n",
    "EXT1 is not needed": b"\x82\1",
    "DUP is not needed": b"N2",
    "REDUCE calls something that is not an import": text("os.system") + b")R",
    "REDUCE calls torch.FloatStorage with other": b"ctorch\nFloatStorage\n)R",
    "REDUCE calls collections.OrderedDict with other": b"ccollections\nOrderedDict\nN\x85R",
    "REDUCE calls torch._utils._rebuild_tensor_v2 with other": REBUILD_TENSOR + b")R",
    "_rebuild_tensor_v2 with other arguments": REBUILD_TENSOR + group(*[b"N"] * 6) + b"R",
    "REDUCE calls torch._utils._rebuild_parameter with other": REBUILD_PARAMETER + group(b"N", b"N", b"N") + b"R",
    "BUILD sets the state of something other": b"}}b",
    "BUILD sets the state": REBUILD_TENSOR + b"}b",
    "SETITEM sets items of something other": b"]NNs",
    "SETITEMS sets items of something other": b"}(NNNu",
    "SETITEM sets a key of type tuple": b"})Ns",
    "SETITEMS sets the key 'a' twice": b"}(" + 2 * (text("a") + b"N") + b"u",
    "APPENDS appends to something other": b"}(Ne",
    "BINPERSID refers to something other": text("../../inner.bin") + b"Q",
    "BINPERSID refers to something other than": b"NNNNN" + b"(NNNNNt" + b"Q",
    "BINPERSID refers to the storage '../0'": storage("../0"),
    "BINPERSID refers to the storage '²'": storage("²"),
    "BINPERSID refers to the storage '0' with two types": group(storage(), storage(kind="LongStorage")),
    "BINPERSID refers to the storage '0' with two types or sizes": group(storage(), storage(count=7)),
    "beyond its storage: offset 1": tensor(storage(), 1),
    "beyond its storage: offset 0, shape [3, 3]": tensor(storage(), 0, (3, 3)),
    "beyond its storage: offset 0, shape [2, 3], strides [4, 1]": tensor(storage(), 0, (2, 3), (4, 1)),
    "beyond its storage: offset 0, shape [1000000, 6]": tensor(storage(), 0, (10**6, 6), (0, 1)),
    "a shape or strides that no tensor has": tensor(storage(), -1),
    "shape or strides that": tensor(storage(), 0, (2, 3), (-3, 1)),
    "or strides that": tensor(storage(), 0, (2**64,), (0,)),
    "strides that": tensor(storage(), 0, (2, 3), (1,)),
    "that no tensor": tensor(storage(), 0, (1,) * 65, (1,) * 65),
    "other arguments than a tensor's": REBUILD_TENSOR + group(storage(), number(0), b"]", b"]", b"N", b"N") + b"R",
    "has more than the 1000 opcodes": b"N" * 1000,
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses_all_else(message):
    with pytest.raises(RefusedError) as caught:
        load(REFUSED[message])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("pickle", "message"),
    [
        (b"\xff", "byte 2 is not an opcode"),
        (b"X\xff\xff\xff\xffabc", "ends at byte 11 without"),
        (b"\x85", "TUPLE1 finds no value"),
        (b"q\1", "BINPUT finds no value"),
        (b"(u", "SETITEMS finds no value"),
        (b"t", "TUPLE finds no mark"),
        (b"h\1", "recalls value 1 before"),
        (b"X\1\0\0\0\xff", "can't decode"),
        (b"", "STOP finds no value"),
    ],
)
def test_rejects_damaged_pickles(pickle, message):
    with pytest.raises(ValueError, match=message):
        load(pickle)


def test_deep_and_shared_values_take_no_time():
    nested = b")q\0" + b"".join(b"h\0h\0\x86q\0" for _ in range(5000))
    assert isinstance(load(nested, 50_000), tuple)
    with pytest.raises(RefusedError, match="key of type tuple"):
        load(nested + b"}h\0Ns", 50_000)
    for values in (b"", b"(" + text("storage") + b"ctorch\nFloatStorage\n" + b"h\0" + text("cpu") + b"K\1t"):
        with pytest.raises(RefusedError, match="something other than a storage"):
            load(nested + values + b"Q", 50_000)
