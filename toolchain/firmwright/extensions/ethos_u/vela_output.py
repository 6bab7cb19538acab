"""Operators `ethos-u` of models that Vela has compiled: their memory becomes options.

Such an operator reads a command stream, weights, one or two scratch tensors that
nothing writes, and its inputs. The metadata OfflineMemoryAllocation has the offsets of
tensors in the scratch memory: int32 numbers, of which the first three are version,
subgraphs and number of tensors.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.errors import ModelError
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.rewrites import ModelRewrite
from firmwright.ir.core import Attrs

ETHOS_U = "custom:ethos-u"
_METADATA = "OfflineMemoryAllocation"
_HEADER = 3
_SCRATCH = slice(2, 4)


def describe_npu_memory(model: RawModel) -> RawModel:
    """Replace the scratch inputs of operators `ethos-u` by options."""
    if not any(map(_has_command_stream, model.subgraphs)):
        return model
    data = model.metadata.get(_METADATA, b"")
    numbers = [int(n) for n in np.frombuffer(data[: len(data) // 4 * 4], "<i4")]
    offsets = numbers[_HEADER:]
    graphs = [_graph(graph, offsets, model.file) for graph in model.subgraphs]
    return replace(model, subgraphs=tuple(graphs))


def _has_command_stream(graph: RawSubgraph) -> bool:
    return any(node.op == ETHOS_U for node in graph.nodes)


def _graph(graph: RawSubgraph, offsets: Sequence[int], file: str) -> RawSubgraph:
    nodes = []
    for node in graph.nodes:
        if node.op == ETHOS_U:
            nodes.append(_node(node, graph.tensors, offsets, file))
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _node(
    node: RawNode, tensors: Sequence[RawTensor], offsets: Sequence[int], file: str
) -> RawNode:
    scratch = []
    for index in node.inputs[_SCRATCH]:
        if 0 <= index < len(tensors):
            scratch.append(tensors[index])
    inputs = (*node.inputs[: _SCRATCH.start], *node.inputs[_SCRATCH.stop :])
    placed = (*inputs[_SCRATCH.start :], *node.outputs)
    if len(scratch) < 2 or not _have_offsets(placed, offsets):
        lacks = f"scratch tensors, or offsets in {_METADATA}"
        what = f"the operator ethos-u lacks {lacks}."
        raise ModelError.broken(what, where=file)
    arena, fast = scratch
    is_shared = arena.index == fast.index or offsets[arena.index] == offsets[fast.index]
    options: Attrs = {
        "arena_bytes": arena.shape[0],
        "fast_bytes": 0 if is_shared else fast.shape[0],
        "offsets": tuple(offsets[index] for index in placed),
    }
    return replace(node, inputs=inputs, options=options)


def _have_offsets(tensors: Sequence[int], offsets: Sequence[int]) -> bool:
    for index in tensors:
        if not 0 <= index < len(offsets) or offsets[index] < 0:
            return False
    return True


MODEL_REWRITES: tuple[ModelRewrite, ...] = (describe_npu_memory,)
