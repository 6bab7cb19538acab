"""Variants of conformance cases: quantizations and shapes that kernels get wrong.

A variant changes one property of an int8 case, such as the scales of its channels or
its zero points. TFLite defines the results of all variants.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
    float32,
)

_INT8: Final = (-128, 127)
_WITH_WEIGHTS: Final = (
    "conv2d",
    "depthwise_conv2d",
    "fully_connected",
    "transpose_conv",
)
_OPTIONAL_BIAS: Final = _WITH_WEIGHTS[1:]
_WITH_IMAGES: Final = (*_WITH_WEIGHTS[:2], "average_pool2d", "max_pool2d")
_SCALED: Final = (*_WITH_WEIGHTS, "add", "sub", "mul", "batch_matmul")
"""Operators that convert a result to any scale of the output."""
_FIXED_OUTPUT: Final = (
    "l2_normalization",
    "log_softmax",
    "logistic",
    "softmax",
    "tanh",
)
"""Operators whose output has the quantization that TFLite specifies."""
_UNVARIED: Final = ("div", "log", "lstm", "rsqrt", "sqrt", "svdf")
"""Operators that accept some values only, or whose tensors depend on each other."""
_LARGEST_MULTIPLIER: Final = 1.5
_SMALLER: Final = 64.0
"""The factor by which multipliers are smaller in cases with large shifts."""

Quantizations: TypeAlias = Mapping[tuple[float, int], tuple[float, int]]
"""A scale and zero point for each scale and zero point of a case."""


def case_variants(op: str) -> dict[str, list[ConformanceCase]]:
    """Return the variants of an operator's cases by kind, each named CASE_KIND."""
    variants: dict[str, list[ConformanceCase]] = {kind: [] for kind in _VARIANTS}
    if op in _UNVARIED:
        return variants
    for case in filter(_is_int8, conformance_cases(op)):
        for kind, vary in _VARIANTS.items():
            varied = vary(op, case)
            if varied is not None and varied != case:
                variants[kind].append(replace(varied, name=f"{case.name}_{kind}"))
    return variants


def _is_int8(case: ConformanceCase) -> bool:
    tensors = [*_activations(case), *case.outputs]
    kinds = {(tensor.dtype, len(tensor.scales)) for tensor in tensors}
    return kinds == {("int8", 1)} and len(tensors) > len(case.outputs)


def _activations(case: ConformanceCase) -> list[CaseTensor]:
    return [item for item in case.inputs if item is not None and item.has_samples]


def _constants(case: ConformanceCase) -> list[CaseTensor]:
    return [item for item in case.inputs if item is not None and item.data is not None]


# ---- weights -------------------------------------------------------------------------


def _with_equal_channels(op: str, case: ConformanceCase) -> ConformanceCase | None:
    """Give all channels the first one's scale, still listed for each channel."""

    def equal(tensor: CaseTensor, scale: float) -> CaseTensor:
        return replace(tensor, scales=(scale,) * len(tensor.scales))

    return _with_weight_scales(case, equal)


def _with_one_scale(op: str, case: ConformanceCase) -> ConformanceCase | None:
    """Give the whole tensor the first channel's scale."""

    def single(tensor: CaseTensor, scale: float) -> CaseTensor:
        return replace(tensor, scales=(scale,), zero_points=(0,), axis=None)

    return _with_weight_scales(case, single)


def _with_weight_scales(
    case: ConformanceCase, scaled: Callable[[CaseTensor, float], CaseTensor]
) -> ConformanceCase | None:
    """Change the scales of weights with several, and of the bias."""
    (x, *_) = _activations(case)
    inputs: list[CaseTensor | None] = []
    factor = 0.0
    for tensor in case.inputs:
        if tensor is not None and tensor.axis is not None and len(tensor.scales) > 1:
            scale = factor * x.scales[0] if factor else tensor.scales[0]
            factor = factor or scale
            tensor = scaled(tensor, scale)
        inputs.append(tensor)
    return replace(case, inputs=tuple(inputs)) if factor else None


def _without_bias(op: str, case: ConformanceCase) -> ConformanceCase | None:
    last = case.inputs[-1]
    if op not in _OPTIONAL_BIAS or last is None or last.dtype != "int32":
        return None
    # Convolutions then have fewer inputs, fully connected layers an omitted one.
    omitted = (None,) if op == "fully_connected" else ()
    return replace(case, inputs=(*case.inputs[:-1], *omitted))


