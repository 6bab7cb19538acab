"""Fusion of float relu and relu6 into the preceding operator.

Applies to convolutions, fully connected layers and pools that only the activation reads. The result
takes the activation's name. This is exact. Quantized activations requantize and are not fused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.map_functions import map_graph_functions

FUSABLE_OPS = frozenset(
    [
        "add",
        "average_pool2d",
        "conv2d",
        "depthwise_conv2d",
        "div",
        "fully_connected",
        "max_pool2d",
        "mul",
        "sub",
    ]
)
ACTIVATIONS = frozenset({"relu", "relu6"})


def count_uses(function: Function) -> Counter[str]:
    """Return the number of uses of each value; results and next states are uses."""
    counts = Counter(v.name for call in function.body for v in call.inputs if v is not None)
    counts.update(v.name for v in function.sinks)
    return counts


def fuse_activations(function: Function) -> Function:
    if not any(call.op in ACTIVATIONS for call in function.body):
        return function
    count = count_uses(function)
    makers = {v.name: k for k, call in enumerate(function.body) for v in call.outputs}
    body: list[Call | None] = list(function.body)
    for index, call in enumerate(function.body):
        source = call.inputs[0] if call.op in ACTIVATIONS else None
        place = makers.get(source.name) if source is not None else None
        maker = body[place] if place is not None else None
        if source is None or place is None or maker is None or count[source.name] != 1:
            continue
        plain = maker.attrs.get("activation") == "none" and source.type.dtype == FLOAT32
        if maker.op in FUSABLE_OPS and plain:
            attrs = {**maker.attrs, "activation": call.op}
            body[place] = replace(maker, outputs=call.outputs, attrs=attrs)
            body[index] = None
    return replace(function, body=tuple(call for call in body if call is not None))


def run(module: IRModule) -> IRModule:
    return map_graph_functions(module, fuse_activations)


PASS = Pass("fuse-activations", run)
