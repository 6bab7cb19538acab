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

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.base.dtypes import INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import SvdfAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.svdf import state_and_output_requant, state_zero_point, unit_bias

_STATE = 4
_UNROLL = (8, 7, 6, 5, 4, 3, 2)


UnitStep: TypeAlias = Callable[[ArithExpr, tir.Buffer], None]
"""Emits the outputs of batch n, from the flat state."""


@dataclass(frozen=True, slots=True)
class SvdfSteps:
    """The steps of a family; each function emits one.

    `move_down(b, before, after, count)` stores the elements of the flat state `before`
    from 1 to `count` in `after`, which may be the same memory. `features(n, newest)`
    computes the elements of batch n without the zero point of the state, `filters` with
    padding. `units(n, state)` computes the outputs.
    """

    move_down: Callable[[Kernel, tir.Buffer, tir.Buffer, int], None]
    features: Callable[[ArithExpr, tir.Buffer], None]
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
            with b.unrolled("i", words, *_UNROLL) as i:
                b.store(target, [i], b.load(moved, [i]))
        else:
            source = b.view(
                "old_words", before, 0, (words + 1,), dtype=UINT32, alignment=4
            )
            word = b.register("word", UINT32, b.load(source, [0]))
            with b.unrolled("i", words, *_UNROLL) as i:
                following = b.let("following", b.load(source, [i + 1]))
                high = following << (UINT32.bits - bits)
                b.store(target, [i], (word.value >> bits) + high)
                word.set(following)
    for place in range(max(words, 0) * each, count):
        b.store(after, [place], b.load(before, [place + 1]))


def move_vectors(
    name: str, b: Kernel, before: tir.Buffer, after: tir.Buffer, count: int
) -> None:
    """Move elements down by one with the intrinsic `name`, which copies upwards.

    It moves them inside of `after`, as accesses of an intrinsic have no known order.
    The copy from `before` vanishes where it is the same memory.
    """
    with b.unrolled("i", count + 1, *_UNROLL) as i:
        b.store(after, [i], b.load(before, [i]))
    target, source = b.pointer(after, 0, count, "w"), b.pointer(after, 1, count)
    b.evaluate(name, [target, source, count])


def units_one_by_one(
    op: OpCall,
    b: Kernel,
    multiply: Callable[[tir.Buffer, UnitPlace], None],
) -> UnitStep:
    """Return the third step for products of one unit at a time.

    `multiply(state, place)` adds them to the register of the place.
    """
    size = unit_size(op)
    units = op.output.shape[1]
    bias = unit_bias(op, b)
    to_output = state_and_output_requant(op)[1]

    def emit(n: ArithExpr, state: tir.Buffer) -> None:
        with b.for_("unit", units) as unit:
            total = b.reg("total", INT32)
            start = 0 if bias is None else b.load(bias, [unit]).cast(INT32)
            b.store(total, [0], start)
            first = b.let("first", (n * units + unit) * size)
            multiply(state, UnitPlace(unit, first, total))
            result = to_output.lower(b.load(total, [0]), op.output.dtype)
            b.store(b.y, [n, unit], result)

    return emit


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