# ---- quantization of inputs and outputs ----------------------------------------------


def _with_low_zero_points(op: str, case: ConformanceCase) -> ConformanceCase | None:
    return _with_zero_points(op, case, 0)


def _with_high_zero_points(op: str, case: ConformanceCase) -> ConformanceCase | None:
    return _with_zero_points(op, case, 1)


def _with_zero_points(
    op: str, case: ConformanceCase, first: int
) -> ConformanceCase | None:
    """Use the least and the greatest zero point in turn; equal ones stay equal."""
    changes: dict[tuple[float, int], tuple[float, int]] = {}
    outputs = () if op in _FIXED_OUTPUT else case.outputs
    for tensor in (*_activations(case), *outputs):
        key = (tensor.scales[0], tensor.zero_points[0])
        zero_point = _INT8[(first + len(changes)) % 2]
        changes.setdefault(key, (tensor.scales[0], zero_point))
    return _requantized(op, case, changes)


def _with_left_shift(op: str, case: ConformanceCase) -> ConformanceCase | None:
    """Use the output scale with which the largest multiplier exceeds 1."""
    scale = case.outputs[0].scales[0]
    if op not in _WITH_WEIGHTS:
        return _with_output_scale(op, case, scale / _SMALLER)
    (x, *_) = _activations(case)
    bias = case.inputs[-1]
    if (
        bias is not None
        and bias.data is not None
        and np.abs(bias.data).max() >= 1 << 30
    ):
        return None  # A sum would exceed 32 bits.
    weights = max(max(tensor.scales) for tensor in _weights(case))
    return _with_output_scale(op, case, x.scales[0] * weights / _LARGEST_MULTIPLIER)


def _with_right_shift(op: str, case: ConformanceCase) -> ConformanceCase | None:
    return _with_output_scale(op, case, case.outputs[0].scales[0] * _SMALLER)


def _weights(case: ConformanceCase) -> list[CaseTensor]:
    constants = [item for item in _constants(case) if item.scales]
    return [item for item in constants if item.dtype in ("int8", "int4")]


def _with_output_scale(
    op: str, case: ConformanceCase, scale: float
) -> ConformanceCase | None:
    if op not in _SCALED:
        return None
    (y,) = case.outputs
    key = (y.scales[0], y.zero_points[0])
    outputs = (_changed(y, {key: (float32(scale), y.zero_points[0])}),)
    return replace(case, outputs=outputs)


def _requantized(
    op: str, case: ConformanceCase, changes: Quantizations
) -> ConformanceCase:
    """Change inputs, outputs and the constants with an input's quantization."""
    inputs = [item and _changed(item, changes) for item in case.inputs]
    outputs = case.outputs
    if op not in _FIXED_OUTPUT:
        outputs = tuple(_changed(item, changes) for item in outputs)
    return replace(case, inputs=tuple(inputs), outputs=outputs)


def _changed(tensor: CaseTensor, changes: Quantizations) -> CaseTensor:
    if len(tensor.scales) != 1 or tensor.dtype != "int8":
        return tensor
    key = (tensor.scales[0], tensor.zero_points[0])
    scale, zero_point = changes.get(key, key)
    return replace(tensor, scales=(scale,), zero_points=(zero_point,))


# ---- shapes --------------------------------------------------------------------------


def _with_two_images(op: str, case: ConformanceCase) -> ConformanceCase | None:
    """Double the batch of an operator on images."""
    if op not in _WITH_IMAGES:
        return None
    inputs: list[CaseTensor | None] = []
    for tensor in case.inputs:
        is_image = tensor is not None and tensor.has_samples
        inputs.append(_doubled(tensor) if is_image and tensor else tensor)
    return replace(
        case, inputs=tuple(inputs), outputs=tuple(map(_doubled, case.outputs))
    )


def _doubled(tensor: CaseTensor) -> CaseTensor:
    first, *rest = tensor.shape
    return replace(tensor, shape=(2 * first, *rest))


_Vary: TypeAlias = Callable[[str, ConformanceCase], ConformanceCase | None]
_VARIANTS: Final[Mapping[str, _Vary]] = {
    "equal_channels": _with_equal_channels,
    "one_scale": _with_one_scale,
    "no_bias": _without_bias,
    "low_zero_points": _with_low_zero_points,
    "high_zero_points": _with_high_zero_points,
    "left_shift": _with_left_shift,
    "right_shift": _with_right_shift,
    "two_images": _with_two_images,
}
