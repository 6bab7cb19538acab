"""Splitting of calls across the cores listed in the module attribute `devices`.

Row-wise calls are split by output rows, fully connected layers by output channels.
Results are bit-identical. Values that already have a device are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.devices import (
    COPY_OP,
    copy_device,
    core_targets,
    is_placed,
    module_cores,
    placed_values,
    with_device,
)
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ops.call_slices import (
    CallSlice,
    Shares,
    choose_cuts,
    concatenate_parts,
    cut_alignment,
    make_part,
    slice_rows,
)
from firmwright.ops.opdef import OpTable, RowWindow
from firmwright.passes.graph.value_names import with_unique_names

_SPEED = 10**12
"""The speed of a call of one cycle."""
MIN_WORK_TO_SPLIT = 4096
"""Number of multiply-adds or elements below which a call is not split."""


CyclesOfCalls = Callable[[IRModule], Sequence[int]]
"""Returns the predicted cycles of each call of a module's entry."""


def split_over_cores(
    module: IRModule, ops: OpTable, predict: CyclesOfCalls
) -> IRModule:
    """Return the module with calls split, or itself if there is only one core.

    Cores with the same target get equal parts; others parts that end together.
    """
    cores = module_cores(module)
    if len(cores) < 2:
        return module
    module = with_unique_names(module)
    splitter = CallSplitter(module, ops)
    speeds, entry = _speeds(module, cores, predict), module.entry_graph.name
    for graph in module.graphs:
        body: list[Call] = []
        for index, call in enumerate(graph.body):
            shares = [(core, 1) for core in cores]
            if speeds and graph.name == entry:
                shares = [(core, speeds[core][index]) for core in cores]
            body += _parts(call, splitter, shares)
        module = module.with_function(replace(graph, body=tuple(body)))
    return splitter.with_constants(module)


def _speeds(
    module: IRModule, cores: Sequence[str], predict: CyclesOfCalls
) -> dict[str, list[int]]:
    """Return the speed of each core for each call of the entry; {} if all are alike."""
    own = core_targets(module)
    entry, speeds = module.entry_graph, {}
    for core in cores if own else ():
        target = core if core in own else ""
        calls = [
            call if call.target else replace(call, target=target) for call in entry.body
        ]
        alone = module.with_function(replace(entry, body=tuple(calls)))
        speeds[core] = [_SPEED // max(1, cycles) for cycles in predict(alone)]
    return speeds


def _parts(call: Call, splitter: CallSplitter, shares: Shares) -> list[Call]:
    """Return the replacement of `call`: itself, or slices, calls, a concatenation."""
    if call.target or not splitter.is_large(call):
        return [call]
    parts = splitter.split(call, shares)
    if parts is None:
        return [call]
    calls: list[Call] = []
    for part in parts:
        calls += (*part.slices, part.call)
    outputs = [part.output for part in parts]
    calls.append(concatenate_parts(call, outputs, parts[0].axis))
    return calls


@dataclass
class CallSplitter:
    """Splits calls by rows or output channels; value names are unique in the module."""

    module: IRModule
    ops: OpTable
    placed: frozenset[str] = field(init=False)
    names: UniqueNamer = field(init=False)
    alignment: int = field(init=False)
    constants: dict[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = list(self.module.constants)
        for graph in self.module.graphs:
            names += [value.name for value in graph.values]
        self.names = UniqueNamer(names)
        self.placed = placed_values(self.module)
        self.alignment = cut_alignment(self.module)

    def with_constants(self, module: IRModule) -> IRModule:
        if not self.constants:
            return module
        return replace(module, constants={**module.constants, **self.constants})

    def is_large(self, call: Call) -> bool:
        if call.op not in self.ops or len(call.outputs) != 1:
            return False
        macs = self.ops[call.op].macs(make_op_call(call, self.module))
        return max(macs, call.outputs[0].type.elements) >= MIN_WORK_TO_SPLIT

    def split(self, call: Call, shares: Shares) -> tuple[CallSlice, ...] | None:
        """Return a part of `call` for each share, or None if it cannot be split."""
        y = call.outputs[0]
        if call.op not in self.ops or len(call.outputs) != 1 or y.name in self.placed:
            return None
        if call.op == "fully_connected":
            return self._output_parts(call, shares)
        rows = self.ops[call.op].row_access(make_op_call(call, self.module))
        if not isinstance(rows, RowWindow):
            return None
        return slice_rows(call, rows, shares, self.names, self.alignment)

    def copy(self, value: Value, span: Span, *, outward: bool) -> Call:
        """Return a call that copies `value` into private memory, or out of it."""
        suffix = "out" if outward else "in"
        copied = replace(value, name=self.names.unique(f"{value.name}_{suffix}"))
        device = copy_device(self.module, outward=outward)
        return Call(COPY_OP, (value,), (with_device(copied, device),), NO_ATTRS, span)

    def _output_parts(self, call: Call, shares: Shares) -> tuple[CallSlice, ...] | None:
        """Return parts of a layer with one row of outputs, with their constants."""
        y = call.outputs[0]
        x, *constants = call.inputs
        axis, step = len(y.type.shape) - 1, y.type.dtype.size_bytes
        # Each part computes a range of channels. The range is contiguous in memory only
        # if the output has no other axis.
        if y.type.elements != y.type.shape[axis]:
            return None
        for value in constants:
            # The parts would not have the constants that were placed, but new ones.
            if value is not None and (not value.constant or is_placed(value)):
                return None

        def is_aligned(channel: int) -> bool:
            return channel * step % self.alignment == 0

        cuts = choose_cuts(y.type.elements, shares, is_aligned)
        if cuts is None:
            return None
        parts: list[CallSlice] = []
        for (device, _), first, end in zip(shares, cuts, cuts[1:], strict=False):
            inputs = [x]
            for value in constants:
                if value is not None:
                    value = self._own_constant(value, first, end)
                inputs.append(value)
            part = make_part(y, axis, end - first, device, self.names)
            own = replace(call, inputs=tuple(inputs), outputs=(part,))
            parts.append(CallSlice(own, (), axis))
        return tuple(parts)

    def _own_constant(self, value: Value, first: int, end: int) -> Value:
        """Return a constant with the entries first..end of axis 0, and their scales."""
        whole = self.module.constants[value.constant or ""]
        array = whole.array()[first:end]
        name = self.names.unique(f"{whole.name}_part")
        part = Constant.from_array(name, array, whole.dtype)
        self.constants[name] = replace(part, pool=whole.pool)
        quantization = value.type.quantization
        if quantization is not None and quantization.axis == 0:
            scales = quantization.scales
            zeros = quantization.zero_points
            if len(scales) > 1:
                scales, zeros = scales[first:end], zeros[first:end]
                quantization = replace(quantization, scales=scales, zero_points=zeros)
        kind = TensorType(array.shape, value.type.dtype, quantization)
        own_name = self.names.unique(f"{value.name}_part")
        return replace(value, name=own_name, type=kind, constant=name)
