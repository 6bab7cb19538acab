"""Requantize epilogue: converts accumulators to output elements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import compress
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.dsp.weight_packing import PAIRED
from firmwright.ops import conv2d, fully_connected, requantize
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, any_sum_bounds
from firmwright.schedules.epilogue_forms import (
    AddendForm,
    BoundParameters,
    ChannelParameters,
    ComputedAddend,
    EpilogueForm,
    FinishElement,
    FoldedForm,
    GeneralForm,
    HalfUnitAddend,
    LeftShiftRemains,
    LikeEven,
    MixedFinish,
    NarrowForm,
    OddChannels,
    PlainAddend,
    RightShiftRemains,
    ShiftBack,
    SignedAddend,
    bind_parameters,
    finish_of,
    with_mixed_channels,
)
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    fit_requantize,
    fold_requantize,
)
from firmwright.schedules.narrow_requantize import NarrowRequantize, narrow_requantize

# A table holds the parameters that differ between channels, one row per channel, and a
# second one those that fit a smaller type; parameters common to all channels become
# immediates. If a folded form is proven exact, the epilogue is one multiply-high and
# one shift; otherwise it calls the general requantize intrinsic.


def layer_requantization(op: OpCall) -> Requantization:
    """Return the requantization of an int8 convolution or fully connected layer."""
    if op.op == "fully_connected":
        return fully_connected.requantization_of(op)
    return conv2d.requantization_of(op)


def by_arithmetic(
    b: Kernel, finish: FinishElement, *, is_tile: bool = True
) -> Iterator[FinishElement]:
    """Yield `finish`, or two forms in turn if only some channels need float32.

    The second form, in a branch, overwrites the outputs of the first one; if these may
    overlap the kernel's input (not `is_tile`), the first one is in the other branch.
    """
    if not isinstance(finish, MixedFinish):
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


_HALF = 0x80
"""Half a unit of the first rounding, before the final shift, of 32-bit multipliers."""
_USUAL_SHIFTS = (12, 8, 16, 20)
"""Final shifts to try, in this order, so that layers can share code."""


def fold_zero_point_into_bias(op: OpCall, weights: Array) -> Array:
    """Return the bias less the zero point times the sum of each channel's `weights`."""
    sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    wide = bias_of(op, "int32").astype(np.int64)
    zero_point = requantize.per_tensor_quant(op.input(0)).zero_point
    bias: Array = wide - zero_point * sums
    return bias


def accumulator_bounds(
    bias: Array, weights: Array, low: int = INT8.min, high: int = INT8.max
) -> tuple[Array, Array]:
    """Return the bounds of bias[c] + sum(weights[c, ...] * x) for x in [low, high]."""
    positive, negative = requantize.signed_sums(weights)
    wide = bias.astype(np.int64)
    least = wide + positive * low + negative * high
    greatest = wide + positive * high + negative * low
    return least, greatest


class FormPreference(Enum):
    """Which form of the epilogue to try before the folded and the general one."""

    FITTED = auto()
    """The fitted form."""
    NARROW = auto()
    """Products of 32 bits, then the fitted form."""
    FOLDED = auto()
    """None."""


class AddendSource(Enum):
    """Whether kernels may compute addends from multipliers, by an instruction `clz`."""

    TABLE = auto()
    COMPUTED = auto()
    COMPUTED_WITH_SIGN = auto()
    """Computed for either sign of the accumulator, so that layers can share code."""


BindChannel: TypeAlias = Callable[[ArithExpr, int], FinishElement]
"""Binds the parameters of a table row, given its place in a group of channels."""
BindGroup: TypeAlias = Callable[[Kernel], BindChannel]
"""Binds the parameters that all channels share."""


@dataclass(frozen=True, slots=True)
class RequantizeEpilogue:
    """The epilogue of one layer.

    `factors[c]` scales weights and bias of channel c: 1, or 2^k if the left shift was
    folded into them.
    """

    form: EpilogueForm
    parameters: ChannelParameters
    factors: tuple[int, ...]

    def bind_shared(self, b: Kernel) -> BoundParameters | None:
        """Bind the parameters if all channels share a table row, else return None."""
        if not self.parameters.has_one_row:
            return None
        return bind_parameters(self.form, b, self.parameters, row=0, place=0)

    def bind_group(self, b: Kernel) -> BindChannel:
        """Bind the parameters that all channels share; return how others are bound."""
        return partial(self.bind_channel, b, shared=self.bind_shared(b))

    def bind_channel(
        self,
        b: Kernel,
        index: ArithExpr,
        place: int = 0,
        shared: BoundParameters | None = None,
    ) -> FinishElement:
        """Bind the parameters of channel `index`, number `place` in its block."""
        row = 0 if self.parameters.has_one_row else index
        bound = shared or bind_parameters(self.form, b, self.parameters, row, place)
        return finish_of(self.form, bound, is_odd=place % 2 == 1)


