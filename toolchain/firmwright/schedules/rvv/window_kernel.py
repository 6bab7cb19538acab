"""The common form of the RVV micro-kernels: windows of pixels times packed weights.

Also the copies and fills of runs that they need.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT16,
    Array,
    DType,
)
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.elementwise import (
    Element,
    ElementLoop,
    element_intrinsics,
    riscv_text,
)
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.row_band import RowMoves, pixel_blocks, window_rows
from firmwright.schedules.rvv.endings import Ending, LayerEnding

_C = read_sections(__file__)

# A micro-kernel computes all channels of some pixels. Windows are read in place, or
# from a padded copy of the rows of one output row; the last block of pixels overlaps
# its predecessor. Weights are [tap, channel], so that nothing depends on the length of
# a vector.

_BITS = 1024
"""Eight registers of 128 bits."""
STEPS = ("pixel_step", "rows", "columns", "row_step", "column_step", "channels")


def _copy(
    b: Kernel,
    target: tir.Buffer,
    at: ArithExpr | int,
    source: tir.Buffer,
    start: ArithExpr,
    count: int,
) -> None:
    y = b.pointer(target, at, count, "w")
    x = b.pointer(source, start, count)
    b.evaluate(f"rvv_copy_{source.dtype.name}", [y, x, count])


def _fill(
    b: Kernel,
    target: tir.Buffer,
    at: ArithExpr | int,
    value: ArithExpr | int,
    count: int,
) -> None:
    y = b.pointer(target, at, count, "w")
    if isinstance(value, int) and target.dtype.is_float:
        value = ArithExpr(immediate(float(value), target.dtype))
    b.evaluate(f"rvv_fill_{target.dtype.name}", [y, value, count])


ROW_MOVES = RowMoves(_copy, _fill)


def _move(
    name: str,
    dtype: DType,
    source: Sequence[Operand],
    element: Element,
    text: str,
) -> Iterator[Intrinsic]:
    yield from element_intrinsics(
        f"rvv_{name}_{dtype.name}",
        (*pointers(dtype, "w", y=1), *source, *immediates("count")),
        element,
        f"{name.capitalize()} of `count` elements.",
        "rvvf" if dtype.is_float else "rvv",
        text,
        lambda args: 4 + 6 * divide_up(args[2] * dtype.bits, _BITS),
    )


def _copy_text(dtype: DType) -> str:
    x, y = PointerOperand("x", dtype), PointerOperand("y", dtype, "w")
    loop = ElementLoop((x,), y, dtype, lambda k, lanes: lanes[0])
    return riscv_text(loop, _BITS // dtype.bits)


def _fill_text(dtype: DType) -> str:
    """Return a loop that stores a vector which is there before."""
    lanes = _BITS // dtype.bits
    row = riscv_row(lanes, dtype, "vfmv_v_f" if dtype.is_float else "vmv_v_x")
    before = VectorBuilder("fill", f"__riscv_vsetvlmax_e{dtype.bits}m8()")
    number = before.number("value", FLOAT32 if dtype.is_float else INT32)
    filled = before.named("filled", row, number)
    y = PointerOperand("y", dtype, "w")
    loop = ElementLoop((), y, dtype, lambda k, lanes: replace(filled, is_local=False))
    return f"{vector_text(before.build_vectors())}\n{riscv_text(loop, lanes)}"


def _moves(dtype: DType) -> Iterator[Intrinsic]:
    x = pointers(dtype, x=1)
    value = inputs(dtype if dtype.is_float else INT32, "value")
    yield from _move("copy", dtype, x, lambda x: x, _copy_text(dtype))
    yield from _move(
        "fill", dtype, value, lambda value: value.cast(dtype), _fill_text(dtype)
    )


INTRINSICS = (*_moves(INT8), *_moves(INT16), *_moves(FLOAT32))


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A micro-kernel of `pixels` pixels, and its operands that are the same everywhere.

    `padding` is the value outside the input, which is `source` or the first input. With
    `sums`, the results of each call are there, and `finish` emits the outputs from the
    pixel that it is given.
    """

    name: str
    pixels: int
    weights: tir.Buffer
    tables: tuple[tir.Buffer, ...]
    settings: tuple[int, ...] = ()
    padding: ArithExpr | int = 0
    source: tir.Buffer | None = None
    sums: tir.Buffer | None = None
    finish: Callable[[ArithExpr], None] | None = None


def emit_window_kernel(
    b: Kernel,
    op: OpCall,
    window: ConvWindow,
    name: str,
    layer: LayerEnding,
    flat: Array,
    pixels: int,
    columns: tuple[int, int, int],
    repeats: int = 1,
) -> None:
    """Compute a layer with weights `flat` [channel, tap], `pixels` at a time.

    `columns` and `repeats` are those of `emit_windows`.
    """
    zero_point = per_tensor_quant(op.input(0)).zero_point
    element = INT16 if flat.dtype == INT16.np else INT8
    weights = b.constant("weights", np.tile(flat.T, repeats), element)
    tables = layer.tables(b, fold_zero_point_into_bias(op, flat), repeats)
    call = WindowCall(name, pixels, weights, tables, layer.settings, zero_point)
    emit_windows(b, window, call, len(flat), columns, repeats)


