"""The skeleton of svdf's integer schedules: three steps on a state in memory.

    1. The state moves down by one element, which drops the oldest of each filter:

           filter 0        filter 1        filter 2
        | a0 a1 a2 a3 | b0 b1 b2 b3 | c0 c1 c2 c3 |
        | a1 a2 a3 b0 | b1 b2 b3 c0 | c1 c2 c3 c3 |

    2. The products of feature weights with x, requantized, become the newest elements,
       a4, b4 and c4:

        | a1 a2 a3 a4 | b1 b2 b3 b4 | c1 c2 c3 c4 |

    3. The elements of a unit, those of its filters, are adjacent. An output is their
       dot product with the unit's time weights, requantized.

The state is usually updated in place (`in_place_kernel` of choose/aliases.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import SvdfAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, maximum, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.ops.svdf import (
    folded_feature_biases,
    folded_unit_biases,
    state_and_output_requant,
    state_zero_point,
    unit_bias,
)
from firmwright.schedules.epilogue import accumulator_bounds
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)
from firmwright.schedules.narrow_requantize import (
    NarrowRequantize,
    narrow_requantize,
)

_STATE = 4
_UNROLL = (8, 7, 6, 5, 4, 3, 2)
_GROUP = 8


UnitStep: TypeAlias = Callable[[ArithExpr, tir.Buffer], None]
"""Emits the outputs of batch n, from the flat state."""
FeatureStep: TypeAlias = Callable[[ArithExpr, tir.Buffer], None]
"""Emits the newest elements of batch n."""


@dataclass(frozen=True, slots=True)
class SvdfSteps:
    """The steps of a family; each function emits one.

    `move_down(b, before, after, count)` stores the elements of the flat state `before`
    from 1 to `count` in `after`, which may be the same memory. `features(n, newest)`
    computes the elements of batch n without the zero point of the state, `filters` with
    padding. `units(n, state)` computes the outputs.
    """

    move_down: Callable[[Kernel, tir.Buffer, tir.Buffer, int], None]
    features: FeatureStep
    units: UnitStep
    filters: int


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """A unit, the first of its elements in the state, and the register of its sum."""

    unit: ArithExpr
    first: ArithExpr
    total: tir.Buffer


def emit_steps(op: OpCall, b: Kernel, steps: SvdfSteps) -> None:
    batch, (filters, length) = op.input(0).shape[0], op.input(2).shape
    kind = op.input(_STATE).dtype
    size = batch * filters * length
    before = b.view("before", b.input(_STATE), 0, (size,), alignment=4)
    state = b.view("state", b.outputs[1], 0, (size,), access="rw", alignment=4)
    steps.move_down(b, before, state, size - 1)
    newest = b.allocate("newest", kind, (steps.filters,))
    offset = state_zero_point(op)
    with b.for_("n", batch) as n:
        steps.features(n, newest)
        last = b.let("last", n * (filters * length) + (length - 1))
        with b.unrolled("f", filters, *_UNROLL) as f:
            value = b.load(newest, [f])
            if offset:
                value = (value.cast(INT32) + offset).cast(kind)
            b.store(state, [last + f * length], value)
        steps.units(n, state)


def move_words(
    b: Kernel,
    before: tir.Buffer,
    after: tir.Buffer,
    count: int,
    *,
    reads_anywhere: bool,
) -> None:
    """Move elements down by one, a word at a time.

    If the core `reads_anywhere`, the address of a word need not be its multiple.
    Otherwise a word is made of two:

        following: | 7 6 5 4 |    word: | 3 2 1 0 |    ->    | 4 3 2 1 |
    """
    bits = after.dtype.bits
    each = UINT32.bits // bits
    words = count // each if reads_anywhere else (count + 1) // each - 1
    if words > 0:
        target = b.view(
            "words", after, 0, (words,), dtype=UINT32, access="w", alignment=4
        )
        if reads_anywhere:
            moved = b.view("moved", before, 1, (words,), dtype=UINT32)
            for i in _in_groups(b, words):
                b.store(target, [i], b.load(moved, [i]))
        else:
            source = b.view(
                "old_words", before, 0, (words + 1,), dtype=UINT32, alignment=4
            )
            word = b.register("word", UINT32, b.load(source, [0]))
            for i in _in_groups(b, words):
                following = b.let("following", b.load(source, [i + 1]))
                high = following << (UINT32.bits - bits)
                b.store(target, [i], (word.value >> bits) + high)
                word.set(following)
    for place in range(max(words, 0) * each, count):
        b.store(after, [place], b.load(before, [place + 1]))


def _in_groups(b: Kernel, count: int) -> Iterator[ArithExpr]:
    """Yield the index of a loop, unrolled, and of each iteration that is left."""
    rest = count % _GROUP
    if count > rest:
        with b.unrolled("i", count - rest, _GROUP) as i:
            yield i
    for place in range(count - rest, count):
        yield ArithExpr(immediate(place, INDEX))


Finish: TypeAlias = Callable[[ArithExpr], ArithExpr]
"""Requantizes a sum."""


def make_finish(
    params: Requantization,
    matrix: Array,
    bias: Array,
    dtype: DType,
    *,
    is_narrow: bool,
) -> Finish:
    """Return the requantization of products with int8; `matrix` are the weights.

    Sums begin at `bias`. If it `is_narrow`, products of 32 bits are preferred.
    """
    low, high = accumulator_bounds(bias, matrix)
    if is_narrow and dtype == INT8:
        narrow = narrow_requantize(
            params, low.min(keepdims=True), high.max(keepdims=True), dtype
        )
        if narrow is not None:
            return _narrow_finish(narrow, dtype)
    folded = fold_requantize(params, low, high)
    if folded is not None:
        return _folded_finish(folded, dtype)
    if _rounds_upward(params):
        return partial(_round_upward, params, dtype)
    return lambda total: params.lower(total, dtype)


def _number(value: int) -> ArithExpr:
    return ArithExpr(immediate(value, INT32))


def _narrow_finish(narrow: NarrowRequantize, dtype: DType) -> Finish:
    columns = narrow.high_factor, narrow.low_factor, narrow.addend
    high, low, addend = (_number(column[0]) for column in columns)
    return lambda total: narrow.apply(total, high, low, addend, dtype)


def _folded_finish(folded: FoldedRequantize, dtype: DType) -> Finish:
    columns = folded.multiplier, folded.addend, folded.sign
    multiplier, addend, sign = (_number(column[0]) for column in columns)

    def finish(total: ArithExpr) -> ArithExpr:
        return apply_folded_requantize(
            folded,
            total << folded.left[0],
            total,
            multiplier,
            addend,
            sign if folded.has_sign else None,
            dtype,
        )

    return finish


def _addend(params: Requantization) -> int:
    """Return the zero point and a half in units of the right shift."""
    return (2 * params.zero_point + 1) << (-params.shifts[0] - 1)


def _rounds_upward(params: Requantization) -> bool:
    """Return whether halves may be rounded up, in 32 bits.

    The definition rounds them away from zero, which differs for numbers below the lower
    limit only.
    """
    reach = params.multipliers[0] + abs(_addend(params)) if params.shifts[0] < 0 else 0
    is_limited = params.clamp_min >= params.zero_point
    return is_limited and params.shifts[0] < 0 and reach <= INT32.max


def _round_upward(params: Requantization, dtype: DType, total: ArithExpr) -> ArithExpr:
    """Return the definition's doubling high product, shifted with the zero point."""
    wide = total.cast(INT64) * ArithExpr(immediate(params.multipliers[0], INT64))
    high = ((wide + (1 << 30)) >> 31).cast(INT32)
    result = (high + _addend(params)) >> -params.shifts[0]
    return minimum(maximum(result, params.clamp_min), params.clamp_max).cast(dtype)


