"""Seeded mutations of the files that the library reads, and a runner that feeds them to the readers.

A reader may accept a mutated file or refuse it with the project's own error, which names the file. It must not crash,
take longer than 10 seconds, need much more memory than the file has, raise anything else, or read or write outside the
folder. `python -m tests.mutations --format=run_directory --number=20000` runs any number; a failure is printed with
its number, and `--first=NUMBER --number=1` repeats it.

A format is an entry of `FORMATS`: a function that writes a tiny valid file or folder, and a function that reads it.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import gc
import hashlib
import io
import json
import os
import queue
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 10.0
GRACE_SECONDS = 20.0  # until a worker that does not answer is ended
# Peak memory of reading: three times the files, and what building a small model or importing a library takes.
MEMORY_FACTOR, BASE_BYTES = 3, 256 << 20
ADDRESS_SPACE_BYTES = 6 << 30  # beyond what the worker has before it reads: protects the machine
SECRET = "the secret of somebody else"


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files: how a valid example is made below a folder, and how it is read."""

    make: Callable[[Path], Path]  # writes the files into the folder, and returns the path to read
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...] = (ValueError, FileNotFoundError)
    follows_links: bool = True  # whether a link in the folder may be read, as in the cache of a hub


# === Formats ===


def make_shards(folder: Path) -> Path:
    from safetensors.numpy import load_file, save_file

    path = make_checkpoint(folder, "hugging_face")
    tensors, shards = load_file(path / "model.safetensors"), {}
    (path / "model.safetensors").unlink()
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), 1):
        shards |= dict.fromkeys(names, f"model-{number:05d}-of-00002.safetensors")
        save_file({name: tensors[name] for name in names}, path / shards[names[0]])
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return path


def make_pytorch(folder: Path, legacy: bool) -> Path:
    from tests.weights.conftest import HuggingFaceFolder
    from tests.weights.pytorch_files import write_arrays

    contents = HuggingFaceFolder(folder / "model").with_classifier()
    path = contents.write()
    (path / "model.safetensors").unlink()
    write_arrays(path / "pytorch_model.bin", contents.tensors, legacy)
    return path


def make_tensorflow_h5(folder: Path) -> Path:
    from tests.weights.conftest import HuggingFaceFolder
    from tests.weights.test_tensorflow_h5_file import write

    return write(HuggingFaceFolder(folder / "model").with_classifier(), "tf_bert_for_sequence_classification")


def make_checkpoint(folder: Path, file_format: str) -> Path:
    """Writes the classifier, with its tokenizer, in a format that we write."""
    from tests.toys import toy_classifier

    classifier = toy_classifier(encoder_arguments={"hidden_act": "gelu_new"})
    return classifier.save_checkpoint(folder / "model", format=file_format)


def make_sentence_transformers(folder: Path) -> Path:
    from keras_bert.models.text_embedder import BertTextEmbedder
    from tests.toys import toy_encoder, toy_preprocessor

    encoder = toy_encoder(num_hidden_layers=1, with_pooler=False)
    return BertTextEmbedder(encoder, toy_preprocessor(), projection=4).save_checkpoint(folder / "model")


def read_sentence_transformers(path: Path) -> Any:
    from keras_bert.weights.sentence_transformers import read_embedding_settings, read_projection

    settings = read_embedding_settings(path, 16)
    return read_weights(path), settings, settings and read_projection(path, settings, 16)


def make_model_garden(folder: Path) -> Path:
    import numpy as np

    from tests.weights.test_model_garden import make_encoder, write

    (folder / "model").mkdir()
    return write(folder / "model", {"encoder": make_encoder(np.random.default_rng(0), True)})


def make_tf_hub(folder: Path) -> Path:
    from tests.weights.test_tf_hub import make_saved_model

    return make_saved_model(folder)


def make_tf_hub_archive(folder: Path) -> Path:
    from tests.weights.test_tf_hub import pack

    unpacked = make_tf_hub(folder)
    path = pack(unpacked)
    shutil.rmtree(unpacked)
    return path


def make_peft_adapter(folder: Path) -> Path:
    from tests.weights.test_peft_adapter import write_toy_adapter

    return write_toy_adapter(folder)


def read_peft_adapter(path: Path) -> Any:
    from tests.weights.test_peft_adapter import read

    return read(path)


