"""Conversion of depthwise convolutions with one input channel to convolutions.

Both add the same products in the same order, but schedules of conv2d read each tap once
for several filters. Floats in small windows have faster schedules as they are.
"""

from dataclasses import replace
from math import prod

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.map_functions import map_with_constants

_SMALL_WINDOW = 12
"""Taps of a window that fits the registers of a floating-point unit."""


def run(module: IRModule) -> IRModule:
    return map_with_constants(module, _converted)


def _converted(function: Function, constants: dict[str, Constant]) -> Function:
    if not any(map(_is_convertible, function.body)):
        return function
    body: list[Call] = []
    for call in function.body:
        if _is_convertible(call):
            call = _as_conv2d(call, constants)
        body.append(call)
    return replace(function, body=tuple(body))


def _is_convertible(call: Call) -> bool:
    if call.op != "depthwise_conv2d":
        return False
    x, w = call.inputs[:2]
    if x is None or w is None or w.constant is None or is_placed(w):
        return False
    _, *window, filters = w.type.shape
    dtypes = {x.type.dtype, w.type.dtype}
    is_large = prod(window) > _SMALL_WINDOW
    is_faster = dtypes == {INT8} or (dtypes == {FLOAT32} and is_large)
    return is_faster and x.type.shape[3] == 1 < filters


def _as_conv2d(call: Call, constants: dict[str, Constant]) -> Call:
    weights = call.inputs[1]
    assert weights is not None
    # From [1, height, width, filters] to [filters, height, width, 1].
    array = constants[str(weights.constant)].array().transpose(3, 1, 2, 0)
    dtype = weights.type.dtype
    quantization = weights.type.quantization
    if quantization is not None and quantization.per_channel:
        quantization = replace(quantization, axis=0)
    name = f"{weights.name}/by_filter"
    constants[name] = Constant.from_array(name, array, dtype)
    moved = Value(name, TensorType(array.shape, dtype, quantization), name)
    return replace(call, op="conv2d", inputs=(call.inputs[0], moved, *call.inputs[2:]))


PASS = Pass("depthwise-to-conv2d", run)
