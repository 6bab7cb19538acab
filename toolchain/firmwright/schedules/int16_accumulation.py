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
        if self.is_wide:
            return ArithExpr(immediate(0, INT32))
        return b.load(self.bias, [channel])

    def bind_channel(self, b: Kernel, channel: ArithExpr) -> FinishElement:
        """Return a function from a 32-bit sum (begun with `start`) to the output."""
        finish = self.bind_wide_channel(b, channel)
        if not self.is_wide:
            return finish
        bias = b.let("channel_bias", b.load(self.bias, [channel]))
        return lambda total: finish(total.cast(INT64) + bias)


def plan_int16_accumulation(b: Kernel, op: OpCall, kernel: Array) -> Int16Accumulation:
    """Plan a layer of int8 or int16 with weights `kernel` [channel, ...].

    Inputs are less their zero point.
    """
    is_matrix = op.op == "fully_connected"
    step = defined_requantization(op) if is_matrix else requantization_of(op)
    bias = bias_of(op, "int32")
    kind = op.input(0).dtype
    zero_point = per_tensor_quant(op.input(0)).zero_point
    low = kind.min - zero_point
    high = kind.max - zero_point
    bounds = accumulator_bounds(bias, kernel, low, high)
    reach = np.maximum(*np.abs(bounds))
    dtype = INT64 if reach.max() > INT32.max else INT32
    buffer = b.constant("bias", bias, dtype)
    if dtype == INT32 and isinstance(step, Requantization):
        epilogue = make_epilogue(b, step, bounds, kind, len(kernel))
        return Int16Accumulation(dtype, buffer, epilogue.bind_channel)
    bind = _bind_high_word(b, step, reach)
    if bind is not None:
        return Int16Accumulation(dtype, buffer, bind)
    general = requantize_epilogue(b, step, dtype, op.output.dtype)
    return Int16Accumulation(dtype, buffer, lambda _, c: lambda acc: general(acc, c))


@dataclass(frozen=True, slots=True)
class HighWordForm:
    """A requantization by the high word of (acc << left) times a factor.

    The factor of a channel is `high` or, if it takes two words, 2^32 `high` + `low`.
    The high word is then shifted right by the channel's number in `shift` + 1, or by
    `common_shift` if `shift` is None. If `rounds_away`, negative products lose a unit.
    """

    left: int
    high: Array
    low: Array | None
    shift: Array | None
    common_shift: int
    rounds_away: bool


def _bind_high_word(
    b: Kernel, step: Requantization | ExactScale, reach: Array
) -> BindChannel | None:
    """Return the requantization by the high word of a product, if that is exact."""
    form = fit_high_word(step, reach)
    if form is None:
        return None
    has_low = form.low is not None
    highs = b.constant("multiplier", form.high, INT32 if has_low else UINT32)
    lows = None if form.low is None else b.constant("low", form.low, INT32)
    shifts = None if form.shift is None else b.constant("shift", form.shift, UINT8)

    def bind(b: Kernel, channel: ArithExpr) -> FinishElement:
        index = channel if len(form.high) > 1 else 0
        factor = b.let("multiplier", b.load(highs, [index])).cast(INT64)
        word: ArithExpr | None = None
        if lows is not None:
            word = b.let("low", b.load(lows, [index])).cast(INT64)
        by: ArithExpr | None = None
        if shifts is not None:
            by = b.let("shift", b.load(shifts, [index]).cast(INT32))

        def finish(acc: ArithExpr) -> ArithExpr:
            shifted = (acc << form.left).cast(INT64)
            product = shifted * factor
            if word is not None:
                carried = ((shifted * word) >> 32).cast(INT32)
                if form.rounds_away:
                    carried = carried + (acc >> 31)
                product = product + carried.cast(INT64)
            value = (product >> 32).cast(INT32)
            last = form.common_shift
            nearest = (value + (1 << (last - 1))) >> last
            scaled = nearest if by is None else ((value >> by) + 1) >> 1
            return clamp(scaled, step.clamp_min, step.clamp_max, INT16)

        return finish

    return bind


