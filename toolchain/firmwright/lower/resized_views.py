"""Splits and concatenations that are views at every size of a bounded axis.

Such a view begins at an offset that is a line in the size, and the largest tensor fits
from there at all sizes. Other calls are copies at all sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.attributes.movement import MovementAttrs, is_subview
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule


def with_common_views(
    modules: Mapping[int, IRModule], axis: BoundedAxis
) -> dict[int, IRModule]:
    """Return the modules by size with the calls that are views at all sizes as such.

    Their attribute `offset_steps` tells how offsets follow from the size.
    """
    marked: dict[str, dict[int, MovementAttrs]] = {}
    for size, module in modules.items():
        for call in module.entry_graph.body:
            if is_subview(call.attrs):
                marked.setdefault(call.outputs[0].name, {})[size] = call.attrs
    steps: dict[str, tuple[int, ...]] = {}
    for call in modules[axis.most].entry_graph.body:
        found = _offset_steps(call, marked.get(call.outputs[0].name, {}), axis)
        if found is not None:
            steps[call.outputs[0].name] = found
    return {size: _with_views(module, steps) for size, module in modules.items()}


def _offset_steps(
    largest: Call, attrs: Mapping[int, MovementAttrs], axis: BoundedAxis
) -> tuple[int, ...] | None:
    """Return how each offset grows with the size; None if the call needs copies.

    `attrs` are those of the sizes at which the call needs none.
    """
    kinds = {each.subviews_of for each in attrs.values()}
    if len(attrs) < len(axis.sizes) or len(kinds) > 1:
        return None
    if "input" in kinds:
        parts, whole = largest.outputs, largest.variables[0]
    else:
        parts, whole = largest.variables, largest.outputs[0]
    places = zip(*(attrs[size].offsets for size in axis.sizes), strict=True)
    steps: list[int] = []
    for part, offsets in zip(parts, places, strict=True):
        step = offsets[-1] - offsets[-2]
        line = [offsets[0] + step * number for number in range(len(offsets))]
        last = whole.type.elements - part.type.elements
        if list(offsets) != line or max(offsets) > last:
            return None
        steps.append(step)
    return tuple(steps)


def _with_views(module: IRModule, steps: Mapping[str, tuple[int, ...]]) -> IRModule:
    """Return the module of a size with these calls as views."""
    graph = module.entry_graph
    body: list[Call] = []
    for call in graph.body:
        if is_subview(call.attrs):
            own = steps.get(call.outputs[0].name)
            if own is None:
                attrs = replace(call.attrs, subviews_of=None, offsets=())
            else:
                attrs = replace(call.attrs, offset_steps=own if any(own) else ())
            call = replace(call, attrs=attrs)
        body.append(call)
    return module.with_function(replace(graph, body=tuple(body)))
