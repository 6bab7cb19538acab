"""Conformance cases: one operator with its tensors, described as in a TFLite model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from firmwright.base.dtypes import Array
from firmwright.ir.graph.opdef import NumericsProfile

BOTH_PROFILES: tuple[NumericsProfile, ...] = ("litert", "tflm")
LITERT: tuple[NumericsProfile, ...] = ("litert",)
TFLM: tuple[NumericsProfile, ...] = ("tflm",)


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor of a conformance case; constant if `data` is set.

    `is_state` marks a variable tensor, which the operator updates for the next run. `value_range`
    is the minimum and maximum of sampled inputs, for operators that do not accept every value, such
    as indices and divisors.
    """

    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int | None = None
    data: Array | None = None
    is_state: bool = False
    value_range: tuple[int, int] | None = None

    @property
    def has_samples(self) -> bool:
        """Whether the tensor is an input with values that change between samples."""
        return self.data is None and not self.is_state


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One operator of a TFLite model with its tensors and options.

    `builtin` is the TFLite operator name and `options` its decoded options in snake_case. `oracles`
    are the profiles with a reference runtime that can run the case. `intermediates` are tensors
    that the format requires; they have no values, only a quantization.
    """

    name: str
    builtin: str
    inputs: tuple[CaseTensor | None, ...]
    outputs: tuple[CaseTensor, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES
    intermediates: tuple[CaseTensor, ...] = ()


CaseTable: TypeAlias = Mapping[str, Callable[[], Iterator[ConformanceCase]]]
"""Operator name -> function that generates its cases."""
