"""Trials of the C intrinsics of instructions: operands are variables of a function.

The operand `vl` is made a length that a vector has. Lanes of results after it are
unspecified and not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    InstrOperand,
    Memory,
    RegisterClass,
    RegisterPlace,
)
from tests.unit.kernels.cores import Core
from tests.unit.kernels.layout import VECTOR_BYTES, layout_of
from tests.unit.kernels.trials import UNTOUCHED, Trial, immediates_of

_LENGTH = "vl"
_GROUPS = {64: "mf2", 128: "m1", 256: "m2", 512: "m4", 1024: "m8"}
"""Names of groups of registers of 128 bits, by the bits of all."""
_FUNCTION = """\
static void {name}(const uint8_t *operands, uint8_t *results)
{{
{lines}
}}
"""


@dataclass(frozen=True, eq=False)
class CTrial(Trial):
    """A call of the C intrinsic of an instruction."""

    @property
    def text(self) -> str:
        names: dict[str, object] = {**self.registers, **self.immediates}
        memory = self.instr.memory
        if memory is not None:
            is_read, first = self._element_place
            pointer = f"operands + {first}" if is_read else f"results + {first}"
            const = "const " if is_read else ""
            names["address"] = f"({const}{memory.dtype.c_type} *)({pointer})"
        return self.instr.c.format(**names)

    def function(self, core: Core, name: str) -> str:
        lines = []
        for operand, first in self.places():
            if isinstance(operand.place, RegisterPlace):
                lines += _declared(core, operand.name, operand.place, first)
        if self._lanes_of_length:
            lines.append(f"{_LENGTH} %= {self._lanes_of_length + 1};")
        results = list(self.result_places())
        target, _ = results[0]
        if isinstance(target.place, Memory):
            lines.append(f"{self.text};")
        elif target.name in self.instr.updated:
            lines.append(f"{target.name} = {self.text};")
        else:
            assert isinstance(target.place, RegisterPlace)
            kind = c_type(core, target.place)
            lines.append(f"{kind} {target.name} = {self.text};")
        for result, first in results:
            if isinstance(result.place, RegisterPlace):
                length = _LENGTH if self._lanes_of_length else result.place.lanes
                lines.append(_stored(core, result.name, result.place, first, length))
        body = "\n".join(f"    {line}" for line in lines)
        return _FUNCTION.format(name=name, lines=body)

    @property
    def _lanes_of_length(self) -> int:
        """The lanes of the vectors of which the operand `vl` is the length, or 0."""
        if not any(operand.name == _LENGTH for operand in self.instr.operands):
            return 0
        counts = []
        for operand in (*self.instr.operands, *self.instr.results):
            if isinstance(operand.place, RegisterPlace):
                counts.append(operand.place.lanes)
        return max(counts)

    def _lanes(self, place: RegisterPlace, first: int) -> list[Array]:
        lanes = super()._lanes(place, first)
        length = [at for operand, at in self.places() if operand.name == _LENGTH]
        if first not in length:
            return lanes
        return [lane % np.uint32(self._lanes_of_length + 1) for lane in lanes]

    def _write(self, result: InstrOperand, lanes: list[Array], data: Array) -> None:
        super()._write(result, lanes, data)
        if not (self._lanes_of_length and isinstance(result.place, RegisterPlace)):
            return
        (length,) = [
            self._lanes(operand.place, at)[0]
            for operand, at in self.places()
            if operand.name == _LENGTH and isinstance(operand.place, RegisterPlace)
        ]
        size = result.place.dtype.size_bytes
        for lane in range(result.place.lanes):
            data[length <= lane, lane * size : (lane + 1) * size] = UNTOUCHED


def c_trials_of(instr: Instr, core: Core) -> list[CTrial]:
    layout = layout_of(core.place_bytes)
    names = {}
    for operand in (*instr.results, *instr.operands):
        if not isinstance(operand.place, Memory | Immediate):
            names[operand.name] = operand.name
    return [CTrial(layout, instr, names, given, None) for given in immediates_of(instr)]


def c_type(core: Core, place: RegisterPlace) -> str:
    dtype = place.dtype
    if place.kind is RegisterClass.PREDICATE:
        return "mve_pred16_t"
    if place.kind is not RegisterClass.VECTOR:
        return dtype.c_type
    if core.has_vector_groups:
        return f"v{dtype.name}{_group(place)}_t"
    return f"{dtype.name}x{place.lanes}_t"


def _group(place: RegisterPlace) -> str:
    return _GROUPS[place.lanes * place.dtype.bits]


def _declared(core: Core, name: str, place: RegisterPlace, first: int) -> list[str]:
    kind = c_type(core, place)
    if place.kind is RegisterClass.PREDICATE:
        bits = 8 * VECTOR_BYTES // place.lanes
        vector = f"*(const int{bits}x{place.lanes}_t *)(operands + {first})"
        return [f"const {kind} {name} = vcmpltq_n_s{bits}({vector}, 0);"]
    if place.kind is RegisterClass.VECTOR and core.has_vector_groups:
        dtype = place.dtype
        name_of_load = f"__riscv_vle{dtype.bits}_v_{dtype.short}{_group(place)}"
        pointer = f"(const {dtype.c_type} *)(operands + {first})"
        return [f"{kind} {name} = {name_of_load}({pointer}, {place.lanes});"]
    copy = f"__builtin_memcpy(&{name}, operands + {first}, sizeof {name});"
    return [f"{kind} {name};", copy]


def _stored(
    core: Core, name: str, place: RegisterPlace, first: int, length: str | int
) -> str:
    if place.kind is RegisterClass.VECTOR and core.has_vector_groups:
        dtype = place.dtype
        name_of_store = f"__riscv_vse{dtype.bits}_v_{dtype.short}{_group(place)}"
        pointer = f"({dtype.c_type} *)(results + {first})"
        return f"{name_of_store}({pointer}, {name}, {length});"
    if place.kind is RegisterClass.PREDICATE:
        return f"*(uint32_t *)(results + {first}) = {name};"
    return f"__builtin_memcpy(results + {first}, &{name}, sizeof {name});"
