"""Convolutions of volumes, with the channels in front of the spatial axes.

    x [n, d, h, w, c] -- TRANSPOSE --> [n, c, d, h, w] -- CONV_3D --> [n, m, d, h, w]
                                                                           |
    y [n, d, h, w, m] <-- activation -- [n, d, h, w, m] <-- TRANSPOSE -----+

The filters are [d, h, w, c, m], of transposed convolutions [d, h, w, m, c], and become
[m, c, d, h, w] and [c, m, d, h, w]. Semantics: TFLite's reference Conv3D and
Conv3DTranspose, of floats.
"""

from dataclasses import replace

import numpy as np

from firmwright.frontends.tflite.decoded_model import NO_TENSOR, RawNode, RawSubgraph
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter

CHANNELS_FIRST = "channels_first"
"""Option of a node that has the tensors of this module."""
_RANK = 5
_TO_FRONT = (0, 4, 1, 2, 3)
_TO_BACK = (0, 2, 3, 4, 1)
_FILTERS = (4, 3, 0, 1, 2)
_X_AND_FILTERS = {"CONV_3D": (0, 1), "CONV_3D_TRANSPOSE": (2, 1)}
"""Positions of the inputs."""
_ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1")


def move_channels_to_front(graph: RawSubgraph) -> RawSubgraph:
    """Return `graph` with its convolutions of volumes as in the module's docstring."""
    if not any(_is_volume_convolution(graph, node) for node in graph.nodes):
        return graph
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        if _is_volume_convolution(graph, node):
            _rewrite(rewriter, node)
        else:
            rewriter.nodes.append(node)
    return rewriter.subgraph()


def _is_volume_convolution(graph: RawSubgraph, node: RawNode) -> bool:
    positions = _X_AND_FILTERS.get(node.op)
    if positions is None or len(node.inputs) <= max(positions):
        return False
    places = [*(node.inputs[position] for position in positions), *node.outputs]
    if NO_TENSOR in places or len(places) != 3:
        return False
    return all(len(graph.tensors[place].shape) == _RANK for place in places)


def _rewrite(rewriter: GraphRewriter, node: RawNode) -> None:
    x, filters = _X_AND_FILTERS[node.op]
    inputs = list(node.inputs)
    inputs[x] = _transposed(rewriter, node, inputs[x], _TO_FRONT)
    inputs[filters] = _transposed(rewriter, node, inputs[filters], _FILTERS)
    y = rewriter.tensors[node.outputs[0]]
    shape = tuple(y.shape[axis] for axis in _TO_FRONT)
    channels_first = rewriter.tensor("volume", y.dtype, shape)
    options = {**node.options, CHANNELS_FIRST: True}
    convolution = replace(node, outputs=(channels_first,))
    rewriter.emit(convolution, node.op, inputs, **options)
    activation = str(node.options["fused_activation_function"])
    back = rewriter.constant("axes", np.array(_TO_BACK, np.int32))
    if activation not in _ACTIVATIONS:
        rewriter.emit(node, "TRANSPOSE", (channels_first, back))
        return
    plain = rewriter.tensor("volume", y.dtype, y.shape)
    moved = replace(node, outputs=(plain,))
    rewriter.emit(moved, "TRANSPOSE", (channels_first, back))
    rewriter.emit(node, activation, (plain,))


def _transposed(
    rewriter: GraphRewriter, node: RawNode, index: int, axes: tuple[int, ...]
) -> int:
    source = rewriter.tensors[index]
    shape = tuple(source.shape[axis] for axis in axes)
    turned = rewriter.tensor("volume", source.dtype, shape)
    order = rewriter.constant("axes", np.array(axes, np.int32))
    rewriter.emit(replace(node, outputs=(turned,)), "TRANSPOSE", (index, order))
    return turned
