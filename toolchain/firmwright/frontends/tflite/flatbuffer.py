"""A flatbuffer reader for untrusted files that checks every read.

Rules (the flatbuffers binary format): offsets point forward and inside the file, tables
and vectors are aligned to 4 bytes, vtables to 2, scalars to their own size; a field is
inside its table; strings end in a zero byte; enumerators are known. Every visit reduces
a budget, which limits work and memory. A ModelError has the path of the field
(`subgraphs[0].tensors[3]`). See decision 0003.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NoReturn

from firmwright.base.errors import ModelError
from firmwright.ir.core import Attr
from firmwright.tflite_schema import ENUMERATIONS, TABLES, SchemaField

_TABLE_COST = 16
_FIELD_COST = 2
_BUDGET_PER_BYTE = 4
_BUDGET_BASE = 1 << 16

_FORMATS = {
    "i8": "b",
    "u8": "B",
    "bool": "B",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "f32": "f",
    "i64": "q",
    "u64": "Q",
}
_ACTIVATIONS = ENUMERATIONS["Activation"]
_SCALARS = {kind: struct.Struct(f"<{code}") for kind, code in _FORMATS.items()}


class Flatbuffer:
    """The bytes of one file, the file name for errors, and the remaining budget."""

    __slots__ = ("budget", "data", "file")

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file
        self.budget = _BUDGET_BASE + _BUDGET_PER_BYTE * len(data)

    def fail(self, path: str, what: str) -> NoReturn:
        raise ModelError.broken(what, f"{self.file}: {path}" if path else self.file)

    def spend(self, cost: int, path: str) -> None:
        self.budget -= cost
        if self.budget < 0:
            what = "shared parts would make it unfold far beyond the size of the file."
            self.fail(path, what)

    def scalar(self, kind: str, position: int, path: str) -> int | float:
        form = _SCALARS[kind]
        if position < 0 or position + form.size > len(self.data):
            self.fail(path, f"it reads at byte {position} of {len(self.data)}.")
        if position % form.size:
            what = f"a value of {form.size} bytes is misaligned at byte {position}."
            self.fail(path, what)
        value: int | float = form.unpack_from(self.data, position)[0]
        return value

    def follow(self, position: int, path: str) -> int:
        offset = int(self.scalar("u32", position, path))
        target = position + offset
        if offset == 0 or target > len(self.data) - 4:
            self.fail(
                path,
                f"an offset leads from byte {position} to {target}, outside the file.",
            )
        if target % 4:
            self.fail(
                path, f"an offset leads to byte {target}, which is not a multiple of 4."
            )
        return target

    def root(self, table: str) -> FlatbufferTable:
        return self.table(table, self.follow(0, "root"), "")

    def table(self, name: str, position: int, path: str) -> FlatbufferTable:
        self.spend(_TABLE_COST, path)
        vtable = position - int(self.scalar("i32", position, path))
        if vtable < 0 or vtable + 4 > len(self.data):
            what = f"its vtable would be at byte {vtable} of {len(self.data)}."
            self.fail(path, what)
        vtable_size = int(self.scalar("u16", vtable, path))
        table_size = int(self.scalar("u16", vtable + 2, path))
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > len(self.data):
            self.fail(path, f"its vtable has the impossible size {vtable_size}.")
        if table_size < 4 or position + table_size > len(self.data):
            self.fail(path, f"its table has the impossible size {table_size}.")
        return FlatbufferTable(
            self, name, path, position, table_size, vtable, vtable_size
        )


@dataclass(frozen=True, slots=True)
class FlatbufferTable:
    """A checked view of one table; the accessors take field names of the schema.

    Absent scalars have their defaults, absent vectors are empty tuples or bytes, absent
    strings "".
    """

    buffer: Flatbuffer
    name: str
    path: str
    position: int
    size: int
    vtable: int
    vtable_size: int

    def integer(self, name: str) -> int:
        return int(self._scalar(self._field(name)))

    def enumerator(self, name: str) -> str:
        field = self._field(name)
        names = ENUMERATIONS[field.type]
        index = int(self._scalar(field))
        if not 0 <= index < len(names):
            self.fail(name, f"{index} is not a valid {field.type}.")
        return names[index]

    def text(self, name: str) -> str:
        """Return a string field, with escapes for bytes that are not UTF-8."""
        field = self._field(name)
        place = self._place(field, 4)
        if place is None:
            return ""
        start, count = self._vector(place, 1, self.join(name))
        data = self.buffer.data
        if start + count >= len(data) or data[start + count] != 0:
            self.fail(name, "a string does not end in a zero byte.")
        return data[start : start + count].decode("utf-8", errors="backslashreplace")

    def blob(self, name: str) -> bytes:
        place = self._place(self._field(name), 4)
        if place is None:
            return b""
        start, count = self._vector(place, 1, self.join(name))
        return self.buffer.data[start : start + count]

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(map(int, self._numbers(self._field(name))))

    def floats(self, name: str) -> tuple[float, ...]:
        return tuple(map(float, self._numbers(self._field(name))))

    def table(self, name: str, kind: str | None = None) -> FlatbufferTable | None:
        field = self._field(name)
        place = self._place(field, 4)
        if place is None:
            return None
        path = self.join(name)
        position = self.buffer.follow(place, path)
        return self.buffer.table(kind or field.type, position, path)

    def tables(self, name: str) -> list[FlatbufferTable]:
        field = self._field(name)
        place = self._place(field, 4)
        if place is None:
            return []
        start, count = self._vector(place, 4, self.join(name))
        tables = []
        for index in range(count):
            path = f"{self.join(name)}[{index}]"
            position = self.buffer.follow(start + 4 * index, path)
            tables.append(self.buffer.table(field.type.strip("[]"), position, path))
        return tables

    def scalar_place(self, name: str) -> int | None:
        """Return the byte where a stored scalar field begins, None if absent."""
        field = self._field(name)
        return self._place(field, _SCALARS[field.type].size)

    def vector_place(self, name: str) -> int:
        """Return the byte at which the elements of a stored vector of scalars begin."""
        field = self._field(name)
        place = self._place(field, 4)
        path = self.join(name)
        size = _SCALARS[field.type.strip("[]")].size
        return 0 if place is None else self._vector(place, size, path)[0]

    def attributes(self) -> dict[str, Attr]:
        fields = TABLES[self.name]
        return {name: self._attribute(field) for name, field in fields.items()}

    def join(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def fail(self, name: str, what: str) -> NoReturn:
        self.buffer.fail(self.join(name), what)

    def _field(self, name: str) -> SchemaField:
        return TABLES[self.name][name]

    def _attribute(self, field: SchemaField) -> Attr:
        if field.type == "string":
            return self.text(field.name)
        if field.type == "bool":
            return bool(self._scalar(field))
        if field.type == "Activation":
            index = self._scalar(field)
            if not 0 <= index < len(_ACTIVATIONS):
                return _ACTIVATIONS[0]  # as the reference runtimes read it
        if field.type in ENUMERATIONS:
            return self.enumerator(field.name)
        if field.type.startswith("["):
            return self._numbers(field)
        return self._scalar(field)

    def _scalar(self, field: SchemaField) -> int | float:
        kind = "i8" if field.type in ENUMERATIONS else field.type
        place = self._place(field, _SCALARS[kind].size)
        if place is None:
            return float(field.default) if kind == "f32" else field.default
        return self.buffer.scalar(kind, place, self.join(field.name))

    def _numbers(self, field: SchemaField) -> tuple[int | float, ...]:
        place = self._place(field, 4)
        if place is None:
            return ()
        kind = field.type.strip("[]")
        start, count = self._vector(place, _SCALARS[kind].size, self.join(field.name))
        return struct.unpack_from(f"<{count}{_FORMATS[kind]}", self.buffer.data, start)

    def _place(self, field: SchemaField, size: int) -> int | None:
        self.buffer.spend(_FIELD_COST, self.path)
        entry = 4 + 2 * field.slot
        if entry + 2 > self.vtable_size:
            return None
        path = self.join(field.name)
        offset = int(self.buffer.scalar("u16", self.vtable + entry, path))
        if offset == 0:
            return None
        if offset < 4 or offset + size > self.size:
            what = f"the field is at byte {offset} of a table of {self.size}."
            self.fail(field.name, what)
        return self.position + offset

    def _vector(self, place: int, element_size: int, path: str) -> tuple[int, int]:
        head = self.buffer.follow(place, path)
        count = int(self.buffer.scalar("u32", head, path))
        start = head + 4
        if start + count * element_size > len(self.buffer.data):
            what = (
                f"{count} elements of {element_size} bytes reach past the end of the "
                "file."
            )
            self.buffer.fail(path, what)
        self.buffer.spend(4 + count * element_size, path)
        return start, count
