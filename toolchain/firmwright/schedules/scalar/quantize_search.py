"""quantize of floats without an FPU: a binary search of their bits in 255 bounds."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8, UINT32, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, binary_expr, immediate, select
from firmwright.ops.kernel import Kernel
from firmwright.ops.quantize import reference
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

# The quantized value rises with x, so 255 bounds determine it. Floats are ordered like
# their bits as integers if the other bits of negative ones are inverted. The sum with
# FIRST wraps so that the keys of all NaNs precede those of numbers: NaN gives the
# least value.

_VALUES = 256
_TIME_MAX = 0.9
SIZE_MASK = 0x7FFFFFFF
_INFINITY = 0x7F800000
FIRST = 0xFFFFFFFF - _INFINITY
"""Makes the key of infinity the greatest uint32."""


def least_floats(op: OpCall) -> Array:
    """Return the least float32 that reaches each value, but the least one, as order.

    The order is that of int32: bits, of which those of size are inverted if negative.
    """
    values = np.arange(1, _VALUES) + op.output.dtype.min
    # ~_INFINITY is the key of -inf.
    low = np.full(len(values), ~_INFINITY, np.int64)
    high = np.full(len(values), _INFINITY, np.int64)
    while (low < high).any():
        middle = (low + high) >> 1
        reaches = reference(op, [floats_of_order(middle)])[0] >= values
        low = np.where(reaches, low, np.minimum(middle + 1, high))
        high = np.where(reaches, middle, high)
    return low


def floats_of_order(order: Array) -> Array:
    """Return the floats of numbers that are ordered like them."""
    bits = np.where(order < 0, order ^ SIZE_MASK, order).astype(np.int32)
    return bits.view(np.float32)


def _bounds(op: OpCall) -> Array:
    """Return the key of the least float that reaches each value, but the least one."""
    return ((least_floats(op) + FIRST) & 0xFFFFFFFF).astype(np.uint32)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    applies = op.input(0).dtype == FLOAT32 and op.output.dtype in (INT8, UINT8)
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    bounds = b.constant("bounds", _bounds(op), UINT32)
    count = b.y.elements
    dtype = op.output.dtype
    x = b.view("bits", b.input(0), 0, (count,), dtype=INT32, alignment=4)
    y = b.view("out", b.y, 0, (count,), access="w")
    with b.for_("i", count) as i:
        bits = b.let("bits", b.load(x, [i]))
        order = binary_expr("xor", bits, binary_expr("and", bits >> 31, SIZE_MASK))
        key = b.let("key", order.cast(UINT32) + FIRST)
        rank = ArithExpr(immediate(0, INDEX))
        for step in (128, 64, 32, 16, 8, 4, 2, 1):
            reached = b.load(bounds, [rank + (step - 1)]) <= key
            rank = b.let("rank", select(reached, rank + step, rank))
        b.store(y, [i], (rank.cast(INT32) + dtype.min).cast(dtype))


SCHEDULES = (
    Schedule(
        "scalar.quantize.search",
        "quantize",
        frozenset(),
        _configs,
        _build,
        time_max=_TIME_MAX,
    ),
)