def read_weights(path: Path) -> Any:
    from keras_bert.weights.checkpoint_reader import read_checkpoint

    return read_checkpoint(path)


def make_keras_archive(folder: Path) -> Path:
    from tests.toys import toy_classifier

    path = folder / "classifier.keras"
    toy_classifier(encoder_arguments={"num_hidden_layers": 1}).save(path)
    return path


def read_keras_archive(path: Path) -> Any:
    import keras

    from keras_bert.models.keras_archive import load_model

    try:
        return load_model(path)
    finally:
        keras.backend.clear_session(free_memory=False)  # garbage is collected when there is much of it


def make_run_directory(folder: Path) -> Path:
    from keras_bert.io.atomic_write import write_json
    from keras_bert.training.run_dir import RunDirectory

    run = RunDirectory(folder / "run", {"epochs": 2.0, "seed": 1, "learning_rate": [5e-5], "data": {"rows": 9}})
    for step in range(3):
        run.log({"event": "train", "step": step, "loss": 0.5})
    best = {"folder": "trials/1", "learning_rate": 5e-5, "seed": 1, "score": 0.5, "metrics": {"dev/accuracy": 0.5}}
    write_json(run.path / "results.json", {"best": best, "trials": [best], "score": "dev/accuracy"})
    checkpoints, state = _checkpoints(run.path), {"best_step": None}
    for step in (1, 2):
        checkpoints.save(None, {**state, "step": step})
    run.close()
    return run.path


def read_run_directory(path: Path) -> Any:
    from keras_bert.finetuning.fine_tuner import saved_recipe
    from keras_bert.finetuning.run_models import best_model, saved_results
    from keras_bert.training.run_dir import RunDirectory, read_configuration

    configuration = read_configuration(path)
    run = RunDirectory(path, configuration)
    try:
        run.log({"event": "resumed", "step": 3})
        run.read_log()
        _checkpoints(path).restore(None)
        return best_model(path), saved_results(path, None), saved_recipe(path, None)
    finally:
        run.close()


def _checkpoints(path: Path) -> Any:
    import types

    import tensorflow as tf

    from keras_bert.training.training_checkpoints import TrainingCheckpoints

    variables = [types.SimpleNamespace(value=tf.Variable([1.0, 2.0])) for _ in range(2)]
    parts = (types.SimpleNamespace(variables=variables[:1]), types.SimpleNamespace(variables=variables[1:]))
    return TrainingCheckpoints(path / "checkpoints", *parts)


def make_vocabulary(folder: Path) -> Path:
    from tests.toys import VOCABULARY

    path = folder / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n")
    return path


def read_vocabulary(path: Path) -> Any:
    from keras_bert.text.tokenizer import BertTokenizer

    tokenizer = BertTokenizer(path, lower_case=True)
    return tokenizer.tokenize_with_offsets(["a lovely film, really", "[MASK] \u00e9"])


def make_bert_config(folder: Path) -> Path:
    from tests.weights.conftest import SIZES

    path = folder / "bert_config.json"
    path.write_text(json.dumps({**SIZES, "hidden_act": "gelu", "initializer_range": 0.02}))
    return path


def read_bert_config(path: Path) -> Any:
    from keras_bert.weights.google_bert import read_bert_config

    return read_bert_config(path)


def make_anything(folder: Path) -> Path:
    path = folder / "anything"
    path.write_bytes(bytes(1000))
    return path


def misbehave(path: Path) -> Any:
    """Does, depending on the file, everything that a reader must not do; accepts the valid one. For the tests."""
    content = path.read_bytes()
    action = sum(content) % 6 if content != bytes(1000) else 0
    if action == 1:
        os.abort()
    if action == 2:
        raise TypeError(f"{path} is another type")
    if action == 3:
        raise ValueError("something is wrong with some file")
    if action == 4:
        (path.parent.parent / "outside" / "new").write_text("written")
    if action == 5:
        return len(b"x" * (400 << 20))
    if content != bytes(1000):
        raise ValueError(f"{path} is not valid")
    return None


