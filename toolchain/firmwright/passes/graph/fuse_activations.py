"""Fusion of float relu and relu6 into the preceding operator.

Applies to convolutions, fully connected layers, pools and arithmetic if the activation is the only
reader. The result takes the activation's name. A max pool without padding that is the only reader
of such an operator applies the activation instead, to fewer elements. Both are exact. Quantized
activations are not fused.
"""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.attributes.layers import Activation, ActivationAttrs, PoolAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function
from firmwright.passes.map_functions import count_uses, graph_pass, merge_into_producers

_FUSABLE = "add average_pool2d conv2d depthwise_conv2d div fully_connected max_pool2d mul sub"
FUSABLE_OPS = frozenset(_FUSABLE.split())
ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "relu6": "relu6"}
"""The operators that are activations -> their names as attributes."""


def fuse_activations(function: Function) -> Function:
    if any(call.op in ACTIVATIONS for call in function.body):
        function = merge_into_producers(
            function, lambda call: call.inputs[0] if call.op in ACTIVATIONS else None, _fused
        )
    return _with_late_activations(function)


def _fused(producer: Call, call: Call) -> Call | None:
    if producer.op not in FUSABLE_OPS or producer.outputs[0].type.dtype != FLOAT32:
        return None
    attrs = producer.attributes(ActivationAttrs)
    if attrs.activation != "none":
        return None
    return replace(producer, attrs=replace(attrs, activation=ACTIVATIONS[call.op]))


def _with_late_activations(function: Function) -> Function:
    body, uses = list(function.body), count_uses(function)
    producers = {value.name: k for k, call in enumerate(body) for value in call.outputs}
    for index, call in enumerate(body):
        x = call.inputs[0] if call.op == "max_pool2d" else None
        place = producers.get(x.name) if x is not None else None
        if x is None or place is None or x.type.dtype != FLOAT32 or uses[x.name] > 1:
            continue
        if is_placed(x):
            continue
        attrs = call.attributes(PoolAttrs)
        if attrs.padding != (0, 0, 0, 0) or attrs.activation != "none":
            continue
        early = body[place].attrs
        if body[place].op not in FUSABLE_OPS or not isinstance(early, ActivationAttrs):
            continue
        if early.activation in ACTIVATIONS:
            body[place] = replace(body[place], attrs=replace(early, activation="none"))
            body[index] = replace(call, attrs=replace(attrs, activation=early.activation))
    return replace(function, body=tuple(body))


PASS = graph_pass("fuse-activations", fuse_activations)
