"""float32 GEMM micro-kernels as intrinsics: kernels/vfp/gemm.py, or without an FPU."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
    read_intrinsics,
)
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa.vfp import vmla_f32
from firmwright.kernels.portable import portable_text
from firmwright.kernels.program import Program
from firmwright.kernels.register_files import vfp_file
from firmwright.kernels.statement import statement_text
from firmwright.kernels.vfp.gemm import (
    STEPS_PER_ITERATION,
    FpuTile,
    MultiplyAdd,
    RowShape,
    copy_words,
    fpu_gemm,
)
from firmwright.ops.requantize import apply_activation

_C = read_sections(__file__)

# `None` as a style needs no FPU: an integer loop rounds as the compiler's float
# routines do, but keeps the sum unpacked between the steps. It begins with 0 and
# computes one channel of one column.

MultiplyAddStyle = MultiplyAdd | None
FPU_STYLES: Mapping[MultiplyAdd, frozenset[str]] = {
    MultiplyAdd.SEPARATE: frozenset({"fpu"}),
    MultiplyAdd.CHAINED: frozenset({"fpu", "vmla"}),
}
"""Features that micro-kernels of each style require."""
ALL_STYLES: Sequence[tuple[MultiplyAddStyle, frozenset[str]]] = (
    *FPU_STYLES.items(),
    *((None, frozenset({feature})) for feature in ("mla", "softfloat", "thumb1")),
)
"""The styles with the features of their cores; `None` has several kinds of these."""
SOFT_TILE = FpuTile(1, 1)
_SOFT_DOT = "soft_dot_f32"
_SOFT_STEP = 44
"""Instructions of an element, with its share of a call; 13 of a zero."""
FPU_TILES = tuple(FpuTile(*item) for item in ((4, 4), (4, 3), (4, 2), (8, 1), (4, 1)))
_REST_TILES = tuple(FpuTile(*item) for item in product((1, 2, 3), (1, 2, 3, 4)))


def microkernel_name(
    style: MultiplyAddStyle, tile: FpuTile, steps: int, *, tall: bool = False
) -> str:
    if style is None:
        return _SOFT_DOT
    rounds, rest = divmod(steps - 1, STEPS_PER_ITERATION)
    shape = "tall_" if tall else "deep_" if rounds else ""
    return f"{style.value}_f32_{tile.lanes}x{tile.pixels}_{shape}{rest}"


def schedule_name(style: MultiplyAddStyle, op: str) -> str:
    return f"fpu.{op}.{style.value}" if style else f"soft_float.{op}"


def sums_of_products(
    tile: FpuTile,
    w: Array,
    x: Array,
    steps: Array | int,
    pitch: Array | int,
    rows: Array | int = 1,
    jump: Array | int = 0,
) -> tuple[Array, ...]:
    """Return one sum per register.

    Weights w are [rows * steps * lanes, ...], and x is [elements, ...].
    """
    weights = np.asarray(w, np.float32)
    columns = np.asarray(x, np.float32)
    run, distance, count, gap = (int(np.max(n)) for n in (steps, pitch, rows, jump))
    starts = np.arange(count) * (run + gap)
    elements = np.add.outer(starts, np.arange(run)).ravel()
    a = weights.reshape(-1, 1, tile.lanes, *weights.shape[1:])
    places = np.add.outer(elements, np.arange(tile.pixels) * distance)
    b = columns[places][:, :, None]  # a, b: [element, pixel, lane, ...]
    with np.errstate(all="ignore"):
        sums = a[0] * b[0]
        for k in range(1, len(b)):
            sums = sums + a[k] * b[k]
    return tuple(sums[i // tile.lanes, i % tile.lanes] for i in range(tile.sums))


def _program(style: MultiplyAdd, tile: FpuTile, steps: int, *, tall: bool) -> Program:
    name = microkernel_name(style, tile, steps, tall=tall)
    rounds, rest = divmod(steps - 1, STEPS_PER_ITERATION)
    count = f"(steps - 1) / {STEPS_PER_ITERATION}" if rounds else ""
    row = RowShape(rest, STEPS_PER_ITERATION, count, tall)
    return fpu_gemm(name, style, tile, row)


def _portable(tile: FpuTile, *, tall: bool) -> str:
    """Return the C of a micro-kernel that reads one element after the other."""
    row = RowShape(0, 1, "steps - 1", tall)
    program = fpu_gemm("portable", MultiplyAdd.CHAINED, tile, row, group=1)
    return portable_text(program)


def _with_unused(names: Sequence[str], text: str) -> str:
    """Return C statements that also mention those of `names` that are not used."""
    used = set(re.findall(r"\w+", text))
    lines = [f"(void){name};" for name in names if name not in used]
    return "\n".join([*lines, text])


def _instructions(program: Program, args: Sequence[int]) -> int:
    rounds = (args[2] - 1) // STEPS_PER_ITERATION
    return count_executed(program, {"rounds": rounds, "rows": (*args, 1)[4]})


def _block(style: MultiplyAdd, tile: FpuTile, steps: int, *, tall: bool) -> Intrinsic:
    program = _program(style, tile, steps, tall=tall)
    numbers = ["steps", "pitch"]
    if tall:
        numbers += ["rows", "jump"]
    sums = [value.name for value in program.registers]
    count = partial(_instructions, program)
    text = statement_text(program, tile.file)
    return Intrinsic(
        name=program.name,
        operands=(
            *pointers(FLOAT32, w=0, x=0),
            *inputs(INT32, *numbers),
            *(Operand(name, "out", FLOAT32) for name in sums),
        ),
        meaning=partial(sums_of_products, tile),
        portable=_with_unused(numbers, _portable(tile, tall=tall)),
        doc=f"Sums of products of {tile.lanes} channels times {tile.pixels} pixels.",
        requires="fpu",
        text={"gnu": _with_unused(numbers, text)},
        instructions=count((0, 0, steps, 0, 1, 0)),
        count=count,
    )


_COPIED = (16, 8, 4, 2)
"""Words that are copied at once; all other counts are a sum of these, and of one."""


def _copy_text() -> str:
    lines = []
    for count in _COPIED:
        statement = statement_text(copy_words(count), vfp_file(16, count))
        condition = f"if (count & {count})"
        if count == _COPIED[0]:
            condition = f"for (int32_t left = count; left >= {count}; left -= {count})"
        lines += [f"{condition} {{", indent(statement, "    "), "}"]
    return "\n".join([*lines, "if (count & 1) {", "    *y = *x;", "}"])


COPY_F32 = Intrinsic(
    name="copy_f32",
    operands=(
        *pointers(FLOAT32, "w", y=1),
        *pointers(FLOAT32, x=1),
        *immediates("count"),
    ),
    meaning=lambda y, x, count: np.asarray(x)[: int(count)],
    portable="for (int32_t i = 0; i < count; ++i) {\n    y[i] = x[i];\n}",
    doc="Copies `count` words that do not overlap.",
    requires="fpu",
    text={"gnu": _copy_text()},
    count=lambda args: args[2] // 8 + 2,
)

_SOFT = Intrinsic(
    name=_SOFT_DOT,
    operands=(
        *pointers(FLOAT32, w=0, x=0),
        *inputs(INT32, "steps"),
        Operand("c0", "out", FLOAT32),
    ),
    meaning=lambda w, x, steps, *_: (
        sums_of_products(SOFT_TILE, w, x, steps, 0)[0] + np.float32(0)
    ),
    portable=_C["soft_dot"],
    doc="The sum of products of one channel and one column.",
    requires="mla",
    text={"gnu": _C["soft_dot_mla"]},
    count=lambda args: _SOFT_STEP * args[2],
)

_RELU, _RELU_OF_NUMBER = "fpu_relu_f32", "fpu_relu_of_number_f32"
"""A relu in a core register, where negative numbers are the least, then NaN.