MISBEHAVING = "misbehaving"  # not one of ours
FORMATS = {
    "bert_config": Format(make_bert_config, read_bert_config),
    "keras_archive": Format(make_keras_archive, read_keras_archive),
    MISBEHAVING: Format(make_anything, misbehave, follows_links=False),
    "run_directory": Format(make_run_directory, read_run_directory, (ValueError, FileNotFoundError, FileExistsError)),
    "google": Format(lambda folder: make_checkpoint(folder, "google"), read_weights),
    "hugging_face": Format(lambda folder: make_checkpoint(folder, "hugging_face"), read_weights),
    "keras_hub": Format(lambda folder: make_checkpoint(folder, "keras_hub"), read_weights),
    "model_garden": Format(make_model_garden, read_weights),
    "peft_adapter": Format(make_peft_adapter, read_peft_adapter),
    "pytorch_legacy": Format(lambda folder: make_pytorch(folder, True), read_weights),
    "pytorch_zip": Format(lambda folder: make_pytorch(folder, False), read_weights),
    "sentence_transformers": Format(make_sentence_transformers, read_sentence_transformers),
    "tensorflow_h5": Format(make_tensorflow_h5, read_weights),
    "tf_hub": Format(make_tf_hub, read_weights),
    "tf_hub_archive": Format(make_tf_hub_archive, read_weights),
    "safetensors_shards": Format(make_shards, read_weights),
    "vocabulary": Format(make_vocabulary, read_vocabulary),
}


# === Mutations ===

Files = dict[str, bytes]
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63)
PATHS = (
    "../outside/secret",
    "../../outside/secret",
    "/etc/hostname",
    "..",
    "/",
    "",
    ".",
    "a/../../outside/secret",
    "\0",
)


def deep(depth: int) -> Any:
    """A list in a list in a list ..., as text, because Python cannot write it."""
    return RawJson("[" * depth + "]" * depth)


class RawJson(str):
    """JSON that is written as it is."""


def hostile_value(value: Any, choose: random.Random) -> Any:
    """Returns a value to stand where another one stood in a JSON file."""
    shapes: list[Any] = [[1 << 40, 1 << 40], [-1], [-4, -3], [0], [1 << 63], [], [2] * 2000, [3.5], ["4"], [True]]
    numbers: list[Any] = [-1, 0, 1 << 31, 1 << 40, 1 << 63, RawJson("9" * 400), RawJson("9" * 5000), RawJson("1e999")]
    numbers += [0.5, True, RawJson("NaN"), RawJson("-Infinity"), 100_000_000]
    others: list[Any] = [None, "", "x", [], {}, [[]], {"": {}}, "\ud800", "\u0000", "x" * 100_000, [None] * 1000]
    others += [deep(50), deep(2000), deep(100_000), choose.choice(PATHS), choose.choice(PATHS)]
    if isinstance(value, list) and choose.random() < 0.5:
        return choose.choice(shapes)
    if isinstance(value, (int, float)) and choose.random() < 0.6:
        return choose.choice([value + 1, -value, value * 1000, *numbers])
    if isinstance(value, str) and choose.random() < 0.4:
        return choose.choice(PATHS)
    return choose.choice([*shapes, *numbers, *others])


def write_json_text(value: Any) -> str:
    """Writes JSON with `RawJson` as it is, and pairs of a list of tuples as an object with repeated names."""
    if isinstance(value, RawJson):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {write_json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write_json_text, value)) + "]"
    return json.dumps(value)