def emit_windows(
    b: Kernel,
    window: ConvWindow,
    call: WindowCall,
    outputs: int,
    columns: tuple[int, int, int],
    repeats: int = 1,
) -> None:
    """Compute a layer of `outputs` channels.

    `columns` are the taps of a window row, their distance, and the values read at each.
    With `repeats`, as many adjacent pixels are one.
    """
    taps, distance, values = columns
    channels = outputs * repeats
    rows = call.weights.elements // (channels * taps)
    x = call.source or b.input(0)
    pitch = window.stride[1] * x.shape[-1]
    with Nest() as enter:
        source = x
        row_step = 0
        zero = ArithExpr(immediate(0, INDEX))
        start = zero
        first = zero
        width = b.y.elements // outputs
        if call.source is not None:
            width = width // b.y.shape[0]
        if not window.pointwise:
            band = window_rows(b, window, call.padding, ROW_MOVES, call.source)
            source, start, row_step, row = enter(band)
            width = b.y.shape[2]
            first = row * width
        at = enter(pixel_blocks(b, width, call.pixels * repeats))
        span = pitch * repeats
        last = (call.pixels - 1) * span + (rows - 1) * row_step + (taps - 1) * distance
        reach = last + values
        size = call.pixels * channels
        y = b.pointer(b.y, (at + first) * outputs, size, "w")
        if call.sums is not None:
            y = b.pointer(call.sums, 0, size, "w")
        b.evaluate(
            call.name,
            [
                b.pointer(call.weights, 0, call.weights.elements),
                b.pointer(source, at * pitch + start, reach),
                *(b.pointer(table, 0, table.elements) for table in call.tables),
                y,
                *(span, rows, taps, row_step, distance, channels),
                *call.settings,
            ],
        )
        if call.finish is not None:
            call.finish(at + first)


def make_intrinsic(
    name: str,
    ending: Ending,
    pixels: int,
    text: str,
    count: Callable[[int, int, int], int],
    *,
    by_channel: bool,
    weight: DType = INT8,
) -> Intrinsic:
    """Return the micro-kernel of `pixels` pixels.

    All channels read the same inputs, or with `by_channel` their own. `count` takes
    rows, columns and channels.
    """

    def meaning(w: Array, x: Array, q: Array, *others: Array) -> Array:
        s = others[0] if ending.element else np.zeros(0, np.uint16)
        rest = others[2:] if ending.element else others[1:]
        pixel_step, rows, columns, row_step, column_step, channels = map(int, rest[:6])
        p, i, j, c = np.ogrid[:pixels, :rows, :columns, : channels if by_channel else 1]
        at = p * pixel_step + i * row_step + j * column_step + c
        values = np.asarray(x, np.int64)[at.reshape(pixels, rows * columns, -1)]
        weights = np.asarray(w, np.int64).reshape(-1, channels)
        taps = "pkc...,kc->pc..." if by_channel else "pkz...,kc->pc..."
        sums = np.einsum(taps, values, weights)
        by_lane = (channels, *[1] * (sums.ndim - 2))
        bias, *factors = np.reshape(q, (-1, *by_lane)).astype(np.int32)
        right = np.reshape(s, (-1, *by_lane[1:])).astype(np.int32)
        result = ending.results(sums + bias, factors, right, rest[6:])
        return np.reshape(result, (-1, *sums.shape[2:]))

    first = 5 if ending.element else 4  # the operand `pixel_step`
    return Intrinsic(
        name,
        operands=(
            *pointers(weight, w=1),
            *pointers(ending.input, x=1),
            *pointers(INT32, q=1 + len(ending.factors)),
            *(pointers(UINT16, s=1) if ending.element else ()),
            *pointers(ending.output, "w", y=pixels),
            *immediates(*STEPS, *ending.settings),
        ),
        meaning=meaning,
        portable=fill_text(
            _C["portable"],
            pixels=pixels,
            c=" + c" if by_channel else "",
            result=ending.portable,
        ),
        doc="Products of windows and the weights of all channels, requantized.",
        requires="rvv",
        text={"gnu": text},
        calls=(ending.element.name,) if ending.element else (),
        count=lambda args: count(*(args[first + n] for n in (1, 2, 5))),
    )


def ending_text(ending: Ending, sums: Sequence[tuple[str, str]], lmul: int) -> str:
    """Return C that stores the outputs of a block of channels."""
    return indent(ending.text(sums, lmul, "at"), "    ")
