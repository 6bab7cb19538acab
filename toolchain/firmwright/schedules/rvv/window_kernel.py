"""The common form of the RVV micro-kernels: windows of pixels times packed weights.

Also the copies and fills of runs that they need.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.row_band import RowMoves, pixel_blocks, window_rows
from firmwright.schedules.rvv.endings import Ending
from firmwright.schedules.rvv.layer_endings import LayerEnding

_C = read_sections(__file__)

# A micro-kernel computes all channels of some pixels. Windows are read in place, or
# from a padded copy of the rows of one output row; the last block of pixels overlaps
# its predecessor. Weights are [tap, channel], so that nothing depends on the length of
# a vector. The taps of a window row are adjacent; dilated ones are rows of one tap.

_BITS = 1024
"""Eight registers of 128 bits."""
STEPS = ("pixel_step", "rows", "columns", "row_step", "column_step", "channels")
WEIGHT_POINT = "weight_point"
"""The zero point of the weights, the last setting of the micro-kernels that take it."""


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


def adjacent_taps(window: ConvWindow, channels: int) -> tuple[int, int] | None:
    """Return the rows of a window, and how many elements of each are adjacent.

    None if the window has several rows of several dilated taps.
    """
    rows, columns = window.size
    if columns == 1 or window.dilation[1] == 1:
        return rows, columns * channels
    return (columns, channels) if rows == 1 else None


@dataclass(frozen=True, slots=True)
class WindowExtents:
    """The rows of a window, of `run` adjacent elements, and pixels at equal distances.

    The pixels are all of the output if each is made of one, or else those of a row.
    """

    rows: int
    run: int
    pixels: int


def window_extents(op: OpCall, window: ConvWindow) -> WindowExtents:
    """Return the extents of a window that has `adjacent_taps`."""
    is_flat = len(op.input(1).shape) == 2  # a fully connected layer
    depth = op.input(1 if is_flat else 0).shape[-1]
    taps = adjacent_taps(window, depth)
    assert taps is not None
    *others, channels = op.output.shape
    whole = op.output.elements // channels
    return WindowExtents(*taps, whole if window.pointwise else others[-1])


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
    offsets: Array | None = None,
) -> None:
    """Compute a layer with weights `flat` [channel, tap], `pixels` at a time.

    The weights are less their zero point. `columns` and `repeats` are those of
    `emit_windows`, and `offsets` those of a micro-kernel that gathers its inputs.
    """
    zero_point = per_tensor_quant(op.input(0)).zero_point
    point = weight_zero_point(op)
    weights = b.constant("weights", np.tile(flat.T + point, repeats), INT8)
    tables: tuple[tir.Buffer, ...] = layer.tables(
        b, fold_zero_point_into_bias(op, flat), repeats
    )
    settings = layer.settings
    if point:
        settings = (*settings, point)
    if offsets is not None:
        tables = (*tables, b.constant("offsets", offsets, UINT16))
    call = WindowCall(name, pixels, weights, tables, settings, zero_point)
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
        if window.pointwise and call.source is None:
            # A fully connected layer may flatten several axes of a sample.
            pitch = x.elements // width
        if not window.pointwise:
            band = window_rows(b, window, call.padding, ROW_MOVES, call.source)
            source, start, row_step, row = enter(band)
            width = b.y.shape[2]
            first = row * width
        if rows > window.size[0]:
            row_step = window.dilation[1] * x.shape[-1]
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


@dataclass(frozen=True, slots=True)
class WindowForm:
    """The operands and the results of a micro-kernel of `pixels` pixels.

    All channels read the same inputs, or with `by_channel` their own, or with `gathers`
    those at the offsets in bytes of the table `o`.
    """

    ending: Ending
    pixels: int
    by_channel: bool
    has_weight_point: bool = False
    gathers: bool = False

    @property
    def tables(self) -> tuple[Operand, ...]:
        shifts = pointers(UINT16, s=1) if self.ending.element else ()
        return (*shifts, *(pointers(UINT16, o=1) if self.gathers else ()))

    def meaning(self, w: Array, x: Array, q: Array, *others: Array) -> Array:
        """Return the outputs [pixel * channel, ...]."""
        ending, count = self.ending, len(self.tables)
        s = others[0] if ending.element else np.zeros(0, np.uint16)
        rest: Sequence[Array] = others[count + 1 :]
        pixel_step, rows, columns, row_step, column_step, channels = map(int, rest[:6])
        lanes = channels if self.by_channel else 1
        p, i, j, c = np.ogrid[: self.pixels, :rows, :columns, :lanes]
        if self.gathers:
            offsets = np.asarray(others[count - 1])[:channels]
            c = offsets.reshape(channels, -1)[:, 0] // ending.input.size_bytes
        at = p * pixel_step + i * row_step + j * column_step + c
        values = np.asarray(x, np.int64)[at.reshape(self.pixels, rows * columns, -1)]
        weights = np.asarray(w, np.int64).reshape(-1, channels)
        if self.has_weight_point:
            *rest, point = rest
            weights = weights - int(point)
        taps = "pkc...,kc->pc..." if self.by_channel else "pkz...,kc->pc..."
        sums = np.einsum(taps, values, weights)
        by_lane = (channels, *[1] * (sums.ndim - 2))
        bias, *factors = np.reshape(q, (-1, *by_lane)).astype(np.int32)
        right = np.reshape(s, (-1, *by_lane[1:])).astype(np.int32)
        result = ending.results(sums + bias, factors, right, rest[6:])
        return np.reshape(result, (-1, *sums.shape[2:]))

    def portable(self) -> str:
        channel, size = " + c" if self.by_channel else "", self.ending.input.size_bytes
        if self.gathers:
            channel = f" + o[c] / {size}" if size > 1 else " + o[c]"
        weight = "w[(i * columns + j) * channels + c]"
        return fill_text(
            _C["portable"],
            pixels=self.pixels,
            c=channel,
            w=f"({weight} - weight_point)" if self.has_weight_point else weight,
            result=self.ending.portable(),
        )

    def intrinsic(
        self, name: str, text: str, count: Callable[[int, int, int], int]
    ) -> Intrinsic:
        """Return the micro-kernel; `count` takes rows, columns and channels."""
        ending, tables = self.ending, self.tables
        settings = (*ending.settings, *[WEIGHT_POINT] * self.has_weight_point)
        first = 4 + len(tables)  # the operand `pixel_step`
        return Intrinsic(
            name,
            operands=(
                *pointers(INT8, w=1),
                *pointers(ending.input, x=1),
                *pointers(INT32, q=1 + len(ending.factors)),
                *tables,
                *pointers(ending.output, "w", y=self.pixels),
                *immediates(*STEPS, *settings),
            ),
            meaning=self.meaning,
            portable=self.portable(),
            doc="Products of windows and the weights of all channels, requantized.",
            requires=ending.requires,
            text={"gnu": text},
            calls=(ending.element.name,) if ending.element else (),
            count=lambda args: count(*(args[first + n] for n in (1, 2, 5))),
        )


def extended(
    k: VectorBuilder, lanes: int, name: str, byte: VirtualRegister, has_point: bool
) -> VirtualRegister:
    """Return a variable of bytes as halves, less the zero point of weights if any."""
    row = partial(riscv_row, lanes, INT16)
    if has_point:
        return k.named(name, row("vwsub_vx"), byte, k.number(WEIGHT_POINT))
    return k.named(name, row("vsext_vf2"), byte)


def ending_text(ending: Ending, sums: Sequence[tuple[str, str]], lmul: int) -> str:
    """Return C that stores the outputs of a block of channels."""
    return indent(ending.text(sums, lmul, "at"), "    ")
