"""The reference of board files, traced from the schema while it reads every board.

Type, default and choices of a key are those that the schema's read calls state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from markdown_pieces import page, table

from firmwright.boards import list_boards
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.boards.toml_table import TomlTable

TYPES: Final = {
    "text": "string",
    "choice": "one of",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "strings": "list of strings",
    "integers": "list of integers",
    "pairs": "list of `[address, bits]`",
    "subtable": "table",
    "subtables": "array of tables",
}
"""The reading calls of `TomlTable`, and what they take."""


@dataclass(slots=True)
class Key:
    """The properties of one key, collected over all boards."""

    types: set[str] = field(default_factory=set)
    choices: set[str] = field(default_factory=set)
    defaults: set[str] = field(default_factory=set)
    example: str = ""


Seen = dict[str, dict[str, Key]]
"""Tables by their path, with their keys."""


def board_keys_page() -> str:
    """Return the tables of a board file with their keys."""
    seen = _watched()
    titles = {path: f"`{path}`" if path else "The file itself" for path in seen}
    return page(
        "Boards, key by key",
        "what `toolchain/firmwright/boards` reads of the boards that there are",
        "A board's table lies over that of its chip, key by key; any key may stand in "
        "either. What keys mean, and how a board is added, is told in "
        "[boards](boards.md) and in [adding a board](../boards.md). Choices "
        "are those of all families together: a driver belongs to one.",
        *(
            part
            for path in sorted(seen)
            for part in (f"## {titles[path]}", table(_HEAD, _rows(seen[path])))
        ),
        "## Arguments of the flash tools",
        table(
            ("runner", "argument"),
            ((f"`{n}`", meaning) for n, meaning in FLASH_RUNNERS.items()),
        ),
    )


_HEAD: Final = ("key", "type", "default", "for example")


def _rows(keys: dict[str, Key]) -> Iterator[tuple[str, ...]]:
    for name, key in sorted(keys.items()):
        types = " or ".join(TYPES[kind] for kind in sorted(key.types)) or "–"
        choices = ", ".join(f"`{choice}`" for choice in sorted(key.choices))
        defaults = ", ".join(sorted(key.defaults))
        yield f"`{name}`", f"{types} {choices}".strip(), defaults, key.example


def _watched() -> Seen:
    """Read every board and record the keys that the schema reads."""
    seen: Seen = {}
    with ExitStack() as stack:
        for name in TYPES:
            watched = _watching(seen, name, getattr(TomlTable, name))
            stack.enter_context(mock.patch.object(TomlTable, name, watched))
        expected = _expecting(seen, TomlTable.expect_keys)
        stack.enter_context(mock.patch.object(TomlTable, "expect_keys", expected))
        list_boards()
    return seen


def _keys_of(seen: Seen, asked: TomlTable) -> dict[str, Key]:
    return seen.setdefault(re.sub(r"\[\d+\]", "", asked.path).rstrip("."), {})


def _expecting(seen: Seen, read: Callable[..., None]) -> Callable[..., None]:
    def expect(asked: TomlTable, known: Any) -> None:
        for key in known:
            _keys_of(seen, asked).setdefault(key, Key())
        read(asked, known)

    return expect


def _watching(seen: Seen, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
    def watched(asked: TomlTable, key: str, *args: Any, **named: Any) -> Any:
        entry = _keys_of(seen, asked).setdefault(key, Key())
        if not (name == "text" and "choice" in entry.types):
            entry.types.add(name)
        if name == "choice":
            entry.types.discard("text")
            entry.choices |= set(args[0])
        default = named.get("default", args[-1] if args and name != "choice" else None)
        if default is not None:
            entry.defaults.add(_shown(default) or "none")
        if asked.has(key) and not entry.example:
            value = read(asked, key, *args, **named)
            entry.example = (
                "" if name in ("subtable", "subtables") else f"`{_shown(value)}`"
            )
        return read(asked, key, *args, **named)

    return watched


def _shown(value: Any) -> str:
    """Return a value in TOML notation, addresses in hexadecimal."""
    if isinstance(value, list | tuple):
        inside = ", ".join(f'"{v}"' if isinstance(v, str) else _shown(v) for v in value)
        return f"[{inside}]" if inside else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value > 0xFFFF and value % 1000:
        return f"0x{value:08X}"
    return str(value)
