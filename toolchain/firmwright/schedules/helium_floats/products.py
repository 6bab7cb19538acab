"""Matrix products and n-dimensional convolutions on Helium: lanes along the result.

A micro-kernel adds products to a run of results. Each product is of a number, the same
for the whole run, and of a vector:

    y[i] = sum of a[k * a_step] * b[k * b_step + i * b_lane], over k < depth

A matrix product has one call for each row of the result. A convolution, whose images
have their channels first, has one for each filter, output row and tap: the run are the
outputs of which the tap is inside the input, and k counts channels.

    input row            0 1 2 3 4        outputs of tap 0 of 3, padding 1: 1 to 4
    tap 0 of output 1    ^                outputs of tap 1:                 0 to 4

Sums are in the order of the default loops, and each product is rounded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
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
_TAPS_MAX = 7
"""The most taps along the last axis, each of which has a call of its own."""
_SUMS = {
    FLOAT32: "sum + p * q",
    INT32: "(int32_t)((uint32_t)sum + (uint32_t)p * (uint32_t)q)",
}

# ---- the micro-kernel ----------------------------------------------------------------


def _name(dtype: DType) -> str:
    return f"mve_add_products_{dtype.name}"


def _added(
    y: Array,
    a: Array,
    b: Array,
    a_step: int,
    b_step: int,
    b_lane: int,
    adds: int,
    depth: int,
    count: int,
) -> Array:
    lanes = np.arange(count) * b_lane
    sums = np.array(y[:count]) if adds else np.zeros_like(y[:count])
    with np.errstate(all="ignore"):
        for k in range(depth):
            sums = sums + a[k * a_step] * np.asarray(b)[k * b_step + lanes]
    return sums


def _executed(args: Sequence[int]) -> int:
    depth, count = args[7:]
    blocks = count // _BLOCK
    rest = divide_up(count - blocks * _BLOCK, _LANES)
    return 14 + blocks * (20 + 17 * depth) + rest * (14 + 9 * depth)


def _products(dtype: DType) -> Intrinsic:
    names = {
        "element": dtype.c_type,
        "short": dtype.short.replace("i", "s"),
        "lanes": "float32x4_t" if dtype == FLOAT32 else "int32x4_t",
        "sum": _SUMS[dtype],
    }
    return Intrinsic(
        _name(dtype),
        (
            *pointers(dtype, "rw", y=1),
            *pointers(dtype, a=1, b=1),
            *immediates("a_step", "b_step", "b_lane", "adds", "depth", "count"),
        ),
        _added,
        fill_text(_C["portable"], **names),
        "Adds products of `depth` numbers and vectors to `count` sums.",
        requires="mvefp",
        text={"gnu": fill_text(_C["gnu"], **names, **_blocks(names))},
        definitions=(KEEP_STORES,),
        count=_executed,
    )


def _blocks(names: Mapping[str, str]) -> dict[str, str]:
    """Return the C of four adjacent vectors, and of four that are gathered."""
    short, blocks = names["short"], dict[str, str]()
    forms = {
        "adjacent": f"vldrwq_{short}(q + {{first}})",
        "gathered": f"vldrwq_gather_shifted_offset_{short}"
        "(q + {first} * b_lane, from)",
    }
    for kind, form in forms.items():
        vectors = {
            f"vector{n}": form.format(first=_LANES * n) for n in range(_BLOCK // _LANES)
        }
        blocks[kind] = indent(fill_text(_C["block"], **names, **vectors), "    ")
    return blocks


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


def _strides(op: OpCall, index: int, rank: int) -> tuple[int, ...]:
    """Return the steps of an operand along the axes of the unreduced result."""
    shape = op.input(index).shape
    steps = row_major_strides(shape)
    perm = input_permutations(op)[index]
    own = [steps[axis] if shape[axis] > 1 else 0 for axis in perm]
    return (*(0,) * (rank - len(perm)), *own)


def _build_product(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    product = find_product(op)
    assert product is not None
    depth, count = product.shape[product.depth], product.shape[product.lanes]
    number, vector = product.number, 1 - product.number
    a_steps, b_steps = product.strides[number], product.strides[vector]
    step, lane = b_steps[product.depth], b_steps[product.lanes]
    a_extent = (depth - 1) * a_steps[product.depth] + 1
    b_extent = (depth - 1) * step + (count - 1) * lane + 1
    outer = [product.shape[axis] for axis in product.outer]
    places = row_major_strides((*outer, count))[:-1]
    own = [a_steps[axis] for axis in product.outer]
    others = [b_steps[axis] for axis in product.outer]
    with b.loops("i", outer) as index:
        y = b.pointer(b.y, _place(index, places), count, "rw")
        factors = b.pointer(b.input(number), _place(index, own), a_extent)
        vectors = b.pointer(b.input(vector), _place(index, others), b_extent)
        numbers = [a_steps[product.depth], step, lane, 0, depth, count]
        b.evaluate(_name(op.output.dtype), [y, factors, vectors, *numbers])


def _place(index: Sequence[ArithExpr], steps: Sequence[int]) -> ArithExpr | int:
    place: ArithExpr | int = 0
    for i, step in zip(index, steps, strict=True):
        if step:
            place = i * step + place
    return place


# ---- convolutions --------------------------------------------------------------------


def _conv_configs(op: OpCall) -> Sequence[ScheduleConfig]:
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


def _build_conv(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, w = op.input(0), op.input(1)
    window = _windows(op)
    *rows, width = window.outputs
    groups = op.attributes(ConvNdAttrs).groups
    filters = w.shape[0] // groups
    run = _ConvRun(b, window, w.shape[1])
    with b.loops("n m", (x.shape[0], w.shape[0])) as (n, m), b.loops("o", rows) as at:
        line = n * w.shape[0] + m
        for i, extent in zip(at, rows, strict=True):
            line = line * extent + i
        place = line * width
        y = b.view("run", b.y, place, (width,), access="rw")
        with b.for_("i", width) as i:
            b.store(y, [i], 0)
        with window.without_last_axis.taps(b, at) as (taps, positions):
            first = n * x.shape[1] + (m / filters * w.shape[1] if groups > 1 else 0)
            run.add(place, m, first, taps, positions)
        if op.has_input(2):
            bias = b.let("bias", b.load(b.input(2), [m]))
            with b.for_("i", width) as i:
                b.store(y, [i], b.load(y, [i]) + bias)


@dataclass(frozen=True, slots=True)
class _ConvRun:
    """The products of a row of outputs, of `channels` input channels."""

    b: Kernel
    window: WindowNd
    channels: int

    def add(
        self,
        place: ArithExpr,
        m: ArithExpr,
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
        tap: ArithExpr | int = 0
        row: ArithExpr | int = first
        for k, size in zip(taps, window.size[:-1], strict=True):
            tap = tap * size + k
        for i, extent in zip(positions, above, strict=True):
            row = row * extent + i
        size, plane = math.prod(window.size), math.prod(window.inputs)
        stride = window.stride[-1]
        for column in range(window.size[-1]):
            at = window.positions(-1, column)
            (inside,) = np.nonzero((at >= 0) & (at < columns))
            if not inside.size:
                continue
            count, output = int(inside.size), int(inside[0])
            reach = (self.channels - 1) * plane + (count - 1) * stride + 1
            weight = (m * self.channels) * size + tap * window.size[-1] + column
            factors = b.pointer(b.input(1), weight, (self.channels - 1) * size + 1)
            vectors = b.pointer(b.input(0), row * columns + int(at[output]), reach)
            y = b.pointer(b.y, place + output, count, "rw")
            numbers = [size, plane, stride, 1, self.channels, count]
            b.evaluate(_name(b.y.dtype), [y, factors, vectors, *numbers])


INTRINSICS = tuple(map(_products, _SUMS))
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
