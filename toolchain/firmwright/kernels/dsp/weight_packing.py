"""How words of the DSP extension hold the weights of pairs of channels.

Each packing is stated once, as expressions: the compiler evaluates them on weights, and
a solver proves that micro-kernels compute the sums of products for all weights that
meet the obligations. A tap of an even and an odd channel takes these bits:

          15           8 7            0
    BYTES   |    odd    |    even    |     two int8
    PAIRED  |       256 odd + even   |     an int16
    INT4                |16 odd + even + 8|  an int8 of two weights of four bits

Where both channels share an element, the accumulator of the odd channel holds a mixed
sum: a power of two times the odd sum, plus the even sum, modulo 2^32. The even sum is
subtracted last, and the requantization includes the power of two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.kernels.evaluation import evaluate_expression
from firmwright.kernels.isa.lanes import (
    constant,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)


@dataclass(frozen=True, slots=True)
class PairPacking:
    """How elements of memory hold the weights of a tap of two channels, as int32.

    With an `odd_shift`, both share the element of (odd << odd_shift) + even +
    even_offset. Weights have `weight_bits`.
    """

    element: DType
    weight_bits: int = 8
    odd_shift: int = 0
    even_offset: int = 0

    @property
    def taps_per_word(self) -> int:
        return 4 // (self.element.size_bytes * (1 if self.odd_shift else 2))

    def elements(self, even: ArithExpr, odd: ArithExpr) -> tuple[ArithExpr, ...]:
        """Return the elements, lowest first; they must fit their type."""
        if not self.odd_shift:
            return even, odd
        return (odd * (1 << self.odd_shift) + even + self.even_offset,)

    def weights(self, *elements: ArithExpr) -> tuple[ArithExpr, ArithExpr]:
        """Return the even and the odd weight of elements."""
        if not self.odd_shift:
            even, odd = elements
            return even, odd
        size = 1 << self.odd_shift
        least = size // 2
        shifted = elements[0] + (least - self.even_offset)
        even = (shifted & constant(size - 1, INT32)) - least
        return even, shift_right(shifted, self.odd_shift)

    def weights_fit(self, even: ArithExpr, odd: ArithExpr) -> ArithExpr:
        """Return the obligation on the weights of a tap: their elements fit."""
        reach = 1 << (self.weight_bits - 1)
        terms: list[ArithExpr] = []
        for weight in (even, odd):
            terms += [weight >= -reach, weight < reach]
        for element in self.elements(even, odd):
            terms += [element >= self.element.min, element <= self.element.max]
        return logical_and(*terms)

    def sum_fits(self, odd: ArithExpr) -> ArithExpr:
        """Return the obligation on sums of odd channels, their bias included."""
        reach = INT32.max >> self.odd_shift
        return logical_and(odd >= -reach, odd <= reach)

    def mixed_sum(self, even: ArithExpr, odd: ArithExpr) -> ArithExpr:
        """Return what the accumulator of the odd channel holds for two sums."""
        if not self.odd_shift:
            return odd
        return wrap_sum(wrap_product(odd, constant(1 << self.odd_shift, INT32)), even)

    def add_to_both(self, mixed: ArithExpr, term: ArithExpr) -> ArithExpr:
        """Return the mixed sum of two sums that `term` is added to."""
        share = term.cast(UINT32) * ((1 << self.odd_shift) + 1)
        return wrap_sum(mixed, share)

    def separate(self, mixed: ArithExpr, even: ArithExpr) -> ArithExpr:
        """Return the odd sum, shifted left by `odd_shift`."""
        return wrap_difference(mixed, even)

    def pack(self, even: Array, odd: Array) -> Array:
        """Return the elements of weights, in a last axis."""
        elements = _evaluate(self.elements, even, odd)
        return np.stack(elements, axis=-1).astype(self.element.np)

    def unpack(self, *elements: Array) -> tuple[Array, Array]:
        """Return the even and the odd weights of elements."""
        even, odd = _evaluate(self.weights, *elements)
        return even, odd

    def do_weights_fit(self, even: Array, odd: Array) -> bool:
        (fit,) = _evaluate(self.weights_fit, even, odd)
        return bool(fit.all())

    def do_sums_fit(self, *bounds: Array) -> bool:
        """Whether the sums of odd channels that are within `bounds` fit."""
        limits = INT32.min, INT32.max
        fit = (_evaluate(self.sum_fits, bound.clip(*limits))[0] for bound in bounds)
        return all(each.all() for each in fit)

    def mix_sums(self, even: Array, odd: Array) -> Array:
        """Return the mixed sums of sums modulo 2^32."""
        (mixed,) = _evaluate(self.mixed_sum, even, odd)
        return mixed


BYTES = PairPacking(INT8)
PAIRED = PairPacking(INT16, odd_shift=8)
INT4 = PairPacking(INT8, weight_bits=4, odd_shift=4, even_offset=8)


@lru_cache(maxsize=64)  # each candidate of a layer asks for it several times
def tap_order(run: int) -> Array:
    """Return the tap of a run of `run` in each [word, lane]; `run` itself is 0.

    SXTB16 widens four bytes k0 to k3 to the words (k0, k2) and (k1, k3). The remainder
    after the last group is one word (k0, k1) or two, (k0, k1) and (k2, 0).
    """
    groups = 4 * np.arange(run // 4)
    pairs = (groups[:, None, None] + [[0, 2], [1, 3]]).reshape(-1, 2).tolist()
    tail = [*range(run // 4 * 4, run), run]
    pairs += [tail[i : i + 2] for i in range(0, len(tail) - 1, 2)]
    order = np.array(pairs)
    order.flags.writeable = False
    return order


@dataclass(frozen=True, slots=True)
class PairedChannels:
    """The layout of blocks of `channels`, of which a word has taps of two channels.

    A block has the words of its channel pairs for two taps, or four if a tap of two
    channels is a byte, then those for the next ones. Taps are in `rows` runs, each in
    the order of `tap_order`. Weights are stored with `offset` added.
    """

    packing: PairPacking
    channels: int
    rows: int
    run: int
    offset: int = 0

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.channels,)

    @property
    def element(self) -> DType:
        return UINT32

    @property
    def taps_per_step(self) -> int:
        return self.packing.taps_per_word

    @property
    def steps(self) -> int:
        """Return the number of steps; each reads a word of every channel pair."""
        return self.rows * len(tap_order(self.run)) // self._column_words

    @property
    def _column_words(self) -> int:
        """Return the words of a column, of two taps each, that a step multiplies."""
        return self.taps_per_step // 2

    def pack(self, weights: Array) -> Array:
        """Return the words [block, step, pair] of weights."""
        stored = (weights + self.offset).astype(np.int8)
        runs = stored.reshape(len(weights), self.rows, self.run)
        padded = np.pad(runs, ((0, 0), (0, 0), (0, 1)))
        lanes = padded[..., tap_order(self.run)]
        shape = -1, self.channels // 2, 2, self.steps, self._column_words, 2
        ordered = lanes.reshape(shape).transpose(_TO_WORDS)
        elements = self.packing.pack(*ordered)
        words = elements.reshape(-1).view(np.uint32)
        return words.reshape(-1, self.steps, self.channels // 2)

    def unpack(self, packed: Array, channels: int) -> Array:
        pairs = self.channels // 2
        elements = np.ascontiguousarray(packed).view(self.packing.element.np)
        shape = -1, self.steps, pairs, 2, self._column_words, self._elements
        by_place = np.moveaxis(elements.reshape(shape), -1, 0)
        ordered = np.stack(self.packing.unpack(*by_place))
        lanes = ordered.transpose(np.argsort(_TO_WORDS))
        order = tap_order(self.run)
        padded = np.zeros((channels, self.rows, self.run + 1), np.int64)
        padded[..., order] = lanes.reshape(channels, self.rows, *order.shape)
        return padded[..., : self.run].reshape(channels, -1) - self.offset

    @property
    def _elements(self) -> int:
        """Return the elements of a tap of two channels."""
        return 1 if self.packing.odd_shift else 2

    def do_weights_fit(self, weights: Array) -> bool:
        stored = weights + self.offset
        return self.packing.do_weights_fit(stored[0::2], stored[1::2])

    def do_sums_fit(self, low: Array, high: Array) -> bool:
        return self.packing.do_sums_fit(low[1::2], high[1::2])


_TO_WORDS = (2, 0, 3, 1, 5, 4)
"""[block, pair, parity, step, column word, lane] -> [parity, block, step, pair, lane,
column word]"""


def _evaluate(
    function: Callable[..., ArithExpr | tuple[ArithExpr, ...]], *arrays: Array
) -> tuple[Array, ...]:
    """Return the values of expressions of int32; wider integers are modulo 2^32."""
    names = [f"v{place}" for place in range(len(arrays))]
    result = function(*(ArithExpr(tir.Var(name, INT32)) for name in names))
    expressions = result if isinstance(result, tuple) else (result,)
    values = {
        name: array.astype(np.int32) for name, array in zip(names, arrays, strict=True)
    }
    return tuple(evaluate_expression(each.expr, values) for each in expressions)
