"""Conversion of uint8 tensors, the older asymmetric quantization, to int8.

Values and zero points become 128 lower, which is exact. The model's inputs and outputs
and operators that read stored numbers keep uint8; QUANTIZE nodes convert between both
types. A node with other results for uint8 gets the option `unsigned` (convolutions,
fully connected layers, average pools) or is replaced (CONCATENATION, RESIZE_BILINEAR).
Semantics: TFLite's reference kernels of uint8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.quant import Quantization
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.operators.registry import tflite_importers

BYTE_TABLE = "byte_table"
"""Name of inserted nodes: our own operator, as TFLite has no lookup operator."""
_OFFSET = 128
_STORED_NUMBERS = frozenset(
    (
        "ASSIGN_VARIABLE",
        "BITWISE_XOR",
        "CALL_ONCE",
        "CAST",
        "IF",
        "READ_VARIABLE",
        "RIGHT_SHIFT",
        "SCATTER_ND",
        "WHILE",
        "ZEROS_LIKE",
    )
)
"""Operators that read or write numbers as stored."""
_EITHER = frozenset(("QUANTIZE", "DEQUANTIZE"))
"""Operators that accept both types, besides custom operators whose importers say so."""


def make_signed(graph: RawSubgraph) -> RawSubgraph:
    """Return `graph` with its quantized uint8 tensors converted to int8."""
    if not any(map(_is_unsigned, graph.tensors)):
        return graph
    graph = _with_hybrid_weights(graph)
    kept = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if _reads_stored_numbers(node):
            kept.update((*node.inputs, *node.outputs))
    rewrite = _Rewrite(list(graph.tensors), kept)
    for tensor in graph.tensors:
        if _is_unsigned(tensor) and tensor.index not in kept:
            rewrite.tensors[tensor.index] = _as_signed(tensor)
    for node in graph.nodes:
        operands = [index for index in node.inputs if index != NO_TENSOR]
        rewrite.add(node, [_is_unsigned(graph.tensors[index]) for index in operands])
    return replace(graph, tensors=tuple(rewrite.tensors), nodes=tuple(rewrite.nodes))


def _is_unsigned(tensor: RawTensor) -> bool:
    return (
        tensor.dtype == "uint8"
        and tensor.quantization is not None
        and not tensor.is_variable
    )


def _with_hybrid_weights(graph: RawSubgraph) -> RawSubgraph:
    """Convert uint8 weights of float layers, which hold two's complement, to int8."""
    tensors = list(graph.tensors)
    for node in graph.nodes:
        operands = [index for index in node.inputs if index != NO_TENSOR]
        x, *weights = operands or [NO_TENSOR]
        if node.op.startswith("custom:") or not weights:
            continue
        if tensors[x].dtype != "float32":
            continue
        for index in weights:
            tensor = tensors[index]
            quant = tensor.quantization
            is_constant = tensor.buffer is not None
            if _is_unsigned(tensor) and is_constant and quant is not None:
                quant = replace(quant, zero_points=(0,) * len(quant.scales))
                tensors[index] = replace(tensor, dtype="int8", quantization=quant)
    return replace(graph, tensors=tuple(tensors))


def _reads_stored_numbers(node: RawNode) -> bool:
    is_custom = node.op.startswith("custom:") and not _takes_either(node)
    return is_custom or node.op in _STORED_NUMBERS


def _takes_either(node: RawNode) -> bool:
    importer = tflite_importers().get(node.op)
    return node.op in _EITHER or (importer is not None and importer.takes_uint8)


def _as_signed(tensor: RawTensor) -> RawTensor:
    quant, data = tensor.quantization, tensor.buffer
    assert quant is not None  # ensured by _is_unsigned
    points = tuple(point - _OFFSET for point in quant.zero_points)
    if data is not None:
        data = (np.frombuffer(data, np.uint8) ^ _OFFSET).tobytes()
    quant = replace(quant, zero_points=points)
    return replace(tensor, dtype="int8", quantization=quant, buffer=data)


