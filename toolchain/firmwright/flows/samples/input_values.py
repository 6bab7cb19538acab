"""A user's arrays as a model's inputs: real values are quantized, integers are not.

Floats for a quantized input are divided by its scale in float32, rounded, shifted by
the zero point and saturated, as TFLite's QUANTIZE and ONNX's QuantizeLinear do.
Integers must fit in the input's type. Nothing else is converted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.ir.graph.evaluate import numerics_of
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.ir.module import IoTensor, IRModule
from firmwright.report.evaluation import format_share

_FEW_LEVELS = {8: 64, 16: 16}
"""Fewer levels than these are mentioned, by the input's width in bits.

Sounds of 16 bits are often quiet; but real values that were cast to integers use very
few levels.
"""
_INTERIOR = 16
"""With this many levels on both sides, a zero point suggests reals of both signs."""
_MANY_VALUES = 32
"""Fewer values than this may use few levels."""


class HalfRounding(Enum):
    """The direction in which a quotient halfway between two integers is rounded."""

    AWAY_FROM_ZERO = "away"
    TO_EVEN = "even"


def half_rounding(module: IRModule) -> HalfRounding:
    """Return how the model's own runtime quantizes."""
    is_onnx = numerics_of(module) == "onnx"
    return HalfRounding.TO_EVEN if is_onnx else HalfRounding.AWAY_FROM_ZERO


@dataclass(frozen=True, slots=True)
class LevelUse:
    """The use of a quantized input's range by `count` values, of which some saturated.

    `reals` are the smallest and largest value before quantization, None for integers.
    """

    count: int
    saturated: int
    low: int
    high: int
    reals: tuple[float, float] | None


def convert_values(
    values: Array, tensor: IoTensor, rounding: HalfRounding, where: str
) -> tuple[Array, LevelUse | None]:
    """Return the values as the input's type, and their use of a quantized range.

    Raises:
        UsageError: the values have another kind, do not fit, or are not numbers.
    """
    dtype, quantization = tensor.type.dtype, tensor.type.quantization
    is_quantized = quantization is not None and not quantization.per_channel
    if dtype.computed_as and values.dtype == np.dtype((np.void, dtype.size_bytes)):
        # The file of an array of ml_dtypes has only the size of its elements.
        values = values.view(dtype.np)
    if values.dtype == dtype.np:
        return values, _level_use(values) if is_quantized and values.size else None
    match values.dtype.kind:
        case "f" if dtype.has_fractions:
            return _narrowed(values, tensor, where), None
        case "f" if is_quantized and values.size:
            assert quantization is not None
            return _quantized(values, tensor, quantization, rounding, where)
        case "i" | "u":
            whole = _whole(values, tensor, where)
            return whole, _level_use(whole) if is_quantized and whole.size else None
    hint = f"convert the array to {dtype.np}"
    hint += ", or to float32 with its real values." if is_quantized else "."
    what = f"{tensor.name} is {values.dtype}; the model needs {dtype.np}."
    raise UsageError(what, where=where, hint=hint)


def _narrowed(values: Array, tensor: IoTensor, where: str) -> Array:
    """Return floats in the input's type; UsageError if finite ones do not fit."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(tensor.type.dtype.np)
    if not np.array_equal(np.isfinite(narrow), np.isfinite(values)):
        kind = tensor.type.dtype.np
        what = f"{tensor.name} has values that are too large for {kind}."
        raise UsageError(what, where=where, hint="check the preprocessing.")
    return narrow


def _whole(values: Array, tensor: IoTensor, where: str) -> Array:
    """Return integers in the input's type; UsageError if they do not fit."""
    dtype = tensor.type.dtype
    with np.errstate(invalid="ignore"):
        converted = values.astype(dtype.np)
        outside = converted.astype(values.dtype) != values
    fits = True
    if dtype.has_fractions or dtype.np.kind == "b":
        fits = not outside.any()
    elif values.size:
        low, high = int(values.min()), int(values.max())
        fits = dtype.min <= low <= high <= dtype.max
    if fits:
        return converted
    what = (
        f"{tensor.name} is {values.dtype} with values from {values.min()} to "
        f"{values.max()}; the model needs {dtype.np}."
    )
    hint = f"convert the array to {dtype.np}, with its values in that range."
    if tensor.type.quantization is not None:
        hint += " Real values, as floats, are quantized."
    raise UsageError(what, where=where, hint=hint)


def _quantized(
    values: Array,
    tensor: IoTensor,
    quantization: Quantization,
    rounding: HalfRounding,
    where: str,
) -> tuple[Array, LevelUse]:
    """Return real values as levels of the input, and their use of its range."""
    if np.isnan(values).any():
        what = (
            f"{tensor.name} has values that are not numbers (NaN), which cannot be "
            "quantized."
        )
        raise UsageError(what, where=where, hint="check the preprocessing.")
    dtype = tensor.type.dtype
    with np.errstate(over="ignore"):
        steps = values.astype(np.float32) / np.float32(quantization.scale)
    steps = steps.astype(np.float64)
    rounded = np.rint(steps)
    if rounding is HalfRounding.AWAY_FROM_ZERO:
        rounded = np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    levels = rounded + quantization.zero_point
    found = np.clip(levels, dtype.min, dtype.max)
    saturated = int(np.count_nonzero(found != levels))
    reals = (float(values.min()), float(values.max()))
    whole = found.astype(dtype.np)
    low, high = int(found.min()), int(found.max())
    return whole, LevelUse(values.size, saturated, low, high, reals)


