"""Structure-aware mutation of files: by field, token or value as well as by byte.

One to three fields of a valid file are changed; a seed gives the same file on every
machine. The mutators parse flatbuffer offsets, table heads and lengths, protobuf tags,
lengths and numbers, tokens of text and values of JSON.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Bend = Callable[[bytes, random.Random], bytes]

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
)
WIDE = (*NUMBERS, 2**63 - 1, 2**63, 2**64 - 1, 10**30)
WORDS = (
    "0",
    "1",
    "-1",
    "2147483648",
    "9223372036854775808",
    "1e308",
    "1e999",
    "-0.0",
    "nan",
    "inf",
    '""',
    '"x"',
    "[]",
    "{}",
    "true",
    "none",
    "null",
    "i8",
    "i8[0]",
    "f32[1,1]",
    "i64[2147483647]",
    "@main",
    "%x",
    "@",
    "%",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    "=",
    ":",
    "->",
    "..",
    ";",
    "\\",
    "'",
    "\x00",
    "\u00e9",
    "\U0001f600",
    "99999999999999999999999",
    "0x7fffffff",
    "1_000",
    "1979-05-27",
)
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|[%@]?[A-Za-z_][\w.$]*|-?\d[\w.+]*|\s+|.', re.DOTALL
)


def few(bend: Bend) -> Bend:
    """Apply one to three changes."""

    def bent(data: bytes, rng: random.Random) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            data = bend(data, rng)
        return data

    return bent


# ---- bytes ---------------------------------------------------------------------------


def by_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change bits, truncate or move pieces without knowledge of the format."""
    if not data:
        return rng.randbytes(4)
    changed, at = bytearray(data), rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            changed[at] ^= 1 << rng.randrange(8)
        case 1:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2F))
        case 2:
            del changed[at:]
        case 3:
            del changed[at : at + rng.choice((1, 2, 4, 16))]
        case _:
            start = rng.randrange(len(data))
            changed[at:at] = data[start : start + rng.choice((1, 4, 16, 64))]
    return bytes(changed)


# ---- flatbuffers ---------------------------------------------------------------------


def by_flatbuffer(data: bytes, rng: random.Random) -> bytes:
    """Change a field of 1 to 8 bytes at an offset, table head, length or value."""
    fields = _flatbuffer_fields(data)
    if not fields or rng.random() < 0.1:
        return by_bytes(data, rng)
    at, size = rng.choice(fields)
    if rng.random() < 0.3:  # another field's value: plausible at the wrong place
        other, _ = rng.choice(fields)
        value = int.from_bytes(data[other : other + size], "little")
    else:
        old = int.from_bytes(data[at : at + size], "little")
        value = rng.choice(
            (*NUMBERS, old + 1, old - 1, old * 2, len(data), len(data) - at, -at)
        )
    changed = bytearray(data)
    changed[at : at + size] = (value % (1 << (8 * size))).to_bytes(size, "little")
    return bytes(changed)