@dataclass
class _Rewrite:
    """Tensors and nodes of the new graph; `kept` tensors get an int8 twin if needed."""

    tensors: list[RawTensor]
    kept: set[int]
    nodes: list[RawNode] = field(default_factory=list)
    twins: dict[int, int] = field(default_factory=dict)

    def add(self, node: RawNode, are_unsigned: Sequence[bool]) -> None:
        if _reads_stored_numbers(node) or _takes_either(node):
            self.nodes.append(node)
            return
        special = _REPLACEMENTS.get(node.op)
        operands = (*node.inputs, *node.outputs)
        is_complete = NO_TENSOR not in operands and node.inputs and node.outputs
        if special is not None and any(are_unsigned) and is_complete:
            node = special(self, node)
        results = node.outputs
        outputs = tuple(map(self._written, results))
        inputs = tuple(self.signed(index, node) for index in node.inputs)
        options = node.options
        if any(are_unsigned):
            options = {**options, "unsigned": True}
        node = replace(node, inputs=inputs, outputs=outputs, options=options)
        self.nodes.append(node)
        for index, twin in zip(results, outputs, strict=True):
            if index != twin:
                self.insert("QUANTIZE", (twin,), index, node)

    def signed(self, index: int, node: RawNode) -> int:
        """Return the int8 form of tensor `index`, which `node` reads."""
        if index == NO_TENSOR or index not in self.kept:
            return index
        if not _is_unsigned(self.tensors[index]):
            return index
        if index not in self.twins:
            twin = self._twin(index)
            if self.tensors[twin].buffer is None:
                self.insert("QUANTIZE", (index,), twin, node)
        return self.twins[index]

    def new_tensor(self, like: RawTensor, suffix: str) -> int:
        index = len(self.tensors)
        self.tensors.append(replace(like, index=index, name=f"{like.name}/{suffix}"))
        return index

    def insert(
        self,
        op: str,
        inputs: tuple[int, ...],
        output: int,
        node: RawNode,
        **options: int | str,
    ) -> None:
        self.nodes.append(RawNode(op, 1, inputs, (output,), options, node.span))

    def cast(self, index: int, dtype: str, node: RawNode) -> int:
        like = replace(self.tensors[index], dtype=dtype, quantization=None, buffer=None)
        result = self.new_tensor(like, dtype)
        self.insert("CAST", (index,), result, node)
        return result

    def add_number(self, index: int, number: float, node: RawNode) -> int:
        like = self.tensors[index]
        data = np.float32(number).tobytes()
        scalar = replace(like, shape=(), shape_signature=(), buffer=data)
        term = self.new_tensor(scalar, "term")
        result = self.new_tensor(like, "sum")
        self.insert(
            "ADD", (index, term), result, node, fused_activation_function="NONE"
        )
        return result

    def _twin(self, index: int) -> int:
        self.twins[index] = self.new_tensor(_as_signed(self.tensors[index]), "int8")
        return self.twins[index]

    def _written(self, index: int) -> int:
        needs_twin = index in self.kept and _is_unsigned(self.tensors[index])
        return self._twin(index) if needs_twin else index


def _concatenation(rewrite: _Rewrite, node: RawNode) -> RawNode:
    """Rescale, by lookup, the inputs whose quantization differs from the output's."""
    result = rewrite.tensors[node.outputs[0]]
    y = (_as_signed(result) if _is_unsigned(result) else result).quantization
    if y is not None and y.per_channel:
        return node
    inputs = []
    for index in node.inputs:
        signed = rewrite.signed(index, node)
        x = rewrite.tensors[signed]
        quant = x.quantization
        if (
            quant is None
            or y is None
            or quant == y
            or x.dtype != "int8"
            or len(quant.scales) > 1
        ):
            inputs.append(signed)
            continue
        data = _rescaled(quant, y).tobytes()
        lookup = RawTensor(0, x.name, (256,), "int8", None, data)
        table = rewrite.new_tensor(lookup, "table")
        like = replace(x, quantization=y, buffer=None)
        rescaled = rewrite.new_tensor(like, "rescaled")
        rewrite.insert(BYTE_TABLE, (signed, table), rescaled, node)
        inputs.append(rescaled)
    return replace(node, inputs=tuple(inputs))


def _rescaled(x: Quantization, y: Quantization) -> Array:
    """Return the results for all values of x, in the reference's float32 arithmetic."""
    with np.errstate(all="ignore"):  # the reference is undefined beyond 32 bits
        scale = np.float32(x.scale) * (np.float32(1) / np.float32(y.scale))
        bias = np.float32(-(x.zero_point + _OFFSET)) * scale
        reals = np.arange(256, dtype=np.float32) * scale + bias
        steps = np.nan_to_num(reals).astype(np.float64)
    whole = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + y.zero_point
    return np.asarray(np.clip(whole, -_OFFSET, _OFFSET - 1), np.int8)


def _resize(rewrite: _Rewrite, node: RawNode) -> RawNode:
    """Interpolate uint8 values (128 above int8) in floats, add 0.5 and round down."""
    x = rewrite.signed(node.inputs[0], node)
    y = rewrite.tensors[node.outputs[0]]
    reals = rewrite.add_number(rewrite.cast(x, "float32", node), _OFFSET, node)
    floats = replace(y, dtype="float32", quantization=None, buffer=None)
    resized = rewrite.new_tensor(floats, "resized")
    inputs = (reals, *node.inputs[1:])
    rewrite.nodes.append(replace(node, inputs=inputs, outputs=(resized,)))
    halves = rewrite.add_number(resized, 0.5, node)
    whole = rewrite.new_tensor(rewrite.tensors[halves], "whole")
    rewrite.insert("FLOOR", (halves,), whole, node)
    lowered = rewrite.cast(rewrite.add_number(whole, -_OFFSET, node), "int32", node)
    return RawNode("CAST", 1, (lowered,), node.outputs, {}, node.span)


_REPLACEMENTS: Mapping[str, Callable[[_Rewrite, RawNode], RawNode]] = {
    "CONCATENATION": _concatenation,
    "RESIZE_BILINEAR": _resize,
}
