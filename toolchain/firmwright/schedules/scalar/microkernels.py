"""GEMM micro-kernels with single multiplications: rows of weights times columns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Operand,
    immediates,
    pointers,
)

_C = read_sections(__file__)

# `FAMILY_LAYOUT_RxP_U` multiplies R weight rows by P columns of `steps` elements and
# leaves the R x P sums in registers. A step loads R + P values for R * P products. The
# loop, unrolled by U steps, is part of the asm statement, so no compiler has to
# allocate registers for it. Sums begin at `start[row]`. Weights are packed step by
# step, the R rows of a step adjacent.
#
# In the layout `bytes`, elements are int8 and columns are contiguous, `pixel` elements
# apart; in `tiles`, elements are int16 and the columns of one step are adjacent.
#
# Families differ in their assembly: `mla` for Armv7-M without the DSP extension
# (thumb2_microkernels.py) and `rvm` for RV32IM (rv32_microkernels.py). Sums are exact
# modulo 2^32.

OperandLayout: TypeAlias = Literal["bytes", "tiles"]

_STEPS_ARGUMENT = 4


@dataclass(frozen=True, slots=True)
class ScalarMicrokernel:
    """Layout, size and unroll factor of a micro-kernel."""

    layout: OperandLayout
    rows: int
    pixels: int
    unroll: int

    @property
    def sums(self) -> int:
        return self.rows * self.pixels

    @property
    def dtype(self) -> DType:
        return INT8 if self.layout == "bytes" else INT16

    @property
    def step(self) -> int:
        """Return the distance in elements between two steps of a column."""
        return 1 if self.layout == "bytes" else self.pixels

    def place(self, row: int, pixel: int) -> int:
        return row * self.pixels + pixel


@dataclass(frozen=True, slots=True)
class MicrokernelFamily:
    """The micro-kernels of an instruction set.

    `shapes` are (layout, rows, pixels); `most_unrolled` bounds the unroll factor and
    `reach` the address offset of a load in bytes. `text` returns the assembly,
    `step_instructions` the instructions per step; each iteration takes
    `loop_instructions` more.
    """

    name: str
    requires: str
    shapes: tuple[tuple[OperandLayout, int, int], ...]
    most_unrolled: int
    reach: int
    text: Callable[[ScalarMicrokernel], str]
    step_instructions: Callable[[ScalarMicrokernel], int]
    loop_instructions: int

    @property
    def pixel_counts(self) -> list[int]:
        counts = {p for layout, _, p in self.shapes if layout == "bytes"}
        return sorted(counts, reverse=True)

    def rows(self, outputs: int, pixels: int) -> int:
        """Return the `bytes` row count with the least cost for `outputs` rows."""
        counts = []
        for layout, rows, columns in self.shapes:
            if layout == "bytes" and columns == pixels:
                counts.append(rows)
        return min(counts, key=lambda r: (self.cost(outputs, r, pixels), -r))

    def unrolled(self, steps: int) -> int:
        return max(n for n in range(1, self.most_unrolled + 1) if steps % n == 0)

    def block(self, shape: ScalarMicrokernel) -> str:
        return f"{self.name}_{shape.layout}_{shape.rows}x{shape.pixels}_{shape.unroll}"

    def cost(self, outputs: int, rows: int, pixels: int) -> int:
        """Return the instructions per step for `outputs` rows in blocks of `rows`."""
        shape = ScalarMicrokernel("bytes", rows, pixels, 1)
        return divide_up(outputs, rows) * self.step_instructions(shape)


def _meaning(shape: ScalarMicrokernel) -> Callable[..., tuple[Array, ...]]:
    """Return the numpy meaning, of operands [element, lane].

    The initial values of the registers are ignored.
    """

    def run(
        w: Array, x: Array, start: Array, pixel: int, steps: int, *_: Array
    ) -> tuple[Array, ...]:
        weights = np.asarray(w, np.int64)[: shape.rows * steps]
        weights = weights.reshape(steps, shape.rows, *weights.shape[1:])
        down = shape.step * np.arange(steps)[:, None]
        columns = np.asarray(x, np.int64)[down + pixel * np.arange(shape.pixels)]
        begin = np.asarray(start, np.int64)
        results = []
        for row in range(shape.rows):
            for p in range(shape.pixels):
                total = begin[row] + (weights[:, row] * columns[:, p]).sum(axis=0)
                results.append(total.astype(np.uint32).astype(np.int32))
        return tuple(results)

    return run


def sum_outputs(shape: ScalarMicrokernel) -> str:
    """Return the asm outputs of the sums, four in a line."""
    sums = [f'[c{i}] "=&r"(c{i})' for i in range(shape.sums)]
    lines = [", ".join(sums[first : first + 4]) for first in range(0, len(sums), 4)]
    return ",\n      ".join(lines)


def column_offsets(shape: ScalarMicrokernel) -> list[str]:
    """Return the asm inputs that place the columns after the first, if any."""
    if shape.layout != "bytes":
        return []
    return [f'[p{i}] "i"({i} * pixel)' for i in range(1, shape.pixels)]


def make_microkernel(family: MicrokernelFamily, shape: ScalarMicrokernel) -> Intrinsic:
    rows, pixels = shape.rows, shape.pixels
    results = [f"c{i} = sums[{i}];" for i in range(shape.sums)]
    portable = fill_text(
        _C["portable"],
        count=shape.sums,
        rows=rows,
        pixels=pixels,
        step=shape.step,
        results="\n".join(results),
    )
    return Intrinsic(
        name=family.block(shape),
        operands=(
            Operand("w", "ptr", shape.dtype, "r", rows * shape.unroll),
            Operand("x", "ptr", shape.dtype, "r", shape.step * shape.unroll),
            *pointers(INT32, start=rows),
            *immediates("pixel", "steps"),
            *(Operand(f"c{i}", "out", INT32) for i in range(shape.sums)),
        ),
        meaning=_meaning(shape),
        portable=portable,
        doc=f"Products of {rows} rows with {pixels} columns of `steps` elements.",
        requires=family.requires,
        text={"gnu": family.text(shape)},
        count=lambda args: _executed(family, shape, args[_STEPS_ARGUMENT]),
    )


def _executed(family: MicrokernelFamily, shape: ScalarMicrokernel, steps: int) -> int:
    trips = steps // shape.unroll
    each = family.step_instructions(shape) * shape.unroll + family.loop_instructions
    return trips * each + shape.sums + family.loop_instructions


def microkernel_makers(family: MicrokernelFamily) -> IntrinsicMakers:
    makers = {}
    for layout, rows, pixels in family.shapes:
        for unroll in range(1, family.most_unrolled + 1):
            shape = ScalarMicrokernel(layout, rows, pixels, unroll)
            makers[family.block(shape)] = partial(make_microkernel, family, shape)
    return makers
