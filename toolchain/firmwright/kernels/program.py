"""Micro-kernels as programs: lists of instructions over virtual registers.

A `ProgramBuilder` is called with a row of an instruction table and its operands, and
returns the registers of the results:

    k = ProgramBuilder("mac")
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    total = k.register("total", INT32)
    with k.repeat(4) as i:
        a, b = k(ldr, w[i]), k(ldr, x[i])
        k(smlad, a, b, total, into=total)

A register that is written again with `into` keeps its name; all others are written
once. Named registers are operands of the kernel or live through it; temporaries have
none, and are assigned by `registers.py`. The order of the program is that of the
assembly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from firmwright.base.dtypes import DType
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import (
    Instr,
    RegisterClass,
    RegisterPlace,
)


@dataclass(frozen=True, slots=True, eq=False)
class VirtualRegister:
    """A virtual register, of the name of a kernel's operand or "".

    A local one has a name but is no operand: it lives through a loop. What an output
    is before the program does not matter.
    """

    place: RegisterPlace
    name: str = ""
    is_local: bool = False
    is_output: bool = False

    @property
    def is_operand(self) -> bool:
        return bool(self.name) and not self.is_local

    @property
    def is_group(self) -> bool:
        """Whether it is several adjacent registers: those of the FPU hold one value."""
        return self.place.kind is RegisterClass.FLOAT and self.place.lanes > 1

    def __getitem__(self, lane: "int | Index") -> "Lane":
        return Lane(self, Index(0, lane) if isinstance(lane, int) else lane)


@dataclass(frozen=True, slots=True)
class Distance:
    """`factor` times an immediate operand of the kernel, in elements."""

    immediate: str = ""
    factor: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """An element: `stride` elements for each repetition, `offset`, and a distance."""

    stride: int
    offset: int = 0
    distance: Distance = Distance()

    def __mul__(self, factor: int) -> "Index":
        assert not self.distance.factor
        return Index(self.stride * factor, self.offset * factor)

    def __add__(self, offset: "int | Distance") -> "Index":
        if isinstance(offset, Distance):
            return replace(self, distance=offset)
        return replace(self, offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class Lane:
    """A register of a group, the first is 0."""

    group: VirtualRegister
    index: Index


@dataclass(frozen=True, slots=True)
class PointerOperand:
    """A pointer operand of a kernel, to elements of `dtype`.

    `pointer[index]` is an address, and `pointer.next(n)` one that then advances by n
    elements.
    """

    name: str
    dtype: DType
    access: tir.AccessMode = "r"

    @property
    def declaration(self) -> str:
        """The C type and the name."""
        const = "const " if self.access == "r" else ""
        return f"{const}{self.dtype.c_type} *{self.name}"

    def __getitem__(self, index: int | Index) -> "Address":
        place = Index(0, index) if isinstance(index, int) else index
        return Address(self, place)

    def next(self, elements: int) -> "Address":
        return Address(self, Index(0), elements)


@dataclass(frozen=True, slots=True)
class Address:
    """The elements from `index` on; the pointer then advances by `advance` elements."""

    pointer: PointerOperand
    index: Index
    advance: int = 0

    @property
    def offset_bytes(self) -> int:
        return self.index.offset * self.pointer.dtype.size_bytes

    @property
    def stride_bytes(self) -> int:
        return self.index.stride * self.pointer.dtype.size_bytes

    @property
    def advance_bytes(self) -> int:
        return self.advance * self.pointer.dtype.size_bytes


Argument: TypeAlias = VirtualRegister | Lane | Address | int


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction with its operands; a store has its address as result."""

    instr: Instr
    results: tuple[VirtualRegister | Address, ...]
    operands: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that are written `count` times, one after the other.

    The index of the first repetition is `start`.
    """

    count: int
    body: tuple[Step, ...]
    start: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that are executed `count` times, an operand of the kernel.

    An iteration of the loop writes them `unroll` times, which divides the count.
    `until` is the pointer that a comparison with its end closes the loop by; without
    it, a counter does. `limit` is that end or counter.
    """

    count: str
    unroll: int
    body: tuple[Step, ...]
    until: PointerOperand | None
    limit: VirtualRegister

    @property
    def can_advance(self) -> bool:
        """Whether all accesses can advance their pointers; else others must do so."""
        places = (step.instr.memory for step in self.body)
        return all(place.can_advance for place in places if place)

    def pointers(self) -> dict[PointerOperand, int]:
        """Return the pointers of the body, with the elements of one repetition."""
        return {
            given.pointer: given.index.stride
            for step in self.body
            for given in (*step.operands, *step.results)
            if isinstance(given, Address) and given.index.stride
        }


@dataclass(frozen=True, slots=True)
class Move:
    """Sets `pointer` to `distance` elements, an operand, from where `base` points."""

    pointer: PointerOperand
    base: PointerOperand
    distance: str


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """A loop of at least one iteration, of which there are `count`, a C expression.

    `index` is the name of the iteration, and `counter` that of the register that counts
    down, which is the operand itself if the count is its name. Pointers advance in the
    loop by the distances that they state.
    """

    index: str
    counter: str
    count: str
    body: "tuple[Node, ...]"

    @property
    def has_own_counter(self) -> bool:
        return self.count != self.counter


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a counted loop: of the first iteration, and of the others."""

    first: "tuple[Node, ...]"
    others: "tuple[Node, ...]"


Node: TypeAlias = Step | Move | Repeat | Loop | CountedLoop | Beginning


@dataclass(frozen=True, slots=True)
class Program:
    """A micro-kernel: operands, named registers, and steps in order.

    `written` are the named registers whose first use is a result.
    """

    name: str
    pointers: tuple[PointerOperand, ...]
    registers: tuple[VirtualRegister, ...]
    body: tuple[Node, ...]

    @property
    def results(self) -> set[VirtualRegister]:
        found = (result for step in steps(self.body) for result in step.results)
        return {result for result in found if isinstance(result, VirtualRegister)}

    @property
    def written(self) -> frozenset[str]:
        """The named registers that are results only: set before they are read."""
        found: dict[str, bool] = {}
        for step in steps(self.body):
            for operand in step.operands:
                if isinstance(operand, VirtualRegister) and operand.name:
                    found.setdefault(operand.name, operand.is_output)
            for result in step.results:
                if isinstance(result, VirtualRegister) and result.name:
                    found.setdefault(result.name, True)
        return frozenset(name for name, is_first in found.items() if is_first)


def steps(body: Sequence[Node]) -> Iterator[Step]:
    """Yield the steps of a body, those of a repeat once."""
    for node in body:
        match node:
            case Step():
                yield node
            case Beginning(first, others):
                yield from steps((*first, *others))
            case Repeat() | Loop() | CountedLoop():
                yield from steps(node.body)


def instruction_count(
    program: Program, repetitions: int | None = None, closing: int = 0
) -> int:
    """Return the instructions of a program; those of a loop, of one iteration.

    Given the repetitions of the loop, return the executed instructions. `closing` are
    those that close an iteration.
    """
    total = 0
    for node in program.body:
        match node:
            case Step():
                total += 1
            case Repeat(count=count, body=body):
                total += count * len(body)
            case Loop(unroll=unroll, body=body):
                trips = 1 if repetitions is None else repetitions // unroll
                total += trips * (unroll * len(body) + closing)
    return total