def _copy(b: Kernel, x: tir.Buffer, y: tir.Buffer) -> None:
    """Copy the state, in words if it has whole ones."""
    size = x.elements * x.dtype.size_bytes
    dtype = x.dtype if size % UINT32.size_bytes else UINT32
    count = size // dtype.size_bytes
    source = b.view("old", x, 0, (count,), dtype=dtype, alignment=4)
    target = b.view("copy", y, 0, (count,), dtype=dtype, access="w", alignment=4)
    with b.unrolled("i", count, *_UNROLL) as i:
        b.store(target, [i], b.load(source, [i]))


def move_vectors(
    name: str, b: Kernel, before: tir.Buffer, after: tir.Buffer, count: int
) -> None:
    """Move elements down by one with the intrinsic `name`, which copies upwards.

    It moves them inside of `after`, as accesses of an intrinsic have no known order.
    The copy from `before` vanishes where it is the same memory.
    """
    _copy(b, before, after)
    target, source = b.pointer(after, 0, count, "w"), b.pointer(after, 1, count)
    b.evaluate(name, [target, source, count])


def units_one_by_one(
    op: OpCall,
    b: Kernel,
    multiply: Callable[[tir.Buffer, UnitPlace], None],
    *,
    is_narrow: bool,
) -> UnitStep:
    """Return the third step for products of one unit at a time.

    `multiply(state, place)` adds them to the register of the place. If outputs are
    `is_narrow`, they are requantized by products of 32 bits where these are exact.
    """
    size = unit_size(op)
    units = op.output.shape[1]
    bias = unit_bias(op, b)
    finish = _make_unit_finish(op, is_narrow=is_narrow)

    def emit(n: ArithExpr, state: tir.Buffer) -> None:
        with b.for_("unit", units) as unit:
            total = b.reg("total", INT32)
            start = 0 if bias is None else b.load(bias, [unit]).cast(INT32)
            b.store(total, [0], start)
            first = b.let("first", (n * units + unit) * size)
            multiply(state, UnitPlace(unit, first, total))
            b.store(b.y, [n, unit], finish(b.load(total, [0])))

    return emit


