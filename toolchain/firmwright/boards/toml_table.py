"""One TOML table over another: typed reads whose errors name the file and the key.

In: parsed TOML. Out: values of the wanted type. A board's table lies over its soc's, key by key;
an error names the file that holds the bad key. Every key must be known in every layer.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.errors import BoardError


@dataclass(frozen=True, slots=True)
class TomlTable:
    """The keys of one table of one file, over the same table of the file it builds on."""

    values: Mapping[str, object]
    file: str
    path: str = ""
    below: TomlTable | None = None

    def where(self, key: str) -> str:
        """`file:table.key` of the layer that holds the key (of the top layer if none does)."""
        layer = self._holder(key) or self
        return f"{layer.file}:{layer.path}{key}"

    def expect_keys(self, known: Collection[str]) -> None:
        """Refuse a key that the schema does not have, naming the nearest one it has."""
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
                hint = f"write {near[0]}." if near else f"one of {', '.join(sorted(known))}."
                raise BoardError("unknown key.", where=f"{self.file}:{self.path}{key}", hint=hint)
        if self.below is not None:
            self.below.expect_keys(known)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def choice(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in known:
            near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
            hint = f"write {near[0]!r}." if near else f"one of {', '.join(known)}."
            raise BoardError(f"{value!r} is not known here.", where=self.where(key), hint=hint)
        return value

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "an integer", value)
        if value < minimum:
            raise BoardError(f"{value} is below {minimum}.", where=self.where(key))
        return value

    def number(self, key: str) -> float:
        """A number above zero, with a fraction or without."""
        value = self._get(key, None)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number", value)
        if not 0 < value < float("inf"):
            raise BoardError(f"{value} is not above zero.", where=self.where(key))
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def strings(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        value = self._get(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(str(v) for v in value)

    def integers(self, key: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self._get(key, default)
        if not isinstance(value, list | tuple) or not all(type(v) is int for v in value):
            raise self._wrong(key, "a list of integers", value)
        return tuple(int(v) for v in value)

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """A list of pairs of integers; empty where absent."""
        value = self._get(key, ())
        right = isinstance(value, list | tuple) and all(
            isinstance(v, list) and len(v) == 2 and all(type(n) is int for n in v) for v in value
        )
        if not right:
            raise self._wrong(key, "a list of pairs of integers", value)
        return tuple((v[0], v[1]) for v in value)  # type: ignore[attr-defined]

    def is_text(self, key: str) -> bool:
        """Whether the key is there and has a string."""
        holder = self._holder(key)
        return holder is not None and isinstance(holder.values[key], str)

    def has(self, key: str) -> bool:
        return self._holder(key) is not None

    def subtable(self, key: str) -> TomlTable:
        """The table below `key`, each layer over its own; empty where absent."""
        below = self.below.subtable(key) if self.below is not None else None
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "a table", value)
        return TomlTable(value, self.file, f"{self.path}{key}.", below)

    def subtables(self, key: str) -> tuple[TomlTable, ...]:
        """The tables of the array `key`; the topmost layer that has it gives all of them."""
        holder = self._holder(key)
        if holder is None:
            return ()
        value = holder.values[key]
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self._wrong(key, "an array of tables", value)
        return tuple(
            TomlTable(v, holder.file, f"{holder.path}{key}[{i}].") for i, v in enumerate(value)
        )

    def _holder(self, key: str) -> TomlTable | None:
        if key in self.values:
            return self
        return self.below._holder(key) if self.below is not None else None

    def _get(self, key: str, default: object) -> object:
        holder = self._holder(key)
        if holder is not None:
            return holder.values[key]
        if default is None:
            raise BoardError("this key is missing.", where=self.where(key))
        return default

    def _wrong(self, key: str, wanted: str, value: object) -> BoardError:
        return BoardError(f"expected {wanted}, found {value!r}.", where=self.where(key))
