"""Attributes of operators on samples of sensors."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from firmwright.ir.graph.attributes.base import OpAttrs

StatisticName: TypeAlias = Literal[
    "mean",
    "rms",
    "standard_deviation",
    "minimum",
    "maximum",
    "range",
    "peak",
    "mean_absolute",
    "path",
    "zero_crossings",
    "mean_crossings",
    "skewness",
    "kurtosis",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimatingAttrs(OpAttrs):
    step: int = 1
    """The first of `step` filtered samples is a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatisticsAttrs(OpAttrs):
    statistics: tuple[StatisticName, ...]
    """The statistics in the order of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPowersAttrs(OpAttrs):
    first: tuple[int, ...]
    """The first bin of each band."""
    end: tuple[int, ...]
    """The bin after each band."""
    factor: float
    """Factor of the sums, a float32."""
