"""Outputs of sums on Helium: vectors that are computed and stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import indent
from typing import ClassVar

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array, DType
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.kernels.contract import Requantizer
from firmwright.kernels.isa.c_numbers import at_least, word
from firmwright.kernels.isa.mve_lanes import vctp32q
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text

VECTOR = 4
"""The channels of a vector of sums."""
_SIZES = {8: "b", 16: "h", 32: "w"}


@dataclass(frozen=True, slots=True)
class ParameterTable:
    """A pointer to parameters of channels, as `ChannelBlocks.table` has them.

    The parameter `small` is a byte of each channel.
    """

    pointer: str
    dtype: DType
    parameters: tuple[str, ...]
    small: str = ""

    @property
    def step(self) -> int:
        """The elements of a vector of channels."""
        return VECTOR * len(self.parameters) + bool(self.small)

    def place(self, channel: int, parameter: int) -> int:
        """Return where the parameters of the vector from `channel` on begin."""
        return channel // VECTOR * self.step + VECTOR * parameter

    def values(self, data: Array, channel: int) -> dict[str, Array]:
        """Return the parameters of the vector from `channel` on, in numpy."""
        found: dict[str, Array] = {}
        for number, name in enumerate(self.parameters):
            start = self.place(channel, number)
            found[name] = data[start : start + VECTOR]
        if self.small:
            word = data[self.place(channel, len(self.parameters))]
            shifts = range(0, INT32.bits, INT8.bits)
            found[self.small] = np.stack([word >> n for n in shifts]).astype(np.int8)
        return found


@dataclass(frozen=True, slots=True)
class SumVector:
    """A vector of sums: of four channels, from `channel` of the block on.

    `output` is the pointer to the outputs of their pixel.
    """

    name: str
    output: str
    channel: int = 0

    @property
    def target(self) -> str:
        return f"{self.output} + {self.channel}" if self.channel else self.output

    @property
    def lanes(self) -> str:
        """The outputs to store, as C; at least 4 is all."""
        return f"lanes - {self.channel}" if self.channel else "lanes"


@dataclass(frozen=True, slots=True)
class VectorEnding:
    """Outputs that are computed from sums, and stored.

    `element` is the function of one output, of its `sum`, of parameters of the tables
    and of settings, of which the last is `lanes`: the channels of a block to store.
    `finish(sums, target, lanes)` returns the C of a vector, in which parameters are
    vectors of their names. `instructions` counts those of a vector from the settings.
    """

    output: DType
    tables: tuple[ParameterTable, ...]
    settings: tuple[Operand, ...]
    element: Intrinsic
    finish: Callable[[str, str, str], str]
    instructions: Callable[[Mapping[str, int]], int]
    requires: str = "mve"
    requantizer: ClassVar = Requantizer.MICROKERNEL

    @property
    def calls(self) -> tuple[str, ...]:
        return (self.element.name,)

    def operands(self, vectors: Sequence[SumVector]) -> tuple[Operand, ...]:
        """Return the parameters, the outputs and the settings."""
        channels = VECTOR + max(vector.channel for vector in vectors)
        tables = []
        for table in self.tables:
            extent = channels // VECTOR * table.step
            tables.append(Operand(table.pointer, "ptr", table.dtype, extent=extent))
        names = dict.fromkeys(vector.output for vector in vectors)
        outputs = [Operand(name, "ptr", self.output, "w", 1) for name in names]
        return (*tables, *outputs, *self.settings)

    def text(self, vectors: Sequence[SumVector]) -> str:
        """Return C that stores the outputs of all vectors."""
        lines: list[str] = []
        is_single = not any(vector.channel for vector in vectors)
        for channel, group in groupby(vectors, key=lambda vector: vector.channel):
            parts = [self.loads(channel)]
            for vector in group:
                parts.append(self.finish(vector.name, vector.target, vector.lanes))
            body = "\n".join(parts)
            if is_single:
                lines.append(body)
                continue
            head = f"if (lanes > {channel}) {{" if channel else "{"
            lines += [head, indent(body, "    "), "}"]
        return "\n".join(lines)

    def loads(self, channel: int) -> str:
        """Return C that loads the parameters of the vector from `channel` on."""
        k, lines = VectorBuilder("loads"), []
        for table in self.tables:
            kind, size = "f" if table.dtype.is_float else "s", _SIZES[table.dtype.bits]
            load = MVE_MEMORY.rows[f"vldr{size}q_{kind}32"]
            pointer = PointerOperand(table.pointer, table.dtype)
            for number, name in enumerate(table.parameters):
                k.named(name, load, pointer[table.place(channel, number)])
            if table.small:
                small = f"{table.pointer}_bytes"
                start = (
                    f"{table.pointer} + {table.place(channel, len(table.parameters))}"
                )
                lines.append(f"const int8_t *{small} = (const int8_t *)({start});")
                load = MVE_MEMORY.rows["vldrbq_s32"]
                k.named(table.small, load, PointerOperand(small, INT8)[0])
        return "\n".join([*lines, vector_text(k.build_vectors())])

    def portable(self, vectors: Sequence[SumVector]) -> str:
        """Return C that stores the outputs of arrays of sums, each a vector."""
        names = ", ".join(vector.name for vector in vectors)
        targets = ", ".join(vector.target for vector in vectors)
        sum_type = self.element.operands[0].dtype.c_type
        is_single = not any(vector.channel for vector in vectors)
        bound = (
            "c < lanes" if is_single else f"c < {VECTOR} && {VECTOR} * v + c < lanes"
        )
        count = len(vectors)
        return "\n".join(
            [
                f"const {sum_type} *const sums[{count}] = {{{names}}};",
                f"{self.output.c_type} *const results[{count}] = {{{targets}}};",
                f"for (int32_t v = 0; v < {count}; ++v) {{",
                f"    for (int32_t c = 0; {bound}; ++c) {{",
                f"        results[v][c] = {self.call('sums[v][c]', is_single)};",
                "    }",
                "}",
            ]
        )

    def call(self, total: str, is_single: bool) -> str:
        """Return the C of one output, of channel c or channel c of vector v."""
        arguments = {"sum": total}
        for table in self.tables:
            start = "c" if is_single else f"{table.step} * v + c"
            for number, name in enumerate(table.parameters):
                place = f"{start} + {VECTOR * number}" if number else start
                arguments[name] = f"{table.pointer}[{place}]"
            if table.small:
                place = str(table.step - 1)
                if not is_single:
                    place = f"{table.step} * v + {place}"
                word = f"(uint32_t){table.pointer}[{place}]"
                arguments[table.small] = f"(int8_t)({word} >> (8 * c))"
        given = (arguments.get(op.name, op.name) for op in self.element.operands)
        return f"@{self.element.name}({', '.join(given)})"

    def results(
        self,
        vectors: Sequence[SumVector],
        sums: Sequence[Array],
        given: Mapping[str, Array],
    ) -> Array | tuple[Array, ...]:
        """Return the outputs of each pixel in numpy, from sums [channel, ...]."""
        outputs: dict[str, list[Array]] = {}
        for vector, totals in zip(vectors, sums, strict=True):
            values = {**given, "sum": totals}
            for table in self.tables:
                data = np.asarray(given[table.pointer])
                values.update(table.values(data, vector.channel))
            arguments = [values[op.name] for op in self.element.operands]
            result = self.element.meaning(*arguments)
            outputs.setdefault(vector.output, []).append(result)
        lanes = int(given["lanes"])
        stored = [np.concatenate(parts)[:lanes] for parts in outputs.values()]
        return stored[0] if len(stored) == 1 else tuple(stored)


@dataclass(frozen=True, slots=True)
class SumsInRegisters:
    """The ending that leaves the sums to the schedule."""

    requantizer: ClassVar = Requantizer.SCHEDULE
    requires: ClassVar = "mve"
    tables: ClassVar[tuple[ParameterTable, ...]] = ()
    calls: ClassVar[tuple[str, ...]] = ()

    def operands(self, vectors: Sequence[SumVector]) -> tuple[Operand, ...]:
        count = VECTOR * len(vectors)
        return tuple(Operand(f"c{i}", "out", INT32) for i in range(count))

    def text(self, vectors: Sequence[SumVector]) -> str:
        return self._assignments(vectors, "vgetq_lane_s32({vector}, {lane})")

    def portable(self, vectors: Sequence[SumVector]) -> str:
        return self._assignments(vectors, "{vector}[{lane}]")

    def _assignments(self, vectors: Sequence[SumVector], element: str) -> str:
        lines = []
        for number, vector in enumerate(vectors):
            for lane in range(VECTOR):
                value = element.format(vector=vector.name, lane=lane)
                lines.append(f"c{VECTOR * number + lane} = {value};")
        return "\n".join(lines)

    def results(
        self,
        vectors: Sequence[SumVector],
        sums: Sequence[Array],
        given: Mapping[str, Array],
    ) -> tuple[Array, ...]:
        return tuple(np.concatenate(sums))

    def instructions(self, given: Mapping[str, int]) -> int:
        return VECTOR


def store_lanes(
    k: VectorBuilder, value: VirtualRegister, target: str, dtype: DType, lanes: str
) -> None:
    """Append the store of the first `lanes` elements of a vector, as `dtype`."""
    lane = "f32" if dtype.is_float else "s32"
    store = f"vstr{_SIZES[dtype.bits]}q"
    y, count = k.pointer(target, dtype, "w"), k.number(lanes)
    with k.when(k(at_least, count, VECTOR)):
        k.store(MVE_MEMORY.rows[f"{store}_{lane}"], y[0], value)
    with k.otherwise():
        inside = k(vctp32q, k(word, count))
        k.store(MVE_MEMORY.rows[f"{store}_p_{lane}"], y[0], value, inside)
