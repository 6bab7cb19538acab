"""Matrix products and n-dimensional convolutions in vectors: lanes along the result.

A micro-kernel adds products to runs of results. Each product is of a number, the same
for a whole run, and of a vector, the same for up to four runs:

    y[r, i] = sum of a[r, k * a_step] * b[k * b_step + i * b_lane], over k < depth

The runs of a matrix product are rows of the result. Those of a convolution, whose
images have their channels first, are the outputs in a row, of up to four filters, of
which a tap is inside the input, and k counts channels.

    input row            0 1 2 3 4        outputs of tap 0 of 3, padding 1: 1 to 4
    tap 0 of output 1    ^                outputs of tap 1:                 0 to 4

Sums are in the order of the default loops, and each product is rounded.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ConvNdAttrs
from firmwright.ir.graph.attributes.values import ReductionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.conv_pool_nd import WindowNd, window_of
from firmwright.ops.expression import input_permutations, unreduced_type
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.strided_copy import row_major_strides

_C = read_sections(__file__)
PRODUCT_ROWS = 4
"""The rows that a micro-kernel takes at once."""
_TAPS_MAX = 7
"""The most taps along the last axis, each of which has a call of its own."""
_SUMS = {
    FLOAT32: "sum + p * q",
    INT32: "(int32_t)((uint32_t)sum + (uint32_t)p * (uint32_t)q)",
}
"""The C of a sum plus a product, by the type of elements."""

# ---- the micro-kernels ---------------------------------------------------------------

_NUMBERS = ("y_row", "a_row", "a_step", "b_step", "b_lane", "adds", "rows", "depth")


def _added(y: Array, a: Array, b: Array, *numbers: int) -> Array:
    *given, count = numbers
    x = dict(zip(_NUMBERS, given, strict=True))
    result, b = np.array(y), np.asarray(b)
    lanes = np.arange(count) * x["b_lane"]
    for row in range(x["rows"]):
        run = slice(row * x["y_row"], row * x["y_row"] + count)
        sums = result[run] if x["adds"] else np.zeros_like(result[:count])
        with np.errstate(all="ignore"):
            for k in range(x["depth"]):
                factor = a[row * x["a_row"] + k * x["a_step"]]
                sums = sums + factor * b[k * x["b_step"] + lanes]
        result[run] = sums
    return result


@dataclass(frozen=True, slots=True)
class ProductRuns:
    """The micro-kernels of an instruction set, whose names begin with `family`.

    `takes_rows` returns whether vectors of several rows take fewer instructions than of
    one: of their number, and of the results of each.
    """

    family: str
    takes_rows: Callable[[int, int], bool]

    def name(self, dtype: DType) -> str:
        return f"{self.family}_add_products_{dtype.name}"

    def intrinsic(
        self,
        dtype: DType,
        requires: str,
        text: str,
        count: Callable[[Sequence[int]], int],
        macros: tuple[str, ...] = (),
    ) -> Intrinsic:
        names = {"element": dtype.c_type, "sum": _SUMS[dtype]}
        return Intrinsic(
            self.name(dtype),
            (
                *pointers(dtype, "rw", y=1),
                *pointers(dtype, a=1, b=1),
                *immediates(*_NUMBERS, "count"),
            ),
            _added,
            fill_text(_C["portable"], **names),
            "Adds products of `depth` numbers and vectors to rows of `count` sums.",
            requires=requires,
            text={"gnu": text},
            definitions=macros,
            count=count,
        )

    def in_row_blocks(
        self,
        b: Kernel,
        rows: int,
        count: int,
        emit: Callable[[ArithExpr | int, int], None],
    ) -> None:
        """Call `emit` for blocks of rows: with the first one, and how many they are."""
        size = PRODUCT_ROWS if self.takes_rows(rows, count) else 1
        whole, rest = divmod(rows, size)
        if whole:
            with b.for_("block", whole) as block:
                emit(block * size, size)
        if rest:
            emit(whole * size, rest)


# ---- matrix products -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """The axes of a product of two tensors, summed along the axis `depth`.

    `strides` are the steps of the elements of both operands along each axis. Along the
    axis `lanes` the operand `number` stays, and results are adjacent.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    depth: int
    lanes: int
    number: int

    @property
    def outer(self) -> list[int]:
        """The axes of the runs of results."""
        axes = range(len(self.shape))
        return [axis for axis in axes if axis not in (self.depth, self.lanes)]

    @property
    def rows(self) -> int | None:
        """The last axis along which runs share their vectors."""
        vectors = self.strides[1 - self.number]
        shared = [n for n in self.outer if vectors[n] == 0 and self.shape[n] > 1]
        return shared[-1] if shared else None


