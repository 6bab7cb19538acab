"""Check of nodes against the signatures that ONNX's schemas give their operators.

ONNX Runtime refuses a model with a node that violates its schema: an absent input or
attribute, an input too many, an attribute or element type that the operator does not
have. All later steps rely on the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firmwright.base.dtypes import Array, DType, find_dtype
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.frontends.onnx import protobuf
from firmwright.frontends.onnx.node_context import ConstantValue, OnnxValue
from firmwright.frontends.onnx.older_operators import OPSET_MIN
from firmwright.frontends.onnx.protobuf import Message, SyntheticNode
from firmwright.frontends.onnx.shape_inference import infer_shapes
from firmwright.ir.graph import TensorType

_SHAPE_ELEMENTS_MAX: Final = 4096
"""Shape inference reads input values (shapes, sizes, counts) up to this size."""
_STANDARD_DOMAINS = ("", "ai.onnx")


def find_schema(node: Message, opset: int) -> Message | None:
    """Return the schema of a node's operator, or None if ONNX does not define it.

    `opset` is that of the standard domain; the first version counts in others.
    """
    return _find_schema(node, opset if own_domain(node) == "" else 1)


def _find_schema(node: Message, version: int) -> Message | None:
    onnx = protobuf.onnx_package()
    try:
        return onnx.defs.get_schema(node.op_type, version, own_domain(node))
    except (onnx.defs.SchemaError, TypeError):  # TypeError: the name is not text
        return None


def own_domain(item: Message) -> str:
    """Return a node's or import's domain, "" for both names of the standard one."""
    return "" if item.domain in _STANDARD_DOMAINS else str(item.domain)


def check_signatures(model: Message, file: str) -> None:
    """Check the inputs, outputs and attributes of all nodes of ONNX's operators.

    Nodes in branches, loops and functions count. Raise ModelError if one lacks an
    input, output or attribute that ONNX requires, names more inputs or outputs than
    ONNX defines, or has an attribute of another type.
    """
    _check_nodes(model.graph.node, _versions(model.opset_import), file)
    for function in model.functions:
        where = f"{file}: function {function.name}"
        _check_nodes(function.node, _versions(function.opset_import), where)


def _versions(imports: Sequence[Message]) -> dict[str, int]:
    """Return the opset version of each domain, the highest if there are several."""
    versions: dict[str, int] = {}
    for item in imports:
        domain = own_domain(item)
        versions[domain] = max(int(item.version), versions.get(domain, 1))
    return versions


def _check_nodes(
    nodes: Sequence[Message], versions: Mapping[str, int], where: str
) -> None:
    for index, node in enumerate(nodes):
        place = f"{where}: node {index} ({node.op_type})"
        schema = _find_schema(node, versions.get(own_domain(node), 1))
        if schema is not None and not schema.deprecated:
            _check_names(node.input, _Formals.of_inputs(schema), place)
            _check_names(node.output, _Formals.of_outputs(schema), place)
            _check_attributes(node, schema, place)
        for item in node.attribute:
            for graph in (item.g, *item.graphs):
                _check_nodes(graph.node, versions, place)


@dataclass(frozen=True, slots=True)
class _Formals:
    """The inputs or outputs of a schema: `kind` is "input" or "output"."""

    kind: str
    parameters: Sequence[Any]
    least: int
    most: int

    @classmethod
    def of_inputs(cls, schema: Any) -> _Formals:
        return cls("input", schema.inputs, schema.min_input, schema.max_input)

    @classmethod
    def of_outputs(cls, schema: Any) -> _Formals:
        return cls("output", schema.outputs, schema.min_output, schema.max_output)


def _check_names(names: Sequence[str], formals: _Formals, where: str) -> None:
    count = len(names)
    if count > formals.most:
        raise ModelError.broken(
            f"the node has {count} {formals.kind}s; ONNX defines {formals.most}.", where
        )
    options = protobuf.onnx_package().defs.OpSchema.FormalParameterOption
    for place in range(formals.least):
        formal = formals.parameters[min(place, len(formals.parameters) - 1)]
        is_unnamed = place < count and not names[place]
        if place >= count or (is_unnamed and formal.option == options.Single):
            raise ModelError.broken(
                f"the node lacks its {formals.kind} {formal.name}.", where
            )


def _check_attributes(node: Message, schema: Any, where: str) -> None:
    given = {item.name: item for item in node.attribute}
    kinds = protobuf.onnx_package().AttributeProto.AttributeType
    for name, declared in schema.attributes.items():
        item = given.get(name)
        if item is None and declared.required:
            raise ModelError.broken(f"the node lacks its attribute {name}.", where)
        if item is None or int(item.type) == int(declared.type.value):
            continue
        found = kinds.Name(item.type) if item.type in kinds.values() else item.type
        raise ModelError.broken(
            f"its attribute {name} is of type {found}; ONNX defines "
            f"{declared.type.name}.",
            where,
        )


def check_element_types(
    node: Message, opset: int, inputs: Sequence[OnnxValue | None]
) -> None:
    """Refuse element types that ONNX does not define for a standard operator."""
    if node.domain not in _STANDARD_DOMAINS or isinstance(node, SyntheticNode):
        return
    schema = find_schema(node, max(opset, OPSET_MIN))
    formals = list(schema.inputs) if schema is not None else []
    if schema is None or not formals:
        return
    limits = schema.type_constraints
    allowed = {item.type_param_str: item.allowed_type_strs for item in limits}
    types: dict[str, str] = {}
    for place, item in enumerate(inputs):
        formal = formals[min(place, len(formals) - 1)]
        if item is None or not formal.is_homogeneous:
            continue
        if isinstance(item, ConstantValue):
            own = item.array.dtype.name
        else:
            own = item.type.dtype.name
        first = types.setdefault(formal.type_str, own)
        if own != first:
            raise NotSupportedError(f"{first} with {own}, which ONNX does not define")
        text = f"tensor({protobuf.type_name(own)})"
        if text not in allowed.get(formal.type_str, [text]):
            raise NotSupportedError(f"{own}, for which ONNX does not define it")


def model_of_node(
    node: Message,
    opset: int,
    inputs: Sequence[Message],
    initializers: Sequence[Message] = (),
) -> Message:
    """Return a model of one node, whose outputs have no types."""
    onnx = protobuf.onnx_package()
    names = filter(None, node.output)
    outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in names]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs, initializers)
    version = opset if own_domain(node) == "" else 1
    opsets = [onnx.helper.make_opsetid(node.domain, version)]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def inference_model(
    node: Message, opset: int, operands: Mapping[str, Array | TensorType]
) -> Message:
    """Return a model of one node for shape inference, which reads small arrays."""
    onnx = protobuf.onnx_package()
    helper = onnx.helper
    infos: list[Message] = []
    constants: list[Message] = []
    for name, x in operands.items():
        if isinstance(x, TensorType):
            code = protobuf.dtype_code(x.dtype.name)
            infos.append(helper.make_tensor_value_info(name, code, x.shape))
        elif x.size <= _SHAPE_ELEMENTS_MAX:
            constants.append(onnx.numpy_helper.from_array(x, name))
        else:
            code = helper.np_dtype_to_tensor_dtype(x.dtype)
            infos.append(helper.make_tensor_value_info(name, code, x.shape))
    return model_of_node(node, opset, infos, constants)


def _operands(
    node: Message, inputs: Sequence[OnnxValue | None]
) -> dict[str, Array | TensorType]:
    """Return the inputs of a node by name: constants as arrays, others as types."""
    operands: dict[str, Array | TensorType] = {}
    for name, item in zip(node.input, inputs, strict=True):
        if isinstance(item, ConstantValue):
            operands[name] = item.array
        elif item is not None:
            operands[name] = item.type
    return operands


def inferred_element_types(
    node: Message, opset: int, inputs: Sequence[OnnxValue | None]
) -> list[DType | None]:
    """Return the element types of the outputs by ONNX's inference, None for unknown."""
    unknown: list[DType | None] = [None] * len(node.output)
    if isinstance(node, SyntheticNode):
        return unknown
    onnx = protobuf.onnx_package()
    model = inference_model(node, opset, _operands(node, inputs))
    try:
        inferred = infer_shapes(model).graph.output
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return unknown
    by_name: dict[str, DType | None] = {}
    for item in inferred:
        code = item.type.tensor_type.elem_type
        by_name[item.name] = find_dtype(protobuf.dtype_name(code)) if code else None
    return [by_name.get(name) for name in node.output]


def find_shape_error(
    node: Message, opset: int, inputs: Sequence[OnnxValue | None]
) -> str:
    """Return the rule of ONNX's shape inference that a node breaks, "" if none."""
    if isinstance(node, SyntheticNode):
        return ""
    onnx = protobuf.onnx_package()
    model = inference_model(node, opset, _operands(node, inputs))
    try:
        infer_shapes(model, is_strict=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        # The message has the kind of the error and the operator's name in front.
        return str(error).rpartition("] ")[2].strip()
    return ""
