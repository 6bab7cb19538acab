"""Trials of instructions: one text with registers and numbers, many operands.

The results of a case are those of registers, then elements that are written, each with
four bytes after them that must stay, and then the base register of the access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from firmwright.base.dtypes import BOOL, UINT32, Array
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa.instruction import (
    AddressForm,
    AddressText,
    Immediate,
    Instr,
    InstrOperand,
    Memory,
    RegisterClass,
    RegisterPlace,
)
from tests.unit.kernels.cores import Core
from tests.unit.kernels.layout import (
    CASES,
    FLOAT_PLACES,
    INT_PLACES,
    VECTOR_BYTES,
    Layout,
    lane_type,
    layout_of,
    size_bytes,
)

GUARD_BYTES = 4
UNTOUCHED = 0xA5
INDEXES = (24, -40)
FLOAT_REGISTERS = 32
_FUNCTION = """\
static void {name}(const uint8_t *from, uint8_t *to)
{{
    register const uint8_t *operands __asm__("{operands}") = from;
    register uint8_t *results __asm__("{results}") = to;
    __asm__ volatile(
{lines}
        : "+r"(operands), "+r"(results) : : {clobbers}, "cc", "memory");
}}
"""


@dataclass(frozen=True, eq=False)
class Trial:
    """An instruction with its registers, by operand, and its numbers."""

    layout: Layout
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
        text = self.instr.asm.format(**names)
        return f"vpst\n\t{text}" if self.instr.is_predicated else text

    def places(self) -> Iterator[tuple[InstrOperand, int]]:
        """Yield the operands that are not in the text, and where they begin.

        Memory that is written has no place among the operands.
        """
        memory, updated = self.instr.memory, self.instr.updated
        ints = floats = 0
        for operand in self.instr.operands:
            place = operand.place
            if isinstance(place, Immediate):
                continue
            if isinstance(place, Memory) and operand.name in updated:
                continue
            if memory is not None and memory.index == operand.name:
                bits, size = lane_type(operand).bits, memory.dtype.size_bytes
                at = self.layout.index_place(bits, memory.shifts[0], size)
                yield operand, at
                continue
            yield operand, self.layout.place(operand, ints, floats)
            if isinstance(place, RegisterPlace):
                ints += not lane_type(operand).is_float
                floats += lane_type(operand).is_float
        assert ints <= INT_PLACES
        assert floats <= FLOAT_PLACES

    def result_places(self) -> Iterator[tuple[InstrOperand, int]]:
        first = 0
        for result in self.instr.results:
            yield result, first
            first += self._room(result)

    @staticmethod
    def _room(result: InstrOperand) -> int:
        size = -(-size_bytes(result) // 4) * 4
        return size + GUARD_BYTES * isinstance(result.place, Memory)

    @property
    def result_bytes(self) -> int:
        total = sum(self._room(result) for result in self.instr.results)
        return total + 4 * (self.address is not None)

    def inputs(self) -> list[list[Array] | int]:
        """Return the operands of all cases for `evaluate`."""
        places = {operand.name: first for operand, first in self.places()}
        given: list[list[Array] | int] = []
        for operand in self.instr.operands:
            place = operand.place
            if isinstance(place, Immediate):
                given.append(self.immediates[operand.name])
            elif isinstance(place, Memory):
                given.append(self._elements(place, places.get(operand.name)))
            else:
                given.append(self._lanes(place, places[operand.name]))
        return given

    def _lanes(self, place: RegisterPlace, first: int) -> list[Array]:
        """Return the lanes of a register; those of a predicate are signs of numbers."""
        if place.dtype is BOOL:
            bits = VECTOR_BYTES * 8 // place.lanes
            return [lane < 0 for lane in self._view(f"int{bits}", first, place.lanes)]
        return self._view(place.dtype.name, first, place.lanes)

    def _view(self, dtype: str, first: int, count: int) -> list[Array]:
        size = count * np.dtype(dtype).itemsize
        data = self.layout.data[:, first : first + size]
        return list(np.ascontiguousarray(data).view(dtype).T)

    def _elements(self, memory: Memory, first: int | None) -> list[Array]:
        """Return elements from `first` on, or those that nobody has touched."""
        kind = memory.dtype
        if first is None:
            untouched = np.full(kind.size_bytes, UNTOUCHED, np.uint8).view(kind.np)
            return [np.repeat(untouched, CASES)] * memory.count
        if not memory.index:
            return self._view(kind.name, first, memory.count)
        data = self.layout.data[:, first : first + self.layout.area_bytes]
        elements = []
        for offset in self._byte_offsets(memory):
            at = offset[:, None] + np.arange(kind.size_bytes)
            element = np.ascontiguousarray(np.take_along_axis(data, at, 1))
            elements.append(element.view(kind.np)[:, 0])
        return elements

    def _byte_offsets(self, memory: Memory) -> list[Array]:
        """Return the distance of each element from the address."""
        places = {operand.name: (operand, at) for operand, at in self.places()}
        operand, at = places[memory.index]
        assert isinstance(operand.place, RegisterPlace)
        lanes = self._lanes(operand.place, at)
        return [lane.astype(np.int64) << memory.shifts[0] for lane in lanes]

    def expected(self) -> Array:
        """Return the results by the semantics, [case, byte]."""
        data = np.full((CASES, self.result_bytes), UNTOUCHED, np.uint8)
        numbers = tuple(self.immediates.items())
        results = _results(type(self), self.layout, self.instr, numbers)
        for (result, first), lanes in zip(self.result_places(), results, strict=True):
            kind = lane_type(result).np
            columns = [np.broadcast_to(np.asarray(x, kind), (CASES,)) for x in lanes]
            self._write(result, columns, data[:, first:])
        if self.address is not None:
            base = np.full((CASES, 1), self._base_offset + self.address.advance)
            data[:, -4:] = base.astype(np.int32).view(np.uint8).reshape(CASES, 4)
        return data

    def _write(self, result: InstrOperand, lanes: Sequence[Array], data: Array) -> None:
        """Write the lanes of a result to the begin of `data`."""
        place, kind = result.place, lane_type(result)
        if kind is BOOL:
            lanes = [_bits_of_predicate(lanes)]
        values = np.ascontiguousarray(np.stack(lanes, axis=1)).view(np.uint8)
        if not (isinstance(place, Memory) and place.index):
            data[:, : values.shape[1]] = values
            return
        for i, offset in enumerate(self._byte_offsets(place)):
            size = kind.size_bytes
            at = offset[:, None] + np.arange(size)
            np.put_along_axis(data, at, values[:, i * size : (i + 1) * size], 1)

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
    def _has_index_register(self) -> bool:
        memory = self.instr.memory
        return memory is not None and memory.form is AddressForm.INDEX

    @property
    def _base_offset(self) -> int:
        """The base register relative to the operands or results, before the access."""
        assert self.address is not None
        first = self._element_place[1] - self.address.offset
        if self._has_index_register:
            first -= self._index_value << self.address.shift
        return first

    @property
    def _index_value(self) -> int:
        assert self.address is not None
        return INDEXES[self.address.shift % 2]

    def function(self, core: Core, name: str) -> str:
        """Return the C function that executes the instruction."""
        used = set(core.scratch)
        for register in self.registers.values():
            used.update(members(register))
        used.discard("p0")  # which compilers do not know
        if self.address is not None:
            used |= {self.address.base, self.address.index} - {""}
        lines = [f"/* instruction {self.instr.name} */", *self._assembly(core)]
        return _FUNCTION.format(
            name=name,
            operands=core.operands,
            results=core.results,
            lines="\n".join(f'        "{line}\\n\\t"' for line in lines),
            clobbers=", ".join(f'"{name}"' for name in sorted(used)),
        )

    def _assembly(self, core: Core) -> list[str]:
        """Return lines that load operands, execute the instruction, store results."""
        lines = [self._access(core, item, at) for item, at in self.places()]
        address = self.address
        if address is not None:
            is_read, _ = self._element_place
            pointer = core.operands if is_read else core.results
            number = {"register": address.base, "value": self._base_offset}
            lines.append(core.number.format(**number))
            lines.append(core.add.format(register=address.base, other=pointer))
            if self._has_index_register:
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
        self, core: Core, operand: InstrOperand, first: int, *, is_store: bool = False
    ) -> str:
        if not isinstance(operand.place, RegisterPlace):
            return ""
        access = core.classes[operand.place.kind]
        pointer = core.results if is_store else core.operands
        text = access.store if is_store else access.load
        lines = []
        for at, register in enumerate(members(self.registers[operand.name])):
            place = {"pointer": pointer, "offset": first + 4 * at}
            bits = 8 * VECTOR_BYTES // operand.place.lanes
            lines.append(text.format(register=register, bits=bits, **place))
        return "\n\t".join(lines)


@cache
def _results(
    kind: type[Trial],
    layout: Layout,
    instr: Instr,
    immediates: tuple[tuple[str, int], ...],
) -> tuple[tuple[Array, ...], ...]:
    """Return what an instruction returns for all cases, whatever its registers are."""
    trial = kind(layout, instr, {}, dict(immediates), None)
    with np.errstate(all="ignore"):
        return evaluate(instr, trial.inputs())


def members(group: str) -> list[str]:
    """Return the registers of a group of adjacent ones such as s4-s7, or the only one."""
    first, _, last = group.partition("-")
    if not last:
        return [group]
    return [f"s{number}" for number in range(int(first[1:]), int(last[1:]) + 1)]


def _bits_of_predicate(lanes: Sequence[Array]) -> Array:
    """Return words with a bit for each byte of a vector."""
    each = VECTOR_BYTES // len(lanes)
    words = np.zeros(CASES, np.uint32)
    for i, lane in enumerate(lanes):
        words |= lane.astype(np.uint32) * np.uint32(((1 << each) - 1) << (each * i))
    return words


def trials_of(instr: Instr, core: Core) -> list[Trial]:
    """Return trials in which each operand is at both ends of its registers.

    In further ones the first result is in the register of an operand.
    """
    numbers = [
        (immediates, address)
        for immediates in immediates_of(instr)
        for address in _addresses(instr.memory)
    ]
    needs = _needed_registers(instr)
    turns = max(len(needs), 2)
    trials = []
    for at in range(max(len(numbers), turns)):
        immediates, address = numbers[at % len(numbers)]
        registers = _registers(needs, core, at % turns)
        if instr.memory is not None and instr.memory.form is AddressForm.MULTIPLE:
            registers = _ascending(registers)
        if address is not None:
            base, index = registers.pop("base"), registers.pop("index", "")
            if instr.memory is not None and instr.memory.index:
                index = registers[instr.memory.index]
            address = AddressText(
                base, address.offset, address.advance, index, address.shift
            )
        layout = layout_of(core.place_bytes)
        trials.append(Trial(layout, instr, registers, immediates, address))
    return [*trials, *_overlapping(trials[0])]


def _overlapping(trial: Trial) -> Iterator[Trial]:
    """Yield the trial with its first result in the register of an operand."""
    instr, address = trial.instr, trial.address
    result = instr.results[0]
    is_advancing = address is not None and bool(address.advance)
    if instr.has_early_results or is_advancing or result.name in instr.updated:
        return
    needs = _needed_registers(instr)
    if result.name not in needs:
        return
    others = {trial.registers[other.name] for other in instr.results[1:]}
    for operand in instr.operands:
        place = needs.get(operand.name)
        if place is None or place.kind is not needs[result.name].kind:
            continue
        register = trial.registers[operand.name]
        if register not in others:
            yield replace(trial, registers={**trial.registers, result.name: register})


def _some(values: Sequence[int]) -> list[int]:
    """Return the ends and two values between them."""
    count = len(values)
    places = (0, count - 1, count // 3, 2 * count // 3)
    return list(dict.fromkeys(values[at] for at in places)) if count else []


def immediates_of(instr: Instr) -> list[dict[str, int]]:
    named: list[list[tuple[str, int]]] = []
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            named.append([(operand.name, v) for v in _some(operand.place.values)])
    return [dict(choice) for choice in product(*named)]


def _addresses(memory: Memory | None) -> list[AddressText | None]:
    if memory is None:
        return [None]
    if memory.form in (AddressForm.INDEX, AddressForm.LANES):
        return [AddressText("", index="index", shift=shift) for shift in memory.shifts]
    offsets = {0, *_some(memory.offsets)} if memory.offsets else set[int]()
    advances = [memory.size_bytes] * memory.can_advance + _some(memory.advances)
    return [
        *(AddressText("", offset) for offset in offsets),
        *(AddressText("", advance=advance) for advance in advances if advance),
    ]


def _needed_registers(instr: Instr) -> dict[str, RegisterPlace]:
    needs = {}
    for operand in (*instr.results, *instr.operands):
        if isinstance(operand.place, RegisterPlace):
            needs[operand.name] = operand.place
    if instr.memory is not None:
        needs["base"] = RegisterPlace(instr.memory.base, UINT32)
        if instr.memory.form is AddressForm.INDEX:
            needs["index"] = needs["base"]
    return needs


def _registers(
    needs: Mapping[str, RegisterPlace], core: Core, turn: int
) -> dict[str, str]:
    used: dict[str, str] = {}
    for at, (name, place) in enumerate(needs.items()):
        if place.kind is RegisterClass.FLOAT and place.lanes > 1:
            first = turn % 2 * (FLOAT_REGISTERS - place.lanes)
            used[name] = f"s{first}-s{first + place.lanes - 1}"
            continue
        registers = core.classes[place.kind].registers
        start = (at + turn) % max(len(needs), 2)
        order = (*registers[start:], *registers[:start])
        used[name] = next(item for item in order if item not in used.values())
    return used


def _ascending(registers: Mapping[str, str]) -> dict[str, str]:
    """Return the registers of a multiple access in ascending order."""
    listed = [name for name, register in registers.items() if "-" not in register]
    listed.remove("base")
    ordered = sorted((registers[name] for name in listed), key=_number)
    return {**registers, **dict(zip(listed, ordered, strict=True))}


def _number(register: str) -> int:
    return 14 if register == "lr" else int(register.lstrip("rsdqvx"))
