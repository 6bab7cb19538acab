"""Matrix products and n-dimensional convolutions on Helium: lanes along the result.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array, DType
from firmwright.base.rounding import divide_up
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
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.schedule_factories import helium_float_schedule

_C = read_sections(__file__)
_LANES, _BLOCK = 4, 16
_ROWS = 4
_TAPS_MAX = 7
"""The most taps along the last axis, each of which has a call of its own."""
_FLOAT_SUM = "ADD_PRODUCT_F32"
_FLOAT_SUM_MACRO = f"""\
#define {_FLOAT_SUM}(sum, lanes, factor) vaddq_f32(sum, vmulq_n_f32(lanes, factor))"""


@dataclass(frozen=True, slots=True)
class _Form:
    """The C of an element type: `add` adds a product to a vector of sums."""

    sum: str
    add: str
    instructions: int
    vector: str
    macros: tuple[str, ...] = (KEEP_STORES,)


_FORMS = {
    FLOAT32: _Form(
        "sum + p * q", _FLOAT_SUM, 2, "float32x4_t", (KEEP_STORES, _FLOAT_SUM_MACRO)
    ),
    INT32: _Form(
        "(int32_t)((uint32_t)sum + (uint32_t)p * (uint32_t)q)",
        "vmlaq_n_s32",
        1,
        "int32x4_t",
    ),
}

# ---- the micro-kernel ----------------------------------------------------------------


def products_name(dtype: DType) -> str:
    return f"mve_add_products_{dtype.name}"


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


def _executed(form: _Form, args: Sequence[int]) -> int:
    *_, rows, depth, count = args
    if rows > 1:
        step = 6 + _ROWS * form.instructions
        return 7 + divide_up(count, _LANES) * (26 + step * depth)
    blocks, rest = divmod(count, _BLOCK)
    instructions = 16 + blocks * (20 + (9 + 4 * form.instructions) * depth)
    if rest > _LANES:
        instructions += 26 + (7 + 3 * form.instructions) * depth
        rest -= 3 * _LANES
    if rest > 0:
        instructions += 14 + (5 + form.instructions) * depth
    return instructions


def _products(dtype: DType) -> Intrinsic:
    form = _FORMS[dtype]
    names = {
        "element": dtype.c_type,
        "short": dtype.short.replace("i", "s"),
        "lanes": form.vector,
        "sum": form.sum,
        "add": form.add,
    }
    return Intrinsic(
        products_name(dtype),
        (
            *pointers(dtype, "rw", y=1),
            *pointers(dtype, a=1, b=1),
            *immediates(*_NUMBERS, "count"),
        ),
        _added,
        fill_text(_C["portable"], **names),
        "Adds products of `depth` numbers and vectors to rows of `count` sums.",
        requires="mvefp",
        text={"gnu": fill_text(_C["gnu"], **names, **_blocks(names))},
        definitions=form.macros,
        count=partial(_executed, form),
    )


def _blocks(names: Mapping[str, str]) -> dict[str, str]:
    """Return the C of four vectors of a row, and of a vector of four rows."""
    short = names["short"]
    adjacent = f"vldrwq_{short}({{}})"
    gathered = f"vldrwq_gather_shifted_offset_{short}({{}}, {{}})"

    def block(step: str, form: str, *more: str) -> str:
        starts = ["q", *(f"q + {_LANES * n}{step}" for n in (1, 2, 3))]
        vectors = {
            f"vector{n}": form.format(start, *more) for n, start in enumerate(starts)
        }
        return indent(fill_text(_C["block"], **names, **vectors), "    ")

    def steps(vector: str) -> str:
        return indent(fill_text(_C["steps"], **names, vector=vector), "    ")

    whole, rest = adjacent.format("q"), gathered.format("q", "from0")
    rows = fill_text(_C["rows"], **names, whole=steps(whole), rest=steps(rest))
    return {
        "adjacent": block("", adjacent),
        "gathered": block(" * b_lane", gathered, "from"),
        "rows": indent(rows, "        "),
    }


def _takes_rows(rows: int, count: int) -> bool:
    """Return whether vectors of several rows take fewer instructions than of one."""
    return rows > 1 and count < _BLOCK and (rows >= _ROWS or count <= _LANES)


def in_row_blocks(
    b: Kernel, rows: int, count: int, emit: Callable[[ArithExpr | int, int], None]
) -> None:
    """Call `emit` for blocks of rows: with the first one, and how many they are."""
    size = _ROWS if _takes_rows(rows, count) else 1
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
    if kind.dtype not in _FORMS or len(reduced) != 1 or not kept:
        return None
    first, second = (_strides(op, index, len(kind.shape)) for index in (0, 1))
    lanes = kept[-1]
    still = [n for n, steps in enumerate((first, second)) if steps[lanes] == 0]
    if len(still) != 1:
        return None
    return MatrixProduct(kind.shape, (first, second), reduced[0], lanes, still[0])


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


def _build_product(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
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
    name = products_name(op.output.dtype)
    with b.loops("i", [product.shape[n] for n in outer]) as index:

        def emit(row: ArithExpr | int, rows: int) -> None:
            pointers = [x.pointer(b, index, row, rows) for x in (y, factors, vectors)]
            steps = [y.row_step, factors.row_step, a_step, step, lane]
            b.evaluate(name, [*pointers, *steps, 0, rows, depth, count])

        in_row_blocks(b, 1 if axis is None else product.shape[axis], count, emit)


def _place(index: Sequence[ArithExpr | int], steps: Sequence[int]) -> ArithExpr | int:
    place: ArithExpr | int = 0
    for i, step in zip(index, steps, strict=True):
        if step:
            place = i * step + place
    return place


# ---- convolutions --------------------------------------------------------------------


def _conv_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype in _FORMS and op.input(1).shape[-1] <= _TAPS_MAX
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


def _build_conv(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, w = op.input(0), op.input(1)
    window = _windows(op)
    *lines, width = window.outputs
    groups = op.attributes(ConvNdAttrs).groups
    filters, plane = w.shape[0] // groups, math.prod(window.outputs)
    with b.loops("n g", (x.shape[0], groups)) as (n, group):

        def emit(row: ArithExpr | int, rows: int) -> None:
            m = group * filters + row
            run = _ConvRun(b, window, w.shape[1], m, rows)
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

        in_row_blocks(b, filters, width, emit)


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
            b.evaluate(products_name(b.y.dtype), [y, factors, vectors, *numbers])

    def add_bias(self, place: ArithExpr | int) -> None:
        b, width = self.b, self.window.outputs[-1]
        plane = math.prod(self.window.outputs)
        with b.for_("row", self.rows) as row:
            y = b.view("run", b.y, place + row * plane, (width,), access="rw")
            bias = b.let("bias", b.load(b.input(2), [self.m + row]))
            with b.for_("i", width) as i:
                b.store(y, [i], b.load(y, [i]) + bias)


INTRINSICS = tuple(map(_products, _FORMS))
SCHEDULES = (
    helium_float_schedule(
        "helium.reduction.products",
        "reduction",
        configs=lambda op: () if find_product(op) is None else (NO_CONFIG,),
        build=_build_product,
    ),
    helium_float_schedule(
        "helium.conv_nd.rows", "conv_nd", configs=_conv_configs, build=_build_conv
    ),
)
