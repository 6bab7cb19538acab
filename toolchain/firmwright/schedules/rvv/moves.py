"""Data movement operators on RISC-V vectors: runs of bytes, and elements with strides.

Operators that copy runs use `_copy` in their default loops.
"""

from textwrap import dedent

from firmwright.base.dtypes import INT8, UINT8, UINT16, UINT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import CopyRuns, Kernel
from firmwright.ops.pad import pad_value
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.strided_copy import MOVES, CopyAxis, lower_fill
from firmwright.schedules.helium.moves import copy_inside, strided
from firmwright.schedules.rvv.window_kernel import ROW_MOVES

_TIME_MAX = 0.9
_BITS = 1024
"""Eight registers of 128 bits."""
_Place = tuple[tir.Buffer, ArithExpr]


def _copy(b: Kernel, target: _Place, source: _Place, axis: CopyAxis) -> None:
    (to, at), (x, start), count = target, source, axis.extent
    if (axis.x_stride, axis.y_stride) == (1, 1):
        ROW_MOVES.copy(b, to, at, x, start, count)
        return
    out = b.pointer(to, at, (count - 1) * axis.y_stride + 1, "rw")
    run = b.pointer(x, start, (count - 1) * axis.x_stride + 1)
    numbers = [axis.y_stride, axis.x_stride, count]
    b.evaluate(f"rvv_copy_strided_{to.dtype.name}", [out, run, *numbers])


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    b.copy_runs = CopyRuns(of_bytes=_copy, strided=_copy)
    op_table()[op.op].lower(op, b)


def _build_pad(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    """Fill the whole output by vectors, then copy the input in runs."""
    b.copy_runs = CopyRuns(of_bytes=_copy, strided=_copy)
    count, value = op.output.elements, pad_value(op)
    if op.output.dtype == INT8:
        whole = b.view("bytes", b.y, 0, (count,), access="w")
        ROW_MOVES.fill(b, whole, 0, int(value), count)
    else:
        lower_fill(b, b.y, value)
    copy_inside(op, b)


def _intrinsic(dtype: DType) -> Intrinsic:
    bits, size = dtype.bits, dtype.size_bytes
    group = f"{dtype.short}m8"
    text = f"""\
        for (int32_t at = 0; at < count;) {{
            const size_t vl = __riscv_vsetvl_e{bits}m8((size_t)(count - at));
            const v{dtype.name}m8_t run =
                __riscv_vlse{bits}_v_{group}(x + at * x_step, {size} * x_step, vl);
            __riscv_vsse{bits}_v_{group}(y + at * y_step, {size} * y_step, run, vl);
            at += (int32_t)vl;
        }}"""
    return Intrinsic(
        f"rvv_copy_strided_{dtype.name}",
        (
            *pointers(dtype, "rw", y=1),
            *pointers(dtype, x=1),
            *immediates("y_step", "x_step", "count"),
        ),
        strided,
        "for (int32_t i = 0; i < count; ++i) {\n    y[i * y_step] = x[i * x_step];\n}",
        "Copies `count` elements with strides.",
        requires="rvv",
        text={"gnu": dedent(text)},
        count=lambda args: 8 + 8 * divide_up(args[4] * bits, _BITS),
    )


INTRINSICS = tuple(map(_intrinsic, (UINT8, UINT16, UINT32)))
SCHEDULES = tuple(
    Schedule(
        f"rvv.{op}.vectors",
        op,
        frozenset({"rvv"}),
        lambda op: (NO_CONFIG,),
        build,
        time_max=_TIME_MAX,
    )
    for op, build in (*((op, _build) for op in MOVES), ("pad", _build_pad))
)
