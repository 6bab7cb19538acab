"""Requantize epilogue: converts accumulators to output elements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ops import conv2d, fully_connected, requantize
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, any_sum_bounds
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    as_rounding_once,
    fit_requantize,
    fold_requantize,
)
from firmwright.schedules.narrow_requantize import NarrowRequantize, narrow_requantize

# A table holds the parameters that differ between channels, one row per channel, and a second one
# those that fit a smaller type; parameters common to all channels become immediates. If a folded
# form is proven exact, the epilogue is one multiply-high and one shift; otherwise it calls the
# general requantize intrinsic.

FinishElement = Callable[[ArithExpr], ArithExpr]


def layer_requantization(op: OpCall) -> Requantization:
    """Return the requantization of an int8 convolution or fully connected layer."""
    matrix = op.op == "fully_connected"
    return fully_connected.requantization_of(op) if matrix else conv2d.requantization_of(op)


@dataclass(frozen=True, slots=True)
class _MixedFinish:
    """The epilogue of a channel that needs float32 if the number `flag` is odd."""

    flag: ArithExpr
    general: FinishElement
    fitted: FinishElement

    def __call__(self, acc: ArithExpr) -> ArithExpr:
        return self.general(acc)


def by_arithmetic(
    b: Kernel, finish: FinishElement, *, is_tile: bool = True
) -> Iterator[FinishElement]:
    """Yield `finish`, or two forms in turn if only some channels need float32.

    The second form, in a branch, overwrites the outputs of the first one; if these may overlap the
    kernel's input (not `is_tile`), the first one is in the other branch.
    """
    if not isinstance(finish, _MixedFinish):
        yield finish
        return
    needs_float32 = (finish.flag & 1) > 0
    if is_tile:
        yield finish.fitted
    with b.if_(needs_float32):
        yield finish.general
    if not is_tile:
        with b.else_():
            yield finish.fitted


ODD_SHIFT = 8
"""Left shift of odd-channel accumulators in paired-channel micro-kernels."""
_HALF = 0x80
"""Half a unit of the first rounding, before the final shift, for a multiplier of 32 bits."""
_USUAL_SHIFTS = (12, 8, 16, 20)
"""Final shifts to try, in this order, so that layers can share code."""


def fold_zero_point_into_bias(op: OpCall, weights: Array) -> Array:
    """Return the bias less the zero point times the sum of each channel's `weights`."""
    sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    bias: Array = (
        bias_of(op, "int32").astype(np.int64)
        - requantize.per_tensor_quant(op.input(0)).zero_point * sums
    )
    return bias


def accumulator_bounds(
    bias: Array, weights: Array, low: int = INT8.min, high: int = INT8.max
) -> tuple[Array, Array]:
    """Return the bounds of bias[c] + sum(weights[c, ...] * x) for x in [low, high]."""
    positive, negative = requantize.signed_sums(weights)
    wide = bias.astype(np.int64)
    return wide + positive * low + negative * high, wide + positive * high + negative * low


