"""mean and sum of int8 channels on Helium: sums in lanes, as those of a row of a pool.

Four sums at a time become outputs, if their requantization has no left shift. Others do
as in the default loops.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.attributes.values import AxesAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import immediates, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.c_numbers import both, greater, less
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.reductions import (
    finish_sums,
    mean_requantization,
    reduced_count,
)
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.pool2d import ADD_ROW, take_rows

_LANES = 4
_NUMBERS = ("offset", "multiplier", "shift", "zero_point", "rounding", "count")


def _mean(**x: ArithExpr) -> ArithExpr:
    scale = [x["sums"] + x["offset"], x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scale, INT32) + x["zero_point"]
    return minimum(maximum(moved, INT8.min), INT8.max).cast(INT8)


def _mean_lanes(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    shift = k.number("shift")
    exact = k(mve.vaddq_n_s32, lanes[0], k.number("offset"))
    total = k.named("total", mve.vqrdmulhq_n_s32, exact, k.number("multiplier"))
    with k.when(k(both, k(greater, k.number("rounding"), 0), k(less, shift, 0))):
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, total, 31), into=total)
    k(mve.vrshlq_n_s32, total, shift, into=total)
    k(mve.vqaddq_n_s32, total, k.number("zero_point"), into=total)
    k(narrow_words_twice_in_place, total, into=total)
    return total


MEAN_LOOP = ElementLoop(
    (PointerOperand("sums", INT32),),
    PointerOperand("y", INT8, "w"),
    INT32,
    _mean_lanes,
)
_MEANS = "mve_means_int8"
INTRINSICS = element_intrinsics(
    _MEANS,
    (*pointers(INT8, "w", y=1), *pointers(INT32, sums=1), *immediates(*_NUMBERS)),
    _mean,
    "Requantizes `count` sums.",
    "mve",
    helium_text(MEAN_LOOP),
    lambda args: 12 + divide_up(args[-1], _LANES) * 9,
    (KEEP_STORES,),
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration if every element is added to the sum of its channel."""
    x, attrs = op.input(0), op.attributes(AxesAttrs)
    *outer, channels = x.shape
    kept = [n for axis, n in enumerate(outer) if axis not in attrs.axes]
    is_by_channel = len(outer) not in attrs.axes and max(kept, default=1) == 1
    if x.dtype != INT8 or attrs.float_order or channels < _LANES:
        return ()
    return (NO_CONFIG,) if is_by_channel else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x = op.input(0)
    channels = x.shape[-1]
    pixels = x.elements // channels
    sums = b.allocate("sums", INT32, (channels,), 4)
    with b.for_("c", channels) as c:
        b.store(sums, [c], 0)
    values = b.pointer(b.input(0), 0, x.elements)
    window = (1, pixels, x.elements, channels)
    b.evaluate(
        ADD_ROW, [b.pointer(sums, 0, channels, "rw"), values, *window, 0, channels]
    )
    params = mean_requantization(op)
    if op.output.dtype != INT8 or not vector_requantize.supports_requantize(params):
        finish_sums(op, b, sums, b.y)
        return
    offset = -per_tensor_quant(x).zero_point * reduced_count(op)
    rounding = int(vector_requantize.rounding_mode(params))
    scale = [params.multipliers[0], params.shifts[0], params.zero_point, rounding]
    y, totals = b.pointer(b.y, 0, channels, "w"), b.pointer(sums, 0, channels)
    b.evaluate(_MEANS, [y, totals, offset, *scale, channels])


SCHEDULES = tuple(
    Schedule(
        f"helium.{name}.channels",
        name,
        frozenset({"mve"}),
        _configs,
        _build,
        fold=take_rows,
    )
    for name in ("mean", "sum")
)
