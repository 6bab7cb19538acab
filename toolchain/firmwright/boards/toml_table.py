"""Reading of TOML tables into dataclasses.

A board's table overrides its chip's table key by key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from firmwright.base.errors import BoardError
from firmwright.boards.problems import Problems, UnknownKeyError

T = TypeVar("T")
_MISSING: Final = "this key is missing."
Choices = Sequence[str] | Mapping[str, Sequence[str]]
"""The allowed strings of a key; a mapping has them by port."""


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One table of a file; `below` is the table of another file that it overrides."""

    values: Mapping[str, object]
    file: str
    path: str = ""
    below: TomlTable | None = None

    def where(self, key: str) -> str:
        """Return `file:table.key` for the layer with the key, by default the top."""
        layer = self._holder(key) or self
        return f"{layer.file}:{layer.path}{key}"

    def expect_keys(self, known: Collection[str]) -> None:
        """Reject unknown keys in every layer, suggesting the nearest known key."""
        problems = Problems()
        for key in self.values:
            if key not in known:
                with problems.collect():
                    raise self._unknown_key(key, sorted(known))
        if self.below is not None:
            with problems.collect():
                self.below.expect_keys(known)
        problems.raise_any()

    def _unknown_key(self, key: str, known: Sequence[str]) -> UnknownKeyError:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        hint = f"write {near[0]}." if near else f"one of {', '.join(known)}."
        where = f"{self.file}:{self.path}{key}"
        meant = f"{self.path}{near[0]}" if near else ""
        return UnknownKeyError(where=where, hint=hint, meant=meant)

    def error(self, key: str, what: str, hint: str = "") -> BoardError:
        """Return the error for an invalid value of `key`."""
        return BoardError(what, where=self.where(key), hint=hint)

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, default, str, "a string")

    def choice(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        if default is None and not self.has(key):
            raise self.error(key, _MISSING, f"one of {', '.join(known)}.")
        value = self.text(key, default)
        if value not in known:
            near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
            hint = f"one of {', '.join(known)}."
            if near and _is_misspelled(value, near[0]):
                hint = f"write {near[0]!r}."
            raise self.error(key, f"unknown value {value!r}.", hint)
        return value

    def integer(
        self,
        key: str,
        default: int | None = None,
        *,
        minimum: int = 0,
        maximum: int | None = None,
    ) -> int:
        value = self._typed(key, default, int, "an integer")
        if value < minimum:
            raise self.error(key, f"{value} is below {minimum}.")
        if maximum is not None and value > maximum:
            raise self.error(key, f"{value} is above {maximum}.")
        return value

    def number(self, key: str) -> float:
        """Read a positive integer or float."""
        value = self._get(key, None)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong_type(key, "a number", value)
        if not 0 < value < float("inf"):
            raise self.error(key, f"{value} is not above zero.")
        return float(value)

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        return self._typed(key, default, bool, "true or false")

    def strings(
        self, key: str, default: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        return self._tuple(key, default, str, "a list of strings")

    def integers(
        self, key: str, default: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        return self._tuple(key, default, int, "a list of integers")

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """Read a list of pairs of integers; the default is an empty list."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or not all(map(_is_pair, value)):
            raise self._wrong_type(key, "a list of pairs of integers", value)
        return tuple((first, second) for first, second in value)

    def is_text(self, key: str) -> bool:
        holder = self._holder(key)
        return holder is not None and isinstance(holder.values[key], str)

    def is_list(self, key: str) -> bool:
        holder = self._holder(key)
        return holder is not None and isinstance(holder.values[key], list)

    def has(self, key: str) -> bool:
        return self._holder(key) is not None

    def is_empty(self, key: str) -> bool:
        """Return whether the key holds an empty string, list or table."""
        holder = self._holder(key)
        return holder is not None and holder.values[key] in ("", [], {})

    def subtable(self, key: str) -> TomlTable:
        """Return the table under `key` with those it overrides; empty if absent."""
        below = self.below.subtable(key) if self.below is not None else None
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong_type(key, "a table", value)
        return TomlTable(value, self.file, f"{self.path}{key}.", below)

    def subtables(self, key: str) -> tuple[TomlTable, ...]:
        """Return the tables under `key` from the topmost layer that has the key."""
        holder = self._holder(key)
        if holder is None:
            return ()
        value = holder.values[key]
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self._wrong_type(key, "an array of tables", value)
        tables = []
        for index, values in enumerate(value):
            path = f"{holder.path}{key}[{index}]."
            tables.append(TomlTable(values, holder.file, path))
        return tuple(tables)

    def _holder(self, key: str) -> TomlTable | None:
        if key in self.values:
            return self
        return self.below._holder(key) if self.below is not None else None

    def _get(self, key: str, default: object) -> object:
        holder = self._holder(key)
        if holder is not None:
            return holder.values[key]
        if default is None:
            chip = self.below.file if self.below is not None else self.file
            hint = f"add it here, or in {chip}." if chip != self.file else ""
            raise self.error(key, _MISSING, hint)
        return default

    def _typed(self, key: str, default: object, kind: type[T], expected: str) -> T:
        value = self._get(key, default)
        # The type must be the same: a bool is not an integer here.
        if not isinstance(value, kind) or type(value) is not kind:
            raise self._wrong_type(key, expected, value)
        return value

    def _tuple(
        self, key: str, default: object, kind: type[T], expected: str
    ) -> tuple[T, ...]:
        value = self._get(key, default)
        if not isinstance(value, list | tuple):
            raise self._wrong_type(key, expected, value)
        for item in value:
            if type(item) is not kind:
                raise self._wrong_type(key, expected, value)
        return tuple(value)

    def _wrong_type(self, key: str, expected: str, value: object) -> BoardError:
        hint = ""
        if expected == "an integer" and isinstance(value, str):
            hint = _as_integer(value)
        return self.error(key, f"expected {expected}, found {value!r}.", hint)


def _as_integer(text: str) -> str:
    """Return how to write a size such as "512K" as an integer; "" for other texts."""
    found = re.fullmatch(r"([0-9_]+|0x[0-9a-f_]+) ?([kmg]?)i?b?", text.strip().lower())
    if found is None:
        return ""
    factor = 1 << 10 * " kmg".index(found[2] or " ")
    return f"write {int(found[1], 0) * factor:_}, without quotation marks."


def _is_misspelled(word: str, meant: str) -> bool:
    """Return whether a word is a misspelled known one, not a name of something else.

    `lpc_uart` resembles `rp2_uart`, and is the driver of another vendor.
    """
    has_same_beginning = word[:3] == meant[:3]
    return has_same_beginning or bool(difflib.get_close_matches(word, [meant], 1, 0.8))


def _is_pair(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(type(number) is int for number in value)


@dataclass(frozen=True, slots=True)
class TomlKey:
    """The key of a dataclass field and the limits or reader of its value.

    The default is the field's name. A field without a key (`has_key`) gets its value
    from the caller.
    """

    key: str = ""
    has_key: bool = True
    choices: Choices = ()
    minimum: int = 0
    maximum: int | None = None
    read: Callable[[TomlTable, str], object] | None = None


def read_table(
    table: TomlTable,
    cls: type[T],
    port: str = "",
    more_keys: Sequence[str] = (),
    **values: Any,
) -> T:
    """Return a `cls` with the fields that their annotations read from `table`.

    `port` selects among choices by port; `values` are fields read by the caller. The
    BoardError describes the errors of all keys.
    """
    specs, hints = _toml_keys(cls), get_type_hints(cls)
    problems = Problems()
    with problems.collect():
        check_keys(table, cls, more_keys)
    for item in fields(cls):  # type: ignore[arg-type]
        name, spec = item.name, specs[item.name]
        if name not in values:
            default = None if item.default is MISSING else item.default
            key = spec.key or name
            with problems.collect():
                values[name] = _read_key(table, key, spec, hints[name], default, port)
    problems.raise_any()
    return cls(**values)


def check_keys(table: TomlTable, cls: type, more_keys: Sequence[str] = ()) -> None:
    """Reject keys that are neither fields of the dataclass `cls` nor `more_keys`."""
    specs = _toml_keys(cls).items()
    keys = [spec.key or name for name, spec in specs if spec.has_key]
    table.expect_keys((*keys, *more_keys))


def _toml_keys(cls: type) -> dict[str, TomlKey]:
    """Return the key of each field: that of its annotation, or the default."""
    keys: dict[str, TomlKey] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        annotated = [arg for arg in get_args(hint)[1:] if isinstance(arg, TomlKey)]
        keys[name] = annotated[0] if annotated else TomlKey()
    return keys


def _read_key(
    table: TomlTable, key: str, spec: TomlKey, hint: Any, default: Any, port: str
) -> object:
    if spec.read is not None:
        return spec.read(table, key)
    if get_origin(hint) is Literal:
        return table.choice(key, get_args(hint), default)
    if spec.choices:
        choices = spec.choices
        known = choices.get(port, ()) if isinstance(choices, Mapping) else choices
        return table.choice(key, known, default)
    if hint is str:
        return table.text(key, default)
    if hint is int:
        return table.integer(key, default, minimum=spec.minimum, maximum=spec.maximum)
    if hint is bool:
        return table.boolean(key, default=default)
    if hint == tuple[str, ...]:
        return table.strings(key, default)
    if default is None and not table.has(key):
        return None
    return table.integer(key) if hint == int | None else table.number(key)
