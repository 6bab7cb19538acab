"""Float arithmetic in line: rounding and saturation in integers, erfc with an FPU, sums without."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, call_intrinsic
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import FLOAT_FUNCTIONS
from firmwright.ops.registry import op_table
from firmwright.schedules.scalar.unrolled_loops import WITH_KERNELS, unroll_inner_loops
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES

# rint(x) takes many instructions without VRINT, and each float limit four. VCVTR rounds to nearest
# even, and SSAT or USAT limits an integer. Float sums of whole numbers below 2^23 are exact, so
# offsets and limits can move to the integer side.
#
# Without an FPU, sums, quotients, comparisons and products with a constant are computed in line
# with the same bits.

_NEAREST, _ERFC = "nearest_24_bits", {"fpu": "fpu_erfc_f32", "soft_float": "soft_erfc_f32"}
_SUM, _NEGATED, _QUOTIENT = "soft_add_f32", "soft_negative_f32", "soft_divide_f32"
_PRODUCT, _ZERO, _SCALED = "soft_multiply_f32", "soft_zero_f32", "soft_scaled_f32"
_LESS, _EXTREMES = "soft_less_f32", {"max": "soft_max_f32", "min": "soft_min_f32"}
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
        case tir.IntrinsicCall(name="erfc_f32", args=args):
            return tir.IntrinsicCall(_ERFC[family], args, FLOAT32)
        case tir.Binary(op="sub", a=a, b=tir.FloatImm(value=0.0)):
            return a
        case tir.Binary(op="div", a=a, b=tir.FloatImm(value=step, dtype=dtype)):
            is_exact = math.frexp(step)[0] == 0.5 and 2.0**-100 < step < 2.0**100
            return tir.Binary("mul", a, tir.FloatImm(1 / step, dtype)) if is_exact else None
        case tir.Binary(op="min" | "max"):
            number, limits = _whole(node) or (None, None)
            return tir.Cast(FLOAT32, number.expr) if number and limits == _LIMITS else None
        case tir.Cast(dtype=kind, value=tir.Cast(value=whole)) if whole.dtype == INT32:
            return None if kind.is_float else tir.Cast(kind, whole)
        case tir.Cast(dtype=kind, value=value) if not kind.is_float:
            number, limits = _whole(value) or (None, None)
            fits = kind.size_bytes <= 2 or limits == _LIMITS
            return tir.Cast(kind, number.expr) if number and fits else None
    return None


def compute_in_line(feature: str, func: tir.PrimFunc) -> tir.PrimFunc:
    """Replace operations on floats that take a call on a core without an FPU."""
    return func if feature == "fpu" else rewrite_func(func, partial(_without_calls, feature))


def _without_calls(feature: str, node: Node) -> Node | None:
    call, is_arm = partial(tir.IntrinsicCall, dtype=FLOAT32), feature == "mla"
    match node:
        case tir.Binary(a=a) if a.dtype != FLOAT32:
            return None
        case tir.Binary(op="lt" | "gt" as op, a=a, b=b):
            pair = (a, b) if op == "lt" else (b, a)
            return tir.Binary("ne", tir.IntrinsicCall(_LESS, pair, INT32), tir.IntImm(0, INT32))
        case tir.Binary(op="max" | "min" as op, a=a, b=b):
            return call(_EXTREMES[op], (a, b))
        case tir.Binary(op="add", a=a, b=b) if is_arm:
            return call(_SUM, (a, b))
        case tir.Binary(op="sub", a=a, b=b) if is_arm:
            return call(_SUM, (a, call(_NEGATED, (b,))))
        case tir.Binary(op="div", a=a, b=b) if feature != "thumb1":
            return call(_QUOTIENT, (a, b))
        case tir.Binary("mul", a, tir.Cast(_, tir.Select(condition, tir.IntImm(1), tir.IntImm(0)))):
            return tir.Select(condition, a, call(_ZERO, (a,)))
        case tir.Binary("mul", tir.Cast(value=whole), tir.FloatImm(value=step) as scale):
            fits = is_arm and _is_byte(whole) and 2.0**-100 < step < 2.0**100
            return call(_SCALED, (tir.Cast(INT32, whole), scale)) if fits else None
        case tir.Binary("mul", a, tir.FloatImm() as b) | tir.Binary("mul", tir.FloatImm() as b, a):
            return call(_PRODUCT, (a, b)) if is_arm else None
    return None


def _is_byte(number: tir.Expr) -> bool:
    match number:
        case tir.Cast(value=value) | tir.Binary(op="sub", a=value, b=tir.IntImm()):
            return _is_byte(value)
    return number.dtype in (INT8, UINT8)


def _configs(family: str, op: OpCall) -> Sequence[Config]:
    if family == "fpu":
        formula = str(op.attrs.get(_FORMULAS[op.op]))
        return ({},) if "rint(" in formula or "erfc(" in formula else ()
    return ({},) if any(each and each.dtype == FLOAT32 for each in (op.output, *op.inputs)) else ()


def _build(family: str, feature: str, op: OpCall, config: Config, b: Kernel) -> None:
    op_table()[op.op].lower(op, b)
    last = unroll_inner_loops if family == "fpu" else partial(compute_in_line, feature)
    b.transform = lambda func: last(rewrite_func(func, partial(_in_integers, family)))


_MEANINGS: dict[str, Callable[..., Any]] = {
    _NEAREST: lambda x: np.rint(np.clip(x, 1 - (1 << 23), (1 << 23) - 1)).astype(np.int32),
    **dict.fromkeys(_ERFC.values(), FLOAT_FUNCTIONS["erfc_f32"].meaning),
    _SUM: lambda a, b: np.float32(a) + np.float32(b),
    _NEGATED: lambda x: -x,
    _PRODUCT: lambda a, b: np.float32(a) * np.float32(b),
    _QUOTIENT: lambda a, b: np.float32(a) / np.float32(b),
    _ZERO: lambda x: x * np.float32(0),
    _SCALED: lambda number, scale: np.float32(number) * np.float32(scale),
    _LESS: lambda a, b: np.less(a, b).astype(np.int32),
    _EXTREMES["max"]: lambda a, b: np.where(a > b, a, b),
    _EXTREMES["min"]: lambda a, b: np.where(a < b, a, b),
}
INTRINSICS = tuple(read_intrinsics(__file__, _MEANINGS).values())
_OPS = {"fpu": _FORMULAS, "soft_float": op_table().keys() - WITH_KERNELS}
SCHEDULES = tuple(
    Schedule(
        f"{family}.{op}.in_line", op, frozenset({feature}), partial(_configs, family),
        partial(_build, family, feature), time_max=_TIME_MAX,
    )
    for family, feature in FLOAT_FAMILIES
    for op in sorted(_OPS[family])
)  # fmt: skip
