"""Copies and fills of int8 runs on RISC-V vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.text_sections import read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.schedules.row_band import RowMoves

_C = read_sections(__file__)

ROW_MOVES = RowMoves(
    lambda b, target, at, source, start, count: b.evaluate(
        "rvv_copy", [b.pointer(target, at, count, "w"), b.pointer(source, start, count), count]
    ),
    lambda b, target, at, value, count: b.evaluate(
        "rvv_fill", [b.pointer(target, at, count, "w"), value, count]
    ),
    lambda b, target, value, count: b.evaluate(
        "rvv_fill", [b.pointer(target, 0, count, "w"), value, count]
    ),
)


def _intrinsic(name: str, source: Sequence[Operand], meaning: Callable[..., Any]) -> Intrinsic:
    return Intrinsic(
        name=f"rvv_{name}",
        operands=(*pointers(INT8, "w", y=1), *source, *immediates("count")),
        meaning=meaning,
        portable=_C[f"{name}_portable"],
        doc=f"{name.capitalize()} of `count` bytes.",
        requires="rvv",
        text={"gnu": _C[name]},
        count=lambda args: 4 + 6 * -(-args[2] // 128),
    )


INTRINSICS = (
    _intrinsic("copy", pointers(INT8, x=1), lambda y, x, count: np.asarray(x)[:count]),
    _intrinsic(
        "fill",
        immediates("value"),
        lambda y, value, count: np.full_like(np.asarray(y)[:count], np.int64(value)),
    ),
)
