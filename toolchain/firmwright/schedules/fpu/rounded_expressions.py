"""Formulas that round to a few integers, with an FPU: conversion and saturation in integers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import call_intrinsic, maximum, minimum
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops

# rint(x) takes many instructions without VRINT, and each float limit four. VCVTR rounds to nearest
# even, and SSAT or USAT limits an integer. Float sums of whole numbers below 2^23 are exact, so
# offsets and limits can move to the integer side.

_NEAREST = "fpu_nearest_24_bits"
_MOST = 1 << 22
"""Maximum size of a limit; sums of such numbers are exact in float32."""
_FORMULAS = {"expression": "formula", "reduction": "formula", "pool_nd": "final"}
_TIME_MAX = 0.9


@dataclass(frozen=True, slots=True)
class _Rounded:
    """rint(value) + offset, limited to [low, high]; None is no limit."""

    value: tir.Expr
    offset: int = 0
    low: int | None = None
    high: int | None = None

    def plus(self, change: int) -> "_Rounded":
        ends = (None if end is None else end + change for end in (self.low, self.high))
        return _Rounded(self.value, self.offset + change, *ends)

    def limited(self, op: str, end: int) -> "_Rounded":
        """Return the number limited from above (`op` is min) or below (max)."""
        choose = min if op == "min" else max
        low, high = (None if own is None else choose(own, end) for own in (self.low, self.high))
        return replace(self, low=end if op == "max" and low is None else low,
                       high=end if op == "min" and high is None else high)  # fmt: skip

    def as_integer(self) -> tir.Expr:
        number = call_intrinsic(_NEAREST, [self.value], INT32)
        if self.offset:
            number = number + self.offset
        low, high = (-_MOST if self.low is None else self.low, self.high)
        number = maximum(number, low)
        return (number if high is None else minimum(number, high)).expr


def _whole(node: tir.Expr) -> int | None:
    if isinstance(node, tir.FloatImm) and abs(node.value) <= _MOST and node.value % 1 == 0:
        return int(node.value)
    return None


def _rounded(node: Node) -> _Rounded | None:
    match node:
        case tir.IntrinsicCall(name="rint_f32", args=(value,)):
            return _Rounded(value)
        case tir.Binary(op="add" | "sub" | "min" | "max" as op, a=a, b=b):
            inner, number = _rounded(a), _whole(b)
            if inner is None or number is None:
                return None
            if op in ("min", "max"):
                return inner.limited(op, number)
            moved = inner.plus(number if op == "add" else -number)
            return moved if abs(moved.offset) <= _MOST else None
    return None


def _in_integers(node: Node) -> Node | None:
    match node:
        case tir.Binary(op="sub", a=a, b=tir.FloatImm(value=0.0)):
            return a
        case tir.Binary(op="div", a=a, b=tir.FloatImm(value=step, dtype=dtype)):
            return tir.Binary("mul", a, tir.FloatImm(1 / step, dtype)) if _is_exact(step) else None
        case tir.Binary(op="min" | "max"):
            found = _rounded(node)
            if found and found.low is not None and found.high is not None:
                return tir.Cast(FLOAT32, found.as_integer())
        case tir.Cast(dtype=kind, value=tir.Cast(value=whole)) if whole.dtype == INT32:
            return None if kind.is_float else tir.Cast(kind, whole)
        case tir.Cast(dtype=kind, value=value) if not kind.is_float:
            found = _rounded(value)
            return tir.Cast(kind, found.as_integer()) if found else None
    return None


def _is_exact(step: float) -> bool:
    """Whether a float32 divided by `step` equals its product with 1 / `step`."""
    return math.frexp(step)[0] == 0.5 and 2.0**-100 < step < 2.0**100


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if "rint(" in op.str_attr(_FORMULAS[op.op]) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    op_table()[op.op].lower(op, b)
    b.transform = lambda func: unroll_inner_loops(rewrite_func(func, _in_integers))


def _nearest(x: Any) -> Any:
    return np.rint(np.clip(x, 1 - (1 << 23), (1 << 23) - 1)).astype(np.int32)


INTRINSICS = tuple(read_intrinsics(__file__, {_NEAREST: _nearest}).values())
SCHEDULES = tuple(
    Schedule(f"fpu.{op}.rounded", op, frozenset({"fpu"}), _configs, _build, time_max=_TIME_MAX)
    for op in _FORMULAS
)