def mutate_json(content: bytes, choose: random.Random) -> bytes | None:
    """Changes one or several values, names or members of a JSON text; None if it is none."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    if not isinstance(value, (dict, list)):
        return write_json_text(hostile_value(value, choose)).encode()
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        parent: Any = value
        while True:
            keys = list(parent) if isinstance(parent, dict) else range(len(parent))
            if not keys:
                break
            key = choose.choice(list(keys))
            child = parent[key]
            if isinstance(child, (dict, list)) and not isinstance(child, RawJson) and child and choose.random() < 0.7:
                parent = child
                continue
            action = choose.random()
            if action < 0.15:
                del parent[key]
            elif action < 0.25 and isinstance(parent, dict):
                parent[choose.choice(["", "x", *PATHS, "__proto__", key + "0"])] = parent.pop(key)
            elif action < 0.3 and isinstance(parent, dict):
                # The same name twice.
                parent[key] = RawJson(f"{write_json_text(child)}, {json.dumps(key)}: {write_json_text(child)}")
            else:
                parent[key] = hostile_value(child, choose)
            break
    return write_json_text(value).encode("utf-8", "surrogatepass")


def mutate_json_lines(content: bytes, choose: random.Random) -> bytes | None:
    lines = content.split(b"\n")
    number = choose.randrange(len(lines))
    changed = mutate_json(lines[number], choose)
    if changed is None:
        return None
    lines[number] = changed
    return b"\n".join(lines)


def mutate_safetensors(content: bytes, choose: random.Random) -> bytes | None:
    """Changes the table of contents of a safetensors file, and writes its length correctly, or not."""
    length = int.from_bytes(content[:8], "little")
    header = mutate_json(content[8 : 8 + length], choose) if 8 < length < len(content) else None
    if header is None:
        return None
    stated = len(header) if choose.random() < 0.9 else choose.choice(EXTREMES)
    return min(stated, (1 << 64) - 1).to_bytes(8, "little") + header + content[8 + length :]


def mutate_zip(content: bytes, choose: random.Random) -> bytes | None:
    """Changes a member of a zip archive, or its name, or how it is stored."""
    if not content.startswith(b"PK\x03\x04"):
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    number = choose.randrange(len(members))
    name, data = members[number]
    action, compression = choose.random(), zipfile.ZIP_STORED
    if action < 0.7:
        members[number] = (name, mutate_bytes(data, choose))
    elif action < 0.75:
        members[number] = (choose.choice([*PATHS[:6], name.upper(), name + "\0x"]) or "x", data)
    elif action < 0.8:
        members.append(choose.choice([(name, data), (choose.choice(PATHS[:3]), b"x"), ("assets/x", b"x")]))
    elif action < 0.85:
        del members[number]
    elif action < 0.9:
        members[number], compression = (name, data + b" " * (50 << 20)), zipfile.ZIP_DEFLATED
    else:
        compression = zipfile.ZIP_DEFLATED
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of a repeated name
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            if action > 0.97:
                info.external_attr = 0o120777 << 16  # a link
            archive.writestr(info, data)
    return file.getvalue()


def mutate_raw(content: bytes, choose: random.Random) -> bytes:
    """Flips bits, cuts, repeats or removes parts, or writes extreme numbers, as in a field of a length."""
    data = bytearray(content)
    action = choose.random()
    # Headers are at the beginning, and indexes at the end.
    near = choose.choice((64, 1024, len(data)))
    position = choose.randrange(min(near, len(data)) or 1)
    if choose.random() < 0.25:
        position = max(len(data) - 1 - position, 0)
    if action < 0.3 and data:
        for _ in range(choose.choice((1, 1, 2, 8, 64))):
            data[choose.randrange(min(near, len(data)))] ^= 1 << choose.randrange(8)
    elif action < 0.45:
        del data[position:]
    elif action < 0.7:
        size = choose.choice((1, 2, 4, 8))
        number = choose.choice((*EXTREMES, len(data), len(data) + 1)) & ((1 << 8 * size) - 1)
        data[position : position + size] = number.to_bytes(size, choose.choice(("little", "big")))
    elif action < 0.8:
        data += choose.choice((b"\0", b"\n", b"\xff", choose.randbytes(8))) * choose.choice((1, 7, 4096))
    elif action < 0.9:
        end = position + choose.choice((1, 8, 100, len(data)))
        data[position:position] = data[position:end] * choose.choice((1, 1, 50))
    else:
        del data[position : position + choose.choice((1, 4, 8, 100))]
    return bytes(data)


def mutate_bytes(content: bytes, choose: random.Random) -> bytes:
    """Changes the contents of a file, with its format in mind or without."""
    if choose.random() < 0.65:
        for mutate in (mutate_zip, mutate_safetensors, mutate_json, mutate_json_lines):
            with contextlib.suppress(Exception):  # an earlier mutation has damaged the file
                changed = mutate(content, choose)
                if changed is not None:
                    return changed
    return mutate_raw(content, choose)


def mutate_folder(folder: Path, choose: random.Random, outside: Path) -> str:
    """Changes the files below a folder in place, and returns what was done."""
    done = []
    for _ in range(choose.choice((1, 1, 1, 2))):
        files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        if not files:
            break
        file = choose.choice(files)
        name, action = file.relative_to(folder), choose.random()
        if action < 0.85:
            file.write_bytes(mutate_bytes(file.read_bytes(), choose))
            done.append(f"changed {name}")
        elif action < 0.88:
            file.unlink()
            done.append(f"deleted {name}")
        elif action < 0.94:
            targets = [
                str(outside / "secret"),
                os.path.relpath(outside / "secret", file.parent),
                "/dev/zero",
                file.name,
            ]
            target = choose.choice([*targets, str(outside), str(choose.choice(files))])
            file.unlink()
            file.symlink_to(target)
            done.append(f"{name} is a link to {target}")
        elif action < 0.96:
            file.unlink()
            file.mkdir()
            done.append(f"{name} is a folder")
        elif action < 0.98:
            other = choose.choice(files)
            file.write_bytes(other.read_bytes())
            done.append(f"{name} has the contents of {other.relative_to(folder)}")
        else:
            file.unlink()
            os.mkfifo(file)
            done.append(f"{name} is a pipe")
    return "; ".join(done)


# === A worker, which reads one mutation after the other ===


class Reader:
    """Reads mutations of one format in this process."""

    def __init__(self, name: str, folder: Path):
        self.format = FORMATS[name]
        self.name = name
        self.folder = folder
        self.opened: list[str] = []  # files outside the folder that Python opened during a reading
        for part in ("", "outside", "cwd", "valid"):
            (folder / part).mkdir()
        (folder / "outside" / "secret").write_text(SECRET)
        os.chdir(folder / "cwd")
        with _hidden_output():
            self.valid = self.format.make(folder / "valid")
            shutil.copytree(folder / "valid", folder / "first", symlinks=True)
            self.format.read(folder / "first" / self.valid.name)  # a valid file is accepted, and libraries are loaded
        shutil.rmtree(folder / "first")
        self.before = self._snapshot()

    def run(self, number: int) -> dict[str, Any]:
        """Reads a mutation, and returns what happened: `problem` is None unless it must not."""
        choose = random.Random(f"{self.name} {number}")
        work = self.folder / f"mutation_{number}"
        shutil.copytree(self.folder / "valid", work, symlinks=True)
        change = mutate_folder(work, choose, self.folder / "outside")
        path = work / self.valid.name
        size = sum(file.lstat().st_size for file in work.rglob("*"))
        os.chdir(self.folder / "cwd")
        self.opened.clear()
        started, peak = time.monotonic(), _PeakMemory()
        error: BaseException | None = None
        with _hidden_output(), _limited_address_space(), _noted_opens(self.note_open):
            try:
                self.format.read(path)
            except BaseException as caught:
                error = caught
        seconds, used = time.monotonic() - started, peak.used()
        shutil.rmtree(work)
        problem = None
        if error is not None and not isinstance(error, self.format.errors):
            problem = f"raised {type(error).__name__}: {str(error)[:300]}"
        elif error is not None and not (str(work) in str(error) or path.name in str(error)):
            problem = f"raised {type(error).__name__} without the name of the file: {str(error)[:300]}"
        elif seconds > LIMIT_SECONDS:
            problem = f"took {seconds:.1f} seconds"
        elif used > MEMORY_FACTOR * size + BASE_BYTES:
            problem = f"needed {used >> 20} MiB for files of {size} bytes"
        elif self._snapshot() != self.before:
            problem = "wrote outside the folder"
            self.before = self._snapshot()
        elif self.opened and not self.format.follows_links:
            problem = f"read {self.opened[0]}"
        outcome = "accepted" if error is None else f"refused: {type(error).__name__}"
        return {"number": number, "change": change, "outcome": outcome, "seconds": seconds, "problem": problem}

    def _snapshot(self) -> dict[str, str]:
        files = [self.folder, *self.folder.rglob("*")]
        return {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
            for file in files
            if not file.is_relative_to(self.folder / "valid")
        }

    def note_open(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, os.PathLike)):
            name = os.path.realpath(arguments[0])
            if name.startswith(str(self.folder / "outside")) or name == "/etc/hostname":
                self.opened.append(name)


_open_notes: list[Callable[[str, tuple[Any, ...]], None]] = []


@contextlib.contextmanager
def _noted_opens(note: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    _open_notes.append(note)
    try:
        yield
    finally:
        _open_notes.clear()


@contextlib.contextmanager
def _hidden_output() -> Iterator[None]:
    """Discards the output of the block, and warnings."""
    with (
        open(os.devnull, "w") as null,
        contextlib.redirect_stdout(null),
        contextlib.redirect_stderr(null),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _limited_address_space() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ADDRESS_SPACE_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


class _PeakMemory:
    """The growth of the resident memory of this process, at its peak."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):  # the peak is then that of the whole life of the process
            Path("/proc/self/clear_refs").write_text("5")
        self._before = max(_memory("VmRSS"), 0 if self._can_reset() else _memory("VmHWM"))

    @staticmethod
    def _can_reset() -> bool:
        return os.access("/proc/self/clear_refs", os.W_OK)

    def used(self) -> int:
        return max(_memory("VmHWM") - self._before, 0)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def _work() -> None:
    """Reads names of formats and numbers from the standard input, and writes what happened to the standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A hook cannot be removed.
    sys.addaudithook(lambda event, arguments: [note(event, arguments) for note in _open_notes] and None)
    readers: dict[str, Reader] = {}
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            name, number = json.loads(line)
            try:
                if name not in readers:
                    readers[name] = Reader(name, Path(folder).resolve() / name)
                    gc.freeze()  # libraries are not looked at again by every collection
                    answer: dict[str, Any] = {"ready": True}
                else:
                    answer = readers[name].run(number)
            except BaseException as error:
                answer = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
        os.chdir("/")


# === The runner ===


class Worker:
    """A process that reads mutations of any format, and is replaced when it crashes or hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._ready: set[str] = set()

    def run(self, name: str, number: int) -> dict[str, Any]:
        """Reads a mutation of a format, and returns what happened."""
        if name not in self._ready:
            answer = self._ask(name, number, 300)
            if answer != {"ready": True}:
                raise RuntimeError(f"the valid example of {name} is not accepted: {answer}")
            self._ready.add(name)
        answer = self._ask(name, number, LIMIT_SECONDS + GRACE_SECONDS)
        if "failed" in answer:
            raise RuntimeError(f"mutation {number} of {name} was not made or read: {answer}")
        return answer

    def _ask(self, name: str, number: int, seconds: float) -> dict[str, Any]:
        if self._process is None:
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
            command, pipe = [sys.executable, "-m", "tests.mutations", "--worker"], subprocess.PIPE
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([name, number]) + "\n")
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.close()
        problem = (
            f"ended the process with {process.returncode}" if ready else f"took more than {LIMIT_SECONDS:g} seconds"
        )
        return {"number": number, "change": "", "outcome": "lost", "seconds": 0.0, "problem": problem}

    def close(self) -> None:
        """Ends the process."""
        self._ready.clear()
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def run_mutations(workers: Sequence[Worker], name: str, number: int, first: int = 0) -> list[dict[str, Any]]:
    """Reads mutations of a format, and returns what happened to each, in order."""
    idle = queue.SimpleQueue[Worker]()
    for worker in workers:
        idle.put(worker)

    def run(mutation: int) -> dict[str, Any]:
        worker = idle.get()
        try:
            return worker.run(name, mutation)
        finally:
            idle.put(worker)

    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(run, range(first, first + number)))


