"""The graph of objects in a checkpoint of TensorFlow 2, which tells the variables of each layer."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from keras_bert.weights.tensor_bundle_file import OBJECT_GRAPH, read_string
from keras_bert.weights.tensor_file import TensorFile
from keras_bert.weights.wire_format import as_int64, as_message, as_text, read_fields

# An encoder of 24 layers in a SavedModel has 6,000 objects with 15,000 children.
_MAX_CHILDREN = 200_000
_VALUE = "VARIABLE_VALUE"


@dataclass(frozen=True)
class StoredObject:
    """One object: its children, as numbers of objects, by the names of its attributes."""

    children: Mapping[str, int]
    key: str | None  # name of its tensor in the checkpoint, if it is a variable


@dataclass(frozen=True)
class ObjectGraph:
    """The objects of a checkpoint; the first is the root."""

    objects: tuple[StoredObject, ...]
    slots: frozenset[str]  # names of the tensors that are slots of an optimizer

    def child(self, parent: int | None, *paths: str) -> int | None:
        """Returns the object at the first of the paths that exists below `parent`, such as "_output_dense/kernel"."""
        for path in paths:
            child = parent
            for name in path.split("/"):
                child = None if child is None else self.objects[child].children.get(name)
            if child is not None:
                return child
        return None

    def key(self, parent: int | None, *paths: str) -> str | None:
        """Returns the name of the tensor of the variable at the first of the paths that exists."""
        child = self.child(parent, *paths)
        return None if child is None else self.objects[child].key

    def find(self, is_wanted: Callable[[int], bool]) -> list[int]:
        """Returns the objects that are wanted, nearest to the root first."""
        return [number for number in self._walk(0) if is_wanted(number)]

    def keys_below(self, parent: int) -> set[str]:
        """Returns the names of the tensors of all variables below an object."""
        return {key for number in self._walk(parent) if (key := self.objects[number].key)}

    def _walk(self, start: int) -> Iterator[int]:
        seen, level = {start}, [start]
        while level:
            yield from level
            found = dict.fromkeys(child for number in level for child in self.objects[number].children.values())
            level = [number for number in found if number not in seen]
            seen.update(level)


def read_object_graph(tensors: TensorFile) -> ObjectGraph:
    """Reads the graph of a checkpoint; ValueError if it is damaged."""
    message = memoryview(read_string(tensors, OBJECT_GRAPH))
    try:
        return _parse_graph(message, tensors.entries.keys())
    except ValueError as error:
        raise ValueError(
            f"{tensors.path}: the graph of objects, {OBJECT_GRAPH}, is damaged ({error}). Fetch the checkpoint again."
        ) from error


def _parse_graph(message: memoryview, names: Collection[str]) -> ObjectGraph:
    objects, slot_numbers, num_children = [], set(), 0
    for number, value in read_fields(message):
        if number != 1:
            continue
        children, key = {}, None
        for field, part in read_fields(as_message(value)):
            if field == 1:
                fields = dict(read_fields(as_message(part)))
                children[as_text(fields.get(2, memoryview(b"")))] = as_int64(fields.get(1, 0))
            elif field == 2:
                fields = dict(read_fields(as_message(part)))
                if 1 in fields and 3 in fields and as_text(fields[1]) == _VALUE:
                    key = as_text(fields[3])
            elif field == 3:
                slot_numbers.add(as_int64(dict(read_fields(as_message(part))).get(3, 0)))
        num_children += 1 + len(children)
        if num_children > _MAX_CHILDREN:
            raise ValueError(f"more than {_MAX_CHILDREN} objects and attributes")
        objects.append(StoredObject(children, key))
    if not objects or any(not 0 <= child < len(objects) for item in objects for child in item.children.values()):
        raise ValueError(f"an attribute is not one of its {len(objects)} objects")
    slots = {objects[number].key for number in slot_numbers if 0 <= number < len(objects)}
    return ObjectGraph(tuple(objects), frozenset(key for key in slots if key is not None and key in names))
