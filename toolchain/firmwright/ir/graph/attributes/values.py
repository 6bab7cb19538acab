"""Attributes of elementwise operators, of reductions, and of orders."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from firmwright.ir.graph.attributes.base import OpAttrs

ReductionStep: TypeAlias = Literal["add", "mul", "min", "max", "and", "or"]
CumulativeStep: TypeAlias = Literal["add", "mul"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeluAttrs(OpAttrs):
    approximate: bool
    """The approximation by tanh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakyReluAttrs(OpAttrs):
    alpha: float
    """Factor of negative values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxAttrs(OpAttrs):
    beta: float
    """Factor of the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class L2NormalizationAttrs(OpAttrs):
    unsigned: bool = False
    """The model's tensors are uint8, and the results are rounded as for uint8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResponseNormalizationAttrs(OpAttrs):
    """y = x * (bias + alpha * sum of squares) ^ -beta."""

    radius: int
    """Neighboring channels to either side that the sum includes."""
    bias: float
    """Summand of the base."""
    alpha: float
    """Factor of the sum of squares."""
    beta: float
    """Negated exponent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionAttrs(OpAttrs):
    formula: str
    """The result in terms of the inputs `a`, `b`, `c`, ..."""
    perms: tuple[tuple[int, ...], ...] = ()
    """For each input, the axes in the order in which the formula reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionAttrs(ExpressionAttrs):
    step: ReductionStep
    """How the values of the formula are combined."""
    axes: tuple[int, ...]
    """Axes of the formula's values that are combined."""
    keep_dims: bool
    """Combined axes stay, with one element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxesAttrs(OpAttrs):
    """A reduction of whole axes."""

    axes: tuple[int, ...]
    """Axes that are combined."""
    keep_dims: bool
    """Combined axes stay, with one element."""
    float_order: tuple[int, ...] = ()
    """For sums of floats in the order of ONNX Runtime, where each axis was in its
    model.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeAttrs(OpAttrs):
    axis: int
    """Axis along which the values are combined."""
    step: CumulativeStep
    """How two values are combined."""
    exclusive: bool
    """A result lacks the value at its own position."""
    reverse: bool
    """The combination begins at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAttrs(OpAttrs):
    """A search for extreme values along an axis."""

    axis: int
    """Axis in which values are searched."""
    least: bool
    """The least values are searched; otherwise the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgMinMaxAttrs(SearchAttrs):
    last: bool
    """The last of equal values counts; otherwise the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueAttrs(OpAttrs):
    ascending: bool
    """Whether different rows are sorted; else they are in the order of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKAttrs(SearchAttrs):
    k: int
    """Number of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotAttrs(OpAttrs):
    axis: int
    """The new axis."""
    depth: int
    """Length of the new axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedAttrs(OpAttrs):
    """y = clamp((v + window * ((v >> shift) & 1)) >> shift, low, high)."""

    multiplier: int
    """Factor of the first input, or of the product."""
    shift: int
    """Bits that the result lacks."""
    window: int
    """What odd results add before the shift; 1 rounds halves to even."""
    low: int
    """Least result."""
    high: int
    """Greatest result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSumAttrs(FittedAttrs):
    table: tuple[int, ...]
    """Summand for each of the 256 values of the second input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedProductAttrs(FittedAttrs):
    addend: int
    """Summand of the product."""
