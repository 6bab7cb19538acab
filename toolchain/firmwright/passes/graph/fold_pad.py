"""Folds a spatial PAD into the padding of the convolution that reads it.

In: graph functions. Out: `conv2d(pad(x))` reads x with a larger padding where that is exact: the
pad touches rows and columns only, and pads with the value that stands for zero (a convolution skips
taps outside of its input, which adds exactly what a tap on zero adds). A pad that nobody reads any
more is left to `graph-dce`.

Attributes relied on: `pad.paddings` (before and after, axis by axis), `pad.value` (absent: zero);
`padding` (top, bottom, left, right) of `conv2d` and `depthwise_conv2d`.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import Call, Function, TensorType
from firmwright.ir.module import IRModule, Pass

CONVOLUTIONS = frozenset({"conv2d", "depthwise_conv2d"})


def fold_pads(func: Function) -> Function:
    """`func` with pads folded where that is exact."""
    pads = {call.outputs[0].name: call for call in func.body if call.op == "pad"}
    body = tuple(_folded(call, pads) for call in func.body)
    if all(new is old for new, old in zip(body, func.body, strict=True)):
        return func
    return replace(func, body=body)


def _folded(call: Call, pads: dict[str, Call]) -> Call:
    source = call.inputs[0] if call.op in CONVOLUTIONS else None
    pad = pads.get(source.name) if source is not None else None
    own = call.attrs.get("padding")
    if pad is None or pad.inputs[0] is None or not isinstance(own, tuple):
        return call
    added = _spatial_padding(pad)
    if added is None:
        return call
    padding = tuple(a + b for a, b in zip(_flat(own), added, strict=True))
    inputs = (pad.inputs[0], *call.inputs[1:])
    return replace(call, inputs=inputs, attrs={**call.attrs, "padding": padding})


def _spatial_padding(pad: Call) -> tuple[int, ...] | None:
    """(top, bottom, left, right) of an NHWC pad with zeros; None for any other."""
    x = pad.inputs[0]
    paddings = _flat(pad.attrs.get("paddings", ()))
    if x is None or len(x.type.shape) != 4 or len(paddings) != 8:
        return None
    if any(paddings[:2]) or any(paddings[6:]) or min(paddings) < 0:
        return None
    if pad.attrs.get("value", _zero(x.type)) != _zero(x.type) or pad.outputs[0].type.dtype != (
        x.type.dtype
    ):
        return None
    if pad.outputs[0].type.quantization != x.type.quantization:
        return None
    return paddings[2:6]


def _zero(kind: TensorType) -> int:
    """The stored value that stands for zero."""
    if kind.quantization is None or kind.quantization.per_channel:
        return 0
    return kind.quantization.zero_points[0]


def _flat(value: Attr) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return tuple(item for part in value for item in _flat(part))
    return (int(value),)


def run(module: IRModule) -> IRModule:
    """Folds pads in every graph function."""
    functions = {
        name: fold_pads(func) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)


PASS = Pass("fold-pad", run)
