"""Where the operands of a case lie in memory, and their values.

Instructions of few operands use the first places, and an operand that is longer than a
place begins where elements do. Each place and area begins with an extreme value or a
random one. Sizes are those of Helium:

    0      16           128      144      176            240              304       400
    | int  | int | ...  | float  | float  | int elements | float elements | indexes |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np

from firmwright.base.dtypes import BOOL, Array, DType
from firmwright.kernels.isa.instruction import (
    Immediate,
    InstrOperand,
    Memory,
    RegisterPlace,
)

INT_PLACES, FLOAT_PLACES = 8, 3
AREA_BYTES = 64
"""The least size of an area of elements, and that of an area with indexes."""
VECTOR_BYTES = 16
"""The size of a vector of Helium."""
EXTREMES = (
    *(0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000),
    *(0x80008000, 0x7FFF7FFF, 0x80007FFF, 0x7F, 0x80, 0x80808080, 0x7F807F80),
    *(31, 32, 0xFFFFFFE1, 0xFFFFFFE0),
)
# Their products and sums are not subnormal: Helium sets subnormal numbers to zero.
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0e38, -3.0e38, 2147483648.0, 1.0e-15),
    *(-2147483648.0, 0.49999997, 8388609.0, 1.5, np.inf, -np.inf, np.nan),
)
RANDOM_CASES = 64
CASES = len(EXTREMES) ** 2 + RANDOM_CASES


@dataclass(frozen=True)
class Layout:
    """Where the operands of a case lie."""

    place_bytes: int

    @property
    def elements_at(self) -> int:
        return self.place_bytes * (INT_PLACES + FLOAT_PLACES)

    @property
    def area_bytes(self) -> int:
        return max(AREA_BYTES, self.place_bytes)

    @property
    def indexes_at(self) -> int:
        return self.elements_at + 2 * self.area_bytes

    @cached_property
    def data(self) -> Array:
        """Cases [case, byte]: all pairs of extremes, and random ones."""
        rng = np.random.default_rng(7)
        shape = (CASES, self.indexes_at // 4)
        words = rng.choice(np.array(EXTREMES, np.uint32), shape)
        randoms = rng.integers(0, 1 << 32, words.shape, np.uint32)
        words = np.where(rng.random(words.shape) < 0.25, randoms, words)
        pairs = np.array(list(product(EXTREMES, EXTREMES)), np.uint32)
        words[: len(pairs), 0] = pairs[:, 0]
        words[: len(pairs), self.place_bytes // 4] = pairs[:, 1]
        words[len(pairs) :] = randoms[len(pairs) :]
        data = words.view(np.uint8)
        for first, size in (
            (self.place_bytes * INT_PLACES, self.place_bytes * FLOAT_PLACES),
            (self.elements_at + self.area_bytes, self.area_bytes),
        ):
            floats = _floats(rng, (CASES, size // 4))
            data[:, first : first + size] = floats.view(np.uint8)
        sizes = self.place_bytes, self.area_bytes
        indexes = [make_indexes(rng, kind, *sizes) for kind in INDEX_KINDS]
        return np.hstack([data, *(each.view(np.uint8) for each in indexes)])

    def place(self, operand: InstrOperand, ints: int, floats: int) -> int:
        """Return where an operand begins, after some ints and floats."""
        is_float = lane_type(operand).is_float
        is_long = size_bytes(operand) > self.place_bytes
        if isinstance(operand.place, Memory) or is_long:
            return self.elements_at + self.area_bytes * is_float
        return self.place_bytes * (INT_PLACES + floats if is_float else ints)

    def index_place(self, bits: int, shift: int, element_bytes: int) -> int:
        size = 4 if bits == 32 else element_bytes
        kind = INDEX_KINDS.index(IndexKind(bits, shift, size))
        return self.indexes_at + self.place_bytes * kind


@dataclass(frozen=True)
class IndexKind:
    """Vectors of indexes: the bits of lanes, their shift, and the size of elements.

    In lanes of 32 bits the elements are words.
    """

    bits: int
    shift: int
    element_bytes: int


INDEX_KINDS = (
    IndexKind(8, 0, 1),
    IndexKind(16, 0, 1),
    IndexKind(16, 0, 2),
    IndexKind(16, 0, 4),
    IndexKind(16, 1, 2),
    IndexKind(32, 0, 4),
    IndexKind(32, 1, 4),
    IndexKind(32, 2, 4),
)


def make_indexes(
    rng: np.random.Generator, kind: IndexKind, vector_bytes: int, area_bytes: int
) -> Array:
    """Return vectors of indexes of elements in an area.

    Elements do not overlap. They repeat only if an area has fewer of them than a vector
    has lanes.
    """
    count = area_bytes // kind.element_bytes
    order = rng.permuted(np.tile(np.arange(count), (CASES, 1)), axis=1)
    lanes = np.arange(8 * vector_bytes // kind.bits) % count
    chosen = order[:, lanes] * (kind.element_bytes >> kind.shift)
    return np.ascontiguousarray(chosen.astype(f"uint{kind.bits}"))


def _floats(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    floats = rng.choice(np.array(FLOATS, np.float32), shape)
    scaled = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)
    return np.where(rng.random(shape) < 0.5, scaled, floats).astype(np.float32)


def lane_type(operand: InstrOperand) -> DType:
    assert not isinstance(operand.place, Immediate)
    return operand.place.dtype


def size_bytes(operand: InstrOperand) -> int:
    """Return the size of an operand or result; that of a predicate is a word."""
    place = operand.place
    if isinstance(place, Memory):
        return AREA_BYTES if place.index else place.size_bytes
    if lane_type(operand) is BOOL:
        return 4
    count = place.lanes if isinstance(place, RegisterPlace) else 1
    return count * lane_type(operand).size_bytes


@cache
def layout_of(place_bytes: int) -> Layout:
    return Layout(place_bytes)
