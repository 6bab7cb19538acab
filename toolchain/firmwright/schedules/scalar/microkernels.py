"""GEMM micro-kernels of families without vectors: kernels/scalar/gemm.py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Operand,
    immediates,
    pointers,
)
from firmwright.kernels.assembly import (
    ProgramForms,
    body_text,
    executed_instructions,
    loop_end,
    macro_definitions,
)
from firmwright.kernels.contract import sums_of_products
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa import thumb2, xtensa
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.program import instruction_count
from firmwright.kernels.program_cycles import executed_cycles
from firmwright.kernels.scalar.gemm import (
    OperandLayout,
    ScalarMicrokernel,
    is_contiguous,
    mla_forms,
    rvm_forms,
    rvp_forms,
    taps_per_element,
    xtensa_forms,
)

_STEPS_ARGUMENT = 4


@dataclass(frozen=True, slots=True)
class MicrokernelFamily:
    """The micro-kernels of an instruction set.

    `shapes` are (layout, rows, pixels); `most_unrolled` bounds the unroll factor and
    `reach` the address offset of a load in bytes. Layers have `layout`; if it is
    `unsigned`, weights and columns have 128 added; if it is `words`, columns are filled
    up to a word.
    """

    name: str
    requires: str
    shapes: tuple[tuple[OperandLayout, int, int], ...]
    most_unrolled: int
    reach: int
    forms: Callable[[ScalarMicrokernel], ProgramForms]
    layout: OperandLayout = "bytes"
    has_high_product: bool = True

    @property
    def offset(self) -> int:
        return -INT8.min if self.layout == "unsigned" else 0

    @property
    def dtype(self) -> DType:
        """Return the type of the elements of weights and columns of layers."""
        return ScalarMicrokernel(self.layout, 1, 1, 1).dtype

    @property
    def taps_per_step(self) -> int:
        return taps_per_element(self.layout)

    def column_bytes(self, taps: int) -> int:
        """Return the bytes of a column of int8, which is filled up to its last step."""
        return divide_up(taps, self.taps_per_step) * self.taps_per_step

    @property
    def pixel_counts(self) -> list[int]:
        counts = {p for layout, _, p in self.shapes if layout == self.layout}
        return sorted(counts, reverse=True)

    def rows(self, outputs: int, pixels: int) -> int:
        """Return the row count of layers with the least cost for `outputs` rows."""
        counts = []
        for layout, rows, columns in self.shapes:
            if layout == self.layout and columns == pixels:
                counts.append(rows)
        return min(counts, key=lambda r: (self.cost(outputs, r, pixels), -r))

    def unrolled(self, steps: int) -> int:
        return max(n for n in range(1, self.most_unrolled + 1) if steps % n == 0)

    def block(self, shape: ScalarMicrokernel) -> str:
        return f"{self.name}_{shape.layout}_{shape.rows}x{shape.pixels}_{shape.unroll}"

    def cost(self, outputs: int, rows: int, pixels: int) -> int:
        """Return the instructions per step for `outputs` rows in blocks of `rows`."""
        shape = ScalarMicrokernel(self.layout, rows, pixels, 1)
        step = instruction_count(self.forms(shape).wide) - shape.sums
        return divide_up(outputs, rows) * step


def _meaning(
    shape: ScalarMicrokernel,
    w: Array,
    x: Array,
    start: Array,
    pixel: int,
    steps: int,
    *_: Array,
) -> tuple[Array, ...]:
    """Return the sums; the initial values of the registers are ignored.

    Operands are [element, lane].
    """
    weights = np.asarray(w)[: shape.rows * steps]
    weights = weights.reshape(steps, shape.rows, *weights.shape[1:])
    down = shape.step * np.arange(steps)[:, None]
    columns = np.asarray(x)[down + pixel * np.arange(shape.pixels)]
    starts = np.repeat(start[: shape.rows], shape.pixels, axis=0)
    if shape.layout == "words":
        weights, columns = _taps_of_words(weights), _taps_of_words(columns)
    return sums_of_products(weights, columns, starts)


def _taps_of_words(words: Array) -> Array:
    """Return the four int8 of words, [step, ...], as [tap, ...]."""
    taps = [(words >> np.uint32(8 * i)).astype(np.uint8) for i in range(4)]
    stacked = np.stack(taps, axis=1).view(np.int8)
    return np.asarray(stacked.reshape(-1, *words.shape[1:]))


def make_microkernel(family: MicrokernelFamily, shape: ScalarMicrokernel) -> Intrinsic:
    rows, pixels = shape.rows, shape.pixels
    forms = family.forms(shape)
    has_distance = is_contiguous(shape.layout) and pixels > 1
    unused = "" if has_distance else "(void)pixel;\n"
    return Intrinsic(
        name=family.block(shape),
        operands=(
            Operand("w", "ptr", shape.dtype, "r", rows * shape.unroll),
            Operand("x", "ptr", shape.dtype, "r", shape.step * shape.unroll),
            *pointers(INT32, start=rows),
            *immediates("pixel", "steps"),
            *(Operand(f"c{i}", "out", INT32) for i in range(shape.sums)),
        ),
        meaning=partial(_meaning, shape),
        portable=unused + portable_text(forms.wide),
        doc=f"Products of {rows} rows with {pixels} columns of `steps` elements.",
        requires=family.requires,
        text={"gnu": unused + body_text(forms)},
        definitions=macro_definitions(forms),
        instructions=executed_instructions(forms, shape.unroll),
        count=lambda args: _count(forms, args[_STEPS_ARGUMENT]),
        cycles=lambda core, args: executed_cycles(forms, core, args[_STEPS_ARGUMENT]),
        calls=called_intrinsics(forms.wide),
    )


def _count(forms: ProgramForms, steps: int) -> int:
    """Return the instructions; the loop begins with the number that closes it."""
    return executed_instructions(forms, steps) + len(loop_end(forms))


def microkernel_makers(family: MicrokernelFamily) -> IntrinsicMakers:
    makers = {}
    for layout, rows, pixels in family.shapes:
        for unroll in range(1, family.most_unrolled + 1):
            shape = ScalarMicrokernel(layout, rows, pixels, unroll)
            makers[family.block(shape)] = partial(make_microkernel, family, shape)
    return makers


MLA_FAMILY = MicrokernelFamily(
    "mla",
    "mla",
    shapes=(
        ("bytes", 2, 4),
        ("bytes", 2, 3),
        ("bytes", 4, 2),
        ("bytes", 8, 1),
        ("bytes", 4, 1),
        ("tiles", 2, 4),
    ),
    most_unrolled=8,
    reach=4095,
    forms=mla_forms,
)
RV32M_FAMILY = MicrokernelFamily(
    "rvm",
    "rvm",
    shapes=(
        ("bytes", 4, 4),
        ("bytes", 4, 3),
        ("bytes", 8, 2),
        ("bytes", 16, 1),
        ("bytes", 8, 1),
        ("bytes", 4, 1),
        ("tiles", 4, 4),
    ),
    most_unrolled=4,
    reach=2047,
    forms=rvm_forms,
)
RV32_PACKED_FAMILY = MicrokernelFamily(
    "rvp",
    "rvp",
    shapes=(
        ("words", 4, 4),
        ("words", 4, 3),
        ("words", 8, 2),
        ("words", 16, 1),
        ("words", 8, 1),
        ("words", 4, 1),
    ),
    most_unrolled=4,
    reach=2047,
    forms=rvp_forms,
    layout="words",
)
XTENSA_FAMILY = MicrokernelFamily(
    "xtensa",
    "xtensa",
    shapes=(("unsigned", 4, 2), ("unsigned", 8, 1), ("unsigned", 4, 1)),
    most_unrolled=4,
    reach=255,
    forms=xtensa_forms,
    layout="unsigned",
    has_high_product=False,
)

FAMILIES = (MLA_FAMILY, RV32M_FAMILY, RV32_PACKED_FAMILY, XTENSA_FAMILY)

INTRINSICS = (
    instruction_intrinsic(thumb2.mla),
    instruction_intrinsic(xtensa.mul16s),
)
INTRINSIC_MAKERS = {
    name: maker
    for family in FAMILIES
    for name, maker in microkernel_makers(family).items()
}
