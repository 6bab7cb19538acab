"""int8 means and sums with ONNX Runtime's results, which adds floats in its own order.

Attribute `float_order`: axis i of ONNX Runtime's tensor is axis float_order[i] of x.
The total of (x - x zero point) * x scale is divided by n (means) and by y scale. With
adjacent axes merged into kept (K) and reduced (R) ones, ONNX Runtime (x86-64, one
thread) adds:

    R, KR          aligned packets of 4 to two accumulators in turn; these; the lanes
                   0 + 2 and 1 + 3; the elements before and after the packets
    RKR (K > 1)    such sums, in order
    KRK (K > 1)    sums of 4 elements, then of 2 and of 1
    others         elements, in order

Kernels add integers, and floats only near ties.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import round_up
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.attributes.values import AxesAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr, call_intrinsic, immediate
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import clamp, per_tensor_quant

_PACKET = 4
_MIN_SHIFT, _MAX_SHIFT = 4, 21


def _packet_sum(terms: Array, skipped: int) -> Array:
    whole = max(len(terms) - skipped, 0) // _PACKET
    even = whole // 2 * 2
    end = skipped + whole * _PACKET
    packets = terms[skipped:end].reshape(whole, _PACKET, *terms.shape[1:])
    zero = np.zeros((_PACKET, *terms.shape[1:]), np.float32)
    lanes = reduce(np.add, packets[0:even:2], zero)
    lanes = lanes + reduce(np.add, packets[1:even:2], zero)
    lanes = reduce(np.add, packets[even:], lanes)
    rest = [*terms[:skipped], *terms[end:]]
    return reduce(np.add, rest, (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


def _add_run(
    total: Array,
    x: Array,
    stride: int | Array,
    count: int | Array,
    block: int | Array,
    skipped: int | Array,
    zero: int | Array,
    scale: float | Array,
) -> Array:
    offsets = np.asarray(x)[:: int(np.max(stride))].astype(np.int32) - zero
    terms = offsets.astype(np.float32) * np.float32(scale)
    size = int(np.max(block))
    if not size:
        choices = [_packet_sum(terms, k) for k in range(_PACKET)]
        sums: Array = np.choose(skipped, choices)
        return np.asarray(total + sums)
    while len(terms):
        size = min(size, 1 << len(terms).bit_length() - 1)
        total = reduce(np.add, terms[:size]) + total
        terms = terms[size:]
    return total


_NUMBERS = ("stride", "count", "block", "skipped", "zero_point")
ADD_RUN = Intrinsic(
    name="add_run",
    operands=(
        Operand("total", "in", FLOAT32),
        *pointers(INT8, x=1),
        *(Operand(name, "in", INT32) for name in _NUMBERS),
        Operand("scale", "in", FLOAT32),
    ),
    result=FLOAT32,
    meaning=_add_run,
    portable="",
    rare=read_sections(__file__)["add_run"],
    doc=(
        "Adds int8 as floats in blocks, or (0) in packets of 4 after the first "
        "`skipped` elements."
    ),
    instructions=500,
)


@dataclass(frozen=True, slots=True)
class SumOrder:
    """Axes of x in order of addition: `outer`, then `inner` as runs of `n` elements.

    All runs together have `count` elements.

    Runs are added in packets (`block` 0) or in blocks.
    """

    count: int
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    n: int
    block: int

    @staticmethod
    def of(call: OpCall) -> "SumOrder":
        shape = call.input(0).shape
        axes = call.attributes(AxesAttrs).axes
        layout = call.attributes(AxesAttrs).float_order
        # Runs of adjacent axes in ONNX Runtime's layout, alternately kept and reduced.
        groups: list[tuple[int, ...]] = []
        for _, run in groupby(layout, lambda axis: axis in axes):
            groups.append(tuple(run))
        first = 1 if layout[0] not in axes else 0
        reduced = groups[first::2]
        first_kept = groups[1 - first : 2 : 2]
        kept = math.prod(shape[axis] for group in first_kept for axis in group)
        is_fast = len(groups) < 3 or (len(groups) == 3 and kept > 1)
        inner, block = reduced[-1][-1:], 1
        if is_fast and (layout[-1] in axes or len(groups) == 3):
            inner = reduced[-1]
            block = 0 if layout[-1] in axes else _PACKET
        outer: list[int] = []
        for group in reduced:
            outer += [axis for axis in group if axis not in inner]
        count = math.prod(shape[axis] for axis in axes)
        n = math.prod(shape[axis] for axis in inner)
        return SumOrder(count, tuple(outer), inner, n, block)

    @property
    def roundings(self) -> int:
        """An upper bound of the roundings of a term."""
        runs = self.count // self.n
        blocks = self.n // (self.block or 2 * _PACKET)
        return runs + blocks + 4 * _PACKET


@dataclass(frozen=True, slots=True)
class TieTest:
    """Rounding of integer sums, with a test if float sums may be rounded otherwise.

    floor((sum * 2^left + offset) * multiplier / 2^32) is the exact result plus 1/2,
    times 2^shift, plus width / 2. High bits are the result, unless the low bits are
    below `width`.
    """

    left: int
    offset: int
    multiplier: int
    shift: int
    width: int

    @staticmethod
    def of(call: OpCall) -> "TieTest":
        """Build the test for terms with relative errors (1 + 2^-24)^roundings - 1."""
        x = per_tensor_quant(call.input(0))
        y = per_tensor_quant(call.output)
        order = SumOrder.of(call)
        factor = x.scale / (y.scale * (order.count if call.op == "mean" else 1))
        mantissa, exponent = math.frexp(factor)
        multiplier = min(round(mantissa * 2**31), INT32.max)
        reach = max(INT8.max - x.zero_point, x.zero_point - INT8.min) * order.count
        error = math.expm1(order.roundings * 2.0**-24) * reach * factor
        _, bits = math.frexp(reach + (abs(y.zero_point) + 1 + error) / factor)
        left = min(30 - bits, _MAX_SHIFT + 1 + exponent)
        shift = left - 1 - exponent
        if shift < _MIN_SHIFT or left < 0:
            raise NotSupportedError(f"a {call.op} with these scales")
        # Multiplier, offset and floor have errors below 3 units in all.
        width = 2 * math.ceil(error * 2**shift) + 6
        unit = 1 << max(width.bit_length() - 8, 0)  # an immediate operand on Arm
        width = round_up(width, unit)
        middle = (y.zero_point + 0.5) * 2**shift + width // 2
        offset = round(middle * 2**32 / multiplier)
        return TieTest(left, offset, multiplier, shift, width)


def float_sums(call: OpCall, x: Array) -> Array:
    """Return ONNX Runtime's sums, or means."""
    order = SumOrder.of(call)
    layout = call.attributes(AxesAttrs).float_order
    quant = per_tensor_quant(call.input(0))
    places = np.arange(x.size).reshape([x.shape[axis] for axis in layout])
    axes = [*order.inner, *order.outer]
    axes += [axis for axis in range(x.ndim) if axis not in axes]
    shape = (order.n, -1, call.output.elements)
    runs = x.transpose(axes).reshape(shape)
    places = places.transpose(np.argsort(layout)).transpose(axes).reshape(shape)
    total = np.zeros(call.output.elements, np.float32)
    for k in range(runs.shape[1]):
        skipped = -places[0, k] % _PACKET
        numbers = 1, order.n, order.block, skipped, quant.zero_point, quant.scale
        total = _add_run(total, runs[:, k], *numbers)
    return total / np.float32(order.count) if call.op == "mean" else total