def assert_reads_mutations(worker: Worker, name: str, number: int = 500) -> None:
    """Fails, naming the first mutations, if a reader does with any of them what it must not."""
    problems = [result for result in run_mutations([worker], name, number) if result["problem"]]
    lines = [f"{result['number']} ({result['change']}): {result['problem']}" for result in problems[:20]]
    assert not problems, f"{len(problems)} of {number} mutations of {name}:\n" + "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=sorted(FORMATS), action="append", help="may be repeated; default: all")
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _work()
        return 0
    workers, has_problems = [Worker() for _ in range(arguments.processes)], False
    for name in arguments.format or sorted(FORMATS.keys() - {MISBEHAVING}):
        started = time.monotonic()
        results = run_mutations(workers, name, arguments.number, arguments.first)
        counts = collections.Counter(result["outcome"] for result in results)
        slowest = max(results, key=lambda result: result["seconds"])
        print(f"{name}: {len(results)} mutations in {time.monotonic() - started:.0f} s; {dict(counts)}")
        print(f"slowest: {slowest['seconds']:.2f} s, number {slowest['number']} ({slowest['change']})")
        problems = [result for result in results if result["problem"]]
        for result in problems[:50]:
            print(f"  {result['number']} ({result['change']}): {result['problem']}")
        print(f"{len(problems)} problems", flush=True)
        has_problems |= bool(problems)
    for worker in workers:
        worker.close()
    return 1 if has_problems else 0


if __name__ == "__main__":
    sys.exit(main())