@lru_cache(maxsize=64)
def _flatbuffer_fields(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return (place, size) of apparent tables, starting at the root."""
    found: dict[tuple[int, int], None] = {(0, 4): None}
    todo, seen = [_u32(data, 0)], set[int]()
    while todo and len(found) < 4000:
        table = todo.pop()
        if table in seen or not 4 <= table <= len(data) - 4:
            continue
        seen.add(table)
        vtable = table - struct.unpack_from("<i", data, table)[0]
        if not 0 <= vtable <= len(data) - 4:
            continue
        size, inline = struct.unpack_from("<HH", data, vtable)
        if not (4 <= size <= 200 and size % 2 == 0 and 4 <= inline <= 400):
            continue
        found |= {(table, 4): None, (vtable, 2): None, (vtable + 2, 2): None}
        for entry in range(vtable + 4, min(vtable + size, len(data) - 1), 2):
            found[(entry, 2)] = None
            place = table + struct.unpack_from("<H", data, entry)[0]
            if table < place <= len(data) - 4:
                _note_field(data, place, found, todo)
    return tuple(found)


def _note_field(
    data: bytes, place: int, found: dict[tuple[int, int], None], todo: list[int]
) -> None:
    """Record a scalar or the table or vector that it refers to."""
    found |= {(place, 1): None, (place, 4): None}
    to = place + _u32(data, place)
    if not place < to <= len(data) - 4:
        return
    todo.append(to)
    count = _u32(data, to)
    if 0 < count <= 1000 and to + 4 + 4 * count <= len(data):
        found[(to, 4)] = None
        for at in range(to + 4, to + 4 + 4 * min(count, 40), 4):
            found[(at, 4)] = None
            todo.append(at + _u32(data, at))


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


# ---- protobufs -----------------------------------------------------------------------

Piece = tuple[int, int, int, int]
"""Begin, begin of the content, end, wire type."""


def by_protobuf(data: bytes, rng: random.Random) -> bytes:
    """Drop, duplicate or swap a field, or change its number, type, length or value."""
    if rng.random() < 0.1:
        return by_bytes(data, rng)
    path = _descend(data, rng)
    if not path:
        return by_bytes(data, rng)
    pieces, (begin, content, end, wire), outer = path[-1]
    whole, inside = data[begin:end], data[content:end]
    other = rng.choice(pieces)
    match rng.randrange(6):
        case 0:
            new = b""
        case 1:
            new = whole + whole
        case 2:
            new = data[other[0] : other[2]]
        case 3:
            new = bytes([whole[0] ^ (1 << rng.randrange(7))]) + whole[1:]
        case 4 if wire == 0:
            new = whole[:1] + _varint(rng.choice(WIDE) % 2**64)
        case _:
            new = _field(whole[:1], wire, by_bytes(inside, rng) if inside else b"\x01")
    return _spliced(data, outer, begin, end, new)


def _field(tag: bytes, wire: int, content: bytes) -> bytes:
    return tag + (_varint(len(content)) + content if wire == 2 else content)


def _spliced(
    data: bytes, outer: Sequence[Piece], begin: int, end: int, new: bytes
) -> bytes:
    """Replace a field and adjust the lengths of all enclosing messages."""
    for piece in reversed(outer):
        new = data[piece[1] : begin] + new + data[end : piece[2]]
        new = _field(data[piece[0] : piece[0] + 1], 2, new)
        begin, end = piece[0], piece[2]
    return data[:begin] + new + data[end:]


def _descend(
    data: bytes, rng: random.Random
) -> list[tuple[list[Piece], Piece, tuple[Piece, ...]]]:
    """Descend from the message into a random field and return the path."""
    way: list[tuple[list[Piece], Piece, tuple[Piece, ...]]] = []
    begin, end, outer = 0, len(data), tuple[Piece, ...]()
    while True:
        pieces = _pieces(data, begin, end)
        if not pieces:
            return way
        chosen = rng.choice(pieces)
        way.append((pieces, chosen, outer))
        if chosen[3] != 2 or rng.random() < 0.25:
            return way
        outer, begin, end = (*outer, chosen), chosen[1], chosen[2]


def _pieces(data: bytes, at: int, end: int) -> list[Piece]:
    """Return the fields of a message, or none if it is not a message."""
    found: list[Piece] = []
    while at < end:
        begin, tag = at, data[at]
        wire, at = tag & 7, at + 1
        if tag >= 0x80 or tag < 8:
            return []
        if wire == 0:
            content, (_, at) = at, _read_varint(data, at, end)
        elif wire in (1, 5):
            content, at = at, at + (8 if wire == 1 else 4)
        elif wire == 2:
            size, content = _read_varint(data, at, end)
            at = content + size
        else:
            return []
        if at > end:
            return []
        found.append((begin, content, at, wire))
    return found


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return value, end + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# ---- texts ---------------------------------------------------------------------------


def by_tokens(data: bytes, rng: random.Random) -> bytes:
    """Drop, duplicate, swap or replace a token, move a line, or nest brackets."""
    if rng.random() < 0.1:
        return by_bytes(data, rng)
    tokens = list(_tokens(data))
    if not tokens:
        return b"{"
    at = rng.randrange(len(tokens))
    other = rng.randrange(len(tokens))
    match rng.randrange(9):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] *= 2
        case 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            tokens[at] = tokens[other]
        case 4 | 5:
            tokens[at] = rng.choice(WORDS)
        case 6:
            tokens[at] = _other_number(tokens, at, rng)
        case 7:
            tokens[at] += rng.choice("([{-!") * rng.choice((2, 50, 3000, 20_000))
        case _:
            first, last = sorted((at, min(other, at + 40)))
            del tokens[first:last]
    return "".join(tokens).encode("utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _tokens(data: bytes) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(data.decode("utf-8", "replace")))


def _other_number(tokens: list[str], at: int, rng: random.Random) -> str:
    """Return a number near the current one, or a hostile one."""
    text = tokens[at]
    if not text.lstrip("-").isdigit() or len(text) > 40:
        return rng.choice(WORDS)
    return str(
        rng.choice((int(text) + 1, int(text) - 1, -int(text), int(text) * 2, *WIDE))
    )


# ---- JSON ----------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    10**40,
    "",
    "x",
    "\u0000",
    "../x",
    [],
    {},
    [[]],
    [None],
    {"name": "x"},
    "9" * 5000,
)


def by_values(data: bytes, rng: random.Random) -> bytes:
    """Replace, drop, duplicate or move a JSON value, line by line."""
    if rng.random() < 0.2:
        return by_tokens(data, rng)
    lines = data.split(b"\n") if b"\n{" in data else [data]
    at = rng.randrange(len(lines))
    try:
        tree = json.loads(lines[at])
    except (ValueError, RecursionError):
        return by_tokens(data, rng)
    holders = [*_holders(tree)]
    if not holders:
        return by_tokens(data, rng)
    _change(*rng.choice(holders), rng)
    lines[at] = json.dumps(tree).encode()
    return b"\n".join(lines)


def _holders(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every nested value."""
    keys: Any = ()
    if isinstance(tree, dict):
        keys = list(tree)
    elif isinstance(tree, list):
        keys = range(len(tree))
    found = [(tree, key) for key in keys]
    for key in keys:
        found += _holders(tree[key])
    return found


def _change(holder: Any, key: Any, rng: random.Random) -> None:
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1:
            nested: Any = holder[key]
            for _ in range(rng.choice((1, 5, 300))):
                nested = [nested]
            holder[key] = nested
        case 2 if isinstance(holder, dict):
            holder[rng.choice(("x", "", str(key) * 2))] = holder.pop(key)
        case _:
            holder[key] = rng.choice(_VALUES)


def by_archive(data: bytes, rng: random.Random) -> bytes:
    """Change a JSON value in a zip archive, drop one of its files, or change bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            files = {name: source.read(name) for name in source.namelist()}
    except Exception:  # an earlier change broke it  # noqa: BLE001
        return by_bytes(data, rng)
    choice = rng.random()
    if choice < 0.1:
        return by_bytes(data, rng)
    name = rng.choice(
        [name for name in files if name.endswith(".json")] or list(files) or [""]
    )
    if choice < 0.15:
        files.pop(name, None)
    elif name in files:
        files[name] = by_values(files[name], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        for member, content in files.items():
            target.writestr(zipfile.ZipInfo(member), content)
    return stream.getvalue()
