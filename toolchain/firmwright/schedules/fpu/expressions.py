"""Float arithmetic in line: rounding and limits in integers, operations without FPU."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import PoolNdAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, call_intrinsic, maximum
from firmwright.ir.tir.intrinsic import Meaning, read_intrinsics
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.fpu.float_functions import in_line, is_long
from firmwright.schedules.scalar.lstm import lower_packed
from firmwright.schedules.scalar.unrolled_loops import WITH_KERNELS, unroll_inner_loops
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES

# rint(x) takes many instructions without VRINT, and each float limit four. VCVTR rounds
# to nearest even, and SSAT or USAT limits an integer. Float sums of whole numbers below
# 2^23 are exact, so offsets and limits can move to the integer side.
#
# Without an FPU, sums, products, quotients and comparisons are computed in line with
# the same bits. Functions of libm are computed in line on every core
# (float_functions.py).

_NEAREST = "nearest_24_bits"
_SUM, _NEGATED, _QUOTIENT = "soft_add_f32", "soft_negative_f32", "soft_divide_f32"
_PRODUCT, _ZERO, _SCALED = "soft_multiply_f32", "soft_zero_f32", "soft_scaled_f32"
_EXTREMES = {"max": "soft_max_f32", "min": "soft_min_f32"}
_LESS, _LESS_EQUAL, _EQUAL = "soft_less_f32", "soft_less_equal_f32", "soft_equal_f32"
_COMPARISONS: dict[str, tuple[str, Literal["eq", "ne"], bool]] = {
    "lt": (_LESS, "ne", False),
    "gt": (_LESS, "ne", True),
    "le": (_LESS_EQUAL, "ne", False),
    "ge": (_LESS_EQUAL, "ne", True),
    "eq": (_EQUAL, "ne", False),
    "ne": (_EQUAL, "eq", False),
}
"""A comparison's function, whether its result is not or is 0, and if operands swap."""
_MOST = 1 << 21
"""Maximum size of a limit or offset; float32 sums of a few such numbers are exact."""
_LEAST = -float(1 << 23)
"""The result of NaN before saturation, as of a comparison with a lower limit."""
_LIMITS = frozenset({"min", "max"})
_WITH_FORMULAS = ("expression", "reduction", "pool_nd")
_WITH_FUNCTIONS = {
    *_WITH_FORMULAS,
    "ceil",
    "cos",
    "elu",
    "exp",
    "floor",
    "floor_div",
    "floor_mod",
    "gelu",
    "hybrid_lstm",
    "l2_normalization",
    "local_response_normalization",
    "log",
    "log_softmax",
    "lstm",
    "quantize",
    "round",
    "rsqrt",
    "sin",
    "sqrt",
}
_TIME_MAX = 0.9


def _whole(node: Node) -> tuple[ArithExpr, frozenset[str]] | None:
    """Return a rounded number as an integer, and the limits that it has."""
    match node:
        case tir.IntrinsicCall(name="rint_f32", args=(value,)):
            operand = ArithExpr(value)
            if not _is_number(value):
                operand = maximum(operand, _LEAST)
            return call_intrinsic(_NEAREST, [operand], INT32), frozenset()
        case tir.Binary(
            op="add" | "sub" | "min" | "max" as op, a=a, b=tir.FloatImm(value=number)
        ):
            inner = _whole(a)
            if inner and number % 1 == 0 and abs(number) <= _MOST:
                limits = inner[1] | ({op} & _LIMITS)
                return binary_expr(op, inner[0], int(number)), limits
    return None


def _is_number(node: tir.Expr) -> bool:
    """Whether the value comes from integers and constants and cannot be NaN."""
    match node:
        case tir.FloatImm(value=constant):
            return math.isfinite(constant)
        case tir.Cast(value=source):
            return source.dtype.is_int
        case tir.Binary(op="div", a=a, b=tir.FloatImm(value=step)):
            return step != 0.0 and _is_number(a)
        case tir.Binary(op="add" | "sub" | "mul" | "min" | "max", a=a, b=b):
            return _is_number(a) and _is_number(b)
    return False


def _in_integers(node: Node) -> Node | None:
    match node:
        case tir.Binary(op="sub", a=a, b=tir.FloatImm(value=0.0)):
            return a
        case tir.Binary(op="div", a=a, b=tir.FloatImm(value=step, dtype=dtype)):
            is_exact = math.frexp(step)[0] == 0.5 and 2.0**-100 < step < 2.0**100
            if not is_exact:
                return None
            return tir.Binary("mul", a, tir.FloatImm(1 / step, dtype))
        case tir.Binary(op="min" | "max"):
            number, limits = _whole(node) or (None, None)
            if not number or limits != _LIMITS:
                return None
            return tir.Cast(FLOAT32, number.expr)
        case tir.Cast(dtype=kind, value=tir.Cast(value=whole)) if whole.dtype == INT32:
            return None if kind.is_float else tir.Cast(kind, whole)
        case tir.Cast(dtype=kind, value=value) if not kind.is_float:
            number, limits = _whole(value) or (None, None)
            fits = kind.size_bytes <= 2 or limits == _LIMITS
            return tir.Cast(kind, number.expr) if number and fits else None
    return None


