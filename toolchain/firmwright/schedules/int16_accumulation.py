"""Accumulation of int16 layers in 32-bit chunks, and their epilogue."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, INT32, INT64, UINT8, UINT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.conv2d import bias_of, requantization_of
from firmwright.ops.fully_connected import defined_requantization
from firmwright.ops.int16x8 import ExactScale, requantize_epilogue
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, clamp, per_tensor_quant
from firmwright.schedules.epilogue import accumulator_bounds, make_epilogue
from firmwright.schedules.epilogue_forms import FinishElement

# A sum may need 64 bits, but a product of int16 and int8 takes 23, so more than 500 of
# them fit 32 bits without the bias. Kernels accumulate chunks in 32 bits and add chunks
# and bias in 64. This is exact and takes fewer instructions than 64-bit accumulation
# throughout (SMLALD, VMLALDAVA), which uses two registers per sum.

_INPUT_REACH = -INT16.min


BindChannel = Callable[[Kernel, ArithExpr], FinishElement]


@dataclass(frozen=True, slots=True)
class Int16Accumulation:
    """The bias and epilogue of a layer's sums; `dtype` is the type of a complete sum.

    `bind_wide_channel(b, channel)` returns a function that converts a complete sum, of
    `dtype` with bias, to the output.
    """

    dtype: DType
    bias: tir.Buffer
    bind_wide_channel: BindChannel

    @property
    def is_wide(self) -> bool:
        return self.dtype == INT64

    def start(self, b: Kernel, channel: ArithExpr) -> ArithExpr:
        return (
            ArithExpr(immediate(0, INT32))
            if self.is_wide
            else b.load(self.bias, [channel])
        )

    def bind_channel(self, b: Kernel, channel: ArithExpr) -> FinishElement:
        """Return a function that converts a 32-bit sum (begun with `start`) to the
        output.
        """
        finish = self.bind_wide_channel(b, channel)
        if not self.is_wide:
            return finish
        bias = b.let("channel_bias", b.load(self.bias, [channel]))
        return lambda total: finish(total.cast(INT64) + bias)


def plan_int16_accumulation(b: Kernel, op: OpCall, kernel: Array) -> Int16Accumulation:
    """Plan a layer of int8 or int16 with weights `kernel` [channel, ...].

    Inputs are less their zero point.
    """
    step = (
        defined_requantization(op)
        if op.op == "fully_connected"
        else requantization_of(op)
    )
    bias, kind = bias_of(op, "int32"), op.input(0).dtype
    zero_point = per_tensor_quant(op.input(0)).zero_point
    bounds = accumulator_bounds(
        bias, kernel, kind.min - zero_point, kind.max - zero_point
    )
    reach = np.maximum(*np.abs(bounds))
    dtype = INT64 if reach.max() > INT32.max else INT32
    buffer = b.constant("bias", bias, dtype)
    if dtype == INT32 and isinstance(step, Requantization):
        epilogue = make_epilogue(b, step, bounds, kind, len(kernel))
        return Int16Accumulation(dtype, buffer, epilogue.bind_channel)
    bind = _bind_high_word(b, step, reach)
    if bind is None:
        general = requantize_epilogue(b, step, dtype, op.output.dtype)
        return Int16Accumulation(
            dtype, buffer, lambda _, c: lambda acc: general(acc, c)
        )
    return Int16Accumulation(dtype, buffer, bind)


def _bind_high_word(
    b: Kernel, step: Requantization | ExactScale, reach: Array
) -> BindChannel | None:
    """Return the requantization by the high word of a product, or None if that is not
    exact.

    acc 2^k is multiplied by m 2^j: a sum of 64 bits by a word or, for a factor of 53
    bits, a sum of 32 bits by two words. The high word is y 2^s; the channels differ in
    s if m has too few spare bits. `reach` holds the greatest |acc| of each channel.
    """
    if is_exact := isinstance(step, ExactScale):
        mantissas, exponents = np.frexp(np.array(step.factors))
        multiplier, right = (
            (mantissas * 2.0**53).astype(np.int64),
            53 - exponents.astype(np.int64),
        )
        size, most, limit = 64, 10, INT32.max
    else:
        multiplier, right = np.array(step.multipliers) >> 16, 15 - np.array(step.shifts)
        size, most, limit = 32, 17, UINT32.max
    left = max(size + 1 - most - int(right.min()), 0)
    right, reach = right + left, reach.astype(float) * 2**left
    spare = (
        most
        if is_exact
        else np.minimum(62 - np.ceil(np.log2(reach * multiplier + 1)), most)
    )
    common = max(int(right.max()), size + 1)
    is_common = bool((common - right <= spare).all())
    shift = np.full(right.shape, common) if is_common else np.maximum(right, size + 1)
    factor = multiplier << (shift - right)
    low = (factor & 0xFFFFFFFF ^ 1 << 31) - (1 << 31) if is_exact else 0 * factor
    high = (factor - low) >> (size - 32)
    # Halves round away from zero: negative ones, which are multiples of 2^-32, lose a
    # low unit.
    is_half = is_exact & (
        right - np.log2(np.maximum(multiplier & -multiplier, 1)) <= 32 + left
    )
    fits = (
        (shift - right <= spare).all() and high.max() <= limit and not step.zero_point
    )
    is_beyond = is_exact and reach.max() > INT32.max
    if not fits or is_beyond or is_half.any() != is_half.all():
        return None
    highs = b.constant("multiplier", high, INT32 if is_exact else UINT32)
    lows = b.constant("low", low, INT32) if is_exact else None
    shifts = None if is_common else b.constant("shift", shift - size - 1, UINT8)

    def bind(b: Kernel, channel: ArithExpr) -> FinishElement:
        index = channel if len(high) > 1 else 0
        factor = b.let("multiplier", b.load(highs, [index])).cast(INT64)
        word = b.let("low", b.load(lows, [index])).cast(INT64) if lows else None
        by = b.let("shift", b.load(shifts, [index]).cast(INT32)) if shifts else None

        def finish(acc: ArithExpr) -> ArithExpr:
            shifted = (acc << left).cast(INT64)
            product = shifted * factor
            if word is not None:
                carried = ((shifted * word) >> 32).cast(INT32)
                carried = carried + (acc >> 31) if is_half.all() else carried
                product = product + carried.cast(INT64)
            value, last = (product >> 32).cast(INT32), common - size
            nearest = (value + (1 << (last - 1))) >> last
            scaled = nearest if by is None else ((value >> by) + 1) >> 1
            return clamp(scaled, step.clamp_min, step.clamp_max, INT16)

        return finish

    return bind


def has_32_bit_products(weights: Array) -> bool:
    """Whether the sum of the products of each channel (axis 0) fits 32 bits without the
    bias.
    """
    return _fits(
        np.abs(weights.reshape(len(weights), -1).astype(np.int64)).sum(axis=1)[:, None],
        1,
    )


def longest_dividing_chunk(flat: Array, steps: int) -> int:
    """Return the longest chunk that divides `steps` and has 32-bit sums.

    `flat` holds the weights [channel, tap]; every step has the same number of taps.
    """
    by_step = _by_step(flat, flat.shape[1] // steps)
    divisors = (n for n in range(steps, 1, -1) if steps % n == 0)
    return next((chunk for chunk in divisors if _fits(by_step, chunk)), 1)


def longest_chunk(flat: Array, taps: int) -> int:
    by_step = _by_step(flat, taps)
    steps = by_step.shape[1]
    lengths = (divide_up(steps, chunks) for chunks in range(1, steps + 1))
    return next((chunk for chunk in lengths if _fits(by_step, chunk)), 1)


def _by_step(flat: Array, taps: int) -> Array:
    """Return each step's sum of weight magnitudes; the last step is zero-padded."""
    padded = np.pad(np.abs(flat.astype(np.int64)), ((0, 0), (0, -flat.shape[1] % taps)))
    sums: Array = padded.reshape(len(flat), -1, taps).sum(axis=2)
    return sums


def _fits(by_step: Array, chunk: int) -> bool:
    padded = np.pad(by_step, ((0, 0), (0, -by_step.shape[1] % chunk)))
    reach = padded.reshape(len(by_step), -1, chunk).sum(axis=2).max(initial=0)
    return int(reach) * _INPUT_REACH <= INT32.max
