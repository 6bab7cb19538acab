"""fir: a filter with a finite response along axis 1, in float32, without padding.

y[n, k, c] = sum of taps[j] * x[n, k * step + K - 1 - j, c], from the oldest sample
(j = K - 1) to the newest, starting from 0; each product and each sum is rounded.
Inputs: x [N, T, C] and the K constant taps. Semantics: scipy.signal.lfilter, whose
first T - K + 1 results after K - 1 samples these are but for the order of the sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.sensors import DecimatingAttrs
from firmwright.ir.tir.builder import ArithExpr, Register, as_expr
from firmwright.ops.biquads import check_samples
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

_BLOCK = 4
"""Results that are computed at once, so that a tap is loaded once for all."""


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    items, count, channels = check_samples(call)
    taps, step = call.input(1), call.attributes(DecimatingAttrs).step
    if call.constant(1) is None or taps.dtype != FLOAT32 or len(taps.shape) != 1:
        raise NotSupportedError("taps that are not a constant line of float32")
    if not 0 < taps.elements <= count or step < 1:
        what = f"{taps.elements} taps on {count} samples with the step {step}"
        raise NotSupportedError(what)
    results = (count - taps.elements) // step + 1
    return (TensorType((items, results, channels), FLOAT32),)


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, taps = arrays
    results, step = call.output.shape[1], call.attributes(DecimatingAttrs).step
    y = np.zeros(call.output.shape, np.float32)
    with np.errstate(all="ignore"):
        for j, tap in enumerate(taps[::-1]):
            y += x[:, j : j + (results - 1) * step + 1 : step] * tap
    return (y,)


@dataclass(frozen=True, slots=True)
class _Block:
    """Results that are computed at once: `size` from the first sample of `first` on."""

    b: Kernel
    taps: tir.Buffer
    place: tuple[ArithExpr, ArithExpr, ArithExpr]
    size: int
    step: int

    def emit(self) -> None:
        sums = [self.b.register("sum", FLOAT32, 0.0) for _ in range(self.size)]
        if self.step == 1:
            self._slide(sums)
        else:
            self._gather(sums)
        n, first, c = self.place
        for i, total in enumerate(sums):
            self.b.store(self.b.y, [n, first + i, c], total.value)

    def _sample(self, index: ArithExpr) -> ArithExpr:
        n, first, c = self.place
        return self.b.load(self.b.input(0), [n, first * self.step + index, c])

    def _gather(self, sums: Sequence[Register]) -> None:
        """Add the products with each tap, to whose samples the block's step leads."""
        with self.b.for_("j", self.taps.elements) as j:
            tap = self.b.let("tap", self.b.load(self.taps, [j]))
            for i, total in enumerate(sums):
                total.add(self._sample(j + i * self.step) * tap)

    def _slide(self, sums: Sequence[Register]) -> None:
        """Add the same, each sample loaded once; registers are a ring of samples."""
        b, size = self.b, self.size
        ring = [b.register("x", FLOAT32) for _ in range(size)]
        for i in range(size - 1):
            ring[i].set(self._sample(ArithExpr(as_expr(i))))
        rounds, rest = divmod(self.taps.elements, size)
        with b.for_("round", rounds) as turn:
            self._turn(sums, ring, turn * size, size)
        self._turn(sums, ring, ArithExpr(as_expr(rounds * size)), rest)

    def _turn(
        self,
        sums: Sequence[Register],
        ring: Sequence[Register],
        first: ArithExpr,
        count: int,
    ) -> None:
        size = self.size
        for u in range(count):
            tap = self.b.let("tap", self.b.load(self.taps, [first + u]))
            ring[(u + size - 1) % size].set(self._sample(first + (u + size - 1)))
            for i, total in enumerate(sums):
                total.add(ring[(u + i) % size].value * tap)


def _lower(call: OpCall, b: Kernel) -> None:
    items, results, channels = call.output.shape
    constant = call.constant(1)
    assert constant is not None
    taps = b.constant("taps", constant.array()[::-1], FLOAT32)
    blocks, rest = divmod(results, _BLOCK)
    step = call.attributes(DecimatingAttrs).step
    with b.loops("n c", (items, channels)) as (n, c):
        if blocks:
            with b.for_("block", blocks) as block:
                _Block(b, taps, (n, block * _BLOCK, c), _BLOCK, step).emit()
        if rest:
            first = ArithExpr(as_expr(blocks * _BLOCK))
            _Block(b, taps, (n, first, c), rest, step).emit()


def _macs(call: OpCall) -> int:
    return call.output.elements * call.input(1).elements


OPDEF = OpDef("fir", _infer, _reference, _lower, macs=_macs)