def reference_results(call: OpCall, x: Array) -> Array:
    y = per_tensor_quant(call.output)
    steps = np.rint(float_sums(call, x) / np.float32(y.scale)) + y.zero_point
    results: Array = np.clip(steps, INT8.min, INT8.max).astype(np.int8)
    return results.reshape(call.output.shape)


def lower_result(
    call: OpCall, b: Kernel, total: ArithExpr, kept: Mapping[int, ArithExpr | int]
) -> ArithExpr:
    """Emit the result of an integer sum at indices `kept` of x."""
    test = TieTest.of(call)
    y = per_tensor_quant(call.output)
    product = (total * (1 << test.left) + test.offset).cast(INT64) * test.multiplier
    raised = b.register("raised", INT32, (product >> 32).cast(INT32))
    result = b.register("result", INT32, raised.value >> test.shift)
    with b.if_((raised.value & ((1 << test.shift) - 1)) < test.width):
        real = _lower_float_sum(call, b, dict(kept))
        if call.op == "mean":
            real = real / float(SumOrder.of(call).count)
        steps = call_intrinsic("rint_f32", [real / y.scale], FLOAT32)
        result.set(steps.cast(INT32) + y.zero_point)
    return clamp(result.value, INT8.min, INT8.max, INT8)


def _lower_float_sum(
    call: OpCall, b: Kernel, index: dict[int, ArithExpr | int]
) -> ArithExpr:
    shape = call.input(0).shape
    order = SumOrder.of(call)
    layout = call.attributes(AxesAttrs).float_order
    total = b.register("total", FLOAT32, 0.0)
    quant = per_tensor_quant(call.input(0))
    with ExitStack() as loops:
        for axis in order.outer:
            index[axis] = loops.enter_context(b.for_(f"k{axis}", shape[axis]))
        offset = skipped = ArithExpr(as_expr(0))
        for axis, place in index.items():
            offset = offset + place * math.prod(shape[axis + 1 :])
            later = math.prod(shape[k] for k in layout[layout.index(axis) + 1 :])
            skipped = skipped + place * (0 if order.block else -later % _PACKET)
        stride = math.prod(shape[order.inner[-1] + 1 :])
        run = b.pointer(b.input(0), offset, (order.n - 1) * stride + 1)
        first = (skipped % _PACKET).cast(INT32)
        numbers = stride, order.n, order.block, first, quant.zero_point
        args = [total.value, run, *numbers, immediate(quant.scale, FLOAT32)]
        total.set(call_intrinsic(ADD_RUN.name, args, FLOAT32))
    return total.value
