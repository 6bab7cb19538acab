"""Programs of vector intrinsics, for which a compiler allocates registers.

A loop over elements is text around them (`elementwise.py`); their only loops are those
over the taps of a window. Steps may depend on conditions of immediate operands, which
vanish when a compiler inlines the micro-kernel:

    with k.when(k(less, shift, 0)):
        k(vrshlq_n_s32, total, shift, into=total)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array, DType
from firmwright.base.errors import InternalError
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa.c_numbers import C_NUMBERS, number
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    Place,
    RegisterClass,
    RegisterPlace,
)
from firmwright.kernels.program import (
    Address,
    Argument,
    Lane,
    PointerOperand,
    Program,
    Step,
    VirtualRegister,
)
from firmwright.kernels.program_builder import ProgramBuilder

_LENGTH = "vl"
"""The operand of RISC-V rows that tells how many lanes are in use."""


@dataclass(frozen=True, slots=True)
class When:
    """Nodes that are executed if `condition` holds, and others if it does not."""

    condition: VirtualRegister
    body: tuple["VectorNode", ...]
    otherwise: tuple["VectorNode", ...] = ()


@dataclass(frozen=True, slots=True)
class WindowTaps:
    """Nodes that are executed for each tap of a window, at which `tap` then points.

    The window begins at `corner`. It has `rows` rows, `row_step` elements apart, of
    `columns` taps each, `step` elements apart: numbers of the C.
    """

    corner: Address
    tap: PointerOperand
    body: tuple["VectorNode", ...]


VectorNode: TypeAlias = Step | When | WindowTaps


@dataclass(frozen=True, slots=True)
class VectorProgram:
    """Steps, some of them under conditions."""

    name: str
    nodes: tuple[VectorNode, ...]

    def chosen(self, numbers: Mapping[str, int]) -> Program:
        """Return the program for immediate operands of some values."""
        found: dict[VirtualRegister, int] = {}
        body = tuple(_chosen_steps(self.nodes, numbers, found))
        places = [given for step in body for given in (*step.results, *step.operands)]
        pointers = [given.pointer for given in places if isinstance(given, Address)]
        return Program(self.name, tuple(dict.fromkeys(pointers)), (), body)


def _chosen_steps(
    nodes: Sequence[VectorNode],
    numbers: Mapping[str, int],
    found: dict[VirtualRegister, int],
) -> Iterator[Step]:
    """Yield the steps that are executed; `found` are the values of conditions."""
    for node in nodes:
        match node:
            case When(condition, body, otherwise):
                taken = body if found[condition] else otherwise
                yield from _chosen_steps(taken, numbers, found)
            case WindowTaps():
                yield from _steps_of_taps(node, numbers, found)
            case Step(instr, (VirtualRegister() as result,), operands):
                known = [_number_of(given, numbers, found) for given in operands]
                if None not in known and instr.instruction_set is C_NUMBERS:
                    found[result] = _compute(instr, [given or 0 for given in known])
                yield node
            case Step():
                yield node


def _steps_of_taps(
    window: WindowTaps,
    numbers: Mapping[str, int],
    found: dict[VirtualRegister, int],
) -> Iterator[Step]:
    for row, column in product(range(numbers["rows"]), range(numbers["columns"])):
        place = row * numbers["row_step"] + column * numbers["step"]
        for step in _chosen_steps(window.body, numbers, found):
            operands = []
            for given in step.operands:
                if isinstance(given, Address) and given.pointer == window.tap:
                    corner = window.corner
                    given = corner.pointer[corner.index + place]
                operands.append(given)
            yield replace(step, operands=tuple(operands))


def _number_of(
    given: Argument, numbers: Mapping[str, int], found: Mapping[VirtualRegister, int]
) -> int | None:
    match given:
        case VirtualRegister(name=name):
            return numbers.get(name, found.get(given))
        case int():
            return given
        case Lane() | Address():
            return None


def _compute(instr: Instr, operands: Sequence[int]) -> int:
    lanes: list[int | tuple[Array]] = []
    for operand, given in zip(instr.operands, operands, strict=True):
        is_literal = isinstance(operand.place, Immediate)
        lanes.append(given if is_literal else (np.array([given]),))
    ((result,),) = evaluate(instr, lanes)
    return int(result.flat[0])


def _fits(given: RegisterPlace, place: Place) -> bool:
    """Return whether a register may be an operand; C converts numbers."""
    if not isinstance(place, RegisterPlace) or place.kind is not given.kind:
        return isinstance(place, RegisterPlace) and place.lanes == given.lanes == 1
    return place.lanes == given.lanes == 1 or place == given


class VectorBuilder(ProgramBuilder):
    """Builder of one program.

    A number in place of a register is one of all lanes, and RISC-V rows need not be
    given their length, a variable. All results are new values: an operand that is
    updated keeps its value.
    """

    def __init__(self, name: str, length: str = _LENGTH) -> None:
        super().__init__(name)
        self._length = VirtualRegister(
            RegisterPlace(RegisterClass.CORE, UINT32), length
        )
        self._nodes: list[VectorNode] = []

    def __call__(
        self, instr: Instr, *operands: Argument, into: VirtualRegister | None = None
    ) -> VirtualRegister:
        (result,) = instr.results
        assert isinstance(result.place, RegisterPlace)
        value = into or VirtualRegister(result.place)
        self._nodes.append(Step(instr, (value,), self._complete(instr, operands)))
        return value

    def named(self, name: str, instr: Instr, *operands: Argument) -> VirtualRegister:
        """Append an instruction whose result is a variable `name` of the C."""
        (result,) = instr.results
        assert isinstance(result.place, RegisterPlace)
        return self(instr, *operands, into=self.local(name, result.place))

    def number(self, name: str, dtype: DType = INT32) -> VirtualRegister:
        """Return a number that the C has a variable for."""
        return self.register(name, dtype)

    def variable(self, name: str, place: RegisterPlace) -> VirtualRegister:
        """Return a vector that the C has a variable for."""
        return VirtualRegister(place, name)

    def store(self, instr: Instr, to: Address, *operands: Argument) -> None:
        self._nodes.append(Step(instr, (to,), self._complete(instr, (*operands, to))))

    def _complete(
        self, instr: Instr, operands: Sequence[Argument]
    ) -> tuple[Argument, ...]:
        rest = list(operands)
        complete: list[Argument] = []
        for operand in instr.operands:
            given = self._length if operand.name == _LENGTH else rest.pop(0)
            if isinstance(given, int) and isinstance(operand.place, RegisterPlace):
                given = self(number, given)
            if isinstance(given, VirtualRegister) and not _fits(
                given.place, operand.place
            ):
                raise InternalError(f"{instr.name} cannot take {given}")
            complete.append(given)
        return tuple(complete)

    @contextmanager
    def when(self, condition: VirtualRegister) -> Iterator[None]:
        outer, self._nodes = self._nodes, []
        yield
        self._nodes = [*outer, When(condition, tuple(self._nodes))]

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Append to the steps of the last condition those without it."""
        *outer, last = self._nodes
        assert isinstance(last, When)
        self._nodes = []
        yield
        self._nodes = [*outer, When(last.condition, last.body, tuple(self._nodes))]

    @contextmanager
    def window(self, corner: Address) -> Iterator[Address]:
        """Repeat the steps for all taps of a window; yield the address of a tap."""
        tap = PointerOperand("tap", corner.pointer.dtype)
        outer, self._nodes = self._nodes, []
        yield tap[0]
        self._nodes = [*outer, WindowTaps(corner, tap, tuple(self._nodes))]

    def build_vectors(self) -> VectorProgram:
        return VectorProgram(self.name, tuple(self._nodes))
