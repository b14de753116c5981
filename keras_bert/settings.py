"""Settings of programs and library: frozen dataclasses with the type, default, help and check of each setting."""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

REQUIRED = dataclasses.MISSING


def setting(
    default: Any,
    help: str,
    *,
    lower: float | None = None,
    upper: float | None = None,
    choices: Sequence[str] | None = None,
    check: tuple[Callable[[Any], bool], str] | None = None,
    modes: tuple[str, ...] | None = None,
    recorded: bool = True,
) -> Any:
    """Declares a field of a `Settings` class."""
    metadata = {"help": help, "lower": lower, "upper": upper, "choices": choices, "check": check}
    metadata |= {"modes": modes, "repeated": False, "recorded": recorded}
    return dataclasses.field(default=default, metadata=metadata)


class Kind(NamedTuple):
    """The type of a setting: its scalar types, whether there may be several values, and whether None is allowed."""

    scalars: frozenset[type]
    is_list: bool
    is_optional: bool


def kinds(settings_class: type[Settings]) -> dict[str, Kind]:
    """Returns the kind of each setting of a class, by name."""
    hints = typing.get_type_hints(settings_class)
    return {field.name: _kind(hints[field.name]) for field in dataclasses.fields(settings_class)}


def _kind(hint: Any) -> Kind:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if is_union else (hint,)
    lists = [member for member in members if typing.get_origin(member) is tuple]
    scalars = {typing.get_args(member)[0] if member in lists else member for member in members}
    return Kind(frozenset(scalars - {types.NoneType}), bool(lists), types.NoneType in members)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of settings: frozen, validated on creation, and JSON-serializable by `configuration`.

    A subclass checks several settings together in its `__post_init__`, after calling this one. The settings in
    `fixed_by_run` cannot differ from those of the run whose model is used.
    """

    fixed_by_run: typing.ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _converted(field.name, getattr(self, field.name), kinds(type(self))[field.name])
            object.__setattr__(self, field.name, value)
            for item in value if isinstance(value, tuple) else (value,):
                _check(field, item)

    def configuration(self) -> dict[str, Any]:
        """Returns the recorded settings by name, as in a run's `configuration.json`."""
        fields = (field for field in dataclasses.fields(self) if field.metadata["recorded"])
        return {field.name: getattr(self, field.name) for field in fields}

    @classmethod
    def recorded(cls, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of a run's configuration that are settings of this class."""
        fields = (field for field in dataclasses.fields(cls) if field.metadata["recorded"])
        return {field.name: configuration[field.name] for field in fields if field.name in configuration}

    def without_effect(self) -> dict[str, str]:
        """Returns the settings that the others leave without effect, and why: a program refuses their flags."""
        return {}

    def is_default(self, name: str) -> bool:
        """Whether a setting has its default."""
        default = {field.name: field.default for field in dataclasses.fields(self)}[name]
        return getattr(self, name) == default


def _converted(name: str, value: Any, kind: Kind) -> Any:
    """Returns the value with lists as tuples, paths as strings and whole numbers as floats where a float is meant."""
    if value is None and kind.is_optional:
        return value
    if kind.is_list and isinstance(value, (list, tuple)):
        return tuple(_converted(name, item, Kind(kind.scalars, False, False)) for item in value)
    if isinstance(value, os.PathLike) and str in kind.scalars:
        return os.fspath(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in kind.scalars:
        return float(value)
    if type(value) in kind.scalars:
        return value
    allowed = " or ".join(sorted(scalar.__name__ for scalar in kind.scalars))
    raise TypeError(f"{name} must be {'a list of ' if kind.is_list else ''}{allowed}, got {value!r}")


def _check(field: dataclasses.Field, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field.name} must be a finite number, got {value}")
    lower, upper, choices, check = (field.metadata[name] for name in ("lower", "upper", "choices", "check"))
    if lower is not None and not value >= lower:
        raise ValueError(f"{field.name} must be at least {lower}, got {value}")
    if upper is not None and not value <= upper:
        raise ValueError(f"{field.name} must be at most {upper}, got {value}")
    if choices is not None and value not in choices:
        raise ValueError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}")
    if check is not None and not check[0](value):
        raise ValueError(f"{field.name} {check[1]}, got {value!r}")


def repeated_setting(field: Any) -> Any:
    """Declares a `setting` whose flag is repeated instead of comma-separated."""
    return dataclasses.field(default=field.default, metadata={**field.metadata, "repeated": True})


def flag_definition(field: Any, kind: Kind, default: Any) -> tuple[str, list[Any]]:
    """Returns the kind of a setting's flag, such as "float" for DEFINE_float, and the arguments after its name."""
    help, choices = field.metadata["help"], field.metadata["choices"]
    if field.metadata["repeated"]:
        return "multi_string", [list(default), help]
    if kind.is_list:
        if default is not None:
            default = [str(item) for item in (default if isinstance(default, tuple) else (default,))]
        return "list", [default, help]
    if choices is not None:
        return "enum", [default, choices, help]
    scalar, *others = kind.scalars
    names = {bool: "bool", int: "integer", float: "float"}
    return "string" if others else names.get(scalar, "string"), [default, help]


def file_setting(help: str, *modes: str) -> Any:
    """Declares the path of a file."""
    return setting(None, help, modes=modes, recorded=False)


def files_setting(help: str, *modes: str) -> Any:
    """Declares paths or patterns of files."""
    return repeated_setting(setting((), help, modes=modes or None, recorded=False))