def compute_in_line(feature: str, func: tir.PrimFunc) -> tir.PrimFunc:
    """Replace operations on floats that take a call."""
    return rewrite_func(func, partial(_without_calls, feature))


def _without_calls(feature: str, node: Node) -> Node | None:
    call = partial(tir.IntrinsicCall, dtype=FLOAT32)
    match node:
        case tir.IntrinsicCall():
            return in_line(feature, node)
        case tir.Binary(a=a) if a.dtype != FLOAT32 or feature == "fpu":
            return None
        case tir.Binary(op=op, a=a, b=b) if op in _COMPARISONS:
            function, answer, is_swapped = _COMPARISONS[op]
            holds = tir.IntrinsicCall(function, (b, a) if is_swapped else (a, b), INT32)
            return tir.Binary(answer, holds, tir.IntImm(0, INT32))
        case tir.Binary(op="max" | "min" as op, a=a, b=b):
            return call(_EXTREMES[op], (a, b))
        case tir.Binary(op="add", a=a, b=b):
            return call(_SUM, (a, b))
        case tir.Binary(op="sub", a=a, b=b):
            return call(_SUM, (a, call(_NEGATED, (b,))))
        case tir.Binary(op="div", a=a, b=b) if feature != "thumb1":
            return call(_QUOTIENT, (a, b))
        case tir.Binary(
            "mul", a, tir.Cast(_, tir.Select(condition, tir.IntImm(1), tir.IntImm(0)))
        ):
            return tir.Select(condition, a, call(_ZERO, (a,)))
        case tir.Binary(
            "mul", tir.Cast(value=whole), tir.FloatImm(value=step) as scale
        ):
            fits = _is_byte(whole) and 2.0**-100 < step < 2.0**100
            return call(_SCALED, (tir.Cast(INT32, whole), scale)) if fits else None
        case tir.Binary(op="mul", a=a, b=b):
            return call(_PRODUCT, (a, b))
    return None


def _is_byte(number: tir.Expr) -> bool:
    match number:
        case tir.Cast(value=value) | tir.Binary(op="sub", a=value, b=tir.IntImm()):
            return _is_byte(value)
    return number.dtype in (INT8, UINT8)


def _formula(op: OpCall) -> str:
    """Return the formula of the results, or "" if the operator has none."""
    match op.attrs:
        case ExpressionAttrs(formula=formula):
            return formula
        case PoolNdAttrs(final=final):
            return final or ""
    return ""


def _configs(family: str, op: OpCall) -> Sequence[ScheduleConfig]:
    formula = _formula(op)
    if "(" in formula:
        return (NO_CONFIG,)
    if formula and family == "fpu":
        return ()
    for kind in (op.output, *op.inputs):
        if kind is not None and kind.dtype == FLOAT32:
            return (NO_CONFIG,)
    return ()


def _build(
    family: str, feature: str, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    lower = lower_packed if op.op == "lstm" else op_table()[op.op].lower
    lower(op, b)

    def transform(func: tir.PrimFunc) -> tir.PrimFunc:
        func = compute_in_line(feature, rewrite_func(func, _in_integers))
        return unroll_inner_loops(func, is_long) if family == "fpu" else func

    b.transform = transform


def _nearest(x: Array) -> Array:
    limit = (1 << 23) - 1
    return np.asarray(np.rint(np.clip(x, -limit, limit)).astype(np.int32))


_MEANINGS: dict[str, Meaning] = {
    _NEAREST: _nearest,
    _SUM: lambda a, b: np.float32(a) + np.float32(b),
    _NEGATED: lambda x: -x,
    _PRODUCT: lambda a, b: np.float32(a) * np.float32(b),
    _QUOTIENT: lambda a, b: np.float32(a) / np.float32(b),
    _ZERO: lambda x: x * np.float32(0),
    _SCALED: lambda number, scale: np.float32(number) * np.float32(scale),
    _LESS: lambda a, b: np.less(a, b).astype(np.int32),
    _LESS_EQUAL: lambda a, b: np.less_equal(a, b).astype(np.int32),
    _EQUAL: lambda a, b: np.equal(a, b).astype(np.int32),
    _EXTREMES["max"]: lambda a, b: np.where(a > b, a, b),
    _EXTREMES["min"]: lambda a, b: np.where(a < b, a, b),
}
INTRINSICS = tuple(read_intrinsics(__file__, _MEANINGS).values())
_SOFT_OPS = op_table().keys() - WITH_KERNELS - {"conv_nd", "transpose_conv"} | {"lstm"}
_FPU_OPS = _WITH_FUNCTIONS | {
    op.name for op in op_table().values() if op.calls_float_functions
}
_OPS = {"fpu": _FPU_OPS, "soft_float": _SOFT_OPS}
SCHEDULES = tuple(
    Schedule(
        f"{family}.{op}.in_line",
        op,
        frozenset({feature}),
        partial(_configs, family),
        partial(_build, family, feature),
        time_max=_TIME_MAX,
    )
    for family, feature in FLOAT_FAMILIES
    for op in sorted(_OPS[family])
)