def make_epilogue(
    b: Kernel,
    params: Requantization,
    bounds: tuple[Array, Array],
    dtype: DType,
    rows: int,
    bake: Array | None = None,
    *,
    odd_shift: int = 0,
    preference: FormPreference = FormPreference.FITTED,
    addends: AddendSource = AddendSource.TABLE,
) -> RequantizeEpilogue:
    """Build the epilogue of a layer with accumulators within `bounds`.

    The table has `rows` rows; those beyond the last channel repeat it. With `bake`, the
    weights [channel, tap], weights and bias take the left shift if the weights then fit
    int16. Odd channels pass their accumulator shifted left by `odd_shift`.
    """
    if b.call.any_weights:
        bounds = any_sum_bounds(len(bounds[0]))
    maker = _EpilogueMaker(b, params, bounds, dtype, rows, odd_shift)
    if preference is FormPreference.NARROW:
        narrow = narrow_requantize(params, *bounds, dtype)
        if narrow is not None:
            return maker.narrow(narrow)
    can_fit = params.per_channel or params.rounding is Rounding.FLOAT32
    if can_fit and dtype == INT8 and preference is not FormPreference.FOLDED:
        fitted = fit_requantize(params, *bounds)
        if fitted is not None:
            return maker.fitted(fitted, bake, addends)
    folded = fold_requantize(params, *bounds)
    return maker.general() if folded is None else maker.folded(folded, bake)


@dataclass(frozen=True, slots=True)
class _EpilogueMaker:
    """Makes a layer's epilogue in each form, from arguments of `make_epilogue`."""

    b: Kernel
    params: Requantization
    bounds: tuple[Array, Array]
    dtype: DType
    rows: int
    odd_shift: int

    @property
    def channels(self) -> int:
        return len(self.bounds[0])

    def narrow(self, narrow: NarrowRequantize) -> RequantizeEpilogue:
        values = {
            "high_factor": narrow.high_factor,
            "low_factor": narrow.low_factor,
            "addend": narrow.addend,
        }
        parameters = self._tabulate(values, _varying(values))
        form = NarrowForm(narrow, self.dtype)
        return RequantizeEpilogue(form, parameters, self._no_factors())

    def general(self) -> RequantizeEpilogue:
        values = {"multiplier": self.params.multipliers, "shift": self.params.shifts}
        parameters = self._tabulate(values, _varying(values))
        form = with_mixed_channels(GeneralForm(self.params, self.dtype, self.odd_shift))
        return RequantizeEpilogue(form, parameters, self._no_factors())

    def fitted(
        self, fitted: FoldedRequantize, bake: Array | None, addends: AddendSource
    ) -> RequantizeEpilogue:
        """Make the epilogue of a fitted form; its addends may be computed."""
        folded, factors = self._baked(fitted, bake) or (fitted, self._no_factors())
        base = None if addends is AddendSource.TABLE else _usual_addend_base(fitted)
        if base is None:
            return self._of_folded(folded, factors, self._addend_form(folded))
        if addends is AddendSource.COMPUTED_WITH_SIGN:
            # The sign changes only values that are clamped.
            folded = replace(folded, sign=(1,) * self.channels)
        return self._of_folded(folded, factors, ComputedAddend(base))

    def folded(
        self, folded: FoldedRequantize, bake: Array | None
    ) -> RequantizeEpilogue:
        baked = self._baked(folded, bake)
        if baked is not None:
            folded, factors = baked
        else:
            folded = self._prefer_common_shift(folded)
            factors = self._no_factors()
        return self._of_folded(folded, factors, self._addend_form(folded))

    def _baked(
        self, folded: FoldedRequantize, bake: Array | None
    ) -> tuple[FoldedRequantize, tuple[int, ...]] | None:
        """Return the form without left shifts, which the factors take, or None."""
        if bake is None or not _fits_int16(bake, folded.left):
            return None
        factors = tuple(1 << left for left in folded.left)
        return replace(folded, left=(0,) * self.channels), factors

    def _no_factors(self) -> tuple[int, ...]:
        return (1,) * self.channels

    def _addend_form(self, folded: FoldedRequantize) -> AddendForm:
        if not folded.has_sign:
            return PlainAddend()
        # The half unit in the addend determines the sign, so odd channels need no
        # column for it.
        return HalfUnitAddend() if self.odd_shift else SignedAddend()

    def _of_folded(
        self, folded: FoldedRequantize, factors: tuple[int, ...], addend: AddendForm
    ) -> RequantizeEpilogue:
        values = {"multiplier": folded.multiplier}
        if not isinstance(addend, ComputedAddend):
            values["addend"] = folded.addend
        values["left"] = folded.left
        if isinstance(addend, SignedAddend):
            values["sign"] = folded.sign
        parameters, odd = self._shift_parameters(values, folded.middle)
        form = with_mixed_channels(FoldedForm(folded, self.dtype, odd, addend))
        return RequantizeEpilogue(form, parameters, factors)

    def _shift_parameters(
        self, values: Mapping[str, Sequence[int]], middle: int
    ) -> tuple[ChannelParameters, OddChannels]:
        """Return the parameters, and how odd channels complete their left shift.

        If no left shift of odd channels exceeds `odd_shift`, or none is less, their
        entries in the column `left` are the shift that remains.
        """
        varying = _varying(values)
        odd_shift = self.odd_shift
        odd_lefts = values["left"][1::2] if odd_shift else ()
        if not odd_lefts:
            odd: OddChannels = ShiftBack(odd_shift) if odd_shift else LikeEven()
            return self._tabulate(values, varying, middle), odd
        goes_right = max(odd_lefts) <= odd_shift
        goes_left = min(odd_lefts) >= odd_shift
        if goes_right and not varying and not self.params.per_channel:
            # Layers that differ in these alone can then share their code.
            values = {**values, "right": (odd_shift - values["left"][0],)}
            row = np.array([[items[0] for items in values.values()]], np.int64)
            table = self.b.constant("requant", row, INT32)
            parameters = ChannelParameters({}, table, tuple(values))
            return parameters, RightShiftRemains("right")
        if not goes_right and not goes_left:
            return self._tabulate(values, varying, middle), ShiftBack(odd_shift)
        left = values["left"][0]
        if "left" in varying:
            column = list(values["left"])
            column[1::2] = [abs(odd_shift - each) for each in odd_lefts]
            values = {**values, "left": column}
        parameters = self._tabulate(values, varying, middle)
        if goes_right:
            amount = parameters.amount("left", odd_shift - left)
            return parameters, RightShiftRemains(amount)
        amount = parameters.amount("left", left - odd_shift)
        return parameters, LeftShiftRemains(amount)

    def _tabulate(
        self,
        values: Mapping[str, Sequence[int]],
        varying: Sequence[str],
        middle: int = 0,
    ) -> ChannelParameters:
        """Tabulate the parameters `varying`; addends of a narrow type less `middle`."""
        fixed: dict[str, int] = {}
        for name, items in values.items():
            if name not in varying:
                fixed[name] = items[0]
        if not varying:
            return ChannelParameters(fixed)
        data = np.array([values[name] for name in varying], np.int64).T
        padding = np.repeat(data[-1:], self.rows - self.channels, axis=0)
        rows = np.concatenate([data, padding])
        bases = dict.fromkeys(varying, 0)
        if "addend" in bases:
            bases["addend"] = middle
        table, narrow, is_narrow = _make_tables(self.b, rows, list(bases.values()))
        narrow_columns = tuple(compress(varying, is_narrow))
        for name in narrow_columns:
            fixed[name] = bases[name]
        columns = tuple(name for name in varying if name not in narrow_columns)
        return ChannelParameters(fixed, table, columns, narrow, narrow_columns)

    def _prefer_common_shift(self, minimal: FoldedRequantize) -> FoldedRequantize:
        """Return an equivalent fold with a common shift, if any."""
        odd_shift = self.odd_shift
        for shift in _USUAL_SHIFTS:
            if shift < minimal.shift:
                continue
            folded = fold_requantize(self.params, *self.bounds, shift)
            if folded is None or (any(folded.left) and not any(minimal.left)):
                continue
            odd_lefts = folded.left[1::2]
            if not odd_shift or max(odd_lefts, default=0) <= odd_shift:
                return folded
            is_left_only = min(odd_lefts, default=odd_shift) >= odd_shift
            if odd_shift < PAIRED.odd_shift and is_left_only:
                return folded
        return minimal


