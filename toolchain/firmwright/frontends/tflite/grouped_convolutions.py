r"""Grouped convolutions as one convolution for each group of channels.

    x [n, h, w, groups * c] -- SPLIT --> [n, h, w, c] of group 0 -- CONV_2D --+
                                   \--> [n, h, w, c] of group 1 -- CONV_2D --+
                                                                             |
                              y [n, oh, ow, filters] <---- CONCATENATION ----+

The filters are [filters, kh, kw, c], in the order of the groups; filters, their scales
and biases are cut along their first axis. Groups of one channel are a depthwise
convolution, whose filters are [1, kh, kw, filters]. Each result is exact, as no sum
crosses groups. Layers of floats with int8 weights stay as they are: the reference
quantizes all channels of x with one scale. Semantics: TFLite's reference convolutions.
"""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.quant import Quantization
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.element_types import find_computed_dtype
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter
from firmwright.ir.core import Attrs

_CHANNELS = 3
"""The axis of the channels of an image [n, h, w, c]."""
_GROUPS_MAX = 256
"""More groups of several channels remain one node, which is refused."""


def split_grouped_convolutions(graph: RawSubgraph) -> RawSubgraph:
    """Return `graph` with a convolution for each group of a grouped CONV_2D."""
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        groups = _count_groups(node, graph.tensors)
        if groups == 1:
            rewriter.nodes.append(node)
        elif groups == graph.tensors[node.inputs[0]].shape[_CHANNELS]:
            _add_depthwise(rewriter, node)
        elif groups <= _GROUPS_MAX:
            _add_groups(rewriter, node, groups)
        else:
            rewriter.nodes.append(node)
    if len(rewriter.tensors) == len(graph.tensors):
        return graph
    return rewriter.subgraph()


def _count_groups(node: RawNode, tensors: tuple[RawTensor, ...]) -> int:
    """Return the number of groups of a node; 1 if it has none, or an invalid number."""
    if node.op != "CONV_2D" or len(node.inputs) < 2 or len(node.outputs) != 1:
        return 1
    if NO_TENSOR in node.inputs[:2]:
        return 1
    x, w = (tensors[index] for index in node.inputs[:2])
    if len(x.shape) != 4 or len(w.shape) != 4 or w.buffer is None:
        return 1
    if (x.dtype, w.dtype) == ("float32", "int8") or find_computed_dtype(
        w.dtype
    ) is None:
        return 1
    channels, of_group = x.shape[_CHANNELS], w.shape[_CHANNELS]
    if (
        of_group < 1
        or channels < of_group
        or channels % of_group
        or w.shape[0] % (channels // of_group)
    ):
        return 1
    for index in node.inputs[2:]:
        bias = tensors[index] if index != NO_TENSOR else w
        if bias.buffer is None or find_computed_dtype(bias.dtype) is None:
            return 1
    return channels // of_group


def _add_groups(rewriter: GraphRewriter, node: RawNode, groups: int) -> None:
    """Append the split of the input, the convolutions and their concatenation."""
    x = rewriter.tensors[node.inputs[0]]
    y = rewriter.tensors[node.outputs[0]]
    parts: list[int] = []
    results: list[int] = []
    for group in range(groups):
        part = replace(_channels_of(x, groups), name=f"{y.name}/input_{group}")
        result = replace(_channels_of(y, groups), name=f"{y.name}/{group}")
        parts.append(rewriter.add(part))
        results.append(rewriter.add(result))
    data = np.int32(_CHANNELS).tobytes()
    axis = rewriter.add(RawTensor(0, f"{y.name}/axis", (), "int32", buffer=data))
    split = {"num_splits": groups}
    rewriter.nodes.append(
        RawNode("SPLIT", 1, (axis, x.index), tuple(parts), split, node.span)
    )
    for group in range(groups):
        constants = [
            _add_rows(rewriter, index, group, groups) for index in node.inputs[1:]
        ]
        operands = (parts[group], *constants)
        rewriter.nodes.append(replace(node, inputs=operands, outputs=(results[group],)))
    joined: Attrs = {"axis": _CHANNELS, "fused_activation_function": "NONE"}
    rewriter.nodes.append(
        RawNode("CONCATENATION", 1, tuple(results), node.outputs, joined, node.span)
    )


def _add_depthwise(rewriter: GraphRewriter, node: RawNode) -> None:
    """Append a depthwise convolution, for groups of a single channel."""
    w = rewriter.tensors[node.inputs[1]]
    quant = w.quantization
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=_CHANNELS)
    filters = np.ascontiguousarray(_array_of(w).transpose(3, 1, 2, 0))
    turned = replace(
        w,
        name=f"{w.name}/depthwise",
        shape=filters.shape,
        shape_signature=(),
        quantization=quant,
        buffer=filters.tobytes(),
    )
    inputs = (node.inputs[0], rewriter.add(turned), *node.inputs[2:])
    rewriter.nodes.append(replace(node, op="DEPTHWISE_CONV_2D", inputs=inputs))


def _add_rows(rewriter: GraphRewriter, index: int, group: int, groups: int) -> int:
    """Add the rows of a group of a constant: of filters, or of their biases."""
    if index == NO_TENSOR:
        return NO_TENSOR
    tensor = rewriter.tensors[index]
    count = tensor.shape[0] // groups
    rows = slice(group * count, (group + 1) * count)
    array = _array_of(tensor)[rows]
    part = replace(
        tensor,
        name=f"{tensor.name}/{group}",
        shape=array.shape,
        shape_signature=(),
        quantization=_of_rows(tensor.quantization, rows),
        buffer=array.tobytes(),
    )
    return rewriter.add(part)


def _array_of(constant: RawTensor) -> Array:
    dtype = find_computed_dtype(constant.dtype)
    assert dtype is not None, "_count_groups checks the types"
    assert constant.buffer is not None
    return np.frombuffer(constant.buffer, dtype.np).reshape(constant.shape)


def _channels_of(image: RawTensor, groups: int) -> RawTensor:
    """Return an image's tensor with the channels of one group."""
    shape = (*image.shape[:_CHANNELS], image.shape[_CHANNELS] // groups)
    return replace(image, shape=shape, shape_signature=(), buffer=None)


def _of_rows(quant: Quantization | None, rows: slice) -> Quantization | None:
    if quant is None or quant.axis is None or len(quant.scales) == 1:
        return quant
    return replace(
        quant, scales=quant.scales[rows], zero_points=quant.zero_points[rows]
    )
