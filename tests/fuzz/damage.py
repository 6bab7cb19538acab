"""Seeded damage to files; the same seed gives the same mutants on every machine."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

from firmwright.frontends.tflite import read_tflite

WEIGHTS_BYTES = (
    32  # constants this large are weights: damage there changes numbers only
)
_WORDS = (0, 1, 2, 4, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


def _flip(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        data[rng.choice(places)] ^= 1 << rng.randrange(8)


def _set_word(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    place = min(rng.choice(places) & ~3, len(data) - 4)
    struct.pack_into(
        "<I", data, place, rng.choice((*_WORDS, len(data), len(data) - place))
    )


def _splice(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    """Copy one or more fields over others: plausible values at wrong places."""
    size = rng.choice((1, 2, 4, 4, 8, 16, 64))
    source, target = (min(rng.choice(places) & ~3, len(data) - size) for _ in range(2))
    data[target : target + size] = data[source : source + size]


def _cut(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    del data[rng.choice((rng.choice(places), rng.randrange(len(data)))) :]


def _shift(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    place, size = rng.choice(places), rng.choice((1, 2, 4, 16))
    if rng.random() < 0.5:
        del data[place : place + size]
    else:
        data[place:place] = rng.randbytes(size)


_DAMAGES = (_flip, _flip, _set_word, _set_word, _splice, _splice, _cut, _shift)


def mutants(
    data: bytes, places: Sequence[int], seed: int, count: int
) -> Iterator[tuple[str, bytes]]:
    """Yield `count` pairs (label, damaged file).

    `places` are the bytes to damage; the label tells how to reproduce the mutant.
    """
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        damage = rng.choice(_DAMAGES)
        changed = bytearray(data)
        damage(changed, places, rng)
        yield f"seed {seed}, mutant {index} ({damage.__name__})", bytes(changed)


def structure_places(data: bytes) -> list[int]:
    """Return every byte that is not a weight: headers, tables, vectors and names."""
    is_weight = bytearray(len(data))
    for tensor in read_tflite(data, "whole.tflite").subgraphs[0].tensors:
        if tensor.buffer is not None and len(tensor.buffer) >= WEIGHTS_BYTES:
            start = data.index(tensor.buffer)
            is_weight[start : start + len(tensor.buffer)] = b"\1" * len(tensor.buffer)
    return [place for place, mark in enumerate(is_weight) if not mark]
