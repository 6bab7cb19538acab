"""Folding of a spatial PAD into the padding of the convolution that reads it.

This is exact if only rows and columns are padded, with the value that represents zero.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import add

from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.layers import Conv2DAttrs
from firmwright.ir.graph.attributes.movement import PadAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.map_functions import map_graph_functions

CONVOLUTIONS = frozenset({"conv2d", "depthwise_conv2d"})


def fold_pads(func: Function, constants: Mapping[str, Constant]) -> Function:
    pads: dict[str, Call] = {}
    for call in func.body:
        if call.op != "pad" or is_placed(call.outputs[0]):
            continue
        if _pads_zeros(call, constants):
            pads[call.outputs[0].name] = call
    body = tuple(_folded(call, pads) for call in func.body)
    return func if body == func.body else replace(func, body=body)


def _folded(call: Call, pads: dict[str, Call]) -> Call:
    source = call.inputs[0] if call.op in CONVOLUTIONS else None
    pad = pads.get(source.name) if source is not None else None
    added = None if pad is None else _spatial_padding(pad)
    if pad is None or added is None:
        return call
    attrs = call.attributes(Conv2DAttrs)
    top, bottom, left, right = map(add, attrs.padding, added)
    attrs = replace(attrs, padding=(top, bottom, left, right))
    inputs = (pad.inputs[0], *call.inputs[1:])
    return replace(call, inputs=inputs, attrs=attrs)


def _pads_zeros(pad: Call, constants: Mapping[str, Constant]) -> bool:
    """Return whether the margin stores zero, as the padding of a convolution does."""
    margin = pad.inputs[1] if len(pad.inputs) > 1 else None
    if margin is None:
        return True  # the value is that of zero, by definition
    constant = constants.get(margin.constant or "")
    quantization = pad.outputs[0].type.quantization
    zero = 0 if quantization is None else quantization.zero_points[0]
    return constant is not None and constant.array().reshape(-1)[0] == zero


def _spatial_padding(pad: Call) -> tuple[int, ...] | None:
    """Return (top, bottom, left, right) of a spatial NHWC pad, or None for others."""
    x = pad.inputs[0]
    paddings = pad.attributes(PadAttrs).paddings
    if x is None or len(x.type.shape) != 4 or len(paddings) != 8:
        return None
    if any(paddings[:2]) or any(paddings[6:]) or min(paddings) < 0:
        return None
    kind = pad.outputs[0].type
    is_same = (kind.dtype, kind.quantization) == (x.type.dtype, x.type.quantization)
    return paddings[2:6] if is_same else None


def run(module: IRModule) -> IRModule:
    def change(function: Function) -> Function:
        return fold_pads(function, module.constants)

    return map_graph_functions(module, change)


PASS = Pass("fold-pad", run)
