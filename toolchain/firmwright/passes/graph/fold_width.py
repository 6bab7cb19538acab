"""Folding of the width of narrow convolutions into their channels.

A convolution whose input is no wider than its window computes each output row from
whole input rows. It is the same as a one-dimensional convolution over rows, whose
channels are the elements of a row:

    x [n, h, w, c]        ->  [n, 1, h, w * c]
    weights [k, kh, kw, c] ->  [ow * k, 1, kh, w * c]
    y [n, oh, ow, k]      ->  [n, 1, oh, ow * k]

Weights of taps outside the input are omitted, and those of inputs outside the window
are zero. The window of adjacent rows is one run of bytes, and no column is padding.
"""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.layers import Conv2DAttrs, WindowAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value, unique_name
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.map_functions import map_with_constants, names_of

_MAX_ADDED_WEIGHTS = 1024
"""Maximum bytes by which the weights may grow."""


def run(module: IRModule) -> IRModule:
    return map_with_constants(module, _folded)


def _folded(function: Function, constants: dict[str, Constant]) -> Function:
    if function.attrs.get("target") or not any(map(_is_narrow, function.body)):
        return function
    taken = names_of(function.values)
    body: list[Call] = []
    for call in function.body:
        body += _over_rows(call, constants, taken) if _is_narrow(call) else [call]
    return replace(function, body=tuple(body))


def _is_narrow(call: Call) -> bool:
    if call.op != "conv2d" or any(map(is_placed, call.values)):
        return False
    x, w = call.inputs[:2]
    if x is None or w is None or w.constant is None:
        return False
    quantization = w.type.quantization
    if {x.type.dtype, w.type.dtype} != {INT8} or quantization is None:
        return False
    filters, height, width, channels = w.type.shape
    columns, results = x.type.shape[2], call.outputs[0].type.shape[2]
    grown = filters * height * channels * (results * columns - width)
    return (
        height > 1
        and columns <= width
        and call.attributes(WindowAttrs).dilation == (1, 1)
        and not any(quantization.zero_points)
        and grown <= _MAX_ADDED_WEIGHTS
    )


def _over_rows(
    call: Call, constants: dict[str, Constant], taken: set[str]
) -> list[Call]:
    """Return the convolution of rows, between a reshape of its input and its result."""
    x, weights, *rest = call.inputs
    assert x is not None
    assert weights is not None
    y, attrs = call.outputs[0], call.attributes(Conv2DAttrs)
    results = y.type.shape[2]

    def of_rows(value: Value) -> Value:
        batch, height, width, channels = value.type.shape
        shape = batch, 1, height, width * channels
        name = unique_name(f"{value.name}/rows", taken)
        return replace(value, name=name, type=replace(value.type, shape=shape))

    def repeated(value: Value | None) -> Value | None:
        if value is None or results == 1:
            return value
        array = np.tile(constants[str(value.constant)].array(), results)
        return _constant(value, array, constants, taken)

    before, after = of_rows(x), of_rows(y)
    columns = x.type.shape[2]
    array = _row_weights(
        constants[str(weights.constant)].array(), attrs, columns, results
    )
    rows = _constant(weights, array, constants, taken)
    quantization = weights.type.quantization
    if quantization is not None and quantization.per_channel:
        quantization = replace(
            quantization,
            scales=quantization.scales * results,
            zero_points=quantization.zero_points * results,
        )
    rows = replace(rows, type=replace(rows.type, quantization=quantization))
    top, bottom = attrs.padding[:2]
    attrs = replace(attrs, stride=(1, attrs.stride[0]), padding=(0, 0, top, bottom))
    inputs = (before, rows, *map(repeated, rest))
    return [
        Call("reshape", (x,), (before,), NO_ATTRS, call.span, call.target),
        replace(call, inputs=inputs, outputs=(after,), attrs=attrs),
        Call("reshape", (after,), (y,), NO_ATTRS, call.span, call.target),
    ]


def _row_weights(
    weights: Array, attrs: Conv2DAttrs, columns: int, results: int
) -> Array:
    """Return weights [result and filter, 1, row, column and channel] of whole rows."""
    filters, height, width, channels = weights.shape
    rows = np.zeros((results, filters, height, columns, channels), weights.dtype)
    for result in range(results):
        left = result * attrs.stride[1] - attrs.padding[2]
        for column in range(max(left, 0), min(left + width, columns)):
            rows[result, :, :, column] = weights[:, :, column - left]
    return rows.reshape(results * filters, 1, height, columns * channels)


def _constant(
    value: Value, array: Array, constants: dict[str, Constant], taken: set[str]
) -> Value:
    """Return a constant of `array` that replaces `value`."""
    name = unique_name(f"{value.name}/rows", taken)
    constants[name] = Constant.from_array(name, array, value.type.dtype)
    return Value(name, replace(value.type, shape=array.shape), name)


PASS = Pass("fold-width", run)
