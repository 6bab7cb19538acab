"""Folding of a per-channel scale and shift into the preceding convolution.

`expression(conv(x), b, c)` with the formula `a * b + c`, as in batch normalization,
becomes a convolution with adjusted float weights and bias, rounded once from double, so
results differ by rounding. A shift alone, also an `add`, becomes a missing bias, which
is exact. A reshape between them, as in one-dimensional convolutions, moves behind the
shift.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.layers import ActivationAttrs, activation_of
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.passes.map_functions import (
    count_uses,
    map_with_constants,
    merge_into_producers,
    producer_places,
)

_CHANNELS = {
    "conv2d": 0,
    "depthwise_conv2d": 3,
    "fully_connected": 0,
    "transpose_conv": 0,
}
"""The axis of the weights that counts output channels, by operator."""
_SCALE_AND_SHIFT = "a * b + c"
_SHIFT = "a + b"


@dataclass(frozen=True, slots=True)
class _ChannelScale:
    """The operands of a formula: `source`, times `scale` if any, plus `shift`."""

    source: Value
    scale: Value | None
    shift: Value

    def suits(self, x: Value) -> bool:
        """Return whether scale and shift are constants by channel of `x`, or single."""
        return all(_is_channels(value, x) for value in self.factors)

    @property
    def factors(self) -> list[Value]:
        """The scale, if any, and the shift."""
        return [self.shift] if self.scale is None else [self.scale, self.shift]


def run(module: IRModule) -> IRModule:
    any_bias = keeps_constants_apart(module)
    return map_with_constants(module, partial(_folded, any_bias=any_bias))


def _folded(
    function: Function, constants: dict[str, Constant], *, any_bias: bool
) -> Function:
    if {_SCALE_AND_SHIFT, _SHIFT}.isdisjoint(map(_formula, function.body)):
        return function
    function = _with_late_reshapes(function, constants, any_bias=any_bias)

    def source_of(call: Call) -> Value | None:
        operands = _operands(call)
        return None if operands is None else operands.source

    def merge(producer: Call, call: Call) -> Call | None:
        operands = _operands(call)
        assert operands is not None
        if not _foldable(producer, operands.scale, constants, any_bias=any_bias):
            return None
        if not operands.suits(operands.source):
            return None
        replaced = [value for value in producer.inputs[1:] if value is not None]
        if any(map(is_placed, (*operands.factors, *replaced))):
            return None  # the constants would be replaced by others
        return _with_scale(producer, call, operands, constants)

    return merge_into_producers(function, source_of, merge)


def _with_late_reshapes(
    function: Function, constants: Mapping[str, Constant], *, any_bias: bool
) -> Function:
    """Move the reshape of a convolution's result behind its scale and shift."""
    # conv -> reshape -> a * b + c     becomes     conv -> a * b + c -> reshape
    #
    # The reshape keeps the channels last, so b and c mean the same before it, and the
    # scale is then next to the convolution.
    uses, body = count_uses(function), list(function.body)
    producers = producer_places(body)
    for index, call in enumerate(function.body):
        operands = _operands(call)
        if operands is None:
            continue
        source = operands.source
        place = producers.get(source.name)
        if place is None or uses[source.name] != 1:
            continue
        reshape = body[place]
        x = reshape.inputs[0]
        if reshape.op != "reshape" or x is None or x.name not in producers:
            continue
        if is_placed(source) or is_placed(x) or uses[x.name] != 1:
            continue
        convolution, scale = body[producers[x.name]], operands.scale
        is_foldable = _foldable(convolution, scale, constants, any_bias=any_bias)
        if is_foldable and operands.suits(x):
            moved = replace(source, type=x.type)
            inputs: list[Value | None] = []
            for value in call.inputs:
                inputs.append(x if value == source else value)
            body[place] = replace(call, inputs=tuple(inputs), outputs=(moved,))
            body[index] = replace(reshape, inputs=(moved,), outputs=call.outputs)
    return replace(function, body=tuple(body))


def _formula(call: Call) -> str:
    if call.op == "add" and call.outputs[0].type.dtype == FLOAT32:
        return _SHIFT
    return call.attributes(ExpressionAttrs).formula if call.op == "expression" else ""


def _operands(call: Call) -> _ChannelScale | None:
    """Return the operands of a formula that scales and shifts, or None for others."""
    formula = _formula(call)
    if formula not in (_SCALE_AND_SHIFT, _SHIFT):
        return None
    if isinstance(call.attrs, ExpressionAttrs) and call.attrs.perms:
        return None
    first, second, *third = call.inputs
    if first is None or second is None:
        return None
    if formula == _SCALE_AND_SHIFT:
        return None if third[0] is None else _ChannelScale(first, second, third[0])
    if first.constant is not None:
        first, second = second, first
    if first.type.shape != call.outputs[0].type.shape:
        return None
    return _ChannelScale(first, None, second)


def _foldable(
    call: Call,
    scale: Value | None,
    constants: Mapping[str, Constant],
    *,
    any_bias: bool,
) -> bool:
    """Whether `call` takes a scale and shift; a shift alone requires a missing bias."""
    weights = call.inputs[1] if len(call.inputs) > 1 else None
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    if scale is None and bias is not None:
        bias_constant = constants.get(bias.constant or "")
        if any_bias or bias_constant is None or bias_constant.array().any():
            return False  # folding would replace two roundings by one
    if call.op not in _CHANNELS or activation_of(call.attrs) != "none":
        return False
    if weights is None or weights.constant is None:
        return False
    return weights.type.dtype == call.outputs[0].type.dtype == FLOAT32


def _is_channels(value: Value, source: Value) -> bool:
    """Return whether a constant has one value, or one for each channel of `source`."""
    shape, channels = value.type.shape, source.type.shape[-1]
    if value.constant is None or len(shape) > len(source.type.shape):
        return False
    return value.type.elements == 1 or value.type.elements == shape[-1] == channels


def _with_scale(
    maker: Call, call: Call, operands: _ChannelScale, constants: dict[str, Constant]
) -> Call:
    """Return the convolution `maker` with the result of `call`; add its constants."""
    weights = maker.inputs[1]
    bias = maker.inputs[2] if len(maker.inputs) > 2 else None
    assert weights is not None
    channels = call.outputs[0].type.shape[-1]

    def row(value: Value | None) -> Array:
        if value is None:
            return np.zeros(channels)
        values = constants[str(value.constant)].array().reshape(-1).astype(np.float64)
        return np.broadcast_to(values, (channels,))

    def constant(name: str, array: Array) -> Value:
        new_constant = Constant.from_array(name, array.astype(np.float32), FLOAT32)
        constants[name] = new_constant
        return Value(name, TensorType(new_constant.shape, FLOAT32), name)

    stem = call.outputs[0].name
    if operands.scale is None:
        layer = maker.attributes(ActivationAttrs)
        attrs = replace(layer, activation=activation_of(call.attrs))
        own = constant(f"{stem}/bias", row(operands.shift))
        return replace(maker, inputs=(maker.inputs[0], weights, own), attrs=attrs)
    factor = row(operands.scale)
    by_channel = [1] * len(weights.type.shape)
    by_channel[_CHANNELS[maker.op]] = channels
    unscaled = constants[str(weights.constant)].array().astype(np.float64)
    new_weights = constant(f"{stem}/weights", unscaled * factor.reshape(by_channel))
    new_bias = constant(f"{stem}/bias", row(bias) * factor + row(operands.shift))
    return replace(maker, inputs=(maker.inputs[0], new_weights, new_bias))


PASS = Pass("fold-scale", run)
