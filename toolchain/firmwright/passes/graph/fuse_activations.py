"""Fusion of float relu and relu6 into the preceding operator.

Applies to convolutions, fully connected layers, pools and arithmetic if the activation
is the only reader. The result takes the activation's name. A max pool without padding
that is the only reader of such an operator applies the activation instead, to fewer
elements. Both are exact. Quantized activations are not fused.
"""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.attributes.layers import Activation, ActivationAttrs, PoolAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.passes.map_functions import (
    count_uses,
    graph_pass,
    merge_into_producers,
    producer_places,
)

_FUSABLE = (
    "add average_pool2d conv2d depthwise_conv2d div fully_connected max_pool2d mul sub"
)
FUSABLE_OPS = frozenset(_FUSABLE.split())
ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "relu6": "relu6"}
"""The operators that are activations -> their names as attributes."""


def fuse_activations(function: Function) -> Function:
    def source_of(call: Call) -> Value | None:
        return call.inputs[0] if call.op in ACTIVATIONS else None

    if any(call.op in ACTIVATIONS for call in function.body):
        function = merge_into_producers(function, source_of, _fused)
    return _with_late_activations(function)


def _fused(producer: Call, call: Call) -> Call | None:
    """Return the producer with the activation of `call`, or None if it has no place."""
    if producer.op not in FUSABLE_OPS or producer.outputs[0].type.dtype != FLOAT32:
        return None
    attrs = producer.attributes(ActivationAttrs)
    if attrs.activation != "none":
        return None
    return replace(producer, attrs=replace(attrs, activation=ACTIVATIONS[call.op]))


def _with_late_activations(function: Function) -> Function:
    """Move the activation of a call whose result only a maximum pool reads to the pool.

    The pool computes it for fewer elements; maximum and activation commute.
    """
    body, uses = list(function.body), count_uses(function)
    places = producer_places(body)
    for index, pool in enumerate(body):
        if pool.op != "max_pool2d":
            continue
        x = pool.inputs[0]
        if x is None or x.name not in places:
            continue
        if x.type.dtype != FLOAT32 or uses[x.name] > 1 or is_placed(x):
            continue
        attrs = pool.attributes(PoolAttrs)
        if attrs.padding != (0, 0, 0, 0) or attrs.activation != "none":
            continue
        producer = body[places[x.name]]
        early = producer.attrs
        if producer.op not in FUSABLE_OPS or not isinstance(early, ActivationAttrs):
            continue
        if early.activation in ACTIVATIONS:
            late = replace(attrs, activation=early.activation)
            early = replace(early, activation="none")
            body[places[x.name]] = replace(producer, attrs=early)
            body[index] = replace(pool, attrs=late)
    return replace(function, body=tuple(body))


PASS = graph_pass("fuse-activations", fuse_activations)
