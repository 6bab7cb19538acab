"""Parts of the only operator of an accelerator's region."""

from dataclasses import replace

from firmwright.ir.core import UNCONSTRAINED
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import AnyFunction
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.function_targets import target_of
from firmwright.passes.graph.multi_core_split import CallSplitter
from firmwright.passes.graph.row_slicing import CallSlice


def operator_of(region: AnyFunction | None, call: Call) -> Call | None:
    """Return the operator on the values of the region's call."""
    if not isinstance(region, Function) or not len(region.body) == len(call.outputs) == 1:
        return None
    (inner,) = region.body
    values = {param.name: v for param, v in zip(region.params, call.inputs, strict=True)}
    inputs = tuple(v and values.get(v.name, v) for v in inner.inputs)
    return replace(inner, inputs=inputs, outputs=call.outputs, span=call.span)


def region_of_part(region: AnyFunction | None, part: Call) -> Function:
    """Return the region with a part of its operator."""
    assert isinstance(region, Function)
    params = tuple(dict.fromkeys(part.variables))
    outputs = tuple(replace(value, virtual_device=UNCONSTRAINED) for value in part.outputs)
    return replace(region, params=params, body=(replace(part, outputs=outputs),), results=outputs)


def calls_of_part(
    part: CallSlice, region: Function, splitter: CallSplitter
) -> tuple[list[Call], list[Call]]:
    """Return the calls that compute a part, and its copy from private memory."""
    call = Call(f"@{region.name}", region.params, part.call.outputs, {}, part.call.span)
    if not DeviceMap(splitter.module).private_pools(target_of(region)):
        return [*part.slices, call], []
    inward = [splitter.copy(value, call.span, outward=False) for value in region.params]
    call = replace(call, inputs=tuple(copy.outputs[0] for copy in inward))
    return [*part.slices, *inward, call], [splitter.copy(part.output, call.span, outward=True)]
