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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    Memory,
    Register,
    RegisterClass,
)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A virtual register, of the name of a kernel's operand or ""."""

    place: Register
    name: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """An element: `stride` elements for each repetition, and `offset`."""

    stride: int
    offset: int = 0

    def __mul__(self, factor: int) -> "Index":
        return Index(self.stride * factor, self.offset * factor)

    def __add__(self, offset: int) -> "Index":
        return replace(self, offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer operand of a kernel, to elements of `dtype`.

    `pointer[index]` is an address, and `pointer.next(n)` one that then advances by n
    elements.
    """

    name: str
    dtype: DType
    access: tir.AccessMode = "r"

    def __getitem__(self, index: int | Index) -> "Address":
        place = Index(0, index) if isinstance(index, int) else index
        return Address(self, place)

    def next(self, elements: int) -> "Address":
        return Address(self, Index(0), elements)


@dataclass(frozen=True, slots=True)
class Address:
    """The elements from `index` on; the pointer then advances by `advance` elements."""

    pointer: Pointer
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


Argument: TypeAlias = Value | Address | int


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction with its operands; a store has its address as result."""

    instr: Instr
    results: tuple[Value | Address, ...]
    operands: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that are written `count` times, one after the other."""

    count: int
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LoopUntil:
    """A loop until `pointer` has advanced by `end` elements, a C expression."""

    pointer: Pointer
    end: str
    body: tuple[Step | Repeat, ...]


Node: TypeAlias = Step | Repeat | LoopUntil


@dataclass(frozen=True, slots=True)
class Program:
    """A micro-kernel: operands, named registers, and steps in order.

    `written` are the named registers whose first use is a result.
    """

    name: str
    pointers: tuple[Pointer, ...]
    registers: tuple[Value, ...]
    body: tuple[Node, ...]

    @property
    def written(self) -> frozenset[str]:
        """The named registers that are results only: set before they are read."""
        found: dict[str, bool] = {}
        for step in steps(self.body):
            for operand in step.operands:
                if isinstance(operand, Value) and operand.name:
                    found.setdefault(operand.name, False)
            for result in step.results:
                if isinstance(result, Value) and result.name:
                    found.setdefault(result.name, True)
        return frozenset(name for name, is_first in found.items() if is_first)


def steps(body: Sequence[Node]) -> Iterator[Step]:
    """Yield the steps of a body, those of a repeat once."""
    for node in body:
        if isinstance(node, Step):
            yield node
        else:
            yield from steps(node.body)


def instruction_count(program: Program) -> int:
    """Return the instructions of a program; those of a loop, of one iteration."""
    total = 0
    for node in program.body:
        inner = node.body if isinstance(node, LoopUntil) else (node,)
        for part in inner:
            if isinstance(part, Repeat):
                total += part.count * len(part.body)
            else:
                total += 1
    return total


class ProgramBuilder:
    """Builder of one program; the module docstring has an example."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pointers: list[Pointer] = []
        self._registers: list[Value] = []
        self._body: list[Node] = []

    def pointer(self, name: str, dtype: DType, access: tir.AccessMode = "r") -> Pointer:
        pointer = Pointer(name, dtype, access)
        self._pointers.append(pointer)
        return pointer

    def register(
        self, name: str, dtype: DType, kind: RegisterClass = RegisterClass.CORE
    ) -> Value:
        """Declare a register that the kernel's caller has a variable for."""
        value = Value(Register(kind, dtype), name)
        self._registers.append(value)
        return value

    def registers(self, prefix: str, count: int, dtype: DType) -> list[Value]:
        return [self.register(f"{prefix}{i}", dtype) for i in range(count)]

    def __call__(
        self, instr: Instr, *operands: Argument, into: Value | None = None
    ) -> Value:
        """Append an instruction with one result; return the result's register."""
        (result,) = self._append(instr, operands, into)
        assert isinstance(result, Value)
        return result

    def pair(self, instr: Instr, *operands: Argument) -> tuple[Value, Value]:
        """Append an instruction with two results; return their registers."""
        first, second = self._append(instr, operands, None)
        assert isinstance(first, Value)
        assert isinstance(second, Value)
        return first, second

    def store(self, instr: Instr, to: Address, *operands: Argument) -> None:
        """Append an instruction that writes memory at `to`."""
        _check(instr, operands)
        self._body.append(Step(instr, (to,), operands))

    def _append(
        self, instr: Instr, operands: tuple[Argument, ...], into: Value | None
    ) -> tuple[Value | Address, ...]:
        _check(instr, operands)
        results: list[Value | Address] = []
        for result in instr.results:
            assert isinstance(result.place, Register)
            results.append(into or Value(result.place))
        self._body.append(Step(instr, tuple(results), operands))
        return tuple(results)

    @contextmanager
    def repeat(self, count: int) -> Iterator[Index]:
        """Write the steps of the block `count` times; yield the repetition's index."""
        outer, self._body = self._body, []
        yield Index(1)
        body = tuple(node for node in self._body if isinstance(node, Step))
        if len(body) < len(self._body):
            raise InternalError(f"{self.name} has a loop inside a repeat")
        self._body = [*outer, Repeat(count, body)]

    @contextmanager
    def loop_until(self, pointer: Pointer, end: str) -> Iterator[None]:
        """Execute the block, at least once, until `pointer` has advanced by `end`."""
        outer, self._body = self._body, []
        yield
        body = tuple(n for n in self._body if not isinstance(n, LoopUntil))
        self._body = [*outer, LoopUntil(pointer, end, body)]

    def build(self) -> Program:
        return Program(
            self.name, tuple(self._pointers), tuple(self._registers), tuple(self._body)
        )


def _check(instr: Instr, operands: Sequence[Argument]) -> None:
    """Check the kinds and types of operands against the row of the instruction."""
    if len(instr.operands) != len(operands):
        count = len(instr.operands)
        raise InternalError(f"{instr.name} takes {count} operands, not {len(operands)}")
    for operand, given in zip(instr.operands, operands, strict=True):
        match operand.place, given:
            case (Register(), Value()) | (Immediate(), int()):
                continue
            case Memory(dtype), Address(pointer) if pointer.dtype == dtype:
                continue
        raise InternalError(f"{instr.name} cannot take {given} as {operand.name}")


def advance_pointers(
    body: Sequence[Step], strides: dict[Pointer, int]
) -> tuple[Step, ...]:
    """Return steps whose addresses advance to the element that is read next.

    `strides` are the elements that one repetition of the steps reads of each pointer.
    Without it, an address of an unrolled step has an offset for its repetition.
    """
    following = dict(strides)
    advanced: list[Step] = []
    for step in reversed(body):
        operands: list[Argument] = []
        for operand in step.operands:
            if isinstance(operand, Address):
                at = operand.index.offset
                distance = following[operand.pointer] - at
                following[operand.pointer] = at
                operand = operand.pointer.next(distance)
            operands.append(operand)
        advanced.append(replace(step, operands=tuple(operands)))
    return tuple(reversed(advanced))
