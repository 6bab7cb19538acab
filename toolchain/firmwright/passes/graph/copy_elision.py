"""Copy elision: marks splits and concatenations whose parts can be views of the whole.

Runs last before lowering. Marked calls get the attributes `subviews_of` ("input": the
outputs are views of the first input; "output": the inputs are views of the output) and
`offsets` (per part, in elements). A part belongs to one whole, is computed by a call,
is neither visible to the caller nor state, and is aligned as kernels require.
"""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.ir.graph.attributes.movement import MovementAttrs
from firmwright.ir.graph.devices import device_name
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.ops.opdef import OpTable, Subviews
from firmwright.passes.map_functions import names_of

_EXTERNAL_ALIGNMENT = 16


def mark_copies_as_views(module: IRModule, ops: OpTable) -> IRModule:
    for graph in module.graphs:
        elision = _CopyElision(module, graph, ops)
        body = elision.body()
        if elision.has_marked:
            module = module.with_function(replace(graph, body=body))
    return module


class _CopyElision:
    """Marks the calls of one graph, in order.

    `sinks` leave the graph, `external` are passed to functions, and `placed` are parts
    of marked calls. The device that computes a tensor in `requested` is requested.
    """

    def __init__(self, module: IRModule, graph: Function, ops: OpTable) -> None:
        self.module = module
        self.graph = graph
        self.ops = ops
        self.sinks = names_of(graph.sinks)
        self.makers: dict[str, Call] = {}
        self.external: set[str] = set()
        for call in graph.body:
            for value in call.outputs:
                self.makers[value.name] = call
            if called_functions(call):
                self.external |= names_of(call.values)
        self.placed: set[str] = set()
        self.requested: set[str] = set()
        for request in module.requests:
            if request.device:
                self.requested.add(request.tensor)
        self.has_marked = False

    def body(self) -> tuple[Call, ...]:
        return tuple(map(self._marked, self.graph.body))

    def _marked(self, call: Call) -> Call:
        if call.op not in self.ops or None in call.inputs:
            return call
        subviews = self.ops[call.op].subviews(make_op_call(call, self.module))
        if subviews is None:
            return call
        if subviews.of == "input":
            parts, may_be_views = call.outputs, self._may_part(call)
        else:
            parts, may_be_views = call.variables, self._may_join(call)
        if not may_be_views or not self._is_aligned(call, parts, subviews):
            return call
        devices = [value.virtual_device for value in (*call.variables, *call.outputs)]
        if len({device.memory_scope for device in devices}) > 1:
            return call  # parts in different memories must be copied
        outputs = names_of(call.outputs)
        is_requested = not outputs.isdisjoint(self.requested)
        if is_requested and len(set(map(device_name, devices))) > 1:
            return call  # the requested device must compute the whole
        part_names = names_of(parts)
        self.placed |= part_names
        if not part_names.isdisjoint(self.external):
            self.external |= outputs
        attrs = call.attributes(MovementAttrs)
        marked = replace(attrs, subviews_of=subviews.of, offsets=subviews.offsets)
        self.has_marked = True
        return replace(call, attrs=marked)

    def _may_part(self, call: Call) -> bool:
        """Return whether the outputs of a call may be views of its input."""
        source = call.inputs[0]
        assert source is not None
        is_fed = self.module.io.stream_input_rows and source in self.graph.params
        if source.constant is not None or is_fed:
            return False
        return self.sinks.isdisjoint(names_of(call.outputs))

    def _may_join(self, call: Call) -> bool:
        """Return whether the inputs of a call may be views of its output."""
        whole = call.outputs[0]
        names = [value.name for value in call.variables]
        if len(names) != len(call.inputs) or len({*names}) != len(names):
            return False
        if whole in self.graph.results and not self.module.io.outputs_in_pools:
            return False
        if whole.name in [state.next.name for state in self.graph.state]:
            return False
        return all(map(self._is_made_for, names))

    def _is_made_for(self, name: str) -> bool:
        """Return whether the value may be computed in a part of another's memory."""
        maker = self.makers.get(name)
        if maker is None or name in self.placed or name in self.sinks:
            return False
        if called_functions(maker):
            return not self.module.graphs_of(maker)
        return not self.ops[maker.op].is_view

    def _is_aligned(
        self, call: Call, parts: Sequence[Value], windows: Subviews
    ) -> bool:
        """Return whether all parts are aligned, nested parts included."""
        reads_parts = not self.placed.isdisjoint(names_of(call.variables))
        element_bytes = call.outputs[0].type.dtype.size_bytes
        for part, offset in zip(parts, windows.offsets, strict=True):
            is_external = part.name in self.external
            if is_external and reads_parts:
                return False
            alignment = _EXTERNAL_ALIGNMENT if is_external else KERNEL_ALIGNMENT
            if offset * element_bytes % alignment:
                return False
        return True
