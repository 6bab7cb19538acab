"""Tables of board files that extensions read."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from firmwright.base.extensions import merge_tables
from firmwright.base.plugin_calls import plugin_call
from firmwright.boards.memory import MemoryRegion
from firmwright.boards.toml_table import TomlTable

TableReader: TypeAlias = Callable[[TomlTable, Sequence[MemoryRegion]], object]
"""Reads a table, given the board's memory; raises BoardError if a value is wrong.

The value is of a class of the extension, by which `Board.table` finds it.
"""


def table_readers() -> Mapping[str, TableReader]:
    """Return the readers of the tables that extensions add, by key."""
    return merge_tables(None, "BOARD_TABLES", lambda extension: extension.board_tables)


def read_extension_tables(
    table: TomlTable, memory: Sequence[MemoryRegion], readers: Mapping[str, TableReader]
) -> tuple[object, ...]:
    """Return the values of the tables of extensions that the file has."""
    values: list[object] = []
    for key, read in readers.items():
        if table.has(key):
            with plugin_call(f"the reader of [{key}] in board files"):
                values.append(read(table.subtable(key), memory))
    return tuple(values)
