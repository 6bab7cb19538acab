"""Seeded damage to files: the same seed gives the same mutants on every machine."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence

import pytest

Mutants = Callable[[bytes, Sequence[int], int, int], Iterator[tuple[str, bytes]]]

_WORDS = (0, 1, 2, 4, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


def _flip(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        data[rng.choice(places)] ^= 1 << rng.randrange(8)


def _set_word(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    place = min(rng.choice(places) & ~3, len(data) - 4)
    struct.pack_into("<I", data, place, rng.choice((*_WORDS, len(data), len(data) - place)))


def _splice(data: bytearray, places: Sequence[int], rng: random.Random) -> None:
    """Copies one field, or a run of fields, over another: plausible values at wrong places."""
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


@pytest.fixture(scope="session")
def mutants() -> Mutants:
    """`mutants(data, places, seed, count)` yields (label, damaged file).

    `places` are the bytes worth damaging; the label says how to make that mutant again.
    """

    def make(
        data: bytes, places: Sequence[int], seed: int, count: int
    ) -> Iterator[tuple[str, bytes]]:
        for index in range(count):
            rng = random.Random(f"{seed}/{index}")
            damage = rng.choice(_DAMAGES)
            changed = bytearray(data)
            damage(changed, places, rng)
            yield f"seed {seed}, mutant {index} ({damage.__name__})", bytes(changed)

    return make
