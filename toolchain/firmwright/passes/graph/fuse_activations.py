"""Fusion of float relu and relu6 into the preceding operator.

Applies to convolutions, fully connected layers, pools and arithmetic if the activation is the only
reader. The result takes the activation's name. A max pool without padding that is the only reader
of such an operator applies the activation instead, to fewer elements. Both are exact. Quantized
activations are not fused.
"""

from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function
from firmwright.passes.map_functions import count_uses, graph_pass, merge_into_producers

_FUSABLE = "add average_pool2d conv2d depthwise_conv2d div fully_connected max_pool2d mul sub"
FUSABLE_OPS = frozenset(_FUSABLE.split())
ACTIVATIONS = frozenset({"relu", "relu6"})


def fuse_activations(function: Function) -> Function:
    if any(call.op in ACTIVATIONS for call in function.body):
        function = merge_into_producers(
            function, lambda call: call.inputs[0] if call.op in ACTIVATIONS else None, _fused
        )
    return _with_late_activations(function)


def _fused(producer: Call, call: Call) -> Call | None:
    plain = producer.attrs.get("activation") == "none"
    if producer.op in FUSABLE_OPS and plain and producer.outputs[0].type.dtype == FLOAT32:
        return replace(producer, attrs={**producer.attrs, "activation": call.op})
    return None


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
        if call.attrs.get("padding") != (0, 0, 0, 0):
            continue
        own, late = (body[k].attrs.get("activation") for k in (place, index))
        if body[place].op in FUSABLE_OPS and own in ACTIVATIONS and late == "none":
            for k, activation in ((place, "none"), (index, own)):
                body[k] = replace(body[k], attrs={**body[k].attrs, "activation": activation})
    return replace(function, body=tuple(body))


PASS = graph_pass("fuse-activations", fuse_activations)