def _varying(values: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return the names of the parameters that differ between channels."""
    return tuple(name for name, items in values.items() if len(set(items)) > 1)


def _usual_addend_base(fitted: FoldedRequantize) -> int | None:
    """Return the common part of differing addends if each rest is 0x80 >> clz.

    This is half a unit, which follows from the multiplier.
    """
    if len(set(fitted.addend)) <= 1:
        return None
    middle = fitted.middle
    channels = zip(fitted.multiplier, fitted.addend, fitted.sign, strict=True)
    for multiplier, addend, sign in channels:
        half = _HALF >> (32 - multiplier.bit_length())
        usual_sign = -2 * half if fitted.has_sign else 0
        if addend != middle + half or sign != usual_sign:
            return None
    return middle


def _make_tables(
    b: Kernel, rows: Array, bases: Sequence[int]
) -> tuple[tir.Buffer | None, tir.Buffer | None, Sequence[bool]]:
    """Return an int32 table, one of narrow columns less bases, and which these are."""
    small = rows - bases
    is_narrow = _fits(small, INT16) & (len(rows) > 1)
    if not is_narrow.any():
        return b.constant("requant", rows, INT32), None, is_narrow.tolist()
    small = small[:, is_narrow]
    wide = rows[:, ~is_narrow]
    kind = next(kind for kind in (UINT8, INT8, INT16) if _fits(small, kind).all())
    narrow = b.constant("requant_small", small, kind)
    table = b.constant("requant", wide, INT32) if wide.size else None
    return table, narrow, is_narrow.tolist()


def _fits(values: Array, kind: DType) -> Array:
    return np.asarray(((values >= kind.min) & (values <= kind.max)).all(axis=0))


def _fits_int16(weights: Array, left: tuple[int, ...]) -> bool:
    reach = np.abs(weights.astype(np.int64)).max(axis=1) << np.array(left)
    return int(reach.max(initial=0)) <= INT16.max
