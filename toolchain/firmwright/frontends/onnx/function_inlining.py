"""Inlining of operators that the ONNX standard or the model defines as functions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base import resource_limits
from firmwright.base.errors import InternalError, NotSupportedError
from firmwright.frontends.onnx import protobuf
from firmwright.frontends.onnx.graph_facts import GraphFacts
from firmwright.frontends.onnx.node_context import OnnxValue
from firmwright.frontends.onnx.node_schemas import find_schema
from firmwright.frontends.onnx.older_operators import OPSET_MIN, rewritten_nodes
from firmwright.frontends.onnx.protobuf import Message


@dataclass(slots=True)
class InliningBudget:
    """Limits what functions, branches and loops of a small file can expand to."""

    nodes: int = 0
    levels: int = 0

    @contextmanager
    def level(self, nodes: int) -> Iterator[None]:
        """Enter a body of this number of nodes.

        Raise NotSupportedError above a limit.
        """
        self.nodes += nodes
        nodes_max, levels_max = resource_limits.expansion_limits()
        if self.nodes > nodes_max or self.levels >= levels_max:
            raise NotSupportedError(
                f"functions, branches and loops that expand to more than {nodes_max:,} "
                f"operators or {levels_max} levels ({resource_limits.RAISED_BY})"
            )
        self.levels += 1
        try:
            yield
        finally:
            self.levels -= 1


def has_function_definition(
    node: Message, opset: int, local: Sequence[Message]
) -> bool:
    if _local_function(node, local) is not None:
        return True
    schema = find_schema(node, opset)
    if schema is None:
        return False
    return bool(schema.has_function) or _function_opsets(schema, opset) != []


def function_definition(
    node: Message,
    opset: int,
    inputs: Sequence[OnnxValue | None],
    local: Sequence[Message],
) -> Message:
    own_definition = _local_function(node, local)
    if own_definition is not None:
        return own_definition
    schema = find_schema(node, opset)
    if schema is None:
        raise InternalError(f"{node.op_type} has no definition")
    if schema.has_function:
        return schema.function_body
    newest = max(_function_opsets(schema, opset))
    types = [_type(item) for item in inputs]
    function = protobuf.onnx_package().FunctionProto()
    text = schema.get_context_dependent_function_with_opset_version(
        newest, node.SerializeToString(), types
    )
    function.ParseFromString(text)
    return function


def _local_function(node: Message, local: Sequence[Message]) -> Message | None:
    key = (node.op_type, node.domain)
    for item in local:
        if (item.name, item.domain) == key:
            return item
    return None


def _function_opsets(schema: Message, opset: int) -> list[int]:
    if not schema.has_context_dependent_function:
        return []
    return [v for v in schema.context_dependent_function_opset_versions if v <= opset]


def _type(tensor: OnnxValue | None) -> bytes:
    onnx = protobuf.onnx_package()
    if tensor is None:
        return bytes(onnx.TypeProto().SerializeToString())
    kind = onnx.helper.make_tensor_type_proto(
        protobuf.dtype_code(tensor.type.dtype.name), tensor.shape
    )
    return bytes(kind.SerializeToString())


def inline_function(
    node: Message, function: Message, opset: int
) -> tuple[int, list[Message]]:
    """Return the function's nodes with `node`'s names and attributes, and their opset.

    Nodes of an older opset are rewritten as those of OPSET_MIN.
    """
    stem = next(iter(node.output), "") or node.op_type
    names = dict(zip(function.input, node.input, strict=False))
    # An output that the caller omits has a local name.
    for ours, theirs in zip(function.output, node.output, strict=False):
        names[ours] = theirs or f"{stem}/{ours}"
    versions = {item.domain: item.version for item in function.opset_import}
    sources = (*function.attribute_proto, *_defaults(node, opset), *node.attribute)
    attributes = {item.name: item for item in sources}
    instance = _Instance(stem, names, attributes, set(function.input))
    body = [instance.node(inner) for inner in function.node]
    version = int(versions.get("", opset))
    if version >= OPSET_MIN:
        return version, body
    return OPSET_MIN, list(rewritten_nodes(body, version, GraphFacts()))


def _defaults(node: Message, opset: int) -> list[Message]:
    schema = find_schema(node, opset)
    if schema is None:
        return []
    values = [item.default_value for item in schema.attributes.values()]
    return [value for value in values if value.name]


@dataclass(frozen=True, slots=True)
class _Instance:
    """A function call: renames inner tensors and substitutes its attribute values."""

    stem: str
    names: dict[str, str]
    attributes: dict[str, Message]
    optional: set[str]

    def node(self, inner: Message) -> Message:
        node = protobuf.onnx_package().NodeProto()
        node.CopyFrom(inner)
        node.input[:] = map(self._renamed, inner.input)
        node.output[:] = map(self._renamed, inner.output)
        del node.attribute[:]
        for item in inner.attribute:
            source = item
            if item.ref_attr_name:
                source = self.attributes.get(item.ref_attr_name)
            if source is None:
                continue
            filled = node.attribute.add()
            filled.CopyFrom(source)
            filled.name = item.name
            if filled.HasField("g"):
                self._rename_graph(filled.g)
        return node

    def _renamed(self, name: str) -> str:
        if not name or name in self.names:
            return self.names.get(name, "")
        return "" if name in self.optional else f"{self.stem}/{name}"

    def _rename_graph(self, graph: Message) -> None:
        for item in (*graph.input, *graph.initializer):
            item.name = f"{self.stem}/{item.name}"
        inner = list(map(self.node, graph.node))
        del graph.node[:]
        graph.node.extend(inner)
        for item in graph.output:
            item.name = self.names.get(item.name, f"{self.stem}/{item.name}")