@dataclass(frozen=True, slots=True)
class RequantizeEpilogue:
    """The epilogue of one layer; `columns` names the parameters that differ between channels.

    Those in `narrow` are relative to `fixed`. With `addend_base`, addend and sign are computed.
    `factors[c]` scales weights and bias of channel c: 1, or 2^k if the left shift was folded into
    them. Odd channels pass their accumulator shifted left by `odd_shift`. If no left shift exceeds
    that, `has_odd_right_shift` is set and the table holds a right shift for odd channels; if all
    are as great, `has_odd_left_shift` is set and it holds the remaining left shift.
    """

    params: Requantization
    folded: FoldedRequantize | None
    table: tir.Buffer | None
    columns: tuple[str, ...]
    narrow: tir.Buffer | None
    narrow_columns: tuple[str, ...]
    fixed: Mapping[str, int]
    dtype: DType
    factors: tuple[int, ...]
    odd_shift: int = 0
    has_odd_right_shift: bool = False
    has_odd_left_shift: bool = False
    in_32_bits: NarrowRequantize | None = None
    addend_base: int | None = None

    @property
    def is_mixed(self) -> bool:
        """Whether some channels need float32, and others do not."""
        is_float32 = self.params.rounding is Rounding.FLOAT32
        return is_float32 and any(value % 2 == 0 for value in self.params.multipliers)

    def bind_shared(self, b: Kernel) -> Mapping[str, ArithExpr] | None:
        """Bind the parameters if all channels share one table row; otherwise, return None."""
        return self._bound(b, 0) if self.table is not None and self.table.shape[0] == 1 else None

    def bind_channel(
        self, b: Kernel, index: ArithExpr, place: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> FinishElement:  # fmt: skip
        """Bind the parameters of channel `index`, which is number `place` in its block."""
        is_single = self.table is not None and self.table.shape[0] == 1
        bound = shared or self._bound(b, 0 if is_single else index, place)
        is_odd = self.odd_shift > 0 and place % 2 == 1
        if not self.is_mixed:
            return lambda acc: self._finish(acc, bound, is_odd)
        params = replace(self.params, rounding=Rounding.ONCE)
        fitted = replace(self, params=params, folded=as_rounding_once(self.folded))
        return _MixedFinish(
            bound["multiplier"],
            lambda acc: self._finish(acc, bound, is_odd),
            lambda acc: fitted._finish(acc, bound, is_odd),
        )

    def _bound(self, b: Kernel, row: ArithExpr | int, place: int = 0) -> Mapping[str, ArithExpr]:
        bound = {name: ArithExpr(immediate(value, INT32)) for name, value in self.fixed.items()}
        for position, name in enumerate(self.columns):
            assert self.table is not None
            value = b.load(self.table, [row, position])
            bound[name] = b.let(f"{name}{place or ''}", value)
        for position, name in enumerate(self.narrow_columns):
            assert self.narrow is not None
            value = b.load(self.narrow, [row, position]).cast(INT32)
            if name == "addend" and self.has_half:
                bound["half"] = value = b.let(f"half{place or ''}", value)
            bound[name] = b.let(f"{name}{place or ''}", value + self.fixed[name])
        if self.addend_base is not None:
            value = call_intrinsic("half_unit", [bound["multiplier"]], INT32)
            half = b.let(f"half{place or ''}", value)
            bound |= {"addend": half + self.addend_base, "half": half}
        elif self.has_half and self.folded is not None and "half" not in bound:
            bound["half"] = bound["addend"] - self.folded.middle
        return bound

    @property
    def has_half(self) -> bool:
        is_known = self.odd_shift > 0 or self.addend_base is not None  # from the addend
        return is_known and self.folded is not None and self.folded.has_sign

    def _finish(self, acc: ArithExpr, bound: Mapping[str, ArithExpr], is_odd: bool) -> ArithExpr:
        if self.in_32_bits is not None:
            return self.in_32_bits.apply(acc, **bound, dtype=self.dtype)
        if is_odd and not self.has_odd_right_shift and not self.has_odd_left_shift:
            acc = acc >> self.odd_shift
        if self.folded is None:
            return requantize.requantize_value(
                acc, bound["multiplier"], bound["shift"], self.params, self.dtype
            )
        half = bound["half"] if self.has_half else None
        sign = bound["sign"] if self.folded.has_sign and half is None else None
        has_left_column = "left" in (*self.columns, *self.narrow_columns)
        if is_odd and self.has_odd_left_shift and not has_left_column:
            shifted = acc << (self.fixed["left"] - self.odd_shift)
        elif not (is_odd and self.has_odd_right_shift):
            shifted = acc << bound["left"]
        elif "right" in self.columns:
            shifted = acc >> bound["right"]
        elif has_left_column:
            shifted = acc >> bound["left"]
        else:
            shifted = acc >> (self.odd_shift - self.fixed["left"])
        return apply_folded_requantize(
            self.folded, shifted, acc, bound["multiplier"], bound["addend"], sign, self.dtype, half
        )


def make_epilogue(
    b: Kernel, params: Requantization, bounds: tuple[Array, Array], dtype: DType, rows: int,
    bake: Array | None = None, *, odd_shift: int = 0, may_fit: bool = True,
    in_32_bits: bool = False, has_clz: bool = False, has_common_form: bool = False,
) -> RequantizeEpilogue:  # fmt: skip
    """Build the epilogue of a layer with accumulators within `bounds`.

    The table has `rows` rows; those beyond the last channel repeat it. With `bake`, the weights
    [channel, tap], weights and bias take the left shift if the weights then fit int16. With
    `in_32_bits`, products of 32 bits are preferred; with `has_clz`, addends may be computed.
    """
    low, high = bounds = any_sum_bounds(len(bounds[0])) if b.call.any_weights else bounds
    by_32 = narrow_requantize(params, low, high, dtype) if in_32_bits else None
    may_fit &= by_32 is None and (params.per_channel or params.rounding is Rounding.FLOAT32)
    fitted = fit_requantize(params, low, high) if may_fit and dtype == INT8 else None
    if fitted is not None:
        params = replace(params, rounding=Rounding.ONCE)
    folded = None if by_32 else fitted or fold_requantize(params, low, high)
    channels, factors = len(low), (1,) * len(low)
    if folded is not None and bake is not None and _fits_int16(bake, folded.left):
        factors = tuple(1 << left for left in folded.left)
        folded = replace(folded, left=(0,) * channels)
    elif folded is not None and fitted is None:
        folded = _prefer_common_shift(folded, params, bounds, odd_shift)
    values = _channel_parameters(params, folded, by_32)
    if odd_shift:  # the half unit in the addend determines the sign
        values.pop("sign", None)
    addend_base = _usual_addend_base(fitted) if has_clz and fitted is not None else None
    if addend_base is not None:
        if has_common_form and folded is not None:  # the sign changes only values that are clamped
            folded = replace(folded, sign=(1,) * channels)
        values = {name: values[name] for name in ("multiplier", "left")}
    columns = tuple(name for name, items in values.items() if len(set(items)) > 1)
    fixed = {name: items[0] for name, items in values.items() if name not in columns}
    table, narrow, narrow_columns = None, None, columns[:0]
    lefts = folded.left[1::2] if folded is not None and odd_shift else ()
    has_odd_right_shift = bool(lefts) and max(lefts) <= odd_shift
    has_odd_left_shift = bool(lefts) and min(lefts) >= odd_shift and not has_odd_right_shift
    if not columns and not params.per_channel and has_odd_right_shift:
        # Layers that differ in these alone can then share their code.
        values["right"] = (odd_shift - values["left"][0],)
        columns, fixed = tuple(values), {}
        row = np.array([[items[0] for items in values.values()]], np.int64)
        table = b.constant("requant", row, INT32)
    elif columns:
        data = np.array([values[name] for name in columns], np.int64).T
        if (has_odd_right_shift or has_odd_left_shift) and "left" in columns:
            at = columns.index("left")
            data[1::2, at] = abs(odd_shift - data[1::2, at])
        padded = np.concatenate([data, np.repeat(data[-1:], rows - channels, axis=0)])
        middle = folded.middle if folded is not None else 0
        bases = {name: middle if name == "addend" else 0 for name in columns}
        table, narrow, is_narrow = _make_tables(b, padded, list(bases.values()))
        narrow_columns = tuple(compress(columns, is_narrow))
        fixed |= {name: bases[name] for name in narrow_columns}
        columns = tuple(name for name in columns if name not in narrow_columns)
    return RequantizeEpilogue(
        params, folded, table, columns, narrow, narrow_columns, fixed, dtype, factors, odd_shift,
        has_odd_right_shift, has_odd_left_shift, by_32, addend_base,
    )  # fmt: skip


def _usual_addend_base(fitted: FoldedRequantize) -> int | None:
    """Return the common part of different addends if each rest is the usual half, 0x80 >> clz."""
    middle = fitted.middle
    halves = [_HALF >> (32 - multiplier.bit_length()) for multiplier in fitted.multiplier]
    signs = [-2 * half if fitted.has_sign else 0 for half in halves]
    is_usual = [middle + half for half in halves] == [*fitted.addend] and signs == [*fitted.sign]
    return middle if is_usual and len(set(fitted.addend)) > 1 else None


def _channel_parameters(
    params: Requantization, folded: FoldedRequantize | None, by_32: NarrowRequantize | None
) -> dict[str, tuple[int, ...]]:
    if by_32 is not None:
        return {"coarse": by_32.coarse, "fine": by_32.fine, "addend": by_32.addend}
    if folded is None:
        return {"multiplier": params.multipliers, "shift": params.shifts}
    values = {"multiplier": folded.multiplier, "addend": folded.addend, "left": folded.left}
    return values | ({"sign": folded.sign} if folded.has_sign else {})


def _make_tables(
    b: Kernel, rows: Array, bases: Sequence[int]
) -> tuple[tir.Buffer | None, tir.Buffer | None, Sequence[bool]]:
    """Return a table of int32, one of the other columns less their bases, and which these are."""
    small = rows - bases
    is_narrow = _fits(small, INT16) & (len(rows) > 1)
    if not is_narrow.any():
        return b.constant("requant", rows, INT32), None, is_narrow.tolist()
    small, wide = small[:, is_narrow], rows[:, ~is_narrow]
    kind = next(kind for kind in (UINT8, INT8, INT16) if _fits(small, kind).all())
    narrow = b.constant("requant_small", small, kind)
    table = b.constant("requant", wide, INT32) if wide.size else None
    return table, narrow, is_narrow.tolist()


def _fits(values: Array, kind: DType) -> Array:
    return np.asarray(((values >= kind.min) & (values <= kind.max)).all(axis=0))


def _prefer_common_shift(
    minimal: FoldedRequantize, params: Requantization, bounds: tuple[Array, Array], odd_shift: int
) -> FoldedRequantize:
    """Return an equivalent fold with a common shift, if any."""
    for shift in _USUAL_SHIFTS:
        folded = fold_requantize(params, *bounds, shift) if shift >= minimal.shift else None
        if folded is None or (any(folded.left) and not any(minimal.left)):
            continue
        lefts = folded.left[1::2]
        is_reduced = odd_shift < ODD_SHIFT and min(lefts, default=odd_shift) >= odd_shift
        if not odd_shift or is_reduced or max(lefts, default=0) <= odd_shift:
            return folded
    return minimal


def _fits_int16(weights: Array, left: tuple[int, ...]) -> bool:
    reach = np.abs(weights.astype(np.int64)).max(axis=1) << np.array(left)
    return int(reach.max(initial=0)) <= INT16.max