def make_feature_finish(op: OpCall, *, is_narrow: bool = False) -> Finish:
    """Return the requantization of a sum to an element of the state."""
    matrix = op.constant_array(1).astype(np.int64)
    to_state = state_and_output_requant(op)[0]
    kind, bias = op.input(_STATE).dtype, folded_feature_biases(op)
    return make_finish(to_state, matrix, bias, kind, is_narrow=is_narrow)


def _make_unit_finish(op: OpCall, *, is_narrow: bool) -> Finish:
    """Return the requantization of a sum to an output."""
    to_output, kind = state_and_output_requant(op)[1], op.output.dtype
    if op.input(_STATE).dtype != INT8:
        if _rounds_upward(to_output):
            return partial(_round_upward, to_output, kind)
        return lambda total: to_output.lower(total, kind)
    matrix = op.constant_array(2).astype(np.int64).reshape(-1, unit_size(op))
    bias = folded_unit_biases(op)
    return make_finish(to_output, matrix, bias, kind, is_narrow=is_narrow)


def unit_size(op: OpCall) -> int:
    """Return the elements of a unit's filters."""
    return op.attributes(SvdfAttrs).rank * op.input(2).shape[1]


def multiply_elements(
    b: Kernel, weights: tir.Buffer, state: tir.Buffer, place: UnitPlace
) -> None:
    """Add the products of a unit one by one."""
    size = weights.shape[1]
    x = b.view("x", state, place.first, (size,))
    w = b.view("w", weights, place.unit * size, (size,))
    with b.unrolled("i", size, *_UNROLL) as i:
        product = b.load_i32(x, [i]) * b.load_i32(w, [i])
        total = b.load(place.total, [0]).cast(UINT32) + product.cast(UINT32)
        b.store(place.total, [0], total.cast(INT32))