The sign of a number is a mask.
"""


def activated(op: OpCall, value: ArithExpr) -> ArithExpr:
    """Return the result of the activation of `op` for a sum."""
    activation = op.attributes(ActivationAttrs).activation
    if activation == "relu":
        name = _RELU_OF_NUMBER if op.no_nan else _RELU
        return call_intrinsic(name, [value], FLOAT32)
    return apply_activation(value, activation)


def _relu(x: Array) -> Array:
    return np.where(x <= 0, np.float32(0), x)


INTRINSICS = (
    COPY_F32,
    _SOFT,
    instruction_intrinsic(vmla_f32, "fpu"),
    *read_intrinsics(__file__, dict.fromkeys((_RELU, _RELU_OF_NUMBER), _relu)).values(),
)


def _makers() -> Iterator[tuple[str, Callable[[], Intrinsic]]]:
    steps_of_kinds = range(1, 2 * STEPS_PER_ITERATION + 1)
    for style, tile, steps in product(
        MultiplyAdd, FPU_TILES + _REST_TILES, steps_of_kinds
    ):
        is_looped = tile.pixels > 1 and steps > STEPS_PER_ITERATION
        kinds = (False, True) if is_looped else (False,)
        for tall in kinds:
            name = microkernel_name(style, tile, steps, tall=tall)
            yield name, partial(_block, style, tile, steps, tall=tall)


INTRINSIC_MAKERS = dict(_makers())
