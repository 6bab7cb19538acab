"""Trials of instructions: one text with registers and numbers, many operands.

A case of operands lies in memory as follows; the operands of an instruction take the
areas from their starts, each at a multiple of its size.

    0                80                 128            192              256 bytes
    | int registers  | float registers  | int elements | float elements |

The results of a case are those of registers, then elements that are written, each with
four bytes after them that must stay, and then the base register of the access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from firmwright.base.dtypes import Array, DType
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa.instruction import (
    AddressForm,
    AddressText,
    Immediate,
    Instr,
    Memory,
    Operand,
    Register,
    RegisterClass,
)
from tests.unit.kernels.cores import Core

INTS_AT, FLOATS_AT, ELEMENTS_AT = 0, 80, 128
ELEMENTS_BYTES = 64
CASE_BYTES = ELEMENTS_AT + 2 * ELEMENTS_BYTES
GUARD_BYTES = 4
UNTOUCHED = 0xA5
EXTREMES = (
    *(0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000),
    *(0x80008000, 0x7FFF7FFF, 0x80007FFF, 0x7F, 0x80, 0x80808080, 0x7F807F80),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0e38, -3.0e38, 2147483648.0, 1.0e-30)
RANDOM_CASES = 64
CASES = len(EXTREMES) ** 2 + RANDOM_CASES
INDEXES = (24, -40)


def make_cases() -> Array:
    """Return cases of operands [case, byte]: all pairs of extremes, and random ones."""
    rng = np.random.default_rng(7)
    words = rng.choice(np.array(EXTREMES, np.uint32), (CASES, CASE_BYTES // 4))
    randoms = rng.integers(0, 1 << 32, words.shape, np.uint32)
    words = np.where(rng.random(words.shape) < 0.25, randoms, words)
    pairs = np.array(list(product(EXTREMES, EXTREMES)), np.uint32)
    words[: len(pairs), 0] = pairs[:, 0]
    words[: len(pairs), [1, 4]] = pairs[:, 1:]  # second words, and second vectors
    words[len(pairs) :] = randoms[len(pairs) :]
    data = words.view(np.uint8)
    for first, size in (
        (FLOATS_AT, ELEMENTS_AT - FLOATS_AT),
        (ELEMENTS_AT + ELEMENTS_BYTES, ELEMENTS_BYTES),
    ):
        shape = (CASES, size // 4)
        floats = rng.choice(np.array(FLOATS, np.float32), shape)
        scaled = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)
        floats = np.where(rng.random(shape) < 0.5, scaled, floats).astype(np.float32)
        data[:, first : first + size] = floats.view(np.uint8)
    return data


CASE_DATA = make_cases()


def lane_type(operand: Operand) -> DType:
    assert not isinstance(operand.place, Immediate)
    return operand.place.dtype


def size_bytes(operand: Operand) -> int:
    place = operand.place
    count = place.lanes if isinstance(place, Register) else 1
    if isinstance(place, Memory):
        return place.size_bytes
    return count * lane_type(operand).size_bytes


def operand_places(instr: Instr) -> Iterator[tuple[Operand, int]]:
    """Yield the operands that are not in the text, and where they begin in a case."""
    following = {False: INTS_AT, True: FLOATS_AT}
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            continue
        is_float = lane_type(operand).is_float
        if isinstance(operand.place, Memory):
            yield operand, ELEMENTS_AT + ELEMENTS_BYTES * is_float
            continue
        size = size_bytes(operand)
        first = -(-following[is_float] // size) * size
        yield operand, first
        following[is_float] = first + size
    assert following[False] <= FLOATS_AT
    assert following[True] <= ELEMENTS_AT


def inputs(instr: Instr, immediates: Sequence[int]) -> list[list[Array] | int]:
    """Return the operands of all cases for `evaluate`."""
    numbers = iter(immediates)
    places = {operand.name: first for operand, first in operand_places(instr)}
    given: list[list[Array] | int] = []
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            given.append(next(numbers))
            continue
        first = places[operand.name]
        data = CASE_DATA[:, first : first + size_bytes(operand)]
        lanes = np.ascontiguousarray(data).view(lane_type(operand).np)
        given.append(list(lanes.T))
    return given


@cache
def _results(
    instr: Instr, immediates: tuple[int, ...]
) -> tuple[tuple[Array, ...], ...]:
    with np.errstate(all="ignore"):
        return evaluate(instr, inputs(instr, immediates))


@dataclass(frozen=True, eq=False)
class Trial:
    """An instruction with its registers, by operand, and its numbers."""

    instr: Instr
    registers: Mapping[str, str]
    immediates: Mapping[str, int]
    address: AddressText | None

    @property
    def text(self) -> str:
        names: dict[str, object] = {**self.registers, **self.immediates}
        memory = self.instr.memory
        if memory is not None and self.address is not None:
            names["address"] = self.address.text(memory.form)
        return self.instr.asm.format(**names)

    def places(self) -> Iterator[tuple[Operand, int]]:
        return operand_places(self.instr)

    def result_places(self) -> Iterator[tuple[Operand, int]]:
        first = 0
        for result in self.instr.results:
            yield result, first
            first += self._room(result)

    @staticmethod
    def _room(result: Operand) -> int:
        size = -(-size_bytes(result) // 4) * 4
        return size + GUARD_BYTES * isinstance(result.place, Memory)

    @property
    def result_bytes(self) -> int:
        total = sum(self._room(result) for result in self.instr.results)
        return total + 4 * (self.address is not None)

    def expected(self) -> Array:
        """Return the results by the semantics, [case, byte]."""
        data = np.full((CASES, self.result_bytes), UNTOUCHED, np.uint8)
        results = _results(self.instr, tuple(self.immediates.values()))
        for (result, first), lanes in zip(self.result_places(), results, strict=True):
            kind = lane_type(result).np
            columns = [np.broadcast_to(np.asarray(x, kind), (CASES,)) for x in lanes]
            values = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
            data[:, first : first + values.shape[1]] = values
        if self.address is not None:
            base = np.full((CASES, 1), self._base_offset + self.address.advance)
            data[:, -4:] = base.astype(np.int32).view(np.uint8).reshape(CASES, 4)
        return data

    @property
    def _element_place(self) -> tuple[bool, int]:
        """Return whether memory is read, and where it begins in operands or results."""
        for operand, first in self.places():
            if isinstance(operand.place, Memory):
                return True, first
        for result, first in self.result_places():
            if isinstance(result.place, Memory):
                return False, first
        raise AssertionError("no memory")

    @property
    def _base_offset(self) -> int:
        """The base register relative to the operands or results, before the access."""
        assert self.address is not None
        first = self._element_place[1] - self.address.offset
        if self.address.index:
            first -= self._index_value << self.address.shift
        return first

    @property
    def _index_value(self) -> int:
        assert self.address is not None
        return INDEXES[self.address.shift % 2]

    def assembly(self, core: Core) -> list[str]:
        """Return lines that load operands, execute the instruction, store results."""
        lines = [self._access(core, item, at) for item, at in self.places()]
        address = self.address
        if address is not None:
            is_read, _ = self._element_place
            pointer = core.operands if is_read else core.results
            number = {"register": address.base, "value": self._base_offset}
            lines.append(core.number.format(**number))
            lines.append(core.add.format(register=address.base, other=pointer))
            if address.index:
                index = {"register": address.index, "value": self._index_value}
                lines.append(core.number.format(**index))
        lines.append(self.text)
        results = self.result_places()
        lines += [self._access(core, item, at, is_store=True) for item, at in results]
        if address is not None:
            lines.append(core.subtract.format(register=address.base, other=pointer))
            assert self.instr.memory is not None
            place = {"pointer": core.results, "offset": self.result_bytes - 4}
            store = core.classes[self.instr.memory.base].store
            lines.append(store.format(register=address.base, **place))
        return [part for line in lines for part in line.split("\n\t") if part]

    def _access(
        self, core: Core, operand: Operand, first: int, *, is_store: bool = False
    ) -> str:
        if not isinstance(operand.place, Register):
            return ""
        access = core.classes[operand.place.kind]
        pointer = core.results if is_store else core.operands
        return (access.store if is_store else access.load).format(
            register=self.registers[operand.name], pointer=pointer, offset=first
        )


def trials_of(instr: Instr, core: Core) -> list[Trial]:
    """Return trials in which each operand is at both ends of its registers."""
    numbers = [
        (immediates, address)
        for immediates in _immediates(instr)
        for address in _addresses(instr.memory)
    ]
    needs = _needed_classes(instr)
    turns = max(len(needs), 2)
    trials = []
    for at in range(max(len(numbers), turns)):
        immediates, address = numbers[at % len(numbers)]
        registers = _registers(needs, core, at % turns)
        if instr.memory is not None and instr.memory.form is AddressForm.MULTIPLE:
            registers = _ascending(registers)
        if address is not None:
            base, index = registers.pop("base"), registers.pop("index", "")
            address = AddressText(
                base, address.offset, address.advance, index, address.shift
            )
        trials.append(Trial(instr, registers, immediates, address))
    return trials


def _some(values: Sequence[int]) -> list[int]:
    """Return the ends and two values between them."""
    count = len(values)
    places = (0, count - 1, count // 3, 2 * count // 3)
    return list(dict.fromkeys(values[at] for at in places)) if count else []


def _immediates(instr: Instr) -> list[dict[str, int]]:
    named: list[list[tuple[str, int]]] = []
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            named.append([(operand.name, v) for v in _some(operand.place.values)])
    return [dict(choice) for choice in product(*named)]


def _addresses(memory: Memory | None) -> list[AddressText | None]:
    if memory is None:
        return [None]
    if memory.form is AddressForm.INDEX:
        return [AddressText("", index="index", shift=shift) for shift in memory.shifts]
    offsets = {0, *_some(memory.offsets)} if memory.offsets else set[int]()
    advances = [memory.size_bytes] * memory.can_advance + _some(memory.advances)
    return [
        *(AddressText("", offset) for offset in offsets),
        *(AddressText("", advance=advance) for advance in advances if advance),
    ]


def _needed_classes(instr: Instr) -> dict[str, RegisterClass]:
    needs = {}
    for operand in (*instr.results, *instr.operands):
        if isinstance(operand.place, Register):
            needs[operand.name] = operand.place.kind
    if instr.memory is not None:
        needs["base"] = instr.memory.base
        if instr.memory.form is AddressForm.INDEX:
            needs["index"] = instr.memory.base
    return needs


def _registers(
    needs: Mapping[str, RegisterClass], core: Core, turn: int
) -> dict[str, str]:
    used: dict[str, str] = {}
    for at, (name, kind) in enumerate(needs.items()):
        registers = core.classes[kind].registers
        start = (at + turn) % max(len(needs), 2)
        order = (*registers[start:], *registers[:start])
        used[name] = next(item for item in order if item not in used.values())
    return used


def _ascending(registers: Mapping[str, str]) -> dict[str, str]:
    """Return the registers of a multiple access in ascending order."""
    listed = [name for name in registers if name != "base"]
    ordered = sorted((registers[name] for name in listed), key=_number)
    return {**registers, **dict(zip(listed, ordered, strict=True))}


def _number(register: str) -> int:
    return 14 if register == "lr" else int(register.lstrip("rsdqvx"))