def _level_use(values: Array) -> LevelUse:
    return LevelUse(values.size, 0, int(values.min()), int(values.max()), None)


def describe_quantizing(values: Array, tensor: IoTensor) -> tuple[str, ...]:
    """Return a sentence if real values are quantized for an input of integers."""
    quantization = tensor.type.quantization
    is_real = values.dtype.kind == "f" and not tensor.type.dtype.is_float
    if quantization is None or quantization.per_channel or not is_real:
        return ()
    return (
        f"{tensor.name}: floats were quantized by the scale {quantization.scale:.6g} "
        f"and the zero point {quantization.zero_point}.",
    )


def describe_use(tensor: IoTensor, uses: Iterable[LevelUse | None]) -> tuple[str, ...]:
    """Return warnings about the values of an input over all samples."""
    known = [use for use in uses if use is not None]
    quantization = tensor.type.quantization
    if not known or quantization is None:
        return ()
    use = _combined(known)
    warnings: list[str] = []
    if use.saturated:
        share = format_share(use.saturated, use.count)
        warnings.append(
            f"{tensor.name}: {share} of the values are outside of the input's range, "
            f"{_range(tensor, quantization)}, and saturate: calibrate the model with "
            "samples that have such values, or check the preprocessing."
        )
    remark = _describe_levels(use, tensor, quantization)
    if remark:
        warnings.append(remark)
    return tuple(warnings)


def describe_float_inputs(
    module: IRModule, samples: Sequence[Mapping[str, Array]]
) -> tuple[str, ...]:
    """Return warnings about float inputs that the imported model quantizes first."""
    warnings: list[str] = []
    graph = module.entry
    types = _quantized_inputs(graph) if isinstance(graph, Function) else {}
    for name, type_ in types.items():
        tensor, quantization = IoTensor(name, name, type_), type_.quantization
        uses: list[LevelUse] = []
        for sample in samples:
            reals = sample[name][~np.isnan(sample[name])]
            if quantization is not None and reals.size:
                rounding = HalfRounding.TO_EVEN
                uses.append(_quantized(reals, tensor, quantization, rounding, "")[1])
        warnings += describe_use(tensor, uses)
    return tuple(warnings)


_VIEWS = frozenset({"reshape", "transpose"})


def _quantized_inputs(graph: Function) -> dict[str, TensorType]:
    """Return the float inputs whose only use is one quantization, with its type."""
    found: dict[str, TensorType] = {}
    for param in graph.params:
        if not param.type.dtype.is_float:
            continue
        names, types = {param.name}, set[TensorType]()
        for call in graph.body:
            if not names.isdisjoint(value.name for value in call.variables):
                (result, *_) = call.outputs
                if call.op in _VIEWS:
                    names.add(result.name)
                elif len(call.variables) == 1:
                    types.add(replace(result.type, shape=param.type.shape))
                else:
                    types.add(param.type)
        if len(types) == 1:
            (type_,) = types
            quantization = type_.quantization
            if quantization is not None and not quantization.per_channel:
                found[param.name] = type_
    return found


def _combined(uses: Sequence[LevelUse]) -> LevelUse:
    """Return the use of the range by all samples together."""
    reals: tuple[float, float] | None = None
    for use in uses:
        if use.reals is not None:
            low, high = use.reals if reals is None else reals
            reals = min(low, use.reals[0]), max(high, use.reals[1])
    return LevelUse(
        count=sum(use.count for use in uses),
        saturated=sum(use.saturated for use in uses),
        low=min(use.low for use in uses),
        high=max(use.high for use in uses),
        reals=reals,
    )


def _describe_levels(
    use: LevelUse, tensor: IoTensor, quantization: Quantization
) -> str:
    """Return a remark if the values, unless few or a test, use little of the range."""
    dtype = tensor.type.dtype
    zero = quantization.zero_point
    span = use.high - use.low
    bits = 8 * dtype.np.itemsize
    is_test = span == 0 and use.low in (dtype.min, dtype.max, zero)
    if use.count < _MANY_VALUES or is_test or bits not in _FEW_LEVELS:
        return ""
    is_interior = dtype.min + _INTERIOR <= zero <= dtype.max - _INTERIOR
    side = ""
    if use.high < zero:
        side = "below"
    elif use.low > zero:
        side = "above"
    is_one_sided = bool(side) and is_interior and use.reals is None
    if span + 1 >= _FEW_LEVELS[bits] and not is_one_sided:
        return ""
    used = f"at most {span + 1} of the {dtype.max - dtype.min + 1:,} levels"
    if use.reals is not None:
        low, high = use.reals
        return (
            f"{tensor.name}: the values, {low:.6g} to {high:.6g}, use {used} of the "
            f"input's range, {_range(tensor, quantization)}: check the preprocessing."
        )
    place = f", all {side} the zero point" if is_one_sided else ""
    return (
        f"{tensor.name}: the values, {use.low} to {use.high}, use {used}{place}. "
        "Integers are taken as quantized; pass real values that were cast to "
        f"{dtype.np} as floats, which are quantized with the scale "
        f"{quantization.scale:.6g} and the zero point {zero}."
    )


def _range(tensor: IoTensor, quantization: Quantization) -> str:
    """Return the real values that an input can represent, as text."""
    dtype = tensor.type.dtype
    low = quantization.scale * (dtype.min - quantization.zero_point)
    high = quantization.scale * (dtype.max - quantization.zero_point)
    return f"{low:.6g} to {high:.6g}"
