"""Conversion of compilation options to JSON values and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from firmwright.base.errors import ModelError
from firmwright.base.json_input import (
    Json,
    JsonObject,
    as_integer,
    as_number,
    as_objects,
    as_text,
    as_texts,
)
from firmwright.base.value_kinds import TEXT, TEXTS
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import Pass
from firmwright.ir.program_record import ProgramRecord
from firmwright.ops.tuning_records import TuningRecords

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Number = TypeVar("Number", int, float)
MACHINE_OPTIONS: Final = frozenset({"board_dirs"})
TUNING_OPTION: Final = "tuning"
PASSES_OPTION: Final = "passes"
UPDATE_OPTION: Final = "update_of"
_POOLS: Final = frozenset({"pools", "const_pools"})
_ROW_SIZES: Final = {
    "offload": 2,
    "pool_assignments": 2,
    "device_assignments": 3,
    "sections": 2,
}
"""The number of words in a row of the options that are lists of rows."""


def _pool_defaults() -> dict[str, object]:
    defaults: dict[str, object] = {}
    for field in fields(PoolInfo):
        if field.default is not MISSING:
            defaults[field.name] = field.default
    return defaults


_DEFAULT_POOL: Final = _pool_defaults()


def serialize_options(options: DataclassInstance) -> dict[str, Json]:
    """Return the options that differ from their defaults, as JSON values."""
    values: dict[str, Json] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default and field.name not in MACHINE_OPTIONS:
            values[field.name] = _to_json(value)
    return values


def _to_json(value: object) -> Json:
    match value:
        case TuningRecords():
            return value.digest
        case ProgramRecord():
            return value.code
        case Pass():
            return {"name": value.name, "after": value.after, "origin": value.origin}
        case PoolInfo():
            facts: dict[str, Json] = {"name": value.name}
            for name, fact in asdict(value).items():
                if fact != _DEFAULT_POOL.get(name):
                    facts[name] = fact
            return facts
        case tuple():
            return [_to_json(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    raise ModelError(
        f"an option of type {type(value).__name__} cannot be written down."
    )


def deserialize_options(
    stored: JsonObject, options_type: type[DataclassInstance], where: Path
) -> dict[str, object]:
    """Return options by name, without code and logs; ModelError if malformed."""
    names = {field.name for field in fields(options_type)} - MACHINE_OPTIONS
    unknown = sorted(set(stored) - names)
    if unknown:
        found = f"the recipe has the option {unknown[0]!r}"
        what = f"{found}, which this version does not know."
        hint = "the version that tool_version names."
        raise ModelError(what, where=str(where), hint=hint)
    try:
        defaults = options_type()
        values: dict[str, object] = {}
        for name, value in stored.items():
            if name not in (TUNING_OPTION, PASSES_OPTION, UPDATE_OPTION):
                values[name] = _option(name, value, getattr(defaults, name))
        return values
    except (TypeError, ValueError, AttributeError) as error:
        what = f"the recipe cannot be read: {error}."
        raise ModelError(what, where=str(where), hint="compile it anew.") from error


def _option(name: str, value: Json, default: object) -> object:
    """Return the value of an option; TypeError if the default's kind differs."""
    if name in _POOLS:
        return tuple(map(_pool, as_objects(value)))
    if name.endswith("_bytes"):
        if value is not None and type(value) is not int:
            raise TypeError(f"{name} is a number of bytes")
        return value
    if isinstance(default, tuple) and isinstance(value, list):
        for item in value:
            if not _is_item(name, item):
                raise TypeError(f"{name} is a list of other items")
        return _to_tuple(value)
    if type(value) is not type(default):
        raise TypeError(f"{name} is of another kind")
    return value


def _is_item(name: str, value: Json) -> bool:
    """Return whether `value` is a word, or a row of words, as the option has."""
    size = _ROW_SIZES.get(name)
    if size is None:
        return TEXT.includes(value)
    return TEXTS.includes(value) and len(as_texts(value)) == size


def _pool(stored: JsonObject) -> PoolInfo:
    """Return the pool with stored facts; TypeError or ValueError for wrong kinds."""
    unknown = sorted(stored.keys() - {field.name for field in fields(PoolInfo)})
    if unknown:
        raise TypeError(f"a pool has the unknown fact {unknown[0]}")
    access = stored.get("access", "rw")
    if access != "rw" and access != "ro":
        raise TypeError(f"a pool has the access {access!r}")
    return PoolInfo(
        name=as_text(stored.get("name")),
        size_bytes=_optional(as_integer, stored.get("size_bytes")),
        access=access,
        targets=tuple(as_texts(stored.get("targets", []))),
        read_bandwidth=_optional(as_number, stored.get("read_bandwidth")),
        write_bandwidth=_optional(as_number, stored.get("write_bandwidth")),
        read_latency=_optional(as_integer, stored.get("read_latency")),
        write_latency=_optional(as_integer, stored.get("write_latency")),
        scope=as_text(stored.get("scope", "global")),
        section=as_text(stored.get("section", "")),
        cache_line=as_integer(stored.get("cache_line", 0)),
        tightly_coupled=stored.get("tightly_coupled", False) is True,
        start=_optional(as_integer, stored.get("start")),
    )


def _optional(read: Callable[[Json], Number], value: Json) -> Number | None:
    return None if value is None else read(value)


def _to_tuple(value: Json) -> object:
    """Return `value` with tuples in place of lists, as frozen options need them."""
    return tuple(map(_to_tuple, value)) if isinstance(value, list) else value
