"""Data movement operators on RISC-V vectors: runs, and elements with strides."""

from functools import partial
from textwrap import dedent

from firmwright.base.dtypes import UINT8, UINT16, UINT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ops.schedule import Schedule
from firmwright.schedules.data_moves import (
    move_schedules,
    pad_schedule,
    strided_copy,
    vector_runs,
)
from firmwright.schedules.rvv.window_kernel import ROW_MOVES

_BITS = 1024
"""Eight registers of 128 bits."""
_COPY = "rvv_copy_strided"
_RUNS = vector_runs(ROW_MOVES, _COPY)


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
    return strided_copy(
        _COPY,
        dtype,
        "rvv",
        dedent(text),
        lambda args: 8 + 8 * divide_up(args[4] * bits, _BITS),
    )


INTRINSICS = tuple(map(_intrinsic, (UINT8, UINT16, UINT32)))
_make = partial(Schedule, requires=frozenset({"rvv"}))
SCHEDULES = (
    *move_schedules(_make, "rvv", "vectors", _RUNS),
    pad_schedule(_make, "rvv.pad.vectors", _RUNS, ROW_MOVES),
)
