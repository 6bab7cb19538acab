"""Conversion of compilation options to JSON values and back."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Final

from firmwright.base.errors import ModelError
from firmwright.base.value_kinds import TEXT, TEXTS
from firmwright.ir.core import POOL_SPEEDS, PoolInfo
from firmwright.ir.module import Pass
from firmwright.ir.program_record import ProgramRecord
from firmwright.ops.tuning_records import TuningRecords

MACHINE_OPTIONS: Final = frozenset({"board_dirs"})
TUNING_OPTION: Final = "tuning"
PASSES_OPTION: Final = "passes"
UPDATE_OPTION: Final = "update_of"
_POOLS: Final = frozenset({"pools", "const_pools"})
_ROW_SIZES: Final = {"offload": 2, "pool_assignments": 2, "device_assignments": 3, "sections": 2}
"""The number of words in a row of the options that are lists of rows."""
_DEFAULT_POOL: Final = {f.name: f.default for f in fields(PoolInfo) if f.default is not MISSING}


def serialize_options(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, as JSON values."""
    values: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default and field.name not in MACHINE_OPTIONS:
            values[field.name] = _to_json(value)
    return values


def _to_json(value: Any) -> Any:
    match value:
        case TuningRecords():
            return value.digest
        case ProgramRecord():
            return value.code
        case Pass():
            return {"name": value.name, "after": value.after, "origin": value.origin}
        case PoolInfo():
            facts: dict[str, Any] = {"name": value.name}
            for name, fact in asdict(value).items():
                if fact != _DEFAULT_POOL.get(name):
                    facts[name] = fact
            return facts
        case tuple():
            return [_to_json(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    raise ModelError(f"an option of type {type(value).__name__} cannot be written down.")


def deserialize_options(
    stored: Mapping[str, Any], options_type: type, where: Path
) -> dict[str, Any]:
    """Return options by name, without code and logs; raise ModelError if they are malformed."""
    names = {field.name for field in fields(options_type)} - MACHINE_OPTIONS
    unknown = sorted(set(stored) - names)
    if unknown:
        what = f"the recipe has the option {unknown[0]!r}, which this version does not know."
        raise ModelError(what, where=str(where), hint="the version that tool_version names.")
    try:
        defaults = options_type()
        values: dict[str, Any] = {}
        for name, value in stored.items():
            if name not in (TUNING_OPTION, PASSES_OPTION, UPDATE_OPTION):
                values[name] = _option(name, value, getattr(defaults, name))
        return values
    except (TypeError, ValueError, AttributeError) as error:
        what = f"the recipe cannot be read: {error}."
        raise ModelError(what, where=str(where), hint="compile it anew.") from error


def _option(name: str, value: Any, default: Any) -> Any:
    """Return the value of an option; raise TypeError if it is not of the default's kind."""
    if name in _POOLS:
        return tuple(map(_pool, value))
    if name.endswith("_bytes"):
        if value is not None and type(value) is not int:
            raise TypeError(f"{name} is a number of bytes")
        return value
    if isinstance(default, tuple) and isinstance(value, list):
        if not all(_is_item(name, item) for item in value):
            raise TypeError(f"{name} is a list of other items")
        return _to_tuple(value)
    if type(value) is not type(default):
        raise TypeError(f"{name} is of another kind")
    return value


def _is_item(name: str, value: Any) -> bool:
    """Return whether `value` is a word, or the words of a row, as the option has them."""
    size = _ROW_SIZES.get(name)
    if size is None:
        return TEXT.includes(value)
    return TEXTS.includes(value) and len(value) == size


def _pool(stored: Mapping[str, Any]) -> PoolInfo:
    """Return the pool with stored facts; raise TypeError if one is of another kind."""
    pool = PoolInfo(**{name: _to_tuple(value) for name, value in stored.items()})
    texts = (pool.name, pool.access, pool.scope, pool.section, *pool.targets)
    speeds = (getattr(pool, name) for name in POOL_SPEEDS)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text of a pool is none")
    if not all(n is None or type(n) in (int, float) for n in (pool.size_bytes, *speeds)):
        raise TypeError("a number of a pool is none")
    return pool


def _to_tuple(value: Any) -> Any:
    """Return `value` with tuples in place of the lists of JSON, as frozen options need them."""
    return tuple(map(_to_tuple, value)) if isinstance(value, list) else value
