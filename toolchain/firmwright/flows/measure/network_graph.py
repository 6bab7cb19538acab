"""Collects the network of a build: operators, values between them, and kernels' C."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from firmwright.artifacts import SourceTree
from firmwright.base.quant import Quantization
from firmwright.codegen.c_names import ModelNames
from firmwright.compilation_summary import ConstantSummary, OperatorSummary
from firmwright.flows.measure.flash_attribution import constants_by_operator
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.nodes import (
    CONTROL_FLOW_OPS,
    Call,
    Function,
    TensorType,
    Value,
)
from firmwright.ir.syntax import format_attr
from firmwright.pipeline import Compilation
from firmwright.pipeline.pass_list import SELECTION_PASS, remaining_passes
from firmwright.report.network import (
    Network,
    NetworkEdge,
    NetworkNode,
    NetworkTensor,
    NodeRole,
)

_Origin = tuple[int, NetworkTensor]
"""The position of a node, and a value that it makes."""


def build_network(compiled: Compilation) -> Network | None:
    """Return the network that kernels were chosen for.

    A call without a kernel, such as a reshape, is part of the edges. Return None for a
    module that was lowered before.
    """
    graph = _graph_before_selection(compiled)
    if graph is None:
        return None
    builder = _NetworkBuilder(compiled, constants_by_operator(compiled))
    for value in graph.sources:
        builder.add_input(value)
    for index, call in enumerate(graph.body):
        builder.add_call(index, call)
    for value in graph.sinks:
        builder.add_output(value)
    kernels = dict.fromkeys(node.kernel for node in builder.nodes if node.kernel)
    sources: dict[str, str] = {}
    for kernel in kernels:
        text = find_function(compiled.tree, ModelNames(compiled.c_prefix).c(kernel))
        if text:
            sources[kernel] = text
    return Network(tuple(builder.nodes), tuple(builder.edges), sources)


def find_function(tree: SourceTree, name: str) -> str:
    """Return the definition of a C function with its comment; "" if there is none."""
    comment = r"(?:^/\*(?:(?!\*/)[\s\S])*\*/\n)?"
    body = rf"^[A-Za-z_][^\n;=]*\b{re.escape(name)}\([^;{{]*\n?\{{\n[\s\S]*?^\}}\n"
    pattern = re.compile(comment + body, re.MULTILINE)
    for path, text in tree.files.items():
        if path.endswith(".c") and isinstance(text, str):
            found = pattern.search(text)
            if found:
                return found[0]
    return ""


def _graph_before_selection(compiled: Compilation) -> Function | None:
    module = compiled.imported
    for step in remaining_passes(module, compiled.options):
        if step.name == SELECTION_PASS or not isinstance(module.entry, Function):
            break
        module = step(module).with_stage(step.stage)
    return module.entry if isinstance(module.entry, Function) else None


@dataclass
class _NetworkBuilder:
    """Adds nodes in the order of a run; `origins` has the makers of each value."""

    compiled: Compilation
    constants: dict[int, list[ConstantSummary]]
    nodes: list[NetworkNode] = field(default_factory=list)
    edges: list[NetworkEdge] = field(default_factory=list)
    origins: dict[str, tuple[_Origin, ...]] = field(default_factory=dict)

    def add_input(self, value: Value) -> None:
        tensor = _describe_value(value)
        node = NetworkNode(NodeRole.INPUT, value.name, outputs=(tensor,))
        self.origins[value.name] = ((len(self.nodes), tensor),)
        self.nodes.append(node)

    def add_output(self, value: Value) -> None:
        tensor = _describe_value(value)
        node = NetworkNode(NodeRole.OUTPUT, value.name, inputs=(tensor,))
        self._add(node, self.origins.get(value.name, ()))

    def add_call(self, index: int, call: Call) -> None:
        origins = self._origins_of(call.variables)
        summary = self.compiled.summary.operator(index)
        if summary is None and call.op not in CONTROL_FLOW_OPS:
            for value in call.outputs:
                self.origins[value.name] = origins
            return
        position = len(self.nodes)
        self._add(self._operator(index, call, summary), origins)
        for value in call.outputs:
            self.origins[value.name] = ((position, _describe_value(value)),)

    def _add(self, node: NetworkNode, origins: Sequence[_Origin]) -> None:
        position = len(self.nodes)
        self.nodes.append(node)
        for source, tensor in origins:
            self.edges.append(NetworkEdge(source, position, tensor))

    def _origins_of(self, values: Iterable[Value]) -> tuple[_Origin, ...]:
        origins: dict[_Origin, None] = {}
        for value in values:
            origins |= dict.fromkeys(self.origins.get(value.name, ()))
        return tuple(origins)

    def _operator(
        self, index: int, call: Call, summary: OperatorSummary | None
    ) -> NetworkNode:
        kind = call.op if summary is None else summary.kind
        constants: list[NetworkTensor] = []
        for constant in self.constants.get(index, ()):
            constants.append(_describe_constant(constant))
        attributes: list[tuple[str, str]] = []
        for name, value in attrs_to_mapping(call.attrs).items():
            text = value if isinstance(value, str) else format_attr(value)
            attributes.append((name.replace("_", " "), text))
        return NetworkNode(
            role=NodeRole.OPERATOR,
            label=f"{kind} {index}",
            index=index,
            inputs=tuple(map(_describe_value, call.variables)),
            outputs=tuple(map(_describe_value, call.outputs)),
            constants=tuple(constants),
            attributes=tuple(attributes),
            kernel="" if summary is None else summary.kernel,
        )


def _describe_value(value: Value) -> NetworkTensor:
    kind: TensorType = value.type
    return NetworkTensor(
        name=value.name,
        dtype=kind.dtype.name,
        shape=kind.shape,
        size_bytes=kind.size_bytes,
        quantization=format_quantization(kind.quantization),
    )


def _describe_constant(constant: ConstantSummary) -> NetworkTensor:
    size_bytes = constant.size_bytes
    return NetworkTensor(constant.name, constant.dtype, constant.shape, size_bytes)


def format_quantization(quantization: Quantization | None) -> str:
    """Describe scales and zero points; "" for values that are not quantized."""
    if quantization is None:
        return ""
    scales, zero_points = quantization.scales, set(quantization.zero_points)
    zero = f"{min(zero_points)}"
    if len(zero_points) > 1:
        zero = f"{zero} to {max(zero_points)}"
    if len(scales) == 1:
        return f"scale {scales[0]:.6g}, zero point {zero}"
    span = f"{min(scales):.4g} to {max(scales):.4g}"
    return f"{len(scales)} scales, {span}, zero point {zero}"
