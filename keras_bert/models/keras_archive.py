"""Loading of `.keras` archives that somebody else may have made, and checks of the configurations in them."""

from __future__ import annotations

import contextlib
import contextvars
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bert.io.untrusted_files import parse_json
from keras_bert.typing import PathLike

_CONFIG_NAME, _WEIGHTS_NAME = "config.json", "model.weights.h5"
_MEMBERS = {_CONFIG_NAME, _WEIGHTS_NAME, "metadata.json"}
# An archive is stored without compression. What is compressed much better than weights can be was made to fill memory.
_MAX_EXPANSION, _FREE_BYTES = 3, 1 << 20
# Far beyond the largest BERT (340 million): what a configuration alone, without its weights, may ask for.
MAX_PARAMETERS = 1 << 31
MAX_LAYERS = 1000
_MAX_SHOWN = 500  # characters of Keras' message
_BYTES = {"bfloat16": 2, "float16": 2, "int8": 1, "float8": 1, "int4": 0.5}  # of a parameter, by the policy's beginning

_max_bytes: contextvars.ContextVar[float | None] = contextvars.ContextVar("max_bytes", default=None)


def load_model(path: PathLike, compile: bool = True, allow_nonfinite: bool = False) -> keras.Model:
    """Loads a model from a `.keras` archive, which may come from anybody.

    `keras.saving.load_model` reads the same files. This function also checks the sizes in the configuration against the
    weights in the archive before anything is built, refuses weights that are NaN or infinite, and raises one kind of
    error, which names the file. In both, the vocabulary must be in the configuration: no other file is read.

    What remains Keras' own: the names of classes in the configuration, which Keras looks up among its own and the
    registered ones (it refuses functions of Python, as `safe_mode` is on), and the HDF5 library that reads the weights.

    Args:
        path: the archive, as `model.save("name.keras")` writes it.
        compile: whether to compile the model as it was when it was saved.
        allow_nonfinite: whether weights may be NaN or infinite.

    Returns:
        The model.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not the archive of a model, or was damaged.

    Example:

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> path = Path(tempfile.mkdtemp()) / "encoder.keras"
    >>> encoder.save(path)
    >>> load_model(path).vocab_size
    9
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"the model {path} {what}; pass the path of a .keras file")
    limit = None
    try:
        limit = _max_bytes.set(_check_archive(path))
        model = keras.saving.load_model(path, compile=compile, safe_mode=True)
        problem = None if allow_nonfinite else _find_nonfinite(model)
    except Exception as error:  # of the libraries that read zip archives, JSON and HDF5: many kinds
        reason = f"{type(error).__name__}: {error}"
        reason = reason if len(reason) <= _MAX_SHOWN else f"{reason[:_MAX_SHOWN]}..."
        raise ValueError(
            f"{path} cannot be loaded ({reason}). It is damaged, not a .keras archive, or has classes that are not "
            "imported; copy it again, or save the model again"
        ) from error
    finally:
        if limit is not None:
            _max_bytes.reset(limit)
    if problem is not None:
        raise ValueError(f"{path}: {problem}. Its training diverged: use another model, or pass allow_nonfinite=True")
    return model


def _check_archive(path: Path) -> float:
    """Checks what an archive holds, before it is read; returns the bytes of its weights."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names) or not {_CONFIG_NAME, _WEIGHTS_NAME} <= set(names) <= _MEMBERS:
            raise ValueError(f"the archive must hold {sorted(_MEMBERS)}, each once; it holds {sorted(names)[:10]}")
        size = sum(member.file_size for member in members)
        if size > _MAX_EXPANSION * path.stat().st_size + _FREE_BYTES:
            raise ValueError(f"its {path.stat().st_size} bytes claim to hold {size} bytes")
        config = parse_json(archive.read(_CONFIG_NAME))
        if not isinstance(config, dict):
            raise ValueError(f"{_CONFIG_NAME} must hold a JSON object; it holds a {type(config).__name__}")
        return float(archive.getinfo(_WEIGHTS_NAME).file_size)


def _find_nonfinite(model: Any) -> str | None:
    for variable in getattr(model, "variables", ()):
        value = np.asarray(keras.ops.convert_to_numpy(variable))
        if value.dtype.kind not in "iub" and not np.isfinite(value.astype("float32", copy=False)).all():
            return f"the weight {variable.path!r} is NaN or infinite"
    return None


@contextlib.contextmanager
def checked_config(kind: str) -> Iterator[None]:
    """Turns the errors that values of a wrong type in a configuration cause into a ValueError."""
    try:
        yield
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"the configuration of a {kind} cannot be used ({type(error).__name__}: {error}). It is damaged, or of "
            "another version of keras_bert; save the model again"
        ) from error


def load_part(config: Any, kinds: tuple[type, ...]) -> Any:
    """Creates a part of a model from its serialized configuration; raises ValueError if its class is another one.

    The class is looked up first: Keras would build whatever the configuration names.
    """
    name = config.get("registered_name") if isinstance(config, Mapping) else None
    found = keras.saving.get_registered_object(name) if isinstance(name, str) else None
    if not (isinstance(found, type) and issubclass(found, kinds)):
        raise ValueError(
            f"the configuration of a model has the part {name!r}, and this part must be one of "
            f"{[kind.__name__ for kind in kinds]}, or a registered subclass"
        )
    return keras.saving.deserialize_keras_object(config)


def check_parameters(what: str, number: int, dtype: Any = None) -> None:
    """Raises ValueError if a saved configuration asks for more parameters than its archive has, or than any BERT."""
    max_bytes = _max_bytes.get()
    size = next((size for name, size in _BYTES.items() if _policy_name(dtype).startswith(name)), 4)
    if number > MAX_PARAMETERS or (max_bytes is not None and number * size > max_bytes):
        limit = MAX_PARAMETERS if max_bytes is None else int(max_bytes / size)
        raise ValueError(
            f"the configuration has {what} with {number} parameters, and there can be {limit} at most: it is damaged, "
            "or does not belong to these weights"
        )


def check_layers(number: Any) -> None:
    """Raises ValueError if a saved configuration has more layers than any model; other types are left to the model."""
    if isinstance(number, int) and number > MAX_LAYERS:
        raise ValueError(f"the configuration has {number} layers, and there can be {MAX_LAYERS} at most")


def _policy_name(dtype: Any) -> str:
    """Returns the name of a dtype policy, from a configuration; "" if there is none."""
    name: Any = dtype
    if isinstance(dtype, Mapping):
        config = dtype.get("config")
        name = config.get("name") if isinstance(config, Mapping) else None
    return name if isinstance(name, str) else ""