def find_product(op: OpCall) -> MatrixProduct | None:
    """Return the matrix product that a reduction is, if it is one."""
    attrs = op.attributes(ReductionAttrs)
    if (attrs.formula, attrs.step) != ("a * b", "add"):
        return None
    kind = unreduced_type(op)
    sized = [axis for axis, n in enumerate(kind.shape) if n > 1]
    reduced = [axis for axis in sized if axis in attrs.axes]
    kept = [axis for axis in sized if axis not in attrs.axes]
    if kind.dtype not in _SUMS or len(reduced) != 1 or not kept:
        return None
    first, second = (_strides(op, index, len(kind.shape)) for index in (0, 1))
    lanes = kept[-1]
    still = [n for n, steps in enumerate((first, second)) if steps[lanes] == 0]
    if len(still) != 1:
        return None
    return MatrixProduct(kind.shape, (first, second), reduced[0], lanes, still[0])


def product_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return () if find_product(op) is None else (NO_CONFIG,)


def _strides(op: OpCall, index: int, rank: int) -> tuple[int, ...]:
    """Return the steps of an operand along the axes of the unreduced result."""
    shape = op.input(index).shape
    steps = row_major_strides(shape)
    perm = input_permutations(op)[index]
    own = [steps[axis] if shape[axis] > 1 else 0 for axis in perm]
    return (*(0,) * (rank - len(perm)), *own)


@dataclass(frozen=True, slots=True)
class _RunOperand:
    """An operand of runs, `extent` elements for each; `steps` are those of axes."""

    buffer: tir.Buffer
    steps: Sequence[int]
    row_step: int
    extent: int
    access: tir.AccessMode = "r"

    def pointer(
        self, b: Kernel, index: Sequence[ArithExpr], row: ArithExpr | int, rows: int
    ) -> tir.AccessPtr:
        """Return the pointer of the runs from `row` on."""
        start = _place([*index, row], [*self.steps, self.row_step])
        reach = (rows - 1) * self.row_step + self.extent
        return b.pointer(self.buffer, start, reach, self.access)


