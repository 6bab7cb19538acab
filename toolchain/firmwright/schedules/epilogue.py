"""From accumulator to output element: the requantise step as schedules emit it.

One table of per-channel parameters, a row a channel, holds only what differs between channels;
what is the same for all becomes an immediate. Where `folded_requant` finds its proof the step is
one multiply-high and one shift, else the general intrinsic of the default lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT16, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, requantize_value
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)

FinishElement = Callable[[ArithExpr], ArithExpr]

_BORROWED = 8
"""Bits that the accumulators of odd channels stand too high in a borrowing block."""
_USUAL_SHIFTS = (12, 8, 16, 20)
"""Tried in this order as the last shift of a layer."""


def accumulator_bounds(bias: Array, weights: Array, low: int, high: int) -> tuple[Array, Array]:
    """Least and greatest value of bias[c] + sum of weights[c, ...] * x for x in [low, high]."""
    flat = weights.reshape(len(weights), -1)
    positive = np.maximum(flat, 0).sum(axis=1, dtype=np.int64)
    negative = np.minimum(flat, 0).sum(axis=1, dtype=np.int64)
    wide = bias.astype(np.int64)
    return wide + positive * low + negative * high, wide + positive * high + negative * low


@dataclass(frozen=True, slots=True)
class RequantizeEpilogue:
    """The step for one layer; `columns` are the parameters that differ between channels.

    `factors[c]` is what weights and bias of channel c must be multiplied with: 1, or 2^k where the
    step's left shift was baked into them. With `borrows`, odd channels hand in 256 times their
    accumulator; where every left shift is 8 or less, `borrowed_right` holds, and what the table
    has of them is the right shift that takes its place.
    """

    params: Requantization
    folded: FoldedRequantize | None
    table: tir.Buffer | None
    columns: tuple[str, ...]
    fixed: Mapping[str, int]
    dtype: DType
    factors: tuple[int, ...]
    borrows: bool = False
    borrowed_right: bool = False

    @contextmanager
    def shared(self, b: Kernel) -> Iterator[Mapping[str, ArithExpr] | None]:
        """Binds the parameters that serve every channel, for `channel`; None where each has own."""
        if self.table is None or self.table.shape[0] > 1:
            yield None
            return
        with ExitStack() as stack:
            yield self._bound(b, stack, 0)

    @contextmanager
    def channel(
        self,
        b: Kernel,
        index: ArithExpr,
        parity: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> Iterator[FinishElement]:
        """Binds the parameters of channel `index`; yields accumulator -> output element."""
        with ExitStack() as stack:
            is_single = self.table is not None and self.table.shape[0] == 1
            bound = shared or self._bound(b, stack, 0 if is_single else index)
            yield lambda acc: self._finish(acc, bound, self.borrows and parity == 1)

    def _bound(self, b: Kernel, stack: ExitStack, row: ArithExpr | int) -> Mapping[str, ArithExpr]:
        bound = {name: ArithExpr(immediate(value, INT32)) for name, value in self.fixed.items()}
        for position, name in enumerate(self.columns):
            assert self.table is not None
            value = b.load(self.table, [row, position])
            bound[name] = stack.enter_context(b.let(name, value))
        return bound

    def _finish(
        self, acc: ArithExpr, bound: Mapping[str, ArithExpr], is_borrowed: bool
    ) -> ArithExpr:
        if is_borrowed and not self.borrowed_right:
            acc = acc >> _BORROWED
        if self.folded is None:
            return requantize_value(
                acc, bound["multiplier"], bound["shift"], self.params, self.dtype
            )
        sign = bound["sign"] if self.folded.has_sign else None
        if not (is_borrowed and self.borrowed_right):
            shifted = acc << bound["left"]
        elif "right" in self.columns:
            shifted = acc >> bound["right"]
        elif "left" in self.columns:
            shifted = acc >> bound["left"]
        else:
            shifted = acc >> (_BORROWED - self.fixed["left"])
        return apply_folded_requantize(
            self.folded, shifted, acc, bound["multiplier"], bound["addend"], sign, self.dtype
        )


def make_epilogue(
    b: Kernel,
    params: Requantization,
    bounds: tuple[Array, Array],
    dtype: DType,
    rows: int,
    bake: Array | None = None,
    *,
    borrows: bool = False,
) -> RequantizeEpilogue:
    """The epilogue of a layer whose accumulators lie within `bounds`; the table has `rows` rows.

    Rows beyond the channels (padding of a register block) repeat the last channel. With `bake`,
    the weights [channel, tap] that the schedule keeps as int16, the left shift is baked into
    weights and bias if they have room for it.
    """
    low, high = bounds
    folded = fold_requantize(params, low, high)
    channels = len(low)
    factors = (1,) * channels
    if folded is not None and bake is not None and _fits_int16(bake, folded.left):
        factors = tuple(1 << left for left in folded.left)
        folded = replace(folded, left=(0,) * channels)
    elif folded is not None:
        folded = _prefer_common_shift(folded, params, bounds, borrows=borrows)
    if folded is None:
        values = {"multiplier": params.multipliers, "shift": params.shifts}
    else:
        values = {
            "multiplier": folded.multiplier,
            "addend": folded.addend,
            "left": folded.left,
        } | ({"sign": folded.sign} if folded.has_sign else {})
    columns = tuple(name for name, items in values.items() if len(set(items)) > 1)
    fixed = {name: items[0] for name, items in values.items() if name not in columns}
    table = None
    borrowed_right = (
        borrows and folded is not None and max(folded.left[1::2], default=0) <= _BORROWED
    )
    if not columns and not params.per_channel and borrowed_right:
        # Layers that differ in these alone can then share their code.
        values["right"] = (_BORROWED - values["left"][0],)
        columns, fixed = tuple(values), {}
        row = np.array([[items[0] for items in values.values()]], np.int64)
        table = b.constant("requant", row, INT32)
    elif columns:
        data = np.array([values[name] for name in columns], np.int64).T
        if borrowed_right and "left" in columns:
            at = columns.index("left")
            data[1::2, at] = _BORROWED - data[1::2, at]
        padded = np.concatenate([data, np.repeat(data[-1:], rows - channels, axis=0)])
        table = b.constant("requant", padded, INT32)
    return RequantizeEpilogue(
        params, folded, table, columns, fixed, dtype, factors, borrows, borrowed_right
    )


def _prefer_common_shift(
    minimal: FoldedRequantize, params: Requantization, bounds: tuple[Array, Array], *, borrows: bool
) -> FoldedRequantize:
    """The same with a shift that most layers can have, so that they can share their code."""
    for shift in _USUAL_SHIFTS:
        folded = fold_requantize(params, *bounds, shift) if shift >= minimal.shift else None
        if folded is not None and not (borrows and max(folded.left[1::2], default=0) > _BORROWED):
            return folded
    return minimal


def _fits_int16(weights: Array, left: tuple[int, ...]) -> bool:
    reach = np.abs(weights.astype(np.int64)).max(axis=1) << np.array(left)
    return int(reach.max(initial=0)) <= INT16.max
