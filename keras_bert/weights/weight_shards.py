"""Opens weights that are split into several files, which an index lists."""

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from keras_bert.weights.bert_config import read_json
from keras_bert.weights.folder_paths import is_inside
from keras_bert.weights.tensor_file import TensorEntry, TensorFile

INDEX_SUFFIX = ".index.json"
_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")


@contextlib.contextmanager
def open_shards(weights: Path, open_file: Callable[[Path], AbstractContextManager[TensorFile]]) -> Iterator[TensorFile]:
    """Opens a file of tensors with `open_file`, or all shards of an index as if they were one file."""
    if not weights.name.endswith(INDEX_SUFFIX):
        with open_file(weights) as tensors:
            yield tensors
        return
    with contextlib.ExitStack() as stack:
        parts: dict[str, TensorFile] = {}
        entries: dict[str, TensorEntry] = {}
        for file in _find_shards(weights):
            part = stack.enter_context(open_file(file))
            if repeated := sorted(entries.keys() & part.entries.keys()):
                name = repeated[0]
                raise ValueError(
                    f"{file}: contains the tensor {name!r}, as {entries[name].file} does. Fetch the shards again."
                )
            entries |= part.entries
            parts |= dict.fromkeys(part.entries, part)
        yield TensorFile(weights, entries, lambda name: parts[name].read(name))


def _find_shards(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{index}: expected an object weight_map {{tensor: shard}}; found {weight_map!r:.200}. Fetch it again."
        )
    names = set(map(str, weight_map.values()))
    refused = sorted(name for name in names if not _SHARD_NAME.fullmatch(name))
    if refused:
        raise ValueError(
            f"{index}: shards must be files in its own folder; found {refused[0]!r:.200}. Allowed are ASCII letters, "
            "digits and _.+-, and no folders. Fetch the index again, from a source that you trust."
        )
    shards = [index.parent / name for name in sorted(names)]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{index}: lists the shards {missing}, which are not in {index.parent}. Fetch them too."
        )
    for shard in shards:
        if not is_inside(shard, index.parent):
            raise ValueError(
                f"{shard}: is a link to {shard.resolve()}, out of its folder; only links into the blobs of a Hugging "
                "Face cache are followed. Copy the file into the folder."
            )
    return shards
