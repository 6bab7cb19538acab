"""Conformance cases: one operator with its tensors, described as in a TFLite model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir.graph.opdef import NumericsProfile

Profiles: TypeAlias = tuple[NumericsProfile, ...]
BOTH_PROFILES: Profiles = ("litert", "tflm")


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor of a conformance case; constant if `data` is set.

    `is_state` marks a variable tensor, which the operator updates. `value_range` is the minimum and
    maximum of sampled inputs, such as indices and divisors.
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
        """Whether the tensor is an input that takes new values in each sample."""
        return self.data is None and not self.is_state


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One operator of a TFLite model with its tensors and options.

    `builtin` is the TFLite operator name and `options` its decoded options in snake_case. `oracles`
    are the profiles with a reference runtime that can run the case. `intermediates` are tensors
    with a quantization but no values.
    """

    name: str
    builtin: str
    inputs: tuple[CaseTensor | None, ...]
    outputs: tuple[CaseTensor, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    oracles: Profiles = BOTH_PROFILES
    intermediates: tuple[CaseTensor, ...] = ()


CaseTable: TypeAlias = Mapping[str, Callable[[], Iterator[ConformanceCase]]]
"""Operator name -> function that generates its cases."""


def float32(value: float) -> float:
    return float(np.float32(value))


def quantized(shape: Sequence[int], dtype: str, scale: float, zero_point: int = 0) -> CaseTensor:
    """Return a tensor with one scale, which is rounded to float32."""
    return CaseTensor(tuple(shape), dtype, (float32(scale),), (zero_point,))


def constant(data: Array, scales: tuple[float, ...] = (), axis: int | None = None) -> CaseTensor:
    """Return a constant with zero points 0; it is not quantized if `scales` is empty."""
    shape = tuple(int(n) for n in data.shape)
    return CaseTensor(shape, data.dtype.name, scales, (0,) * len(scales), axis, data)


def int_vector(*values: int) -> CaseTensor:
    return constant(np.array(values, np.int32))
