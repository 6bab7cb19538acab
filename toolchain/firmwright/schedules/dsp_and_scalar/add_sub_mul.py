"""add, sub and mul of int8 by one multiply-high for each element, or sums by two products.

The only DSP instruction, SMMLA, is a multiply-high and an addition on cores without SIMD.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, Array, DType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, maximum, minimum
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.elementwise_arithmetic import has_zero_scale, product_requantization
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.rescaled_sum import RescaledSum, rescaled_sum
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)

# Sums: an input with the larger scale is rescaled by exactly one half, so its term is a shift.
# Other terms take 256 values, stored in a table; the terms of constants are computed here. The
# folded epilogue follows, its left shift included in tables and shift. The schedules do not apply
# if the proof fails or if an entry exceeds 32 bits.
#
# `linear`: (a x0 + b x1 + c) >> S equals the definition for all 65,536 pairs of inputs, for some a
# and b near the ratios of the scales. It needs no tables.

_LIMIT = 1 << 30
_UNROLL = (4, 3, 5, 2)
_VALUES = np.arange(INT8.min, INT8.max + 1)
_LINEAR_SHIFTS = (22, 21, 23, 20, 19)
_NEARBY = sorted(product(range(-4, 5), repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1]))
"""Changes of the factors of a linear sum, in the order in which they are tried."""
_Finish = Callable[[ArithExpr], None]


def _constant(op: OpCall, index: int) -> Array | None:
    constant = op.constant(index)
    return None if constant is None else constant.array().astype(np.int64)


@dataclass(frozen=True, slots=True)
class _AddSubPlan:
    """Constants of a sum, scaled by 2^left: a term without values is a shift of its input."""

    values: tuple[Array | None, Array | None]
    shift: int
    folded: FoldedRequantize


def _plan(op: OpCall, sign: int) -> _AddSubPlan | None:
    """Return the constants, or None if a proof fails."""
    params, signs = rescaled_sum(op), (1, sign)
    terms = [s * term.apply(_VALUES) for s, term in zip(signs, params.terms, strict=True)]
    low, high = (sum(int(pick(term)) for term in terms) for pick in (np.min, np.max))
    folded = fold_requantize(params.output, np.array([low]), np.array([high]))
    if folded is None:
        return None
    left, shift, added = folded.left[0], 0, 0
    values: list[Array | None] = [None, None]
    for index, term in enumerate(terms):
        step, constant = int(term[1] - term[0]) * signs[index], _constant(op, index)
        is_shift = constant is None and step > 0 and step & (step - 1) == 0 and not shift
        if is_shift and bool((np.diff(term) == step * signs[index]).all()):
            shift, added = step.bit_length() - 1 + left, int(term[-INT8.min])  # the term at x = 0
        else:
            indices = np.arange(256) if constant is None else constant - INT8.min
            values[index] = term[indices]
    scaled = [None if value is None else (value + added) << left for value in values]
    if any(value is not None and np.abs(value).max() >= _LIMIT for value in scaled):
        return None
    return _AddSubPlan((scaled[0], scaled[1]), shift, folded) if shift <= 30 - 7 else None


def _sum_configs(op: OpCall, sign: int) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == INT8 and _plan(op, sign) is not None else ()


def _build_sum(op: OpCall, config: Config, b: Kernel, sign: int) -> None:
    plan = _plan(op, sign)
    assert plan is not None
    tables = [
        b.constant("table", np.roll(values, INT8.min), INT32)  # indexed by unsigned bytes
        if values is not None and op.constant(index) is None
        else None
        for index, values in enumerate(plan.values)
    ]
    constants = [None if op.constant(index) is None else plan.values[index] for index in (0, 1)]
    with _folded_elements(b, plan.folded, constants, INT32) as (loaded, finish):
        total: ArithExpr | None = None
        for index in (1, 0) if plan.values[0] is None else (0, 1):
            value, table, is_minus = loaded[index], tables[index], False
            if table is not None:
                value = b.load(table, [value.cast(UINT8).cast(INDEX)])
            elif plan.values[index] is None:
                value, is_minus = value.cast(INT32) * (1 << plan.shift), (1, sign)[index] < 0
            if total is None:
                total = value
            else:
                total = total - value if is_minus else total + value
        assert total is not None
        finish(total)


@dataclass(frozen=True, slots=True)
class _LinearSum:
    """The sum (factors[0] x0 + factors[1] x1 + addend) >> shift, before the clamp."""

    factors: tuple[int, int]
    addend: int
    shift: int


@lru_cache(maxsize=256)  # configs and build need it, and so do bands of rows
def _fit_linear(params: RescaledSum, sign: int) -> _LinearSum | None:
    """Return a linear form that equals the definition for all inputs, or None."""
    first, second = (term.apply(_VALUES) for term in params.terms)
    y = params.output.apply(first[:, None] + sign * second, INT8).astype(np.int64)
    scale = params.output.multipliers[0] * 2.0 ** (params.output.shifts[0] - 31) / 255
    slopes = (first[-1] - first[0]) * scale, sign * (second[-1] - second[0]) * scale
    is_low, is_high = y == params.output.clamp_min, y == params.output.clamp_max
    for shift in _LINEAR_SHIFTS:
        for change in _NEARBY:
            a, b = (round(s * 2**shift) + d for s, d in zip(slopes, change, strict=True))
            total = a * _VALUES[:, None] + b * _VALUES
            least = int(((y << shift) - total)[~is_low].max(initial=-_LIMIT))
            most = int((((y + 1) << shift) - 1 - total)[~is_high].min(initial=_LIMIT))
            if least <= most and 128 * (abs(a) + abs(b)) + abs(least) <= INT32.max:
                return _LinearSum((a, b), least, shift)
    return None


def _linear_configs(op: OpCall, sign: int) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or any(op.constant(i) is not None for i in (0, 1)):
        return ()
    return ({},) if _fit_linear(rescaled_sum(op), sign) else ()


def _build_linear(op: OpCall, config: Config, b: Kernel, sign: int) -> None:
    params = rescaled_sum(op)
    linear = _fit_linear(params, sign)
    assert linear is not None
    with loop_over_elements(b, *_UNROLL) as (values, store):
        total = ArithExpr(immediate(linear.addend, INT32))
        for value, factor in zip(values, linear.factors, strict=True):
            total = total + value.cast(INT32) * factor
        y = b.let("total", total) >> linear.shift
        store(minimum(maximum(y, params.output.clamp_min), params.output.clamp_max).cast(INT8))


def _fold_product(op: OpCall) -> tuple[FoldedRequantize, list[Array | None]] | None:
    """Return the requantization of the product and the constants, scaled by 2^left."""
    if op.input(0).dtype != INT8 or has_zero_scale(op):
        return None
    points = [per_tensor_quant(op.input(index)).zero_point for index in (0, 1)]
    constants = [_constant(op, index) for index in (0, 1)]
    factors = [
        (_VALUES if constant is None else constant) - point
        for constant, point in zip(constants, points, strict=True)
    ]
    bound = int(np.abs(factors[0]).max() * np.abs(factors[1]).max())
    params = product_requantization(op)
    folded = fold_requantize(params, np.array([-bound]), np.array([bound]))
    if folded is None:
        return None
    return folded, [
        None if constant is None else factor << folded.left[0]
        for constant, factor in zip(constants, factors, strict=True)
    ]


def _product_configs(op: OpCall) -> Sequence[Config]:
    return ({},) if _fold_product(op) is not None else ()


def _build_product(op: OpCall, config: Config, b: Kernel) -> None:
    fold = _fold_product(op)
    assert fold is not None
    folded, constants = fold
    bound = max((int(np.abs(each).max()) for each in constants if each is not None), default=0)
    dtype = INT16 if bound <= INT16.max else INT32
    with _folded_elements(b, folded, constants, dtype) as (loaded, finish):
        values = [
            value.cast(INT32) if constants[index] is not None
            else value.cast(INT32) - per_tensor_quant(op.input(index)).zero_point
            for index, value in enumerate(loaded)
        ]  # fmt: skip
        is_scaled = any(constant is not None for constant in constants)
        right = values[1] if is_scaled else values[1] * (1 << folded.left[0])
        finish(values[0] * right)


@contextmanager
def _folded_elements(
    b: Kernel, folded: FoldedRequantize, constants: Sequence[Array | None], dtype: DType
) -> Iterator[tuple[list[ArithExpr], _Finish]]:
    """Yield the elements of the inputs, or of `constants`, and a function that stores a sum."""
    multiplier, addend = (
        ArithExpr(immediate(value[0], INT32)) for value in (folded.multiplier, folded.addend)
    )
    nudge = ArithExpr(immediate(folded.sign[0], INT32)) if folded.has_sign else None
    sources = [
        b.input(index) if value is None else b.constant("scaled", value, dtype)
        for index, value in enumerate(constants)
    ]
    with loop_over_elements(b, *_UNROLL, sources=sources) as (loaded, store):

        def finish(value: ArithExpr) -> None:
            total = b.let("total", value)
            store(apply_folded_requantize(folded, total, total, multiplier, addend, nudge, INT8))

        yield [
            value if constant is None or constant.size > 1
            else ArithExpr(immediate(int(constant.reshape(-1)[0]), dtype))
            for value, constant in zip(loaded, constants, strict=True)
        ], finish  # fmt: skip


def _schedules(feature: str) -> Iterator[Schedule]:
    for name, sign in (("add", 1), ("sub", -1)):
        yield Schedule(
            f"{feature}.{name}.table", name, frozenset({feature}),
            partial(_sum_configs, sign=sign), partial(_build_sum, sign=sign),
            disable_scheduling=True,
        )  # fmt: skip
    yield Schedule(
        f"{feature}.mul.folded", "mul", frozenset({feature}), _product_configs, _build_product,
        disable_scheduling=True,
    )  # fmt: skip


SCHEDULES = (
    *(item for feature in ("dsp", "mla", "rvm") for item in _schedules(feature)),
    *(
        Schedule(
            f"scalar.{name}.linear", name, frozenset(),
            partial(_linear_configs, sign=sign), partial(_build_linear, sign=sign),
        )
        for name, sign in (("add", 1), ("sub", -1))
    ),
)  # fmt: skip
