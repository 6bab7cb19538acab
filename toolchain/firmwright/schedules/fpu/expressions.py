"""Formulas of floats: rounding and saturation in integers; with an FPU, erfc in line."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, call_intrinsic
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import FLOAT_FUNCTIONS
from firmwright.ops.registry import op_table
from firmwright.schedules.fpu.microkernels import activated
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES

# rint(x) takes many instructions without VRINT, and each float limit four. VCVTR rounds to nearest
# even, and SSAT or USAT limits an integer. Float sums of whole numbers below 2^23 are exact, so
# offsets and limits can move to the integer side.

_NEAREST, _ERFC = "nearest_24_bits", "fpu_erfc_f32"
_MOST = 1 << 21
"""Maximum size of a limit or offset; sums of a few such numbers are exact in float32."""
_LIMITS = frozenset({"min", "max"})
_FORMULAS = {"expression": "formula", "reduction": "formula", "pool_nd": "final"}
_TIME_MAX = 0.9


def _whole(node: Node) -> tuple[ArithExpr, frozenset[str]] | None:
    """Return a rounded number as an integer, and the limits that it has."""
    match node:
        case tir.IntrinsicCall(name="rint_f32", args=(value,)):
            return call_intrinsic(_NEAREST, [value], INT32), frozenset()
        case tir.Binary(op="add" | "sub" | "min" | "max" as op, a=a, b=tir.FloatImm(value=number)):
            inner = _whole(a)
            if inner and number % 1 == 0 and abs(number) <= _MOST:
                limits = inner[1] | ({op} & _LIMITS)
                return binary_expr(op, inner[0], int(number)), limits
    return None


def _in_integers(family: str, node: Node) -> Node | None:
    match node:
        case tir.IntrinsicCall(name="erfc_f32", args=args) if family == "fpu":
            return tir.IntrinsicCall(_ERFC, args, FLOAT32)
        case tir.Binary(op="sub", a=a, b=tir.FloatImm(value=0.0)):
            return a
        case tir.Binary(op="div", a=a, b=tir.FloatImm(value=step, dtype=dtype)):
            is_exact = math.frexp(step)[0] == 0.5 and 2.0**-100 < step < 2.0**100
            return tir.Binary("mul", a, tir.FloatImm(1 / step, dtype)) if is_exact else None
        case tir.Binary(op="min" | "max" as op, a=a, b=b):
            number, limits = _whole(node) or (None, None)
            if family != "fpu" and not number and (op, b) == ("max", tir.FloatImm(0.0, FLOAT32)):
                return activated(ArithExpr(a), "relu").expr
            return tir.Cast(FLOAT32, number.expr) if number and limits == _LIMITS else None
        case tir.Cast(dtype=kind, value=tir.Cast(value=whole)) if whole.dtype == INT32:
            return None if kind.is_float else tir.Cast(kind, whole)
        case tir.Cast(dtype=kind, value=value) if not kind.is_float:
            number, limits = _whole(value) or (None, None)
            fits = kind.size_bytes <= 2 or limits == _LIMITS
            return tir.Cast(kind, number.expr) if number and fits else None
    return None


def _configs(family: str, op: OpCall) -> Sequence[Config]:
    formula = str(op.attrs.get(_FORMULAS[op.op]))
    is_soft = family != "fpu"
    return ({},) if "rint(" in formula or (", 0.0)" if is_soft else "erfc(") in formula else ()


def _build(family: str, op: OpCall, config: Config, b: Kernel) -> None:
    op_table()[op.op].lower(op, b)
    rule = partial(_in_integers, family)
    b.transform = lambda func: unroll_inner_loops(rewrite_func(func, rule))


_MEANINGS: dict[str, Callable[[Any], Any]] = {
    _NEAREST: lambda x: np.rint(np.clip(x, 1 - (1 << 23), (1 << 23) - 1)).astype(np.int32),
    _ERFC: FLOAT_FUNCTIONS["erfc_f32"].meaning,
}
INTRINSICS = tuple(read_intrinsics(__file__, _MEANINGS).values())
SCHEDULES = tuple(
    Schedule(
        f"{family}.{op}.in_line", op, frozenset({feature}), partial(_configs, family),
        partial(_build, family), time_max=_TIME_MAX,
    )
    for family, feature in FLOAT_FAMILIES
    for op in _FORMULAS
)  # fmt: skip