def fit_high_word(
    step: Requantization | ExactScale, reach: Array
) -> HighWordForm | None:
    """Return the form by the high word of a product, or None if that is not exact.

    acc 2^k is multiplied by m 2^j: a sum of 64 bits by a word or, for a factor of 53
    bits, a sum of 32 bits by two words. The high word is y 2^s; the channels differ in
    s if m has too few spare bits. `reach` holds the greatest |acc| of each channel.
    """
    if is_exact := isinstance(step, ExactScale):
        mantissas, exponents = np.frexp(np.array(step.factors))
        multiplier = (mantissas * 2.0**53).astype(np.int64)
        right = 53 - exponents.astype(np.int64)
        size, most, limit = 64, 10, INT32.max
    else:
        multiplier = np.array(step.multipliers) >> 16
        right = 15 - np.array(step.shifts)
        size, most, limit = 32, 17, UINT32.max
    left = max(size + 1 - most - int(right.min()), 0)
    right = right + left
    reach = reach.astype(float) * 2**left
    spare: int | Array = most
    if not is_exact:
        spare = np.minimum(62 - np.ceil(np.log2(reach * multiplier + 1)), most)
    common = max(int(right.max()), size + 1)
    is_common = bool((common - right <= spare).all())
    shift = np.maximum(right, size + 1)
    if is_common:
        shift = np.full(right.shape, common)
    factor = multiplier << (shift - right)
    # The low word is signed, so that the high word takes up its sign.
    low = (factor & 0xFFFFFFFF ^ 1 << 31) - (1 << 31) if is_exact else 0 * factor
    high = (factor - low) >> (size - 32)
    # Halves round away from zero: negative ones, which are multiples of 2^-32, lose a
    # low unit.
    low_zeros = np.log2(np.maximum(multiplier & -multiplier, 1))
    is_half = is_exact & (right - low_zeros <= 32 + left)
    has_spare_bits = (shift - right <= spare).all()
    fits = has_spare_bits and high.max() <= limit and not step.zero_point
    is_beyond = is_exact and reach.max() > INT32.max
    if not fits or is_beyond or is_half.any() != is_half.all():
        return None
    return HighWordForm(
        left=left,
        high=high,
        low=low if is_exact else None,
        shift=None if is_common else shift - size - 1,
        common_shift=common - size,
        rounds_away=bool(is_half.all()),
    )


def has_32_bit_products(weights: Array) -> bool:
    """Whether the sum of each channel's products (axis 0) fits 32 bits without bias."""
    flat = np.abs(weights.reshape(len(weights), -1).astype(np.int64))
    return _fits(flat.sum(axis=1)[:, None], 1)


def longest_dividing_chunk(flat: Array, steps: int) -> int:
    """Return the longest chunk that divides `steps` and has 32-bit sums.

    `flat` holds the weights [channel, tap]; every step has the same number of taps.
    """
    by_step = _by_step(flat, flat.shape[1] // steps)
    for chunk in range(steps, 1, -1):
        if steps % chunk == 0 and _fits(by_step, chunk):
            return chunk
    return 1


def longest_chunk(flat: Array, taps: int) -> int:
    by_step = _by_step(flat, taps)
    steps = by_step.shape[1]
    for chunks in range(1, steps + 1):
        chunk = divide_up(steps, chunks)
        if _fits(by_step, chunk):
            return chunk
    return 1


def _by_step(flat: Array, taps: int) -> Array:
    """Return each step's sum of weight magnitudes; the last step is zero-padded."""
    magnitudes = np.abs(flat.astype(np.int64))
    padded = np.pad(magnitudes, ((0, 0), (0, -flat.shape[1] % taps)))
    sums: Array = padded.reshape(len(flat), -1, taps).sum(axis=2)
    return sums


def _fits(by_step: Array, chunk: int) -> bool:
    padded = np.pad(by_step, ((0, 0), (0, -by_step.shape[1] % chunk)))
    reach = padded.reshape(len(by_step), -1, chunk).sum(axis=2).max(initial=0)
    return int(reach) * _INPUT_REACH <= INT32.max
