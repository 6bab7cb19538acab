"""Copies and fills of int8 runs on RISC-V vectors."""

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.schedules.row_band import RowMoves

_C = read_sections(__file__)


def copy_bytes(
    b: Kernel, target: tir.Buffer, at: ArithExpr | int, source: tir.Buffer, start: ArithExpr,
    count: int,
) -> None:  # fmt: skip
    y = b.pointer(target, at, count, "w")
    b.evaluate("rvv_copy", [y, b.pointer(source, start, count), count])


def fill_bytes(
    b: Kernel, target: tir.Buffer, at: ArithExpr | int, value: ArithExpr | int, count: int
) -> None:
    b.evaluate("rvv_fill", [b.pointer(target, at, count, "w"), value, count])


def fill_buffer(b: Kernel, target: tir.Buffer, value: ArithExpr | int, count: int) -> None:
    fill_bytes(b, target, 0, value, count)


ROW_MOVES = RowMoves(copy_bytes, fill_bytes, fill_buffer)


def _fill_meaning(y: Any, value: Any, count: Any) -> Any:
    return np.zeros_like(np.asarray(y)[:count]) + np.asarray(value).astype(np.int8)


INTRINSICS = (
    Intrinsic(
        name="rvv_copy",
        operands=(*pointers(INT8, "w", y=1), *pointers(INT8, x=1), *immediates("count")),
        meaning=lambda y, x, count: np.asarray(x)[:count],
        portable=_C["copy_portable"],
        doc="Copies `count` bytes.",
        requires="rvv",
        text={"gnu": _C["copy"]},
        count=lambda args: 2 + 6 * -(-args[2] // 128),
    ),
    Intrinsic(
        name="rvv_fill",
        operands=(*pointers(INT8, "w", y=1), *immediates("value", "count")),
        meaning=_fill_meaning,
        portable=_C["fill_portable"],
        doc="Fills `count` bytes.",
        requires="rvv",
        text={"gnu": _C["fill"]},
        count=lambda args: 4 + 4 * -(-args[2] // 128),
    ),
)
