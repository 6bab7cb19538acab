"""Forms of the requantize epilogue, and the parameters that channels bind for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from firmwright.base.dtypes import INT32, DType
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, requantize_value
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
)
from firmwright.schedules.narrow_requantize import NarrowRequantize

FinishElement = Callable[[ArithExpr], ArithExpr]
BoundParameters: TypeAlias = Mapping[str, ArithExpr]


@dataclass(frozen=True, slots=True)
class ChannelParameters:
    """The parameters of a layer's channels by name.

    Those in `columns` differ between channels and are in `table`, those in
    `narrow_columns` are in the table `narrow` of a smaller type, less their value in
    `fixed`. All channels share the others in `fixed`.
    """

    fixed: Mapping[str, int]
    table: tir.Buffer | None = None
    columns: tuple[str, ...] = ()
    narrow: tir.Buffer | None = None
    narrow_columns: tuple[str, ...] = ()

    @property
    def has_one_row(self) -> bool:
        """Whether all channels share one table row."""
        return self.table is not None and self.table.shape[0] == 1

    def amount(self, name: str, constant: int) -> int | str:
        """Return `name` if the parameter differs between channels, else `constant`."""
        return name if name in (*self.columns, *self.narrow_columns) else constant

    def bind(
        self,
        b: Kernel,
        row: ArithExpr | int,
        place: int,
        offset_names: Mapping[str, str],
    ) -> dict[str, ArithExpr]:
        """Bind the parameters in `row` to variables.

        Their names have the suffix `place`, unless that is 0. `offset_names` names
        entries of the narrow table that are also bound as they are stored.
        """
        suffix = place or ""
        bound: dict[str, ArithExpr] = {}
        for name, constant in self.fixed.items():
            bound[name] = ArithExpr(immediate(constant, INT32))
        for position, name in enumerate(self.columns):
            assert self.table is not None
            bound[name] = b.let(f"{name}{suffix}", b.load(self.table, [row, position]))
        for position, name in enumerate(self.narrow_columns):
            assert self.narrow is not None
            value = b.load(self.narrow, [row, position]).cast(INT32)
            if name in offset_names:
                offset_name = offset_names[name]
                bound[offset_name] = value = b.let(f"{offset_name}{suffix}", value)
            bound[name] = b.let(f"{name}{suffix}", value + self.fixed[name])
        return bound


# ---- how the accumulators of odd channels arrive -------------------------------------


@dataclass(frozen=True, slots=True)
class LikeEven:
    """Accumulators of odd channels arrive like those of even ones."""


@dataclass(frozen=True, slots=True)
class ShiftBack:
    """Accumulators of odd channels arrive shifted left by `count`, which is undone."""

    count: int


@dataclass(frozen=True, slots=True)
class LeftShiftRemains:
    """Odd channels still lack `amount` of the left shift: bits, or their parameter."""

    amount: int | str


@dataclass(frozen=True, slots=True)
class RightShiftRemains:
    """Odd channels exceed the left shift by `amount`: bits, or their parameter."""

    amount: int | str


OddChannels: TypeAlias = LikeEven | ShiftBack | LeftShiftRemains | RightShiftRemains

# ---- where the addend comes from -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlainAddend:
    """The addend is a parameter and the same for accumulators of either sign."""


@dataclass(frozen=True, slots=True)
class SignedAddend:
    """The addend is a parameter; negative accumulators add the parameter `sign`."""


@dataclass(frozen=True, slots=True)
class HalfUnitAddend:
    """The addend is a parameter; negative accumulators take off twice the half unit.

    The half unit is the excess of the addend over the middle.
    """


@dataclass(frozen=True, slots=True)
class ComputedAddend:
    """The addend is `base` plus half a unit, which follows from the multiplier."""

    base: int


AddendForm: TypeAlias = PlainAddend | SignedAddend | HalfUnitAddend | ComputedAddend

# ---- forms ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NarrowForm:
    """Products of 32 bits; parameters `high_factor`, `low_factor` and `addend`."""

    narrow: NarrowRequantize
    dtype: DType

    def finish(self, acc: ArithExpr, bound: BoundParameters) -> ArithExpr:
        return self.narrow.apply(acc, **bound, dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class GeneralForm:
    """The definition; parameters `multiplier` and `shift`.

    Odd channels undo `odd_shift`.
    """

    params: Requantization
    dtype: DType
    odd_shift: int

    def finish(self, acc: ArithExpr, bound: BoundParameters, is_odd: bool) -> ArithExpr:
        if is_odd and self.odd_shift:
            acc = acc >> self.odd_shift
        return requantize_value(
            acc, bound["multiplier"], bound["shift"], self.params, self.dtype
        )


@dataclass(frozen=True, slots=True)
class FoldedForm:
    """One multiply-high and one shift.

    The parameters are `multiplier`, `left`, `addend` and `sign`.
    """

    folded: FoldedRequantize
    dtype: DType
    odd: OddChannels = field(default_factory=LikeEven)
    addend: AddendForm = field(default_factory=PlainAddend)

    def bind(
        self, b: Kernel, parameters: ChannelParameters, row: ArithExpr | int, place: int
    ) -> BoundParameters:
        match self.addend:
            case HalfUnitAddend():
                bound = parameters.bind(b, row, place, {"addend": "half"})
                if "half" not in bound:
                    bound["half"] = bound["addend"] - self.folded.middle
            case ComputedAddend(base):
                bound = parameters.bind(b, row, place, {})
                half = call_intrinsic("half_unit", [bound["multiplier"]], INT32)
                bound["half"] = b.let(f"half{place or ''}", half)
                bound["addend"] = bound["half"] + base
            case PlainAddend() | SignedAddend():
                bound = parameters.bind(b, row, place, {})
        return bound

    def finish(self, acc: ArithExpr, bound: BoundParameters, is_odd: bool) -> ArithExpr:
        if is_odd and isinstance(self.odd, ShiftBack):
            acc = acc >> self.odd.count
        sign: ArithExpr | None = None
        half: ArithExpr | None = None
        match self.addend:
            case SignedAddend():
                sign = bound["sign"]
            case HalfUnitAddend():
                half = bound["half"]
            case ComputedAddend():
                half = bound["half"] if self.folded.has_sign else None
            case PlainAddend():
                pass
        return apply_folded_requantize(
            self.folded,
            shifted=self._shifted(acc, bound, is_odd),
            acc=acc,
            multiplier=bound["multiplier"],
            addend=bound["addend"],
            sign=sign,
            dtype=self.dtype,
            half=half,
        )

    def _shifted(
        self, acc: ArithExpr, bound: BoundParameters, is_odd: bool
    ) -> ArithExpr:
        """Return the accumulator with the whole left shift."""
        match self.odd:
            case LeftShiftRemains(amount) if is_odd:
                return acc << _bits(amount, bound)
            case RightShiftRemains(amount) if is_odd:
                return acc >> _bits(amount, bound)
            case _:
                return acc << bound["left"]


def _bits(amount: int | str, bound: BoundParameters) -> ArithExpr | int:
    return bound[amount] if isinstance(amount, str) else amount


@dataclass(frozen=True, slots=True)
class MixedForm:
    """Odd multipliers need the float32 product of `exact`; others, `rounded_once`.

    Both forms have the same parameters.
    """

    exact: GeneralForm | FoldedForm
    rounded_once: GeneralForm | FoldedForm


EpilogueForm: TypeAlias = NarrowForm | GeneralForm | FoldedForm | MixedForm


def with_mixed_channels(
    form: GeneralForm | FoldedForm,
) -> GeneralForm | FoldedForm | MixedForm:
    """Return the form, or both forms if only some of the channels need float32."""
    match form:
        case GeneralForm(params):
            is_float32 = params.rounding is Rounding.FLOAT32
            if not is_float32 or all(value % 2 for value in params.multipliers):
                return form
            once = replace(params, rounding=Rounding.ONCE)
            return MixedForm(form, replace(form, params=once))
        case FoldedForm(folded):
            if not folded.is_float32 or all(value % 2 for value in folded.multiplier):
                return form
            fitted = replace(folded, is_float32=False)
            return MixedForm(form, replace(form, folded=fitted))


def bind_parameters(
    form: EpilogueForm,
    b: Kernel,
    parameters: ChannelParameters,
    row: ArithExpr | int,
    place: int,
) -> BoundParameters:
    """Bind the parameters of the channel in a table row, number `place` of a block."""
    match form:
        case FoldedForm():
            return form.bind(b, parameters, row, place)
        case MixedForm(exact):
            return bind_parameters(exact, b, parameters, row, place)
        case NarrowForm() | GeneralForm():
            return parameters.bind(b, row, place, {})


@dataclass(frozen=True, slots=True)
class MixedFinish:
    """The epilogue of a channel that needs float32 if the number `flag` is odd."""

    flag: ArithExpr
    general: FinishElement
    fitted: FinishElement

    def __call__(self, acc: ArithExpr) -> ArithExpr:
        return self.general(acc)


def finish_of(
    form: EpilogueForm, bound: BoundParameters, is_odd: bool
) -> FinishElement:
    """Return the function from the accumulator of a channel to its element."""
    match form:
        case NarrowForm():
            return lambda acc: form.finish(acc, bound)
        case GeneralForm() | FoldedForm():
            return lambda acc: form.finish(acc, bound, is_odd)
        case MixedForm(exact, rounded_once):
            return MixedFinish(
                bound["multiplier"],
                general=lambda acc: exact.finish(acc, bound, is_odd),
                fitted=lambda acc: rounded_once.finish(acc, bound, is_odd),
            )