def build_product(
    runs: ProductRuns, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    product = find_product(op)
    assert product is not None
    depth, count = product.shape[product.depth], product.shape[product.lanes]
    number, vector = product.number, 1 - product.number
    a_steps, b_steps = product.strides[number], product.strides[vector]
    a_step, step, lane = (
        a_steps[product.depth],
        b_steps[product.depth],
        b_steps[product.lanes],
    )
    kept = [1 if axis == product.depth else n for axis, n in enumerate(product.shape)]
    axis = product.rows
    outer = [each for each in product.outer if each != axis]

    def operand(
        buffer: tir.Buffer,
        steps: Sequence[int],
        extent: int,
        access: tir.AccessMode = "r",
    ) -> _RunOperand:
        row_step = 0 if axis is None else steps[axis]
        return _RunOperand(buffer, [steps[n] for n in outer], row_step, extent, access)

    y = operand(b.y, row_major_strides(kept), count, "rw")
    a_extent, b_extent = (depth - 1) * a_step, (depth - 1) * step + (count - 1) * lane
    factors = operand(b.input(number), a_steps, a_extent + 1)
    vectors = operand(b.input(vector), b_steps, b_extent + 1)
    name = runs.name(op.output.dtype)
    with b.loops("i", [product.shape[n] for n in outer]) as index:

        def emit(row: ArithExpr | int, rows: int) -> None:
            pointers = [x.pointer(b, index, row, rows) for x in (y, factors, vectors)]
            steps = [y.row_step, factors.row_step, a_step, step, lane]
            b.evaluate(name, [*pointers, *steps, 0, rows, depth, count])

        runs.in_row_blocks(b, 1 if axis is None else product.shape[axis], count, emit)


def _place(index: Sequence[ArithExpr | int], steps: Sequence[int]) -> ArithExpr | int:
    place: ArithExpr | int = 0
    for i, step in zip(index, steps, strict=True):
        if step:
            place = i * step + place
    return place


# ---- convolutions --------------------------------------------------------------------


def conv_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype in _SUMS and op.input(1).shape[-1] <= _TAPS_MAX
    return (NO_CONFIG,) if fits else ()


def _windows(op: OpCall) -> WindowNd:
    """Return the window, or that of one row if each pixel is made of one pixel."""
    size = op.input(1).shape[2:]
    window = window_of(op, size)
    pixels = math.prod(window.inputs)
    is_pointwise = window.outputs == window.inputs and set(size) == {1}
    if not is_pointwise or set(window.stride) != {1} or any(window.first):
        return window
    return WindowNd(
        size=(1,),
        stride=(1,),
        step=(1,),
        first=(0,),
        spread=(1,),
        inputs=(pixels,),
        outputs=(pixels,),
    )


def build_conv(
    runs: ProductRuns, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    x, w = op.input(0), op.input(1)
    window = _windows(op)
    *lines, width = window.outputs
    groups = op.attributes(ConvNdAttrs).groups
    filters, plane = w.shape[0] // groups, math.prod(window.outputs)
    with b.loops("n g", (x.shape[0], groups)) as (n, group):

        def emit(row: ArithExpr | int, rows: int) -> None:
            m = group * filters + row
            run = _ConvRun(runs, b, window, w.shape[1], m, rows)
            with b.loops("o", lines) as at:
                place = _flat(n * w.shape[0] + m, at, lines) * width
                with b.for_("row", rows) as i:
                    y = b.view("run", b.y, place + i * plane, (width,), access="w")
                    with b.for_("i", width) as column:
                        b.store(y, [column], 0)
                with window.without_last_axis.taps(b, at) as (taps, positions):
                    first = n * x.shape[1] + group * w.shape[1]
                    run.add(place, first, taps, positions)
                if op.has_input(2):
                    run.add_bias(place)

        runs.in_row_blocks(b, filters, width, emit)


def _flat(
    start: ArithExpr | int, index: Sequence[ArithExpr], sizes: Sequence[int]
) -> ArithExpr | int:
    """Return the row-major place of an index along axes after that of `start`."""
    for i, size in zip(index, sizes, strict=True):
        start = start * size + i
    return start


@dataclass(frozen=True, slots=True)
class _ConvRun:
    """The products of a row of outputs of each of `rows` filters, from `m` on."""

    runs: ProductRuns
    b: Kernel
    window: WindowNd
    channels: int
    m: ArithExpr
    rows: int

    def add(
        self,
        place: ArithExpr | int,
        first: ArithExpr,
        taps: Sequence[ArithExpr],
        positions: Sequence[ArithExpr],
    ) -> None:
        """Add the products of all taps along the last axis.

        `first` is the first channel of the image, `taps` and `positions` are those
        along the other axes.
        """
        window, b = self.window, self.b
        *above, columns = window.inputs
        tap, row = _flat(0, taps, window.size[:-1]), _flat(first, positions, above)
        size, plane = math.prod(window.size), math.prod(window.inputs)
        y_row, a_row = math.prod(window.outputs), self.channels * size
        stride, more = window.stride[-1], self.rows - 1
        a_extent = more * a_row + (self.channels - 1) * size + 1
        for column in range(window.size[-1]):
            at = window.positions(-1, column)
            (inside,) = np.nonzero((at >= 0) & (at < columns))
            if not inside.size:
                continue
            count, output = int(inside.size), int(inside[0])
            reach = (self.channels - 1) * plane + (count - 1) * stride + 1
            weight = self.m * a_row + tap * window.size[-1] + column
            factors = b.pointer(b.input(1), weight, a_extent)
            vectors = b.pointer(b.input(0), row * columns + int(at[output]), reach)
            y = b.pointer(b.y, place + output, more * y_row + count, "rw")
            steps = [y_row, a_row, size, plane, stride]
            numbers = [*steps, 1, self.rows, self.channels, count]
            name = self.runs.name(b.y.dtype)
            b.evaluate(name, [y, factors, vectors, *numbers])

    def add_bias(self, place: ArithExpr | int) -> None:
        b, width = self.b, self.window.outputs[-1]
        plane = math.prod(self.window.outputs)
        with b.for_("row", self.rows) as row:
            y = b.view("run", b.y, place + row * plane, (width,), access="rw")
            bias = b.let("bias", b.load(b.input(2), [self.m + row]))
            with b.for_("i", width) as i:
                b.store(y, [i], b.load(y, [i]) + bias)
