"""Splitting of calls across the cores listed in the module attribute `devices`.

Row-wise calls are split by output rows, fully connected layers by output channels. Results are
bit-identical. Values that already have a device are not changed.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import module_cores, placed_values
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.opdef import OpTable, RowWindow
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.passes.graph.assign_pools import with_unique_names
from firmwright.passes.graph.row_slicing import (
    choose_cuts,
    concatenate_parts,
    make_part,
    slice_rows,
)

MIN_WORK_TO_SPLIT = 4096
"""Number of multiply-adds or elements below which a call is not split."""


def split_over_cores(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with calls split; the identical module if there is only one core."""
    cores = module_cores(module)
    if len(cores) < 2:
        return module
    module = with_unique_names(module)
    placed = placed_values(module)
    for graph in module.graphs:
        split = _CoreSplitter(module, ops, cores, graph, placed)
        body = tuple(part for call in graph.body for part in split.parts(call))
        changed = replace(module, constants={**module.constants, **split.constants})
        module = changed.with_function(replace(graph, body=body))
    return module


@dataclass
class _CoreSplitter:
    module: IRModule
    ops: OpTable
    cores: tuple[str, ...]
    graph: Function
    placed: Collection[str]
    names: UniqueNamer = field(init=False)
    constants: dict[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = (value.name for value in self.graph.values)
        self.names = UniqueNamer((*names, *self.module.constants))

    def parts(self, call: Call) -> list[Call]:
        """Return the calls that replace `call`: itself, or slices, calls and a concatenation."""
        if call.op not in self.ops or len(call.outputs) != 1 or call.target:
            return [call]
        y, op = call.outputs[0], self.ops[call.op]
        described = make_op_call(call, self.module)
        free = y.name not in self.placed and y.constant is None
        if not free or max(op.macs(described), y.type.elements) < MIN_WORK_TO_SPLIT:
            return [call]
        if call.op == "fully_connected":
            return self._output_parts(call)
        rows = op.row_access(described)
        if not isinstance(rows, RowWindow):
            return [call]
        parts = slice_rows(call, rows, self.cores, self.names)
        if parts is None:
            return [call]
        calls = [stmt for part in parts for stmt in (*part.slices, part.call)]
        return [*calls, concatenate_parts(call, [part.output for part in parts], 1)]

    def _output_parts(self, call: Call) -> list[Call]:
        y, weights = call.outputs[0], call.inputs[1]
        axis = len(y.type.shape) - 1
        if weights is None or weights.constant is None or y.type.elements != y.type.shape[axis]:
            return [call]
        step = y.type.dtype.size_bytes
        cuts = choose_cuts(
            y.type.elements, len(self.cores), lambda place: place * step % KERNEL_ALIGNMENT == 0
        )
        biases = call.inputs[2:]
        if cuts is None or any(v is not None and v.constant is None for v in biases):
            return [call]
        calls, results = [], []
        for core, first, end in zip(self.cores, cuts, cuts[1:], strict=False):
            own = tuple(
                None if v is None else self._own_constant(v, first, end) for v in call.inputs[1:]
            )
            part = make_part(y, axis, end - first, core, self.names)
            calls.append(replace(call, inputs=(call.inputs[0], *own), outputs=(part,)))
            results.append(part)
        return [*calls, concatenate_parts(call, results, axis)]

    def _own_constant(self, value: Value, first: int, end: int) -> Value:
        """Return a constant with the entries first..end of the first axis, and their scales."""
        whole = self.module.constants[value.constant or ""]
        array = whole.array()[first:end]
        name = self.names.unique(f"{whole.name}_part")
        part = Constant.from_array(name, array, whole.dtype)
        self.constants[name] = replace(part, pool=whole.pool)
        quantization = value.type.quantization
        if quantization is not None and quantization.axis == 0 and len(quantization.scales) > 1:
            quantization = replace(
                quantization,
                scales=quantization.scales[first:end],
                zero_points=quantization.zero_points[first:end],
            )
        kind = TensorType(array.shape, value.type.dtype, quantization)
        own_name = self.names.unique(f"{value.name}_part")
        return replace(value, name=own_name, type=kind, constant=name)
