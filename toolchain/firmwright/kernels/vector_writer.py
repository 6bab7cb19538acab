"""The instructions of one vector of lanes of 32 bits, for any instruction set."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.base.dtypes import BOOL, INT32, UINT32, DType

OWN_NAMES = r"v\d+|vl|inside"
"""A pattern of the C variables of a vector: its lanes, its length, its predicate."""


class NotVectorizableError(Exception):
    """Internal signal: a loop has something for which there are no vectors."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of INT32, UINT32 or BOOL in a C variable, or with `number` one for all.

    `number` is the text of that number, and `value` the number if it is known.
    """

    text: str
    dtype: DType
    is_number: bool = False
    value: int | None = None

    @property
    def is_natural(self) -> bool:
        """Whether it is a known number that INT32 and UINT32 have."""
        return self.value is not None and 0 <= self.value <= INT32.max


@dataclass(frozen=True, slots=True)
class WideLanes:
    """Lanes of 64 bits as their halves, both of UINT32.

    `source` are the lanes of 32 bits of which they are the extension, if they are.
    """

    low: Lanes
    high: Lanes
    dtype: DType
    source: Lanes | None = None


Value: TypeAlias = Lanes | WideLanes


def literal(value: int, dtype: DType) -> Lanes:
    if dtype == UINT32:
        return Lanes(f"{value}u", dtype, is_number=True, value=value)
    text = "INT32_MIN" if value == INT32.min else str(value)
    return Lanes(text, dtype, is_number=True, value=value)


def lane_type(dtype: DType) -> DType:
    if dtype == BOOL:
        return BOOL
    return INT32 if dtype.signed else UINT32


class VectorWriter(ABC):
    """Writes the instructions of one vector; `inside` is the predicate of its lanes."""

    def __init__(self, inside: str = "") -> None:
        self.inside = inside
        self.lines: list[str] = []

    def bind(self, c_type: str, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {c_type} {name} = {text};")
        return name

    @abstractmethod
    def index(self, first: str) -> Lanes:
        """Return first, first + 1, ..."""

    @abstractmethod
    def load(self, dtype: DType, address: str, stride: int) -> Lanes:
        """Return elements `stride` apart, widened to 32 bits."""

    @abstractmethod
    def gather(self, dtype: DType, address: str, indices: Lanes) -> Lanes:
        """Return the elements at `indices`, widened to 32 bits."""

    @abstractmethod
    def store(self, dtype: DType, address: str, lanes: Lanes) -> None:
        """Store the low bits of the lanes as successive elements."""

    @abstractmethod
    def binary(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        """Return `op`, one of TIR's or the high half `mulh`; `a` is no number."""

    @abstractmethod
    def shift(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        """Return `a` shifted; a known amount is not 0."""

    @abstractmethod
    def compare(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        """Return a predicate; `a` is no number."""

    @abstractmethod
    def combine(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        """Return `and`, `or` or `xor` of predicates."""

    @abstractmethod
    def invert(self, a: Lanes) -> Lanes:
        """Return the negation of a predicate."""

    @abstractmethod
    def select(self, condition: Lanes, a: Lanes, b: Lanes) -> Lanes:
        """Return `a` where a predicate holds, else `b`, neither of them a number."""

    @abstractmethod
    def spread(self, number: Lanes) -> Lanes:
        """Return a number in all lanes."""

    @abstractmethod
    def reinterpret(self, a: Lanes, dtype: DType) -> Lanes:
        """Return the same bits as the other type of 32 bits."""

    @abstractmethod
    def bit_length(self, a: Lanes) -> Lanes:
        """Return the numbers of bits from the highest one on, as INT32."""
