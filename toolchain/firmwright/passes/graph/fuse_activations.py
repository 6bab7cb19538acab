"""Fusion of float relu and relu6 into the preceding operator.

Applies to convolutions, fully connected layers, pools and arithmetic if the activation is the only
reader. The result takes the activation's name. This is exact. Quantized activations are not fused.
"""

from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.nodes import Call, Function
from firmwright.passes.map_functions import graph_pass, merge_into_producers

_FUSABLE = "add average_pool2d conv2d depthwise_conv2d div fully_connected max_pool2d mul sub"
FUSABLE_OPS = frozenset(_FUSABLE.split())
ACTIVATIONS = frozenset({"relu", "relu6"})


def fuse_activations(function: Function) -> Function:
    if not any(call.op in ACTIVATIONS for call in function.body):
        return function
    return merge_into_producers(
        function, lambda call: call.inputs[0] if call.op in ACTIVATIONS else None, _fused
    )


def _fused(producer: Call, call: Call) -> Call | None:
    plain = producer.attrs.get("activation") == "none"
    if producer.op in FUSABLE_OPS and plain and producer.outputs[0].type.dtype == FLOAT32:
        return replace(producer, attrs={**producer.attrs, "activation": call.op})
    return None


PASS = graph_pass("fuse-activations", fuse_activations)
