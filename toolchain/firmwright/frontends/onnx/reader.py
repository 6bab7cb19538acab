"""Reader of the ONNX container; checks graph, opset, and names defined before use."""

import contextlib
import graphlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from firmwright.base.dtypes import Array, find_dtype
from firmwright.base.errors import ModelError, UnsupportedError, UnsupportedItem
from firmwright.frontends.onnx.contrib_expansion import expand_contrib_operators
from firmwright.frontends.onnx.node_schemas import check_signatures
from firmwright.frontends.onnx.older_operators import OPSET_MIN
from firmwright.frontends.onnx.open_sizes import (
    Dimension,
    ImpliedSizes,
    implied_sizes,
)
from firmwright.frontends.onnx.opset_conversion import with_current_opset
from firmwright.frontends.onnx.protobuf import (
    Message,
    SyntheticNode,
    dtype_name,
    onnx_package,
    tensor_array,
)
from firmwright.ir.graph.nodes import TensorType

STATE_KEY = "firmwright.state."
"""Prefix of metadata keys that name a state's input; their values name its output."""


@dataclass(frozen=True, slots=True)
class OnnxValueInfo:
    """An input or output of the graph; an unknown dimension is its name or "?"."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...] | None

    @property
    def fixed_sizes(self) -> tuple[int, ...]:
        return tuple(size for size in self.shape or () if isinstance(size, int))

    @property
    def declared_type(self) -> TensorType | None:
        """The type, or None if a dimension or the element type is unknown."""
        dtype = find_dtype(self.dtype)
        if self.shape is None or dtype is None:
            return None
        if len(self.fixed_sizes) < len(self.shape):
            return None
        return TensorType(self.fixed_sizes, dtype)


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A decoded file.

    `nodes` are NodeProto messages, or `SyntheticNode`s, in executable order; `values`
    are the tensors with declared types, `implied` the open sizes of inputs that weights
    determine. `titles` maps results to the operators of another format that define
    them, and `updates` maps initializers that are state to their values after a run.
    """

    file: str
    opsets: Mapping[str, int]
    inputs: tuple[OnnxValueInfo, ...]
    outputs: tuple[OnnxValueInfo, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[Message, ...]
    functions: tuple[Message, ...] = ()
    values: tuple[OnnxValueInfo, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    implied: ImpliedSizes = field(default_factory=dict)

    @property
    def opset(self) -> int:
        return self.opsets.get("", OPSET_MIN)


def is_onnx(data: bytes, file: str) -> bool:
    """Detect an ONNX model by its file name or first bytes."""
    if file.lower().endswith(".onnx"):
        return True
    # A ModelProto begins with its field 1, the version; a flatbuffer has its identifier
    # at byte 4.
    return data[:1] == b"\x08" and data[4:8] != b"TFL3"


def parse_model(data: bytes, file: str) -> Message:
    """Return the ModelProto of a file, or raise ModelError if it is malformed."""
    model = onnx_package().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose class varies by backend
        raise ModelError.broken("it is not an ONNX file.", file) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError.broken("it has no graph.", file)
    check_signatures(model, file)
    return model


def read_onnx(data: bytes, file: str) -> OnnxModel:
    """Decode a file, or raise ModelError, UnsupportedError or ToolMissingError."""
    model = with_current_opset(parse_model(data, file), file)
    opsets = _opsets(model, file)
    graph = model.graph
    initializers = {item.name: _array(item, file) for item in graph.initializer}
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        item = UnsupportedItem("SPARSE", name, "sparse tensors")
        raise UnsupportedError([item], where=file)
    ordered = _ordered_nodes(graph)
    _check_names(graph, ordered, file)
    updates = declared_state(model, file)
    initial: dict[str, Array] = {}
    for info in graph.input:
        if info.name in updates and info.name not in initializers:
            initial[info.name] = _initial_state(_tensor(info), file)
    initializers |= initial
    free_inputs = [info for info in graph.input if info.name not in initializers]
    inputs = tuple(map(_tensor, free_inputs))
    following = set(updates.values())
    free_outputs = [info for info in graph.output if info.name not in following]
    outputs = tuple(map(_tensor, free_outputs))
    expanded, titles = expand_contrib_operators(ordered)
    nodes = fuse_dynamic_products(expanded, initializers)
    return OnnxModel(
        file=file,
        opsets=opsets,
        inputs=inputs,
        outputs=outputs,
        initializers=initializers,
        nodes=nodes,
        functions=tuple(model.functions),
        values=(*outputs, *map(_tensor, graph.value_info)),
        titles=titles,
        updates=updates,
        implied=implied_sizes(model),
    )


def declared_state(model: Message, file: str) -> dict[str, str]:
    """Return the inputs that are state, with the outputs that hold it after a run."""
    pairs: dict[str, str] = {}
    for item in model.metadata_props:
        if item.key.startswith(STATE_KEY):
            pairs[item.key.removeprefix(STATE_KEY)] = item.value
    inputs = {item.name for item in model.graph.input}
    outputs = {item.name for item in model.graph.output}
    for name, following in pairs.items():
        if name not in inputs or following not in outputs:
            what = (
                f"the state {name!r} = {following!r} is not an input and an output of "
                "the model."
            )
            raise ModelError.broken(what, file)
    return pairs


def _initial_state(info: OnnxValueInfo, file: str) -> Array:
    if not all(isinstance(size, int) for size in info.shape or ("?",)):
        what = f"the shape of the state {info.name!r} is not fixed."
        raise ModelError.broken(what, file)
    return np.zeros([int(n) for n in info.shape or ()], info.dtype)


def _opsets(model: Message, file: str) -> dict[str, int]:
    opsets = {item.domain: int(item.version) for item in model.opset_import}
    newest = int(onnx_package().defs.onnx_opset_version())
    opsets[""] = opsets.get("", opsets.get("ai.onnx", newest))
    if not 1 <= opsets[""] <= newest:
        why = f"the newest known is {newest}"
        item = UnsupportedItem("OPSET", f"opset {opsets['']}", why)
        hint = "a newer package onnx, or export the model for an older opset."
        raise UnsupportedError([item], where=file, hint=hint)
    return opsets


def _tensor(info: Message) -> OnnxValueInfo:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return OnnxValueInfo(info.name, kind or "unknown", None)
    tensor = info.type.tensor_type
    shape: tuple[Dimension, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(map(_dimension, tensor.shape.dim))
    return OnnxValueInfo(info.name, dtype_name(tensor.elem_type), shape)


def _dimension(dim: Message) -> Dimension:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or "?"


def _array(tensor: Message, file: str) -> Array:
    try:
        return tensor_array(tensor)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        what = f"the data of {tensor.name!r} do not fit its shape."
        raise ModelError.broken(what, file) from error


def _ordered_nodes(graph: Message) -> list[Message]:
    """Return the nodes in ONNX Runtime's order, each after those that it reads."""
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        makers |= dict.fromkeys(node.output, index)
    before: dict[int, set[int]] = {}
    for index, node in enumerate(graph.node):
        before[index] = {makers[name] for name in _names_read(node) if name in makers}
    order = list(before)
    if any(max(earlier, default=-1) >= index for index, earlier in before.items()):
        with contextlib.suppress(graphlib.CycleError):
            order = list(graphlib.TopologicalSorter(before).static_order())
    return [graph.node[index] for index in order]


def _names_read(node: Message) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _names_read(inner)


def _check_names(graph: Message, nodes: Sequence[Message], file: str) -> None:
    defined = {item.name for item in graph.input}
    defined |= {item.name for item in graph.initializer}
    for index, node in enumerate(nodes):
        where = f"{file}: node {index} ({node.op_type})"
        for name in node.input:
            if name and name not in defined:
                what = f"{name!r} is read before anything has written it."
                raise ModelError.broken(what, where)
        for name in node.output:
            if name and name in defined:
                raise ModelError.broken(f"{name!r} is defined a second time.", where)
            defined.add(name)
    for item in graph.output:
        if item.name not in defined:
            raise ModelError.broken(f"nothing writes its output {item.name!r}.", file)


def fuse_dynamic_products(
    nodes: Sequence[Message], constants: Mapping[str, Array]
) -> tuple[Message, ...]:
    """Return the nodes with recognized products.

    Their integer parts remain, perhaps unused.
    """
    makers: dict[str, Message] = {}
    for node in nodes:
        makers |= dict.fromkeys(node.output, node)
    return tuple(_fused(node, makers, constants) or node for node in nodes)


def _fused(
    node: Message, makers: Mapping[str, Message], constants: Mapping[str, Array]
) -> Message | None:
    if node.op_type != "Mul":
        return None
    for total, scale in permutations(node.input):
        cast, product = makers.get(total), None
        if cast is not None and cast.op_type == "Cast":
            product = makers.get(cast.input[0])
        scaling = makers.get(scale)
        if product is None or product.op_type != "MatMulInteger" or scaling is None:
            continue
        quantized = makers.get(product.input[0])
        if quantized is None or quantized.op_type != "DynamicQuantizeLinear":
            continue
        own = [name for name in scaling.input if name != quantized.output[1]]
        is_same = scaling.op_type == "Mul" and len(own) == 1 and own[0] in constants
        if is_same and _is_plain(product, quantized, constants):
            return onnx_package().helper.make_node(
                "DynamicQuantizeMatMul",
                [quantized.input[0], product.input[1], own[0]],
                list(node.output),
                domain="com.microsoft",
            )
    return None


def _is_plain(
    product: Message, quantized: Message, constants: Mapping[str, Array]
) -> bool:
    """Return whether int8 weights have no zero point, and the input's own is used."""
    weights = constants.get(product.input[1])
    zeros = constants.get(product.input[3]) if len(product.input) > 3 else np.zeros(1)
    return (
        list(product.input[2:3]) == [quantized.output[2]]
        and weights is not None
        and weights.dtype == np.int8
        and weights.ndim == 2
        and zeros is not None
        and not zeros.any()
    )


def unneeded_results(model: OnnxModel) -> set[str]:
    """Return the results of nodes that contribute to no output and no state."""
    needed = {item.name for item in model.outputs} | set(model.updates.values())
    unneeded: set[str] = set()
    for node in reversed(model.nodes):
        if needed.isdisjoint(node.output):
            unneeded.update(node.output)
        else:
            needed.update(_read_names(node))
    return unneeded


def _read_names(node: Message) -> Iterator[str]:
    """Yield the names that a node and its bodies read, also the bodies' own."""
    yield from node.input
    if isinstance(node, SyntheticNode):
        return
    for item in node.attribute:
        for graph in (item.g, *item.graphs):
            for output in graph.output:
                yield output.name
            for inner in graph.node:
                yield from _read_names(inner)
